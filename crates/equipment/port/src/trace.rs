//! Traffic trace of a port: sent and received bytes and connection errors, with the masks of EPICS asyn.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::clock::{local_text, wall_ns};

/// Errors of the connection.
pub const ERROR: u32 = 1;
/// Values of device supports.
pub const DEVICE: u32 = 2;
/// Messages of the layer above the driver.
pub const FILTER: u32 = 4;
/// Bytes that are sent and received.
pub const DRIVER: u32 = 8;

const IO_ASCII: u32 = 1;
const IO_ESCAPE: u32 = 2;
const IO_HEX: u32 = 4;
const INFO_TIME: u32 = 1;
const INFO_PORT: u32 = 2;
const INFO_THREAD: u32 = 8;
/// Bytes in one line of hexadecimal output.
const HEX_LINE: usize = 20;

/// Output of a trace.
#[derive(Debug, Default)]
enum Sink {
    #[default]
    Stderr,
    Stdout,
    File(File),
}

/// Settings of a port's trace. It can be changed while the port runs.
#[derive(Debug)]
pub struct Trace {
    mask: AtomicU32,
    io: AtomicU32,
    info: AtomicU32,
    truncate: AtomicUsize,
    sink: Mutex<Arc<Mutex<Sink>>>,
}

impl Default for Trace {
    /// Nothing is traced; lines have their time; at most 80 bytes of a message are printed.
    fn default() -> Self {
        Self {
            mask: AtomicU32::new(0),
            io: AtomicU32::new(0),
            info: AtomicU32::new(INFO_TIME),
            truncate: AtomicUsize::new(80),
            sink: Mutex::default(),
        }
    }
}

/// A panic while the lock is held cannot leave the output inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trace {
    /// A trace with the same settings and output.
    #[must_use]
    pub fn copied(&self) -> Self {
        let load = |from: &AtomicU32| AtomicU32::new(from.load(Ordering::Relaxed));
        Self {
            mask: load(&self.mask),
            io: load(&self.io),
            info: load(&self.info),
            truncate: AtomicUsize::new(self.truncate.load(Ordering::Relaxed)),
            sink: Mutex::new(lock(&self.sink).clone()),
        }
    }

    /// Sets what is traced: a sum of [`ERROR`], [`DEVICE`], [`FILTER`] and [`DRIVER`].
    pub fn set_mask(&self, mask: u32) {
        self.mask.store(mask, Ordering::Relaxed);
    }

    /// The traced subjects: a sum of [`ERROR`], [`DEVICE`], [`FILTER`] and [`DRIVER`].
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Sets how bytes are printed: 1 unchanged, 2 with escapes, 4 hexadecimal; 0 not at all.
    pub fn set_io(&self, io: u32) {
        self.io.store(io, Ordering::Relaxed);
    }

    /// Format of printed bytes: 1 unchanged, 2 with escapes, 4 hexadecimal; 0 not at all.
    #[must_use]
    pub fn io(&self) -> u32 {
        self.io.load(Ordering::Relaxed)
    }

    /// Fields at the start of a line, a sum: 1 time, 2 port, 8 thread.
    #[must_use]
    pub fn info(&self) -> u32 {
        self.info.load(Ordering::Relaxed)
    }

    /// Maximum number of bytes that are printed of one message.
    #[must_use]
    pub fn truncate(&self) -> usize {
        self.truncate.load(Ordering::Relaxed)
    }

    /// Sets the fields at the start of a line, a sum: 1 time, 2 port, 8 thread.
    pub fn set_info(&self, info: u32) {
        self.info.store(info, Ordering::Relaxed);
    }

    /// Sets the maximum number of bytes that are printed of one message.
    pub fn set_truncate(&self, bytes: usize) {
        self.truncate.store(bytes, Ordering::Relaxed);
    }

    /// Sets the output: an empty text or `stderr`, `stdout`, or a file that is created.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn set_file(&self, path: &str) -> io::Result<()> {
        let sink = match path {
            "" | "stderr" => Sink::Stderr,
            "stdout" => Sink::Stdout,
            path => Sink::File(File::create(path)?),
        };
        *lock(&self.sink) = Arc::new(Mutex::new(sink));
        Ok(())
    }

    /// Whether one of the kinds in `mask` is traced.
    #[must_use]
    pub fn traces(&self, mask: u32) -> bool {
        self.mask() & mask != 0
    }

    /// Prints a message of a port, and bytes. The caller checks [`traces`](Self::traces).
    pub fn print(&self, port: &str, message: fmt::Arguments<'_>, bytes: &[u8]) {
        let text = self.text(wall_ns(), port, message, bytes);
        let sink = lock(&self.sink).clone();
        // If the output has gone, the trace is lost; the port continues.
        let _ = match &mut *lock(&sink) {
            Sink::Stderr => io::stderr().write_all(&text),
            Sink::Stdout => io::stdout().write_all(&text),
            Sink::File(file) => file.write_all(&text),
        };
    }

    fn text(&self, wall: u64, port: &str, message: fmt::Arguments<'_>, bytes: &[u8]) -> Vec<u8> {
        let info = self.info.load(Ordering::Relaxed);
        let mut head = String::new();
        if info & INFO_TIME != 0 {
            let mut out = [0; 64];
            let len = local_text(wall / 1_000_000_000, "%Y/%m/%d %H:%M:%S", &mut out).unwrap_or_default();
            let _ = write!(head, "{}.{:03} ", String::from_utf8_lossy(&out[..len]), wall / 1_000_000 % 1_000);
        }
        if info & INFO_PORT != 0 {
            let _ = write!(head, "[{port},0,0] ");
        }
        if info & INFO_THREAD != 0 {
            let _ = write!(head, "[{}] ", std::thread::current().name().unwrap_or_default());
        }
        let mut text = format!("{head}{message}\n").into_bytes();
        let shown = &bytes[..bytes.len().min(self.truncate.load(Ordering::Relaxed))];
        let io = self.io.load(Ordering::Relaxed);
        if shown.is_empty() {
            return text;
        }
        if io & IO_HEX != 0 {
            for line in shown.chunks(HEX_LINE) {
                let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x} ")).collect();
                text.extend(digits.concat().bytes().chain(*b"\n"));
            }
        } else if io & IO_ESCAPE != 0 {
            text.extend(shown.escape_ascii().chain(*b"\n"));
        } else if io & IO_ASCII != 0 {
            text.extend(shown.iter().chain(b"\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_forms_of_asyn() {
        let trace = Trace::default();
        assert!(!trace.traces(ERROR | DRIVER));
        trace.set_mask(DRIVER);
        assert!(trace.traces(DRIVER) && !trace.traces(ERROR));
        trace.set_info(INFO_PORT);
        let text = || String::from_utf8(trace.text(0, "L0", format_args!("write"), b"ab\r\n\x01")).unwrap();
        assert_eq!(text(), "[L0,0,0] write\n");
        trace.set_io(IO_ASCII);
        assert_eq!(text(), "[L0,0,0] write\nab\r\n\x01\n");
        trace.set_io(IO_ESCAPE);
        assert_eq!(text(), "[L0,0,0] write\nab\\r\\n\\x01\n");
        trace.set_io(IO_HEX);
        assert_eq!(text(), "[L0,0,0] write\n61 62 0d 0a 01 \n");
        trace.set_truncate(2);
        assert_eq!(text(), "[L0,0,0] write\n61 62 \n");
        trace.set_info(INFO_TIME);
        let time = text();
        assert!(time.starts_with("19") && time.contains(".000 write\n"), "{time}");
        let copy = trace.copied();
        assert_eq!((copy.mask(), copy.io.load(Ordering::Relaxed)), (DRIVER, IO_HEX));
    }
}
