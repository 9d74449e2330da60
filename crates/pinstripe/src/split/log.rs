//! The log of frames, wherever its bytes are: in one output, or striped over all of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::SharedDevice;
use crate::error::{Error, Kind, Result};
use crate::format::split::{ALIGN_BYTES, PAGES_BYTES, SET_ROWS};
use crate::format::stripe_set::{Geometry, HEADER_BYTES, SetKind};
use crate::id::{SetId, SplitId, StoreId};
use crate::member::{ExtentName, SharedMember};
use crate::stripe::{Layout, SetReader};

use super::window::Window;

/// A run of frames.
#[allow(clippy::len_without_is_empty)] // A log is asked for its length, never whether it has one.
pub trait Log: Send + Sync {
    /// Appends a range to `out`, believed as it comes: the frames in it are checked by whoever asks.
    ///
    /// # Errors
    /// Those of the device; [`Kind::Corrupt`] beyond the end.
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()>;
    /// The same with every means of healing, for when the frames were not sound.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Kind::TooManyLosses`] when parity does not suffice.
    fn read_healed(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()>;
    /// Bytes that may hold frames.
    fn len(&self) -> u64;
    /// Where, after a place at which no frame is, one may begin again; `None` when nowhere.
    fn resume_at(&self, position: u64) -> Option<u64>;
    /// Whether damage can be healed at all.
    fn has_parity(&self) -> bool;
}

/// The log of one output.
pub struct OwnLog {
    /// The output.
    pub device: SharedDevice,
    /// Its bytes from the end of the pages on.
    pub bytes: u64,
}

impl Log for OwnLog {
    fn read(&self, position: u64, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        if position.checked_add(bytes as u64).is_none_or(|end| end > self.bytes) {
            return Err(Error::corrupt("the log ends too early", self.device.place())
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

    fn has_parity(&self) -> bool {
        false
    }
}

/// Where the stripe sets of a log lie in its outputs: pure arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sets {
    split: SplitId,
    geometry: Geometry,
}

impl Sets {
    /// Of a split that is cut so.
    pub fn new(split: SplitId, geometry: Geometry) -> Self {
        Sets { split, geometry }
    }

    /// How each is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The name of a set: the beginning of BLAKE3 over the split's id and its number.
    pub fn id(&self, set: u64) -> SetId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.split.0).update(&set.to_le_bytes());
        SetId(*hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    /// The store that the sets say they are of.
    pub fn store(&self) -> StoreId {
        StoreId(self.split.0)
    }

    /// Bytes of the log in a full set.
    pub fn log_bytes(&self) -> u64 {
        SET_ROWS * self.geometry.row_bytes()
    }

    /// Bytes of a full set's extent.
    pub fn extent_bytes(&self) -> u64 {
        let layout = Layout::new(self.geometry, self.id(0), self.log_bytes());
        layout.map_or(0, |layout| layout.extent_bytes(0))
    }

    /// Where in an output the extent of a set begins.
    pub fn extent_at(&self, set: u64) -> u64 {
        PAGES_BYTES + set * self.extent_bytes().next_multiple_of(ALIGN_BYTES)
    }
}

/// Sets that are kept open.
const SETS_OPEN: usize = 16;

/// A log striped over outputs.
pub struct StripedLog {
    sets: Sets,
    /// By slot; `None` for an output that is missing.
    outputs: Vec<Option<SharedDevice>>,
    /// Bytes of the log, if somebody wrote them down.
    told_bytes: Option<u64>,
    bytes: u64,
    open: Mutex<VecDeque<(u64, Arc<SetReader>)>>,
}

impl StripedLog {
    /// A log of which the manifest says how long it is, or that is taken to be as long as enough
    /// outputs have rows.
    ///
    /// # Errors
    /// Those of the outputs.
    pub fn new(
        sets: Sets,
        outputs: Vec<Option<SharedDevice>>,
        told_bytes: Option<u64>,
    ) -> Result<Self> {
        let bytes = match told_bytes {
            Some(bytes) => bytes,
            None => rows_there(&sets, &outputs)? * sets.geometry.row_bytes(),
        };
        Ok(StripedLog { sets, outputs, told_bytes, bytes, open: Mutex::default() })
    }

    /// Number of sets.
    pub fn sets(&self) -> u64 {
        self.bytes.div_ceil(self.sets.log_bytes())
    }

    /// Opens a set.
    ///
    /// # Errors
    /// As [`SetReader::open`].
    pub fn set(&self, set: u64) -> Result<Arc<SetReader>> {
        let kept = |open: &VecDeque<(u64, Arc<SetReader>)>| {
            open.iter().find(|(number, _)| *number == set).map(|(_, reader)| Arc::clone(reader))
        };
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (id, store) = (self.sets.id(set), self.sets.store());
        let name = ExtentName::pack(id);
        let log_bytes = self.bytes.saturating_sub(set * self.sets.log_bytes());
        let log_bytes = log_bytes.min(self.sets.log_bytes());
        let layout = Layout::new(self.sets.geometry, id, log_bytes)?;
        let window = |(slot, device): (usize, &Option<SharedDevice>)| {
            let device = device.as_ref()?.clone();
            let at = self.sets.extent_at(set);
            Some(Arc::new(Window::new(device, at, layout.extent_bytes(slot))) as SharedMember)
        };
        let members: Vec<_> = self.outputs.iter().enumerate().map(window).collect();
        match SetReader::open(&members, name, store, id) {
            // It was cut off: its rows are there, its trailer is not.
            Err(error) if self.told_bytes.is_none() && error.kind() != Kind::Unsupported => {
                SetReader::unfinished(&members, name, store, id, SetKind::Split, &layout)
            }
            opened => opened,
        }
    }

    fn read_with(
        &self,
        mut position: u64,
        mut bytes: u64,
        out: &mut Vec<u8>,
        read: impl Fn(&SetReader, std::ops::Range<u64>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        if position.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Error::new(Kind::Corrupt, "the log ends too early")
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
            set.read_verified(range, out).map(drop)
        })
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn resume_at(&self, position: u64) -> Option<u64> {
        let next = (position / self.sets.log_bytes() + 1) * self.sets.log_bytes();
        (next < self.bytes).then_some(next)
    }

    fn has_parity(&self) -> bool {
        self.sets.geometry.parity() > 0
    }
}

/// Whole rows that can be read, as far as the lengths of the outputs tell.
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
    // As many as D outputs have.
    Ok(rows[rows.len() - sets.geometry.data()])
}
