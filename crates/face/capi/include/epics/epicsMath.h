/* Constants for NaN and infinity. */
#ifndef TAHTI_EPICS_MATH_H
#define TAHTI_EPICS_MATH_H
#include <math.h>
#define epicsNAN ((double)NAN)
#define epicsINF ((double)INFINITY)
#endif
