//! The BPF program that redirects datagrams from a network card's queue into a socket, and the `bpf(2)` commands to
//! load it.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Commands of `bpf(2)`.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
/// A map from queues to sockets.
const XSKMAP: u32 = 17;
/// Type of the program, and its attach type.
const XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program supports packets in several buffers.
const HAS_FRAGS: u32 = 1 << 5;
/// Attached in the driver, or after it (generic mode).
const IN_DRIVER: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;
/// Size of the argument: more than any of these commands reads. The kernel expects zeros in the rest.
const ARGUMENT: usize = 128;

/// The argument of a command, field by field as the kernel lays it out.
#[repr(C, align(8))]
struct Argument([u8; ARGUMENT]);

impl Argument {
    fn new() -> Self {
        Self([0; ARGUMENT])
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..][..bytes.len()].copy_from_slice(bytes);
        self
    }

    fn word(self, at: usize, word: u32) -> Self {
        self.with(at, &word.to_ne_bytes())
    }

    fn long(self, at: usize, long: u64) -> Self {
        self.with(at, &long.to_ne_bytes())
    }

    /// Calls the kernel. The memory at the addresses in the argument must outlive the call.
    fn ask(&self, command: libc::c_long, doing: impl Into<String>) -> Result<i32> {
        let at = self.0.as_ptr();
        // SAFETY: the argument has this length, and the memory that it refers to outlives the call (see above).
        let answer = unsafe { libc::syscall(libc::SYS_bpf, command, at, ARGUMENT) };
        match i32::try_from(answer) {
            Ok(answer) if answer >= 0 => Ok(answer),
            _ => Err(Error::last(doing)),
        }
    }

    fn made(&self, command: libc::c_long, doing: impl Into<String>) -> Result<OwnedFd> {
        let raw = self.ask(command, doing)?;
        // SAFETY: the kernel has just created this descriptor for this process alone.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr() as u64
}

/// One instruction: operation, registers (destination, source), offset, constant.
fn instruction(operation: u8, [to, from]: [u8; 2], offset: i16, constant: i32) -> u64 {
    let [low, high] = offset.to_ne_bytes();
    let [a, b, c, d] = constant.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    u64::from_ne_bytes([operation, registers, low, high, a, b, c, d])
}

// Operations, 64-bit unless named otherwise.
const MOVE: u8 = 0xb7;
const COPY: u8 = 0xbf;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const STORE_64: u8 = 0x7b;
const LOAD_CONSTANT: u8 = 0x18;
const UNLESS_EQUAL: u8 = 0x55;
const UNLESS_EQUAL_32: u8 = 0x56;
const IF_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The constant is a map's descriptor.
const IS_MAP: u8 = 1;
// Helper functions of the kernel.
const TIME_NS: i32 = 5;
const REDIRECT: i32 = 51;
const MAKE_ROOM: i32 = 54;
/// Verdict: continue in the network stack.
const PASS: i32 = 2;
/// Fields of `xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const BESIDE: i16 = 8;
const QUEUE: i16 = 16;

/// The program: whole IPv4 packets without options that carry UDP to this address (an unspecified address matches any
/// of the host) go to the socket of their queue, preceded by the time if the driver leaves room for it. All other
/// packets continue in the network stack.
fn instructions(to: SocketAddrV4, map: BorrowedFd<'_>) -> Vec<u64> {
    let network = |number: u16| i32::from(number.to_be());
    let mut program = vec![
        instruction(COPY, [6, 1], 0, 0),
        instruction(LOAD_32, [2, 1], DATA, 0),
        instruction(LOAD_32, [3, 1], DATA_END, 0),
        instruction(COPY, [4, 2], 0, 0),
        instruction(ADD, [4, 0], 0, 42),
    ];
    // Jumps to the end. Their distances are filled in below.
    let mut passes = vec![program.len()];
    program.push(instruction(IF_GREATER, [4, 3], 0, 0));
    let mut expect = |load: u8, at: i16, mask: Option<i32>, value: i32| {
        program.push(instruction(load, [5, 2], at, 0));
        program.extend(mask.map(|mask| instruction(AND, [5, 0], 0, mask)));
        passes.push(program.len());
        program.push(instruction(if load == LOAD_32 { UNLESS_EQUAL_32 } else { UNLESS_EQUAL }, [5, 0], 0, value));
    };
    expect(LOAD_16, 12, None, network(0x0800));
    expect(LOAD_8, 14, None, 0x45);
    // Not a fragment.
    expect(LOAD_16, 20, Some(network(0x3fff)), 0);
    expect(LOAD_8, 23, None, i32::from(libc::IPPROTO_UDP as u8));
    expect(LOAD_16, 36, None, network(to.port()));
    if !to.ip().is_unspecified() {
        expect(LOAD_32, 30, None, u32::from(*to.ip()).to_be() as i32);
    }
    program.extend([
        // Reserves eight bytes before the packet for the time. Afterwards the packet's address would have to be checked
        // again.
        instruction(COPY, [1, 6], 0, 0),
        instruction(MOVE, [2, 0], 0, -8),
        instruction(CALL, [0, 0], 0, MAKE_ROOM),
        instruction(UNLESS_EQUAL, [0, 0], 7, 0),
        instruction(CALL, [0, 0], 0, TIME_NS),
        instruction(LOAD_32, [1, 6], BESIDE, 0),
        instruction(LOAD_32, [2, 6], DATA, 0),
        instruction(COPY, [3, 1], 0, 0),
        instruction(ADD, [3, 0], 0, 8),
        instruction(IF_GREATER, [3, 2], 1, 0),
        instruction(STORE_64, [1, 0], 0, 0),
        instruction(LOAD_32, [2, 6], QUEUE, 0),
        instruction(LOAD_CONSTANT, [1, IS_MAP], 0, map.as_raw_fd()),
        0,
        // If the queue has no socket.
        instruction(MOVE, [3, 0], 0, PASS),
        instruction(CALL, [0, 0], 0, REDIRECT),
        instruction(EXIT, [0, 0], 0, 0),
    ]);
    let end = program.len();
    program.extend([instruction(MOVE, [0, 0], 0, PASS), instruction(EXIT, [0, 0], 0, 0)]);
    for place in passes {
        let mut bytes = program[place].to_ne_bytes();
        bytes[2..4].copy_from_slice(&((end - place - 1) as i16).to_ne_bytes());
        program[place] = u64::from_ne_bytes(bytes);
    }
    program
}

/// The attached program. It is removed when this value is dropped, or when the process ends.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    /// Whether it runs in the driver. Otherwise it runs after the kernel has allocated its packet structure.
    pub(super) in_driver: bool,
}

/// Attaches the program to an interface: packets to `to` on the queue go to the socket.
///
/// # Errors
/// The kernel's: `EPERM` without the right, `EBUSY` if the interface has a program, `ERANGE` if its packets may exceed
/// one buffer.
pub(super) fn attach(
    socket: BorrowedFd<'_>,
    to: SocketAddrV4,
    (index, name, queue): (u32, &str, u32),
    several_buffers: bool,
) -> Result<Attached> {
    let map = Argument::new().word(0, XSKMAP).word(4, 4).word(8, 4).word(12, queue + 1);
    let map = map.made(MAP_CREATE, format!("make a map of the queues of {name:?} (bpf)"))?;
    let (key, value) = ([queue], [socket.as_raw_fd() as u32]);
    let program = instructions(to, std::os::fd::AsFd::as_fd(&map));
    let licence = b"MIT\0";
    let loaded = Argument::new()
        .word(0, XDP)
        .word(4, program.len() as u32)
        .long(8, address(&program))
        .long(16, address(licence))
        .word(44, if several_buffers { HAS_FRAGS } else { 0 })
        .with(48, b"tahti_pixels\0")
        .word(68, ATTACH_XDP);
    let loaded = loaded.made(PROGRAM_LOAD, "load a program for network packets (bpf)")?;
    // The link first: if the interface already has a program, that error is reported before any other.
    let link = |mode| {
        let link = Argument::new().word(0, loaded.as_raw_fd() as u32).word(4, index).word(8, ATTACH_XDP).word(12, mode);
        link.made(LINK_CREATE, format!("attach a program for packets to {name:?}"))
    };
    let (link, in_driver) = match link(IN_DRIVER) {
        Err(Error { errno: Errno::OPNOTSUPP, .. }) => (link(GENERIC)?, false),
        link => (link?, true),
    };
    let update = Argument::new().word(0, map.as_raw_fd() as u32).long(8, address(&key)).long(16, address(&value));
    update.ask(MAP_UPDATE, format!("put a socket on queue {queue} of {name:?}"))?;
    Ok(Attached { _link: link, in_driver })
}
