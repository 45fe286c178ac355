/* An activity of the tests: activity FRAME NAME EVERY HOW [MUTEX]. In each EVERYth call (0: never) it misbehaves by
 * HOW: spin or sleep (ten seconds each), long (spins for 50 ms), exit, or mode:NAME (requests that mode). Any other
 * word has no effect. With MUTEX it holds this mutex in each call, also when it misbehaves, and counts the owners that
 * died with it. It exports the count as variable "inherited" of the segment MUTEX-NAME. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <tahti.h>

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    unsigned long every = strtoul(argv[3], NULL, 10), calls = 0;
    tahti_mutex *mutex = argc > 5 ? tahti_mutex_open(argv[5]) : NULL;
    char name[200];
    snprintf(name, sizeof name, "%s-%s", argc > 5 ? argv[5] : "", argv[2]);
    tahti_exports *exports = mutex ? tahti_export_open(name, 1) : NULL;
    int inherited = exports ? tahti_export_int(exports, "inherited", "", NULL) : 0;
    int64_t died = 0;
    if (argc > 5 && !exports) {
        fprintf(stderr, "%s: %s\n", argv[2], tahti_error());
        return 1;
    }
    tahti_frame *frame = tahti_frame_join(argv[1], argv[2], NULL, 20000);
    if (!frame) {
        fprintf(stderr, "%s: %s\n", argv[2], tahti_error());
        return 1;
    }
    tahti_turn turn = { .size = sizeof turn };
    while (tahti_frame_yield(frame, &turn) == 1) {
        if (mutex) {
            int held = tahti_mutex_lock(mutex);
            if (held < 0)
                return 4;
            died += held;
            tahti_set_int(exports, inherited, died, turn.pulse);
        }
        if (every == 0 || ++calls % every != 0) {
            if (mutex)
                tahti_mutex_unlock(mutex);
            continue;
        }
        uint64_t end = now_ns() + (strcmp(argv[4], "long") == 0 ? 50000000u : 10000000000u);
        if (strcmp(argv[4], "exit") == 0)
            _exit(3);
        if (strncmp(argv[4], "mode:", 5) == 0 &&
            (tahti_frame_mode(frame, argv[4] + 5) != 0 || tahti_frame_mode(frame, "no such mode") != -1)) {
            fprintf(stderr, "%s: %s\n", argv[2], tahti_error());
            return 5;
        }
        if (strcmp(argv[4], "sleep") == 0)
            sleep(10);
        while ((strcmp(argv[4], "spin") == 0 || strcmp(argv[4], "long") == 0) && now_ns() < end) { }
        if (mutex)
            tahti_mutex_unlock(mutex);
    }
    tahti_frame_leave(frame);
    return 0;
}
