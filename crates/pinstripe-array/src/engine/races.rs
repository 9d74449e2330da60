//! Tests of reads while rows are written to the members, with a device that stops in the middle of
//! a write.

use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::tests::create_options;
use super::*;
use crate::geometry::Level;
use pinstripe_base::sync::{lock, wait};
use pinstripe_io::device::{Device, MemoryDevice, SharedDevice};
use pinstripe_io::forward_device;

const MEMBER_BYTES: u64 = 3 << 20;

/// A device that, on request, stops after the first half of a write beyond some offset.
struct StoppingDevice {
    inner: MemoryDevice,
    state: Mutex<RaceState>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RaceState {
    Open,
    /// Writes from this offset on will stop.
    Closed(u64),
    /// A write is stopped in the device.
    Stopped,
}

impl StoppingDevice {
    fn new(number: usize) -> Arc<Self> {
        let inner = MemoryDevice::with_limit(format!("disk{number}"), MEMBER_BYTES);
        inner.set_len(MEMBER_BYTES).unwrap();
        Arc::new(StoppingDevice {
            inner,
            state: Mutex::new(RaceState::Open),
            changed: Condvar::new(),
        })
    }

    fn set(&self, state: RaceState) {
        *lock(&self.state) = state;
        self.changed.notify_all();
    }

    fn wait_until(&self, wanted: RaceState) {
        let mut state = lock(&self.state);
        while *state != wanted {
            state = wait(&self.changed, state);
        }
    }
}

impl Device for StoppingDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let is_closed = matches!(*lock(&self.state), RaceState::Closed(from) if offset >= from);
        if is_closed {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            self.inner.write_at(offset, first)?;
            self.set(RaceState::Stopped);
            self.wait_until(RaceState::Open);
            return self.inner.write_at(offset + first.len() as u64, rest);
        }
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    forward_device!(inner: long_by_parts read_at len set_len discard caps place);
}

/// An array whose first rows hold a byte that differs from block to block.
fn made(level: Level, count: usize) -> (Vec<Arc<StoppingDevice>>, Flusher, Vec<u8>) {
    let gates: Vec<_> = (0..count).map(StoppingDevice::new).collect();
    let devices = gates.iter().map(|gate| Arc::clone(gate) as SharedDevice).collect();
    let mut flusher = create(&create_options(level), devices).unwrap();
    let model: Vec<u8> = (0..256u32 << 10).map(|at| 1 + (at >> 12) as u8).collect();
    flusher.array().write(0, &model, Duration::ZERO).unwrap();
    flusher.sync().unwrap();
    (gates, flusher, model)
}

/// Stops a write to the blocks in `columns` of row 0's chunks on one member in the middle, reads
/// all, and resumes the write when the read has ended or waits.
fn judge(level: Level, count: usize, stops: usize, absent: Option<usize>) {
    let what = format!("{level}, {stops} stops, {absent:?} is away");
    let (gates, mut flusher, mut model) = made(level, count);
    if let Some(slot) = absent {
        flusher.array().fail(slot).unwrap();
    }
    let array = Arc::clone(flusher.array());
    let data_at = array.superblock().areas.data_at;
    let new = vec![0xcc; 3000];
    array.write(4096 + 500, &new, Duration::ZERO).unwrap();
    model[4096 + 500..4096 + 3500].copy_from_slice(&new);
    gates[stops].set(RaceState::Closed(data_at));
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| {
            flusher.sync().unwrap();
            // Whatever it did not write does not keep the others waiting.
            gates[stops].set(RaceState::Stopped);
        });
        gates[stops].wait_until(RaceState::Stopped);
        let (done, result) = channel();
        let reading = Arc::clone(&array);
        let len = model.len();
        scope.spawn(move || {
            let mut found = vec![0; len];
            let read = reading.read(0, &mut found).map(|()| found);
            done.send(read).unwrap();
        });
        let first = result.recv_timeout(Duration::from_millis(100));
        gates[stops].set(RaceState::Open);
        let found = first.unwrap_or_else(|_| result.recv().unwrap());
        let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
        let differs = found.iter().zip(&model).position(|(is, wanted)| is != wanted);
        assert_eq!(differs, None, "{what}: the first byte that differs");
        // The flusher may stop once more, after it was let go.
        while !flushing.is_finished() {
            gates[stops].set(RaceState::Open);
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_block_that_is_just_being_written_is_not_damaged() {
    for (level, count) in [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid1, 2)] {
        (0..count).for_each(|stops| judge(level, count, stops, None));
    }
}

#[test]
fn nothing_is_rebuilt_from_a_row_in_flux() {
    for absent in 0..3 {
        for stops in (0..3).filter(|stops| *stops != absent) {
            judge(Level::Raid5, 3, stops, Some(absent));
            judge(Level::Raid6, 4, stops, Some(absent));
        }
    }
}
