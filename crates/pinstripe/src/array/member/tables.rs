//! The tables of a member in memory, and how they get there and back.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::MutexGuard;

use super::Member;
use crate::array::sums::{SumCache, Sums};
use crate::array::traffic::Part;
use crate::error::Result;
use crate::format::array::regions::Region;
use crate::format::array::sector::{Area, CONTENT_BYTES, Content, SECTOR_BYTES, SectorPlace};
use crate::format::array::sums::{LEAF_BLOCKS, PAGE_BYTES, PAGE_LEAVES, Sum, decode, encode};

/// What is known of a member's blocks and regions.
pub(super) struct Tables {
    pub(super) sums: SumCache,
    /// By page of the table of checksums.
    pub(super) regions: Vec<Region>,
    /// Sectors of the map of regions that the member does not have so.
    pub(super) changed: BTreeSet<u64>,
    /// Pages of regions where parity may not suit data.
    pub(super) unsure: BTreeSet<u64>,
    /// Those of them whose checksums may be older than data.
    pub(super) unread: BTreeSet<u64>,
}

impl Member {
    /// Writes what changed of the tables. It is durable after a sync.
    pub fn write_tables(&self) -> Result<()> {
        self.twin.with(Member::write_tables);
        let (changed, sectors) = {
            let tables = self.lock();
            let sector = |number: &u64| (*number, tables.region_sector(*number));
            let sectors: Vec<_> = tables.changed.iter().map(sector).collect();
            (tables.sums.changed(), sectors)
        };
        for (leaf, sums) in &changed {
            let bytes = self.place(Area::Sums, *leaf).encode(&encode(sums));
            self.traffic.written(Part::Tables, bytes.len());
            self.device.write_at(self.areas.sums_at + leaf * SECTOR_BYTES as u64, &bytes)?;
        }
        if !sectors.is_empty() {
            // What a region is said to have must be there first.
            self.sync()?;
        }
        for (number, content) in &sectors {
            let bytes = self.place(Area::Regions, *number).encode(content);
            self.traffic.written(Part::Tables, bytes.len());
            self.device.write_at(self.areas.regions_at + number * SECTOR_BYTES as u64, &bytes)?;
        }
        let mut tables = self.lock();
        changed.iter().for_each(|(leaf, sums)| tables.sums.written(*leaf, sums));
        for (number, content) in &sectors {
            if tables.region_sector(*number) == *content {
                tables.changed.remove(number);
            }
        }
        Ok(())
    }

    /// Brings the leaves that speak of blocks into memory.
    pub(super) fn bring(&self, blocks: &Range<u64>) -> Result<MutexGuard<'_, Tables>> {
        loop {
            let tables = self.lock();
            let missing = tables.sums.missing(blocks.clone()).next();
            let Some(first) = missing else { return Ok(tables) };
            let page = first / PAGE_LEAVES as u64;
            let is_unwritten = !tables.regions[page as usize].is_written();
            let is_unread = tables.unread.contains(&page);
            drop(tables);
            let mut leaves = match is_unwritten {
                true => vec![Some([Sum::UNWRITTEN; LEAF_BLOCKS]); PAGE_LEAVES],
                false => self.read_page(page)?,
            };
            if is_unread {
                self.as_it_stands(page, &mut leaves);
            }
            let mut tables = self.lock();
            tables.unread.remove(&page);
            for (leaf, sums) in (page * PAGE_LEAVES as u64..).zip(leaves) {
                tables.sums.bring(leaf, sums.unwrap_or([Sum::LOST; LEAF_BLOCKS]));
                if sums.is_none() || is_unread {
                    tables.sums.touch(leaf);
                }
            }
        }
    }

    /// The leaves of a page; `None` for one that is damaged.
    fn read_page(&self, page: u64) -> Result<Vec<Option<Sums>>> {
        let mut bytes = [0; PAGE_BYTES];
        self.traffic.read(Part::Tables, bytes.len());
        self.device.read_at(self.areas.sums_at + page * PAGE_BYTES as u64, &mut bytes)?;
        let first = page * PAGE_LEAVES as u64;
        let leaf = |(number, sector): (u64, &[u8; SECTOR_BYTES])| {
            self.place(Area::Sums, first + number).decode(sector).map(decode).ok()
        };
        Ok((0..).zip(bytes.as_chunks::<SECTOR_BYTES>().0).map(leaf).collect())
    }

    pub(super) fn place(&self, area: Area, number: u64) -> SectorPlace {
        SectorPlace { array: self.array, slot: self.slot, area, number }
    }
}

impl Tables {
    /// Copies the checksums of blocks from `first` on, whose leaves were brought.
    pub(super) fn fill(&mut self, first: u64, sums: &mut [Sum]) {
        for (block, sum) in (first..).zip(sums) {
            *sum = self.sums.get(block).expect("its leaf was brought");
        }
    }

    /// Says that something is written in a region. The first time all leaves of its page are to be written.
    pub(super) fn begin(&mut self, page: u64) {
        if self.regions[page as usize].is_written() {
            return;
        }
        self.set(page, self.regions[page as usize].written());
        for leaf in page * PAGE_LEAVES as u64..(page + 1) * PAGE_LEAVES as u64 {
            self.sums.bring(leaf, [Sum::UNWRITTEN; LEAF_BLOCKS]);
            self.sums.touch(leaf);
        }
    }

    /// Notes that a member which is away may lack a region.
    pub(super) fn note(&mut self, page: u64) {
        self.set(page, self.regions[page as usize].behind(true));
    }

    pub(super) fn set(&mut self, page: u64, region: Region) {
        if std::mem::replace(&mut self.regions[page as usize], region) != region {
            self.changed.insert(page / CONTENT_BYTES as u64);
        }
    }

    pub(super) fn each(&mut self, to: impl Fn(Region) -> Region) {
        for page in 0..self.regions.len() {
            self.set(page as u64, to(self.regions[page]));
        }
    }

    pub(super) fn region_sector(&self, number: u64) -> Content {
        let mut content = [0; CONTENT_BYTES];
        let states = &self.regions[number as usize * CONTENT_BYTES..];
        content.iter_mut().zip(states).for_each(|(byte, region)| *byte = region.to_byte());
        content
    }
}
