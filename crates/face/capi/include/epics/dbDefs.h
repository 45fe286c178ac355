/* Common macros of EPICS. */
#ifndef TAHTI_DB_DEFS_H
#define TAHTI_DB_DEFS_H
#include "epicsTypes.h"

#undef TRUE
#undef FALSE
#define TRUE 1
#define FALSE 0
#ifndef OK
#define OK 0
#endif
#ifndef ERROR
#define ERROR (-1)
#endif
#define LOCAL static
#ifndef NELEMENTS
#define NELEMENTS(array) (sizeof(array) / sizeof((array)[0]))
#endif
#ifndef OFFSET
#define OFFSET(type, member) offsetof(type, member)
#endif
#define CONTAINER(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))
#define PVNAME_STRINGSZ 61
#define PVNAME_SZ (PVNAME_STRINGSZ - 1)
#define DB_MAX_CHOICES 30
#define DB_MAX_NAME 61
#endif
