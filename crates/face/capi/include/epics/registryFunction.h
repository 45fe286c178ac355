/* Registration of functions by name. */
#ifndef TAHTI_REGISTRY_FUNCTION_H
#define TAHTI_REGISTRY_FUNCTION_H
#include "epicsTypes.h"

TAHTI_BEGIN
typedef void (*REGISTRYFUNCTION)(void);
typedef struct registryFunctionRef {
    const char *name;
    REGISTRYFUNCTION addr;
} registryFunctionRef;
TAHTI_END
#include "tahtiPlugin.h"
#endif
