/* Registration of functions and registrars. */
#ifndef TAHTI_EPICS_EXPORT_H
#define TAHTI_EPICS_EXPORT_H
#include "registryFunction.h"

/* The function `function` is called by records with this name in SNAM or INAM. */
#define epicsRegisterFunction(function)                                                           \
    __attribute__((constructor)) static void tahti_register_##function(void) {                    \
        registryFunctionAdd(#function, (REGISTRYFUNCTION)function);                               \
    }                                                                                             \
    extern const int tahti_registered_##function

/* `function` registers other functions. It runs when the plug-in has been loaded. */
#define epicsExportRegistrar(function)                                                            \
    __attribute__((constructor)) static void tahti_registrar_##function(void) {                   \
        tahti_add_registrar(function);                                                            \
    }                                                                                             \
    extern const int tahti_registrar_of_##function

/* Variables of a plug-in keep their initial value: the command `var` cannot change them. */
#define epicsExportAddress(type, name) extern const int tahti_address_of_##name
#define epicsExportVariable(type, name) extern const int tahti_address_of_##name
#endif
