/* Callbacks. Each runs on a new thread of the plug-in. */
#ifndef TAHTI_CALLBACK_H
#define TAHTI_CALLBACK_H
#include "dbAccess.h"
#include "epicsThread.h"

enum { priorityLow, priorityMedium, priorityHigh };
#define NUM_CALLBACK_PRIORITIES 3

typedef struct callbackPvt {
    void (*callback)(struct callbackPvt *);
    int priority;
    void *user;
    double delay;
} CALLBACK;
typedef CALLBACK epicsCallback;
typedef void (*CALLBACKFUNC)(struct callbackPvt *);

#define callbackSetCallback(function, of) ((of)->callback = (function))
#define callbackSetPriority(number, of) ((of)->priority = (number))
#define callbackSetUser(data, of) ((of)->user = (void *)(data))
#define callbackGetUser(data, of) ((data) = (__typeof__(data))(of)->user)

TAHTI_BEGIN
TAHTI_UNUSED static void tahti_callback(void *given) {
    CALLBACK *callback = (CALLBACK *)given;
    epicsThreadSleep(callback->delay);
    callback->callback(callback);
}
TAHTI_UNUSED static inline int tahti_callback_after(CALLBACK *callback, double seconds) {
    callback->delay = seconds;
    return epicsThreadCreate("callback", 0, 0, tahti_callback, callback) ? 0 : -1;
}
TAHTI_UNUSED static inline int callbackRequest(CALLBACK *callback) { return tahti_callback_after(callback, 0); }
TAHTI_UNUSED static inline void callbackRequestDelayed(CALLBACK *callback, double seconds) {
    tahti_callback_after(callback, seconds);
}
TAHTI_UNUSED static void tahti_callback_process(CALLBACK *callback) { dbProcess(callback->user); }
TAHTI_UNUSED static inline void callbackSetProcess(CALLBACK *callback, int priority, void *record) {
    callback->callback = tahti_callback_process;
    callback->priority = priority;
    callback->user = record;
}
TAHTI_UNUSED static inline int callbackRequestProcessCallback(CALLBACK *callback, int priority, void *record) {
    callbackSetProcess(callback, priority, record);
    return callbackRequest(callback);
}
TAHTI_UNUSED static inline void callbackRequestProcessCallbackDelayed(
    CALLBACK *callback, int priority, void *record, double seconds) {
    callbackSetProcess(callback, priority, record);
    callbackRequestDelayed(callback, seconds);
}
TAHTI_END
#endif
