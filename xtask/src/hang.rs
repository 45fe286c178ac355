//! Diagnosis of a command that has printed nothing for too long: prints what its children wait for, and kills them.

use std::fs;
use std::process::Command;

/// The descendants of a process, parents first.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pairs: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            pairs
                .iter()
                .filter(|pair| pair.1 == parent && !found.contains(&pair.0))
                .map(|pair| pair.0)
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    found.remove(0);
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// State of each thread of a process, one line each: `17 name: S in futex_do_wait (futex_wait < do_futex < …)`.
pub(crate) fn threads(pid: u32) -> String {
    let of = |path: &str| fs::read_to_string(format!("/proc/{pid}/{path}")).unwrap_or_default();
    let mut text = format!("process {pid}: {}\n", of("cmdline").replace('\0', " ").trim_end());
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Ok(tid) = entry.file_name().into_string() else { continue };
        let of = |file: &str| of(&format!("task/{tid}/{file}"));
        let state = of("stat").rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
        // Only root can read it: "[<0>] futex_wait+0x70/0x110".
        let stack = of("stack");
        let calls = stack.lines().filter_map(|line| line.split(' ').nth(1)?.split('+').next()).take(6);
        let calls = calls.collect::<Vec<_>>().join(" < ");
        text += &format!("  {tid} {}: {state} in {} ({calls})\n", of("comm").trim_end(), of("wchan"));
    }
    text
}

/// Kills processes with SIGKILL.
pub(crate) fn end(pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    // A process that has already ended needs no signal.
    let _ = Command::new("kill").arg("-KILL").args(pids).status();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    #[test]
    fn the_children_of_a_command_are_found_shown_and_ended() {
        let script = "sleep 1000 & echo; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let children = descendants(std::process::id());
        let below = descendants(shell.id());
        assert!(children.contains(&shell.id()) && children.contains(&below[0]), "{children:?} {below:?}");
        // The program may still be loading from the disk.
        while !threads(below[0]).contains(": S in ") {
            assert!(
                threads(below[0]).contains(" sleep: ") || threads(below[0]).contains(" sh: "),
                "{}",
                threads(below[0])
            );
            std::thread::yield_now();
        }
        end(&below);
        assert!(shell.wait().is_ok());
        assert!(descendants(shell.id()).is_empty());
    }
}
