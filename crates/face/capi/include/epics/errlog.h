/* Messages. They go to the log of the IOC: its standard error. */
#ifndef TAHTI_ERRLOG_H
#define TAHTI_ERRLOG_H
#include "epicsTypes.h"
#include <stdarg.h>
#include <stdio.h>

typedef enum { errlogInfo, errlogMinor, errlogMajor, errlogFatal } errlogSevEnum;

TAHTI_BEGIN
TAHTI_UNUSED EPICS_PRINTF_STYLE(1, 0) static int errlogVprintf(const char *format, va_list arguments) {
    return vfprintf(stderr, format, arguments);
}
TAHTI_UNUSED EPICS_PRINTF_STYLE(1, 2) static int errlogPrintf(const char *format, ...) {
    va_list arguments;
    int written;
    va_start(arguments, format);
    written = errlogVprintf(format, arguments);
    va_end(arguments);
    return written;
}
TAHTI_UNUSED static const char *errlogGetSevEnumString(errlogSevEnum severity) {
    static const char *const names[] = {"info", "minor", "major", "fatal"};
    return names[severity & 3];
}
TAHTI_UNUSED EPICS_PRINTF_STYLE(2, 3) static int errlogSevPrintf(errlogSevEnum severity, const char *format, ...) {
    va_list arguments;
    int written = errlogPrintf("sevr=%s ", errlogGetSevEnumString(severity));
    va_start(arguments, format);
    written += errlogVprintf(format, arguments);
    va_end(arguments);
    return written;
}
TAHTI_UNUSED static inline int errlogMessage(const char *text) { return errlogPrintf("%s", text); }
TAHTI_UNUSED static inline void errlogFlush(void) { fflush(stderr); }
TAHTI_UNUSED EPICS_PRINTF_STYLE(4, 5) static void errPrintf(
    long status, const char *file, int line, const char *format, ...) {
    va_list arguments;
    if (file)
        errlogPrintf("filename=\"%s\" line number=%d ", file, line);
    if (status)
        errlogPrintf("status=%ld ", status);
    va_start(arguments, format);
    errlogVprintf(format, arguments);
    va_end(arguments);
    errlogPrintf("\n");
}
TAHTI_END

#define errMessage(status, text) errPrintf((long)(status), __FILE__, __LINE__, "%s", (text))
#define epicsPrintf errlogPrintf
#define epicsVprintf errlogVprintf
#endif
