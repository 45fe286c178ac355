/* A team of the tests: team [FRAME NAME]. Repeatedly sums shares and checks the sum: in each call of an activity of a frame until the frame
 * ends, or without a frame a thousand times. Without a frame, it then checks that errors are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tahti.h>

enum { ITEMS = 1000, WORKERS = 2 };

struct part {
    uint64_t index, sum, calls;
};

static struct {
    uint64_t items[ITEMS];
    struct timespec nap;
} shared;

static void make(void *user, void *part, uint32_t index, uint32_t of) {
    (void)user, (void)of;
    ((struct part *)part)->index = index;
}

static void job(void *user, void *part, uint32_t index, uint32_t of) {
    struct part *mine = part;
    mine->sum = 0;
    mine->calls++;
    if (user != &shared || mine->index != index)
        return;
    for (uint64_t item = tahti_share(ITEMS, index, of); item < tahti_share(ITEMS, index + 1, of); item++)
        mine->sum += shared.items[item];
    if (index == WORKERS && shared.nap.tv_nsec)
        nanosleep(&shared.nap, NULL);
}

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tahti_error());
    return 1;
}

/* Runs one job. Returns 0 if the sum is right. */
static int once(tahti_team *team, uint64_t round) {
    uint64_t total = 0, expected = 0;
    for (int item = 0; item < ITEMS; item++)
        expected += shared.items[item] = round * (uint64_t)item;
    if (tahti_team_run(team) != 0)
        return 1;
    for (uint32_t index = 0; index <= WORKERS; index++) {
        struct part *part = tahti_team_part(team, index);
        if (!part || (uintptr_t)part % 128 != 0)
            return 1;
        total += part->sum;
    }
    return total != expected;
}

int main(int argc, char **argv) {
    tahti_team_spec spec = {.size = sizeof spec, .workers = WORKERS, .name = "sum", .part_bytes = sizeof(struct part), .spin_ns = 20000};
    spec.limit_ns = 30000000000u;
    tahti_team *team = tahti_team_start(&spec, make, job, &shared);
    if (!team)
        return failed("team");
    if (argc > 2) {
        tahti_frame *frame = tahti_frame_join(argv[1], argv[2], NULL, 20000);
        if (!frame)
            return failed("frame");
        tahti_turn turn = {.size = sizeof turn};
        for (uint64_t round = 1; tahti_frame_yield(frame, &turn) == 1; round++)
            if (once(team, round) != 0)
                return 4;
        tahti_frame_leave(frame);
        tahti_team_close(team);
        return 0;
    }
    for (uint64_t round = 1; round <= 1000; round++)
        if (once(team, round) != 0)
            return 5;
    uint64_t late = UINT64_MAX, took = UINT64_MAX;
    if (tahti_team_times(team, 0, &late, &took) != 0 || late != 0 || took == UINT64_MAX || tahti_team_times(team, WORKERS + 1, NULL, NULL) != -1)
        return 6;
    if (tahti_team_part(team, WORKERS + 1) || tahti_team_run(NULL) == 0 || tahti_team_missing(team, 0))
        return 7;
    tahti_team_close(team);
    /* A late worker is reported. The team's parts are unavailable until it has returned. */
    spec.limit_ns = 1000000;
    team = tahti_team_start(&spec, make, job, &shared);
    shared.nap.tv_nsec = 300000000;
    if (!team || tahti_team_run(team) != WORKERS || tahti_team_part(team, 0))
        return 8;
    shared.nap.tv_nsec = 0;
    while (tahti_team_run(team) != 0)
        ;
    tahti_team_close(team);
    /* Invalid specifications are refused with the reason. */
    int same[WORKERS + 1] = {0, 0, 0}, none[WORKERS + 1] = {-1, -2, -1};
    spec.cpus = same;
    if (tahti_team_start(&spec, make, job, NULL) || !strstr(tahti_error(), "two of the team"))
        return failed("one CPU for all");
    spec.cpus = none;
    if (tahti_team_start(&spec, make, job, NULL) || !strstr(tahti_error(), "CPU -2"))
        return failed("a CPU below zero");
    spec.cpus = NULL;
    spec.priority = 100;
    if (tahti_team_start(&spec, make, job, NULL) || !strstr(tahti_error(), "priority 100"))
        return failed("priority");
    spec.priority = 0;
    if (tahti_team_start(&spec, make, NULL, NULL) || tahti_team_start(NULL, make, job, NULL))
        return failed("no job");
    spec.part_bytes = UINT64_MAX;
    if (tahti_team_start(&spec, make, job, NULL) || !strstr(tahti_error(), "at most"))
        return failed("too large a part");
    return 0;
}
