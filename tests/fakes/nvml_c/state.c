/* The state file: what there is and how it behaves. It is looked at on every call and read again when it was replaced.
 *
 *     driver_version = 580.159.04            # of the kernel module; another than the library's: error 18 at init
 *     library_version = 580.159.04           # of this file; what was there when it was loaded counts
 *     nvmlInitWithFlags = read /tmp/x/gate   # a rule: what a function does. `every` stands for all functions
 *
 *     [gpu]                                  # one section a GPU, in index order
 *     bus_id = 00000000:11:00.0
 *     power_mw = 250000
 *     field.186 = 251000                     # or `error 3`, or `unfilled`: success and all zeros
 *     compute_pids = 572 579                 # processes with a compute context; empty: none
 *     p2p_status = 0                         # from it to every other GPU: 0 OK, 1 the chipset cannot, 2 the GPU cannot, ...
 *     trace = bursts 127000 931000 100 500   # mW low, mW high, ms wide, ms from one to the next
 *     nvmlDeviceGetSerial = error 3          # a rule for this GPU alone
 *
 * Rules: `error NUMBER`, `abort`, `pause` (never returns), `sleep MILLISECONDS`, `create FILE` (on a frozen filesystem:
 * uninterruptible sleep), `read FIFO` (until somebody has opened and closed it). After a wait the answer is that of the new
 * time. Traces: `none`, `constant MILLIWATTS`, `bursts ...`, `file START_US PATH` (lines of offset in us and mW).
 *
 * What it does not understand ends the process: a misspelt state must not pass for a healthy driver. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "fake.h"

enum kind { IS_TEXT, IS_UINT, IS_ULONG };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size;
};

#define KEY(structure, kind, member) {#member, kind, offsetof(struct structure, member), sizeof((struct structure *)0)->member}

static const struct key DRIVER_KEYS[] = {
    KEY(state, IS_TEXT, driver_version),
    KEY(state, IS_TEXT, library_version),
    {NULL, IS_TEXT, 0, 0},
};

static const struct key GPU_KEYS[] = {
    KEY(gpu, IS_TEXT, bus_id),
    KEY(gpu, IS_TEXT, uuid),
    KEY(gpu, IS_TEXT, serial),
    KEY(gpu, IS_TEXT, name),
    KEY(gpu, IS_TEXT, vbios),
    KEY(gpu, IS_UINT, power_mw),
    KEY(gpu, IS_UINT, energy_mj),
    KEY(gpu, IS_UINT, energy_rate_mw),
    KEY(gpu, IS_UINT, limit_mw),
    KEY(gpu, IS_UINT, default_limit_mw),
    KEY(gpu, IS_UINT, temperature_c),
    KEY(gpu, IS_UINT, clock_sm_mhz),
    KEY(gpu, IS_UINT, clock_memory_mhz),
    KEY(gpu, IS_UINT, utilisation_percent),
    KEY(gpu, IS_ULONG, memory_used_bytes),
    KEY(gpu, IS_ULONG, memory_total_bytes),
    KEY(gpu, IS_ULONG, event_reasons),
    KEY(gpu, IS_UINT, performance_state),
    KEY(gpu, IS_UINT, link_generation),
    KEY(gpu, IS_UINT, link_width),
    KEY(gpu, IS_UINT, replays),
    KEY(gpu, IS_UINT, mig_mode),
    KEY(gpu, IS_UINT, minor_number),
    KEY(gpu, IS_UINT, p2p_status),
    KEY(gpu, IS_TEXT, compute_pids),
    {NULL, IS_TEXT, 0, 0},
};

static const char *const DEEDS[] = {"error", "abort", "pause", "sleep", "create", "read"}; /* in the order of enum deed */

static void copy(char *to, size_t size, const char *text)
{
    if (strlen(text) >= size)
        die("too long: %s", text);
    strcpy(to, text);
}

static unsigned long long number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    if (end == text || *end)
        die("not a number: %s", text);
    return value;
}

/* Stores the value if the key is one of the table's. */
static bool store(const struct key *key, void *structure, const char *name, const char *value)
{
    while (key->name && strcmp(key->name, name) != 0)
        key++;
    if (!key->name)
        return false;
    char *member = (char *)structure + key->offset;
    switch (key->kind) {
    case IS_TEXT:
        copy(member, key->size, value);
        break;
    case IS_UINT:
        *(unsigned int *)member = (unsigned int)number(value);
        break;
    case IS_ULONG:
        *(unsigned long long *)member = number(value);
        break;
    }
    return true;
}

static void add_rule(struct rules *rules, const char *function, const char *text)
{
    char word[16] = "", argument[PATH] = "";
    sscanf(text, "%15s %255[^\n]", word, argument);
    unsigned int deed = 0;
    while (deed <= READ && strcmp(DEEDS[deed], word) != 0)
        deed++;
    if (deed > READ || rules->count == MOST_RULES)
        die("not a rule, or one too many: %s = %s", function, text);
    struct rule *rule = &rules->rule[rules->count++];
    copy(rule->function, sizeof rule->function, function);
    rule->deed = (enum deed)deed;
    if (deed == FAIL || deed == SLEEP)
        rule->number = (unsigned int)number(argument);
    if (deed == CREATE || deed == READ)
        copy(rule->path, sizeof rule->path, argument);
}

static void add_field(struct gpu *gpu, const char *id, const char *text)
{
    if (gpu->field_count == MOST_FIELDS)
        die("too many fields");
    struct field *field = &gpu->field[gpu->field_count++];
    field->id = (unsigned int)number(id);
    if (strncmp(text, "error ", 6) == 0) {
        field->answer = (nvmlReturn_t)number(text + 6);
    } else if (strcmp(text, "unfilled") != 0) {
        field->filled = true;
        field->value = (unsigned int)number(text);
    }
}

static void set_trace(struct trace *trace, const char *text)
{
    struct trace found = {0};
    if (sscanf(text, "constant %u", &found.low_mw) == 1)
        found.kind = CONSTANT;
    else if (sscanf(text, "bursts %u %u %u %u", &found.low_mw, &found.high_mw, &found.width_ms, &found.period_ms) == 4 && found.period_ms)
        found.kind = BURSTS;
    else if (sscanf(text, "file %llu %255[^\n]", &found.start_us, found.path) == 2)
        found.kind = RECORDED;
    else if (strcmp(text, "none") != 0)
        die("not a trace: %s", text);
    *trace = found;
}

static void set(struct state *state, const char *key, const char *value)
{
    struct gpu *gpu = state->gpu_count ? &state->gpu[state->gpu_count - 1] : NULL;
    if (strncmp(key, "nvml", 4) == 0 || strcmp(key, "every") == 0)
        add_rule(gpu ? &gpu->rules : &state->rules, key, value);
    else if (!gpu && store(DRIVER_KEYS, state, key, value))
        return;
    else if (gpu && strncmp(key, "field.", 6) == 0)
        add_field(gpu, key + 6, value);
    else if (gpu && strcmp(key, "trace") == 0)
        set_trace(&gpu->trace, value);
    else if (!gpu || !store(GPU_KEYS, gpu, key, value))
        die("not a key here: %s", key);
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1]))
        *--end = '\0';
    return text;
}

static void take_line(struct state *state, char *line)
{
    line[strcspn(line, "#")] = '\0';
    line = trim(line);
    if (!*line)
        return;
    if (strcmp(line, "[gpu]") == 0) {
        if (state->gpu_count++ == MOST_GPUS)
            die("too many GPUs");
        return;
    }
    char *equals = strchr(line, '=');
    if (!equals)
        die("neither section nor key: %s", line);
    *equals = '\0';
    set(state, trim(line), trim(equals + 1));
}

static void check(const struct state *state)
{
    unsigned int address[4];
    for (unsigned int i = 0; i < state->gpu_count; i++)
        if (!parse_pci(state->gpu[i].bus_id, address))
            die("GPU %u has no PCI address: '%s'", i, state->gpu[i].bus_id);
}

bool parse_pci(const char *text, unsigned int address[4])
{
    return sscanf(text, "%x:%x:%x.%x", &address[0], &address[1], &address[2], &address[3]) == 4;
}

bool same_pci_function(const char *one, const char *other)
{
    unsigned int a[4], b[4];
    return parse_pci(one, a) && parse_pci(other, b) && memcmp(a, b, sizeof a) == 0;
}

const char *fake_folder(void)
{
    const char *folder = getenv("NVML_FAKE");
    return folder ? folder : "/run/nvml-fake";
}

static bool same_file(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_size == other->st_size && one->st_mtim.tv_sec == other->st_mtim.tv_sec &&
           one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

const struct state *current_state(void)
{
    static struct state state;
    static struct stat read_from;
    char path[PATH + sizeof "/state"], line[2 * PATH];
    struct stat there;

    snprintf(path, sizeof path, "%s/state", fake_folder());
    if (stat(path, &there) == 0 && same_file(&there, &read_from))
        return &state;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &read_from) != 0) /* the file that is read, whatever has taken its place since */
        die("cannot be read: %s", path);
    memset(&state, 0, sizeof state);
    while (fgets(line, sizeof line, file))
        take_line(&state, line);
    fclose(file);
    check(&state);
    return &state;
}
