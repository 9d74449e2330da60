use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;
use crate::sample::{SampleFormat, StreamShape, fill_test};

/// Counts what a thread allocates while it says that it must not.
struct Counting;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.get() {
            COUNTED.set(COUNTED.get() + 1);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if WATCHED.get() {
            COUNTED.set(COUNTED.get() + 1);
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SHAPE: StreamShape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 };

fn ring(consumers: usize) -> (Arc<Ring>, RingProducer) {
    let arena = Arc::new(Arena::new(3 * 1024).unwrap());
    Ring::new(&arena, 1024, 1024, 3, consumers).unwrap()
}

/// Takes out all that is there, with silence as zeros.
fn drain(consumer: &mut RingConsumer, out: &mut Vec<u8>) -> Found {
    loop {
        match consumer.peek() {
            Found::Gap(bytes) => {
                out.resize(out.len() + bytes as usize, 0);
                consumer.take_gap();
            }
            Found::Bytes { bytes: 0, .. } => return Found::Bytes { bytes: 0, all: false },
            Found::Bytes { bytes, .. } => {
                let read = consumer.bytes(bytes);
                assert!(!read.is_empty() && read.len() as u64 <= bytes);
                out.extend_from_slice(read);
                let count = read.len() as u64;
                consumer.take(count);
            }
            Found::End => return Found::End,
        }
    }
}

fn content(frames: usize, first: u64) -> Vec<u8> {
    let mut bytes = vec![0; 3 * frames];
    fill_test(&SHAPE, 0, first, &mut bytes);
    bytes
}

#[test]
fn what_goes_in_comes_out_across_the_end_of_the_ring() {
    let (ring, mut producer) = ring(1);
    let mut consumer = RingConsumer::new(Arc::clone(&ring), 0);
    let mut out = Vec::new();
    for block in 0..50 {
        producer.push(&content(100, 100 * block));
        assert!(matches!(drain(&mut consumer, &mut out), Found::Bytes { bytes: 0, .. }));
    }
    drop(producer);
    assert_eq!(drain(&mut consumer, &mut out), Found::End);
    assert_eq!(out, content(5000, 0));
    assert_eq!((ring.overruns(), ring.lost_bytes(), ring.peak_bytes()), (0, 0, 300));
}

#[test]
fn an_overrun_becomes_silence_of_exactly_its_length() {
    let (ring, mut producer) = ring(1);
    let mut consumer = RingConsumer::new(Arc::clone(&ring), 0);
    let mut out = Vec::new();
    // 341 frames fit; the rest of the fourth block and all of the fifth are lost.
    for block in 0..5 {
        producer.push(&content(100, 100 * block));
    }
    assert_eq!((ring.overruns(), ring.lost_bytes()), (1, 3 * 159));
    drain(&mut consumer, &mut out);
    producer.push(&content(100, 500));
    drain(&mut consumer, &mut out);
    let mut expected = content(600, 0);
    expected[3 * 341..3 * 500].fill(0);
    assert_eq!(out, expected);
    assert_eq!(ring.produced_bytes(), 1800);
}

#[test]
fn what_is_lost_last_is_told_at_the_end_even_when_many_gaps_wait() {
    let (ring, mut producer) = ring(1);
    let mut consumer = RingConsumer::new(Arc::clone(&ring), 0);
    let frames = 3 * GAPS_WAITING as u64;
    for frame in 0..frames {
        producer.push(&content(1, 2 * frame));
        producer.skip(3);
    }
    let reader = std::thread::spawn(move || {
        let mut out = Vec::new();
        while drain(&mut consumer, &mut out) != Found::End {
            std::thread::yield_now();
        }
        out
    });
    drop(producer);
    let out = reader.join().unwrap();
    assert_eq!(out.len() as u64, 6 * frames);
    let whole = content(2 * frames as usize, 0);
    for (found, made) in out.chunks(3).zip(whole.chunks(3)) {
        assert!(found == made || found == [0; 3]);
    }
}

#[test]
fn a_mirror_holds_the_ring_until_it_is_detached() {
    let (ring, mut producer) = ring(2);
    let mut first = RingConsumer::new(Arc::clone(&ring), 0);
    let mut second = RingConsumer::new(Arc::clone(&ring), 1);
    producer.push(&content(300, 0));
    let mut out = Vec::new();
    drain(&mut first, &mut out);
    assert_eq!((producer.room(), ring.fill_bytes()), (123, 900));
    second.detach();
    assert_eq!((producer.room(), ring.fill_bytes()), (1023, 0));
    first.detach();
    producer.push(&content(300, 300));
    producer.push(&content(300, 600));
    assert_eq!(ring.overruns(), 0, "nothing waits for what nobody reads");
}

#[test]
fn the_producer_allocates_nothing() {
    let (ring, mut producer) = ring(1);
    let mut consumer = RingConsumer::new(ring, 0);
    let block = content(100, 0);
    let mut out = Vec::with_capacity(100_000);
    for round in 0..20 {
        WATCHED.set(true);
        // The last ones of these do not fit.
        (0..5).for_each(|_| producer.push(&block));
        producer.skip(9);
        WATCHED.set(false);
        assert_eq!(COUNTED.get(), 0, "round {round}");
        drain(&mut consumer, &mut out);
    }
    WATCHED.set(true);
    drop(std::hint::black_box(Box::new(1)));
    WATCHED.set(false);
    assert_eq!(COUNTED.get(), 2, "the count counts");
}

#[test]
fn a_ring_that_cannot_be_is_refused() {
    let arena = Arc::new(Arena::new(4096).unwrap());
    for (offset, size, frame) in [(0, 1000, 3), (0, 8192, 3), (4000, 1024, 3), (0, 1024, 512)] {
        assert!(Ring::new(&arena, offset, size, frame, 1).is_err(), "{offset} {size} {frame}");
    }
}
