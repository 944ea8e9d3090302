/* libnvidia-ml.so.1 without a GPU: the functions that the nvml probe calls, answered from a state file (state.c).
 *
 *     NVML_FAKE=/tmp/x LD_LIBRARY_PATH=/tmp/lib python -m xidwatch.probes.worker nvml
 *
 * As the real one it
 *   - answers error 15 or 16 for the GPU that is lost or needs a reset, and for no other; but a lookup by UUID or serial
 *     fails with 15 as soon as any GPU is lost (nvml.h);
 *   - takes the process down when it is called with a handle that it never gave out in this session, or whose GPU is gone;
 *   - keeps the version it was loaded with: after an upgrade only a new process gets on with the new kernel module;
 *   - stays mapped after nvmlShutdown.
 * Unlike it, it never answers without having counted the call (calls.c). A driver that lacks a function is built with that
 * symbol made local (a linker's version script). */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_HANDLES = 1024 };

/* Good for one GPU in one session; never used again for another, so that a stale one is known as such. */
struct nvmlDevice_st {
    unsigned int session;
    char bus_id[32];
};

static struct nvmlDevice_st handles[MOST_HANDLES];
static unsigned int handle_count;
static unsigned int session;      /* the latest; 0 before the first */
static unsigned int initialised;  /* how often more than it was shut down */
static char loaded_version[TEXT]; /* what library_version was when the library was loaded */

/* The version is part of the file, so it is settled when the file is mapped. */
__attribute__((constructor)) static void remember_version(void)
{
    strcpy(loaded_version, current_state()->library_version);
}

/* ---- every call's way in */

static nvmlReturn_t on_driver(const char *function)
{
    count_call(function, -1);
    return initialised ? obey(function, NULL) : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t at(const char *function, const char *bus_id, const struct gpu **gpu)
{
    *gpu = gpu_at(bus_id);
    count_call(function, *gpu ? (int)(*gpu - current_state()->gpu) : -1);
    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t answer = obey(function, bus_id);
    *gpu = gpu_at(bus_id);
    return answer == NVML_SUCCESS && !*gpu ? NVML_ERROR_NOT_FOUND : answer;
}

static bool is_good(nvmlDevice_t device)
{
    for (unsigned int i = 0; i < handle_count; i++)
        if (device == &handles[i])
            return device->session == session && gpu_at(device->bus_id);
    return false;
}

static nvmlReturn_t on_device(const char *function, nvmlDevice_t device, const struct gpu **gpu)
{
    if (!device) {
        count_call(function, -1);
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (initialised && !is_good(device))
        die("%s with a handle that is not valid (any more)", function);
    return at(function, device->bus_id, gpu);
}

static nvmlReturn_t handle_for(const char *function, const char *bus_id, nvmlDevice_t *device)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = at(function, bus_id, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    for (*device = handles; *device < handles + handle_count; ++*device)
        if ((*device)->session == session && strcmp((*device)->bus_id, gpu->bus_id) == 0)
            return NVML_SUCCESS;
    if (handle_count++ == MOST_HANDLES)
        die("too many handles");
    (*device)->session = session;
    strcpy((*device)->bus_id, gpu->bus_id);
    return NVML_SUCCESS;
}

static nvmlReturn_t put_text(char *to, unsigned int length, const char *text)
{
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

/* ---- the session, and who is there */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    count_call(__func__, -1);
    nvmlReturn_t answer = obey(__func__, NULL);
    if (answer != NVML_SUCCESS)
        return answer;
    if (strcmp(current_state()->driver_version, loaded_version) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    session += initialised++ == 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t answer = on_driver(__func__);
    if (answer == NVML_SUCCESS)
        initialised--;
    return answer;
}

/* The one that cannot fail, and needs no session. */
EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    count_call(__func__, -1);
    switch ((int)result) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t answer = on_driver(__func__);
    return answer == NVML_SUCCESS ? put_text(version, length, current_state()->driver_version) : answer;
}

/* Counts those that cannot be opened as well. */
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t answer = on_driver(__func__);
    if (answer == NVML_SUCCESS)
        *count = current_state()->gpu_count;
    return answer;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    const struct state *state = current_state();
    if (index < state->gpu_count) {
        char bus_id[32];
        strcpy(bus_id, state->gpu[index].bus_id);
        return handle_for(__func__, bus_id, device);
    }
    nvmlReturn_t answer = on_driver(__func__);
    return answer == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : answer;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return handle_for(__func__, bus_id, device);
}

static bool is_lost(const struct gpu *gpu)
{
    const struct rule *rule = rule_in(&gpu->rules, "every");
    return rule && rule->deed == FAIL && rule->number == NVML_ERROR_GPU_IS_LOST;
}

/* By UUID or serial, whose place in struct gpu is given: all GPUs are asked for theirs, and the first that is lost ends it. */
static nvmlReturn_t handle_by_text(const char *function, const char *text, size_t member, nvmlDevice_t *device)
{
    char bus_id[32] = "";
    const struct state *state = current_state();
    for (unsigned int i = 0; i < state->gpu_count; i++) {
        if (is_lost(&state->gpu[i])) {
            nvmlReturn_t answer = on_driver(function);
            return answer == NVML_SUCCESS ? NVML_ERROR_GPU_IS_LOST : answer;
        }
        if (strcmp((const char *)&state->gpu[i] + member, text) == 0)
            strcpy(bus_id, state->gpu[i].bus_id);
    }
    return handle_for(function, bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return handle_by_text(__func__, uuid, offsetof(struct gpu, uuid), device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return handle_by_text(__func__, serial, offsetof(struct gpu, serial), device);
}

/* ---- one GPU's answers */

/* A function whose whole answer is one expression of `gpu`. */
#define ANSWERS(function, type, expression)                          \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, type *value)   \
    {                                                                \
        const struct gpu *gpu;                                       \
        nvmlReturn_t answer = on_device(__func__, device, &gpu);     \
        if (answer == NVML_SUCCESS)                                  \
            *value = expression;                                     \
        return answer;                                               \
    }

/* A function that fills a caller's buffer with a text of `gpu`. */
#define TELLS(function, member)                                                       \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length) \
    {                                                                                 \
        const struct gpu *gpu;                                                        \
        nvmlReturn_t answer = on_device(__func__, device, &gpu);                      \
        return answer == NVML_SUCCESS ? put_text(text, length, gpu->member) : answer; \
    }

ANSWERS(nvmlDeviceGetPowerUsage, unsigned int, gpu->power_mw)
ANSWERS(nvmlDeviceGetEnforcedPowerLimit, unsigned int, gpu->limit_mw)
ANSWERS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, gpu->default_limit_mw)
ANSWERS(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_counter(gpu))
ANSWERS(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, gpu->event_reasons)
ANSWERS(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, gpu->event_reasons)
ANSWERS(nvmlDeviceGetPerformanceState, unsigned int, gpu->performance_state)
ANSWERS(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, gpu->link_generation)
ANSWERS(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, gpu->link_width)
ANSWERS(nvmlDeviceGetPcieReplayCounter, unsigned int, gpu->replays)
ANSWERS(nvmlDeviceGetMinorNumber, unsigned int, gpu->minor_number)
ANSWERS(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, ((nvmlUtilization_t){gpu->utilisation_percent, 0}))
ANSWERS(nvmlDeviceGetMemoryInfo, nvmlMemory_t,
        ((nvmlMemory_t){gpu->memory_total_bytes, gpu->memory_total_bytes - gpu->memory_used_bytes, gpu->memory_used_bytes}))

TELLS(nvmlDeviceGetUUID, uuid)
TELLS(nvmlDeviceGetSerial, serial)
TELLS(nvmlDeviceGetName, name)
TELLS(nvmlDeviceGetVbiosVersion, vbios)

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    const struct gpu *gpu;
    unsigned int address[4];
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    parse_pci(gpu->bus_id, address);
    *info = (nvmlPciInfo_t){.domain = address[0], .bus = address[1], .device = address[2]};
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", address[0] & 0xffff, address[1] & 0xff, address[2] & 0x1f,
             address[3] & 7);
    strcpy(info->busId, gpu->bus_id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer == NVML_SUCCESS)
        *current = *pending = gpu->mig_mode;
    return answer;
}

/* The other end is asked as well: where it is lost, or its handle is no good, that is the answer. */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int index, unsigned int *status)
{
    const struct gpu *gpu, *other;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!peer || index != NVML_P2P_CAPS_INDEX_READ)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!is_good(peer))
        die("%s with a peer's handle that is not valid (any more)", __func__);
    answer = obey("every", peer->bus_id);
    if (answer != NVML_SUCCESS)
        return answer;
    other = gpu_at(peer->bus_id);
    gpu = gpu_at(device->bus_id);
    if (!gpu || !other)
        return NVML_ERROR_NOT_FOUND;
    *status = gpu == other ? NVML_P2P_STATUS_NOT_SUPPORTED : gpu->p2p_status;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    if (clock != NVML_CLOCK_SM && clock != NVML_CLOCK_MEM)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = clock == NVML_CLOCK_SM ? gpu->clock_sm_mhz : gpu->clock_memory_mhz;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = gpu->temperature_c;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    temperature->temperature = (int)gpu->temperature_c;
    return NVML_SUCCESS;
}

/* Says how many there are where the array is too small for them; otherwise fills it. */
static nvmlReturn_t put_processes(const char *pids, unsigned int *count, nvmlProcessInfo_t *infos)
{
    unsigned int room = *count;
    int length;
    *count = 0;
    for (unsigned int pid; sscanf(pids, "%u%n", &pid, &length) == 1; pids += length) {
        if (infos && *count < room)
            infos[*count] = (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = 545259520};
        ++*count;
    }
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    return answer == NVML_SUCCESS ? put_processes(gpu->compute_pids, count, infos) : answer;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    return answer == NVML_SUCCESS ? put_processes(gpu->compute_pids, count, infos) : answer;
}

static void fill_field(const struct gpu *gpu, nvmlFieldValue_t *value)
{
    const struct field *field = gpu->field;
    while (field < gpu->field + gpu->field_count && field->id != value->fieldId)
        field++;
    bool known = field < gpu->field + gpu->field_count;
    *value = (nvmlFieldValue_t){.fieldId = value->fieldId, .scopeId = value->scopeId};
    value->nvmlReturn = known ? field->answer : NVML_ERROR_NOT_SUPPORTED;
    if (known && field->filled) {
        value->timestamp = (long long)now_us();
        value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        value->value.uiVal = field->value;
    }
}

/* Succeeds as a whole: each element says for itself whether it was answered. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    const struct gpu *gpu;
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    for (int i = 0; answer == NVML_SUCCESS && i < count; i++)
        fill_field(gpu, &values[i]);
    return answer;
}

/* Without `samples` it says how many there may be; with them, those newer than `last_seen_us`, and how many they are. */
EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int kind, unsigned long long last_seen_us, unsigned int *value_type,
                                         unsigned int *count, nvmlSample_t *samples)
{
    const struct gpu *gpu;
    nvmlSample_t buffer[BUFFER_ENTRIES];
    nvmlReturn_t answer = on_device(__func__, device, &gpu);
    if (answer != NVML_SUCCESS)
        return answer;
    if (kind != NVML_TOTAL_POWER_SAMPLES || (samples && *count == 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int held = power_buffer(gpu, now_us(), buffer), seen = 0;
    while (seen < held && buffer[seen].timeStamp / US_PER_MS <= last_seen_us / US_PER_MS) /* whole milliseconds, as the driver */
        seen++;
    if (seen == held)
        return NVML_ERROR_NOT_FOUND;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = BUFFER_ENTRIES;
        return NVML_SUCCESS;
    }
    *count = held - seen < *count ? held - seen : *count;
    memcpy(samples, buffer + seen, *count * sizeof *samples);
    return NVML_SUCCESS;
}
