/* Adapter that turns functions for C EPICS into a plug-in of tahti. Each record has its own structure, which keeps DPVT and all other
 * members between calls. Values are copied into it before a call, and back after it. */
#ifndef TAHTI_PLUGIN_OF_FUNCTIONS_H
#define TAHTI_PLUGIN_OF_FUNCTIONS_H
#include "registryFunction.h"
#include "aSubRecord.h"
#include "dbDefs.h"
#include "subRecord.h"
#include "tahti.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TAHTI_BEGIN
struct tahti_site_function {
    const char *name;
    REGISTRYFUNCTION function;
    struct tahti_site_function *next;
};

struct tahti_site_registrar {
    void (*run)(void);
    struct tahti_site_registrar *next;
};

struct tahti_site_record {
    const tahti_host *host;
    tahti_token token; /* of the call that ends later */
    rset support;
    union {
        struct dbCommon common;
        subRecord numbers;
        aSubRecord arrays;
    } record;
};

/* In the order of registration. */
TAHTI_SHARED struct tahti_site_function *tahti_site_functions = NULL;
TAHTI_SHARED struct tahti_site_registrar *tahti_site_registrars = NULL;

TAHTI_SHARED int registryFunctionAdd(const char *name, REGISTRYFUNCTION function) {
    struct tahti_site_function **end = &tahti_site_functions, *one;
    for (; *end; end = &(*end)->next)
        if (strcmp((*end)->name, name) == 0) {
            (*end)->function = function;
            return 1;
        }
    one = (struct tahti_site_function *)calloc(1, sizeof *one);
    if (!one)
        return 0;
    one->name = name;
    one->function = function;
    *end = one;
    return 1;
}

TAHTI_SHARED int registryFunctionRefAdd(registryFunctionRef refs[], int count) {
    int at, added = 1;
    for (at = 0; at < count; at++)
        added = registryFunctionAdd(refs[at].name, refs[at].addr) && added;
    return added;
}

TAHTI_SHARED REGISTRYFUNCTION registryFunctionFind(const char *name) {
    struct tahti_site_function *one;
    for (one = tahti_site_functions; one; one = one->next)
        if (strcmp(one->name, name) == 0)
            return one->function;
    return NULL;
}

TAHTI_SHARED void tahti_add_registrar(void (*run)(void)) {
    struct tahti_site_registrar **end = &tahti_site_registrars, *one;
    while (*end)
        end = &(*end)->next;
    one = (struct tahti_site_registrar *)calloc(1, sizeof *one);
    if (!one)
        abort();
    one->run = run;
    *end = one;
}

/* Ends a call that ends later: `process` of the record's support, from any thread. */
TAHTI_SHARED long tahti_site_end(void *record) {
    struct tahti_site_record *site = CONTAINER(record, struct tahti_site_record, record);
    return site->host->done(site->host, &site->token);
}

TAHTI_SHARED size_t tahti_site_size(uint32_t type) {
    static const unsigned char sizes[] = {MAX_STRING_SIZE, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2};
    return type < sizeof sizes ? sizes[type] : 1;
}

/* A new structure for a record. */
TAHTI_SHARED struct tahti_site_record *tahti_site_open(const tahti_call *call) {
    struct tahti_site_record *site = (struct tahti_site_record *)calloc(1, sizeof *site);
    aSubRecord *arrays;
    int at;
    if (!site)
        return NULL;
    site->host = call->host;
    site->support.number = 1;
    site->support.process = tahti_site_end;
    site->support.lock = epicsMutexCreate();
    if (!site->support.lock)
        return NULL;
    site->record.common.rset = &site->support;
    strncpy(site->record.common.name, call->record, sizeof site->record.common.name - 1);
    if (call->kind != TAHTI_ASUB)
        return site;
    arrays = &site->record.arrays;
    for (at = 0; at < TAHTI_ARGUMENTS; at++) {
        const tahti_argument *in = &call->inputs[at], *out = &call->outputs[at];
        (&arrays->fta)[at] = (epicsEnum16)in->type;
        (&arrays->noa)[at] = in->room;
        (&arrays->a)[at] = calloc(in->room ? in->room : 1, tahti_site_size(in->type));
        (&arrays->ftva)[at] = (epicsEnum16)out->type;
        (&arrays->nova)[at] = out->room;
        (&arrays->vala)[at] = calloc(out->room ? out->room : 1, tahti_site_size(out->type));
        if (!(&arrays->a)[at] || !(&arrays->vala)[at])
            return NULL;
    }
    return site;
}

/* Copies the values of a call into the structure. Outputs of a call that ends later stay as the function's threads left them. */
TAHTI_SHARED void tahti_site_in(struct tahti_site_record *site, const tahti_call *call) {
    const tahti_fields *fields = &call->fields;
    struct dbCommon *common = &site->record.common;
    int at;
    strncpy(common->desc, call->description, sizeof common->desc - 1);
    common->time.secPastEpoch = fields->seconds;
    common->time.nsec = fields->nanoseconds;
    common->stat = fields->status;
    common->sevr = fields->severity;
    common->nsta = fields->new_status;
    common->nsev = fields->new_severity;
    common->prio = fields->priority;
    common->tse = fields->time_event;
    common->tpro = fields->trace;
    common->udf = fields->undefined;
    common->pact = call->resumed != 0;
    common->namsg[0] = 0;
    if (call->kind != TAHTI_ASUB) {
        subRecord *numbers = &site->record.numbers;
        numbers->brsv = fields->bad_return;
        numbers->prec = fields->precision;
        strncpy(numbers->egu, fields->units, sizeof numbers->egu - 1);
        if (call->resumed)
            return;
        numbers->val = *(const double *)call->outputs[0].data;
        for (at = 0; at < TAHTI_ARGUMENTS; at++)
            (&numbers->a)[at] = *(const double *)call->inputs[at].data;
        return;
    }
    site->record.arrays.brsv = fields->bad_return;
    site->record.arrays.prec = fields->precision;
    site->record.arrays.val = fields->value;
    for (at = 0; at < TAHTI_ARGUMENTS && !call->resumed; at++) {
        aSubRecord *arrays = &site->record.arrays;
        const tahti_argument *in = &call->inputs[at], *out = &call->outputs[at];
        epicsUInt32 count = in->count < (&arrays->noa)[at] ? in->count : (&arrays->noa)[at];
        (&arrays->nea)[at] = count;
        memcpy((&arrays->a)[at], in->data, count * tahti_site_size(in->type));
        count = out->count < (&arrays->nova)[at] ? out->count : (&arrays->nova)[at];
        (&arrays->neva)[at] = count;
        memcpy((&arrays->vala)[at], out->data, count * tahti_site_size(out->type));
    }
}

/* Copies the values in the structure back to the call. */
TAHTI_SHARED void tahti_site_out(struct tahti_site_record *site, tahti_call *call) {
    const struct dbCommon *common = &site->record.common;
    int at;
    call->status = common->nsta;
    call->severity = common->nsev;
    call->fields.seconds = common->time.secPastEpoch;
    call->fields.nanoseconds = common->time.nsec;
    call->fields.time_event = common->tse;
    call->fields.trace = common->tpro;
    call->fields.undefined = common->udf;
    memcpy(call->fields.message, common->namsg, sizeof call->fields.message);
    if (call->kind != TAHTI_ASUB) {
        const subRecord *numbers = &site->record.numbers;
        call->fields.bad_return = numbers->brsv;
        call->fields.precision = numbers->prec;
        memcpy(call->fields.units, numbers->egu, sizeof numbers->egu);
        *(double *)call->outputs[0].data = numbers->val;
        for (at = 0; at < TAHTI_ARGUMENTS; at++)
            *(double *)call->inputs[at].data = (&numbers->a)[at];
        return;
    }
    call->fields.bad_return = site->record.arrays.brsv;
    call->fields.precision = site->record.arrays.prec;
    for (at = 0; at < TAHTI_ARGUMENTS; at++) {
        const aSubRecord *arrays = &site->record.arrays;
        tahti_argument *in = &call->inputs[at], *out = &call->outputs[at];
        epicsUInt32 count = (&arrays->neva)[at];
        if (count > (&arrays->nova)[at])
            count = (&arrays->nova)[at];
        out->count = count < out->room ? count : out->room;
        memcpy(out->data, (&arrays->vala)[at], out->count * tahti_site_size(out->type));
        memcpy(in->data, (&arrays->a)[at], in->count * tahti_site_size(in->type));
    }
}

TAHTI_SHARED int tahti_site_call(tahti_call *call) {
    const struct tahti_site_function *function = (const struct tahti_site_function *)call->data;
    struct tahti_site_record *site = (struct tahti_site_record *)*call->user;
    int result;
    if (!site)
        *call->user = site = tahti_site_open(call);
    if (!site) {
        fprintf(stderr, "%s: no memory for the structure of function \"%s\"\n", call->record, function->name);
        return -1;
    }
    epicsMutexLock(site->support.lock);
    site->token = call->token;
    tahti_site_in(site, call);
    /* Functions that are declared with the result int work, too. */
    result = (int)((long (*)(void *))function->function)(&site->record);
    call->later = !call->resumed && site->record.common.pact;
    if (!call->later)
        site->record.common.pact = 0;
    tahti_site_out(site, call);
    epicsMutexUnlock(site->support.lock);
    return result;
}

#define TAHTI_ENTRY __attribute__((weak, visibility("default")))
TAHTI_ENTRY uint32_t tahti_plugin_version(void);
TAHTI_ENTRY int tahti_plugin_load(const tahti_host *host);
TAHTI_ENTRY uint32_t tahti_plugin_version(void) { return TAHTI_PLUGIN_VERSION; }
TAHTI_ENTRY int tahti_plugin_load(const tahti_host *host) {
    const struct tahti_site_registrar *registrar;
    struct tahti_site_function *one;
    if (host->size < sizeof *host) {
        fprintf(stderr, "this plug-in was compiled with the headers of a newer tahti: compile it with those of this one\n");
        return -1;
    }
    for (registrar = tahti_site_registrars; registrar; registrar = registrar->next)
        registrar->run();
    for (one = tahti_site_functions; one; one = one->next)
        if (host->add_with(host, one->name, TAHTI_SUB, tahti_site_call, one)
            || host->add_with(host, one->name, TAHTI_ASUB, tahti_site_call, one))
            return -1;
    return 0;
}
TAHTI_END
#endif
