/* tahti: join a frame scheduler, run periodic loops, export and read variables, share memory, mutexes, conditions and
 * barriers, distribute work over threads, drive devices, send messages to equipment and serve them, and write functions for records of an
 * IOC (at the end).
 *
 * Every function begins with tahti_. Functions that return int return 0, or -1; tahti_error() then returns the reason for the
 * calling thread. Structures begin with their own size: set `size` to sizeof before the call. A newer library fills in only the
 * fields that an older program knows. A handle may be used by one thread only, unless stated otherwise.
 *
 * Real-time: tahti_frame_yield and _mode, tahti_set_*, tahti_export_cycle, tahti_event, tahti_mutex_lock, _trylock and _unlock, tahti_cond_wait, _signal and
 * _broadcast, tahti_barrier_wait, tahti_team_run, _part and _times, tahti_manager_serve and the functions that answer its requests do not
 * allocate. Of these, tahti_frame_yield, tahti_cond_wait, tahti_barrier_wait, tahti_team_run, tahti_manager_serve and tahti_mutex_lock of
 * a locked mutex block. Call all other functions only during start-up. Allocations of a C program are not counted; page faults of
 * activities and loops are (`tahti frames show`).
 */
#ifndef TAHTI_H
#define TAHTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAHTI_API_VERSION 10

/* The version of the library that the program runs with. */
uint32_t tahti_api_version(void);

/* The reason why the last call of this thread failed; never NULL. Valid until the next failure of the thread. Destructors of thread-local
 * data may call every function, but the reason of a failure may be missing there. */
const char *tahti_error(void);

/* ---- frames */

typedef struct tahti_frame tahti_frame;
typedef struct tahti_exports tahti_exports;

typedef struct tahti_turn {
    uint32_t size;      /* sizeof(tahti_turn), set by the caller */
    uint16_t minor;     /* the minor frame */
    uint16_t mode;      /* the mode */
    uint64_t pulse;     /* number of the pulse */
    uint64_t due_ns;    /* time at which the minor frame was due to begin, CLOCK_MONOTONIC */
    uint64_t end_ns;    /* time at which it ends */
    uint64_t void_ns;   /* a result after this time is useless: do not output it; 0: no deadline (since version 8) */
} tahti_turn;

/* Joins a frame: the calling thread becomes the activity and gets its class and CPU from the frame. `frame` is FRAME of the
 * plant that started this process, or PLANT/FRAME. With `exports` (may be NULL), readers see safe values of the variables while the
 * activity is in trouble. Waits for the frame for at most `within_ms`. NULL on failure. */
tahti_frame *tahti_frame_join(const char *frame, const char *activity, tahti_exports *exports, uint32_t within_ms);

/* Ends the present call of the activity and waits for the next. The first yield only waits.
 * 1: the next call begins. 0: the frame has ended. -1: invalid argument, or the process of the frame has died. A program that a
 * plant started should then exit with a failure: the plant restarts it, and the frame. */
int tahti_frame_yield(tahti_frame *frame, tahti_turn *turn);

/* Requests a mode of the frame by its name (since version 4). The next major frame begins in it; the last request before that counts.
 * -1: no such mode. Real-time: no system call. */
int tahti_frame_mode(tahti_frame *frame, const char *mode);

/* Leaves the frame. */
void tahti_frame_leave(tahti_frame *frame);

/* Triggers a frame whose time base is `software` or `counter`, once. From any thread. */
int tahti_frame_trigger(const char *frame);

/* Passes a descriptor to a frame whose time base is `eventfd`. A minor frame begins each time it becomes readable (an eventfd, a
 * timerfd, an interrupt of VFIO or UIO). The frame reads a duplicate. A later call replaces the descriptor. From any thread.
 * UIO disables its interrupt after each one: the activity that serves the device calls tahti_device_enable(); otherwise the frame
 * gets no further triggers. */
int tahti_frame_trigger_fd(const char *frame, int fd);

/* ---- variables */

/* Opens a segment for `count` variables under a name that is unique on the machine. NULL on failure. Open until the process ends.
 * Several threads may use it, but each variable must have a single writer. */
tahti_exports *tahti_export_open(const char *name, uint32_t count);

/* Declares the period in which each variable is written. Readers that check (records with DTYP `tahti Variable`, the `import`
 * driver) treat values older than two periods plus 10 ms as stale. A frame declares it for its activities. 0: not declared. */
void tahti_export_period(tahti_exports *exports, uint64_t period_ns);

/* Adds a variable and returns its index, or -1. Readers see the value `safe` (may be NULL) while the activity is in trouble. */
int tahti_export_double(tahti_exports *exports, const char *name, const char *unit, const double *safe);
int tahti_export_int(tahti_exports *exports, const char *name, const char *unit, const int64_t *safe);

/* Writes a variable with the number of the pulse to which the value belongs. -1: the index is not a variable of this type. */
int tahti_set_double(tahti_exports *exports, int index, double value, uint64_t pulse);
int tahti_set_int(tahti_exports *exports, int index, int64_t value, uint64_t pulse);

/* State of a cycle, for `marks` of tahti_export_cycle. Add the number of pulses skipped before it, shifted left by 32 bits. */
#define TAHTI_MISS 1u       /* the cycle ended after its deadline */
#define TAHTI_OVERRUN 2u    /* pulses were skipped before the cycle, or it exceeded its budget */
#define TAHTI_FAULT 4u      /* the output is not valid */

/* Ends a cycle of a program's own loop: the oscilloscope (`tahti scope`) samples the variables (since version 7). Not needed if a frame was
 * joined with these exports, or a loop has them in its spec. From one thread. The first call opens the oscilloscope; make it during
 * start-up. Real-time: no system call except reading the clock. */
int tahti_export_cycle(tahti_exports *exports, uint64_t pulse, uint64_t marks);

typedef struct tahti_imports tahti_imports;

typedef struct tahti_reading {
    uint32_t size;      /* sizeof(tahti_reading), set by the caller */
    uint32_t type;      /* 1 double, 2 int64_t, 3 bool: type of the variable */
    double as_double;   /* the value, rounded to a double */
    int64_t as_int;     /* the value, rounded towards zero */
    uint64_t pulse;     /* the pulse to which the value belongs */
    uint64_t at_ns;     /* time of the write, CLOCK_MONOTONIC */
    uint64_t writes;    /* number of writes */
    uint32_t safe;      /* 1: this is the safe value */
    uint32_t alive;     /* 0: the process that wrote it has ended */
} tahti_reading;

/* Opens the variables that a process exports under a name. NULL on failure. */
tahti_imports *tahti_import_open(const char *name);

/* Reads a variable by its name. */
int tahti_import_get(tahti_imports *imports, const char *name, tahti_reading *reading);

/* Copies the name of variable `index` to `name` (64 bytes and a zero) and its unit to `unit` (16 and a zero).
 * -1: no such variable. */
int tahti_import_name(tahti_imports *imports, uint32_t index, char name[65], char unit[17]);

/* Closes the variables. */
void tahti_import_close(tahti_imports *imports);

/* ---- events (since version 10) */

/* Reports an event of the calling thread: a name of 1 to 15 bytes and a number. `tahti explain` and `tahti trace` show it among the kernel's
 * events; without them the last 2,048 of each thread are kept. At most 32 threads of a process. Make the first call of each thread during
 * start-up: it takes memory and, once in a process, starts a thread. Real-time afterwards: no system call on most processors. Not in a
 * process made by fork() without exec(). */
int tahti_event(const char *name, int64_t value);

/* ---- shared memory and locks between processes (since version 2)
 *
 * _create makes an object and offers it under `name` to processes of the same user until this process ends. With NULL as name it is
 * private to this process. _open opens an offered object. The memory is a sealed memfd, passed over a Unix socket, so nothing
 * remains when processes die. All threads may use these handles at the same time. */

typedef struct tahti_segment tahti_segment;
typedef struct tahti_mutex tahti_mutex;
typedef struct tahti_cond tahti_cond;
typedef struct tahti_barrier tahti_barrier;

/* Memory of at least `bytes` bytes, all zero. Every process that opens it can write to it. */
tahti_segment *tahti_segment_create(const char *name, uint64_t bytes);
tahti_segment *tahti_segment_open(const char *name);
/* Returns its address and stores its size in `bytes` (may be NULL). */
void *tahti_segment_memory(tahti_segment *segment, uint64_t *bytes);
/* Unmaps the memory, which interrupts every CPU on which the process runs. */
void tahti_segment_close(tahti_segment *segment);

/* A robust mutex with priority inheritance: it survives the death of its owner. Its memory is mapped until the process ends. */
tahti_mutex *tahti_mutex_create(const char *name);
tahti_mutex *tahti_mutex_open(const char *name);
/* Locks the mutex; _trylock does not wait. 0: locked. 1: locked, but the previous owner died while it held the lock: the protected data
 * may be inconsistent; the mutex itself is usable. Below 0: negative errno (-EDEADLK: the caller already holds it; -EBUSY from
 * _trylock: it is locked). tahti_error() is not set. */
int tahti_mutex_lock(tahti_mutex *mutex);
int tahti_mutex_trylock(tahti_mutex *mutex);
/* Unlocks the mutex. 0, or -EPERM: the caller does not hold it. */
int tahti_mutex_unlock(tahti_mutex *mutex);
/* Closes the handle without unlocking the mutex. */
void tahti_mutex_close(tahti_mutex *mutex);

/* A condition variable. */
tahti_cond *tahti_cond_create(const char *name);
tahti_cond *tahti_cond_open(const char *name);
/* Unlocks the mutex, waits for a signal (negative: without a limit), and locks the mutex again. One signal may wake two waiters, so
 * check the condition and wait again. Returns the sum of 1: an owner of the mutex died, as above; and 2: no signal in time.
 * Below 0: negative errno; the mutex is then not locked. */
int tahti_cond_wait(tahti_cond *cond, tahti_mutex *mutex, int64_t within_ns);
/* Wakes the waiter with the highest priority, or all waiters. Preferably called after unlocking the mutex. */
void tahti_cond_signal(tahti_cond *cond);
void tahti_cond_broadcast(tahti_cond *cond);
/* Closes the handle. */
void tahti_cond_close(tahti_cond *cond);

/* A barrier for a number of threads: no thread continues before all have arrived. */
tahti_barrier *tahti_barrier_create(const char *name, uint32_t threads);
tahti_barrier *tahti_barrier_open(const char *name);
/* Waits for the other threads: spins for `spin_ns`, then sleeps. 0: all have arrived. 1: the same, and the caller was the last. -1: a thread did
 * not arrive within `within_ns` (negative: no limit); the barrier is broken for all threads from then on. */
int tahti_barrier_wait(tahti_barrier *barrier, uint64_t spin_ns, int64_t within_ns);
/* Closes the handle. */
void tahti_barrier_close(tahti_barrier *barrier);

/* ---- teams of threads (since version 9), see docs/reference/compute.md
 *
 * Distributes each job of one thread, the leader (for example of a loop or an activity), over workers on other CPUs. Leader and workers have
 * one part of memory each. During a job each part belongs to its thread, between jobs all parts belong to the leader. One thread at a
 * time may use a team. */

typedef struct tahti_team tahti_team;

typedef struct tahti_team_spec {
    uint32_t size;          /* sizeof(tahti_team_spec), set by the caller */
    uint32_t workers;       /* number of workers, without the leader */
    const char *name;       /* name of the threads; "/1" and so on is appended */
    const int32_t *cpus;    /* workers + 1 entries: the CPU on which the part of the leader is made, then the CPU of each worker; -1: any. NULL: any for all */
    int32_t priority;       /* of the workers: SCHED_FIFO 1 to 99; 0: the class of the calling thread */
    uint32_t reserved;      /* 0 */
    uint64_t spin_ns;       /* time for which a waiting thread spins before it sleeps; slightly above the time between two jobs, the workers never sleep */
    uint64_t limit_ns;      /* maximum wait of the leader for the workers after its own share; 0: one second */
    uint64_t part_bytes;    /* size of each part, aligned to 128 bytes; 0: no parts */
} tahti_team_spec;

/* The job of each thread, with its part. `index` 0 is the leader; `of` is the number of threads. It must return. */
typedef void tahti_job(void *user, void *part, uint32_t index, uint32_t of);

/* Starts the workers. Each allocates its part, all zero, on its own thread and CPU, where `make` (may be NULL) initialises it. Returns when
 * all are ready. `user` points to data that all share; change it only between jobs. NULL on failure: two threads on one CPU, more
 * real-time threads than CPUs, or a CPU that the process may not use. */
tahti_team *tahti_team_start(const tahti_team_spec *spec, tahti_job *make, tahti_job *job, void *user);

/* Runs one job on all threads, with the caller as leader, and waits for the last. 0: done. Above 0: the worker with this number did not
 * finish within the limit; until it does, do not change data of the team; a further run returns the same at once. Below 0: the worker
 * with this number, negated, has ended. INT_MIN: `team` is NULL. */
int tahti_team_run(tahti_team *team);

/* The part of thread `index`, between two jobs. NULL: no such thread, no parts, or a worker is still in a job. */
void *tahti_team_part(tahti_team *team, uint32_t index);

/* Of the last job on thread `index`: delay between dispatch and begin, and duration. Both may be NULL. */
int tahti_team_times(const tahti_team *team, uint32_t index, uint64_t *late_ns, uint64_t *took_ns);

/* Unavailable properties of the workers: text `index` from 0 on, NULL after the last. */
const char *tahti_team_missing(tahti_team *team, uint32_t index);

/* Ends the workers, waits for them, and frees their memory. */
void tahti_team_close(tahti_team *team);

/* First item of share `index` if `items` are divided among `of` threads; it ends where the next share begins. Shares differ by at most one. */
uint64_t tahti_share(uint64_t items, uint32_t index, uint32_t of);

/* ---- quiet sections (since version 2) */

typedef struct tahti_quiet_report {
    uint32_t size;          /* sizeof(tahti_quiet_report), set by the caller */
    uint32_t cpu;           /* the thread's CPU */
    uint64_t lasted_ns;     /* duration */
    uint64_t looks;         /* number of clock readings */
    uint64_t quickest_ns;   /* shortest time between two readings: the resolution */
    uint64_t gaps;          /* times that two readings were further apart than the threshold */
    uint64_t lost_ns;       /* sum of all gaps */
    uint64_t longest_ns;    /* the longest gap, 0 if there was none */
    uint64_t longest_at_ns; /* its begin, relative to the begin of the section */
    uint64_t interrupts;    /* interrupts of this CPU during the section */
    uint64_t put_aside;     /* times that another task preempted the thread */
    uint64_t page_faults;
    uint64_t unexplained;   /* gaps without any of these causes: firmware or hypervisor */
    int64_t steal_ticks;    /* ticks of 10 ms that the hypervisor took; -1 if not reported */
    uint32_t missing;       /* unavailable settings that make a CPU quiet; `tahti bench quiet` names them */
    uint32_t reserved;
} tahti_quiet_report;

/* Spins for `duration_ns` on the calling thread, which must be bound to one CPU, and measures interruptions longer than `threshold_ns`.
 * Changes no settings: ticks stop only if the kernel was booted for it. -1: invalid arguments, or the thread may run on several
 * CPUs. */
int tahti_quiet(uint64_t duration_ns, uint64_t threshold_ns, tahti_quiet_report *report);

/* ---- messages (since version 3), see docs/reference/messages.md
 *
 * A client sends lines such as "put/sr_mag_ps_b/123.45A" to the message server of this host and gets exactly one reply for each;
 * an equipment manager answers them. One thread at a time may use a client, and one each band of a manager; a call from a second one
 * fails. Only the _wake functions may be called from any thread. */

/* Result of a request. */
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

/* Name of a code, such as "NO_OBJECT"; NULL for an unknown number. */
const char *tahti_code(uint32_t code);

#define TAHTI_BAND 3            /* the default band; 0 to 7, 7 is the most urgent */
#define TAHTI_ALL_BANDS 0xffu

/* Flags of a request. */
#define TAHTI_IDEMPOTENT 1u     /* executing it twice equals executing it once: sent again if the connection to the server is lost */
#define TAHTI_DRY_RUN 2u        /* check everything, change nothing */

typedef struct tahti_client tahti_client;
typedef struct tahti_room tahti_room;

typedef struct tahti_sending {
    uint32_t size;          /* sizeof(tahti_sending), set by the caller */
    uint32_t flags;
    int64_t within_ns;      /* deadline, relative to now; 0: 5 s */
    uint64_t pulse;         /* the pulse to which the request belongs; 0: none */
    const void *body;       /* usually MessagePack; above 16384 bytes only with a pool */
    uint64_t body_bytes;
    uint64_t answer_bytes;  /* maximum size of the body of the reply; 0: 16384; more only with a pool (since version 4) */
} tahti_sending;

typedef struct tahti_reply {
    uint32_t size;          /* sizeof(tahti_reply), set by the caller */
    uint32_t code;          /* TAHTI_OK, ... */
    uint64_t id;            /* the id returned by tahti_client_send; of an event, the id of its `watch` */
    uint64_t pulse;
    const char *text;       /* the value, or the reason of the failure; ends with a zero */
    uint64_t text_bytes;
    const void *body;
    uint64_t body_bytes;
    uint32_t event;         /* 1: an event of a `watch`, not a reply */
    uint32_t reserved;
} tahti_reply;

/* Connects to the message server `server`, usually "main". `name` identifies the client. NULL on failure. If the server restarts, the client
 * reconnects. Outstanding requests that only read or are idempotent are sent again; all others are answered with UNKNOWN. */
tahti_client *tahti_client_connect(const char *server, const char *name, uint32_t band);

/* The same with a memory pool of at most 256 MiB for requests whose body or answer_bytes exceeds 16384. Each occupies the larger of the
 * two until its reply arrives. A request that ended with TIMEOUT or UNKNOWN keeps its memory until no request is outstanding and
 * the pool has no other. (since version 4) */
tahti_client *tahti_client_connect_with_pool(const char *server, const char *name, uint32_t band, uint64_t pool_bytes);

/* Sends a request without waiting and returns its id, above 0. 0: queue or pool is full; take replies first. -1: failure. `sending` may be NULL. */
int64_t tahti_client_send(tahti_client *client, const char *line, const tahti_sending *sending);

/* Allocates memory for a body of at most `bytes` bytes in the pool of the client, to write the body in place without a copy. NULL if the pool
 * is full, or on failure. From any thread. (since version 5) */
tahti_room *tahti_client_room(const tahti_client *client, uint64_t bytes);

/* Address of the memory, aligned to 64 bytes. Valid until tahti_room_free. */
void *tahti_room_memory(const tahti_room *room);

/* As tahti_client_send, with the first `body_bytes` of the room as body; `sending` has no body. Above 0: the room belongs to the request, whose
 * reply may have a body of the same size; do not access its memory. 0 or -1: it still belongs to the caller. */
int64_t tahti_client_send_room(tahti_client *client, const char *line, const tahti_sending *sending, tahti_room *room,
                               uint64_t body_bytes);

/* Frees the handle, and the memory if it was not sent. From any thread, also after tahti_client_close. */
void tahti_room_free(tahti_room *room);

/* Takes the next reply or event and waits for it for at most `within_ns`. 1: received; text and body are valid until the next call with this
 * client. 0: none in time, or tahti_client_wake was called. -1: the server has ended and could not be reached again. */
int tahti_client_next(tahti_client *client, tahti_reply *reply, int64_t within_ns);

/* Sends a request and waits for its reply, which may be a failure. Other replies that arrive are kept. */
int tahti_client_ask(tahti_client *client, const char *line, const tahti_sending *sending, tahti_reply *reply);

/* Number of requests without a reply. */
int tahti_client_outstanding(tahti_client *client);

/* Makes tahti_client_next return, now or at its next call, but not while the client reconnects. From any thread. */
void tahti_client_wake(const tahti_client *client);

/* Disconnects from the server; outstanding replies are lost. */
void tahti_client_close(tahti_client *client);

/* Encodes lines as body of a `batch`. Returns the number of bytes written; -1: too small. Replies to `batch` and `list` have the same form. */
int64_t tahti_lines_write(const char *const *lines, uint32_t count, void *to, uint64_t room);
/* Line `index` of a body, without a zero at its end. 1: found. 0: the body has fewer lines. -1: the body does not contain lines. */
int tahti_line_read(const void *body, uint64_t body_bytes, uint32_t index, const char **line, uint64_t *line_bytes);

typedef struct tahti_manager tahti_manager;
typedef struct tahti_replies tahti_replies;

/* A request whose deadline has not passed. */
typedef struct tahti_asked {
    uint32_t size;          /* size of this structure in the library */
    uint32_t band;
    uint64_t id;            /* for tahti_manager_answer */
    const char *verb;       /* "get", "set", "put", "call", "list", "describe", "batch" or "ping" */
    const char *object;
    const char *complement; /* "" if there is none */
    const void *body;
    uint64_t body_bytes;
    uint64_t deadline_ns;   /* CLOCK_MONOTONIC; after it the server answers TIMEOUT */
    uint64_t pulse;
    uint32_t flags;         /* TAHTI_DRY_RUN: check everything, change nothing */
    uint32_t user;          /* user of the client, from the kernel */
    uint32_t process;
    uint32_t host;          /* 0: this host */
    uint64_t answer_bytes;  /* maximum size of the body of the answer (since version 4) */
} tahti_asked;

/* Answers each request once: at once with tahti_answer, or later with tahti_manager_answer. Its arguments are valid until it returns. */
typedef void tahti_handler(void *user, const tahti_asked *asked, tahti_replies *replies);

/* Registers as manager `name` for all objects whose names equal or begin with one of `serves` (names separated by blanks). `bands` is the sum
 * of 1 << BAND of its bands. NULL on failure. */
tahti_manager *tahti_manager_connect(const char *server, const char *name, const char *serves, uint32_t bands);

/* The same for a manager that accepts bodies of up to `body_bytes` and answers with bodies of up to answer_bytes of the request. Reserves that
 * memory for each band. Managers without it refuse bodies above 16384. (since version 4) */
tahti_manager *tahti_manager_connect_with_bodies(const char *server, const char *name, const char *serves, uint32_t bands,
                                                 uint64_t body_bytes);

/* Calls `handler` for all waiting requests of a band, after waiting for the first for at most `within_ns`. Returns their number; 0 if none
 * arrived or tahti_manager_wake was called. -1: the server has ended: close and reconnect; the server's clients get UNKNOWN for
 * unanswered requests. */
int tahti_manager_serve(tahti_manager *manager, uint32_t band, tahti_handler *handler, void *user, int64_t within_ns);

/* Within a handler: answers a request. `complement` (plain text: the value, or the reason of the failure) and `body` may be NULL. An answer
 * that is too long is replaced by a failure with that reason. */
int tahti_answer(tahti_replies *replies, const tahti_asked *asked, uint32_t code, const char *complement, const void *body,
                 uint64_t body_bytes);

/* Within a handler: address and size of the memory in which the body of the answer can be written in place, without a copy. It belongs to the
 * pool of the client. Pass the same address to tahti_answer as body, and do not access it after that or after the handler has returned.
 * NULL, with 0 bytes, if the client has no pool (answer_bytes is then 16384) or the manager accepts no large bodies. Aligned to 64
 * bytes. The client may write to it at any time. (since version 6) */
void *tahti_answer_memory(tahti_replies *replies, const tahti_asked *asked, uint64_t *bytes);

/* Outside a handler, on the thread that serves the band: answers a request that was kept for later. */
int tahti_manager_answer(tahti_manager *manager, uint32_t band, uint64_t id, uint32_t code, const char *complement,
                         const void *body, uint64_t body_bytes);

/* Makes tahti_manager_serve return, now or at its next call. From any thread. */
void tahti_manager_wake(const tahti_manager *manager, uint32_t band);

/* Disconnects from the server. */
void tahti_manager_close(tahti_manager *manager);

/* ---- periodic loops (since version 3) */

typedef struct tahti_loops tahti_loops;

typedef struct tahti_loop_spec {
    uint32_t size;      /* sizeof(tahti_loop_spec), set by the caller */
    int32_t priority;   /* SCHED_FIFO 1 to 99; 0: the class of the thread that starts the loops */
    int32_t cpu;        /* bound to this CPU; -1: the CPUs of the process */
    uint32_t reserved;
    const char *name;   /* name of its thread; the kernel stores 15 bytes */
    uint64_t period_ns; /* 10,000 or more; pulses are whole periods since the start of TAI */
    uint64_t spin_ns;   /* it wakes this long before each pulse and spins; 0: only sleeps; UINT64_MAX: only spins */
    tahti_exports *exports; /* variables that the oscilloscope samples at the end of each cycle; NULL: none (since version 7) */
} tahti_loop_spec;

typedef struct tahti_pulse {
    uint32_t size;      /* size of this structure in the library */
    uint32_t reserved;
    uint64_t number;    /* number of the pulse */
    uint64_t due_ns;    /* time at which it was due, CLOCK_MONOTONIC */
    uint64_t woke_ns;   /* time at which the loop woke */
    uint64_t skipped;   /* pulses skipped immediately before it; the phase does not change */
    uint64_t void_ns;   /* a result after this time is useless: do not output it; 0: no deadline (since version 8) */
} tahti_pulse;

/* Body of a loop: called once per pulse on the thread of the loop. It must not allocate, lock or log. 0: continue. 1: end the
 * loop. -1: continue, but the output of this cycle is not valid. */
typedef int tahti_body(void *user, const tahti_pulse *pulse);

/* Loops of this process: _new, _add for each, _start once. NULL on failure. */
tahti_loops *tahti_loops_new(void);

/* Adds a loop and returns its index, or -1. The first loop sends the heartbeat of the process to `tahti up` or `tahti run`. */
int tahti_loops_add(tahti_loops *loops, const tahti_loop_spec *spec, tahti_body *body, void *user);

/* Locks the memory of the process, prepares the threads (stack touched, name, CPU, timer slack, denormals, class last), and starts them
 * about 20 ms later. Returns the number of unavailable settings, or -1: nothing runs. The calling thread becomes time-sharing and moves
 * away from the CPUs of the loops if possible. */
int tahti_loops_start(tahti_loops *loops);

/* Unavailable settings, with their remedies: text `index` from 0 on, NULL after the last. Valid until _close. */
const char *tahti_loops_missing(const tahti_loops *loops, uint32_t index);

/* 1 if the bodies of all loops have ended them. */
int tahti_loops_over(const tahti_loops *loops);

typedef struct tahti_loop_report {
    uint32_t size;              /* sizeof(tahti_loop_report), set by the caller */
    uint32_t reserved;
    uint64_t cycles;            /* cycles that ran */
    uint64_t skipped;           /* skipped pulses */
    uint64_t late_median_ns;    /* wake-up latency; UINT64_MAX: above the range of the histogram */
    uint64_t late_p99_ns;
    uint64_t late_max_ns;       /* exact */
    uint64_t page_faults;       /* of its thread, since the begin */
    uint64_t switches;          /* times that its thread was preempted */
} tahti_loop_report;

/* Reads the statistics of loop `index` without disturbing it; also after _stop. */
int tahti_loops_report(tahti_loops *loops, uint32_t index, tahti_loop_report *report);

/* Ends the loops at their next pulse and waits for them. */
void tahti_loops_stop(tahti_loops *loops);

/* Stops the loops and closes the handle. */
void tahti_loops_close(tahti_loops *loops);

/* ---- devices from user space (since version 3), bound to uio_pci_generic or another UIO driver, or to vfio-pci */

typedef struct tahti_device tahti_device;

#define TAHTI_MSI 1
#define TAHTI_MSIX 2
#define TAHTI_PIN 3     /* INTx; must be enabled after each one, see tahti_device_enable() (since version 4) */

/* Opens a UIO device by its node ("uio0") or its PCI address ("0000:00:04.0"). NULL on failure. Its interrupt must be enabled after
 * each one: see tahti_device_enable(). */
tahti_device *tahti_uio_open(const char *device);

/* Opens a PCI device behind an IOMMU, enables bus mastering, and enables interrupt `message` of kind `kind` (0 for a pin). NULL on
 * failure. */
tahti_device *tahti_vfio_open(const char *address, uint32_t kind, uint32_t message);

/* Maps the registers of BAR `bar` and stores the size in `bytes` (may be NULL). Use volatile accesses of the register's width. Mapped
 * until _close. NULL on failure. */
volatile void *tahti_device_registers(tahti_device *device, uint32_t bar, uint64_t *bytes);

/* New memory of `bytes` bytes, all zero, for DMA of a VFIO device at its address `at`: whole pages that overlap no other memory of the
 * device. Data written by the device is visible after its interrupt. Mapped until _close. NULL on failure. (since version 4) */
void *tahti_device_memory(tahti_device *device, uint64_t at, uint64_t bytes);

/* Enables the interrupt of a UIO device, or the pin of a VFIO device, once. The kernel disables a pin at each interrupt, because it is asserted
 * until the device is served: acknowledge the interrupt in the registers of the device, then call this, each time. The owner of the
 * device calls it, also if the interrupt triggers minor frames (tahti_frame_trigger_fd()). No effect on MSI and MSI-X.
 * Real-time: at most two system calls. */
int tahti_device_enable(tahti_device *device);

/* Waits for an interrupt: spins for `spin_ns`, then sleeps until `within_ns` (negative: without a limit). 1: one or more interrupts.
 * 0: none in time. -1: the device was removed. Real-time: does not allocate. */
int tahti_device_wait(tahti_device *device, uint64_t spin_ns, int64_t within_ns);

/* Its descriptor, readable after an interrupt; for poll() and tahti_frame_trigger_fd(). Owned by the library: do not close it. */
int tahti_device_fd(tahti_device *device);

/* Unmaps the registers and closes the device. */
void tahti_device_close(tahti_device *device);

/* ---- functions of sub and aSub records: a plug-in of the IOC
 *
 * A plug-in is a shared library that `tahti ioc --plugin FILE` or the command `dlload FILE` loads; it is never unloaded. It needs
 * this header and no library:
 *
 *     static int twice(tahti_call *call) {
 *         *(double *)call->outputs[0].data = 2 * *(double *)call->inputs[0].data;
 *         return 0;
 *     }
 *     TAHTI_PLUGIN(host) { return host->add(host, "twice", TAHTI_SUB, twice); }
 *
 * A function runs on the thread that processes the record. It must not block, and must not allocate if a real-time scan processes the
 * record. Functions of different records may run at the same time on different threads. */

#define TAHTI_PLUGIN_VERSION 1
#define TAHTI_ARGUMENTS 21

/* Types of elements, with the numbers of EPICS. */
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
    uint32_t count;     /* number of valid elements (NEA, NEVA, ...); set by the function in outputs */
    uint32_t room;      /* capacity in elements (NOA, NOVA, ...); of inputs, only `count` elements are accessible */
    uint32_t reserved;
    void *data;         /* NULL if the record has no such argument */
} tahti_argument;

/* Fields of the record. */
typedef struct tahti_fields {
    int32_t value;          /* VAL of an aSub record */
    uint32_t seconds;       /* TIME, since 1990-01-01; stored if TSE is -2 */
    uint32_t nanoseconds;
    uint16_t status;        /* STAT */
    uint16_t severity;      /* SEVR */
    uint16_t new_status;    /* NSTA */
    uint16_t new_severity;  /* NSEV */
    uint16_t bad_return;    /* BRSV; a change is stored */
    uint16_t priority;      /* PRIO */
    int16_t precision;      /* PREC; a change is stored */
    int16_t time_event;     /* TSE; a change is stored */
    uint8_t trace;          /* TPRO; a change is stored */
    uint8_t undefined;      /* UDF; a change is stored, except if the record sets it */
    uint16_t reserved;
    char units[40];         /* EGU of a sub record, at most 15 characters; a change is stored */
    char message[40];       /* AMSG of the alarm that the function raises; the IOC keeps 250 different ones */
} tahti_fields;

typedef struct tahti_host tahti_host;

/* Identifies a call that ends later. */
typedef struct tahti_token {
    uint64_t words[2];
} tahti_token;

typedef struct tahti_call {
    uint32_t size;      /* size of this structure in tahti */
    uint32_t resumed;   /* 1: the second part of a call that ends later */
    const tahti_host *host;
    const char *record; /* name of the record */
    void **user;        /* a pointer for the function's own use, per record; NULL at first */
    tahti_token token;
    uint32_t later;     /* set to 1: the call ends later, see below */
    uint16_t status;    /* set both to raise an alarm: a number of EPICS' menuAlarmStat */
    uint16_t severity;  /* 0 none, 1 MINOR, 2 MAJOR, 3 INVALID */
    tahti_argument inputs[TAHTI_ARGUMENTS];     /* A to U; one double each in a sub record */
    tahti_argument outputs[TAHTI_ARGUMENTS];    /* VALA to VALU; in a sub record only the first, which is VAL */
    /* The members below exist if `size` covers them. */
    void *data;         /* as passed to host->add_with */
    uint32_t kind;      /* TAHTI_SUB or TAHTI_ASUB: the type of the record */
    const char *description;    /* DESC */
    tahti_fields fields;
} tahti_call;

/* The return value is written to VAL of an aSub record, whose output links are written only if it is 0. A negative value raises a SOFT
 * alarm with severity BRSV.
 *
 * Long work: pass it with `token` to a thread of the plug-in, set `later` and return. The record stays active (PACT), and puts with
 * completion wait. When the work is done, that thread calls host->done. The function is then called again with `resumed` on the thread
 * of the record, and that call ends as the first would have. Pointers in a call are valid until it returns. */
typedef int tahti_function(tahti_call *call);

#define TAHTI_SUB 1
#define TAHTI_ASUB 2

struct tahti_host {
    uint32_t size;
    uint32_t version;
    const void *context;

    /* Adds a function under the name used in SNAM and INAM. 0, or -1, which the IOC reports. */
    int (*add)(const tahti_host *host, const char *name, uint32_t kind, tahti_function *function);

    /* From any thread: the work of a call is done. Does not block. -1: the IOC is not running, or its queue is full (10,000 calls):
     * try again later. */
    int (*done)(const tahti_host *host, const tahti_token *token);

    /* Like add, with data for the function. Exists if `size` covers it. */
    int (*add_with)(const tahti_host *host, const char *name, uint32_t kind, tahti_function *function, void *data);
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
