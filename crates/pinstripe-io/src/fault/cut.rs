//! A power cut in the middle of writing to devices, and the possible content of them afterwards.
//!
//! The model is a disk with a cache that is written back at any time and in any order. Synced bytes
//! are present; of every change since then any sectors may have arrived and any others not, a
//! change of length at once or not at all. Reads before the cut always return the newest bytes.
//!
//! Changes wait in memory for a sync, so that the inner device never has bytes that might be lost.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Dice;
use crate::device::{Caps, Device, end_within, no_room, too_short, write_parts};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// The power of several devices: it goes for all of them at one step.
pub struct Power {
    stop_at_step: u64,
    steps: AtomicU64,
}

impl Power {
    /// Lets `stop_at_step` changes and syncs happen and none after them; with `u64::MAX` it only
    /// counts.
    pub fn new(stop_at_step: u64) -> Self {
        Power { stop_at_step, steps: AtomicU64::new(0) }
    }

    /// The number of changes and syncs so far.
    pub fn steps_done(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Whether a step was refused or the next one will be.
    pub fn is_off(&self) -> bool {
        self.steps_done() >= self.stop_at_step
    }

    fn step(&self, place: &Path) -> Result<()> {
        let next = |steps: u64| (steps < self.stop_at_step).then_some(steps + 1);
        let taken = self.steps.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        taken
            .map(drop)
            .map_err(|_| Error::new(Kind::Io, "simulated fault: the power is off").at(place))
    }
}

/// A device whose power can be cut.
pub struct CutDevice<D> {
    inner: D,
    power: Arc<Power>,
    unsynced: Mutex<Vec<UnsyncedChange>>,
}

enum UnsyncedChange {
    Write { offset: u64, bytes: Vec<u8> },
    Zero(Range<u64>),
    SetLen(u64),
}

impl<D: Device> CutDevice<D> {
    /// A device on this power; what `inner` has counts as durable.
    pub fn new(inner: D, power: Arc<Power>) -> Self {
        CutDevice { inner, power, unsynced: Mutex::default() }
    }

    /// The device behind it: the durable content.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Leaves on the inner device what a power cut now could leave, one of many possibilities,
    /// chosen by `seed`; then that is durable.
    ///
    /// # Errors
    /// Fails with the errors of the inner device.
    pub fn after_power_cut(&self, seed: u64) -> Result<()> {
        let mut dice = Dice::new(seed);
        for change in self.unsynced().drain(..) {
            let fate = dice.below(4);
            match change {
                UnsyncedChange::SetLen(bytes) if fate < 2 => self.inner.set_len(bytes)?,
                UnsyncedChange::SetLen(_) => {}
                UnsyncedChange::Write { offset, bytes } => {
                    for kept in sectors_kept(offset, bytes.len(), fate, &mut dice) {
                        self.inner.write_at(offset + kept.start as u64, &bytes[kept])?;
                    }
                }
                UnsyncedChange::Zero(range) if fate < 2 => zero(&self.inner, range)?,
                UnsyncedChange::Zero(_) => {}
            }
        }
        self.inner.sync()
    }

    fn unsynced(&self) -> MutexGuard<'_, Vec<UnsyncedChange>> {
        lock(&self.unsynced)
    }

    fn len_with(&self, changes: &[UnsyncedChange]) -> Result<u64> {
        let after = |len: u64, change: &UnsyncedChange| match change {
            UnsyncedChange::Write { offset, bytes } => len.max(offset + bytes.len() as u64),
            UnsyncedChange::Zero(_) => len,
            UnsyncedChange::SetLen(bytes) => *bytes,
        };
        Ok(changes.iter().fold(self.inner.len()?, after))
    }
}

/// The parts of a write that arrive: all of it, nothing, the first sectors, or any.
fn sectors_kept(offset: u64, len: usize, fate: u64, dice: &mut Dice) -> Vec<Range<usize>> {
    let first = offset / SECTOR_BYTES;
    let count = (offset + len as u64).div_ceil(SECTOR_BYTES) - first;
    let part = |sector: u64| {
        let start = ((first + sector) * SECTOR_BYTES).saturating_sub(offset) as usize;
        let end = ((first + sector + 1) * SECTOR_BYTES - offset) as usize;
        start..end.min(len)
    };
    match fate {
        0 => std::iter::once(0..len).collect(),
        1 => Vec::new(),
        2 => (0..dice.below(count)).map(part).collect(),
        _ => (0..count).filter(|_| dice.happens(0.5)).map(part).collect(),
    }
}

fn zero(device: &dyn Device, range: Range<u64>) -> Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(ZEROS.len() as u64);
        device.write_at(at, &ZEROS[..len as usize])?;
        at += len;
    }
    Ok(())
}

/// The overlap of two ranges, as places in the first.
fn overlap(offset: u64, len: usize, other: &Range<u64>) -> Range<usize> {
    let end = offset + len as u64;
    let (start, end) = (other.start.clamp(offset, end), other.end.clamp(offset, end));
    (start - offset) as usize..(end.max(start) - offset) as usize
}

impl<D: Device> Device for CutDevice<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let changes = self.unsynced();
        let len = self.len_with(&changes)?;
        if end_within(offset, buf.len(), len).is_none() {
            return Err(too_short(self.place(), offset, buf.len(), len));
        }
        buf.fill(0);
        let durable = overlap(offset, buf.len(), &(0..self.inner.len()?));
        self.inner.read_at(offset, &mut buf[durable])?;
        for change in changes.iter() {
            match change {
                UnsyncedChange::Write { offset: start, bytes } => {
                    let range = *start..start + bytes.len() as u64;
                    let to = overlap(offset, buf.len(), &range);
                    let from = overlap(*start, bytes.len(), &(offset..offset + buf.len() as u64));
                    buf[to].copy_from_slice(&bytes[from]);
                }
                UnsyncedChange::Zero(range) => {
                    let gone = overlap(offset, buf.len(), range);
                    buf[gone].fill(0);
                }
                UnsyncedChange::SetLen(bytes) => {
                    let gone = overlap(offset, buf.len(), &(*bytes..u64::MAX));
                    buf[gone].fill(0);
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let most = if self.caps().is_block_device { self.inner.len()? } else { i64::MAX as u64 };
        if end_within(offset, bytes.len(), most).is_none() {
            return Err(no_room(self.place(), offset, bytes.len(), most));
        }
        let mut changes = self.unsynced();
        self.power.step(self.place())?;
        changes.push(UnsyncedChange::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        self.len_with(&self.unsynced())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        if self.caps().is_block_device {
            return self.inner.set_len(bytes); // Which is its length, or refused.
        }
        let mut changes = self.unsynced();
        self.power.step(self.place())?;
        changes.push(UnsyncedChange::SetLen(bytes));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut changes = self.unsynced();
        self.power.step(self.place())?;
        for change in changes.iter() {
            match change {
                UnsyncedChange::Write { offset, bytes } => self.inner.write_at(*offset, bytes)?,
                UnsyncedChange::Zero(range) => zero(&self.inner, range.clone())?,
                UnsyncedChange::SetLen(bytes) => self.inner.set_len(*bytes)?,
            }
        }
        self.inner.sync()?;
        changes.clear();
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let mut changes = self.unsynced();
        let range = range.start..range.end.min(self.len_with(&changes)?);
        self.power.step(self.place())?;
        if !range.is_empty() {
            changes.push(UnsyncedChange::Zero(range));
        }
        Ok(())
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }
}

#[cfg(test)]
mod tests;
