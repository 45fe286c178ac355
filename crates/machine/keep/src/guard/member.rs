//! A process, held by its open `/proc/PID` directory. The descriptor refers to that process only: once it is gone, reads and
//! signals through it fail, even if its PID has been reused.
//!
//! Everything here runs on the guard's thread, which must not allocate, lock or log.

use super::read::{self, ProcPath};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use std::mem::MaybeUninit;

/// A process of a watched process tree.
pub(super) struct Member {
    pub(super) pid: i32,
    folder: OwnedFd,
    /// The current scan has found the process (`seen`) and has read its children (`listed`).
    pub(super) seen: bool,
    pub(super) listed: bool,
}

impl Member {
    /// Opens the process that has this PID now.
    pub(super) fn open(pid: i32) -> Result<Self, Errno> {
        Ok(Self { pid, folder: ProcPath::new().id(pid).open()?, seen: true, listed: false })
    }

    /// Opens a process that was listed as a child of `parent`. `ESRCH` if the PID belongs to another process by now.
    pub(super) fn open_child(pid: i32, parent: i32) -> Result<Self, Errno> {
        let child = Self::open(pid)?;
        if child.parent() == Some(parent) { Ok(child) } else { Err(Errno::SRCH) }
    }

    fn parent(&self) -> Option<i32> {
        let stat = ProcPath::below().name(b"stat").open_in(self.folder.as_fd()).ok()?;
        read::state_and_parent(stat).map(|(_, parent)| parent)
    }

    /// Whether the process exists. A zombie counts.
    pub(super) fn exists(&self) -> bool {
        self.parent().is_some()
    }

    /// Sends the process a signal.
    pub(super) fn signal(&self, signal: i32) -> Result<(), Errno> {
        sys::process::try_signal(self.folder.as_fd(), signal)
    }

    /// A second handle to the same process.
    pub(super) fn again(&self) -> Result<Self, Errno> {
        let folder = rustix::io::fcntl_dupfd_cloexec(&self.folder, 0)?;
        Ok(Self { pid: self.pid, folder, seen: true, listed: false })
    }

    /// Opens a file of one of the process's threads.
    pub(super) fn open_of_thread(&self, tid: i32, name: &[u8]) -> Result<OwnedFd, Errno> {
        ProcPath::below().name(b"task").id(tid).name(name).open_in(self.folder.as_fd())
    }

    /// Calls `each` with the TID of every thread.
    pub(super) fn for_each_thread(&self, mut each: impl FnMut(i32)) {
        let Ok(dir) = ProcPath::below().name(b"task").open_in(self.folder.as_fd()) else { return };
        if rustix::fs::seek(&dir, SeekFrom::Start(0)).is_err() {
            return;
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            if let Some(tid) = read::number(entry.file_name().to_bytes()) {
                each(tid as i32);
            }
        }
    }

    /// Calls `each` for every child forked by thread `tid` (`/proc/PID/task/TID/children`). A kernel without that file
    /// reports no children; only the process itself is watched then.
    pub(super) fn for_each_child_of(&self, tid: i32, mut each: impl FnMut(i32)) {
        let Ok(file) = self.open_of_thread(tid, b"children") else { return };
        let mut bytes = [0u8; 1024];
        let mut kept = 0;
        let mut at = 0;
        // The list arrives in parts. A PID cut at the end of one part is completed by the next.
        while let Ok(got) = rustix::io::pread(&file, &mut bytes[kept..], at) {
            let end = kept + got;
            at += got as u64;
            let whole = if got == 0 { end } else { bytes[..end].iter().rposition(|byte| *byte == b' ').unwrap_or(0) };
            bytes[..whole].split(|byte| *byte == b' ').filter_map(read::number).for_each(|child| each(child as i32));
            if got == 0 {
                return;
            }
            bytes.copy_within(whole..end, 0);
            kept = end - whole;
            if kept == bytes.len() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn every_one_of_many_children_is_found() {
        // More PIDs than fit into one read.
        let mut children: Vec<Child> = (0..300).map(|_| sleeper()).collect();
        let own = Member::open(std::process::id() as i32).unwrap();
        let mut found = std::collections::BTreeSet::new();
        own.for_each_thread(|tid| own.for_each_child_of(tid, |pid| found.extend([pid])));
        let missing = children.iter().filter(|child| !found.contains(&(child.id() as i32))).count();
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(missing, 0);
    }

    #[test]
    fn an_ended_process_gets_no_signal_and_a_pid_of_another_parent_is_not_a_child() {
        let own = std::process::id() as i32;
        let mut child = sleeper();
        let pid = child.id() as i32;
        let member = Member::open_child(pid, own).unwrap();
        assert!(member.exists());
        assert!(Member::open_child(pid, 1).is_err());
        member.again().unwrap().signal(9).unwrap();
        child.wait().unwrap();
        assert!(!member.exists());
        assert_eq!(member.signal(9), Err(Errno::SRCH));
        assert!(member.open_of_thread(pid, b"stat").is_err());
    }
}
