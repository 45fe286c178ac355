/* Formatted output to strings. */
#ifndef TAHTI_EPICS_STDIO_H
#define TAHTI_EPICS_STDIO_H
#include "epicsTypes.h"
#include <stdarg.h>
#include <stdio.h>

#define epicsSnprintf snprintf
#define epicsVsnprintf vsnprintf
#define epicsStdoutPrintf printf
#define epicsStdoutPuts puts
#define epicsGetStdout() stdout
#define epicsGetStdin() stdin
#define epicsGetStderr() stderr
#endif
