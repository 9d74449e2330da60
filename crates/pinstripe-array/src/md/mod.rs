//! Reads arrays that Linux md made: metadata 0.90, 1.0, 1.1 and 1.2, levels 0, 1, 4, 5, 6 and 10.
//!
//! ```text
//! superblocks --> members, geometry --> read: from the member, else from the rest of the row
//!                                   --> write, if asked for: in place, the set marked as dirty
//! ```
//!
//! md keeps no checksums, so every read that succeeds is trusted. If a member cannot be read, has a
//! bad block, or is not recovered that far, the bytes are computed from the rest of the row.
//!
//! Invariants:
//! - reading a set changes no byte of it;
//! - before the first write all superblocks say, durably, that the set is dirty; they say that it
//!   is clean again only after a sync of all members, and never when a write failed. After a power
//!   cut, md resyncs the set.
//!
//! Source: `drivers/md/md.c` (`super_1_load`, `super_1_validate`, `super_1_sync`, `md_run`),
//! `raid5.c` and `md-bitmap.h` of Linux 6.1.
//!
//! Not in this module: the meaning of level, layout and chunk (`geometry`), and the bytes of a
//! superblock (`format/md`).

mod assemble;
mod bitmap;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;
use std::path::{Path, PathBuf};

pub use assemble::{MdAssembleOptions, MdAssembly, MdLeftOut, assemble};

use super::compute::old;
use super::geometry::{ArrayGeometry, RowMap, Span};
use super::plan::{Class, Mark, Planner, RowPlan, Transfer};
use super::set::MemberSet;
use crate::format::md::MdSuperblock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, Run, SharedDevice, Space, Sparse, write_parts};
use write::Writing;

/// A present member.
struct MdMember {
    device: SharedDevice,
    superblock: MdSuperblock,
    /// The offset of the member's data, in bytes.
    data_at: u64,
    /// Parts of the member's data that cannot be read, ascending.
    unreadable: Vec<Range<u64>>,
}

/// An assembled md array: a device that can be read, and can be written only if it was opened for
/// writing.
pub struct MdArray {
    geometry: ArrayGeometry,
    /// Members by role; `None` if the member is absent.
    members: Vec<Option<MdMember>>,
    /// The superblock of the member with the most events.
    superblock: MdSuperblock,
    /// Bytes of each member up to which parity can be trusted.
    parity_bytes: u64,
    place: PathBuf,
    writing: Option<Writing>,
}

impl MdArray {
    /// The geometry.
    pub fn geometry(&self) -> &ArrayGeometry {
        &self.geometry
    }

    /// The newest superblock.
    pub fn superblock(&self) -> &MdSuperblock {
        &self.superblock
    }

    /// Roles whose members are absent.
    pub fn absent(&self) -> MemberSet {
        let roles = self.members.iter().enumerate();
        roles.filter(|(_, member)| member.is_none()).map(|(role, _)| role).collect()
    }

    /// The path of a role's member.
    pub(crate) fn member_place(&self, role: usize) -> Option<&Path> {
        self.members[role].as_ref().map(|member| member.device.place())
    }

    fn read_span(&self, span: &Span, buf: &mut [u8]) -> Result<()> {
        let map = self.geometry.map(span.row);
        let place = map.place(span.data);
        let start = place.start + u64::from(span.column.start);
        if let Some(member) = &self.members[place.member]
            && member.read(start, buf).is_ok()
        {
            return Ok(());
        }
        self.rebuilt(&map, span, buf)
    }

    /// Reads a span that cannot be read from its own member.
    fn rebuilt(&self, map: &RowMap, span: &Span, buf: &mut [u8]) -> Result<()> {
        let wanted = Mark { shard: span.data, class: Class::Wanted, column: span.column.clone() };
        let mut marks = vec![wanted];
        self.doubts(map, &span.column, &mut marks);
        let mut plan = RowPlan::default();
        loop {
            Planner::default().plan_read(map, self.absent(), &marks, &mut plan)?;
            let rebuilds = plan.pieces.iter().any(|piece| !piece.rebuild.is_empty());
            if rebuilds {
                self.check_parity(map)?;
            }
            let (reads, bad) = self.fetch_all(&plan);
            if !bad.is_empty() {
                marks.extend(bad);
                continue;
            }
            for piece in &plan.pieces {
                let old = old(map, &plan, &reads, piece)?;
                let bytes = old[span.data].as_ref().expect("the plan had what is wanted");
                let at = (piece.column.start - span.column.start) as usize;
                buf[at..at + bytes.len()].copy_from_slice(bytes);
            }
            return Ok(());
        }
    }

    /// Refuses to compute data from parity that the set does not guarantee.
    fn check_parity(&self, map: &RowMap) -> Result<()> {
        let end = (map.index() + 1).saturating_mul(self.geometry.chunk_bytes().into());
        if map.mirrors() || end <= self.parity_bytes {
            return Ok(());
        }
        let what = "a part of the array can be rebuilt only from parity that was never synced";
        Err(Error::new(Kind::TooManyLosses, what).at(&self.place).advice(
            "let md resync the array with all members; 'pinstripe array assemble NAME DEVICE... \
             --force' reads data that may be wrong",
        ))
    }

    /// Marks the parts of a column that are already known to be unreadable.
    fn doubts(&self, map: &RowMap, column: &Range<u32>, marks: &mut Vec<Mark>) {
        for shard in 0..map.shards() {
            let place = map.place(shard);
            let Some(member) = &self.members[place.member] else { continue };
            let start = place.start + u64::from(column.start);
            for bad in member.unreadable_in(start..place.start + u64::from(column.end)) {
                let column = (bad.start - place.start) as u32..(bad.end - place.start) as u32;
                marks.push(Mark { shard, class: Class::Erased, column });
            }
        }
    }

    /// Carries out the reads of a plan, and returns the bytes and the marks of what could not be
    /// read.
    fn fetch_all(&self, plan: &RowPlan) -> (Vec<Vec<u8>>, Vec<Mark>) {
        let mut bad = Vec::new();
        let fetch = |it: &Transfer| {
            let mut bytes = vec![0; it.column.len()];
            let member = self.members[it.member].as_ref();
            if member.is_none_or(|member| member.read(it.member_range.start, &mut bytes).is_err()) {
                let column = it.column.clone();
                bad.push(Mark { shard: it.shard, class: Class::Erased, column });
            }
            bytes
        };
        let reads = plan.reads.iter().map(fetch).collect();
        (reads, bad)
    }

    fn check(&self, offset: u64, bytes: usize, kind: Kind) -> Result<()> {
        let end = offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= self.geometry.capacity()) {
            return Ok(());
        }
        let end = u128::from(offset) + bytes as u128;
        Err(Error::new(kind, "the range is beyond the end of the array")
            .at(&self.place)
            .expected(format!("within {}", self.geometry.capacity()), end))
    }
}

impl MdMember {
    /// Fills `buf` with the array's data from `offset` on; fails where the data may not be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        match self.unreadable_in(range).next() {
            None => self.device.read_at(self.data_at + offset, buf),
            Some(_) => Err(Error::corrupt(
                "the range is not yet recovered, or is listed as a bad block",
                self.device.place(),
            )),
        }
    }

    /// The parts of a range that cannot be read.
    fn unreadable_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = range;
        let within = move |bad: &Range<u64>| bad.start.max(start)..bad.end.min(end);
        self.unreadable.iter().map(within).filter(|bad| bad.start < bad.end)
    }
}

impl Sparse for MdArray {
    /// md does not record which blocks were never written, so all blocks count as data.
    fn run(&self, range: Range<u64>) -> Result<Run> {
        match range.end <= self.geometry.capacity() && !range.is_empty() {
            true => Ok(Run { bytes: range.end - range.start, is_hole: false }),
            false => Err(Error::corrupt("the array ends before this range", &self.place).expected(
                format!("an array of {} bytes or more", range.end),
                self.geometry.capacity(),
            )),
        }
    }

    fn zero(&self, _: Range<u64>, _: Space) -> Result<()> {
        let what = "this device has no request that zeroes a range; the caller must write zeros";
        Err(Error::new(Kind::Unsupported, what).at(&self.place))
    }
}

impl Device for MdArray {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len(), Kind::Corrupt)?;
        for span in self.geometry.spans(offset..offset + buf.len() as u64) {
            let from = (span.user.start - offset) as usize;
            self.read_span(&span, &mut buf[from..from + span.column.len()])?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Kind::NoSpace)?;
        match &self.writing {
            Some(writing) => self.write(writing, offset, bytes),
            None => Err(Error::new(Kind::Refused, "the array was opened read-only")
                .at(&self.place)
                .advice(
                    "serve the array with 'pinstripe array serve --write'; the array must be \
                     complete and clean",
                )),
        }
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.geometry.capacity())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        pinstripe_io::device::same_length(&self.place, bytes, self.geometry.capacity())
    }

    fn sync(&self) -> Result<()> {
        if self.writing.is_none() {
            return Ok(());
        }
        let mut members = self.members.iter().flatten();
        members.try_for_each(|member| member.device.sync()).inspect_err(|_| self.stop_writing())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "pinstripe does not support discard on an md array")
            .at(&self.place))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: 4096, is_block_device: true, device: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}
