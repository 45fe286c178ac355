/* A client of `magnet` that sends a hundred requests without waiting for their replies:
 *   operator [SERVER]
 */
#include <inttypes.h>
#include <stdio.h>
#include <tahti.h>

#define REQUESTS 100

static int fail(const char *what) {
    fprintf(stderr, "operator: %s: %s\n", what, tahti_error());
    return 1;
}

int main(int argc, char **argv) {
    tahti_sending how = {sizeof how, 0, 2000000000, 0, NULL, 0, 0};
    tahti_reply reply = {sizeof reply, 0, 0, 0, NULL, 0, NULL, 0, 0, 0};
    int sent = 0, fine = 0, failed = 0;
    tahti_client *client = tahti_client_connect(argc > 1 ? argv[1] : "main", "operator", TAHTI_BAND);
    if (!client)
        return fail("connect");

    /* A single request, with a wait for its reply. */
    if (tahti_client_ask(client, "put/demo_mag_1/2.5A", &how, &reply) != 0)
        return fail("ask");
    printf("%s %s\n", tahti_code(reply.code), reply.text);

    /* Many requests at once. The id of a reply is that of its request. */
    while (fine + failed < REQUESTS) {
        while (sent < REQUESTS) {
            char line[64];
            int64_t id;
            snprintf(line, sizeof line, "get/demo_mag_%d/current", sent % 11);
            id = tahti_client_send(client, line, &how);
            if (id < 0)
                return fail(line);
            if (id == 0)
                break; /* the queue is full: first take replies */
            ++sent;
        }
        switch (tahti_client_next(client, &reply, 1000000000)) {
        case 1:
            if (reply.code == TAHTI_OK)
                ++fine;
            else
                ++failed;
            break;
        case -1:
            return fail("next");
        }
    }
    printf("%d answered, %d of them %s\n", fine + failed, failed, tahti_code(TAHTI_NO_OBJECT));
    tahti_client_close(client);
    return 0;
}
