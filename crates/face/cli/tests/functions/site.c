/* Functions of sub and aSub records as sites write them for C EPICS. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <aSubRecord.h>
#include <alarm.h>
#include <callback.h>
#include <cantProceed.h>
#include <dbDefs.h>
#include <epicsExport.h>
#include <epicsTypes.h>
#include <errlog.h>
#include <menuFtype.h>
#include <recGbl.h>
#include <registryFunction.h>
#include <subRecord.h>

/* VALA: the mean of A. VALB: its deviations, of which there are as many as elements of A. VALC: the number of elements. */
static long statistics(aSubRecord *prec) {
    const double *in = (const double *)prec->a;
    double *deviations = (double *)prec->valb, sum = 0;
    epicsUInt32 i;
    if (prec->fta != menuFtypeDOUBLE || prec->ftvb != menuFtypeDOUBLE) {
        errlogPrintf("%s: statistics takes DOUBLE\n", prec->name);
        return -1;
    }
    for (i = 0; i < prec->nea; i++)
        sum += in[i];
    *(double *)prec->vala = prec->nea ? sum / prec->nea : 0;
    for (i = 0; i < prec->nea && i < prec->novb; i++)
        deviations[i] = in[i] - *(double *)prec->vala;
    prec->nevb = prec->nea; /* may exceed NOVB, which damages the memory of C EPICS */
    *(epicsInt32 *)prec->valc = (epicsInt32)prec->nea;
    return 0;
}

/* VALA: the text A, B times. VALB: all inputs through the members as arrays. */
static long text(aSubRecord *prec) {
    char *out = (char *)prec->vala;
    epicsInt32 times = *(epicsInt32 *)prec->b;
    void **values = &prec->a;
    epicsUInt32 *counts = &prec->noa;
    memset(out, 0, MAX_STRING_SIZE);
    for (; times > 0; times--)
        strncat(out, (const char *)values[0], MAX_STRING_SIZE - 1 - strlen(out));
    *(epicsInt32 *)prec->valb = (epicsInt32)(counts[0] + counts[1]);
    return 0;
}

struct counter {
    int calls;
};

static long counterInit(subRecord *prec) {
    struct counter *counter = callocMustSucceed(1, sizeof *counter, "counterInit");
    counter->calls = 100;
    prec->dpvt = counter;
    return 0;
}

/* VAL counts the calls. Every third one is an alarm. */
static long counterProc(subRecord *prec) {
    struct counter *counter = (struct counter *)prec->dpvt;
    if (!counter)
        return -1;
    prec->val = ++counter->calls;
    prec->b = prec->a * 2;
    if (counter->calls % 3 == 0)
        recGblSetSevr(prec, HIGH_ALARM, MINOR_ALARM);
    return 0;
}

/* VAL is the status. A negative one is an alarm of severity BRSV, which the function sets. */
static long status(aSubRecord *prec) {
    *(double *)prec->vala = 7;
    prec->brsv = MAJOR_ALARM;
    return (long)*(double *)prec->a;
}

/* VALA: DESC and the number of PRIO. */
static long described(aSubRecord *prec) {
    snprintf((char *)prec->vala, MAX_STRING_SIZE, "%.30s %d", prec->desc, prec->prio);
    return 0;
}

/* Ends later. */
static long slow(aSubRecord *prec) {
    CALLBACK *callback = (CALLBACK *)prec->dpvt;
    if (prec->pact) {
        ++*(double *)prec->vala;
        return 0;
    }
    if (!callback)
        prec->dpvt = callback = callocMustSucceed(1, sizeof *callback, "slow");
    callbackRequestProcessCallback(callback, priorityLow, prec);
    epicsThreadSleep(0.02); /* its thread is earlier than PACT, and must wait for the end of this call */
    prec->pact = TRUE;
    return 0;
}

/* Faults, for a plug-in in a separate process. */
static long fault(subRecord *prec) {
    switch ((int)prec->a) {
    case 1: *(volatile int *)NULL = 1; break;
    case 2: abort();
    case 3: for (;;) prec->dpvt = prec;
    case 4: exit(3);
    default: prec->val = prec->a;
    }
    return 0;
}

int siteDebug = 0;
epicsExportAddress(int, siteDebug);
epicsRegisterFunction(statistics);
epicsRegisterFunction(text);
epicsRegisterFunction(counterInit);
epicsRegisterFunction(counterProc);
epicsRegisterFunction(fault);

static registryFunctionRef more[] = {{"status", (REGISTRYFUNCTION)status}, {"slow", (REGISTRYFUNCTION)slow},
                                   {"described", (REGISTRYFUNCTION)described}};

static void siteRegistrar(void) {
    registryFunctionRefAdd(more, NELEMENTS(more));
}
epicsExportRegistrar(siteRegistrar);
