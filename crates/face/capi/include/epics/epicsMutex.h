/* Mutexes. They are recursive. */
#ifndef TAHTI_EPICS_MUTEX_H
#define TAHTI_EPICS_MUTEX_H
#include "epicsTypes.h"
#include <pthread.h>
#include <stdlib.h>

typedef pthread_mutex_t *epicsMutexId;
typedef enum { epicsMutexLockOK, epicsMutexLockTimeout, epicsMutexLockError } epicsMutexLockStatus;

TAHTI_BEGIN
TAHTI_UNUSED static inline epicsMutexId epicsMutexCreate(void) {
    pthread_mutexattr_t kind;
    epicsMutexId lock = (epicsMutexId)malloc(sizeof *lock);
    if (!lock)
        return NULL;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
    return lock;
}
TAHTI_UNUSED static inline epicsMutexId epicsMutexMustCreate(void) {
    epicsMutexId lock = epicsMutexCreate();
    if (!lock)
        abort();
    return lock;
}
TAHTI_UNUSED static inline epicsMutexLockStatus epicsMutexLock(epicsMutexId lock) {
    return pthread_mutex_lock(lock) == 0 ? epicsMutexLockOK : epicsMutexLockError;
}
TAHTI_UNUSED static inline epicsMutexLockStatus epicsMutexTryLock(epicsMutexId lock) {
    return pthread_mutex_trylock(lock) == 0 ? epicsMutexLockOK : epicsMutexLockTimeout;
}
TAHTI_UNUSED static inline void epicsMutexMustLock(epicsMutexId lock) {
    if (epicsMutexLock(lock) != epicsMutexLockOK)
        abort();
}
TAHTI_UNUSED static inline void epicsMutexUnlock(epicsMutexId lock) { pthread_mutex_unlock(lock); }
TAHTI_UNUSED static inline void epicsMutexDestroy(epicsMutexId lock) {
    pthread_mutex_destroy(lock);
    free(lock);
}
TAHTI_END
#endif
