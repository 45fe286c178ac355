/* A periodic loop in C: cc -o loop loop.c $(pkg-config --cflags --libs tahti)
 *   loop [PERIOD_US [PRIORITY [CPU]]]
 * Runs 1000 cycles, exports a variable and prints how late the cycles were. Then runs a quiet section of 50 ms, bound to
 * the present CPU.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tahti.h>

struct state {
    tahti_exports *exports;
    int position;
    unsigned cycles;
};

static int body(void *user, const tahti_pulse *pulse) {
    struct state *state = user;
    tahti_set_double(state->exports, state->position, 0.001 * (double)(state->cycles % 1000), pulse->number);
    return ++state->cycles == 1000;
}

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tahti_error());
    return 1;
}

int main(int argc, char **argv) {
    struct state state = { .exports = tahti_export_open("loop", 1) };
    if (!state.exports || (state.position = tahti_export_double(state.exports, "position", "mm", NULL)) < 0)
        return failed("variables");
    tahti_loop_spec spec = {
        .size = sizeof spec,
        .priority = argc > 2 ? atoi(argv[2]) : 0,
        .cpu = argc > 3 ? atoi(argv[3]) : -1,
        .name = "position",
        .period_ns = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000 : 1000000,
    };
    /* Each cycle writes the variable. With the period, readers recognise stale values. */
    tahti_export_period(state.exports, spec.period_ns);
    tahti_loops *loops = tahti_loops_new();
    int index = loops ? tahti_loops_add(loops, &spec, body, &state) : -1;
    if (index < 0 || tahti_loops_start(loops) < 0)
        return failed("loops");
    const char *missing;
    for (unsigned i = 0; (missing = tahti_loops_missing(loops, i)); i++)
        printf("%s\n", missing);
    const struct timespec tenth = { .tv_nsec = 100000000 };
    while (!tahti_loops_over(loops))
        nanosleep(&tenth, NULL);
    tahti_loop_report report = { .size = sizeof report };
    if (tahti_loops_report(loops, (unsigned)index, &report) != 0)
        return failed("report");
    printf("%llu cycles, %llu pulses skipped; late %.1f us median, %.1f us at most; %llu page faults\n",
           (unsigned long long)report.cycles, (unsigned long long)report.skipped, (double)report.late_median_ns / 1e3,
           (double)report.late_max_ns / 1e3, (unsigned long long)report.page_faults);
    tahti_loops_close(loops);

    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    tahti_quiet_report quiet = { .size = sizeof quiet };
    if (sched_setaffinity(0, sizeof one, &one) != 0 || tahti_quiet(50000000, 5000, &quiet) != 0)
        return failed("quiet");
    printf("quiet on CPU %u: %llu gaps, %.1f us lost, %llu interrupts, %u things not obtained\n", quiet.cpu,
           (unsigned long long)quiet.gaps, (double)quiet.lost_ns / 1e3, (unsigned long long)quiet.interrupts, quiet.missing);
    return report.cycles != 1000 || quiet.lasted_ns < 50000000;
}
