//! One member of an array: its data, the checksums of its blocks, its superblock and its part of
//! the log.
//!
//! Invariants: the checksums in memory are those of the last writes; those on the member are as of
//! the last [`write_tables`](ArrayMember::write_tables), and the log holds those that changed
//! afterwards.
//!
//! This module knows no other members.

mod extent;
mod failure;
mod forget;
pub mod replacement;
mod tables;
mod unsure;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use self::failure::NotedDevice;
pub(crate) use self::failure::{Failure, reason_of};
use self::replacement::ReplacementMember;
use self::tables::{Tables, check_of};
use super::sums::SumCache;
use super::traffic::{MemberArea, MemberTraffic, Timer, Traffic};
use crate::format::BLOCK_BYTES;
use crate::format::regions::{self, Region, SECTOR_REGIONS, Version};
use crate::format::sector::{SECTOR_BYTES, TableKind};
use crate::format::sums::{PAGE_BLOCKS, Sum, pages};
use crate::format::superblock::{Areas, Superblock};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::{ArrayId, MemberId};
use pinstripe_base::sync::{get_mut, lock};
use pinstripe_io::device::SharedDevice;

/// Unchanged pages of the table of checksums that a member keeps in memory: 2 MiB.
const PAGES_KEPT: usize = 512;
/// The advice for a member whose map of regions cannot be trusted.
const ANEW: &str = "add the member again: its data is then rebuilt from the other members";
/// The number of blocks whose checksums are looked up at once.
const SUMS_AT_ONCE: usize = 64;

/// A member that is present.
pub(crate) struct ArrayMember {
    device: SharedDevice,
    failure: Failure,
    array: ArrayId,
    id: MemberId,
    slot: u16,
    areas: Areas,
    /// The data below this offset is right; the rest is still to be filled.
    filled_bytes: AtomicU64,
    /// Whether a member is away, so that changed regions are noted.
    notes_changes: AtomicBool,
    replacement: ReplacementMember,
    tables: Mutex<Tables>,
    traffic: Traffic,
    timer: OnceLock<Timer>,
}

impl ArrayMember {
    /// A member of an array that is being created: nothing was ever written to it.
    pub fn fresh(device: SharedDevice, superblock: &Superblock) -> Self {
        let regions = vec![Region::UNWRITTEN; pages(superblock.data_bytes / BLOCK_BYTES) as usize];
        let sectors = regions.len().div_ceil(SECTOR_REGIONS);
        let mut member = Self::with(device, superblock, regions, vec![0; sectors]);
        let tables = get_mut(&mut member.tables);
        (tables.changed, tables.is_urgent) = ((0..sectors as u64).collect(), true);
        member
    }

    /// Opens a member that its superblock describes. If the array was stopped cleanly, the member's
    /// map of regions has to be the one that was written last, unless `force` skips that check.
    ///
    /// # Errors
    /// Fails with the errors of the device; with
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for a map of regions that is damaged
    /// or old.
    pub fn open(device: SharedDevice, superblock: &Superblock, force: bool) -> Result<Self> {
        let count = pages(superblock.data_bytes / BLOCK_BYTES) as usize;
        let mut member = Self::with(device, superblock, Vec::new(), Vec::new());
        let (mut regions, mut checks) = (Vec::with_capacity(count), Vec::new());
        for number in 0..count.div_ceil(SECTOR_REGIONS) as u64 {
            let mut sector = [0; SECTOR_BYTES];
            let at = member.areas.regions_at + number * SECTOR_BYTES as u64;
            member.device.read_at(at, &mut sector)?;
            let content = member.place(TableKind::Regions, number, Version::FIRST).decode(&sector);
            let content = content.map_err(|error| error.at(member.path()).advice(ANEW))?;
            regions.extend(regions::decode(content));
            checks.push(check_of(&sector));
        }
        regions.truncate(count);
        let tables = get_mut(&mut member.tables);
        (tables.regions, tables.checks) = (regions, checks);
        let check = tables.regions_check();
        if superblock.is_clean && !force && check != superblock.regions_check {
            let what = "the region map of the member is older than the one that was written last: \
                        the device lost a write";
            return Err(Error::corrupt(what, member.path())
                .expected(superblock.regions_check, check)
                .advice(format!(
                    "{ANEW}; with --force, the member is used although some of its blocks may be \
                     stale"
                )));
        }
        Ok(member)
    }

    fn with(
        device: SharedDevice,
        superblock: &Superblock,
        regions: Vec<Region>,
        checks: Vec<u32>,
    ) -> Self {
        let (changed, recent, is_urgent, unsure, unread, doubtful) = Default::default();
        let sums = SumCache::new(PAGES_KEPT);
        let tables =
            Tables { sums, regions, changed, recent, is_urgent, checks, unsure, unread, doubtful };
        let failure = Failure::default();
        ArrayMember {
            device: Arc::new(NotedDevice::new(device, failure.clone())),
            failure,
            array: superblock.array,
            id: superblock.member,
            slot: superblock.slot,
            areas: superblock.areas,
            filled_bytes: AtomicU64::new(u64::MAX),
            notes_changes: AtomicBool::new(false),
            replacement: ReplacementMember::default(),
            tables: Mutex::new(tables),
            traffic: Traffic::default(),
            timer: OnceLock::new(),
        }
    }

    /// The path of the device, for messages.
    pub fn path(&self) -> &Path {
        self.device.place()
    }

    /// The last error of its device.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The device.
    pub fn device(&self) -> &SharedDevice {
        &self.device
    }

    /// The places of the member's areas, which may differ from those of other members.
    pub fn areas(&self) -> Areas {
        self.areas
    }

    /// The id.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Whether the member holds the expected content up to an offset of its data.
    pub fn is_filled(&self, end: u64) -> bool {
        end <= self.filled_bytes.load(Ordering::Acquire)
    }

    /// The number of those of the `bytes` from `offset` on that are below the end of this member's
    /// filled part. For a replacement, a write to the replaced member may begin in the filled part
    /// and end beyond it: filling never returns to the part below.
    fn filled_part(&self, offset: u64, bytes: usize) -> usize {
        let filled = self.filled_bytes.load(Ordering::Acquire).saturating_sub(offset);
        usize::try_from(filled).map_or(bytes, |filled| filled.min(bytes))
    }

    /// Sets the offset up to which the member's data is right; `None` means all of it.
    pub(crate) fn set_filled(&self, bytes: Option<u64>) {
        self.filled_bytes.store(bytes.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The member's replacement, if there is one.
    pub fn replacement(&self) -> &ReplacementMember {
        &self.replacement
    }

    /// Sets whether regions that change are noted for a member that is away. Regions that changed
    /// since the last superblock are noted at once, since the member that is away may miss them,
    /// too.
    pub(crate) fn note_changes(&self, notes: bool) {
        self.replacement.with(|replacement| {
            replacement.note_changes(notes);
            Ok(())
        });
        let was = self.notes_changes.swap(notes, Ordering::AcqRel);
        if was || !notes {
            return;
        }
        let mut tables = self.lock();
        let recent = std::mem::take(&mut tables.recent);
        for page in tables.sums.changed_pages().into_iter().chain(recent) {
            tables.note(page);
        }
    }

    /// Tells the member that all present members have the newest superblock.
    pub fn published(&self) {
        self.lock().recent.clear();
    }

    /// Whether `is_such` is true for any region that overlaps a range of data.
    pub(crate) fn any_region(&self, range: &Range<u64>, is_such: impl Fn(Region) -> bool) -> bool {
        let page = |offset: u64| (offset / BLOCK_BYTES / PAGE_BLOCKS) as usize;
        let pages = page(range.start)..=page(range.end.saturating_sub(1).max(range.start));
        self.lock().regions[pages].iter().any(|region| is_such(*region))
    }

    /// Drops the notes of changed regions: no member misses anything.
    pub(crate) fn forget_changes(&self) {
        self.replacement.with(|replacement| {
            replacement.forget_changes();
            Ok(())
        });
        self.notes_changes.store(false, Ordering::Release);
        self.lock().each(|region| region.behind(false));
    }

    /// Bytes moved and times taken since the member was opened.
    pub fn traffic(&self) -> MemberTraffic {
        self.traffic.snapshot()
    }

    /// Makes the member measure the time of its transfers from now on.
    pub(crate) fn set_timer(&self, timer: Timer) {
        // One that has a timer keeps it.
        let _ = self.timer.set(timer);
    }

    /// The errors of [`Device::read_at`](pinstripe_io::device::Device::read_at).
    ///
    /// # Errors
    /// Fails with the errors of [`Device::read_at`](pinstripe_io::device::Device::read_at), as for
    /// all methods that follow.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.traffic.read(MemberArea::Data, buf.len());
        let read = || self.device.read_at(self.areas.data_at + offset, buf);
        self.traffic.reads.measure(self.timer.get(), read)
    }

    /// Writes `bytes` to the member's data at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.replacement.with(|replacement| match replacement.filled_part(offset, bytes.len()) {
            0 => Ok(()),
            part => replacement.write(offset, &bytes[..part]),
        });
        self.traffic.written(MemberArea::Data, bytes.len());
        let write = || self.device.write_at(self.areas.data_at + offset, bytes);
        self.traffic.writes.measure(self.timer.get(), write)
    }

    /// Writes consecutive parts from `offset` on, past the page cache where the device supports
    /// that. No other write to this member may run at the same time.
    pub fn write_long(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.replacement.with(|replacement| match replacement.filled_part(offset, bytes) {
            0 => Ok(()),
            part => replacement.write_long(offset, &first_bytes(parts, part)),
        });
        self.traffic.written(MemberArea::Data, bytes);
        let write = || self.device.write_long_at(self.areas.data_at + offset, parts);
        self.traffic.writes.measure(self.timer.get(), write)
    }

    /// Fills `buf` from a position in the member's log.
    pub(crate) fn read_log(&self, position: u64, buf: &mut [u8]) -> Result<()> {
        self.traffic.read(MemberArea::Log, buf.len());
        self.device.read_at(self.areas.log_at + position, buf)
    }

    /// Writes at a position in the member's log.
    pub(crate) fn write_log(&self, position: u64, bytes: &[u8]) -> Result<()> {
        self.replacement.with(|replacement| replacement.write_log(position, bytes));
        self.traffic.written(MemberArea::Log, bytes.len());
        self.device.write_at(self.areas.log_at + position, bytes)
    }

    /// Makes all writes to the member durable.
    pub fn sync(&self) -> Result<()> {
        self.replacement.with(ArrayMember::sync);
        self.traffic.syncs.measure(self.timer.get(), || self.device.sync())
    }

    /// Writes the superblock: the common part, and the fields of this member.
    pub(crate) fn write_superblock(&self, common: &Superblock) -> Result<()> {
        self.replacement.with(|replacement| replacement.write_superblock(common));
        let (slot, member, areas) = (self.slot, self.id, self.areas);
        let regions_check = self.lock().regions_check();
        let superblock = Superblock { slot, member, areas, regions_check, ..common.clone() };
        let bytes = superblock.encode();
        self.traffic.written(MemberArea::Tables, bytes.len());
        self.device.write_at(superblock.place(), &bytes)
    }

    /// The checksums of blocks: [`Sum::LOST`] where the table is damaged.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn sums(&self, blocks: Range<u64>) -> Result<Vec<Sum>> {
        let mut tables = self.bring(&blocks)?;
        Ok(blocks.map(|block| tables.sums.get(block).expect("its page was brought")).collect())
    }

    /// Adds the checksums of blocks to `out`.
    ///
    /// # Errors
    /// Fails with the errors of [`sums`](Self::sums).
    pub(crate) fn sums_into(&self, blocks: Range<u64>, out: &mut Vec<Sum>) -> Result<()> {
        let mut tables = self.bring(&blocks)?;
        out.extend(blocks.map(|block| tables.sums.get(block).expect("its page was brought")));
        Ok(())
    }

    /// Fills `buf`, which is whole blocks, from an offset of the member's data, and returns the
    /// numbers of the blocks that fail their checksum, doubtful ones included. Blocks that were
    /// never written read as zeros.
    ///
    /// # Errors
    /// Fails with the errors of the device, and of [`sums`](Self::sums).
    pub(crate) fn read_checked(&self, offset: u64, buf: &mut [u8]) -> Result<Vec<u32>> {
        let mut bad = Vec::new();
        let first = offset / BLOCK_BYTES;
        let mut sums = [Sum::UNWRITTEN; SUMS_AT_ONCE];
        let pieces = buf.chunks_mut(SUMS_AT_ONCE * BLOCK_BYTES as usize);
        for (number, piece) in pieces.enumerate() {
            let done = number * SUMS_AT_ONCE;
            let start = first + done as u64;
            let count = piece.len() / BLOCK_BYTES as usize;
            let sums = &mut sums[..count];
            self.bring(&(start..start + count as u64))?.fill(start, sums);
            if !sums.iter().any(|sum| sum.is_written()) {
                piece.fill(0);
                continue;
            }
            self.read(start * BLOCK_BYTES, piece)?;
            let blocks = piece.chunks_mut(BLOCK_BYTES as usize).zip(sums);
            for (block, (bytes, sum)) in blocks.enumerate() {
                if !sum.is_written() {
                    bytes.fill(0);
                } else if !sum.suits(bytes) {
                    bad.push((done + block) as u32);
                }
            }
        }
        Ok(bad)
    }

    /// Sets the checksums of blocks from `first` on.
    ///
    /// # Errors
    /// Fails with the errors of [`sums`](Self::sums).
    pub(crate) fn set_sums(&self, first: u64, sums: &[Sum]) -> Result<()> {
        let blocks = first..first + sums.len() as u64;
        let bytes = sums.len() * BLOCK_BYTES as usize;
        self.replacement.with(|replacement| {
            match replacement.filled_part(first * BLOCK_BYTES, bytes) / BLOCK_BYTES as usize {
                0 => Ok(()),
                part => replacement.set_sums(first, &sums[..part]),
            }
        });
        let notes = self.notes_changes.load(Ordering::Acquire);
        let mut tables = self.bring(&blocks)?;
        for (block, sum) in blocks.zip(sums) {
            tables.begin(block / PAGE_BLOCKS);
            if notes {
                tables.note(block / PAGE_BLOCKS);
            }
            tables.sums.set(block, *sum);
            tables.doubtful.remove(&block);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }
}

/// The first `bytes` bytes of several consecutive parts.
fn first_bytes<'a>(parts: &[&'a [u8]], bytes: usize) -> Vec<&'a [u8]> {
    let mut left = bytes;
    let mut first = Vec::with_capacity(parts.len());
    for part in parts {
        let part = &part[..part.len().min(left)];
        left -= part.len();
        if !part.is_empty() {
            first.push(part);
        }
    }
    first
}
