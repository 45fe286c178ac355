/* Links. A function has the fields A to U and VALA to VALU, not the links behind them. */
#ifndef TAHTI_LINK_H
#define TAHTI_LINK_H
#include "epicsTypes.h"
typedef struct link {
    void *reserved[2];
} DBLINK;
#endif
