//! A planned window of a row: the work of a batch on that window.
//!
//! A row is cut into windows, so that a batch needs bounded memory for any size of chunk.

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::log::Log;
use crate::cache::Dirty;
use crate::compute::Operation;
use crate::format::BLOCK_BYTES;
use crate::format::log::LogPiece;
use crate::geometry::{ArrayGeometry, RowMap};
use crate::plan::{Class, Mark, Method, Planner, RowPlan, Rules};
use pinstripe_base::error::Result;

/// The most bytes of a chunk that one job covers; as long as the longest granule.
const WINDOW_BYTES: u32 = 1 << 20;

/// A window of a row.
pub(super) struct Job {
    pub map: RowMap,
    /// The range of the row's chunks, in bytes, that this job covers.
    pub window: Range<u32>,
    /// Whether the log record holds the new data of this job, so that the record alone makes the
    /// data durable.
    pub logs_data: bool,
    pub(super) dirty: Arc<Dirty>,
    pub(super) memory: Memory,
}

/// Buffers of a job.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) marks: Vec<Mark>,
    pub(super) plan: RowPlan,
    pub(super) reads_at: Vec<usize>,
    pub(super) makes_at: Vec<Option<usize>>,
}

impl Job {
    /// Plans the job by the members and marks that are known now.
    pub fn plan(&mut self, array: &Array, planner: &mut Planner, rules: Rules) -> Result<()> {
        let Memory { marks, plan, .. } = &mut self.memory;
        planner.plan_write(&self.map, array.absent_at(&self.map), marks, rules, plan)?;
        let parity = self.map.parity_shards();
        for piece in plan.pieces.iter_mut().filter(|_| self.logs_data) {
            piece.log.own = true;
            if !parity.is_empty() {
                piece.log.data = piece.log.data.or(piece.writes.minus(parity));
            }
        }
        Ok(())
    }

    /// The columns in which the job writes data blocks for the first time. A full row counts as all
    /// new: its plan needs no checksums, so they were not looked up.
    pub fn fresh(&self) -> Option<Range<u32>> {
        let Memory { marks, plan, .. } = &self.memory;
        if self.dirty.is_full(&self.map) {
            let columns = plan.pieces.iter().map(|piece| piece.column.clone());
            return columns.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        }
        let is_fresh = |mark: &&Mark| {
            mark.class == Class::Unwritten && !self.map.parity_shards().has(mark.shard)
        };
        let mut bounding_range: Option<Range<u32>> = None;
        for mark in marks.iter().filter(is_fresh) {
            for piece in plan.pieces.iter().filter(|piece| piece.writes.has(mark.shard)) {
                let start = mark.column.start.max(piece.column.start);
                let end = mark.column.end.min(piece.column.end);
                if start < end {
                    let all = bounding_range.unwrap_or(start..end);
                    bounding_range = Some(all.start.min(start)..all.end.max(end));
                }
            }
        }
        bounding_range
    }

    pub fn operation<'a>(&'a self, read: &'a [u8]) -> Operation<'a> {
        Operation {
            row: &self.map,
            plan: &self.memory.plan,
            dirty: &self.dirty,
            read,
            reads_at: &self.memory.reads_at,
            makes_at: &self.memory.makes_at,
        }
    }

    /// The methods of the job's pieces.
    pub fn methods(&self) -> impl Iterator<Item = Method> {
        self.memory.plan.pieces.iter().map(|piece| piece.method)
    }

    /// The number of bytes that the job takes in the head of a record.
    pub(crate) fn head_bytes(&self) -> u64 {
        let of = |piece: &crate::plan::PlanPiece| {
            let blocks = piece.column.len() as u64 / BLOCK_BYTES;
            LogPiece::FIXED_BYTES + 4 * blocks * piece.writes.len() as u64
        };
        self.memory.plan.pieces.iter().map(of).sum()
    }

    /// Calls `take` with each member that logs a payload for this job, and the number of bytes of
    /// that payload.
    pub(crate) fn each_payload(&self, mut take: impl FnMut(usize, u64)) {
        let data = self.map.data();
        for piece in &self.memory.plan.pieces {
            let parity = self.map.parity_shards();
            for shard in piece.writes.minus(parity).iter().filter(|_| piece.log.own) {
                take(self.map.member(shard), piece.column.len() as u64);
            }
            for shard in piece.writes.and(parity).iter() {
                let is_sum = [piece.log.p, piece.log.q][shard - data];
                let parts = piece.log.data.len() + usize::from(is_sum);
                take(self.map.member(shard), (parts * piece.column.len()) as u64);
            }
        }
    }
}

/// Bytes of a chunk that one job may cover, so that its record fits into half of the log.
pub(super) fn window_bytes(geometry: &ArrayGeometry, log: &Log) -> u32 {
    let (shards, members) = (geometry.shards() as u64, geometry.members() as u64);
    let longest = |bytes: u64| {
        let blocks = bytes / BLOCK_BYTES;
        // The worst case: each block is a piece of its own, and as many shards as may be are
        // absent.
        bytes * (1 + geometry.level().parity() as u64)
            + blocks * (LogPiece::FIXED_BYTES + 4 * shards)
            + 8 * members
            + 2 * BLOCK_BYTES
    };
    let mut window = WINDOW_BYTES;
    while window > BLOCK_BYTES as u32 && longest(window.into()) > log.area_bytes / 2 {
        window /= 2;
    }
    window
}

/// The planning rules for jobs: the granule is at most a window, since with a longer one two jobs
/// would move the same bytes.
pub(super) fn rules_within(rules: Rules, window: u32) -> Rules {
    Rules { granule: rules.granule.map(|it| it.min(window)), ..rules }
}
