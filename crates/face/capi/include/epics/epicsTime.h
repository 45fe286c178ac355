/* Time stamps since 1990, as in records. */
#ifndef TAHTI_EPICS_TIME_H
#define TAHTI_EPICS_TIME_H
#include "epicsTypes.h"
#include <string.h>
#include <time.h>

#define POSIX_TIME_AT_EPICS_EPOCH 631152000u
#define epicsTimeOK 0
#define epicsTimeERROR (-1)
#define epicsTimeEventCurrentTime 0
#define epicsTimeEventBestTime (-1)
#define epicsTimeEventDeviceTime (-2)

typedef struct epicsTimeStamp {
    epicsUInt32 secPastEpoch;
    epicsUInt32 nsec;
} epicsTimeStamp;

TAHTI_BEGIN
TAHTI_UNUSED static inline int epicsTimeGetCurrent(epicsTimeStamp *now) {
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        return epicsTimeERROR;
    now->secPastEpoch = (epicsUInt32)(time.tv_sec - (time_t)POSIX_TIME_AT_EPICS_EPOCH);
    now->nsec = (epicsUInt32)time.tv_nsec;
    return epicsTimeOK;
}

TAHTI_UNUSED static inline int epicsTimeGetEvent(epicsTimeStamp *now, int event) {
    return event == epicsTimeEventCurrentTime ? epicsTimeGetCurrent(now) : epicsTimeERROR;
}

TAHTI_UNUSED static inline double epicsTimeDiffInSeconds(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return (double)left->secPastEpoch - (double)right->secPastEpoch + ((double)left->nsec - (double)right->nsec) * 1e-9;
}

TAHTI_UNUSED static inline epicsInt64 epicsTimeDiffInNS(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return ((epicsInt64)left->secPastEpoch - (epicsInt64)right->secPastEpoch) * 1000000000
        + ((epicsInt64)left->nsec - (epicsInt64)right->nsec);
}

TAHTI_UNUSED static inline void epicsTimeAddSeconds(epicsTimeStamp *time, double seconds) {
    epicsInt64 total = (epicsInt64)time->secPastEpoch * 1000000000 + time->nsec + (epicsInt64)(seconds * 1e9);
    time->secPastEpoch = (epicsUInt32)(total / 1000000000);
    time->nsec = (epicsUInt32)(total % 1000000000);
}

TAHTI_UNUSED static inline int epicsTimeLessThan(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) < 0;
}
TAHTI_UNUSED static inline int epicsTimeLessThanEqual(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) <= 0;
}
TAHTI_UNUSED static inline int epicsTimeGreaterThan(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) > 0;
}
TAHTI_UNUSED static inline int epicsTimeGreaterThanEqual(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) >= 0;
}
TAHTI_UNUSED static inline int epicsTimeEqual(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) == 0;
}
TAHTI_UNUSED static inline int epicsTimeNotEqual(const epicsTimeStamp *left, const epicsTimeStamp *right) {
    return epicsTimeDiffInNS(left, right) != 0;
}

TAHTI_UNUSED static inline int epicsTimeToTime_t(time_t *to, const epicsTimeStamp *from) {
    *to = (time_t)from->secPastEpoch + (time_t)POSIX_TIME_AT_EPICS_EPOCH;
    return epicsTimeOK;
}
TAHTI_UNUSED static inline int epicsTimeFromTime_t(epicsTimeStamp *to, time_t from) {
    to->secPastEpoch = (epicsUInt32)(from - (time_t)POSIX_TIME_AT_EPICS_EPOCH);
    to->nsec = 0;
    return epicsTimeOK;
}
TAHTI_UNUSED static inline int epicsTimeToTimespec(struct timespec *to, const epicsTimeStamp *from) {
    to->tv_nsec = (long)from->nsec;
    return epicsTimeToTime_t(&to->tv_sec, from);
}
TAHTI_UNUSED static inline int epicsTimeFromTimespec(epicsTimeStamp *to, const struct timespec *from) {
    epicsTimeFromTime_t(to, from->tv_sec);
    to->nsec = (epicsUInt32)from->tv_nsec;
    return epicsTimeOK;
}
TAHTI_UNUSED static inline int epicsTimeToTM(struct tm *to, unsigned long *nanoseconds, const epicsTimeStamp *from) {
    time_t seconds;
    epicsTimeToTime_t(&seconds, from);
    *nanoseconds = from->nsec;
    return localtime_r(&seconds, to) ? epicsTimeOK : epicsTimeERROR;
}
TAHTI_UNUSED static inline int epicsTimeToGMTM(struct tm *to, unsigned long *nanoseconds, const epicsTimeStamp *from) {
    time_t seconds;
    epicsTimeToTime_t(&seconds, from);
    *nanoseconds = from->nsec;
    return gmtime_r(&seconds, to) ? epicsTimeOK : epicsTimeERROR;
}

/* strftime() with %0nf: n digits of the fraction of a second. */
TAHTI_UNUSED static size_t epicsTimeToStrftime(char *to, size_t size, const char *format, const epicsTimeStamp *from) {
    char expanded[256];
    size_t used = 0;
    struct tm parts;
    unsigned long nanoseconds;
    if (size == 0 || epicsTimeToTM(&parts, &nanoseconds, from) != epicsTimeOK)
        return 0;
    while (*format && used + 10 < sizeof expanded) {
        int digits = 9;
        const char *at = format;
        if (*at == '%' && at[1] == '%') {
            expanded[used++] = '%';
            expanded[used++] = '%';
            format += 2;
            continue;
        }
        if (*at == '%' && (at[1] == 'f' || (at[1] == '0' && at[2] >= '1' && at[2] <= '9' && at[3] == 'f'))) {
            unsigned long fraction = nanoseconds;
            int step;
            digits = at[1] == 'f' ? 9 : at[2] - '0';
            for (step = digits; step < 9; step++)
                fraction /= 10;
            for (step = digits - 1; step >= 0; step--, fraction /= 10)
                expanded[used + (size_t)step] = (char)('0' + fraction % 10);
            used += (size_t)digits;
            format += at[1] == 'f' ? 2 : 4;
            continue;
        }
        expanded[used++] = *format++;
    }
    expanded[used] = 0;
    used = strftime(to, size, expanded, &parts);
    if (used == 0)
        *to = 0;
    return used;
}
TAHTI_END
#endif
