/* tahti: join a frame scheduler, run periodic loops, export and read variables, share memory, mutexes, conditions and
 * barriers, share jobs among threads, drive devices; send messages to equipment and serve them; write functions of an IOC's records (at the end).
 *
 * Every function begins with tahti_. Those that return int return 0, or -1 with the reason in tahti_error() of the
 * calling thread. Structures begin with their own size, so that a newer library can tell what an older program knows:
 * set `size` to sizeof before the call. What an older program does not know is left out. Handles belong to the thread that
 * uses them, unless said otherwise.
 *
 * Real-time: tahti_frame_yield and _mode, tahti_set_*, tahti_export_cycle, tahti_mutex_lock, _trylock and _unlock, tahti_cond_wait, _signal and
 * _broadcast, tahti_barrier_wait, tahti_team_run, _part and _times, tahti_manager_serve and the answers to what it hands over do not allocate. Of these,
 * tahti_frame_yield, tahti_cond_wait, tahti_barrier_wait, tahti_team_run, tahti_manager_serve and the lock of a mutex that somebody holds
 * block, for that is what they are for. All others belong into the start-up. A program's own allocations are not counted,
 * for its allocator is its own; the page faults of activities and loops are (`tahti frames show`).
 */
#ifndef TAHTI_H
#define TAHTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAHTI_API_VERSION 9

/* The version of the library that the program runs with. */
uint32_t tahti_api_version(void);

/* Why the last call of this thread failed; never NULL. Valid until the thread's next failure. A thread that ends, in destructors of its own
 * thread-local data, can call every function, but the reason of a failure may be missing then. */
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
    uint64_t void_ns;   /* a result after this time would be worth nothing: put out none then; 0: it has no deadline (since version 8) */
} tahti_turn;

/* Joins a frame as an activity with the calling thread, which gets its class and CPU from the frame. `frame` is
 * FRAME of the plant that started this process, or PLANT/FRAME. `exports` may be NULL: with it, safe values can
 * stand for the variables. Waits for the frame at most `within_ms`. NULL on failure. */
tahti_frame *tahti_frame_join(const char *frame, const char *activity, tahti_exports *exports, uint32_t within_ms);

/* Ends the call that the thread is in and waits for the next. The first one waits only.
 * 1: it is this thread's turn. 0: the frame has ended. -1: a wrong argument, or the frame's process has died (a program that a
 * plant started should fail then: it is started anew, and so is the frame). */
int tahti_frame_yield(tahti_frame *frame, tahti_turn *turn);

/* Asks for a mode of the frame by its name (since version 4): entered where the next major frame begins; the last wish before that counts.
 * -1: it has no such mode. Real-time: no system call. */
int tahti_frame_mode(tahti_frame *frame, const char *mode);

/* Leaves the frame. */
void tahti_frame_leave(tahti_frame *frame);

/* Triggers a frame whose time base is `software` or `counter`, once. From any thread. */
int tahti_frame_trigger(const char *frame);

/* Hands a descriptor to a frame whose time base is `eventfd`: each time it becomes readable (an eventfd, a timerfd, the
 * interrupt of VFIO or UIO), a minor begins. The frame reads a copy. A later one takes its place. From any thread.
 * UIO's interrupt comes once: the activity that has quietened the device calls tahti_device_enable() for the next one, or
 * the frame's trigger stops. */
int tahti_frame_trigger_fd(const char *frame, int fd);

/* ---- variables */

/* Opens a segment for `count` variables under a name of the machine. NULL on failure. Stays open until the process
 * ends. May be used from several threads, each variable from one. */
tahti_exports *tahti_export_open(const char *name, uint32_t count);

/* Says that each variable is written at least so often: what is older than two periods and 10 ms is stale for readers who want to
 * know (records with DTYP `tahti Variable`, the `import` driver). A frame says it for its activities. 0: nobody says. */
void tahti_export_period(tahti_exports *exports, uint64_t period_ns);

/* Adds a variable: its index, or -1. `safe` may be NULL: it is what readers see while the activity is in trouble. */
int tahti_export_double(tahti_exports *exports, const char *name, const char *unit, const double *safe);
int tahti_export_int(tahti_exports *exports, const char *name, const char *unit, const int64_t *safe);

/* Writes a variable, made in this pulse. -1 for an index that is not of this type. */
int tahti_set_double(tahti_exports *exports, int index, double value, uint64_t pulse);
int tahti_set_int(tahti_exports *exports, int index, int64_t value, uint64_t pulse);

/* How a cycle was, for tahti_export_cycle; pulses that were given up before it times 2 to the power of 32 are added. */
#define TAHTI_MISS 1u       /* it ended after its deadline */
#define TAHTI_OVERRUN 2u    /* pulses were given up before it, or it took longer than its budget */
#define TAHTI_FAULT 4u      /* what was put out is not to be trusted */

/* Ends a cycle of a program's own loop: the oscilloscope (`tahti scope`) samples the variables (since version 7). Not needed by activities of
 * frames that were joined with them, nor by loops that have them in their spec. From one thread. The first call opens the oscilloscope and
 * belongs into the start-up. Real-time: no system call but a reading of the clock. */
int tahti_export_cycle(tahti_exports *exports, uint64_t pulse, uint64_t marks);

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

/* ---- shared memory and locks between processes (since version 2)
 *
 * _create makes it and offers it under `name` to processes of the same user, until this process ends; NULL as name: for
 * this process only. _open takes what somebody offers. The memory is a sealed memfd handed over by a Unix socket: nothing
 * stays behind when processes die. These handles may be used from all threads at once. */

typedef struct tahti_segment tahti_segment;
typedef struct tahti_mutex tahti_mutex;
typedef struct tahti_cond tahti_cond;
typedef struct tahti_barrier tahti_barrier;

/* Memory of at least `bytes` bytes, all zero. Whoever opens it can write it. */
tahti_segment *tahti_segment_create(const char *name, uint64_t bytes);
tahti_segment *tahti_segment_open(const char *name);
/* Where it is, and how large into `bytes` (may be NULL). */
void *tahti_segment_memory(tahti_segment *segment, uint64_t *bytes);
/* Unmaps it: an interrupt on every CPU on which the process runs. */
void tahti_segment_close(tahti_segment *segment);

/* A mutex with priority inheritance, robust when its owner dies. Its memory stays mapped until the process ends. */
tahti_mutex *tahti_mutex_create(const char *name);
tahti_mutex *tahti_mutex_open(const char *name);
/* Takes the lock; _trylock does not wait for it. 0: the lock is held. 1: it is held, and who held it before died with it: what it protects may be half done; the lock
 * itself is in order again. Less than 0: an error of errno.h, negative (-EDEADLK: the caller holds it already; _trylock
 * -EBUSY: somebody holds it). tahti_error() is not set. */
int tahti_mutex_lock(tahti_mutex *mutex);
int tahti_mutex_trylock(tahti_mutex *mutex);
/* Releases the lock. 0, or -EPERM: the caller does not hold it. */
int tahti_mutex_unlock(tahti_mutex *mutex);
/* Closes the handle, without releasing the lock. */
void tahti_mutex_close(tahti_mutex *mutex);

/* A condition. */
tahti_cond *tahti_cond_create(const char *name);
tahti_cond *tahti_cond_open(const char *name);
/* Gives the mutex up, waits for a signal (less than 0 ns: without limit), takes the mutex again. Two may be woken by one
 * signal: look at the state, wait again. The sum of 1: an owner of the mutex died, as above; and 2: no signal in time.
 * Less than 0: an error of errno.h, negative; the mutex is not held then. */
int tahti_cond_wait(tahti_cond *cond, tahti_mutex *mutex, int64_t within_ns);
/* Lets the most urgent waiter go on, or all. Best after the mutex was given up. */
void tahti_cond_signal(tahti_cond *cond);
void tahti_cond_broadcast(tahti_cond *cond);
/* Gives the handle back. */
void tahti_cond_close(tahti_cond *cond);

/* A barrier for a team of threads: no thread continues before all have arrived. */
tahti_barrier *tahti_barrier_create(const char *name, uint32_t threads);
tahti_barrier *tahti_barrier_open(const char *name);
/* Waits for the others: spins for `spin_ns`, then sleeps. 0: all have come. 1: the same, and the caller was the last. -1: somebody did not come
 * within its limit (less than 0 ns: none), and the barrier is broken for all from then on. */
int tahti_barrier_wait(tahti_barrier *barrier, uint64_t spin_ns, int64_t within_ns);
/* Gives the handle back. */
void tahti_barrier_close(tahti_barrier *barrier);

/* ---- teams of threads (since version 9), see docs/compute.md
 *
 * Shares each job of one thread, the leader (a loop's or an activity's for instance), with workers on CPUs of their own. Each has memory of its
 * own, its part; between two jobs all parts are the leader's, in a job each is its owner's alone. A team is for one thread at a time. */

typedef struct tahti_team tahti_team;

typedef struct tahti_team_spec {
    uint32_t size;          /* sizeof(tahti_team_spec), set by the caller */
    uint32_t workers;       /* beside the leader */
    const char *name;       /* of the threads, with "/1" and so on behind it */
    const int32_t *cpus;    /* workers + 1 of them: where the leader's part is made, and the CPU of each worker; -1: any. NULL: any for all */
    int32_t priority;       /* the workers': 1 to 99 of SCHED_FIFO, 0: the class of the thread that starts them */
    uint32_t reserved;      /* 0 */
    uint64_t spin_ns;       /* how long who waits spins before it sleeps; a little more than between two jobs keeps the workers' CPUs busy */
    uint64_t limit_ns;      /* how long the leader waits for the others after its own share; 0: a second */
    uint64_t part_bytes;    /* of each one's part, aligned to 128 bytes; 0: none */
} tahti_team_spec;

/* What each of a team does, with its part: the leader is 0, and they are `of`. It must return. */
typedef void tahti_job(void *user, void *part, uint32_t index, uint32_t of);

/* Starts the workers; each makes its part, all zero, on its own thread and CPU, and `make` (may be NULL) fills it there. Returns when all have. `user` is what
 * they share: changed between two jobs alone. NULL on failure: two have one CPU, more real-time threads than CPUs, a CPU that the process may not use. */
tahti_team *tahti_team_start(const tahti_team_spec *spec, tahti_job *make, tahti_job *job, void *user);

/* Has all do their shares, the calling thread that of the leader, and waits for the last. 0: done. Above 0: the worker of this number is not back within the limit;
 * until it is, nothing of the team may be changed, and to run again says the same at once. Below 0: the worker of this number, negated, has ended; INT_MIN: NULL. */
int tahti_team_run(tahti_team *team);

/* The part of one of the team, between two jobs. NULL: there is no such one, no parts, or somebody is still in a job. */
void *tahti_team_part(tahti_team *team, uint32_t index);

/* How long after the dispatch of the last job one of the team began, and how long it took. Both may be NULL. */
int tahti_team_times(const tahti_team *team, uint32_t index, uint64_t *late_ns, uint64_t *took_ns);

/* Unavailable properties of the workers: text `index` from 0 on, NULL behind the last. */
const char *tahti_team_missing(tahti_team *team, uint32_t index);

/* Ends the workers, waits for them, and gives their memory back. */
void tahti_team_close(tahti_team *team);

/* Where the share of one of `of` in so many items begins; it ends where the next one's begins. Shares differ by one at most. */
uint64_t tahti_share(uint64_t items, uint32_t index, uint32_t of);

/* ---- quiet sections (since version 2) */

typedef struct tahti_quiet_report {
    uint32_t size;          /* sizeof(tahti_quiet_report), set by the caller */
    uint32_t cpu;           /* the thread's CPU */
    uint64_t lasted_ns;     /* how long it lasted */
    uint64_t looks;         /* looks at the clock */
    uint64_t quickest_ns;   /* the quickest two in succession: what can be resolved */
    uint64_t gaps;          /* two looks further apart than the threshold */
    uint64_t lost_ns;       /* all gaps together */
    uint64_t longest_ns;    /* the longest gap, 0 if there was none */
    uint64_t longest_at_ns; /* when it began, from the section's beginning */
    uint64_t interrupts;    /* interrupts of this CPU meanwhile */
    uint64_t put_aside;     /* times that another task took the CPU */
    uint64_t page_faults;
    uint64_t unexplained;   /* gaps beyond all of these: firmware or hypervisor */
    int64_t steal_ticks;    /* ticks of 10 ms that the hypervisor took; -1 if it does not tell */
    uint32_t missing;       /* what makes a CPU quiet and was not obtained; `tahti bench quiet` names it */
    uint32_t reserved;
} tahti_quiet_report;

/* Spins for `duration_ns` on the calling thread, which is bound to one CPU, and measures what the CPU took away from it in
 * pieces above `threshold_ns`. Changes nothing: ticks stop only where the kernel was booted so. -1: wrong arguments, or the
 * thread may run on several CPUs. */
int tahti_quiet(uint64_t duration_ns, uint64_t threshold_ns, tahti_quiet_report *report);

/* ---- messages (since version 3), see docs/messages.md
 *
 * A client sends lines such as "put/sr_mag_ps_b/123.45A" to the message server of this host and gets exactly one reply for each;
 * an equipment manager answers them. A client is for one thread at a time, a manager for one on each of its bands; a second one is
 * told so. Only the functions _wake may be called from any thread. */

/* How a request ended. */
#define TAHTI_OK 0
#define TAHTI_NO_OBJECT 1
#define TAHTI_NO_VERB 2
#define TAHTI_DENIED 3
#define TAHTI_LOCKED 4
#define TAHTI_BUSY 5
#define TAHTI_RANGE 6
#define TAHTI_DEVICE 7
#define TAHTI_EXPIRED 8
#define TAHTI_OVERLOAD 9
#define TAHTI_MALFORMED 10
#define TAHTI_TIMEOUT 11
#define TAHTI_UNKNOWN 12
#define TAHTI_INTERNAL 13

/* The word of a code: "NO_OBJECT"; NULL for a number that is none. */
const char *tahti_code(uint32_t code);

#define TAHTI_BAND 3            /* the band to use where nothing is more or less urgent; 0 to 7, 7 the most urgent */
#define TAHTI_ALL_BANDS 0xffu

/* Flags of a request. */
#define TAHTI_IDEMPOTENT 1u     /* doing it twice is doing it once: sent again when the server is lost meanwhile */
#define TAHTI_DRY_RUN 2u        /* check everything, change nothing */

typedef struct tahti_client tahti_client;
typedef struct tahti_room tahti_room;

typedef struct tahti_sending {
    uint32_t size;          /* sizeof(tahti_sending), set by the caller */
    uint32_t flags;
    int64_t within_ns;      /* until when it is worth executing, from now on; 0: 5 s */
    uint64_t pulse;         /* the pulse to which it belongs, 0: none */
    const void *body;       /* mostly MessagePack; above 16384 bytes only with a pool */
    uint64_t body_bytes;
    uint64_t answer_bytes;  /* most bytes that the body of the reply may have; 0: 16384, above only with a pool (since version 4) */
} tahti_sending;

typedef struct tahti_reply {
    uint32_t size;          /* sizeof(tahti_reply), set by the caller */
    uint32_t code;          /* TAHTI_OK, ... */
    uint64_t id;            /* what tahti_client_send returned; of an event that of its `watch` */
    uint64_t pulse;
    const char *text;       /* the value, or why not; ends with a zero */
    uint64_t text_bytes;
    const void *body;
    uint64_t body_bytes;
    uint32_t event;         /* 1: what was watched for, no reply */
    uint32_t reserved;
} tahti_reply;

/* Connects to the message server `server`, mostly "main", under a name of the client's own. NULL on failure. When the server goes
 * and comes back, it connects anew; what was outstanding and only reads, or is idempotent, is sent again, all else is
 * answered UNKNOWN. */
tahti_client *tahti_client_connect(const char *server, const char *name, uint32_t band);

/* The same with a pool of memory, at most 256 MiB, for requests with a body, or answer_bytes, above 16384: each has room there
 * until its reply has come, for the larger of the two. What ended TIMEOUT or UNKNOWN keeps its room, until nothing is
 * outstanding and the pool has no other. (since version 4) */
tahti_client *tahti_client_connect_with_pool(const char *server, const char *name, uint32_t band, uint64_t pool_bytes);

/* Sends a request and does not wait: its id, above 0; 0: the queue or pool is full, take replies first; -1. `sending` may be NULL. */
int64_t tahti_client_send(tahti_client *client, const char *line, const tahti_sending *sending);

/* A room in the client's pool for a body of at most so many bytes, which is made there in place, without a copy. NULL where the pool has
 * none at the moment, or on failure. From any thread. (since version 5) */
tahti_room *tahti_client_room(const tahti_client *client, uint64_t bytes);

/* Its memory, aligned to 64 bytes, until tahti_room_free. */
void *tahti_room_memory(const tahti_room *room);

/* As tahti_client_send with the first `body_bytes` of the room as body; `sending` has none. Above 0: the room is the request's, whose
 * answer may have as large a body; its memory is not to be touched any more. 0 or -1: it is still the caller's. */
int64_t tahti_client_send_room(tahti_client *client, const char *line, const tahti_sending *sending, tahti_room *room,
                               uint64_t body_bytes);

/* Gives up the room, unless it was sent, and its memory. From any thread, also after tahti_client_close. */
void tahti_room_free(tahti_room *room);

/* Takes the next reply or event, and waits for it at most `within_ns`. 1: it is there, its text and body until the next call with
 * this client. 0: there is none, or somebody woke it. -1: the server is gone and was not reached again. */
int tahti_client_next(tahti_client *client, tahti_reply *reply, int64_t within_ns);

/* Sends a request and waits for its reply, which may say that it failed. Other replies meanwhile are kept. */
int tahti_client_ask(tahti_client *client, const char *line, const tahti_sending *sending, tahti_reply *reply);

/* How many requests have no reply yet. */
int tahti_client_outstanding(tahti_client *client);

/* Lets tahti_client_next return, now or when it is called next; not while the client connects anew. From any thread. */
void tahti_client_wake(const tahti_client *client);

/* Leaves the server; replies that have not come are lost. */
void tahti_client_close(tahti_client *client);

/* Lines, as bodies of `batch` and of replies to `batch` and `list` hold them. How many bytes were written; -1: no room. */
int64_t tahti_lines_write(const char *const *lines, uint32_t count, void *to, uint64_t room);
/* Line `index` of a body, without a zero at its end. 1: there. 0: there are not so many. -1: the body holds no lines. */
int tahti_line_read(const void *body, uint64_t body_bytes, uint32_t index, const char **line, uint64_t *line_bytes);

typedef struct tahti_manager tahti_manager;
typedef struct tahti_replies tahti_replies;

/* A request whose deadline has not passed. */
typedef struct tahti_asked {
    uint32_t size;          /* of this structure, as the library knows it */
    uint32_t band;
    uint64_t id;            /* for tahti_manager_answer */
    const char *verb;       /* "get", "set", "put", "call", "list", "describe", "batch" or "ping" */
    const char *object;
    const char *complement; /* "" if there is none */
    const void *body;
    uint64_t body_bytes;
    uint64_t deadline_ns;   /* CLOCK_MONOTONIC; the server answers TIMEOUT in the manager's stead when it passes */
    uint64_t pulse;
    uint32_t flags;         /* TAHTI_DRY_RUN: check everything, change nothing */
    uint32_t user;          /* who asks: what the kernel says */
    uint32_t process;
    uint32_t host;          /* 0: this one */
    uint64_t answer_bytes;  /* most bytes that the body of the answer may have (since version 4) */
} tahti_asked;

/* Answers each request once: now by tahti_answer, or later by tahti_manager_answer. What it is given holds until it returns. */
typedef void tahti_handler(void *user, const tahti_asked *asked, tahti_replies *replies);

/* Registers as manager `name` for the objects whose names are, or continue, one of `serves` (names with blanks between them),
 * on the bands of a sum of 1 << BAND. NULL on failure. */
tahti_manager *tahti_manager_connect(const char *server, const char *name, const char *serves, uint32_t bands);

/* The same for a manager that takes bodies of up to `body_bytes`, and answers with ones of up to its request's answer_bytes.
 * Reserves that memory for each band. Others refuse bodies above 16384. (since version 4) */
tahti_manager *tahti_manager_connect_with_bodies(const char *server, const char *name, const char *serves, uint32_t bands,
                                                 uint64_t body_bytes);

/* Hands the requests of a band that are there to `handler`, and waits for the first at most `within_ns`: how many, 0 if none came
 * or somebody woke it. -1: the server is gone; close and connect anew, what was not answered was answered UNKNOWN. */
int tahti_manager_serve(tahti_manager *manager, uint32_t band, tahti_handler *handler, void *user, int64_t within_ns);

/* Within a handler: answers. `complement` (plain text, the value or why not) and `body` may be NULL. An answer that is too long
 * becomes one that says so. */
int tahti_answer(tahti_replies *replies, const tahti_asked *asked, uint32_t code, const char *complement, const void *body,
                 uint64_t body_bytes);

/* Within a handler: where the body of the answer may be made in place, without a copy, and how many bytes there are: the room
 * that the request's client keeps for it. It is given by tahti_answer with this very memory as body, and must not be touched
 * after that, nor after the handler has returned. NULL, with 0 bytes, where the client keeps none (answer_bytes is 16384 then) or
 * the manager takes no large bodies. Aligned to 64 bytes; whose client it is may write there at any time. (since version 6) */
void *tahti_answer_memory(tahti_replies *replies, const tahti_asked *asked, uint64_t *bytes);

/* Outside of a handler, on the thread that serves the band: answers what was kept. */
int tahti_manager_answer(tahti_manager *manager, uint32_t band, uint64_t id, uint32_t code, const char *complement,
                         const void *body, uint64_t body_bytes);

/* Lets tahti_manager_serve return, now or when it is called next. From any thread. */
void tahti_manager_wake(const tahti_manager *manager, uint32_t band);

/* Leaves the server. */
void tahti_manager_close(tahti_manager *manager);

/* ---- periodic loops (since version 3) */

typedef struct tahti_loops tahti_loops;

typedef struct tahti_loop_spec {
    uint32_t size;      /* sizeof(tahti_loop_spec), set by the caller */
    int32_t priority;   /* SCHED_FIFO at 1 to 99; 0: the class of the thread that starts the loops */
    int32_t cpu;        /* bound to this CPU; -1: those of the process */
    uint32_t reserved;
    const char *name;   /* of its thread; the kernel keeps 15 bytes */
    uint64_t period_ns; /* 10,000 or more; pulses are whole periods since the start of TAI */
    uint64_t spin_ns;   /* how long before each pulse it wakes up to spin; 0: it sleeps only; UINT64_MAX: it spins only */
    tahti_exports *exports; /* variables that the oscilloscope samples at the end of each cycle; NULL: none (since version 7) */
} tahti_loop_spec;

typedef struct tahti_pulse {
    uint32_t size;      /* of this structure, as the library knows it */
    uint32_t reserved;
    uint64_t number;    /* number of the pulse */
    uint64_t due_ns;    /* when it was due, CLOCK_MONOTONIC */
    uint64_t woke_ns;   /* when the loop was there */
    uint64_t skipped;   /* pulses that had passed and were given up just before it; the phase stays */
    uint64_t void_ns;   /* a result after this time would be worth nothing: put out none then; 0: it has no deadline (since version 8) */
} tahti_pulse;

/* A loop's body: called once for each pulse, on the loop's own thread. It must not allocate, lock or log. 0: go on. 1: the
 * loop has done its work. -1: go on, but what was put out in this cycle is not to be trusted. */
typedef int tahti_body(void *user, const tahti_pulse *pulse);

/* Loops of this process: _new, _add for each, _start once. NULL on failure. */
tahti_loops *tahti_loops_new(void);

/* Adds a loop: its index, or -1. The first one is the process's heartbeat, where `tahti up` or `tahti run` watches one. */
int tahti_loops_add(tahti_loops *loops, const tahti_loop_spec *spec, tahti_body *body, void *user);

/* Locks the process's memory, prepares the threads (stacks brought in, name, CPU, timer slack, denormals, class last), and
 * lets them begin some 20 ms later. The number of things that could not be had, or -1: nothing runs. The calling thread
 * becomes time sharing and leaves the loops' CPUs if it can. */
int tahti_loops_start(tahti_loops *loops);

/* What could not be had, with the remedy, by its number from 0 on; NULL behind the last. Valid until _close. */
const char *tahti_loops_missing(const tahti_loops *loops, uint32_t index);

/* 1 once all loops have ended by themselves. */
int tahti_loops_over(const tahti_loops *loops);

typedef struct tahti_loop_report {
    uint32_t size;              /* sizeof(tahti_loop_report), set by the caller */
    uint32_t reserved;
    uint64_t cycles;            /* cycles that ran */
    uint64_t skipped;           /* pulses that were given up */
    uint64_t late_median_ns;    /* how late it woke; UINT64_MAX: beyond what is counted one by one */
    uint64_t late_p99_ns;
    uint64_t late_max_ns;       /* exact */
    uint64_t page_faults;       /* of its thread, since it began */
    uint64_t switches;          /* times that its CPU was taken from it */
} tahti_loop_report;

/* Reads what loop `index` has accounted for, without disturbing it; also after _stop. */
int tahti_loops_report(tahti_loops *loops, uint32_t index, tahti_loop_report *report);

/* Ends the loops at their next pulse and waits for them. */
void tahti_loops_stop(tahti_loops *loops);

/* Stops them and gives the handle back. */
void tahti_loops_close(tahti_loops *loops);

/* ---- devices from user space (since version 3), bound to uio_pci_generic or another UIO driver, or to vfio-pci */

typedef struct tahti_device tahti_device;

#define TAHTI_MSI 1
#define TAHTI_MSIX 2
#define TAHTI_PIN 3     /* INTx; comes one by one, see tahti_device_enable() (since version 4) */

/* Opens a UIO device by its node ("uio0") or its PCI address ("0000:00:04.0"). NULL on failure. For interrupts see
 * tahti_device_enable(): they come one by one. */
tahti_device *tahti_uio_open(const char *device);

/* Opens a PCI device behind an IOMMU, makes it master of its bus, and switches interrupt `message` of a kind on (a pin: 0). NULL on
 * failure. */
tahti_device *tahti_vfio_open(const char *address, uint32_t kind, uint32_t message);

/* Maps the registers of BAR `bar`; how large into `bytes` (may be NULL). Reach them by volatile accesses of their width. The
 * mapping stays until _close. NULL on failure. */
volatile void *tahti_device_registers(tahti_device *device, uint32_t bar, uint64_t *bytes);

/* New memory of `bytes` bytes, all zero, that a VFIO device reaches by itself, at the address `at` of its own (DMA): whole pages,
 * where no other memory of the device lies. What it has written is there once its interrupt has come. The memory stays until
 * _close. NULL on failure. (since version 4) */
void *tahti_device_memory(tahti_device *device, uint64_t at, uint64_t bytes);

/* Lets a UIO device, or the pin of a VFIO one, interrupt once. The kernel switches a pin's interrupt off when it comes, for it
 * stays asserted until the device is quiet: quieten the device through its registers, then call this, each time. The one who
 * owns the device does, also where the interrupt begins a frame's minors (tahti_frame_trigger_fd()). Nothing to do with
 * messages. Real-time: two system calls at most. */
int tahti_device_enable(tahti_device *device);

/* Waits for an interrupt: spins for `spin_ns`, then sleeps; less than 0 ns: without limit. 1: one has come, or several.
 * 0: none in time. -1: the device is gone. Real-time: does not allocate. */
int tahti_device_wait(tahti_device *device, uint64_t spin_ns, int64_t within_ns);

/* Its descriptor, readable when it has interrupted; for poll(), and for tahti_frame_trigger_fd(). It stays the library's. */
int tahti_device_fd(tahti_device *device);

/* Unmaps the registers and closes it. */
void tahti_device_close(tahti_device *device);

/* ---- functions of sub and aSub records: a plug-in of the IOC
 *
 * A plug-in is a shared library that `tahti ioc --plugin FILE` or the command `dlload FILE` loads, for good. It needs
 * this header and no library:
 *
 *     static int twice(tahti_call *call) {
 *         *(double *)call->outputs[0].data = 2 * *(double *)call->inputs[0].data;
 *         return 0;
 *     }
 *     TAHTI_PLUGIN(host) { return host->add(host, "twice", TAHTI_SUB, twice); }
 *
 * A function runs on the thread that processes the record: it must not block, and where a real-time scan processes it,
 * not allocate. Functions of different records may run at the same time on different threads. */

#define TAHTI_PLUGIN_VERSION 1
#define TAHTI_ARGUMENTS 21

/* Types of elements, in EPICS' numbers. */
#define TAHTI_STRING 0  /* char[40], ends with a zero */
#define TAHTI_INT8 1
#define TAHTI_UINT8 2
#define TAHTI_INT16 3
#define TAHTI_UINT16 4
#define TAHTI_INT32 5
#define TAHTI_UINT32 6
#define TAHTI_INT64 7
#define TAHTI_UINT64 8
#define TAHTI_FLOAT 9
#define TAHTI_DOUBLE 10
#define TAHTI_ENUM 11   /* uint16_t */

typedef struct tahti_argument {
    uint32_t type;      /* TAHTI_DOUBLE, ...: FTA, FTVA, ... of the record */
    uint32_t count;     /* elements that hold (NEA, NEVA, ...); the function sets it in outputs */
    uint32_t room;      /* elements that may be written, NOVA, ... */
    uint32_t reserved;
    void *data;         /* NULL where the record has no such argument */
} tahti_argument;

typedef struct tahti_host tahti_host;

/* A call that ends later. */
typedef struct tahti_token {
    uint64_t words[2];
} tahti_token;

typedef struct tahti_call {
    uint32_t size;      /* of this structure, as tahti knows it */
    uint32_t resumed;   /* 1: the second half of a call that was to end later */
    const tahti_host *host;
    const char *record; /* name of the record */
    void **user;        /* a word of the function's own for this record, NULL at first */
    tahti_token token;
    uint32_t later;     /* set to 1: the call ends later, see below */
    uint16_t status;    /* set both to raise an alarm: EPICS' numbers of menuAlarmStat */
    uint16_t severity;  /* 0 none, 1 MINOR, 2 MAJOR, 3 INVALID */
    tahti_argument inputs[TAHTI_ARGUMENTS];     /* A to U; of a sub record one double each */
    tahti_argument outputs[TAHTI_ARGUMENTS];    /* VALA to VALU; of a sub record the first is VAL, and no other */
} tahti_call;

/* The result goes to VAL of an aSub record, whose output links are written only if it is 0; a negative one raises SOFT
 * alarm with BRSV.
 *
 * Work that takes long: hand it with `token` to a thread of the plug-in's own, set `later` and return. The record stays
 * active (PACT), puts with completion wait. When the work has ended, that thread calls host->done; the function is
 * called again with `resumed`, on the record's thread, and that call ends as the first would have. Pointers of a call
 * hold only until it returns. */
typedef int tahti_function(tahti_call *call);

#define TAHTI_SUB 1
#define TAHTI_ASUB 2

struct tahti_host {
    uint32_t size;
    uint32_t version;
    const void *context;

    /* Adds a function under the name that SNAM and INAM call it by. 0, or -1, which the IOC reports. */
    int (*add)(const tahti_host *host, const char *name, uint32_t kind, tahti_function *function);

    /* From any thread: a call has ended. Does not block. -1: the IOC does not run, or has no room for more (10,000
     * wait): try again later. */
    int (*done)(const tahti_host *host, const tahti_token *token);
};

#define TAHTI_PLUGIN(host)                                                              \
    __attribute__((visibility("default"))) uint32_t tahti_plugin_version(void);        \
    __attribute__((visibility("default"))) int tahti_plugin_load(const tahti_host *);  \
    uint32_t tahti_plugin_version(void) { return TAHTI_PLUGIN_VERSION; }               \
    int tahti_plugin_load(const tahti_host *host)

#ifdef __cplusplus
}
#endif

#endif
