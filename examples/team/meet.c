/* Two processes that meet at a barrier, pass a token under a mutex, and export a variable.
 *   meet serve [ROUNDS] & meet join [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tahti.h>

static void *need(const char *what, void *handle) {
    if (!handle) {
        fprintf(stderr, "%s: %s\n", what, tahti_error());
        exit(1);
    }
    return handle;
}

int main(int argc, char **argv) {
    int serve = argc > 1 && strcmp(argv[1], "serve") == 0;
    long rounds = argc > 2 ? atol(argv[2]) : 100;
    if (!serve && (argc < 2 || strcmp(argv[1], "join") != 0)) {
        fprintf(stderr, "usage: meet serve|join [ROUNDS]\n");
        return 2;
    }
    /* "serving" is printed after all objects exist, so that the other process can open them. */
    tahti_segment *segment = need("segment", serve ? tahti_segment_create("meet-token", 8) : tahti_segment_open("meet-token"));
    tahti_mutex *mutex = need("mutex", serve ? tahti_mutex_create("meet-mutex") : tahti_mutex_open("meet-mutex"));
    tahti_cond *cond = need("cond", serve ? tahti_cond_create("meet-cond") : tahti_cond_open("meet-cond"));
    tahti_barrier *barrier = need("barrier", serve ? tahti_barrier_create("meet", 2) : tahti_barrier_open("meet"));
    tahti_exports *exports = need("exports", tahti_export_open(serve ? "meet-serve" : "meet-join", 1));
    int shown = tahti_export_int(exports, "rounds", "1", NULL);
    uint64_t *token = tahti_segment_memory(segment, NULL);

    if (serve) {
        printf("serving\n");
        fflush(stdout);
    }
    if (tahti_barrier_wait(barrier, 20000, 30000000000) < 0) {
        fprintf(stderr, "the other one did not come within 30 s\n");
        return 1;
    }
    /* An even token is the server's turn, an odd one that of the other process. */
    for (long round = 0; round < rounds; ++round) {
        int got = tahti_mutex_lock(mutex);
        while (got >= 0 && *token % 2 != (serve ? 0 : 1))
            got = tahti_cond_wait(cond, mutex, 30000000000) & 2 ? -1 : 0;
        if (got < 0) {
            fprintf(stderr, "the other one is gone after %ld rounds\n", round);
            return 1;
        }
        ++*token;
        tahti_mutex_unlock(mutex);
        tahti_cond_signal(cond);
        tahti_set_int(exports, shown, round + 1, (uint64_t)round);
    }
    if (tahti_barrier_wait(barrier, 0, 30000000000) < 0)
        return 1;
    printf("%s: token %llu after %ld rounds\n", argv[1], (unsigned long long)*token, rounds);
    tahti_barrier_close(barrier);
    tahti_cond_close(cond);
    tahti_mutex_close(mutex);
    tahti_segment_close(segment);
    return 0;
}
