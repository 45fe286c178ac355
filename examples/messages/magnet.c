/* An equipment manager with ten magnets:
 *   magnet [SERVER]
 *   tahti msg send put/demo_mag_1/2.5A get/demo_mag_1/current
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tahti.h>

#define MAGNETS 10

static double currents[MAGNETS];

static void answer(void *user, const tahti_asked *asked, tahti_replies *replies) {
    char said[64];
    int magnet = -1;
    (void)user;
    if (strncmp(asked->object, "demo_mag_", 9) == 0 && strlen(asked->object) == 10)
        magnet = asked->object[9] - '0';
    if (magnet < 0 || magnet >= MAGNETS) {
        tahti_answer(replies, asked, TAHTI_NO_OBJECT, "expected demo_mag_0 to demo_mag_9", NULL, 0);
    } else if (strcmp(asked->verb, "put") == 0) {
        char *rest;
        double wanted = strtod(asked->complement, &rest);
        if (rest == asked->complement || strcmp(rest, "A") != 0 || !(fabs(wanted) <= 120)) {
            tahti_answer(replies, asked, TAHTI_RANGE, "expected -120A to 120A", NULL, 0);
            return;
        }
        if (!(asked->flags & TAHTI_DRY_RUN))
            currents[magnet] = wanted;
        tahti_answer(replies, asked, TAHTI_OK, asked->complement, NULL, 0);
    } else if (strcmp(asked->verb, "get") == 0) {
        snprintf(said, sizeof said, "%gA", currents[magnet]);
        tahti_answer(replies, asked, TAHTI_OK, said, NULL, 0);
    } else {
        tahti_answer(replies, asked, TAHTI_NO_VERB, "expected get or put", NULL, 0);
    }
}

int main(int argc, char **argv) {
    const char *server = argc > 1 ? argv[1] : "main";
    tahti_manager *manager = tahti_manager_connect(server, "demo-magnets", "demo_mag", 1 << TAHTI_BAND);
    if (!manager) {
        fprintf(stderr, "magnet: %s\n", tahti_error());
        return 1;
    }
    printf("serving demo_mag\n");
    fflush(stdout);
    while (tahti_manager_serve(manager, TAHTI_BAND, answer, NULL, 1000000000) >= 0)
        ;
    fprintf(stderr, "magnet: %s\n", tahti_error());
    tahti_manager_close(manager);
    return 1;
}
