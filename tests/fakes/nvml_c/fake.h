/* What the parts of the fake share: the state as read from its file, and who answers for what.
 *
 *     state.c   the state file
 *     rules.c   what it says a function does: fail, wait, abort
 *     calls.c   the counters
 *     power.c   the power-sample buffer and the energy counter
 *     nvml.c    the functions of the library
 *
 * As with the probe, one thread at a time calls the library. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>

#include "nvml.h"

enum {
    MOST_GPUS = 16,
    MOST_RULES = 16, /* of the driver, and of each GPU */
    MOST_FIELDS = 16,
    BUFFER_ENTRIES = 119, /* measured on an H200 (driver 580): 2.4 s at 20 ms */
    TEXT = 96,
    PATH = 256,
};

#define US_PER_MS 1000ULL
#define US_PER_SECOND 1000000ULL

/* What a function does before it answers, or instead of it. */
enum deed { FAIL, ABORT, PAUSE, SLEEP, CREATE, READ };

struct rule {
    char function[TEXT]; /* or "every" */
    enum deed deed;
    unsigned int number; /* FAIL: the error; SLEEP: milliseconds */
    char path[PATH];     /* CREATE, READ */
};

struct rules {
    unsigned int count;
    struct rule rule[MOST_RULES];
};

struct field {
    unsigned int id;
    unsigned int value;
    nvmlReturn_t answer;
    bool filled;
};

/* What the power-sample buffer holds. */
enum trace_kind { NO_TRACE, CONSTANT, BURSTS, RECORDED };

struct trace {
    enum trace_kind kind;
    unsigned int low_mw; /* CONSTANT: all there is */
    unsigned int high_mw;
    unsigned int width_ms;
    unsigned int period_ms;
    unsigned long long start_us; /* RECORDED: wall time of offset 0 */
    char path[PATH];
};

struct gpu {
    char bus_id[32];
    char uuid[TEXT];
    char serial[TEXT];
    char name[TEXT];
    char vbios[TEXT];
    unsigned int power_mw;
    unsigned int energy_mj;
    unsigned int energy_rate_mw; /* what the counter gains on top, since boot */
    unsigned int limit_mw;
    unsigned int default_limit_mw;
    unsigned int temperature_c;
    unsigned int clock_sm_mhz;
    unsigned int clock_memory_mhz;
    unsigned int utilisation_percent;
    unsigned long long memory_used_bytes;
    unsigned long long memory_total_bytes;
    unsigned long long event_reasons;
    unsigned int performance_state;
    unsigned int link_generation;
    unsigned int link_width;
    unsigned int replays;
    unsigned int mig_mode;
    unsigned int minor_number;
    unsigned int p2p_status; /* from it to every other */
    char compute_pids[PATH]; /* of the processes with a compute context, blanks between them */
    unsigned int field_count;
    struct field field[MOST_FIELDS];
    struct trace trace;
    struct rules rules;
};

struct state {
    char driver_version[TEXT];  /* of the kernel module */
    char library_version[TEXT]; /* of the library's file */
    struct rules rules;         /* of the driver as a whole */
    unsigned int gpu_count;
    struct gpu gpu[MOST_GPUS]; /* in index order */
};

/* The folder that holds `state` and `calls`: $NVML_FAKE, or /run/nvml-fake. */
const char *fake_folder(void);

/* The state as its file says now. The pointer is good until the next call. */
const struct state *current_state(void);

/* The rule for a function among these, or for every one; NULL: none. */
const struct rule *rule_in(const struct rules *rules, const char *function);

/* The GPU at a PCI address, however it is spelt; NULL: none. As good as long as `current_state`. */
const struct gpu *gpu_at(const char *bus_id);

/* Do what the rules say of this function, on this GPU if one is named; NVML_SUCCESS: go on and answer. */
nvmlReturn_t obey(const char *function, const char *bus_id);

/* Whether two texts name the same PCI function, however they are spelt. */
bool same_pci_function(const char *one, const char *other);

/* Domain, bus, device, function of an address; false when it is none. */
bool parse_pci(const char *text, unsigned int address[4]);

/* Count one call, on the GPU of that index; -1: on none. */
void count_call(const char *function, int gpu);

/* Oldest first; how many entries the buffer holds. */
unsigned int power_buffer(const struct gpu *gpu, unsigned long long now_us, nvmlSample_t buffer[BUFFER_ENTRIES]);

/* Millijoules, renewed every 100 ms. */
unsigned long long energy_counter(const struct gpu *gpu);

/* Wall time. */
unsigned long long now_us(void);

/* Say why on standard error and abort, without a core file. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
