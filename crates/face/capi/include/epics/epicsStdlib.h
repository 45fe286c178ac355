/* Conversion of strings to numbers. */
#ifndef TAHTI_EPICS_STDLIB_H
#define TAHTI_EPICS_STDLIB_H
#include "epicsTypes.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define epicsStrtod strtod
#define epicsScanDouble(text, to) (sscanf((text), "%lf", (to)))
#define epicsScanFloat(text, to) (sscanf((text), "%f", (to)))
#define epicsScanLong(text, to, base) (!tahti_parse_long((text), (to), (base)))

TAHTI_BEGIN
TAHTI_UNUSED static inline int tahti_parse_long(const char *text, long *to, int base) {
    char *end;
    errno = 0;
    *to = strtol(text, &end, base);
    return end == text || errno != 0;
}
TAHTI_UNUSED static inline int epicsParseDouble(const char *text, double *to, char **units) {
    char *end;
    errno = 0;
    *to = strtod(text, &end);
    if (units)
        *units = end;
    return end == text || errno != 0 || (!units && *end);
}
TAHTI_END
#endif
