/* The counters: a file that every process which loads the library maps, and that a test reads while they run.
 *
 *     u64 rows                                  how many are taken
 *     { char function[56]; u64 calls[1 + 16]; } calls on no GPU, on GPU 0, on GPU 1, ...
 *
 * A call is counted before it does anything else, so that one that never returns is counted too. Two processes that come to
 * a function for the first time at the same moment may take a row each: readers add up. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

enum { MOST_ROWS = 128, NAME = 56 };

struct row {
    char function[NAME];
    _Atomic uint64_t calls[1 + MOST_GPUS];
};

struct counters {
    _Atomic uint64_t rows;
    struct row row[MOST_ROWS];
};

static struct counters *map_counters(void)
{
    char path[PATH + sizeof "/calls"];
    snprintf(path, sizeof path, "%s/calls", fake_folder());
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0 || ftruncate(descriptor, sizeof(struct counters)) != 0)
        die("cannot be written: %s", path);
    struct counters *counters = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (counters == MAP_FAILED)
        die("cannot be mapped: %s", path);
    return counters;
}

static struct row *row_for(struct counters *counters, const char *function)
{
    for (uint64_t i = 0; i < counters->rows; i++)
        if (strncmp(counters->row[i].function, function, NAME) == 0)
            return &counters->row[i];
    uint64_t taken = atomic_fetch_add(&counters->rows, 1);
    if (taken >= MOST_ROWS || strlen(function) >= NAME)
        die("no room to count %s", function);
    strcpy(counters->row[taken].function, function);
    return &counters->row[taken];
}

void count_call(const char *function, int gpu)
{
    static struct counters *counters;
    if (!counters)
        counters = map_counters();
    atomic_fetch_add(&row_for(counters, function)->calls[gpu + 1], 1);
}
