//! The log of frames: in one output, or striped over all of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::format::{ALIGN_BYTES, PAGES_BYTES, SET_ROWS};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, SplitId, StoreId};
use pinstripe_base::sync::lock;
use pinstripe_io::device::SharedDevice;
use pinstripe_member::stripe_set::{Geometry, HEADER_BYTES, SetKind};
use pinstripe_member::{ExtentName, SharedMember};
use pinstripe_stripe::{SetLayout, SetReader};

use super::window::Window;

/// A sequence of frames that can be read at any position.
#[allow(clippy::len_without_is_empty)] // A log is asked for its length, never whether it has one.
pub trait Log: Send + Sync {
    /// Appends a range of the log to `out` without verifying it: the caller verifies the frames in
    /// it.
    ///
    /// # Errors
    /// Fails with the errors of the device, or with [`Kind::Corrupt`] beyond the end.
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()>;
    /// Appends a range of the log and rebuilds what it can from parity, for frames that were not
    /// intact. Bytes that parity cannot rebuild are returned as stored, or as zeros.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] beyond the end, or with [`Kind::Unsupported`] for a log of a
    /// newer version.
    fn read_healed(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()>;
    /// The length of the part that may hold frames.
    fn len(&self) -> u64;
    /// Returns the next position at which a frame may begin, after a position where none does, if
    /// there is one.
    fn resume_at(&self, position: u64) -> Option<u64>;
    /// Whether the log is striped over several outputs, so that part of a batch may exist without
    /// the rest.
    fn has_strips(&self) -> bool;
}

/// A log that has one output of its own.
pub(crate) struct OwnLog {
    /// The output.
    pub device: SharedDevice,
    /// The length of the log, counted from the end of the two pages.
    pub bytes: u64,
}

impl Log for OwnLog {
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        if position.checked_add(bytes as u64).is_none_or(|end| end > self.bytes) {
            return Err(Error::corrupt("the log of the split ends too early", self.device.place())
                .expected(position.saturating_add(bytes as u64), self.bytes));
        }
        let start = out.len();
        out.resize(start + bytes, 0);
        self.device.read_at(PAGES_BYTES + position, &mut out[start..])
    }

    fn read_healed(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read(position, bytes, out)
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn resume_at(&self, _position: u64) -> Option<u64> {
        None
    }

    fn has_strips(&self) -> bool {
        false
    }
}

/// Computes where a log's stripe sets are in its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sets {
    split: SplitId,
    geometry: Geometry,
}

impl Sets {
    /// Makes the computation for a split with this geometry.
    pub fn new(split: SplitId, geometry: Geometry) -> Self {
        Sets { split, geometry }
    }

    /// The geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The id of a set: the beginning of BLAKE3 over the split's id and the set's number.
    pub fn id(&self, set: u64) -> SetId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.split.0).update(&set.to_le_bytes());
        SetId(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// The store id that is in the headers of the sets.
    pub fn store(&self) -> StoreId {
        StoreId(self.split.0)
    }

    /// Bytes of the log in one full set.
    pub fn log_bytes(&self) -> u64 {
        SET_ROWS * self.geometry.row_bytes()
    }

    /// Bytes of a full set's extent.
    pub(crate) fn extent_bytes(&self) -> u64 {
        let layout = SetLayout::new(self.geometry, self.id(0), self.log_bytes());
        layout.map_or(0, |layout| layout.extent_bytes(0))
    }

    /// The offset of a set's extent in an output.
    pub fn extent_at(&self, set: u64) -> u64 {
        PAGES_BYTES + set * self.extent_bytes().next_multiple_of(ALIGN_BYTES)
    }
}

/// The number of sets that are kept open.
const SETS_OPEN: usize = 16;

/// A log that is striped over all outputs.
pub struct StripedLog {
    sets: Sets,
    /// The outputs by slot; `None` for an output that is missing.
    outputs: Vec<Option<SharedDevice>>,
    /// Whether the length of the log comes from the manifest; otherwise it was measured.
    is_told: bool,
    bytes: u64,
    open: Mutex<VecDeque<(u64, Arc<SetReader>)>>,
}

impl StripedLog {
    /// Opens a log. The length of the log is `told_bytes`, from the manifest; without it the log
    /// ends where too few outputs have rows, and at the latest where the longest output ends.
    ///
    /// # Errors
    /// Fails with the errors of the outputs.
    pub fn new(
        sets: Sets,
        outputs: Vec<Option<SharedDevice>>,
        told_bytes: Option<u64>,
    ) -> Result<Self> {
        let bytes = match told_bytes {
            Some(bytes) => bytes.min(sets_there(&sets, &outputs)?.saturating_mul(sets.log_bytes())),
            None => rows_there(&sets, &outputs)?.saturating_mul(sets.geometry.row_bytes()),
        };
        let is_told = told_bytes.is_some();
        Ok(StripedLog { sets, outputs, is_told, bytes, open: Mutex::default() })
    }

    /// Number of sets.
    pub fn sets(&self) -> u64 {
        self.bytes.div_ceil(self.sets.log_bytes())
    }

    /// Opens a set. A set without an intact trailer is read as far as its rows exist: each frame
    /// has checksums of its own.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a set of a newer version.
    fn set(&self, set: u64) -> Result<Arc<SetReader>> {
        let kept = |open: &VecDeque<(u64, Arc<SetReader>)>| {
            open.iter().find(|(number, _)| *number == set).map(|(_, reader)| Arc::clone(reader))
        };
        let lock = || lock(&self.open);
        if let Some(reader) = kept(&lock()) {
            return Ok(reader);
        }
        let reader = Arc::new(self.open_set(set)?);
        let mut open = lock();
        open.push_back((set, Arc::clone(&reader)));
        if open.len() > SETS_OPEN {
            open.pop_front();
        }
        Ok(reader)
    }

    fn open_set(&self, set: u64) -> Result<SetReader> {
        match self.finished_set(set) {
            Err(error) if error.kind() != Kind::Unsupported => {
                let (id, name) = (self.sets.id(set), ExtentName::pack(self.sets.id(set)));
                let (members, layout) = self.windows(set)?;
                let store = self.sets.store();
                SetReader::unfinished(&members, name, store, id, SetKind::Split, &layout)
            }
            opened => opened,
        }
    }

    /// Opens a set by its trailer, which is written when the rest of the set is complete.
    ///
    /// # Errors
    /// Fails with the errors of [`SetReader::open`].
    pub(crate) fn finished_set(&self, set: u64) -> Result<SetReader> {
        let (members, _) = self.windows(set)?;
        let id = self.sets.id(set);
        let opened = SetReader::open(&members, ExtentName::pack(id), self.sets.store(), id)?;
        let expected = self.log_bytes_of(set);
        let is_same = !self.is_told || opened.logical_bytes() == expected;
        match opened.geometry() == self.sets.geometry && is_same {
            true => Ok(opened),
            false => {
                Err(Error::new(Kind::Corrupt, "a stripe set of the log has a different geometry")
                    .expected(expected, opened.logical_bytes()))
            }
        }
    }

    /// The number of bytes of the log in a set.
    fn log_bytes_of(&self, set: u64) -> u64 {
        let left = self.bytes.saturating_sub(set * self.sets.log_bytes());
        left.min(self.sets.log_bytes())
    }

    /// Returns a set's extents, by output.
    fn windows(&self, set: u64) -> Result<(Vec<Option<SharedMember>>, SetLayout)> {
        let layout = SetLayout::new(self.sets.geometry, self.sets.id(set), self.log_bytes_of(set))?;
        let window = |(slot, device): (usize, &Option<SharedDevice>)| {
            let device = device.as_ref()?.clone();
            let at = self.sets.extent_at(set);
            Some(Arc::new(Window::new(device, at, layout.extent_bytes(slot))) as SharedMember)
        };
        Ok((self.outputs.iter().enumerate().map(window).collect(), layout))
    }

    fn read_with(
        &self,
        mut position: u64,
        mut bytes: u64,
        out: &mut Vec<u8>,
        read: impl Fn(&SetReader, Range<u64>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        if position.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Error::new(Kind::Corrupt, "the log of the split ends too early")
                .expected(position.saturating_add(bytes), self.bytes));
        }
        while bytes > 0 {
            let (set, start) = (position / self.sets.log_bytes(), position % self.sets.log_bytes());
            let here = bytes.min(self.sets.log_bytes() - start);
            read(&*self.set(set)?, start..start + here, out)?;
            position += here;
            bytes -= here;
        }
        Ok(())
    }
}

impl Log for StripedLog {
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_with(position, bytes as u64, out, |set, range, out| {
            set.read(range, out).map(drop)
        })
    }

    fn read_healed(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_with(position, bytes as u64, out, |set, range, out| {
            let layout = set.layout();
            for row in layout.rows_of(&range) {
                let shape = layout.row_shape(row).logical;
                let part = shape.start.max(range.start)..shape.end.min(range.end);
                if set.read_verified(part.clone(), out).is_err() {
                    salvage(set, row, part, out);
                }
            }
            Ok(())
        })
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn resume_at(&self, position: u64) -> Option<u64> {
        let next = (position / self.sets.log_bytes() + 1) * self.sets.log_bytes();
        (next < self.bytes).then_some(next)
    }

    fn has_strips(&self) -> bool {
        true
    }
}

/// Appends what can be read, strip by strip, of a row that parity cannot rebuild.
fn salvage(set: &SetReader, row: u64, part: Range<u64>, out: &mut Vec<u8>) {
    for piece in set.layout().row_pieces(row, part) {
        let end = out.len() + (piece.logical.end - piece.logical.start) as usize;
        if set.read(piece.logical, out).is_err() {
            out.resize(end, 0);
        }
    }
}

/// The number of sets that were begun on the longest output.
fn sets_there(sets: &Sets, outputs: &[Option<SharedDevice>]) -> Result<u64> {
    let set_bytes = sets.extent_at(1) - sets.extent_at(0);
    let mut most = 0;
    for device in outputs.iter().flatten() {
        most = most.max(device.len()?.saturating_sub(PAGES_BYTES).div_ceil(set_bytes));
    }
    Ok(most)
}

/// Returns the number of complete rows that can be read, judged by the lengths of the outputs.
fn rows_there(sets: &Sets, outputs: &[Option<SharedDevice>]) -> Result<u64> {
    let strip = u64::from(sets.geometry.strip_bytes());
    let mut rows = Vec::with_capacity(outputs.len());
    for device in outputs {
        let Some(device) = device else {
            rows.push(0);
            continue;
        };
        let set_bytes = sets.extent_at(1) - sets.extent_at(0);
        let bytes = device.len()?.saturating_sub(PAGES_BYTES);
        let in_last = (bytes % set_bytes).saturating_sub(HEADER_BYTES as u64) / strip;
        rows.push(bytes / set_bytes * SET_ROWS + in_last.min(SET_ROWS));
    }
    rows.sort_unstable();
    // As many as D outputs have; or all that there are, for what can be salvaged.
    let there = outputs.iter().flatten().count();
    Ok(rows[rows.len() - sets.geometry.data().min(there.max(1))])
}
