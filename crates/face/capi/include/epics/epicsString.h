/* String functions. */
#ifndef TAHTI_EPICS_STRING_H
#define TAHTI_EPICS_STRING_H
#include "epicsTypes.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

TAHTI_BEGIN
TAHTI_UNUSED static inline char *epicsStrDup(const char *text) {
    char *copy = strdup(text);
    if (!copy)
        abort();
    return copy;
}
TAHTI_UNUSED static inline int epicsStrCaseCmp(const char *left, const char *right) { return strcasecmp(left, right); }
TAHTI_UNUSED static inline int epicsStrnCaseCmp(const char *left, const char *right, size_t most) {
    return strncasecmp(left, right, most);
}
TAHTI_UNUSED static inline char *epicsStrtok_r(char *text, const char *delimiters, char **rest) {
    return strtok_r(text, delimiters, rest);
}
TAHTI_UNUSED static inline size_t epicsStrnLen(const char *text, size_t most) { return strnlen(text, most); }
TAHTI_END
#endif
