//! Every order in which two threads may see each other's writes, tried by loom:
//! `RUSTFLAGS="--cfg loom" cargo test --package ring --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use ring::{AtomicU64, Latest, Queue, Stream, Trail};

fn words(count: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

#[test]
fn a_queue_delivers_each_item_once_whole_and_in_order() {
    loom::model(|| {
        let words = words(Queue::<2>::words_for(2));
        Queue::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let mut producer = Queue::<2>::attach(&mine).unwrap().producer();
            (1..=3u64).filter(|&item| producer.push_or_refuse([item, item * 10])).collect::<Vec<_>>()
        });
        let mut consumer = Queue::<2>::attach(&words).unwrap().consumer();
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(consumer.pop());
        }
        let sent = writer.join().unwrap();
        while let Some(item) = consumer.pop() {
            seen.push(item);
        }
        assert!(seen.iter().all(|[item, ten]| *ten == item * 10), "torn: {seen:?}");
        assert_eq!(seen.iter().map(|item| item[0]).collect::<Vec<_>>(), sent);
        assert_eq!(consumer.queue().refused() as usize, 3 - sent.len());
        assert_eq!(consumer.queue().resyncs(), 0);
    });
}

#[test]
fn a_cell_is_never_seen_half_written() {
    loom::model(|| {
        let words = words(Latest::<2>::WORDS);
        Latest::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let cell = Latest::<2>::attach(&mine).unwrap();
            cell.set_replace([1, 10]);
            cell.set_replace([2, 20]);
        });
        let cell = Latest::<2>::attach(&words).unwrap();
        if let Some((count, [one, ten])) = cell.get() {
            assert_eq!((one, ten), (count, count * 10));
        }
        writer.join().unwrap();
        assert_eq!(cell.get(), Some((2, [2, 20])));
    });
}

#[test]
fn a_trail_shows_whole_items_and_counts_what_it_lost() {
    loom::model(|| {
        let words = words(Trail::<2>::words_for(2));
        Trail::<2>::format(&words).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let trail = Trail::<2>::attach(&mine).unwrap();
            (1..=3u64).for_each(|item| trail.push_overwrite([item, item * 10]));
        });
        let trail = Trail::<2>::attach(&words).unwrap();
        let mut cursor = trail.from_oldest();
        let mut seen = Vec::new();
        seen.extend(trail.next(&mut cursor));
        writer.join().unwrap();
        while let Some(item) = trail.next(&mut cursor) {
            seen.push(item);
        }
        assert!(seen.iter().all(|[item, ten]| *ten == item * 10), "torn: {seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0][0] < pair[1][0]), "in order: {seen:?}");
        assert_eq!(seen.len() as u64 + cursor.lost(), 3);
    });
}

#[test]
fn a_stream_delivers_messages_whole_and_a_sleeper_is_never_forgotten() {
    loom::model(|| {
        let words = words(Stream::words_for(8));
        Stream::format(&words[..]).unwrap();
        let mine = words.clone();
        let writer = thread::spawn(move || {
            let mut writer = Stream::attach(&mine[..]).unwrap().writer();
            assert!(writer.push_or_refuse(&[&[1], &[10]]));
            writer.stream().is_asleep()
        });
        let mut reader = Stream::attach(&words[..]).unwrap().reader();
        reader.fall_asleep();
        let sleeps = reader.is_empty();
        let told = writer.join().unwrap();
        assert!(told || !sleeps, "it sleeps and nobody will ring");
        let mut out = [0; 2];
        assert_eq!((reader.pop(&mut out), out), (Ok(Some(2)), [1, 10]));
    });
}
