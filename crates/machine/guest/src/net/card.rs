//! The host's end of a guest's network card: passes frames within the rate limit, and reports connections that no rule
//! allows.

use super::rule::Rule;
use super::{GATEWAY, MASK_BITS};
use base::{DurNs, MonoNs, Size};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Address, Ipv4Cidr, Ipv4Packet, TcpPacket, UdpPacket,
};
use std::io;
use std::os::unix::net::UnixDatagram;

/// Longest Ethernet frame without its checksum, in bytes.
const FRAME_BYTES: usize = 1514;
/// Maximum frames per pass.
const FRAMES: u32 = 64;
/// Burst: traffic of this duration at the rate limit may pass at once.
const BURST: DurNs = DurNs::from_ms(50);
/// Maximum different refused destinations that are reported.
const REFUSED_MAX: usize = 16;

/// Token bucket of the rate limit.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Bytes per second; `None` is unlimited.
    rate: Option<u64>,
    left: i64,
    at: MonoNs,
}

impl Bucket {
    pub(super) fn new(rate: Option<Size>, now: MonoNs) -> Self {
        Self { rate: rate.map(|rate| rate.0), left: FRAME_BYTES as i64, at: now }
    }

    fn bytes(rate: u64, span: DurNs) -> i64 {
        let bytes = u128::from(rate) * u128::from(span.0.max(0).unsigned_abs()) / 1_000_000_000;
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    fn fill(&mut self, now: MonoNs) {
        let Some(rate) = self.rate else { return };
        let more = Self::bytes(rate, now - self.at);
        let most = Self::bytes(rate, BURST).max(2 * FRAME_BYTES as i64);
        if self.left.saturating_add(more) >= most {
            (self.left, self.at) = (most, now);
        } else {
            self.left += more;
            // The remaining fraction of a byte counts next time.
            let ns = u128::from(more.unsigned_abs()) * 1_000_000_000 / u128::from(rate.max(1));
            self.at = self.at + DurNs(i64::try_from(ns).unwrap_or(i64::MAX));
        }
    }

    /// Whether a frame may pass. A frame larger than the remaining bytes may pass, but delays the next ones.
    pub(super) fn is_open(&self) -> bool {
        self.rate.is_none() || self.left > 0
    }

    fn take(&mut self, bytes: usize) {
        if self.rate.is_some() {
            self.left = self.left.saturating_sub(bytes as i64);
        }
    }

    /// Time until a frame may pass.
    pub(super) fn wait(&self) -> DurNs {
        match self.rate {
            Some(rate) if self.left <= 0 => {
                let ns = (1 - self.left).unsigned_abs().saturating_mul(1_000_000_000) / rate.max(1);
                DurNs(i64::try_from(ns).unwrap_or(i64::MAX)).min(DurNs::from_secs(1)).max(DurNs::from_us(100))
            }
            _ => DurNs::ZERO,
        }
    }
}

/// The host's end of the card.
pub(super) struct Card {
    pub(super) socket: UnixDatagram,
    pub(super) bucket: Bucket,
    /// Whether QEMU closed its end.
    pub(super) gone: bool,
    left: u32,
    allowed: Vec<Rule>,
    refused: Vec<(IpProtocol, Ipv4Address, u16)>,
    /// Refused connections that were not reported yet.
    pub(super) wanted: Vec<String>,
}

impl Card {
    pub(super) fn new(socket: UnixDatagram, bucket: Bucket, allowed: Vec<Rule>) -> Self {
        Self { socket, bucket, gone: false, left: 0, allowed, refused: Vec::new(), wanted: Vec::new() }
    }

    /// Begins another pass.
    pub(super) fn turn(&mut self, now: MonoNs) {
        self.left = FRAMES;
        self.bucket.fill(now);
    }

    /// Records a connection that no rule allows. The stack refuses it, because no socket listens on that port.
    fn note(&mut self, frame: &[u8]) {
        let Some((protocol, to, port)) = wish(frame) else { return };
        let udp = protocol == IpProtocol::Udp;
        let is_allowed = to == GATEWAY && self.allowed.iter().any(|rule| rule.udp == udp && rule.port == port);
        if is_allowed || self.refused.len() == REFUSED_MAX || self.refused.contains(&(protocol, to, port)) {
            return;
        }
        self.refused.push((protocol, to, port));
        let more = if self.refused.len() == REFUSED_MAX { "; further ones are not reported" } else { "" };
        let how = if udp { "udp" } else { "tcp" };
        self.wanted.push(format!("the guest wants {how} {to}:{port}, which `allow` does not name{more}"));
    }
}

/// Destination of a frame that opens a connection or sends a datagram; `None` for broadcast and multicast.
fn wish(frame: &[u8]) -> Option<(IpProtocol, Ipv4Address, u16)> {
    let frame = EthernetFrame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EthernetProtocol::Ipv4)?;
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let (to, protocol) = (packet.dst_addr(), packet.next_header());
    let everybody = Ipv4Cidr::new(GATEWAY, MASK_BITS).broadcast();
    if to.is_broadcast() || to.is_multicast() || everybody == Some(to) {
        return None;
    }
    let port = match protocol {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
            (tcp.syn() && !tcp.ack()).then(|| tcp.dst_port())?
        }
        IpProtocol::Udp => {
            UdpPacket::new_checked(packet.payload()).ok().map(|udp| udp.dst_port()).filter(|port| *port != 67)?
        }
        _ => return None,
    };
    Some((protocol, to, port))
}

/// A frame from the guest.
pub(super) struct GuestFrame(Vec<u8>);

/// Permission to send one frame to the guest.
pub(super) struct Room<'a> {
    socket: &'a UnixDatagram,
    bucket: &'a mut Bucket,
}

impl RxToken for GuestFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        // A frame that the card does not accept is lost, as on a wire.
        let _ = self.socket.send(&frame);
        self.bucket.take(len);
        result
    }
}

impl Device for Card {
    type RxToken<'a> = GuestFrame;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(GuestFrame, Room<'_>)> {
        if self.left == 0 || !self.bucket.is_open() {
            return None;
        }
        let mut bytes = [0; 2048];
        match self.socket.recv(&mut bytes) {
            Ok(count) => {
                self.left -= 1;
                self.bucket.take(count);
                self.note(&bytes[..count]);
                Some((GuestFrame(bytes[..count].to_vec()), Room { socket: &self.socket, bucket: &mut self.bucket }))
            }
            Err(error) => {
                self.gone |= !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                None
            }
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        self.bucket.is_open().then_some(Room { socket: &self.socket, bucket: &mut self.bucket })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut about = DeviceCapabilities::default();
        about.medium = Medium::Ethernet;
        about.max_transmission_unit = FRAME_BYTES;
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_many_bytes_pass_in_a_second_as_the_rate_allows_at_any_polling_interval() {
        let mut now = MonoNs(0);
        let mut bucket = Bucket::new(Some(Size(1 << 20)), now);
        let mut passed = 0;
        while now < MonoNs(0) + DurNs::from_secs(1) {
            bucket.fill(now);
            if bucket.is_open() {
                bucket.take(1514);
                passed += 1514;
            }
            now = now + DurNs(777);
        }
        assert!((passed as i64 - (1 << 20)).abs() < 4 * 1514, "{passed}");
        assert_eq!(Bucket::new(None, now).wait(), DurNs::ZERO);
    }

    #[test]
    fn a_frame_larger_than_the_remaining_allowance_delays_the_next_one() {
        let mut bucket = Bucket::new(Some(Size(10_000)), MonoNs(0));
        bucket.take(2514);
        assert!(!bucket.is_open());
        assert_eq!(bucket.wait(), DurNs(100_100_000));
    }

    proptest! {
        #[test]
        fn no_frame_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), ip in any::<bool>()) {
            let mut bytes = bytes;
            if ip && bytes.len() > 24 {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[23] = if bytes[23] > 127 { 6 } else { 17 };
            }
            let _ = wish(&bytes);
        }
    }
}
