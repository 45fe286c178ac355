/* Record support. A function that ends later calls `process` of its record, which completes it. */
#ifndef TAHTI_REC_SUP_H
#define TAHTI_REC_SUP_H
#include "epicsTypes.h"
typedef struct typed_rset {
    long number;
    long (*process)(void *record);
} rset;
typedef long (*RECSUPFUN)();
#endif
