//! `tahti demo camera` and `tahti demo sorter`: a packaging line. A camera sends images, and a real-time loop decides
//! which items to reject.

use crate::failure::Failure;
use base::{DurNs, MonoNs, Policy};
use bench::looprun;
use rt::{Flow, LoopSpec, SharedPage};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use sys::clock::{mono_now, sleep_until};

/// Width and height of an image in pixels, one byte each.
const SIDE: usize = 490;
const PIXELS: usize = SIDE * SIDE;
/// Bytes of the header in front of each datagram's pixels.
const HEAD: usize = 32;
const MAGIC: &[u8; 8] = b"tahticam";
const PART: usize = 1225;
const PARTS: usize = PIXELS / PART;
/// Datagrams per millisecond: 10 give 100 Mbit/s, 51 images per second.
const AT_ONCE: usize = 10;
/// Maximum time from the last part of an image to the decision.
const DEADLINE: DurNs = DurNs::from_ms(5);
/// Width and height of a flaw, a square of bright pixels.
const FLAW: usize = 10;
const BRIGHT: u8 = 200;
/// Minimum number of bright pixels that counts as a flaw.
const FLAW_PIXELS: u32 = 50;
/// One item in this many has a flaw.
const EVERY: u64 = 7;
/// Maximum number of datagrams that the loop reads per cycle, several times the rate of arrival.
const TAKEN_MAX: usize = 64;

/// Simulated camera: 51 images per second, 100 Mbit/s of UDP
#[derive(clap::Args)]
pub(crate) struct CameraArgs {
    /// Target of the images
    #[arg(long, default_value = "127.0.0.1:8901")]
    to: SocketAddr,
}

/// Real-time loop that sorts each image within 5 ms, with counts by HTTP
#[derive(clap::Args)]
pub(crate) struct SorterArgs {
    /// Address of the images
    #[arg(long, default_value = "127.0.0.1:8901")]
    images: SocketAddr,
    /// HTTP address of the counts
    #[arg(long, default_value = "127.0.0.1:8900")]
    counts: SocketAddr,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
}

/// Sends images until the process is ended.
pub(crate) fn camera(args: &CameraArgs) -> Result<(), Failure> {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    println!("camera: {SIDE} x {SIDE} pixels, {PARTS} datagrams an image, to {}", args.to);
    let mut next = mono_now();
    let mut datagram = [0; HEAD + PART];
    for image in 0u64.. {
        for part in 0..PARTS {
            if part % AT_ONCE == 0 {
                next = (next + DurNs::from_ms(1)).max(mono_now());
                sleep_until(next);
            }
            fill(&mut datagram, image, part, mono_now());
            // Sending fails if no process listens; the camera continues.
            let _ = socket.send_to(&datagram, args.to);
        }
    }
    Ok(())
}

const fn is_flawed(image: u64) -> bool {
    image % EVERY == 3
}

fn fill(datagram: &mut [u8; HEAD + PART], image: u64, part: usize, now: MonoNs) {
    datagram[..8].copy_from_slice(MAGIC);
    datagram[8..16].copy_from_slice(&image.to_le_bytes());
    datagram[16..24].copy_from_slice(&now.0.to_le_bytes());
    datagram[24..26].copy_from_slice(&(part as u16).to_le_bytes());
    datagram[26] = is_flawed(image).into();
    // A pseudo-random place, the same in each run.
    let place = (image.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let (left, top) = (place % (SIDE - FLAW), place / SIDE % (SIDE - FLAW));
    for (index, pixel) in datagram[HEAD..].iter_mut().enumerate() {
        let (x, y) = ((part * PART + index) % SIDE, (part * PART + index) / SIDE);
        let in_flaw = is_flawed(image) && (left..left + FLAW).contains(&x) && (top..top + FLAW).contains(&y);
        *pixel = if in_flaw { 250 } else { 40 + ((x ^ y ^ place) & 63) as u8 };
    }
}

/// The decision about one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    reject: bool,
    /// Whether the decision matches the flaw that the camera drew.
    right: bool,
    took: DurNs,
}

/// The image being received. Allocates nothing.
#[derive(Default)]
struct Belt {
    image: u64,
    parts: usize,
    bright: u32,
    /// Images with missing parts.
    incomplete: u64,
}

impl Belt {
    /// Processes a datagram. Returns the decision if it completed an image. Ignores datagrams of another format.
    fn take(&mut self, datagram: &[u8], now: MonoNs) -> Option<Decision> {
        let (head, pixels) = datagram.split_at_checked(HEAD)?;
        if &head[..8] != MAGIC {
            return None;
        }
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        if word(8) != self.image {
            self.incomplete += u64::from(self.parts > 0);
            (self.image, self.parts, self.bright) = (word(8), 0, 0);
        }
        self.parts += 1;
        self.bright += pixels.iter().filter(|pixel| **pixel > BRIGHT).count() as u32;
        if self.parts < PARTS {
            return None;
        }
        let reject = self.bright >= FLAW_PIXELS;
        (self.parts, self.bright) = (0, 0);
        Some(Decision { reject, right: reject == (head[26] == 1), took: now - MonoNs(word(16)) })
    }
}

/// Counters of the loop, shared with the thread that serves them.
#[derive(Default)]
struct Counts {
    sorted: AtomicU64,
    rejected: AtomicU64,
    wrong: AtomicU64,
    late: AtomicU64,
    incomplete: AtomicU64,
    worst_us: AtomicU64,
}

impl Counts {
    /// Counts a decision. Real-time safe: a few atomic operations.
    fn add(&self, decision: Decision) {
        self.sorted.fetch_add(1, Relaxed);
        self.rejected.fetch_add(decision.reject.into(), Relaxed);
        self.wrong.fetch_add((!decision.right).into(), Relaxed);
        self.late.fetch_add((decision.took > DEADLINE).into(), Relaxed);
        self.worst_us.fetch_max((decision.took.0.max(0) / 1000).unsigned_abs(), Relaxed);
    }

    fn text(&self) -> String {
        let [sorted, rejected, wrong, late, incomplete, worst] =
            [&self.sorted, &self.rejected, &self.wrong, &self.late, &self.incomplete, &self.worst_us]
                .map(|count| count.load(Relaxed));
        format!(
            "sorted {sorted}, rejected {rejected}, wrong {wrong}, later than {DEADLINE} {late}, incomplete {incomplete}, \
             slowest decision {worst} us"
        )
    }
}

/// Runs the sorting loop until the process is ended.
pub(crate) fn sorter(args: &SorterArgs) -> Result<(), Failure> {
    let page = SharedPage::from_env_or_own("sorter")?;
    let images = UdpSocket::bind(args.images)?;
    images.set_nonblocking(true)?;
    let counts = Arc::new(Counts::default());
    let listener = TcpListener::bind(args.counts)?;
    let spec = LoopSpec::new("sorter", DurNs::from_ms(1));
    let mut belt = Belt::default();
    let mut datagram = [0; HEAD + PART];
    let shared = counts.clone();
    let body = move |_: &rt::Pulse| {
        for _ in 0..TAKEN_MAX {
            let Ok(length) = images.recv(&mut datagram) else { break };
            if let Some(decision) = belt.take(&datagram[..length], mono_now()) {
                shared.add(decision);
            }
        }
        shared.incomplete.store(belt.incomplete, Relaxed);
        Flow::Continue
    };
    let mut served = Ok(());
    let armed = |armed: &rt::Rt<rt::Armed>| {
        for missing in armed.missing() {
            println!("{missing}");
        }
        // Start this thread only now: signals must go to the thread that waits for them, so threads started from here
        // on have them blocked.
        served = serve(listener, counts.clone());
        println!("armed: 1 kHz, images at {}, counts at http://{}/", args.images, args.counts);
    };
    let finished = looprun::run(spec, &page, args.for_, body, armed, |_| ())?;
    println!("{}", looprun::verdict(&page.read(), &finished).join("\n"));
    println!("{}", counts.text());
    served
}

/// Answers each connection with the counts, from an ordinary (not real-time) thread.
fn serve(listener: TcpListener, counts: Arc<Counts>) -> Result<(), Failure> {
    let answer = move || {
        // Fails only if the thread is in the time-sharing class already.
        let _ = sys::sched::set_scheduling(0, sys::sched::Scheduling { policy: Policy::OTHER, reset_on_fork: false });
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            // Limits how long a silent client delays the others.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
            let _ = stream.read(&mut [0; 2048]);
            let text = counts.text();
            let _ = write!(
                stream,
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}\n",
                text.len() + 1
            );
        }
    };
    std::thread::Builder::new().name("counts".into()).spawn(answer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_is_judged_correctly_with_its_last_part() {
        let (mut belt, mut datagram) = (Belt::default(), [0; HEAD + PART]);
        for image in 0..2 * EVERY {
            let mut decided = None;
            for part in 0..PARTS {
                assert_eq!(decided, None);
                fill(&mut datagram, image, part, MonoNs(1000));
                decided = belt.take(&datagram, MonoNs(3000));
            }
            assert_eq!(decided, Some(Decision { reject: is_flawed(image), right: true, took: DurNs(2000) }));
        }
        assert_eq!(belt.incomplete, 0);
    }

    #[test]
    fn an_image_with_a_missing_part_is_counted_and_the_next_one_is_judged() {
        let (mut belt, mut datagram) = (Belt::default(), [0; HEAD + PART]);
        fill(&mut datagram, 5, 0, MonoNs(0));
        belt.take(&datagram, MonoNs(0));
        belt.take(b"anything else", MonoNs(0));
        let decided = (0..PARTS).filter_map(|part| {
            fill(&mut datagram, 6, part, MonoNs(0));
            belt.take(&datagram, MonoNs(0))
        });
        assert_eq!(decided.count(), 1);
        assert_eq!(belt.incomplete, 1);
    }
}
