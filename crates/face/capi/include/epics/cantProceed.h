/* Memory that must be available. */
#ifndef TAHTI_CANT_PROCEED_H
#define TAHTI_CANT_PROCEED_H
#include "epicsTypes.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

TAHTI_BEGIN
TAHTI_UNUSED static void cantProceed(const char *format, ...) {
    va_list arguments;
    if (format) {
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
    }
    abort();
}
TAHTI_UNUSED static inline void *mallocMustSucceed(size_t size, const char *message) {
    void *memory = malloc(size ? size : 1);
    if (!memory)
        cantProceed("%s: no memory of %zu bytes\n", message, size);
    return memory;
}
TAHTI_UNUSED static inline void *callocMustSucceed(size_t count, size_t size, const char *message) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        cantProceed("%s: no memory of %zu * %zu bytes\n", message, count, size);
    return memory;
}
TAHTI_END
#endif
