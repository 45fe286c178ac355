/* Binary events. */
#ifndef TAHTI_EPICS_EVENT_H
#define TAHTI_EPICS_EVENT_H
#include "epicsTypes.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef struct epicsEvent {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int full;
} *epicsEventId;
typedef enum { epicsEventEmpty, epicsEventFull } epicsEventInitialState;
typedef enum { epicsEventOK = 0, epicsEventWaitOK = 0, epicsEventWaitTimeout, epicsEventError } epicsEventStatus;
typedef epicsEventStatus epicsEventWaitStatus;
#define epicsEventWaitError epicsEventError

TAHTI_BEGIN
TAHTI_UNUSED static inline epicsEventId epicsEventCreate(epicsEventInitialState state) {
    pthread_condattr_t kind;
    epicsEventId event = (epicsEventId)malloc(sizeof *event);
    if (!event)
        return NULL;
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, &kind);
    pthread_condattr_destroy(&kind);
    event->full = state == epicsEventFull;
    return event;
}
TAHTI_UNUSED static inline epicsEventId epicsEventMustCreate(epicsEventInitialState state) {
    epicsEventId event = epicsEventCreate(state);
    if (!event)
        abort();
    return event;
}
TAHTI_UNUSED static inline epicsEventStatus epicsEventTrigger(epicsEventId event) {
    pthread_mutex_lock(&event->lock);
    event->full = 1;
    pthread_cond_signal(&event->changed);
    pthread_mutex_unlock(&event->lock);
    return epicsEventOK;
}
TAHTI_UNUSED static inline void epicsEventSignal(epicsEventId event) { epicsEventTrigger(event); }
TAHTI_UNUSED static inline void epicsEventMustTrigger(epicsEventId event) { epicsEventTrigger(event); }
TAHTI_UNUSED static inline epicsEventStatus epicsEventWaitWithTimeout(epicsEventId event, double seconds) {
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    seconds = seconds > 0 ? (seconds < 1e9 ? seconds : 1e9) : 0;
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&event->lock);
    while (!event->full && late == 0)
        late = pthread_cond_timedwait(&event->changed, &event->lock, &until);
    late = !event->full;
    event->full = 0;
    pthread_mutex_unlock(&event->lock);
    return late ? epicsEventWaitTimeout : epicsEventOK;
}
TAHTI_UNUSED static inline epicsEventStatus epicsEventWait(epicsEventId event) {
    pthread_mutex_lock(&event->lock);
    while (!event->full)
        pthread_cond_wait(&event->changed, &event->lock);
    event->full = 0;
    pthread_mutex_unlock(&event->lock);
    return epicsEventOK;
}
TAHTI_UNUSED static inline void epicsEventMustWait(epicsEventId event) { epicsEventWait(event); }
TAHTI_UNUSED static inline epicsEventStatus epicsEventTryWait(epicsEventId event) {
    return epicsEventWaitWithTimeout(event, 0);
}
TAHTI_UNUSED static inline void epicsEventDestroy(epicsEventId event) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}
TAHTI_END
#endif
