/* An activity in C: joins frame "fast" and exports a variable.
 *   cc -o control control.c $(pkg-config --cflags --libs tahti)
 */
#include <stdio.h>
#include <time.h>
#include <tahti.h>

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
    const char *activity = argc > 1 ? argv[1] : "control";
    tahti_exports *exports = tahti_export_open(activity, 1);
    double safe = 0.0;
    int drive = exports ? tahti_export_double(exports, "drive", "V", &safe) : -1;
    tahti_frame *frame = drive < 0 ? NULL : tahti_frame_join("fast", activity, exports, 20000);
    if (!frame) {
        fprintf(stderr, "%s: %s\n", activity, tahti_error());
        return 1;
    }
    tahti_turn turn = { .size = sizeof turn };
    uint64_t calls = 0;
    int said;
    while ((said = tahti_frame_yield(frame, &turn)) == 1) {
        /* 80 us of work; every 700th call takes far too long. */
        uint64_t end = now_ns() + (++calls % 700 == 0 ? 2500000u : 80000u);
        while (now_ns() < end) { }
        tahti_set_double(exports, drive, 0.001 * (double)(calls % 1000), turn.pulse);
    }
    if (said < 0)
        fprintf(stderr, "%s: %s\n", activity, tahti_error());
    else
        printf("%s: the frame has ended after %llu calls\n", activity, (unsigned long long)calls);
    tahti_frame_leave(frame);
    return said < 0; /* so that the plant starts it anew */
}
