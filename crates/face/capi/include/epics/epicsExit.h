/* End of the process. In a separate process, it ends only that process. */
#ifndef TAHTI_EPICS_EXIT_H
#define TAHTI_EPICS_EXIT_H
#include "epicsTypes.h"
#include <stdlib.h>

#define epicsExit exit
#endif
