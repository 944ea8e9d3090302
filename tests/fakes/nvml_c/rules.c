/* Obeying the rules of the state file: what a call does before it answers, or instead. The driver's rules come before a GPU's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

void die(const char *format, ...)
{
    va_list arguments;
    fputs("fake libnvidia-ml: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    abort();
}

const struct rule *rule_in(const struct rules *rules, const char *function)
{
    for (unsigned int i = 0; i < rules->count; i++)
        if (strcmp(rules->rule[i].function, function) == 0 || strcmp(rules->rule[i].function, "every") == 0)
            return &rules->rule[i];
    return NULL;
}

const struct gpu *gpu_at(const char *bus_id)
{
    const struct state *state = current_state();
    for (unsigned int i = 0; i < state->gpu_count; i++)
        if (same_pci_function(state->gpu[i].bus_id, bus_id))
            return &state->gpu[i];
    return NULL;
}

static const struct rule *rule_for(const char *function, const char *bus_id)
{
    const struct rule *rule = rule_in(&current_state()->rules, function);
    const struct gpu *gpu = bus_id ? gpu_at(bus_id) : NULL;
    return rule || !gpu ? rule : rule_in(&gpu->rules, function);
}

static bool is_wait(const struct rule *rule)
{
    return rule && rule->deed != FAIL && rule->deed != ABORT;
}

/* Signals interrupt nothing here: a call into the driver does not return for them either. */
static int open_anyway(const char *path, int flags)
{
    int descriptor;
    do
        descriptor = open(path, flags | O_CLOEXEC, 0666);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0)
        die("cannot be opened: %s: %s", path, strerror(errno));
    return descriptor;
}

static void read_to_end(int descriptor)
{
    char bytes[256];
    ssize_t got;
    do
        got = read(descriptor, bytes, sizeof bytes);
    while (got > 0 || (got < 0 && errno == EINTR));
}

static void sleep_for(unsigned int milliseconds)
{
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

/* By value: the state may be read again meanwhile. */
static void wait_as(struct rule rule)
{
    int descriptor = -1;
    while (rule.deed == PAUSE)
        pause();
    if (rule.deed == SLEEP)
        sleep_for(rule.number);
    if (rule.deed == CREATE)
        descriptor = open_anyway(rule.path, O_CREAT | O_WRONLY);
    if (rule.deed == READ)
        read_to_end(descriptor = open_anyway(rule.path, O_RDONLY));
    if (descriptor >= 0)
        close(descriptor);
}

nvmlReturn_t obey(const char *function, const char *bus_id)
{
    const struct rule *rule = rule_for(function, bus_id);
    if (is_wait(rule)) {
        wait_as(*rule);
        rule = rule_for(function, bus_id); /* the answer is that of the time when it is given */
    }
    if (!rule || is_wait(rule))
        return NVML_SUCCESS;
    if (rule->deed == ABORT)
        die("%s aborts as told", function);
    return (nvmlReturn_t)rule->number;
}
