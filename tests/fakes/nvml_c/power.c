/* Power over time: the buffer of total-power samples and the energy counter, as an H200 (driver 580) kept them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fake.h"

#define STEP_US (20 * US_PER_MS)
#define ENERGY_STEP_US (100 * US_PER_MS)

static unsigned long long clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (unsigned long long)now.tv_sec * US_PER_SECOND + (unsigned long long)now.tv_nsec / 1000;
}

unsigned long long now_us(void)
{
    return clock_us(CLOCK_REALTIME);
}

static unsigned int milliwatts_at(const struct trace *trace, unsigned long long stamp_us)
{
    bool in_burst = trace->kind == BURSTS && stamp_us / US_PER_MS % trace->period_ms < trace->width_ms;
    return in_burst ? trace->high_mw : trace->low_mw;
}

/* The recording as far as it has been played, or what of its end the buffer still holds. */
static unsigned int recorded(const struct trace *trace, unsigned long long now, nvmlSample_t buffer[BUFFER_ENTRIES])
{
    unsigned long long offset_us;
    unsigned int milliwatts, count = 0;
    FILE *file = fopen(trace->path, "re");
    if (!file)
        die("cannot be read: %s", trace->path);
    while (fscanf(file, "%llu %u", &offset_us, &milliwatts) == 2 && trace->start_us + offset_us <= now) {
        if (count == BUFFER_ENTRIES)
            memmove(buffer, buffer + 1, --count * sizeof *buffer);
        buffer[count++] = (nvmlSample_t){trace->start_us + offset_us, {.uiVal = milliwatts}};
    }
    fclose(file);
    return count;
}

unsigned int power_buffer(const struct gpu *gpu, unsigned long long now, nvmlSample_t buffer[BUFFER_ENTRIES])
{
    const struct trace *trace = &gpu->trace;
    if (trace->kind == NO_TRACE)
        return 0;
    if (trace->kind == RECORDED)
        return recorded(trace, now, buffer);
    unsigned long long first = (now / STEP_US - (BUFFER_ENTRIES - 1)) * STEP_US;
    for (unsigned int i = 0; i < BUFFER_ENTRIES; i++)
        buffer[i] = (nvmlSample_t){first + i * STEP_US, {.uiVal = milliwatts_at(trace, first + i * STEP_US)}};
    return BUFFER_ENTRIES;
}

unsigned long long energy_counter(const struct gpu *gpu)
{
    unsigned long long since_boot_us = clock_us(CLOCK_MONOTONIC) / ENERGY_STEP_US * ENERGY_STEP_US;
    return gpu->energy_mj + since_boot_us / US_PER_MS * gpu->energy_rate_mw / 1000;
}
