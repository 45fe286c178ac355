/* Alarms: status and severity. */
#ifndef TAHTI_ALARM_H
#define TAHTI_ALARM_H
#include "epicsTypes.h"
#include "menuAlarmSevr.h"
#include "menuAlarmStat.h"

#define NO_ALARM 0
#define MINOR_ALARM 1
#define MAJOR_ALARM 2
#define INVALID_ALARM 3
#define lastEpicsAlarmSev INVALID_ALARM
#define ALARM_NSEV 4
typedef enum { epicsSevNone, epicsSevMinor, epicsSevMajor, epicsSevInvalid } epicsAlarmSeverity;

#define READ_ALARM 1
#define WRITE_ALARM 2
#define HIHI_ALARM 3
#define HIGH_ALARM 4
#define LOLO_ALARM 5
#define LOW_ALARM 6
#define STATE_ALARM 7
#define COS_ALARM 8
#define COMM_ALARM 9
#define TIMEOUT_ALARM 10
#define HW_LIMIT_ALARM 11
#define CALC_ALARM 12
#define SCAN_ALARM 13
#define LINK_ALARM 14
#define SOFT_ALARM 15
#define BAD_SUB_ALARM 16
#define UDF_ALARM 17
#define DISABLE_ALARM 18
#define SIMM_ALARM 19
#define READ_ACCESS_ALARM 20
#define WRITE_ACCESS_ALARM 21
#define ALARM_NSTATUS 22
typedef enum {
    epicsAlarmNone, epicsAlarmRead, epicsAlarmWrite, epicsAlarmHiHi, epicsAlarmHigh, epicsAlarmLoLo, epicsAlarmLow,
    epicsAlarmState, epicsAlarmCos, epicsAlarmComm, epicsAlarmTimeout, epicsAlarmHwLimit, epicsAlarmCalc,
    epicsAlarmScan, epicsAlarmLink, epicsAlarmSoft, epicsAlarmBadSub, epicsAlarmUDF, epicsAlarmDisable,
    epicsAlarmSimm, epicsAlarmReadAccess, epicsAlarmWriteAccess
} epicsAlarmCondition;

TAHTI_UNUSED static const char *const epicsAlarmSeverityStrings[] = {"NO_ALARM", "MINOR", "MAJOR", "INVALID"};
TAHTI_UNUSED static const char *const epicsAlarmConditionStrings[] = {
    "NO_ALARM", "READ", "WRITE", "HIHI", "HIGH", "LOLO", "LOW", "STATE", "COS", "COMM", "TIMEOUT", "HWLIMIT", "CALC",
    "SCAN", "LINK", "SOFT", "BAD_SUB", "UDF", "DISABLE", "SIMM", "READ_ACCESS", "WRITE_ACCESS"};
#define alarmSeverityString epicsAlarmSeverityStrings
#define alarmStatusString epicsAlarmConditionStrings
#endif
