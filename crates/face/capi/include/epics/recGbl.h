/* Alarms and time stamps of the record of a function. */
#ifndef TAHTI_REC_GBL_H
#define TAHTI_REC_GBL_H
#include "alarm.h"
#include "dbCommon.h"
#include "errlog.h"
#include <stdarg.h>
#include <stdio.h>

TAHTI_BEGIN
/* Raises an alarm if it is more severe than those raised before in this processing. */
TAHTI_UNUSED static inline int recGblSetSevr(void *record, epicsEnum16 status, epicsEnum16 severity) {
    struct dbCommon *common = (struct dbCommon *)record;
    if (common->nsev >= severity)
        return 0;
    common->nsta = status;
    common->nsev = severity;
    common->namsg[0] = 0;
    return 1;
}

/* The same with a message, as of printf. */
TAHTI_UNUSED static int recGblSetSevrMsg(void *record, epicsEnum16 status, epicsEnum16 severity, const char *format, ...) {
    struct dbCommon *common = (struct dbCommon *)record;
    va_list values;
    if (!recGblSetSevr(record, status, severity))
        return 0;
    va_start(values, format);
    vsnprintf(common->namsg, sizeof common->namsg, format, values);
    va_end(values);
    return 1;
}

/* The record sets its time stamp after the call, except if TSE is -2: then the function sets `time`. */
TAHTI_UNUSED static inline void recGblGetTimeStamp(void *record) {
    struct dbCommon *common = (struct dbCommon *)record;
    if (common->tse != epicsTimeEventDeviceTime)
        epicsTimeGetCurrent(&common->time);
}

TAHTI_UNUSED static inline void recGblRecordError(long status, void *record, const char *text) {
    errlogPrintf("%s: %s (status %ld)\n", ((struct dbCommon *)record)->name, text, status);
}
TAHTI_UNUSED static inline void recGblDbaddrError(long status, const void *address, const char *text) {
    (void)address;
    errlogPrintf("%s (status %ld)\n", text, status);
}
TAHTI_END
#endif
