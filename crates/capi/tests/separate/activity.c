/* An activity of the tests: activity FRAME NAME EVERY HOW. In each EVERYth call it misbehaves (0: never):
 * spin, sleep (ten seconds each), exit. */
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
    tahti_frame *frame = tahti_frame_join(argv[1], argv[2], NULL, 20000);
    if (!frame) {
        fprintf(stderr, "%s: %s\n", argv[2], tahti_error());
        return 1;
    }
    tahti_turn turn = { .size = sizeof turn };
    while (tahti_frame_yield(frame, &turn) == 1) {
        if (every == 0 || ++calls % every != 0)
            continue;
        uint64_t end = now_ns() + 10000000000u;
        if (strcmp(argv[4], "exit") == 0)
            _exit(3);
        if (strcmp(argv[4], "sleep") == 0)
            sleep(10);
        else
            while (now_ns() < end) { }
    }
    tahti_frame_leave(frame);
    return 0;
}
