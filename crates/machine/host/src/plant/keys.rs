//! The table of keys: all keys that a plant file may contain, with their documentation. The reader refuses all other
//! keys. `docs/reference/plant` is generated from this table.

pub(crate) use table::key;
pub use table::{Key, Table};

/// `[plant]`
pub const PLANT: Table = Table {
    header: "[plant]",
    doc: "Name and operators of the plant.",
    keys: &[
        key(
            "name",
            r#""llrf""#,
            "letters, digits, `-` and `_`, at most 32",
            "",
            "Name of the plant. Its state is in `/run/tahti/NAME`.",
        ),
        key(
            "operators",
            r#""operators""#,
            "group name or number",
            "none",
            "Members of this group may use `ps`, `top`, `logs` and `attach --read-only`. Otherwise only root and the \
             user of the plant may.",
        ),
        key(
            "operators_may_type",
            "true",
            "true or false",
            "`false`",
            "Operators may also send input to consoles, including the keys that kill and start the process.",
        ),
        key(
            "env",
            r#"{ EPICS_CA_SERVER_PORT = "5074" }"#,
            "table of texts",
            "empty",
            "Environment variables of all processes. `env` of a process wins. [Further variables](../supervisor.md#environment) are set so that \
             the parts of the plant find each other.",
        ),
    ],
};

/// `[shield]`
pub const SHIELD: Table = Table {
    header: "[shield]",
    doc: "CPUs reserved for the plant: other tasks, interrupts and movable kernel work are moved away while the plant \
          is up. Without this table nothing is moved. See [the shield](../../explanation/shield.md).",
    keys: &[
        key(
            "cpus",
            r#""2-3""#,
            "CPU list, or `auto:N`",
            "",
            "CPUs to reserve. At least one CPU must remain. `\"auto:2\"` takes the two best (`tahti shield suggest \
             2`), or those of an active shield of two.",
        ),
        key(
            "profile",
            r#""control-loop""#,
            "`control-loop` or `polling`",
            "`control-loop`",
            "`control-loop` for loops that sleep between cycles, `polling` for loops that never sleep.",
        ),
        key(
            "parts",
            r#""tasks,interrupts""#,
            "some of `tasks`, `interrupts`, `timers`, `settings`",
            "all",
            "Parts to apply: other tasks, device interrupts, periodic kernel work, and settings of power, memory and \
             preemption.",
        ),
        key(
            "spare",
            r#"[1234, "345+"]"#,
            "list of process ids",
            "none",
            "Processes to leave where they are, also on reserved CPUs: `PID` with its threads, `\"PID+\"` with all \
             descendants. `TAHTI_SPARE` (`1234,345+`) adds more.",
        ),
        key(
            "irqs",
            r#"["0000:00:03.0=3"]"#,
            "list of `WORDS=CPU`",
            "none",
            "Interrupts to place on reserved CPUs: words of a line of `/proc/interrupts`, and the CPU. An interrupt \
             that gets its handler later is placed by `tahti shield watch --repair`.",
        ),
        key(
            "required",
            "true",
            "true or false",
            "`false`",
            "`tahti up` fails if the shield is unavailable, as with `--require-rt`. Otherwise it reports that once and \
             continues.",
        ),
    ],
};

/// `[[process]]`
pub const PROCESS: Table = Table {
    header: "[[process]]",
    doc: "A process to start, watch, restart and stop. One table per process.",
    keys: &[
        key(
            "name",
            r#""loop""#,
            "letters, digits, `-`, `_` and `.`, at most 32",
            "",
            "Name of the process, unique in the plant.",
        ),
        key(
            "command",
            r#"["tahti", "demo", "llrf"]"#,
            "list of texts, or one text that is split at spaces (quotes keep words together)",
            "",
            "Program and arguments, without a shell. `tahti` means the running binary. A name without `/` is searched \
             in `PATH`.",
        ),
        key(
            "class",
            r#""fifo:80""#,
            "`fifo:1-99`, `rr:1-99`, `deadline:RUNTIME/DEADLINE/PERIOD`, `other[:NICE]`, `batch[:NICE]`, `idle`",
            "`other`",
            "Scheduling class. Threads inherit it unless `threads` sets another one. `deadline` needs `cpus = \
             \"shield\"`.",
        ),
        key(
            "nice",
            "-5",
            "-20 to 19",
            "the class's own, else the inherited one",
            "Nice value of its time-sharing threads and of its children, as systemd's `Nice=`. Equal to `class = \"other:-5\"`: set only one of the \
             two. With a real-time class it applies to threads that leave the class (`threads`, `reset_on_fork`). Below 0 needs CAP_SYS_NICE.",
        ),
        key(
            "cpus",
            r#""shield""#,
            "`shield`, `housekeeping` or a CPU list",
            "`shield` for a real-time class if the plant has a shield, else `housekeeping`",
            "CPUs to run on. `housekeeping` excludes shielded CPUs, CPUs isolated at boot (`isolcpus=`) and CPUs outside the supervisor's mask \
             (`taskset`, `CPUAffinity=`).",
        ),
        key("numa", "0", "number of a NUMA node", "the kernel's choice", "Allocate memory on this node only."),
        key(
            "mlock",
            "true",
            "true or false",
            "`true` for a real-time class, else `false`",
            "Lock all memory, so that no page fault delays a cycle. Stacks are locked, too: use small ones.",
        ),
        key(
            "limits",
            "{ files = 1024, core = \"64MiB\" }",
            "table, see *limits*",
            "the supervisor's",
            "Resource limits of each process.",
        ),
        key(
            "memory_max",
            r#""512MiB""#,
            "size, at least 1MiB",
            "none",
            "Maximum memory, with page cache, of the process and all descendants together, as systemd's `MemoryMax=`. Above it the kernel kills one \
             of them. Uses a cgroup (`memory.max`, v1: `memory.limit_in_bytes`). If no cgroup has this controller, tahti reports it.",
        ),
        key(
            "tasks_max",
            "64",
            "1 to 4194304",
            "none",
            "Maximum number of processes and threads, with all descendants, as systemd's `TasksMax=`. Above it no further one starts. Uses a cgroup \
             (`pids.max`).",
        ),
        key(
            "partition",
            r#""hmi""#,
            "name of a `[[partition]]`",
            "none",
            "Partition whose limits it shares. Its own limits also apply.",
        ),
        key(
            "user",
            r#""operator""#,
            "user name or number",
            "the supervisor's",
            "User to run as, with the groups of that user.",
        ),
        key(
            "capabilities",
            r#"["CAP_NET_RAW"]"#,
            "list of capability names",
            "those of the user",
            "Capabilities to keep; all others are dropped after the scheduling class is set.",
        ),
        key(
            "env",
            r#"{ EPICS_CA_ADDR_LIST = "10.0.0.255" }"#,
            "table of texts",
            "empty",
            "Additional environment variables.",
        ),
        key(
            "pass_environment",
            r#"["EPICS_*"]"#,
            "list of names, `*` matches any text",
            "all; with a `user`, none",
            "Variables of the supervisor's environment to pass on, in addition to `PATH`, `LANG`, `LANGUAGE`, `LC_*`, `TZ` and `TERM`. Variables \
             that systemd sets for the supervisor's own use are never passed on. With a `user`, `HOME`, `USER`, `LOGNAME` and `SHELL` are that \
             user's.",
        ),
        key("umask", r#""0027""#, "octal number, `0000` to `0777`", "the supervisor's", "File mode creation mask."),
        key(
            "oom_score_adjust",
            "-500",
            "-1000 to 1000",
            "the supervisor's",
            "The kernel kills the process with the highest score first when memory is exhausted; -1000 means never.",
        ),
        key(
            "no_new_privileges",
            "false",
            "true or false",
            "`true`",
            "The process and its children cannot gain privileges: setuid programs such as `sudo` and file capabilities \
             have no effect.",
        ),
        key(
            "sandbox",
            r#"{ protect_system = "strict", private_tmp = true }"#,
            "table, see *sandbox*",
            "none",
            "Restricts the visible and writable parts of the file system. Needs root; if it is unavailable, the \
             process is not started.",
        ),
        key("dir", r#""/var/lib/llrf""#, "folder", "the plant file's folder", "Working folder."),
        key(
            "after",
            r#"["timing"]"#,
            "list of process names",
            "none",
            "Processes that must be ready before this one starts. It stops before them.",
        ),
        key(
            "profiles",
            r#"["debug"]"#,
            "list of names",
            "always part of the plant",
            "Part of the plant only with one of these profiles: `tahti up --profile debug`, or `TAHTI_PROFILES=debug,sim`; `*` means all. \
             Otherwise it is not part of the plant.",
        ),
        key(
            "ready",
            r#"{ line = "armed", within = "5s" }"#,
            "table, see *ready*",
            "ready once started",
            "When the process counts as ready, so that later ones may start.",
        ),
        key(
            "restart",
            r#"{ policy = "always" }"#,
            "table, see *restart*",
            "see there",
            "When the process is restarted.",
        ),
        key(
            "stop",
            r#"["INT 2s", "TERM 3s"]"#,
            "list of signals, each with a time",
            r#"`["TERM 5s"]`"#,
            "Signals to stop the process, each with its time. SIGKILL follows the last one.",
        ),
        key(
            "on_fault",
            r#"["caput", "RF:enable", "0"]"#,
            "command, as in `command`",
            "none",
            "Command that sets safe outputs. It runs once after each unexpected end, hang, runaway or missed hard \
             `deadline`, for up to 10 s.",
        ),
        key("log", r#"{ size = "1MiB", keep = 3 }"#, "table, see *log*", "see there", "Log files."),
        key(
            "heartbeat",
            r#"{ within = "50ms" }"#,
            "table, see *heartbeat*",
            "none",
            "Maximum time between two signs of life; a longer silence is a hang.",
        ),
        key(
            "budget",
            r#""80%/100ms""#,
            "share of a period (1% to 99%, 10ms to 60s), or `none`",
            "`80%/100ms` for `fifo` and `rr`; not used by other classes",
            "Maximum CPU time of a real-time thread without a pause; more is a [runaway](../../explanation/runaway.md). `none` for loops \
             that poll, only with a heartbeat.",
        ),
        key(
            "ladder",
            r#"["demote 500ms", "freeze 200ms", "abort 2s", "kill"]"#,
            "list of `demote`, `freeze`, `abort`, `kill`, in this order, each with a time",
            "all four, as in the example",
            "Steps against a runaway, in order.",
        ),
        key(
            "threads",
            r#"[{ match = "scan-*", class = "fifo:60" }]"#,
            "list of tables, see *threads*",
            "none",
            "Class and CPUs of threads by name, for programs that do not set them. The first match counts.",
        ),
        key(
            "miss_ratio_max",
            r#""0.1%""#,
            "percentage, `0%` to `100%`",
            "none: any skipped period degrades the plant",
            "Maximum share of periods that its loop may skip over the plant's life. Above it the plant is *failed*; with fewer skipped periods it is \
             *degraded*.",
        ),
        key(
            "deadline",
            r#"{ at = "5ms", kind = "firm" }"#,
            "table, see *deadline*",
            "none: results are not valued",
            "Deadline for the result of each pulse of its loop, and the value of a late result. A missed `hard` deadline is a fault: `on_fault` \
             runs, and the loop's exported variables keep their safe values until a result is punctual.",
        ),
    ],
};

/// `limits = {…}`
pub const LIMITS: Table = Table {
    header: "limits",
    doc: "Resource limits of a process, soft and hard (`setrlimit(2)`).",
    keys: &[
        key("files", "1024", "number", "the supervisor's", "Open files (`RLIMIT_NOFILE`)."),
        key("core", r#""64MiB""#, "size", "the supervisor's", "Size of a core file (`RLIMIT_CORE`)."),
        key("locked", r#""256MiB""#, "size", "the supervisor's", "Locked memory (`RLIMIT_MEMLOCK`)."),
        key("memory", r#""1GiB""#, "size", "the supervisor's", "Address space (`RLIMIT_AS`)."),
        key("stack", r#""1MiB""#, "size", "the supervisor's", "Stack of the first thread (`RLIMIT_STACK`)."),
        key(
            "rttime",
            r#""500ms""#,
            "time, 1us to 1h",
            "the supervisor's",
            "CPU time of a real-time thread without a blocking call (`RLIMIT_RTTIME`). Beyond it the kernel sends \
             SIGKILL.",
        ),
    ],
};

/// `sandbox = {…}`
pub const SANDBOX: Table = Table {
    header: "sandbox",
    doc: "Visible and writable parts of the file system, by private mounts. The keys mean the same as in systemd. \
          `dir` and all needed files must stay visible.",
    keys: &[
        key(
            "private_tmp",
            "true",
            "true or false",
            "`false`",
            "Private `/tmp` and `/var/tmp`, in memory, empty at each start.",
        ),
        key(
            "protect_system",
            r#""strict""#,
            "true, false, `full` or `strict`",
            "`false`",
            "Read-only: `/usr`, `/boot`, `/efi`; with `full` also `/etc`; with `strict` everything except `/dev`, \
             `/proc`, `/sys` and `read_write_paths`. Needs Linux 5.12.",
        ),
        key(
            "protect_home",
            "true",
            "true, false or `read-only`",
            "`false`",
            "`/home`, `/root` and `/run/user` are empty, or read-only.",
        ),
        key(
            "read_write_paths",
            r#"["/var/lib/llrf"]"#,
            "list of absolute paths",
            "none",
            "Writable folders with `strict`.",
        ),
        key(
            "inaccessible_paths",
            r#"["/etc/ssl/private"]"#,
            "list of absolute paths",
            "none",
            "Folders and files that appear empty.",
        ),
    ],
};

/// `ready = {…}`
pub const READY: Table = Table {
    header: "ready",
    doc: "When the process is ready: one of `line`, `file`, `port`, `notify`.",
    keys: &[
        key(
            "line",
            r#""armed""#,
            "text",
            "",
            "A line of its output contains this text. A carriage return ends a line, too.",
        ),
        key(
            "file",
            r#""/run/llrf.sock""#,
            "path",
            "",
            "This file exists. A file that existed before the start must be replaced or written again.",
        ),
        key(
            "port",
            "5064",
            "1 to 65535",
            "",
            "This TCP port accepts connections on 127.0.0.1. A listener from before the start does not count.",
        ),
        key(
            "notify",
            "true",
            "true",
            "",
            "It sends `READY=1` to the socket in `NOTIFY_SOCKET` (`sd_notify(3)`), and may send `STATUS=`, `MAINPID=` and \
             `EXTEND_TIMEOUT_USEC=`.",
        ),
        key("within", r#""5s""#, "time, 10ms to 1h", "`10s`", "Maximum time; a longer one is a failed start."),
    ],
};

/// `restart = {…}`
pub const RESTART: Table = Table {
    header: "restart",
    doc: "Reaction to an unexpected end.",
    keys: &[
        key(
            "policy",
            r#""on-failure""#,
            "`always`, `on-failure` or `never`",
            "`on-failure`",
            "When to start again. Exit status 0 is not a failure.",
        ),
        key(
            "backoff",
            r#""200ms""#,
            "time, 0 to 1h",
            "`200ms`",
            "Pause before the first restart. Each further restart within the window waits twice as long.",
        ),
        key("backoff_max", r#""10s""#, "time, 0 to 1h", "`10s`", "Maximum pause."),
        key("window", r#""60s""#, "time, 1s to 24h", "`60s`", "Time over which restarts are counted."),
        key(
            "limit",
            "5",
            "0 to 1000",
            "`5`",
            "Maximum restarts within the window. One more failure latches the fault: the process stays down until \
             `tahti start NAME`.",
        ),
    ],
};

/// `log = {…}`
pub const LOG: Table = Table {
    header: "log",
    doc: "Log files: the terminal output of the process, each line with its time.",
    keys: &[
        key("size", r#""1MiB""#, "size, 4KiB to 1GiB", "`1MiB`", "Maximum size of a file; then a new one is started."),
        key("keep", "3", "0 to 100", "`3`", "Number of old files to keep."),
    ],
};

/// `heartbeat = {…}`
pub const HEARTBEAT: Table = Table {
    header: "heartbeat",
    doc: "Proof of life: the process counts cycles in its loop page (loops of `rt` do so automatically), or sends `WATCHDOG=1` to the socket in \
          `NOTIFY_SOCKET`. It gets `WATCHDOG_USEC` (`within` in microseconds) and `WATCHDOG_PID`, as from systemd: a program that uses \
          `sd_watchdog_enabled(3)` needs no setting.",
    keys: &[
        key("within", r#""50ms""#, "time, 1ms to 1h", "", "Maximum silence."),
        key(
            "critical",
            "true",
            "true or false",
            "`false`",
            "The hardware watchdog is fed only while this heartbeat is fresh.",
        ),
    ],
};

/// `threads = [{…}]`
pub const THREADS: Table = Table {
    header: "threads",
    doc: "A rule for threads by name (`/proc/PID/task/TID/comm`, up to 15 bytes).",
    keys: &[
        key("match", r#""scan-*""#, "pattern", "", "`*` matches any text, `?` one character."),
        key("class", r#""fifo:60""#, "as `class` of a process, but not `deadline`", "unchanged", "Scheduling class."),
        key("cpus", r#""housekeeping""#, "as `cpus` of a process", "unchanged", "Where they run."),
    ],
};

/// `[watchdog]`
pub const WATCHDOG: Table = Table {
    header: "[watchdog]",
    doc: "Hardware watchdog: fed only while every critical heartbeat is fresh, so that a dead controller resets the machine.",
    keys: &[
        key("device", r#""/dev/watchdog""#, "path", "`/dev/watchdog`", "The device file."),
        key(
            "timeout",
            r#""10s""#,
            "time, 1s to 1h",
            "`10s`",
            "The machine resets if it is not fed for this time. tahti feeds it four times in this time. If the device has a fixed timeout, tahti \
             prints a warning.",
        ),
    ],
};

/// `[records]`
pub const RECORDS: Table = Table {
    header: "[records]",
    doc: "Folder of logs and evidence. Without this table they are in the run folder, in memory, and are lost when the machine resets.",
    keys: &[
        key(
            "folder",
            r#""/var/log/tahti/llrf""#,
            "path, from the plant file's folder",
            "the run folder",
            "Folder for logs (`log/`) and evidence (`evidence/`). Evidence is written to the disk before it is used otherwise. The supervisor never \
             waits for the disk.",
        ),
        key(
            "also",
            r#""journal""#,
            "`journal` or `syslog`",
            "none",
            "Also send each line of the supervisor and the processes to systemd's journal (with `TAHTI_PLANT` and `TAHTI_PROCESS`) or to `/dev/log`. \
             Lines that the journal or `/dev/log` does not accept are lost there and counted. While it cannot be \
             reached, the plant is *degraded*.",
        ),
    ],
};

/// `[[frame]]`
pub const FRAME: Table = Table {
    header: "[[frame]]",
    doc: "A frame scheduler ([frames](../../explanation/frames.md)): minor frames on a time base, and activities that join by name. One table per scheduler. `tahti \
          up` runs it as a separate process; `tahti frames check` draws it.",
    keys: &[
        key(
            "name",
            r#""fast""#,
            "letters, digits, `-`, `_` and `.`, at most 32",
            "",
            "Name of the frame; no process may have the same name.",
        ),
        key(
            "profiles",
            r#"["debug"]"#,
            "list of names",
            "always part of the plant",
            "Part of the plant only with one of these profiles: `tahti up --profile debug`, or `TAHTI_PROFILES=debug,sim`; `*` means all. \
             Otherwise it is not part of the plant.",
        ),
        key(
            "cpu",
            "1",
            "number, or `shield` for the first isolated CPU",
            "none: activities run on the CPUs of their processes, and the order of blocked or late activities is not kept",
            "CPU of its dispatcher and activities.",
        ),
        key(
            "class",
            r#""fifo:80""#,
            "`fifo:5` to `fifo:99`",
            "`fifo:80`",
            "Class of the dispatcher. Activities, caretaker, parked calls and background activities have the four priorities below it.",
        ),
        key(
            "base",
            r#""timer""#,
            "`timer`, `software`, `counter:TIME`, `udp:PORT`, `device:PATH`, `eventfd`, `pps:PATH`, `gpio:PATH:LINE` or `frame:NAME`",
            "`timer`",
            "Event that starts a minor frame.",
        ),
        key("minors", "10", "1 to 1000", "the number of `lengths`", "Number of minor frames in the major frame."),
        key("period", r#""1ms""#, "time, 50us to 1h", "`lengths` must be given", "Length of each minor frame."),
        key(
            "lengths",
            r#"["1ms", "2ms"]"#,
            "list of times",
            "`period` for each",
            "Lengths of the minor frames, in order.",
        ),
        key("reserve", r#""20us""#, "time", "`0s`", "Time in each minor frame that is not available to activities."),
        key(
            "join_within",
            r#""10s""#,
            "time, 0 to 1h",
            "`10s`",
            "Maximum time for all activities to join. Then the frame starts without the missing ones and reports them.",
        ),
        key(
            "miss_ratio_max",
            r#""0.1%""#,
            "percentage, `0%` to `100%`",
            "none: any of them degrades the plant",
            "Maximum share of minor frames that are skipped or have an overrun, over the plant's life. Above it the plant is *failed*; with fewer it \
             is *degraded*.",
        ),
        key(
            "activity",
            r#"[{ name = "control", budget = "300us" }]"#,
            "list of tables, see *activity*",
            "",
            "Activities, in the order in which they run: `[[frame.activity]]`.",
        ),
        key(
            "mode",
            r#"[{ name = "normal", activities = ["control"] }]"#,
            "list of tables, see *mode*",
            "none: all run",
            "Sets of activities: `[[frame.mode]]`. The frame starts with the first.",
        ),
    ],
};

/// `[[frame.activity]]`
pub const ACTIVITY: Table = Table {
    header: "[[frame.activity]]",
    doc: "A thread that joins the frame under this name.",
    keys: &[
        key(
            "name",
            r#""control""#,
            "letters, digits, `-`, `_` and `.`, at most 32",
            "",
            "Name of the activity, unique in the frame.",
        ),
        key(
            "budget",
            r#""300us""#,
            "time",
            "none, for background activities only",
            "Maximum time of a call. The admission check adds the budgets.",
        ),
        key(
            "minors",
            r#"["0-3 underrunnable+overrunnable+continuable", "4"]"#,
            "`all`, or numbers and ranges, or a list of them, each with an optional discipline after it",
            "`all`",
            "Minor frames in which it runs.",
        ),
        key(
            "discipline",
            r#""real-time""#,
            "`real-time`, `background`, or `underrunnable`, `overrunnable`, `continuable` joined by `+`",
            "`real-time`",
            "Rule for its behaviour in these minor frames.",
        ),
        key(
            "recovery",
            r#""steal:100us""#,
            "`none`, `inject`, `stretch:TIME`, `steal:TIME`, `skip`, `safe-value`, `demote` or `restart`",
            "`none`",
            "Reaction to its overruns and underruns.",
        ),
        key(
            "tolerate",
            "2",
            "0 to 1000000",
            "1 for recoveries that give time, else 0",
            "Number of consecutive errors to tolerate. A recovery that gives time does so for this many errors; other recoveries act after them.",
        ),
        key(
            "deadline",
            r#"{ at = "500us", kind = "firm" }"#,
            "table, see *deadline*; without `least`",
            "none: results are not valued",
            "Deadline for the result of each call, from when its minor frame was due, and the value of a late result. After a missed `hard` deadline \
             its variables have their safe values until a result is punctual: its recovery is `safe-value`. `ps` and the verdict show the value of \
             all activities.",
        ),
    ],
};

/// `[[frame.mode]]`
pub const MODE: Table = Table {
    header: "[[frame.mode]]",
    doc: "A set of activities that run together. `tahti frames mode` changes the mode at the start of a major frame.",
    keys: &[
        key("name", r#""normal""#, "letters, digits, `-`, `_` and `.`, at most 32", "", "Its name."),
        key("activities", r#"["control"]"#, "list of names", "", "Activities that run in this mode."),
    ],
};

/// All tables in the order of the documentation.
pub const TABLES: &[Table] = &[
    PLANT,
    SHIELD,
    PROCESS,
    READY,
    RESTART,
    HEARTBEAT,
    super::deadline::DEADLINE,
    THREADS,
    LIMITS,
    SANDBOX,
    LOG,
    super::partition::PARTITION,
    super::partition::IO_MAX,
    super::partition::NETWORK,
    super::ioc::IOC,
    super::ioc::SCAN,
    super::ioc::PORT,
    super::equipment::EQUIPMENT,
    super::messages::MESSAGES,
    super::messages::BANDS,
    super::messages::RULES,
    super::messages::DEADLINES,
    super::recorder::RECORDER,
    super::alarms::ALARMS,
    super::alarms::NOTIFY,
    super::archive::ARCHIVE,
    super::archive::SIGNAL,
    super::dashboard::DASHBOARD,
    super::guest::GUEST,
    FRAME,
    ACTIVITY,
    MODE,
    WATCHDOG,
    RECORDS,
    super::variables::INCLUDE,
    super::variables::VARIABLES,
];

/// Tables that are reserved for later versions, with their purpose.
pub const RESERVED: &[(&str, &str)] = &[("team", "fork-join teams")];

/// Keys of a table that is also a process: its own keys, and those of `[[process]]` except `without`, which the table
/// generates or redefines.
pub(crate) const fn with_process<const N: usize>(own: &[Key], without: &[&str]) -> [Key; N] {
    let mut keys = [own[0]; N];
    let mut at = 0;
    while at < own.len() {
        keys[at] = own[at];
        at += 1;
    }
    let mut from = 0;
    while from < PROCESS.keys.len() {
        if !has(without, PROCESS.keys[from].name) {
            keys[at] = PROCESS.keys[from];
            at += 1;
        }
        from += 1;
    }
    keys
}

const fn has(names: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < names.len() {
        if is(names[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
