//! The ring in all orders that its threads may see, by loom. A planted wrong order has to fail here.

use loom::thread;

use super::*;

/// A ring of four frames of one byte, with what its producer does in another thread.
fn with(
    produce: impl FnOnce(&mut RingProducer) + Send + 'static,
    consume: impl FnOnce(&mut RingConsumer),
) {
    let arena = Arc::new(Arena::new(4).unwrap());
    let (ring, mut producer) = Ring::new(&arena, 0, 4, 1, 1).unwrap();
    let producing = thread::spawn(move || {
        produce(&mut producer);
        drop(producer);
    });
    consume(&mut RingConsumer::new(ring, 0));
    producing.join().unwrap();
}

/// All that a consumer gets; a gap is as many times 0xff.
fn drain(consumer: &mut RingConsumer) -> Vec<u8> {
    let mut got = Vec::new();
    loop {
        match consumer.look() {
            Found::End => return got,
            Found::Bytes { bytes: 0, .. } => thread::yield_now(),
            Found::Bytes { bytes, .. } => {
                got.extend_from_slice(consumer.bytes(bytes));
                let count = consumer.bytes(bytes).len() as u64;
                consumer.take(count);
            }
            Found::Gap(bytes) => {
                got.extend((0..bytes).map(|_| 0xff));
                consumer.take_gap();
            }
        }
    }
}

#[test]
fn loom_every_byte_is_seen_once_it_is_shown() {
    loom::model(|| {
        let produce = |producer: &mut RingProducer| {
            producer.push(&[1, 2]);
            producer.push(&[3]);
        };
        with(produce, |consumer| assert_eq!(drain(consumer), [1, 2, 3]));
    });
}

#[test]
fn loom_a_byte_is_written_anew_only_when_it_was_given_back() {
    loom::model(|| {
        let produce = |producer: &mut RingProducer| {
            producer.push(&[1, 2, 3, 4]);
            producer.push(&[5]);
        };
        with(produce, |consumer| {
            // What did not fit is a gap at the end.
            let got = drain(consumer);
            assert!(got == [1, 2, 3, 4, 5] || got == [1, 2, 3, 4, 0xff], "{got:?}");
        });
    });
}

#[test]
fn loom_a_gap_is_seen_before_any_byte_behind_it() {
    loom::model(|| {
        let produce = |producer: &mut RingProducer| {
            producer.push(&[1]);
            producer.skip(2);
            producer.push(&[2]);
        };
        with(produce, |consumer| assert_eq!(drain(consumer), [1, 0xff, 0xff, 2]));
    });
}
