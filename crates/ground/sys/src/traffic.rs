//! Queueing disciplines and classes of a network device, over route netlink in the caller's network namespace
//! (`linux/rtnetlink.h`, `linux/pkt_sched.h`).
//!
//! Only the parts needed for partitions: a hierarchical token bucket, its classes, and their queues with a limit in
//! bytes, FIFO or fair between connections.

use crate::error::{Doing, Error, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::os::fd::OwnedFd;

/// Parent of a device's root discipline.
pub const ROOT: u32 = u32::MAX;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE_NEW: u16 = 0x400 | 0x200;
/// Replaces a root discipline that the kernel has created.
const REPLACE: u16 = 0x400 | 0x100;
const DUMP: u16 = 0x300;

const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const GET_QDISC: u16 = 38;
const NEW_CLASS: u16 = 40;
const DELETE_CLASS: u16 = 41;
const GET_CLASS: u16 = 42;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATISTICS: u16 = 3;
const HTB_PARAMETERS: u16 = 1;
const HTB_START: u16 = 2;
/// Attribute of fair queueing disciplines for the maximum memory of their packets.
const FQ_CODEL_MEMORY: u16 = 9;
const CAKE_MEMORY: u16 = 10;

/// Bytes of `struct nlmsghdr` and of `struct tcmsg`.
const HEADER: usize = 16;
const TC: usize = 20;
/// Maximum bytes of a datagram of the kernel's dump.
const DATAGRAM: usize = 1 << 16;
/// Ethernet: the kernel then computes rates without a table.
const LINK_LAYER: u8 = 1;
/// Maximum packet that a burst must hold, with offloads that the kernel segments: 64 KiB.
const PACKET: u64 = 1 << 16;
/// Bytes that a class may send per round when several exceed their rates.
const QUANTUM: u32 = 1514;

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Its parent: [`ROOT`], or a class.
    pub parent: u32,
    /// Its handle; 0 if the kernel created it.
    pub handle: u32,
    /// Its kind, such as `htb`.
    pub kind: String,
    /// For `htb`, the class of packets without one; for `bfifo`, its bytes; for `fq_codel` and `cake`, the maximum
    /// memory of their packets in bytes.
    pub number: Option<u32>,
}

/// A class of a hierarchical token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its parent: the discipline, or another class.
    pub parent: u32,
    /// Its id.
    pub id: u32,
    /// Guaranteed rate in bytes per second.
    pub rate: u64,
    /// Maximum rate with borrowing, in bytes per second.
    pub ceil: u64,
}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped for lack of room.
    pub dropped: u32,
}

/// A netlink socket for one device.
#[derive(Debug)]
pub struct Traffic {
    socket: OwnedFd,
    device: String,
    index: i32,
}

impl Traffic {
    /// Opens a device by name, in the caller's network namespace.
    ///
    /// # Errors
    /// `NODEV` if there is no such device; the kernel's.
    pub fn of(device: &str) -> Result<Self> {
        let doing = || format!("ask for the traffic of network device {device}");
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let socket = socket.doing(doing)?;
        let name = std::ffi::CString::new(device).map_err(|_| Error { doing: doing(), errno: Errno::NODEV })?;
        // SAFETY: a zero-terminated string, which the function does not keep.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        match i32::try_from(index) {
            Ok(0) | Err(_) => Err(Error { doing: doing(), errno: Errno::NODEV }),
            Ok(index) => Ok(Self { socket, device: device.to_owned(), index }),
        }
    }

    /// All its disciplines.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disciplines(&self) -> Result<Vec<Discipline>> {
        let all = self.dump(GET_QDISC, NEW_QDISC, &format!("read the disciplines of {}", self.device))?;
        let read = |bytes: &Vec<u8>| {
            let attributes = Attributes(bytes.get(TC..)?);
            let kind = attributes.find(KIND)?;
            let kind = String::from_utf8_lossy(kind.strip_suffix(&[0]).unwrap_or(kind)).into_owned();
            let options = attributes.find(OPTIONS);
            let number = match kind.as_str() {
                "htb" => options.and_then(|all| word(Attributes(all).find(HTB_START)?, 8)),
                "bfifo" => options.and_then(|all| word(all, 0)),
                kind => options.zip(memory(kind)).and_then(|(all, memory)| word(Attributes(all).find(memory)?, 0)),
            };
            Some(Discipline { parent: word(bytes, 12)?, handle: word(bytes, 8)?, kind, number })
        };
        Ok(all.iter().filter_map(read).collect())
    }

    /// All classes of token buckets, with their counters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn classes(&self) -> Result<Vec<(Class, ClassCounters)>> {
        let all = self.dump(GET_CLASS, NEW_CLASS, &format!("read the classes of {}", self.device))?;
        let read = |bytes: &Vec<u8>| {
            let attributes = Attributes(bytes.get(TC..)?);
            if attributes.find(KIND)? != b"htb\0" {
                return None;
            }
            let parameters = Attributes(attributes.find(OPTIONS)?).find(HTB_PARAMETERS)?;
            let (rate, ceil) = (word(parameters, 8)?.into(), word(parameters, 20)?.into());
            let class = Class { parent: word(bytes, 12)?, id: word(bytes, 8)?, rate, ceil };
            // struct tc_stats: bytes, packets, drops.
            let sent = attributes.find(STATISTICS).and_then(|all| {
                let bytes = u64::from_ne_bytes(all.get(..8)?.try_into().ok()?);
                Some(ClassCounters { bytes, dropped: word(all, 12)? })
            });
            Some((class, sent.unwrap_or_default()))
        };
        Ok(all.iter().filter_map(read).collect())
    }

    /// Makes a hierarchical token bucket the device's root discipline. Replaces one that the kernel has created.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_bucket(&self, handle: u32, default_class: u32) -> Result<()> {
        let mut options = Message::default();
        let words = [3, 10, default_class, 0, 0];
        options.attribute(HTB_START, &words.map(u32::to_ne_bytes).concat());
        self.change(NEW_QDISC, REPLACE, [handle, ROOT], "htb", &options.0, || {
            format!("make htb the first discipline of {}", self.device)
        })
    }

    /// Creates a queue of `bytes` for a class: `bfifo`, or `fq_codel` or `cake`, which are fair between connections.
    ///
    /// # Errors
    /// The kernel's; `NOENT` if it does not support that kind.
    pub fn make_queue(&self, kind: &str, parent: u32, handle: u32, bytes: u32) -> Result<()> {
        let mut options = Message::default();
        match memory(kind) {
            Some(memory) => options.attribute(memory, &bytes.to_ne_bytes()),
            None => options.0.extend(bytes.to_ne_bytes()),
        }
        self.change(NEW_QDISC, CREATE_NEW, [handle, parent], kind, &options.0, || {
            format!("make a {kind} of {bytes} bytes for class {parent:x} of {}", self.device)
        })
    }

    /// Removes a discipline, with everything below it. For the root discipline, the kernel restores its default.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_discipline(&self, parent: u32, handle: u32) -> Result<()> {
        self.change(DELETE_QDISC, 0, [handle, parent], "", &[], || {
            format!("remove discipline {:x}: of {}", handle >> 16, self.device)
        })
    }

    /// Creates a class, or changes its rates.
    ///
    /// # Errors
    /// The kernel's; `RANGE` for a rate of 4 GiB/s or more.
    pub fn make_class(&self, class: &Class) -> Result<()> {
        let doing = || format!("make class {:x} of {}", class.id, self.device);
        let range = |_| Error { doing: doing(), errno: Errno::RANGE };
        let (rate, ceil) = (u32::try_from(class.rate).map_err(range)?, u32::try_from(class.ceil).map_err(range)?);
        // struct tc_htb_opt: two struct tc_ratespec, then buffer, cbuffer, quantum, level, prio.
        let spec = |rate: u32| [[0, LINK_LAYER, 0, 0], [0, 0, 0, 0], rate.to_ne_bytes()].concat();
        let mut parameters = spec(rate);
        parameters.extend(spec(ceil));
        let numbers = [burst(class.rate), burst(class.ceil), QUANTUM, 0, 0];
        parameters.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        let mut options = Message::default();
        options.attribute(HTB_PARAMETERS, &parameters);
        self.change(NEW_CLASS, 0x400, [class.id, class.parent], "htb", &options.0, doing)
    }

    /// Removes a class without child classes, with its queue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_class(&self, id: u32) -> Result<()> {
        self.change(DELETE_CLASS, 0, [id, 0], "", &[], || format!("remove class {id:x} of {}", self.device))
    }

    fn change(
        &self,
        what: u16,
        flags: u16,
        [handle, parent]: [u32; 2],
        kind: &str,
        options: &[u8],
        doing: impl Fn() -> String,
    ) -> Result<()> {
        let mut message = Message::new(what, REQUEST | ACK | flags, self.index, handle, parent);
        if !kind.is_empty() {
            message.attribute(KIND, &[kind.as_bytes(), &[0]].concat());
            message.attribute(OPTIONS, options);
        }
        send(&self.socket, &message.done(), SendFlags::empty()).doing(&doing)?;
        self.hear(&doing(), |_, _| ())
    }

    fn dump(&self, what: u16, answer: u16, doing: &str) -> Result<Vec<Vec<u8>>> {
        let message = Message::new(what, REQUEST | DUMP, self.index, 0, 0);
        send(&self.socket, &message.done(), SendFlags::empty()).doing(|| doing.to_owned())?;
        let mut all = Vec::new();
        self.hear(doing, |kind, body| {
            // A dump contains the disciplines of all devices.
            if kind == answer && word(body, 4) == u32::try_from(self.index).ok() {
                all.push(body.to_vec());
            }
        })?;
        Ok(all)
    }

    /// Receives answers up to the last one.
    fn hear(&self, doing: &str, mut each: impl FnMut(u16, &[u8])) -> Result<()> {
        let mut bytes = vec![0; DATAGRAM];
        loop {
            let (length, _) = recv(&self.socket, &mut bytes[..], RecvFlags::empty()).doing(|| doing.to_owned())?;
            let mut rest = &bytes[..length];
            while let (Some(length), Some(kind)) = (word(rest, 0), half(rest, 4)) {
                let length = length as usize;
                let Some(body) = rest.get(HEADER..length) else { break };
                match kind {
                    DONE => return Ok(()),
                    ERROR => {
                        let code = word(body, 0).unwrap_or(0).cast_signed();
                        let errno = match code.wrapping_neg() {
                            0 => return Ok(()),
                            code @ 1..=4095 => Errno::from_raw_os_error(code),
                            _ => Errno::PROTO,
                        };
                        return Err(Error { doing: doing.to_owned(), errno });
                    }
                    kind => each(kind, body),
                }
                rest = rest.get(padded(length)..).unwrap_or_default();
            }
        }
    }
}

/// The attribute for the maximum memory of packets of this kind.
fn memory(kind: &str) -> Option<u16> {
    match kind {
        "fq_codel" => Some(FQ_CODEL_MEMORY),
        "cake" => Some(CAKE_MEMORY),
        _ => None,
    }
}

/// Time to send a burst at a rate, in the kernel's ticks of 64 ns. The burst is the data of one timer period (4 ms)
/// plus one packet.
fn burst(rate: u64) -> u32 {
    let bytes = rate / 250 + PACKET;
    let ticks = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1)) / 64;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Bytes of a message, or of a nested attribute.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn new(what: u16, flags: u16, index: i32, handle: u32, parent: u32) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&what.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        // struct tcmsg: family and padding, device, handle, parent, info.
        let words = [0, index.cast_unsigned(), handle, parent, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        Self(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = 4 + value.len();
        self.0.extend((length as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(padded(self.0.len()), 0);
    }

    fn done(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// A sequence of attributes.
#[derive(Clone, Copy)]
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn find(self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = self.0;
        while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
            let length = usize::from(length);
            let value = rest.get(4..length)?;
            // The two highest bits are flags.
            if kind & 0x3fff == wanted {
                return Some(value);
            }
            rest = rest.get(padded(length)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_malformed_ones_are_not() {
        let mut message = Message::default();
        message.attribute(1, b"htb\0");
        message.attribute(2, &[7; 5]);
        message.attribute(3, &[]);
        let all = Attributes(&message.0);
        assert_eq!(
            (all.find(1), all.find(2), all.find(3), all.find(4)),
            (Some(&b"htb\0"[..]), Some(&[7; 5][..]), Some(&[][..]), None)
        );
        for bytes in [&[][..], &[0; 4], &[3, 0, 1, 0], &[200, 0, 9, 0, 1], &[255; 7]] {
            assert_eq!(Attributes(bytes).find(5), None, "{bytes:?}");
        }
    }

    #[test]
    fn disciplines_of_the_loopback_device_are_read_and_a_missing_device_is_an_error() {
        let lo = Traffic::of("lo").unwrap();
        assert!(lo.disciplines().unwrap().iter().all(|one| !one.kind.is_empty()));
        assert!(lo.classes().is_ok());
        assert_eq!(Traffic::of("no-such-device").unwrap_err().errno, Errno::NODEV);
    }

    #[test]
    fn a_burst_holds_a_packet_at_each_rate() {
        for rate in [1000, 125_000, 12_500_000, u64::from(u32::MAX)] {
            let bytes = u128::from(burst(rate)) * 64 * u128::from(rate) / 1_000_000_000;
            assert!(bytes + u128::from(rate / 1_000_000 + 1) * 64 >= u128::from(PACKET), "{rate}: {bytes}");
        }
    }
}
