//! Plans what to read, compute and write so that a row holds the expected content; a pure function.
//!
//! The caller describes what it knows about a row's bytes by [`Mark`]s: dirty, cached, never
//! written, or bad. The [`Planner`] cuts the row where these marks change, and finds for each piece
//! the method that moves the fewest bytes:
//! - **full**: every data shard is dirty; nothing is read;
//! - **read-modify-write**: the old bytes of dirty shards and parity are read; parity changes by
//!   the difference;
//! - **reconstruct-write**: the data shards that stay are read; parity is recomputed. If one of the
//!   data shards is lost, the rest of the row is read, and the shard is rebuilt before parity is
//!   computed;
//! - **mirror copy** and **plain**: there is no parity to compute.
//!
//! Bytes that were never written, data and parity alike, are known to be zeros, and are never read.
//!
//! A block that is dirty in part is marked [`Class::Partial`] completely: the caller has some of
//! its new bytes, and the plan reads its old ones (`PlanPiece::fill`). Read-modify-write needs
//! these old bytes anyway.
//!
//! Byte counts here are exact: columns have no smallest unit other than the bounds of the marks.
//! The number of the shard decides ties, so that the same input gives the same plan.
//!
//! This module has no bytes, buffers or devices. The caller knows which parity is stale: for such
//! rows it plans with [`RmwLevel::Never`] and does not trust content that parity would rebuild.

mod read;
mod sweep;
mod view;
mod write;

use std::ops::Range;

#[cfg(test)]
use super::geometry::Place;
use super::geometry::RowMap;
use super::set::{MemberSet, ShardSet};
use pinstripe_base::error::{Error, Kind, Result};
use sweep::{Segment, Sweep};
use view::{Sources, View};

/// The state of some bytes of a shard.
///
/// In a mirror, `Dirty`, `Partial` and `Cached` of shard 0 apply to the content; the other classes
/// apply to each copy separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// To be written; the caller has all of the new bytes.
    Dirty = 0,
    /// To be written; the caller has some of the new bytes, the rest stays as it was.
    Partial = 1,
    /// The caller has the bytes as they are on the member. The class is ignored for bytes that are
    /// also dirty.
    Cached = 2,
    /// Never written, so the bytes are zeros, even if the member is absent.
    Unwritten = 3,
    /// The bytes are on a present member, but were bad when they were read. May be written.
    Erased = 4,
    /// To be read, parity included; only for [`Planner::plan_read`].
    Wanted = 5,
}

/// The number of classes.
const CLASSES: usize = 6;

/// The state of a range of a shard. Marks of one class on one shard do not overlap, and their order
/// does not matter. Bytes without a mark are clean, not in the caller's memory, and on their
/// member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The shard.
    pub shard: usize,
    /// The state.
    pub class: Class,
    /// The bytes of the chunk.
    pub column: Range<u32>,
}

/// When parity is changed by the difference instead of recomputed, with md's numbers (`rmw_level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RmwLevel {
    /// 0: never; needed where parity may be stale.
    Never,
    /// 1: where that reads fewer bytes.
    #[default]
    Fewer,
    /// 2: where that reads no more bytes.
    FewerOrEqual,
}

impl RmwLevel {
    /// The level with this number (md's).
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for any number except 0, 1 and 2.
    pub fn from_number(number: u64) -> Result<Self> {
        match number {
            0 => Ok(RmwLevel::Never),
            1 => Ok(RmwLevel::Fewer),
            2 => Ok(RmwLevel::FewerOrEqual),
            _ => Err(Error::new(Kind::Usage, "this is not a possible value of rmw_level")
                .expected("0, 1 or 2", number)),
        }
    }
}

/// Rules of choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// The granule in bytes, a power of two: a shard that is written anywhere in an aligned run of
    /// this length is written in all of the run, and one method is chosen for the run. `None`
    /// widens nothing and chooses the method for each piece.
    pub granule: Option<u32>,
    /// When parity is updated by the difference.
    pub rmw: RmwLevel,
}

/// The method of writing or reading a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Parity is computed from the new bytes of all data shards; nothing is read.
    Full,
    /// Parity is changed by the difference between old and new bytes.
    ReadModifyWrite,
    /// Parity is computed from all data shards, old and new.
    Reconstruct,
    /// The same bytes are written to every copy.
    MirrorCopy,
    /// Bytes are written to their member; there is no parity, or its members are absent.
    Plain,
    /// Read only: all wanted shards are present.
    Read,
    /// Read only: some wanted shards are computed from others.
    Rebuild,
}

/// The data that a written piece must log so that a crash in the middle can be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Payload {
    /// New bytes of the written data shards, each on its own member and, as `data`, on the members
    /// of parity: the record alone makes the write durable.
    pub own: bool,
    /// The sum of the unchanged data shards, on the member of P.
    pub p: bool,
    /// The syndrome of the unchanged data shards, on the member of Q.
    pub q: bool,
    /// The new bytes of these data shards, whose members are absent; they are logged on each member
    /// of parity.
    pub data: ShardSet,
}

/// A range of columns that is written or read by one method.
///
/// Every shard whose old bytes the method needs is in exactly one of `reads`, `zeros`, `cached` and
/// `rebuild`. With `rebuild`, the parity shards in `reads` and `zeros` are those from which the
/// lost shards are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanPiece {
    /// The range of bytes of each chunk.
    pub column: Range<u32>,
    /// The method.
    pub method: Method,
    /// Data shards that the caller overwrites completely.
    pub dirty: ShardSet,
    /// Further data shards to write: old bytes are used where the caller has no new ones.
    pub fill: ShardSet,
    /// Shards that the caller wants to read.
    pub wanted: ShardSet,
    /// Shards whose bytes must be read.
    pub reads: ShardSet,
    /// Shards that are needed and known to be zeros.
    pub zeros: ShardSet,
    /// Shards that are needed and whose bytes the caller has.
    pub cached: ShardSet,
    /// Lost shards that are needed and are computed from the others.
    pub rebuild: ShardSet,
    /// Shards to write.
    pub writes: ShardSet,
    /// The data to log before the write.
    pub log: Payload,
}

/// One read or write of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// The shard.
    pub shard: usize,
    /// The member.
    pub member: usize,
    /// The bytes of the member's data.
    pub member_range: Range<u64>,
    /// The bytes of the chunk.
    pub column: Range<u32>,
}

/// The plan of one row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RowPlan {
    /// The pieces of the plan, in the order of their columns. Columns with nothing to do are in no
    /// piece.
    pub pieces: Vec<PlanPiece>,
    /// All reads of the pieces, joined into as few transfers as possible, by shard and column.
    pub reads: Vec<Transfer>,
    /// All writes of the pieces, joined into as few transfers as possible, by shard and column.
    pub writes: Vec<Transfer>,
}

/// Plans one row after the other; keeps only its buffers between rows.
#[derive(Debug, Default)]
pub struct Planner {
    sweep: Sweep,
}

impl Planner {
    /// Plans how the dirty bytes of a row are written to its members. The former content of `plan`
    /// is dropped.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] where the present members cannot hold the dirty bytes, or
    /// cannot give the old bytes that are needed. After an error, `plan` is meaningless.
    pub(crate) fn plan_write(
        &mut self,
        row: &RowMap,
        absent: MemberSet,
        marks: &[Mark],
        rules: Rules,
        plan: &mut RowPlan,
    ) -> Result<()> {
        plan.clear();
        let granule = rules.granule.filter(|&granule| granule > 1);
        self.sweep.cut(row, marks, granule);
        write::plan(&View::new(row, absent), &self.sweep.segments, rules.rmw, plan)?;
        plan.transfer(row);
        Ok(())
    }

    /// Plans how wanted bytes of a row are read, from parity or another copy where necessary. Only
    /// the bytes on the members matter, so dirty bytes are ignored. The former content of `plan` is
    /// dropped.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] where the present members cannot give the wanted bytes.
    /// After an error, `plan` is meaningless.
    pub(crate) fn plan_read(
        &mut self,
        row: &RowMap,
        absent: MemberSet,
        marks: &[Mark],
        plan: &mut RowPlan,
    ) -> Result<()> {
        plan.clear();
        self.sweep.cut(row, marks, None);
        read::plan(&View::new(row, absent), &self.sweep.segments, plan)?;
        plan.transfer(row);
        Ok(())
    }
}

impl PlanPiece {
    /// A piece that has only its column and method.
    fn new(segment: &Segment, method: Method) -> Self {
        PlanPiece {
            column: segment.column.clone(),
            method,
            dirty: ShardSet::EMPTY,
            fill: ShardSet::EMPTY,
            wanted: ShardSet::EMPTY,
            reads: ShardSet::EMPTY,
            zeros: ShardSet::EMPTY,
            cached: ShardSet::EMPTY,
            rebuild: ShardSet::EMPTY,
            writes: ShardSet::EMPTY,
            log: Payload::default(),
        }
    }

    /// Sets the sources of the old bytes of the `needed` shards; lost shards are to be rebuilt.
    fn need(mut self, needed: ShardSet, sources: &Sources) -> Self {
        self.reads = needed.and(sources.readable);
        self.zeros = needed.and(sources.zeros);
        self.cached = needed.and(sources.cached);
        self.rebuild = needed.and(sources.lost);
        self
    }
}

impl RowPlan {
    /// The number of bytes that all reads and writes move.
    pub fn moved_bytes(&self) -> u64 {
        let transfers = self.reads.iter().chain(&self.writes);
        transfers.map(|it| it.member_range.end - it.member_range.start).sum()
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.reads.clear();
        self.writes.clear();
    }

    /// Appends a piece, or extends the last one if the two are alike.
    fn push(&mut self, mut piece: PlanPiece) {
        if let Some(last) = self.pieces.last_mut()
            && last.column.end == piece.column.start
        {
            let end = piece.column.end;
            piece.column = last.column.clone();
            if *last == piece {
                last.column.end = end;
                return;
            }
            piece.column = last.column.end..end;
        }
        self.pieces.push(piece);
    }

    fn transfer(&mut self, row: &RowMap) {
        join(row, &self.pieces, |piece| piece.reads, &mut self.reads);
        join(row, &self.pieces, |piece| piece.writes, &mut self.writes);
    }
}

/// Makes transfers of one set of the pieces' shards, shard by shard; transfers with adjacent
/// columns are joined.
fn join(
    row: &RowMap,
    pieces: &[PlanPiece],
    set: impl Fn(&PlanPiece) -> ShardSet,
    transfers: &mut Vec<Transfer>,
) {
    let all = pieces.iter().fold(ShardSet::EMPTY, |all, piece| all.or(set(piece)));
    for shard in all.iter() {
        let place = row.place(shard);
        let first = transfers.len();
        for piece in pieces.iter().filter(|piece| set(piece).has(shard)) {
            let end = place.start + u64::from(piece.column.end);
            match transfers[first..].last_mut() {
                Some(last) if last.column.end == piece.column.start => {
                    last.column.end = piece.column.end;
                    last.member_range.end = end;
                }
                _ => transfers.push(Transfer {
                    shard,
                    member: place.member,
                    member_range: place.start + u64::from(piece.column.start)..end,
                    column: piece.column.clone(),
                }),
            }
        }
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
