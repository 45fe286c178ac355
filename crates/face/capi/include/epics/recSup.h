/* Record support. A function that ends later calls `process` of its record, which completes it. */
#ifndef TAHTI_REC_SUP_H
#define TAHTI_REC_SUP_H
#include "epicsMutex.h"
#include "epicsTypes.h"
typedef struct typed_rset {
    long number;
    long (*process)(void *record);
    epicsMutexId lock; /* held during a call, as the record's lock is in EPICS */
} rset;
typedef long (*RECSUPFUN)();
#endif
