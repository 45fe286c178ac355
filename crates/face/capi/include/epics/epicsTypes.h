/* Types of EPICS, for C functions of sub and aSub records. */
#ifndef TAHTI_EPICS_TYPES_H
#define TAHTI_EPICS_TYPES_H
#include <stddef.h>
#include <stdint.h>

typedef int8_t epicsInt8;
typedef uint8_t epicsUInt8;
typedef int16_t epicsInt16;
typedef uint16_t epicsUInt16;
typedef int32_t epicsInt32;
typedef uint32_t epicsUInt32;
typedef int64_t epicsInt64;
typedef uint64_t epicsUInt64;
typedef uint16_t epicsEnum16;
typedef float epicsFloat32;
typedef double epicsFloat64;
typedef int32_t epicsStatus;
typedef enum { epicsFalse = 0, epicsTrue = 1 } epicsBoolean;

#ifndef MAX_STRING_SIZE
#define MAX_STRING_SIZE 40
#endif
typedef char epicsOldString[MAX_STRING_SIZE];

/* Export macros of libraries; empty here. */
#define epicsShareFunc
#define epicsShareClass
#define epicsShareExtern extern
#define epicsShareDef
#define epicsShareAPI
#define epicsStdCall
#define epicsExport
#define EPICS_PRINTF_STYLE(text, first) __attribute__((__format__(__printf__, text, first)))
#define EPICS_DEPRECATED

/* One definition in a plug-in of several sources. */
#define TAHTI_SHARED __attribute__((weak, visibility("hidden")))
/* A function that plug-ins cannot use. A call is a compile error. */
#define TAHTI_ABSENT(why) __attribute__((error(why)))
#define TAHTI_UNUSED __attribute__((unused))

#ifdef __cplusplus
#define TAHTI_BEGIN extern "C" {
#define TAHTI_END }
#else
#define TAHTI_BEGIN
#define TAHTI_END
#endif
#endif
