//! Removes private content from captured files: names of users' programs, disks and networks. No check reads it.

use super::checks::discipline::STEERING;
use super::facts::{FileContent, Files};
use super::pattern::matches_path;
use proc::boot_line::BootLine;
use proc::mountinfo::mounts;
use proc::task_stat::{KTHREAD, Stat};
use std::fmt::Write as _;

/// Boot parameters that name disks, networks and secrets.
const PRIVATE: [&str; 12] = [
    "BOOT_IMAGE",
    "root",
    "resume",
    "ip",
    "nfsroot",
    "init",
    "rdinit",
    "cryptdevice",
    "ds",
    "hostname",
    "vmid",
    "initrd",
];

/// File systems that checks read.
const KINDS: [&str; 6] = ["cgroup", "cgroup2", "debugfs", "tracefs", "resctrl", "proc"];

/// Lines of `/proc/cpuinfo` that checks read.
const CPU_LINES: [&str; 5] = ["processor", "vendor_id", "model name", "flags", "Features"];

/// Prefixes of the kernel options that checks read.
const OPTIONS: [&str; 14] = [
    "NO_HZ",
    "PREEMPT",
    "RCU_NOCB",
    "RT_GROUP",
    "HZ",
    "DEBUG_",
    "PROVE_",
    "IRQSOFF",
    "LOCK_",
    "KASAN",
    "KCSAN",
    "UBSAN",
    "SLUB_DEBUG",
    "HIGH_RES",
];

impl Files {
    /// Returns the files without private content. Checks and plans have the same results with and without it.
    #[must_use]
    pub fn scrubbed(&self) -> Self {
        let mut out = Self::new(self.is_capture());
        for (path, read) in self.iter() {
            let read = match read {
                FileContent::Text(text) => FileContent::Text(scrub(self, path, text)),
                other => other.clone(),
            };
            out.insert(path, read);
        }
        out
    }
}

fn scrub(files: &Files, path: &str, text: &str) -> String {
    let lines = |keep: &dyn Fn(&str) -> bool| {
        let mut kept = String::new();
        text.lines().filter(|line| keep(line)).for_each(|line| kept.extend([line, "\n"]));
        kept
    };
    let task = |name: &str| {
        matches_path(&format!("/proc/#/{name}"), path) || matches_path(&format!("/proc/#/task/#/{name}"), path)
    };
    let named = |key: &'static str| move |line: &str| line.split(':').next().is_some_and(|name| name.trim() == key);
    match path {
        "/proc/cmdline" => {
            let private = |name: &str| PRIVATE.contains(&name.split('.').next().unwrap_or(name));
            let line = BootLine::parse(text);
            let kept = line.all().iter().filter(|one| !private(&one.name)).map(|one| one.text.as_str());
            kept.collect::<Vec<_>>().join(" ") + "\n"
        }
        "/proc/cpuinfo" => lines(&|line| CPU_LINES.iter().any(|key| named(key)(line)) || line.is_empty()),
        "/proc/self/mountinfo" => lines(&|line| mounts(line).any(|mount| KINDS.contains(&mount.kind))),
        "/proc/sys/kernel/random/boot_id" => "00000000-0000-0000-0000-000000000000\n".to_owned(),
        path if path == "/proc/config.gz" || files.config_paths().iter().any(|known| known == path) => lines(&|line| {
            let name = line.trim_start_matches("# ").strip_prefix("CONFIG_").unwrap_or_default();
            OPTIONS.iter().any(|start| name.starts_with(start))
        }),
        _ if task("stat") => Stat::parse(text).map_or_else(String::new, |stat| line(&stat)),
        _ if task("status") && path != "/proc/self/status" => lines(&named("Cpus_allowed_list")),
        _ if task("comm") => {
            let stat = files.text(&path.replace("/comm", "/stat")).ok().and_then(Stat::parse);
            let kernel = stat.is_some_and(|stat| stat.flags & KTHREAD != 0);
            if kernel || is_known(text.trim()) { text.to_owned() } else { "task\n".to_owned() }
        }
        _ => text.to_owned(),
    }
}

/// Whether checks search for a program of this name.
fn is_known(name: &str) -> bool {
    ["irqbalance", "ptp4l"].contains(&name) || STEERING.contains(&name)
}

/// A line of `stat` with the fields that are read, and zeros in the others.
fn line(stat: &Stat) -> String {
    let comm = if stat.flags & KTHREAD != 0 || is_known(&stat.comm) { stat.comm.as_str() } else { "task" };
    let mut line = format!("{} ({comm}) {} {} 0 0 0 -1 {}", stat.tid, stat.state, stat.ppid, stat.flags);
    let zeros = |count: usize, line: &mut String| line.extend(std::iter::repeat_n(" 0", count));
    zeros(9, &mut line);
    let _ = write!(line, " {} {} 0 {}", stat.nice, stat.threads, stat.start);
    zeros(16, &mut line);
    let _ = write!(line, " {} {} {}", stat.last_cpu, stat.rt_priority, stat.policy);
    zeros(11, &mut line);
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrubbing_keeps_the_scheduling_fields_of_a_task_and_hides_its_name() {
        let text = "1390 (secret) S 1362 1362 7213 0 -1 4194304 98 0 0 0 0 0 0 0 -51 -5 1 0 258348 3133440 359 \
            18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 50 1 0 0 0 6 7 8 9 10 11 12 0";
        let (before, after) = (Stat::parse(text).unwrap(), Stat::parse(&line(&Stat::parse(text).unwrap())).unwrap());
        assert_eq!(after, Stat { comm: "task".into(), ..before });
    }

    #[test]
    fn scrubbing_removes_private_words_of_the_boot_line_and_task_names() {
        let mut files = Files::new(true);
        files.insert(
            "/proc/cmdline",
            FileContent::Text("root=UUID=1 quiet isolcpus=2 ip=10.0.0.1 kthread_cpus=0\n".into()),
        );
        files.insert("/proc/7/comm", FileContent::Text("chronyd\n".into()));
        files.insert("/proc/8/comm", FileContent::Text("payroll\n".into()));
        let scrubbed = files.scrubbed();
        assert_eq!(scrubbed.text("/proc/cmdline"), Ok("quiet isolcpus=2 kthread_cpus=0\n"));
        assert_eq!(scrubbed.text("/proc/7/comm"), Ok("chronyd\n"));
        assert_eq!(scrubbed.text("/proc/8/comm"), Ok("task\n"));
    }
}
