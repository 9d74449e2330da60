//! The pre-roll of an armed take: the most recent input, stored on disk in one file per directory.
//!
//! Each copy of a stream has an area of that file, as long as the pre-roll, and uses it as a ring.
//! When the take begins, a separate thread copies the part that belongs to the take to the front of
//! each file; the writer immediately continues after that front. If the disk falls too far behind,
//! this thread waits for it, so that little memory is dirty and no writer has to wait.
//!
//! Invariant: the journal never vouches for data in an area. The journal vouches for a front as for
//! any other payload, once the front has been copied to its file. Bytes that cannot be copied are
//! replaced by silence, which is reported.

mod fill;

pub(super) use fill::fill_fronts;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar};

use pinstripe_base::error::{Error, Result};

use super::stream_file::StreamFile;
use crate::limits::GAPS_KEPT;
use crate::locks::{RankedMutex, RecordLock};
use crate::take::{PRE_ROLL, TakeFile, TakeFolder};

/// Bytes copied at a time.
const RUN_BYTES: u64 = 1 << 18;
/// The number of bytes copied before writeback is started, and the most bytes whose writeback is
/// pending.
const AHEAD_BYTES: u64 = 1 << 20;
const BEHIND_BYTES: u64 = 32 << 20;
/// The alignment of areas in bytes: the size of a page.
const PAGE: u64 = 4096;

/// The file that contains all areas of one directory; it is removed with the last area.
struct RollFile {
    folder: Arc<dyn TakeFolder>,
    file: TakeFile,
}

impl Drop for RollFile {
    fn drop(&mut self) {
        // Nothing in it is needed; 'recover' removes it if it remains.
        let _ = self.folder.remove(PRE_ROLL);
    }
}

/// The area of one copy of a stream.
pub(crate) struct RollArea {
    roll: Arc<RollFile>,
    offset: u64,
    bytes: u64,
    /// The most recent lost runs, by place and length.
    gaps: VecDeque<(u64, u64)>,
}

impl RollArea {
    /// Creates the file of a directory with areas of these lengths, and reserves its space.
    ///
    /// # Errors
    /// The errors of the folder; [`Kind::NoSpace`] if the disk does not have enough space.
    pub fn create(folder: &Arc<dyn TakeFolder>, lengths: &[u64]) -> Result<Vec<RollArea>> {
        let file = folder.create(PRE_ROLL)?;
        let mut places = Vec::with_capacity(lengths.len());
        let mut end: u64 = 0;
        for length in lengths {
            places.push(end);
            end = end.saturating_add(length.next_multiple_of(PAGE));
        }
        let roll = Arc::new(RollFile { folder: Arc::clone(folder), file });
        roll.file.reserve(0..end.max(1)).map_err(|error| {
            Error::io("cannot reserve space for the pre-roll", folder.path(), error)
                .advice("use a shorter --pre-roll, or free space on the disk")
        })?;
        let area = |(offset, bytes): (u64, &u64)| RollArea {
            roll: Arc::clone(&roll),
            offset,
            bytes: *bytes,
            gaps: VecDeque::new(),
        };
        Ok(places.into_iter().zip(lengths).map(area).collect())
    }

    /// Stores bytes at a place of the stream.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn put(&mut self, place: u64, bytes: &[u8]) -> Result<()> {
        let mut place = place;
        let mut left = bytes;
        while !left.is_empty() {
            let at = place % self.bytes;
            debug_assert!(at < self.bytes, "an area is not left");
            let (now, later) = left.split_at(left.len().min((self.bytes - at) as usize));
            self.roll.file.device().write_at(self.offset + at, now)?;
            place += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    /// Stores silence for a lost run, at most as long as the pre-roll.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub(crate) fn put_gap(&mut self, place: u64, bytes: u64, silence: &[u8]) -> Result<()> {
        let end = place + bytes;
        let mut at = place.max(end.saturating_sub(self.bytes));
        while at < end {
            let run = (end - at).min(silence.len() as u64);
            self.put(at, &silence[..run as usize])?;
            at += run;
        }
        match self.gaps.back_mut() {
            // A long gap comes in several parts.
            Some(last) if last.0 + last.1 == place => last.1 += bytes,
            _ => self.gaps.push_back((place, bytes)),
        }
        let oldest = end.saturating_sub(self.bytes);
        while self.gaps.len() > GAPS_KEPT
            || self.gaps.front().is_some_and(|it| it.0 + it.1 <= oldest)
        {
            self.gaps.pop_front();
        }
        debug_assert!(self.gaps.len() <= GAPS_KEPT, "the gaps that are kept are bounded");
        Ok(())
    }

    /// The lost runs within these places.
    pub(crate) fn gaps_in(&self, places: &Range<u64>) -> Vec<Range<u64>> {
        let within = |(at, bytes): &(u64, u64)| {
            (*at).max(places.start)..at.saturating_add(*bytes).min(places.end)
        };
        self.gaps.iter().map(within).filter(|it| !it.is_empty()).collect()
    }

    fn get(&self, place: u64, out: &mut [u8]) -> Result<()> {
        let mut place = place;
        let mut left = out;
        while !left.is_empty() {
            let at = place % self.bytes;
            let count = left.len().min((self.bytes - at) as usize);
            let (now, later) = left.split_at_mut(count);
            self.roll.file.device().read_at(self.offset + at, now)?;
            place += count as u64;
            left = later;
        }
        Ok(())
    }
}

/// The front of a file into which the pre-roll must still be copied.
pub(super) struct Front {
    pub piece: Arc<StreamFile>,
    /// The area with the front's samples; `None` if it was in a directory that failed.
    pub area: Option<RollArea>,
    /// The places of the front's samples in the stream.
    pub places: Range<u64>,
}

impl Front {
    fn left_bytes(&self) -> u64 {
        (self.places.end - self.places.start).saturating_sub(self.piece.written_bytes())
    }
}

/// Fronts that wait for their pre-roll, in order.
pub(super) struct Fronts {
    waiting: RankedMutex<(VecDeque<Front>, bool)>,
    changed: Condvar,
}

impl Default for Fronts {
    fn default() -> Self {
        let waiting = RankedMutex::new(RecordLock::Fronts, Default::default());
        Fronts { waiting, changed: Condvar::new() }
    }
}

impl Fronts {
    pub fn add(&self, front: Front) {
        self.waiting.lock().0.push_back(front);
        self.changed.notify_all();
    }

    /// Sets that no more fronts follow.
    pub fn end(&self) {
        self.waiting.lock().1 = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Front> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(front) = waiting.0.pop_front() {
                return Some(front);
            }
            if waiting.1 {
                return None;
            }
            waiting = waiting.wait(&self.changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::take::DiskFolder;

    #[test]
    fn an_area_keeps_what_came_last_and_its_gaps_and_the_last_one_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder: Arc<dyn TakeFolder> =
            Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
        let mut areas = RollArea::create(&folder, &[10, 5000]).unwrap();
        let path = dir.path().join("t").join(PRE_ROLL);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096 + 8192);
        let bytes: Vec<u8> = (0..37).collect();
        for (place, run) in [(0, 0..4), (4, 4..5), (5, 5..12), (12, 12..37)] {
            areas[0].put(place, &bytes[run]).unwrap();
        }
        areas[1].put(4990, &[7; 30]).unwrap();
        let mut out = [0; 10];
        areas[0].get(27, &mut out).unwrap();
        assert_eq!(out, bytes[27..]);
        areas[0].put_gap(37, 3, &[9; 2]).unwrap();
        areas[0].get(30, &mut out).unwrap();
        assert_eq!(out, [30, 31, 32, 33, 34, 35, 36, 9, 9, 9]);
        let gaps = |area: &RollArea, places| {
            area.gaps_in(&places).iter().map(|it| (it.start, it.end)).collect::<Vec<_>>()
        };
        assert_eq!(gaps(&areas[0], 30..39), [(37, 39)]);
        // One that is longer than the area, in two parts.
        areas[0].put_gap(40, 4, &[8; 8]).unwrap();
        areas[0].put_gap(44, 96, &[8; 8]).unwrap();
        areas[0].get(130, &mut out).unwrap();
        assert_eq!((out, gaps(&areas[0], 130..140)), ([8; 10], vec![(130, 140)]));
        assert!(areas[0].gaps_in(&(140..150)).is_empty());
        areas.pop();
        assert!(path.exists());
        areas.pop();
        assert!(!path.exists());
    }

    #[test]
    fn gaps_that_are_remembered_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let folder: Arc<dyn TakeFolder> =
            Arc::new(DiskFolder::create(dir.path(), "t", None).unwrap());
        let mut area = RollArea::create(&folder, &[1 << 20]).unwrap().remove(0);
        for number in 0..3 * GAPS_KEPT as u64 {
            area.put_gap(2 * number, 1, &[0]).unwrap();
        }
        assert_eq!(area.gaps.len(), GAPS_KEPT);
    }
}
