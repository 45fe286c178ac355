/* The end of the process. A plug-in in a separate process ends only that. */
#ifndef TAHTI_EPICS_EXIT_H
#define TAHTI_EPICS_EXIT_H
#include "epicsTypes.h"
#include <stdlib.h>

#define epicsExit exit
#endif
