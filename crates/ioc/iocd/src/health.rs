//! Health of the IOC as process variables, with the names of iocStats (`iocAdminSoft.db`).
//!
//! A separate thread reads `/proc` once a second and writes to the records through the engine's mailbox.

use crate::engine::{self, Engine, Mailbox};
use crate::publish::Publisher;
use std::fs;
use std::time::Instant;

/// Ticks of CPU time per second in `/proc`, on all architectures supported by tahti.
const TICKS_PER_SECOND: f64 = 100.0;

const VERSION: &str = concat!("tahti ", env!("CARGO_PKG_VERSION"));

/// EPICS parameters that have a record, without the prefix `EPICS_`.
const PARAMETERS: &[&str] = &[
    "CA_ADDR_LIST",
    "CA_CONN_TMO",
    "CA_AUTO_ADDR_LIST",
    "CA_REPEATER_PORT",
    "CA_SERVER_PORT",
    "CA_MAX_ARRAY_BYTES",
    "CA_MAX_SEARCH_PERIOD",
    "CA_BEACON_PERIOD",
    "CAS_SERVER_PORT",
    "CAS_AUTO_BEACON_ADDR_LIST",
    "CAS_BEACON_ADDR_LIST",
    "CAS_INTF_ADDR_LIST",
    "CAS_IGNORE_ADDR_LIST",
];

/// CPU time at an instant, in seconds.
struct Spent {
    at: Instant,
    own: f64,
    busy: f64,
    all: f64,
}

/// Looks up EPICS parameters and other environment variables of the interpreter.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Starts a thread that updates the records whose names begin with `prefix` and a colon.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(mailbox: Mailbox, prefix: String, env: &Environment<'_>) -> std::io::Result<Publisher> {
    let start = Instant::now();
    let mut before = spent();
    let mut beats = 0u64;
    put(&mailbox, &prefix, fixed().into_iter().chain(said(env)).collect());
    Publisher::start("ioc-health", move || {
        beats += 1;
        let now = spent();
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let mut values = vec![
            ("HEARTBEAT", beats.to_string()),
            ("UPTIME", uptime(start.elapsed().as_secs())),
            ("TOD", time_of_day()),
            ("IOC_CPU_LOAD", format!("{:.2}", 100.0 * (now.own - before.own) / (seconds * cpus))),
            ("SYS_CPU_LOAD", format!("{:.2}", 100.0 * (now.busy - before.busy) / (now.all - before.all).max(1e-3))),
        ];
        before = now;
        values.extend(memory());
        values.extend(files());
        let asked = mailbox.ask(|engine: &mut Engine| {
            let (circuits, channels) =
                engine.server.circuits().fold((0, 0), |(count, sum), (_, one)| (count + 1, sum + one.channels));
            let overruns = engine.scans.overruns();
            (circuits, channels, overruns, engine.store.db.records().count())
        });
        let Some((circuits, channels, overruns, records)) = asked else { return false };
        values.push(("CA_CLNT_CNT", circuits.to_string()));
        values.push(("CA_CONN_CNT", channels.to_string()));
        values.push(("SCAN_OVERRUNS", overruns.to_string()));
        values.push(("RECORD_CNT", records.to_string()));
        put(&mailbox, &prefix, values);
        true
    })
}

/// Values that do not change.
fn fixed() -> Vec<(&'static str, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let folder = std::env::current_dir().map_or_else(|_| String::new(), |folder| folder.display().to_string());
    vec![
        ("STARTTOD", time_of_day()),
        ("PROCESS_ID", std::process::id().to_string()),
        ("PARENT_ID", std::os::unix::process::parent_id().to_string()),
        ("CPU_CNT", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
        ("HOSTNAME", read("/proc/sys/kernel/hostname")),
        ("KERNEL_VERS", format!("Linux {}", read("/proc/sys/kernel/osrelease"))),
        ("EPICS_VERS", VERSION.to_owned()),
        ("EPICS_VERSION", VERSION.to_owned()),
        ("APP_DIR", folder.clone()),
        ("APP_DIR1", part(&folder, 0)),
        ("APP_DIR2", part(&folder, 1)),
    ]
}

/// Values of environment variables.
fn said(env: &Environment<'_>) -> Vec<(&'static str, String)> {
    let first = |names: &[&str]| names.iter().find_map(|name| env(name)).unwrap_or_default();
    let script = match (env("STARTUP"), env("ST_CMD")) {
        (Some(folder), Some(file)) => format!("{folder}/{file}"),
        (Some(folder), None) => folder,
        _ => first(&["IOCSH_STARTUP_SCRIPT"]),
    };
    let mut values = vec![
        ("ENGINEER", first(&["ENGINEER", "LOGNAME", "USER"])),
        ("LOCATION", first(&["LOCATION"])),
        ("ST_SCRIPT", script.clone()),
        ("ST_SCRIPT1", part(&script, 0)),
        ("ST_SCRIPT2", part(&script, 1)),
    ];
    values.extend(PARAMETERS.iter().map(|name| (*name, first(&[&format!("EPICS_{name}")]))));
    values
}

/// The `nth` part of a text that exceeds one EPICS string.
fn part(text: &str, nth: usize) -> String {
    String::from_utf8_lossy(text.as_bytes().chunks(39).nth(nth).unwrap_or_default()).into_owned()
}

/// Local time in the format of iocStats.
fn time_of_day() -> String {
    db::stamp_text(engine::wall(), "%m/%d/%Y %H:%M:%S", sys::clock::local_text)
}

/// `1 day, 02:03:04`, the format of iocStats.
fn uptime(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        1 => format!("1 day, {clock}"),
        days => format!("{days} days, {clock}"),
    }
}

/// CPU time of this process and of the machine.
fn spent() -> Spent {
    let numbers = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect::<Vec<f64>>();
    let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name may contain any characters. utime and stime are fields 12 and 13 after it.
    let own = own.rsplit_once(')').map_or(Vec::new(), |(_, rest)| numbers(rest));
    let own = own.get(11).copied().unwrap_or(0.0) + own.get(12).copied().unwrap_or(0.0);
    let all = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = numbers(all.lines().next().and_then(|line| line.strip_prefix("cpu")).unwrap_or_default());
    let idle = all.get(3).copied().unwrap_or(0.0) + all.get(4).copied().unwrap_or(0.0);
    let sum: f64 = all.iter().take(8).sum();
    Spent { at: Instant::now(), own: own / TICKS_PER_SECOND, busy: sum - idle, all: sum }
}

/// Memory of the process and of the machine, in bytes.
fn memory() -> Vec<(&'static str, String)> {
    let line = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| (kib * 1024).to_string())
    };
    let own = ("MEM_USED", line("/proc/self/status", "VmRSS:"));
    let free = ("MEM_FREE", line("/proc/meminfo", "MemAvailable:"));
    let most = ("MEM_MAX", line("/proc/meminfo", "MemTotal:"));
    [own, free, most].into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Number of open files, and the limit.
fn files() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    values.extend(open.map(|open| ("FD_CNT", open.to_string())));
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    values.extend(most.map(|most| ("FD_MAX", most.to_owned())));
    let free = most.and_then(|most| most.parse::<usize>().ok()?.checked_sub(open?));
    values.extend(free.map(|free| ("FD_FREE", free.to_string())));
    values
}

fn put(mailbox: &Mailbox, prefix: &str, values: Vec<(&'static str, String)>) {
    mailbox.put_texts(values.into_iter().map(|(word, text)| (format!("{prefix}:{word}"), text)).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_variables_report_the_engineer_the_location_and_the_start_script() {
        let env = |name: &str| match name {
            "STARTUP" => Some("/a/folder/with/a/name/of/more/than/40/letters".to_owned()),
            "ST_CMD" => Some("st.cmd".into()),
            "USER" => Some("anna".into()),
            _ => None,
        };
        let values = said(&env);
        let of = |wanted: &str| values.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.as_str());
        assert_eq!((of("ENGINEER"), of("LOCATION")), (Some("anna"), Some("")));
        assert_eq!(of("ST_SCRIPT1"), Some("/a/folder/with/a/name/of/more/than/40/l"));
        assert_eq!(of("ST_SCRIPT2"), Some("etters/st.cmd"));
        assert_eq!(of("CA_ADDR_LIST"), Some(""));
    }

    #[test]
    fn uptime_has_the_format_of_iocstats() {
        assert_eq!(uptime(3_661), "01:01:01");
        assert_eq!(uptime(86_400 * 2 + 5), "2 days, 00:00:05");
    }

    #[test]
    fn memory_files_and_cpu_time_are_read_from_proc() {
        let names: Vec<&str> = memory().into_iter().chain(files()).map(|(name, _)| name).collect();
        assert_eq!(names, ["MEM_USED", "MEM_FREE", "MEM_MAX", "FD_CNT", "FD_MAX", "FD_FREE"]);
        assert!(spent().all > 0.0);
    }
}
