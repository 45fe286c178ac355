/* Threads. Their priorities have no effect: a plug-in's threads are time-sharing. */
#ifndef TAHTI_EPICS_THREAD_H
#define TAHTI_EPICS_THREAD_H
#include "epicsEvent.h"
#include "epicsMutex.h"
#include "epicsTypes.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define epicsThreadPriorityMax 99
#define epicsThreadPriorityMin 0
#define epicsThreadPriorityLow 10
#define epicsThreadPriorityMedium 50
#define epicsThreadPriorityHigh 90
#define epicsThreadPriorityCAServerLow 20
#define epicsThreadPriorityCAServerHigh 40
#define epicsThreadPriorityScanLow 60
#define epicsThreadPriorityScanHigh 70
#define epicsThreadPriorityIocsh 91
#define epicsThreadPriorityBaseMax 91

typedef enum { epicsThreadStackSmall, epicsThreadStackMedium, epicsThreadStackBig } epicsThreadStackSizeClass;
typedef void (*EPICSTHREADFUNC)(void *argument);
typedef struct tahti_thread {
    EPICSTHREADFUNC run;
    void *argument;
    pthread_t thread;
    char name[16];
} *epicsThreadId;
typedef pthread_once_t epicsThreadOnceId;
#define EPICS_THREAD_ONCE_INIT PTHREAD_ONCE_INIT
#define epicsThreadOnce(once, function, argument) tahti_once((once), (function), (argument))

TAHTI_BEGIN
TAHTI_UNUSED static inline unsigned int epicsThreadGetStackSize(epicsThreadStackSizeClass size) {
    return 262144u << size;
}
TAHTI_UNUSED static inline void epicsThreadSleep(double seconds) {
    struct timespec left;
    seconds = seconds > 0 ? (seconds < 1e9 ? seconds : 1e9) : 0;
    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0)
        ;
}
TAHTI_UNUSED static inline double epicsThreadSleepQuantum(void) { return 1e-6; }
TAHTI_UNUSED static void *tahti_thread_body(void *given) {
    epicsThreadId thread = (epicsThreadId)given;
    thread->run(thread->argument);
    return NULL;
}
TAHTI_UNUSED static epicsThreadId epicsThreadCreate(
    const char *name, unsigned int priority, unsigned int stack, EPICSTHREADFUNC run, void *argument) {
    pthread_attr_t kind;
    size_t at;
    int failed;
    epicsThreadId thread = (epicsThreadId)calloc(1, sizeof *thread);
    (void)priority;
    if (!thread)
        return NULL;
    thread->run = run;
    thread->argument = argument;
    for (at = 0; name[at] && at < sizeof thread->name - 1; at++)
        thread->name[at] = name[at];
    pthread_attr_init(&kind);
    pthread_attr_setdetachstate(&kind, PTHREAD_CREATE_DETACHED);
    if (stack >= 65536)
        pthread_attr_setstacksize(&kind, ((size_t)stack + 65535) & ~(size_t)65535);
    failed = pthread_create(&thread->thread, &kind, tahti_thread_body, thread);
    pthread_attr_destroy(&kind);
    if (!failed)
        return thread; /* not freed: its id stays valid */
    free(thread);
    return NULL;
}
TAHTI_UNUSED static inline epicsThreadId epicsThreadMustCreate(
    const char *name, unsigned int priority, unsigned int stack, EPICSTHREADFUNC run, void *argument) {
    epicsThreadId thread = epicsThreadCreate(name, priority, stack, run, argument);
    if (!thread)
        abort();
    return thread;
}
TAHTI_UNUSED static inline void epicsThreadSuspendSelf(void) {
    for (;;)
        pause();
}
TAHTI_UNUSED static void tahti_once(epicsThreadOnceId *once, void (*function)(void *), void *argument) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    epicsThreadOnceId fresh = EPICS_THREAD_ONCE_INIT;
    pthread_mutex_lock(&lock);
    if (*once == fresh) {
        *once = (epicsThreadOnceId)(fresh + 1);
        function(argument);
    }
    pthread_mutex_unlock(&lock);
}
TAHTI_END
#endif
