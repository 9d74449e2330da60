//! Rows in memory, written by plans, held against the definition of parity.

use std::time::Duration;

use pinstripe_kernel::parity::gf256;
use proptest::prelude::*;

use super::*;
use crate::cache::Cache;
use crate::geometry::{ArrayGeometry, Layout, Level, Rotation, Shape};
use crate::plan::{Planner, RmwLevel, Rules};
use crate::set::MemberSet;

const CHUNK: u32 = 4 * BLOCK_BYTES as u32;

/// Dirty bytes: in which chunk, from where, how many.
type Write = (usize, u32, u32);

struct Row {
    geometry: ArrayGeometry,
    map: RowMap,
    /// What each shard holds.
    shards: Vec<Vec<u8>>,
}

impl Row {
    fn new(level: Level, layout: Layout, members: usize, number: u64) -> Self {
        let geometry =
            ArrayGeometry::new(level, members, CHUNK.into(), layout, 8 * u64::from(CHUNK)).unwrap();
        let map = geometry.map(number);
        let noise = |shard: usize, at: u32| (at.wrapping_mul(0x9e37_79b1) >> (shard + 3)) as u8;
        let mut shards: Vec<Vec<u8>> = (0..map.shards())
            .map(|shard| (0..CHUNK).map(|at| noise(shard, at)).collect())
            .collect();
        if map.mirrors() {
            let content = shards[0].clone();
            shards.fill(content);
        }
        let mut row = Row { geometry, map, shards };
        row.make_parity();
        row
    }

    /// Parity by its definition.
    fn make_parity(&mut self) {
        let map = self.map;
        for parity in map.parity_shards().iter() {
            for at in 0..CHUNK as usize {
                let term = |data: usize| {
                    let power = if parity == map.data() { 0 } else { map.coefficient(data) };
                    gf256::mul(gf256::exp(power), self.shards[data][at])
                };
                self.shards[parity][at] = (0..map.data()).map(term).fold(0, |sum, it| sum ^ it);
            }
        }
    }

    fn gathered(&self, writes: &[Write]) -> std::sync::Arc<Dirty> {
        let mut cache = Cache::new(Shape::from_geometry(self.geometry));
        for (number, (data, start, len)) in writes.iter().enumerate() {
            let data = data % self.map.data();
            let at = self.map.index() * self.geometry.row_bytes()
                + data as u64 * u64::from(CHUNK)
                + u64::from(*start);
            let bytes = vec![0x40 | number as u8; *len as usize];
            for span in self.geometry.spans(at..at + u64::from(*len)) {
                if span.row == self.map.index() && span.data == data {
                    cache.write(&span, &bytes[..span.column.len()], Duration::ZERO);
                }
            }
        }
        cache.begin(self.map.index())
    }

    /// Writes by a plan.
    fn write(&mut self, dirty: &Dirty, absent: MemberSet, rmw: RmwLevel) {
        let marks = dirty.marks(BLOCK_BYTES as u32);
        let mut plan = RowPlan::default();
        let rules = Rules { granule: None, rmw };
        Planner::default().plan_write(&self.map, absent, &marks, rules, &mut plan).unwrap();
        let read = |it: &Transfer| {
            assert!(!absent.has(it.member));
            self.shards[it.shard][it.column.start as usize..it.column.end as usize].to_vec()
        };
        let reads: Vec<Vec<u8>> = plan.reads.iter().map(read).collect();
        let starts = reads.iter().scan(0, |at, it| Some(std::mem::replace(at, *at + it.len())));
        let (reads_at, all) = (starts.collect::<Vec<_>>(), reads.concat());
        let (mut made, mut makes_at) = (ComputedBytes::default(), Vec::new());
        made.reserve(&self.map, &plan, dirty, &mut makes_at);
        // Whatever the memory was used for before.
        made.data.bytes.fill(0xaa);
        made.parity.bytes.fill(0xaa);
        let operation = Operation {
            row: &self.map,
            plan: &plan,
            dirty,
            read: &all,
            reads_at: &reads_at,
            makes_at: &makes_at,
        };
        for piece in &plan.pieces {
            let mut logged: [Vec<u8>; 2] = Default::default();
            let mut log = |member: usize, bytes: &[u8]| {
                let n = usize::from(self.map.p() != Some(member));
                assert!(n == 0 || self.map.q() == Some(member));
                logged[n].extend_from_slice(bytes);
            };
            operation.run_piece(piece, &mut made, &mut log).unwrap();
            self.check_log(piece, &logged);
        }
        for piece in &plan.pieces {
            let sums = made.sums(piece, &operation);
            let blocks = piece.column.len() / BLOCK_BYTES as usize;
            assert_eq!(sums.len(), piece.writes.len() * blocks);
        }
        let mut shards = self.shards.clone();
        for (number, it) in plan.writes.iter().enumerate() {
            shards[it.shard][it.column.start as usize..it.column.end as usize]
                .copy_from_slice(made.bytes(number, &operation));
        }
        self.shards = shards;
    }

    /// What is logged is parity of what stays.
    fn check_log(&self, piece: &PlanPiece, logged: &[Vec<u8>; 2]) {
        let mut rest = Row { geometry: self.geometry, map: self.map, shards: self.shards.clone() };
        let changed = piece.dirty.or(piece.fill);
        changed.iter().for_each(|data| rest.shards[data].fill(0));
        rest.make_parity();
        let column = piece.column.start as usize..piece.column.end as usize;
        for (n, is_logged) in [piece.log.p, piece.log.q].into_iter().enumerate() {
            let partial = &rest.shards.get(self.map.data() + n);
            if is_logged {
                assert_eq!(logged[n][..column.len()], partial.unwrap()[column.clone()]);
            }
            let of_data = logged[n].len() - usize::from(is_logged) * column.len();
            let is_there = self.map.parity() > n && piece.writes.has(self.map.data() + n);
            assert_eq!(of_data, usize::from(is_there) * piece.log.data.len() * column.len());
        }
    }
}

fn levels() -> impl Strategy<Value = (Level, Layout, usize)> {
    prop_oneof![
        (2..5usize).prop_map(|n| (Level::Raid0, Layout::default_of(Level::Raid0), n)),
        (2..4usize).prop_map(|n| (Level::Raid1, Layout::default_of(Level::Raid1), n)),
        (3..6usize).prop_map(|n| (Level::Raid4, Layout::default_of(Level::Raid4), n)),
        (3..6usize).prop_map(|n| (Level::Raid5, Layout::default_of(Level::Raid5), n)),
        (4..7usize).prop_map(|n| (Level::Raid6, Layout::default_of(Level::Raid6), n)),
        (4..7usize).prop_map(|n| (Level::Raid6, Layout::Parity(Rotation::DdfZeroRestart), n)),
        (4..6usize).prop_map(|n| (Level::Raid10, Layout::default_of(Level::Raid10), n)),
    ]
}

proptest! {
    #[test]
    fn parity_is_true_and_data_is_what_was_written(
        (level, layout, members) in levels(),
        number in 0..4u64,
        writes in prop::collection::vec((0..6usize, 0..CHUNK, 1..CHUNK), 1..5),
        gone in 0..7usize,
        lose in any::<bool>(),
        rmw in prop_oneof![
            Just(RmwLevel::Never), Just(RmwLevel::Fewer), Just(RmwLevel::FewerOrEqual)
        ],
    ) {
        let mut row = Row::new(level, layout, members, number);
        let can_lose = level != Level::Raid0 && lose;
        let absent = if can_lose { MemberSet::one(gone % members) } else { MemberSet::EMPTY };
        let dirty = row.gathered(&writes);
        let mut wanted = row.shards.clone();
        for (data, shard) in wanted.iter_mut().take(row.map.data()).enumerate() {
            dirty.shard(data).read(0, shard);
        }
        let lost = row.map.shards_on(absent);
        row.write(&dirty, absent, rmw);
        if row.map.mirrors() {
            let content = wanted[0].clone();
            for shard in (0..row.map.shards()).filter(|shard| !lost.has(*shard)) {
                prop_assert!(row.shards[shard] == content, "copy {shard}");
            }
            return Ok(());
        }
        let mut whole = Row { geometry: row.geometry, map: row.map, shards: wanted };
        whole.make_parity();
        for shard in (0..row.map.shards()).filter(|shard| !lost.has(*shard)) {
            prop_assert!(row.shards[shard] == whole.shards[shard], "shard {shard}");
        }
        // What an absent member should hold is what the others give.
        for shard in lost.iter() {
            let old: Vec<_> = (0..row.map.shards())
                .map(|it| (!lost.has(it)).then(|| row.shards[it].clone()))
                .collect();
            let found = rebuilt(&row.map, &old, shard, CHUNK as usize).unwrap();
            prop_assert!(found == whole.shards[shard], "absent shard {shard}");
        }
    }
}

/// A row that is written whole is written from where it lies.
#[test]
fn what_lies_in_one_run_is_not_copied() {
    let layout = Layout::default_of(Level::Raid5);
    let row = Row::new(Level::Raid5, layout, 4, 0);
    let dirty = row.gathered(&[(0, 0, CHUNK), (1, 0, CHUNK), (2, 0, CHUNK)]);
    let mut plan = RowPlan::default();
    let marks = dirty.marks(BLOCK_BYTES as u32);
    let rules = Rules::default();
    Planner::default().plan_write(&row.map, MemberSet::EMPTY, &marks, rules, &mut plan).unwrap();
    assert!(plan.reads.is_empty());
    let (mut made, mut makes_at) = (ComputedBytes::default(), Vec::new());
    made.reserve(&row.map, &plan, &dirty, &mut makes_at);
    assert_eq!(makes_at.iter().filter(|it| it.is_some()).count(), 1, "only parity is made");
    let (row, plan, dirty) = (&row.map, &plan, &*dirty);
    let operation = Operation { row, plan, dirty, read: &[], reads_at: &[], makes_at: &makes_at };
    operation.run_plan(&mut made, &mut |_, _| panic!("nothing is logged")).unwrap();
}
