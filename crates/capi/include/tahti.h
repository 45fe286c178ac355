/* tahti: join a frame scheduler, export and read variables.
 *
 * Every function begins with tahti_. Those that return int return 0, or -1 with the reason in tahti_error() of the
 * calling thread. Structures begin with their own size, so that a newer library can tell what an older program knows:
 * set `size` to sizeof before the call. Handles belong to the thread that uses them, unless said otherwise.
 *
 * Real-time: tahti_frame_yield and tahti_set_* neither allocate nor lock. All others belong into the start-up.
 */
#ifndef TAHTI_H
#define TAHTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAHTI_API_VERSION 1

/* The version of the library that the program runs with. */
uint32_t tahti_api_version(void);

/* Why the last call of this thread failed; never NULL. Valid until the thread's next failure. */
const char *tahti_error(void);

/* ---- frames */

typedef struct tahti_frame tahti_frame;
typedef struct tahti_exports tahti_exports;

typedef struct tahti_turn {
    uint32_t size;      /* sizeof(tahti_turn), set by the caller */
    uint16_t minor;     /* the minor frame */
    uint16_t mode;      /* the mode */
    uint64_t pulse;     /* number of the pulse */
    uint64_t due_ns;    /* when the minor was due to begin, CLOCK_MONOTONIC */
    uint64_t end_ns;    /* when it ends */
} tahti_turn;

/* Joins a frame as an activity with the calling thread, which gets its class and CPU from the frame. `frame` is
 * FRAME of the plant that started this process, or PLANT/FRAME. `exports` may be NULL: with it, safe values can
 * stand for the variables. Waits for the frame at most `within_ms`. NULL on failure. */
tahti_frame *tahti_frame_join(const char *frame, const char *activity, tahti_exports *exports, uint32_t within_ms);

/* Ends the call that the thread is in and waits for the next. The first one waits only.
 * 1: it is this thread's turn. 0: the frame has ended. -1: a wrong argument. */
int tahti_frame_yield(tahti_frame *frame, tahti_turn *turn);

/* Leaves the frame. */
void tahti_frame_leave(tahti_frame *frame);

/* Triggers a frame whose time base is `software` or `counter`, once. From any thread. */
int tahti_frame_trigger(const char *frame);

/* ---- variables */

/* Opens a segment for `count` variables under a name of the machine. NULL on failure. Stays open until the process
 * ends. May be used from several threads, each variable from one. */
tahti_exports *tahti_export_open(const char *name, uint32_t count);

/* Adds a variable: its index, or -1. `safe` may be NULL: it is what readers see while the activity is in trouble. */
int tahti_export_double(tahti_exports *exports, const char *name, const char *unit, const double *safe);
int tahti_export_int(tahti_exports *exports, const char *name, const char *unit, const int64_t *safe);

/* Writes a variable, made in this pulse. -1 for an index that is not of this type. */
int tahti_set_double(tahti_exports *exports, int index, double value, uint64_t pulse);
int tahti_set_int(tahti_exports *exports, int index, int64_t value, uint64_t pulse);

typedef struct tahti_imports tahti_imports;

typedef struct tahti_reading {
    uint32_t size;      /* sizeof(tahti_reading), set by the caller */
    uint32_t type;      /* 1 double, 2 int64_t, 3 bool: which of the two below holds */
    double as_double;   /* the value, as far as a double can hold it */
    int64_t as_int;     /* the value, rounded towards zero */
    uint64_t pulse;     /* the pulse in which it was made */
    uint64_t at_ns;     /* when, CLOCK_MONOTONIC */
    uint64_t writes;    /* how often it was written */
    uint32_t safe;      /* 1: the safe value stands for it */
    uint32_t alive;     /* 0: the process that wrote it is gone */
} tahti_reading;

/* Opens the variables that a process exports under a name. NULL on failure. */
tahti_imports *tahti_import_open(const char *name);

/* Reads a variable by its name. */
int tahti_import_get(tahti_imports *imports, const char *name, tahti_reading *reading);

/* The name of variable `index` into `name` (64 bytes and a zero), its unit into `unit` (16 and a zero).
 * -1 if there is no such variable. */
int tahti_import_name(tahti_imports *imports, uint32_t index, char name[65], char unit[17]);

/* Closes them. */
void tahti_import_close(tahti_imports *imports);

#ifdef __cplusplus
}
#endif

#endif
