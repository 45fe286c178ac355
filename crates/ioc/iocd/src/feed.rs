//! Delivery of values and interrupts from device threads to records, through bounded rings.
//!
//! A device support that waits for something (a socket, a serial line, another loop) uses a separate thread with a
//! [`Feeder`]. Its records listen to a source ([`db::Db::listen`]) and are processed by the thread that owns them. See
//! `docs/how-to/feed-records-from-a-thread.md`.

use db::{Db, DeviceSample, RecId, SourceId};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Maximum number of deliveries of one feeder taken in a row, before scans are served.
const TAKE_MAX: usize = 256;

/// An item of a feeder.
#[derive(Clone, Debug, PartialEq)]
enum Delivery {
    Value(SourceId, DeviceSample),
    Interrupt(SourceId),
    /// New value of a single record's device.
    Record(RecId, DeviceSample),
    /// Answer that a record waits for.
    Answer(RecId, DeviceSample),
    /// Initial value of an output.
    Start(RecId, DeviceSample),
    /// Value of an output after a connect.
    Refresh(RecId, DeviceSample),
}

/// The device thread's end of a ring.
///
/// Overflow rule: a full ring refuses new deliveries and counts them; nothing is overwritten.
pub struct Feeder {
    deliveries: Producer<Delivery>,
    spent: Consumer<DeviceSample>,
    wake: Box<dyn Fn() + Send>,
    /// Number of deliveries refused because the owner of the records was too slow.
    pub refused: u64,
}

/// The end of the owner of the records.
pub(crate) struct Feed {
    deliveries: Consumer<Delivery>,
    spent: Producer<DeviceSample>,
}

/// Creates a ring for at most `bound` deliveries. `wake` makes the owner check it.
pub(crate) fn ring(bound: usize, wake: Box<dyn Fn() + Send>) -> (Feeder, Feed) {
    let (deliveries, taken) = RingBuffer::new(bound);
    // The return ring is as large, so that the owner always has room for the value that it returns for each delivery.
    let (back, spent) = RingBuffer::new(bound + 1);
    (Feeder { deliveries, spent, wake, refused: 0 }, Feed { deliveries: taken, spent: back })
}

impl Feeder {
    /// Delivers a new value of a source. Its I/O Intr records are processed soon. Returns whether the ring had room.
    ///
    /// Neither blocks nor allocates beyond the value. Frees the values returned by the records.
    pub fn feed_or_refuse(&mut self, source: SourceId, fed: DeviceSample) -> bool {
        self.push(Delivery::Value(source, fed))
    }

    /// Delivers an interrupt of a source without a value. Returns whether the ring had room.
    pub fn interrupt_or_refuse(&mut self, source: SourceId) -> bool {
        self.push(Delivery::Interrupt(source))
    }

    /// Delivers a new value of a single record's device. Returns whether the ring had room.
    pub fn feed_record_or_refuse(&mut self, record: RecId, fed: DeviceSample) -> bool {
        self.push(Delivery::Record(record, fed))
    }

    /// Delivers the initial value of an output record ([`Db::start_with`]). Returns whether the ring had room.
    pub fn start_or_refuse(&mut self, record: RecId, fed: DeviceSample) -> bool {
        self.push(Delivery::Start(record, fed))
    }

    /// Delivers the value of an output record after a connect ([`Db::refresh_with`]). Returns whether the ring had room.
    pub fn refresh_or_refuse(&mut self, record: RecId, fed: DeviceSample) -> bool {
        self.push(Delivery::Refresh(record, fed))
    }

    /// Answers the request that a record waits for. Returns the answer as an error if the ring has no room. The caller must
    /// retry then, because the record waits for it.
    ///
    /// # Errors
    /// The answer.
    pub fn answer_or_refuse(&mut self, record: RecId, fed: DeviceSample) -> Result<(), DeviceSample> {
        self.tidy();
        match self.deliveries.push(Delivery::Answer(record, fed)) {
            Ok(()) => {
                (self.wake)();
                Ok(())
            }
            Err(PushError::Full(Delivery::Answer(_, fed))) => Err(fed),
            Err(PushError::Full(_)) => Ok(()),
        }
    }

    /// A value returned by the records, whose memory can be reused.
    pub fn spent(&mut self) -> Option<DeviceSample> {
        self.spent.pop().ok()
    }

    /// Frees returned values on this thread if they were not reused.
    fn tidy(&mut self) {
        while self.spent.slots() > self.spent.buffer().capacity() / 2 {
            drop(self.spent.pop());
        }
    }

    fn push(&mut self, delivery: Delivery) -> bool {
        self.tidy();
        let taken = self.deliveries.push(delivery).is_ok();
        self.refused += u64::from(!taken);
        if taken {
            (self.wake)();
        }
        taken
    }
}

impl Feed {
    /// Delivers items to the records, a bounded number. Returns whether there are more. An item stays in the ring if there is
    /// no room to return its previous value.
    ///
    /// Real-time: neither blocks nor allocates nor frees.
    pub(crate) fn take(&mut self, db: &mut Db) -> bool {
        for _ in 0..TAKE_MAX {
            if self.spent.is_full() {
                return false;
            }
            let Ok(delivery) = self.deliveries.pop() else { return false };
            let before = match delivery {
                Delivery::Interrupt(source) => {
                    db.interrupt(source);
                    None
                }
                Delivery::Value(source, fed) => db.feed(source, fed),
                Delivery::Record(record, fed) => db.feed_record(record, fed),
                Delivery::Answer(record, fed) => db.complete(record, fed),
                Delivery::Start(record, fed) => db.start_with(record, fed),
                Delivery::Refresh(record, fed) => db.refresh_with(record, fed),
            };
            if let Some(before) = before {
                // The push succeeds, because the free room was checked above and this is the only producer.
                let _ = self.spent.push(before);
            }
        }
        !self.deliveries.is_empty()
    }

    /// Whether the feeder was dropped and the ring is empty.
    pub(crate) fn is_over(&self) -> bool {
        self.deliveries.is_abandoned() && self.deliveries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{MonoNs, Stamp, Value};
    use db::{Macros, Now};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn fed(value: f64) -> DeviceSample {
        DeviceSample::good(Value::from(value), Stamp::EPOCH)
    }

    fn database() -> (Db, SourceId) {
        let mut db = Db::new();
        db.load_records("record(ai, \"a\") {}", "test.db", &Macros::default(), &mut |_| None).unwrap();
        db.init(Now::default());
        let source = db.source("line");
        let a = db.find("a.SCAN").unwrap();
        db.listen(a.record, Some(source));
        db.put(&a, &Value::from("I/O Intr"), Now::default()).unwrap();
        (db, source)
    }

    #[test]
    fn a_full_ring_refuses_and_counts_and_every_delivery_wakes_the_reader() {
        let (_, source) = database();
        let woken = Arc::new(AtomicU32::new(0));
        let count = woken.clone();
        let (mut feeder, _feed) = ring(
            2,
            Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }),
        );
        let taken: Vec<bool> = (0..4).map(|value| feeder.feed_or_refuse(source, fed(value.into()))).collect();
        assert_eq!((taken, feeder.refused), (vec![true, true, false, false], 2));
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn values_reach_the_records_and_their_memory_is_returned() {
        let (mut db, source) = database();
        let (mut feeder, mut feed) = ring(8, Box::new(|| {}));
        assert!(feeder.feed_or_refuse(source, fed(1.0)) && feeder.feed_or_refuse(source, fed(2.0)));
        assert!(!feed.take(&mut db));
        let now = Now { mono: MonoNs(1), ..Now::default() };
        assert_eq!(db.advance(now, 10), 2);
        let record = db.find("a").unwrap().record;
        assert_eq!(db.fed(record), Some(&fed(2.0)));
        assert_eq!((feeder.spent(), feeder.spent()), (Some(fed(1.0)), None));
        assert!(feeder.interrupt_or_refuse(source));
        drop(feeder);
        assert!(!feed.is_over());
        feed.take(&mut db);
        assert!(feed.is_over());
    }
}
