//! The tables of a member in memory, and how they are read from and written to the member.
//!
//! Invariant: a page of checksums is durable before the map of regions records its version, and
//! before the map calls the region written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::MutexGuard;

use super::ArrayMember;
use crate::format::crc32c;
use crate::format::regions::{self, Region, SECTOR_REGIONS, Version};
use crate::format::sector::{SECTOR_BYTES, SectorContent, SectorPlace, TableKind};
use crate::format::sums::{LEAF_BLOCKS, PAGE_BYTES, PAGE_LEAVES, Sum, decode, encode};
use crate::sums::{Changed, SumCache, Sums, all};
use crate::traffic::MemberArea;
use pinstripe_base::error::Result;

/// The most pages that are written with one write.
const PAGES_AT_ONCE: usize = 64;

/// Checksums and regions of a member.
pub(super) struct Tables {
    pub(super) sums: SumCache,
    /// The state of each region, which is one page of the table of checksums.
    pub(super) regions: Vec<Region>,
    /// Sectors of the map of regions that differ from those on the member.
    pub(super) changed: BTreeSet<u64>,
    /// Pages that were written since the last superblock.
    pub(super) recent: BTreeSet<u64>,
    /// Whether changed sectors must be durable at once; changes of versions alone need not be.
    pub(super) is_urgent: bool,
    /// By sector of the map, the checksum with which the sector was last written.
    pub(super) checks: Vec<u32>,
    /// Pages of regions whose parity may not match their data.
    pub(super) unsure: BTreeSet<u64>,
    /// Those unsure pages whose checksums may be older than the data, and were not compared with it
    /// yet.
    pub(super) unread: BTreeSet<u64>,
    /// Blocks of unsure regions whose content does not match their checksum.
    pub(super) doubtful: BTreeSet<u64>,
}

/// A page of checksums as it is on a member.
struct FoundPage {
    sums: Box<Sums>,
    /// The newest version of the page's leaves.
    version: Version,
    is_damaged: bool,
}

/// Changes to be written, with the versions that their pages get.
struct Changes {
    pages: Vec<(Changed, Version)>,
    sectors: Vec<(u64, SectorContent)>,
    is_urgent: bool,
}

impl ArrayMember {
    /// Writes the changed parts of the tables to the member. Everything is durable on return,
    /// except versions in the map: the next sync makes those durable.
    pub(crate) fn write_tables(&self) -> Result<()> {
        self.replacement.with(ArrayMember::write_tables);
        let changes = self.lock().changes();
        for run in changes.pages.chunk_by(|(a, _), (b, _)| a.page + 1 == b.page) {
            run.chunks(PAGES_AT_ONCE).try_for_each(|run| self.write_pages(run))?;
        }
        if !changes.pages.is_empty() {
            self.sync()?;
        }
        for (number, content) in &changes.sectors {
            let bytes = self.place(TableKind::Regions, *number, Version::FIRST).encode(content);
            self.traffic.written(MemberArea::Tables, bytes.len());
            self.device.write_at(self.areas.regions_at + number * SECTOR_BYTES as u64, &bytes)?;
            self.lock().checks[*number as usize] = check_of(&bytes);
        }
        if changes.is_urgent {
            self.sync()?;
        }
        self.lock().written(&changes);
        Ok(())
    }

    /// Writes consecutive pages.
    fn write_pages(&self, run: &[(Changed, Version)]) -> Result<()> {
        let mut bytes = Vec::with_capacity(run.len() * PAGE_BYTES);
        for (it, version) in run {
            let first = it.page * PAGE_LEAVES as u64;
            for (number, leaf) in (first..).zip(it.sums.as_chunks::<LEAF_BLOCKS>().0) {
                let place = self.place(TableKind::Sums, number, *version);
                bytes.extend_from_slice(&place.encode(&encode(leaf)));
            }
        }
        self.traffic.written(MemberArea::Tables, bytes.len());
        let first = run.first().map_or(0, |(it, _)| it.page);
        self.device.write_at(self.areas.sums_at + first * PAGE_BYTES as u64, &bytes)
    }

    /// Loads the pages with the checksums of these blocks into memory.
    pub(super) fn bring(&self, blocks: &Range<u64>) -> Result<MutexGuard<'_, Tables>> {
        self.bring_by(blocks, |page, region| self.read_page(page, region))
    }

    /// Marks all blocks as lost whose leaves cannot be read. The leaves that are marked lost are
    /// written again with the tables.
    pub(crate) fn mark_unreadable_lost(&self, blocks: &Range<u64>) -> Result<()> {
        self.bring_by(blocks, |page, region| Ok(self.read_leaves(page, region))).map(drop)
    }

    fn bring_by(
        &self,
        blocks: &Range<u64>,
        read: impl Fn(u64, Region) -> Result<FoundPage>,
    ) -> Result<MutexGuard<'_, Tables>> {
        loop {
            let tables = self.lock();
            let missing = tables.sums.missing(blocks.clone()).next();
            let Some(page) = missing else { return Ok(tables) };
            let region = tables.regions[page as usize];
            let is_unread = tables.unread.contains(&page);
            drop(tables);
            let found = match region.is_written() {
                true => read(page, region)?,
                false => FoundPage {
                    sums: all(Sum::UNWRITTEN),
                    version: region.version(),
                    is_damaged: false,
                },
            };
            let doubtful = match is_unread {
                true => self.compare_with_content(page, &found.sums),
                false => Vec::new(),
            };
            let mut tables = self.lock();
            if tables.unread.remove(&page) {
                tables.doubtful.extend(doubtful);
            }
            tables.sums.bring(page, found.sums, found.version);
            if found.is_damaged {
                tables.sums.touch(page);
            }
        }
    }

    fn read_page(&self, page: u64, region: Region) -> Result<FoundPage> {
        let mut bytes = [0; PAGE_BYTES];
        self.traffic.read(MemberArea::Tables, bytes.len());
        self.device.read_at(self.areas.sums_at + page * PAGE_BYTES as u64, &mut bytes)?;
        Ok(self.classify(page, region, &bytes))
    }

    /// Reads the leaves of a page; leaves that cannot be read count as damaged.
    fn read_leaves(&self, page: u64, region: Region) -> FoundPage {
        let mut bytes = [0; PAGE_BYTES];
        let start = self.areas.sums_at + page * PAGE_BYTES as u64;
        for (at, sector) in (start..).step_by(SECTOR_BYTES).zip(bytes.chunks_mut(SECTOR_BYTES)) {
            if self.device.read_at(at, sector).is_err() {
                sector.fill(0);
            }
        }
        self.classify(page, region, &bytes)
    }

    /// The content of a page. Blocks of damaged leaves are marked lost.
    fn classify(&self, page: u64, region: Region, bytes: &[u8; PAGE_BYTES]) -> FoundPage {
        let expected = region.version();
        let mut found = FoundPage { sums: all(Sum::LOST), version: expected, is_damaged: false };
        let leaves = found.sums.as_chunks_mut::<LEAF_BLOCKS>().0.iter_mut();
        let sectors = bytes.as_chunks::<SECTOR_BYTES>().0;
        for (number, (leaf, sector)) in (page * PAGE_LEAVES as u64..).zip(leaves.zip(sectors)) {
            let at = |version: Version| {
                let place = self.place(TableKind::Sums, number, version);
                place.decode(sector).ok().map(|content| (version, decode(content)))
            };
            match expected.or_ahead().find_map(at) {
                Some((version, sums)) => {
                    *leaf = sums;
                    if version.since(expected) > found.version.since(expected) {
                        found.version = version;
                    }
                }
                None => found.is_damaged = true,
            }
        }
        found
    }

    pub(super) fn place(&self, area: TableKind, number: u64, version: Version) -> SectorPlace {
        let (array, member, slot) = (self.array, self.id, self.slot);
        SectorPlace { array, member, slot, area, number, version }
    }
}

/// The checksum that is stored in a sector.
pub(super) fn check_of(sector: &[u8; SECTOR_BYTES]) -> u32 {
    u32::from_le_bytes(*sector.last_chunk().expect("a sector is longer"))
}

impl Tables {
    /// Collects the changes to write. The map in memory gets the new versions of these pages.
    fn changes(&mut self) -> Changes {
        let mut pages = Vec::new();
        for it in self.sums.changed() {
            let region = self.regions[it.page as usize];
            // Not so far ahead that leaves would be refused, however often the power goes before
            // the map is written; the map on the member may itself be a version behind.
            let ahead = it.version.since(region.version()).min(Version::AHEAD_MAX - 3);
            let version = region.version().plus(ahead + 1);
            self.set(it.page, region.at(version));
            self.recent.insert(it.page);
            pages.push((it, version));
        }
        let sector = |number: &u64| (*number, self.region_sector(*number));
        let sectors = self.changed.iter().map(sector).collect();
        Changes { pages, sectors, is_urgent: std::mem::take(&mut self.is_urgent) }
    }

    fn written(&mut self, changes: &Changes) {
        changes.pages.iter().for_each(|(it, version)| self.sums.written(it, *version));
        for (number, content) in &changes.sectors {
            if self.region_sector(*number) == *content {
                self.changed.remove(number);
            }
        }
    }

    /// The checksum of the map of regions, for the superblock.
    pub(super) fn regions_check(&self) -> u32 {
        let checks: Vec<u8> = self.checks.iter().flat_map(|check| check.to_le_bytes()).collect();
        crc32c(&checks)
    }

    /// Copies the checksums of blocks from `first` on, whose pages are already in memory.
    pub(super) fn fill(&mut self, first: u64, sums: &mut [Sum]) {
        for (block, sum) in (first..).zip(sums) {
            *sum = self.sums.get(block).expect("its page was brought");
        }
    }

    /// Marks a region as written. For the first write to a region, its page of checksums is also
    /// marked as one to be written.
    pub(super) fn begin(&mut self, page: u64) {
        let region = self.regions[page as usize];
        if region.is_written() {
            return;
        }
        self.set(page, region.written());
        self.sums.bring(page, all(Sum::UNWRITTEN), region.version());
        self.sums.touch(page);
    }

    /// Notes that a member which is away may lack a region.
    pub(super) fn note(&mut self, page: u64) {
        self.set(page, self.regions[page as usize].behind(true));
    }

    pub(super) fn set(&mut self, page: u64, region: Region) {
        let was = std::mem::replace(&mut self.regions[page as usize], region);
        if was != region {
            self.changed.insert(page / SECTOR_REGIONS as u64);
            self.is_urgent |= was.at(region.version()) != region;
        }
    }

    pub(super) fn each(&mut self, to: impl Fn(Region) -> Region) {
        for page in 0..self.regions.len() {
            self.set(page as u64, to(self.regions[page]));
        }
    }

    fn region_sector(&self, number: u64) -> SectorContent {
        regions::encode(&self.regions[number as usize * SECTOR_REGIONS..])
    }
}
