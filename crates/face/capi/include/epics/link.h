/* Links. A function can access the fields A to U and VALA to VALU, but not their links. */
#ifndef TAHTI_LINK_H
#define TAHTI_LINK_H
#include "epicsTypes.h"
typedef struct link {
    void *reserved[2];
} DBLINK;
#endif
