//! A disk that is only simulated: with a cache that a power cut empties in any order, and with
//! lies.
//!
//! What is read is always the newest; what was synced is durable. Lies are told of data, of the
//! table of checksums and of the map of regions: superblocks and log of a disk are either there or
//! the disk is not.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, write_parts};

use crate::dice::Dice;

/// The unit that a disk writes whole or not at all.
pub const SECTOR: u64 = 512;

/// The power of all disks: so many writes and syncs from now on.
#[derive(Debug)]
pub struct Power(AtomicU64);

impl Power {
    pub fn new() -> Arc<Self> {
        Arc::new(Power(AtomicU64::new(u64::MAX)))
    }

    pub fn set(&self, steps: u64) {
        self.0.store(steps, Ordering::Relaxed);
    }

    pub fn is_off(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn step(&self) -> Result<()> {
        let next = |left: u64| (left > 0).then(|| left - u64::from(left < u64::MAX));
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(drop).map_err(|_| Error::new(Kind::Io, "the power is off"))
    }
}

/// The lies of a disk: chances per write, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mood {
    /// It says it has written and has not.
    pub lost: u64,
    /// It writes elsewhere.
    pub misdirected: u64,
    /// It writes only the first sectors.
    pub torn: u64,
    /// A bit is wrong afterwards.
    pub flipped: u64,
    /// The sector cannot be read until it is written again.
    pub latent: u64,
    /// It refuses.
    pub refused: u64,
}

pub struct Disk {
    name: PathBuf,
    power: Arc<Power>,
    state: Mutex<State>,
}

/// `newest` and `durable` differ only where `pending` has something.
struct State {
    /// As it is read.
    newest: Vec<u8>,
    durable: Vec<u8>,
    /// Since the last sync, oldest first.
    pending: Vec<(usize, Vec<u8>)>,
    latent: BTreeSet<u64>,
    mood: Mood,
    /// The areas where lies are told: a write goes astray within its area.
    areas: Vec<Range<u64>>,
    dice: Dice,
}

impl Disk {
    pub fn new(number: usize, bytes: u64, power: &Arc<Power>) -> Arc<Self> {
        let state = State {
            // Something stood on it before: nothing of it may ever be seen.
            newest: vec![0xa5; bytes as usize],
            durable: vec![0xa5; bytes as usize],
            pending: Vec::new(),
            latent: BTreeSet::new(),
            mood: Mood::default(),
            areas: Vec::new(),
            dice: Dice::new(number as u64 + 1),
        };
        let (name, power) = (PathBuf::from(format!("disk{number}")), Arc::clone(power));
        Arc::new(Disk { name, power, state: Mutex::new(state) })
    }

    /// Lies from now on, in some areas.
    pub fn lie(&self, mood: Mood, areas: Vec<Range<u64>>, seed: u64) {
        let mut state = self.state();
        (state.mood, state.areas, state.dice) = (mood, areas, Dice::new(seed));
    }

    /// Tells the truth from now on; what it told stays.
    pub fn calm(&self) {
        self.state().mood = Mood::default();
    }

    /// The process that used it was killed: what it wrote becomes durable in time.
    pub fn settle(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for (at, bytes) in state.pending.drain(..) {
            let range = at..at + bytes.len();
            state.durable[range.clone()].copy_from_slice(&state.newest[range]);
        }
    }

    /// Its content, to be put in its place again later.
    pub fn image(&self) -> Vec<u8> {
        self.state().newest.clone()
    }

    /// Has an earlier content again, as a clone that is put in its place.
    pub fn restore(&self, image: &[u8]) {
        let mut state = self.state();
        state.pending.clear();
        state.newest[..image.len()].copy_from_slice(image);
        let State { newest, durable, .. } = &mut *state;
        durable.clone_from(newest);
    }

    /// Gets longer, as a volume that is extended.
    pub fn lengthen(&self, bytes: usize) {
        let mut state = self.state();
        let len = state.newest.len() + bytes;
        state.newest.resize(len, 0xa5);
        state.durable.resize(len, 0xa5);
    }

    /// Has what a power cut could leave.
    pub fn cut(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut state = self.state();
        let state = &mut *state;
        let mut pending = std::mem::take(&mut state.pending);
        // A cache writes in any order.
        for n in (1..pending.len()).rev() {
            if dice.below(3) == 0 {
                pending.swap(n, dice.below(n as u64 + 1) as usize);
            }
        }
        for (at, bytes) in &pending {
            let fate = dice.below(4);
            let count = (bytes.len() as u64).div_ceil(SECTOR);
            let first = if fate == 2 { dice.below(count + 1) } else { count };
            for (n, sector) in bytes.chunks(SECTOR as usize).enumerate() {
                let arrives = match fate {
                    0 => true,
                    1 => false,
                    2 => (n as u64) < first,
                    _ => dice.below(2) == 0,
                };
                let at = at + n * SECTOR as usize;
                if arrives {
                    state.durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        // Elsewhere both are alike: copies of whole disks are most of what a simulation costs.
        for (at, bytes) in pending {
            let range = at..at + bytes.len();
            state.newest[range.clone()].copy_from_slice(&state.durable[range]);
        }
    }

    /// Damages some runs of bytes of an area, durably. Returns them.
    pub fn damage(&self, area: Range<u64>, runs: u64, seed: u64) -> Vec<Range<u64>> {
        let mut dice = Dice::new(seed);
        let mut state = self.state();
        let mut run = |_| {
            let bytes = 1 + dice.below(4096);
            let start = area.start + dice.below(area.end - area.start - bytes);
            for at in start as usize..(start + bytes) as usize {
                state.newest[at] ^= 1 + dice.below(255) as u8;
                state.durable[at] = state.newest[at];
            }
            start..start + bytes
        };
        (0..runs).map(&mut run).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn error(&self, what: &str) -> Error {
        Error::new(Kind::Io, what).at(&self.name)
    }
}

impl State {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.newest[at..at + bytes.len()].copy_from_slice(bytes);
        self.pending.push((at, bytes.to_vec()));
        let sectors = at as u64 / SECTOR..(at + bytes.len()) as u64 / SECTOR;
        sectors.for_each(|sector| _ = self.latent.remove(&sector));
    }

    /// Writes as the mood has it; false where it refuses.
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        let mood = self.mood;
        let end = at + bytes.len() as u64;
        let area = self.areas.iter().find(|area| area.start <= at && end <= area.end).cloned();
        let is_lie = area.is_some();
        let mut happens = |chance: u64| is_lie && chance > 0 && self.dice.below(100) < chance;
        if happens(mood.refused) {
            return false;
        }
        if happens(mood.lost) {
            return true;
        }
        let (elsewhere, torn) = (happens(mood.misdirected), happens(mood.torn));
        let (flipped, latent) = (happens(mood.flipped), happens(mood.latent));
        let mut to = at;
        if let Some(area) = area.filter(|_| elsewhere) {
            let unit = if bytes.len().is_multiple_of(4096) { 4096 } else { SECTOR };
            let room = (area.end - area.start - bytes.len() as u64) / unit + 1;
            to = area.start + self.dice.below(room) * unit;
        }
        let sectors = bytes.len() as u64 / SECTOR;
        let kept = if torn { self.dice.below(sectors + 1) * SECTOR } else { bytes.len() as u64 };
        let mut arriving = bytes[..kept as usize].to_vec();
        if flipped && !arriving.is_empty() {
            let bit = self.dice.below(arriving.len() as u64 * 8) as usize;
            arriving[bit / 8] ^= 1 << (bit % 8);
        }
        self.put(to as usize, &arriving);
        if latent {
            self.latent.insert(at / SECTOR + self.dice.below(sectors));
        }
        true
    }
}

impl Device for Disk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let state = self.state();
        let end = offset as usize + buf.len();
        let sectors = offset / SECTOR..(end as u64).div_ceil(SECTOR);
        if state.latent.range(sectors).next().is_some() {
            return Err(self.error("a sector that cannot be read"));
        }
        let bytes = state.newest.get(offset as usize..end);
        buf.copy_from_slice(bytes.ok_or_else(|| self.error("beyond the end"))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert_eq!(offset % SECTOR, 0, "{}: a write that no disk could make", self.name.display());
        assert_eq!(bytes.len() as u64 % SECTOR, 0, "{}", self.name.display());
        let mut state = self.state();
        self.power.step()?;
        match state.write(offset, bytes) {
            true => Ok(()),
            false => Err(self.error("a write that is refused")),
        }
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state().newest.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "a disk has its length"))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        self.power.step()?;
        let state = &mut *state;
        for (at, bytes) in state.pending.drain(..) {
            state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "no space is given back"))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: SECTOR as u32, is_block_device: true, device: None }
    }

    fn place(&self) -> &Path {
        &self.name
    }
}
