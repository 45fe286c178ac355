//! The pace of reading from a device.

use base::{DurNs, MonoNs};

/// Bounds the work for a device that sends without end to a quarter of a CPU. Reads without a moment in which the device had
/// sent nothing are a pass. A pass ends after [`READS_MAX`] reads or [`PASS_MAX`] of work, and a pause of three times its work
/// follows. Meanwhile the kernel's buffer fills, and flow control stops the device if it supports it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    reads: usize,
    /// Time used for the reads of this pass, and for processing their bytes.
    work: DurNs,
    /// Start of the read whose bytes are being processed.
    working_since: Option<MonoNs>,
    pause_until: Option<MonoNs>,
}

/// Maximum reads in one pass.
const READS_MAX: usize = 16;
/// Work after which a pass ends at the next read.
const PASS_MAX: DurNs = DurNs::from_ms(10);
/// Ratio of a pause to the previous pass; the pause is at most [`PAUSE_MAX`].
const PAUSE_FACTOR: i64 = 3;
const PAUSE_MAX: DurNs = DurNs::from_secs(1);

impl Pace {
    /// End of the present pause; `None` if the device may be read. The bytes of the previous read are processed.
    pub(crate) fn pause_until(&mut self, now: MonoNs) -> Option<MonoNs> {
        self.processed(now);
        if self.reads >= READS_MAX || self.work >= PASS_MAX {
            self.pause_until = Some(now + DurNs((self.work.0 * PAUSE_FACTOR).min(PAUSE_MAX.0)));
            self.nothing_more();
        }
        self.pause_until = self.pause_until.filter(|until| *until > now);
        self.pause_until
    }

    /// Bytes are read now.
    pub(crate) fn read(&mut self, now: MonoNs) {
        self.reads += 1;
        self.working_since = Some(now);
    }

    /// The bytes of the previous read are processed.
    pub(crate) fn processed(&mut self, now: MonoNs) {
        if let Some(since) = self.working_since.take() {
            self.work.0 += (now - since).0;
        }
    }

    /// The device had sent nothing more: the pass is over.
    pub(crate) fn nothing_more(&mut self) {
        (self.reads, self.work, self.working_since) = (0, DurNs(0), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    #[test]
    fn after_16_reads_in_a_row_a_pause_is_three_times_as_long_as_their_work() {
        let mut pace = Pace::default();
        for read in 0..16 {
            assert_eq!(pace.pause_until(ms(20 * read)), None);
            pace.read(ms(20 * read));
            pace.processed(ms(20 * read) + DurNs::from_us(500));
        }
        assert_eq!(pace.pause_until(ms(400)), Some(ms(424)), "8 ms of work");
        assert_eq!(pace.pause_until(ms(423)), Some(ms(424)));
        assert_eq!(pace.pause_until(ms(424)), None);
    }

    #[test]
    fn a_read_whose_bytes_take_long_to_process_is_a_pass_and_its_pause_is_at_most_a_second() {
        let mut pace = Pace::default();
        pace.read(ms(0));
        assert_eq!(pace.pause_until(ms(9)), None);
        pace.read(ms(9));
        assert_eq!(pace.pause_until(ms(100)), Some(ms(400)));
        pace.read(ms(1_000));
        assert_eq!(pace.pause_until(ms(2_000)), Some(ms(3_000)));
    }

    #[test]
    fn a_device_that_stops_now_and_then_is_read_without_pauses() {
        let mut pace = Pace::default();
        for read in 0..100 {
            assert_eq!(pace.pause_until(ms(read)), None);
            pace.read(ms(read));
            if read % 5 == 4 {
                pace.nothing_more();
            }
        }
    }
}
