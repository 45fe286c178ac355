//! Priority of packets sent by a control group: a BPF program of four instructions, run for each packet that leaves the
//! group (`BPF_CGROUP_INET_EGRESS`). A process cannot override it by socket options. The program is removed with the
//! group.

use crate::error::{Doing as _, Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const LOAD: i32 = 5;
const ATTACH: i32 = 8;
const DETACH: i32 = 9;
const GET_FD_BY_ID: i32 = 13;
const GET_INFO: i32 = 15;
const QUERY: i32 = 16;
/// `BPF_PROG_TYPE_CGROUP_SKB`.
const KIND: u32 = 8;
/// `BPF_CGROUP_INET_EGRESS`.
const PLACE: u32 = 1;
/// `BPF_F_ALLOW_MULTI`: in addition to other programs.
const BESIDE: u32 = 2;
/// Prefix of the names of tahti's programs; eight hexadecimal digits follow.
const NAME: &[u8] = b"tahti_";
/// Maximum number of programs read per group.
const PROGRAMS_MAX: usize = 64;
/// `offsetof(struct __sk_buff, priority)`.
const PRIORITY: u64 = 32;

/// `union bpf_attr`, large enough for all calls here.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Self {
        Self([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn long(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn call(&mut self, command: i32, doing: impl FnOnce() -> String) -> Result<i32> {
        // SAFETY: the attributes, and the memory that they refer to, live for the call. None of these commands reads
        // more than 128 bytes, and the kernel accepts a longer attribute whose rest is zero.
        let answer = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) };
        if answer < 0 { Err(Error::last(doing())) } else { Ok(answer as i32) }
    }
}

fn instruction(code: u8, registers: u8, offset: i16, immediate: u32) -> u64 {
    u64::from(code) | u64::from(registers) << 8 | u64::from(offset.cast_unsigned()) << 16 | u64::from(immediate) << 32
}

fn own(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just created it for this process alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn group(path: &str) -> Result<OwnedFd> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    opened.doing(|| format!("open control group {path}"))
}

/// Sets the priority of all packets sent by processes of the group at `path` (version 2) and its subgroups.
///
/// # Errors
/// The kernel's: `PERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `NOSYS` or `INVAL` without `CONFIG_CGROUP_BPF`.
pub fn set_priority(path: &str, priority: u32) -> Result<()> {
    let doing = || format!("give what {path} sends the priority {priority:x}");
    let (r1, r0_r2) = (1, 2 << 4 | 1);
    let program = [
        // r2 = priority
        instruction(0xb4, 2, 0, priority),
        // *(u32 *)(r1 + 32) = r2
        instruction(0x63, r0_r2, PRIORITY as i16, 0),
        // r0 = 1: let it pass
        instruction(0xb4, 0, 0, r1),
        // return
        instruction(0x95, 0, 0, 0),
    ];
    let licence = b"GPL\0";
    let name = format!("tahti_{priority:08x}");
    let mut load = Attr::new()
        .word(0, KIND)
        .word(4, program.len() as u32)
        .long(8, program.as_ptr() as u64)
        .long(16, licence.as_ptr() as u64)
        .word(68, PLACE);
    load.0[48..48 + name.len()].copy_from_slice(name.as_bytes());
    let program = own(load.call(LOAD, doing)?);
    let group = group(path)?;
    let mut attach = Attr::new()
        .word(0, group.as_raw_fd().cast_unsigned())
        .word(4, program.as_raw_fd().cast_unsigned())
        .word(8, PLACE)
        .word(12, BESIDE);
    attach.call(ATTACH, doing).map(drop)
}

/// The packet priority set by tahti for the group at `path`; `None` if none is set.
///
/// # Errors
/// The kernel's; `NOENT` if there is no such group.
pub fn priority(path: &str) -> Result<Option<u32>> {
    Ok(programs(path)?.into_iter().next_back().map(|(priority, _)| priority))
}

/// Removes tahti's programs from a group.
///
/// # Errors
/// The kernel's.
pub fn unset_priority(path: &str) -> Result<()> {
    let group = group(path)?;
    for (_, program) in programs(path)? {
        let mut detach = Attr::new()
            .word(0, group.as_raw_fd().cast_unsigned())
            .word(4, program.as_raw_fd().cast_unsigned())
            .word(8, PLACE);
        detach.call(DETACH, || format!("take a program off {path}"))?;
    }
    Ok(())
}

/// Tahti's programs on a group, with their priorities, in the order of execution.
fn programs(path: &str) -> Result<Vec<(u32, OwnedFd)>> {
    let doing = || format!("ask which programs {path} has");
    let group = group(path)?;
    let mut ids = [0u32; PROGRAMS_MAX];
    let mut query = Attr::new()
        .word(0, group.as_raw_fd().cast_unsigned())
        .word(4, PLACE)
        .long(16, ids.as_mut_ptr() as u64)
        .word(24, PROGRAMS_MAX as u32);
    query.call(QUERY, doing)?;
    let count = u32::from_ne_bytes([query.0[24], query.0[25], query.0[26], query.0[27]]) as usize;
    let mut found = Vec::new();
    for id in ids.into_iter().take(count) {
        let program = match Attr::new().word(0, id).call(GET_FD_BY_ID, doing) {
            Ok(fd) => own(fd),
            // It was removed meanwhile.
            Err(error) if error.errno == Errno::NOENT => continue,
            Err(error) => return Err(error),
        };
        // struct bpf_prog_info: the name is at byte 64.
        let mut info = [0u8; 232];
        let mut ask = Attr::new()
            .word(0, program.as_raw_fd().cast_unsigned())
            .word(4, info.len() as u32)
            .long(8, info.as_mut_ptr() as u64);
        ask.call(GET_INFO, doing)?;
        let digits = info[64..80].strip_prefix(NAME).and_then(|rest| str::from_utf8(&rest[..8]).ok());
        if let Some(priority) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            found.push((priority, program));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_missing_group_is_an_error() {
        assert_eq!(priority("/sys/fs/cgroup/no-such-group").unwrap_err().errno, Errno::NOENT);
    }
}
