/* A request through a libzmq ROUTER broker and back, in three processes: broker and worker are children of the client.
 * Usage: rtt_zmq ENDPOINT ROUNDS BULK; prints one round trip in ns per line. BULK other clients send 64 KiB each, as
 * fast as they are answered, at time-sharing priority; the others have the class with which this was started. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define BULK_BYTES 65536
#define BULK_MAX 64

static char payload[BULK_BYTES];

static void child(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

/* Forwards [from, to, payload] as [to, from, payload]: both ends have names. */
static void broker(const char *endpoint) {
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    if (zmq_bind(router, endpoint)) exit(2);
    for (;;) {
        zmq_msg_t from, to, body;
        zmq_msg_init(&from); zmq_msg_init(&to); zmq_msg_init(&body);
        zmq_msg_recv(&from, router, 0); zmq_msg_recv(&to, router, 0); zmq_msg_recv(&body, router, 0);
        zmq_msg_send(&to, router, ZMQ_SNDMORE); zmq_msg_send(&from, router, ZMQ_SNDMORE); zmq_msg_send(&body, router, 0);
    }
}

static void *dealer(const char *endpoint, const char *name) {
    void *socket = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_IDENTITY, name, strlen(name));
    if (zmq_connect(socket, endpoint)) exit(2);
    return socket;
}

/* Echoes messages; acknowledges bulk with an empty text. */
static void worker(const char *endpoint) {
    void *socket = dealer(endpoint, "worker");
    char from[64];
    /* Registers with the broker. */
    zmq_send(socket, "worker", 6, ZMQ_SNDMORE); zmq_send(socket, "", 0, 0);
    for (;;) {
        int length = zmq_recv(socket, from, sizeof from, 0), bytes = zmq_recv(socket, payload, sizeof payload, 0);
        if (length == 6 && !memcmp(from, "worker", 6)) continue;
        zmq_send(socket, from, length, ZMQ_SNDMORE);
        zmq_send(socket, payload, bytes < BULK_BYTES ? bytes : 0, 0);
    }
}

static void bulk(const char *endpoint, int number) {
    char name[16], buffer[256];
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_OTHER, &none);
    snprintf(name, sizeof name, "bulk%d", number);
    void *socket = dealer(endpoint, name);
    for (;;) {
        zmq_send(socket, "worker", 6, ZMQ_SNDMORE);
        zmq_send(socket, payload, sizeof payload, 0);
        zmq_recv(socket, buffer, sizeof buffer, 0);
        zmq_recv(socket, buffer, sizeof buffer, 0);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int bulks = atoi(argv[3]);
    if (bulks < 0 || bulks > BULK_MAX) return 2;
    pid_t pids[BULK_MAX + 2];
    int started = 0;
    if (!(pids[started++] = fork())) { child(); broker(argv[1]); }
    usleep(200000);
    if (!(pids[started++] = fork())) { child(); worker(argv[1]); }
    usleep(200000);
    for (int number = 0; number < bulks; number++)
        if (!(pids[started++] = fork())) { child(); bulk(argv[1], number); }
    void *socket = dealer(argv[1], "client");
    char buffer[256];
    for (long round = 0, rounds = atol(argv[2]); round < rounds; round++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        zmq_send(socket, "worker", 6, ZMQ_SNDMORE);
        zmq_send(socket, "get/bench_time/now", 18, 0);
        zmq_recv(socket, buffer, sizeof buffer, 0);
        zmq_recv(socket, buffer, sizeof buffer, 0);
        clock_gettime(CLOCK_MONOTONIC, &after);
        printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec);
        /* Sleeps before the kernel throttles real-time tasks. */
        if (round % 256 == 255) usleep(1000);
    }
    while (started) kill(pids[--started], SIGKILL);
    return 0;
}
