/* Functions of sub and aSub records in C: see README.md. */
#include "tahti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* sub: VAL = A * B, with a MINOR alarm above C. */
static int power(tahti_call *call) {
    double volts = *(double *)call->inputs[0].data, amps = *(double *)call->inputs[1].data;
    *(double *)call->outputs[0].data = volts * amps;
    if (volts * amps > *(double *)call->inputs[2].data) {
        call->status = 4; /* HIGH */
        call->severity = 1;
    }
    return volts < 0 ? -1 : 0;
}

/* aSub: VALA is A sorted, VALB its first and last element, VALC the name of the record. */
static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static int sorted(tahti_call *call) {
    tahti_argument *in = &call->inputs[0], *out = &call->outputs[0], *ends = &call->outputs[1], *name = &call->outputs[2];
    if (in->type != TAHTI_DOUBLE || out->type != TAHTI_DOUBLE || ends->type != TAHTI_DOUBLE || ends->room < 2)
        return -1;
    out->count = in->count < out->room ? in->count : out->room;
    memcpy(out->data, in->data, out->count * sizeof(double));
    qsort(out->data, out->count, sizeof(double), compare);
    ends->count = out->count ? 2 : 0;
    if (out->count) {
        ((double *)ends->data)[0] = ((double *)out->data)[0];
        ((double *)ends->data)[1] = ((double *)out->data)[out->count - 1];
    }
    if (name->type == TAHTI_STRING) {
        strncpy(name->data, call->record, 39);
        name->count = 1;
    }
    return 0; /* output links are written only then */
}

/* sub: a long operation on a separate thread. A is its duration in seconds; VAL counts completed operations. */
struct work {
    const tahti_host *host;
    tahti_token token;
    double seconds;
};

static void *working(void *given) {
    struct work *work = given;
    struct timespec time = {(time_t)work->seconds, (long)((work->seconds - (double)(time_t)work->seconds) * 1e9)};
    nanosleep(&time, NULL);
    while (work->host->done(work->host, &work->token) < 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    free(work);
    return NULL;
}

static int slow(tahti_call *call) {
    if (call->resumed) {
        *(double *)call->outputs[0].data += 1;
        return 0;
    }
    struct work *work = malloc(sizeof *work);
    if (!work)
        return -1;
    *work = (struct work){call->host, call->token, *(double *)call->inputs[0].data};
    pthread_t thread;
    if (pthread_create(&thread, NULL, working, work) != 0) {
        free(work);
        return -1;
    }
    pthread_detach(thread);
    call->later = 1;
    return 0;
}

TAHTI_PLUGIN(host) {
    return host->add(host, "power", TAHTI_SUB, power) || host->add(host, "sorted", TAHTI_ASUB, sorted)
        || host->add(host, "slow", TAHTI_SUB, slow);
}
