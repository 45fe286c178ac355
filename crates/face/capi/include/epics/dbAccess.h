/* Access to the database. A function can access only its own record. Use INPA to INPU and OUTA to OUTU for other records. */
#ifndef TAHTI_DB_ACCESS_H
#define TAHTI_DB_ACCESS_H
#include "alarm.h"
#include "dbCommon.h"
#include "dbDefs.h"
#include "dbFldTypes.h"
#include "epicsTime.h"
#include "link.h"
#include "recGbl.h"
#include "recSup.h"

typedef struct dbAddr {
    struct dbCommon *precord;
    void *pfield;
    long no_elements;
    short field_type;
    short field_size;
    short dbr_field_type;
} DBADDR, dbAddr;
typedef char DBSTRING[MAX_STRING_SIZE];
typedef void *EVENTPVT;
typedef struct tahti_io_scan *IOSCANPVT;

#define DBE_VALUE 1
#define DBE_LOG 2
#define DBE_ARCHIVE 2
#define DBE_ALARM 4
#define DBE_PROPERTY 8
#define S_db_notFound (511 << 16 | 1)
#define S_db_errArg (511 << 16 | 7)
#define S_db_BadSub (511 << 16 | 35)

#define TAHTI_LINKS "tahti: a function has no access to other records. Read them with INPA to INPU, write them with OUTA to OUTU"

TAHTI_BEGIN
TAHTI_UNUSED static inline void dbScanLock(void *record) { epicsMutexLock(((struct dbCommon *)record)->rset->lock); }
TAHTI_UNUSED static inline void dbScanUnlock(void *record) { epicsMutexUnlock(((struct dbCommon *)record)->rset->lock); }
/* The record posts its values after the call. */
TAHTI_UNUSED static inline int db_post_events(void *record, void *field, unsigned mask) {
    (void)record;
    (void)field;
    (void)mask;
    return 0;
}
/* Ends a call that ends later: see recSup.h. Waits for a call that is running, which may set PACT at its end. */
TAHTI_UNUSED static inline long dbProcess(void *record) {
    struct dbCommon *common = (struct dbCommon *)record;
    long result;
    dbScanLock(record);
    result = common->pact ? common->rset->process(record) : -1;
    dbScanUnlock(record);
    return result;
}
TAHTI_UNUSED static inline int scanOnce(void *record) { return (int)dbProcess(record); }

TAHTI_ABSENT(TAHTI_LINKS) long dbNameToAddr(const char *name, DBADDR *address);
TAHTI_ABSENT(TAHTI_LINKS) long dbGetField(DBADDR *, short, void *, long *, long *, void *);
TAHTI_ABSENT(TAHTI_LINKS) long dbPutField(DBADDR *, short, const void *, long);
TAHTI_ABSENT(TAHTI_LINKS) long dbGet(DBADDR *, short, void *, long *, long *, void *);
TAHTI_ABSENT(TAHTI_LINKS) long dbPut(DBADDR *, short, const void *, long);
TAHTI_ABSENT(TAHTI_LINKS) long dbGetLink(DBLINK *, short, void *, long *, long *);
TAHTI_ABSENT(TAHTI_LINKS) long dbPutLink(DBLINK *, short, const void *, long);
TAHTI_ABSENT(TAHTI_LINKS) DBADDR *dbGetPdbAddrFromLink(DBLINK *);
TAHTI_ABSENT(TAHTI_LINKS) long dbGetNelements(const DBLINK *, long *);
TAHTI_ABSENT(TAHTI_LINKS) int dbIsLinkConnected(const DBLINK *);
TAHTI_ABSENT(TAHTI_LINKS) long dbGetAlarm(const DBLINK *, epicsEnum16 *, epicsEnum16 *);
TAHTI_ABSENT(TAHTI_LINKS) long dbGetTimeStamp(const DBLINK *, epicsTimeStamp *);
TAHTI_ABSENT(TAHTI_LINKS) void post_event(int);
TAHTI_END
#endif
