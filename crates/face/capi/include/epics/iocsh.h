/* Commands of the shell. A plug-in's commands are not added to it. */
#ifndef TAHTI_IOCSH_H
#define TAHTI_IOCSH_H
#include "epicsTypes.h"
#include <stdio.h>

typedef enum {
    iocshArgInt, iocshArgDouble, iocshArgString, iocshArgPdbbase, iocshArgArgv, iocshArgPersistentString, iocshArgStringRecord,
    iocshArgStringPath
} iocshArgType;
typedef struct iocshArg {
    const char *name;
    iocshArgType type;
} iocshArg;
typedef struct iocshArgBufArgs {
    int ac;
    char **av;
} iocshArgBufArgs;
typedef union iocshArgBuf {
    int ival;
    double dval;
    char *sval;
    void *vval;
    iocshArgBufArgs aval;
} iocshArgBuf;
typedef struct iocshFuncDef {
    const char *name;
    int nargs;
    const iocshArg *const *arg;
    const char *usage;
} iocshFuncDef;
typedef void (*iocshCallFunc)(const iocshArgBuf *arguments);

TAHTI_BEGIN
TAHTI_UNUSED static void iocshRegister(const iocshFuncDef *command, iocshCallFunc function) {
    (void)function;
    fprintf(stderr, "tahti: the command \"%s\" of a plug-in is not available\n", command->name);
}
TAHTI_END
#endif
