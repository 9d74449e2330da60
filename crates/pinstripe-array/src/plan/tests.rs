use std::collections::HashSet;

use proptest::prelude::*;

use super::testing::{Case, fewest_reads};
use super::*;
use crate::geometry::{ArrayGeometry, Layout, Level, Rotation};

/// Bytes of a block in these tests: a partly dirty one has one new byte and one old one.
const BLOCK: u32 = 2;

fn mark(shard: usize, class: Class, column: Range<u32>) -> Mark {
    Mark { shard, class, column }
}

fn row(level: Level, layout: Layout, members: usize, blocks: u32, index: u64) -> RowMap {
    let chunk = u64::from(blocks * BLOCK).next_power_of_two();
    ArrayGeometry::cut(level, members, chunk, layout, 16 * chunk).unwrap().map(index)
}

fn usual(level: Level, members: usize, blocks: u32, index: u64) -> RowMap {
    row(level, Layout::default_of(level), members, blocks, index)
}

/// All sets of members that may be absent at once, up to `most`.
fn absences(members: usize, most: usize) -> impl Iterator<Item = MemberSet> {
    (0u32..1 << members)
        .filter(move |set| set.count_ones() as usize <= most)
        .map(move |set| (0..members).filter(|n| set >> n & 1 == 1).collect())
}

const LEVELS: [RmwLevel; 3] = [RmwLevel::Never, RmwLevel::Fewer, RmwLevel::FewerOrEqual];

fn plan_write(case: &Case, rules: Rules) -> Result<RowPlan> {
    let mut plan = RowPlan::default();
    Planner::default().plan_write(&case.row, case.absent, &case.marks, rules, &mut plan)?;
    Ok(plan)
}

fn plan_read(case: &Case) -> Result<RowPlan> {
    let mut plan = RowPlan::default();
    Planner::default().plan_read(&case.row, case.absent, &case.marks, &mut plan)?;
    Ok(plan)
}

/// Every set of dirty blocks with every set of absent members, carried out at all levels of
/// read-modify-write.
fn every_dirty_set(level: Level, members: usize, blocks: u32, index: u64) {
    let shape = usual(level, members, blocks, index);
    let data = shape.data();
    for dirty in 1u32..1 << (data as u32 * blocks) {
        let bits = (0..data as u32 * blocks).filter(|bit| dirty >> bit & 1 == 1);
        let marks: Vec<Mark> = bits
            .map(|bit| (bit % data as u32, bit / data as u32 * BLOCK))
            .map(|(shard, at)| mark(shard as usize, Class::Dirty, at..at + BLOCK))
            .collect();
        for absent in absences(members, shape.parity()) {
            for rmw in LEVELS {
                let mut case = Case::new(shape, absent, marks.clone(), u64::from(dirty));
                let plan = plan_write(&case, Rules { granule: None, rmw }).unwrap();
                for piece in &plan.pieces {
                    let parity = !piece.writes.and(shape.parity_shards()).is_empty();
                    let full = piece.dirty.len() == data;
                    assert_eq!(piece.method == Method::Full, full && parity);
                    assert!(!full || piece.reads.is_empty());
                }
                case.write(&plan);
            }
        }
    }
}

#[test]
fn every_dirty_set_of_level_5_is_right() {
    (0..3).for_each(|index| every_dirty_set(Level::Raid5, 3, 4, index));
    every_dirty_set(Level::Raid5, 4, 4, 2);
    every_dirty_set(Level::Raid5, 6, 2, 5);
    every_dirty_set(Level::Raid4, 4, 2, 1);
}

#[test]
fn every_dirty_set_of_level_6_is_right() {
    (0..4).for_each(|index| every_dirty_set(Level::Raid6, 4, 4, index));
    every_dirty_set(Level::Raid6, 5, 3, 3);
    every_dirty_set(Level::Raid6, 6, 2, 2);
}

/// What one shard of a column can be.
const STATES: [&[Class]; 10] = [
    &[],
    &[Class::Dirty],
    &[Class::Partial],
    &[Class::Cached],
    &[Class::Erased],
    &[Class::Dirty, Class::Erased],
    &[Class::Partial, Class::Erased],
    &[Class::Unwritten],
    &[Class::Dirty, Class::Unwritten],
    &[Class::Partial, Class::Unwritten],
];

/// Marks of one block for every shard in a state of its own, the states being the digits of
/// `number`. Parity is unwritten exactly if all data is, or erased if `erased` has its number.
fn marks_of(row: &RowMap, number: usize, states: usize, erased: usize) -> Vec<Mark> {
    let state = |data: usize| STATES[number / states.pow(data as u32) % states];
    let mut marks: Vec<Mark> = (0..row.data())
        .flat_map(|data| state(data).iter().map(move |&class| mark(data, class, 0..BLOCK)))
        .collect();
    let fresh = (0..row.data()).all(|data| state(data).contains(&Class::Unwritten));
    for parity in 0..row.parity() {
        let class = if fresh { Some(Class::Unwritten) } else { None };
        let class = if erased >> parity & 1 == 1 { Some(Class::Erased) } else { class };
        marks.extend(class.map(|class| mark(row.data() + parity, class, 0..BLOCK)));
    }
    marks
}

/// One column in every combination of states: the plan does it, nothing that reads fewer could, and
/// where there is no plan nothing could.
fn every_state(level: Level, layout: Layout, members: usize, states: usize, index: u64) {
    let shape = row(level, layout, members, 1, index);
    let erasable = if states > 4 { 1 << shape.parity() } else { 1 };
    for number in 0..states.pow(shape.data() as u32) {
        for (absent, erased) in absences(members, shape.parity())
            .flat_map(|absent| (0..erasable).map(move |erased| (absent, erased)))
        {
            let marks = marks_of(&shape, number, states, erased);
            if !marks.iter().any(|it| matches!(it.class, Class::Dirty | Class::Partial)) {
                continue;
            }
            for rmw in LEVELS {
                let mut case = Case::new(shape, absent, marks.clone(), number as u64);
                if rmw == RmwLevel::Fewer && marks.iter().all(|it| it.class != Class::Erased) {
                    // An absent member takes along what it knew: that its bytes were never written.
                    let gone = shape.shards_on(absent);
                    case.marks.retain(|it| it.class != Class::Unwritten || !gone.has(it.shard));
                }
                match plan_write(&case, Rules { granule: None, rmw }) {
                    Ok(plan) => {
                        let [piece] = &plan.pieces[..] else { panic!("{plan:?}") };
                        let rmws = piece.method == Method::ReadModifyWrite;
                        assert!(!(rmws && rmw == RmwLevel::Never));
                        if rmw != RmwLevel::Never {
                            let most = piece.reads.len();
                            assert_eq!(fewest_reads(&case, 0, most), Some(most), "{plan:?}");
                        }
                        case.write(&plan);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::TooManyLosses);
                        if rmw != RmwLevel::Never {
                            assert_eq!(fewest_reads(&case, 0, 64), None, "{marks:?} {absent:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_state_of_a_small_row_is_planned_best() {
    let ls = Layout::Parity(Rotation::LeftSymmetric);
    (0..3).for_each(|index| every_state(Level::Raid5, ls, 3, 10, index));
    every_state(Level::Raid5, ls, 4, 10, 1);
    every_state(Level::Raid4, Layout::Fixed, 3, 10, 1);
    every_state(Level::Raid6, ls, 4, 10, 3);
    every_state(Level::Raid6, Layout::Parity(Rotation::DdfNContinue), 4, 10, 1);
}

#[test]
fn every_usual_state_of_a_wider_row_is_planned_best() {
    let ls = Layout::Parity(Rotation::LeftSymmetric);
    every_state(Level::Raid5, ls, 6, 4, 4);
    every_state(Level::Raid6, ls, 5, 7, 4);
    every_state(Level::Raid6, Layout::Parity(Rotation::DdfZeroRestart), 5, 4, 2);
    every_state(Level::Raid6, Layout::Parity(Rotation::LeftAsymmetric6), 6, 4, 2);
}

/// Levels without parity: content in every state, copies erased in every way.
#[test]
fn every_state_of_copies_is_planned_best() {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4), (Level::Raid0, 2)]
    {
        for index in 0..4 {
            let shape = usual(level, members, 1, index);
            for (state, erased, absent) in (0..7).flat_map(|state| {
                (0..1 << shape.shards()).flat_map(move |erased| {
                    absences(members, members).map(move |absent| (state, erased, absent))
                })
            }) {
                copies(shape, absent, state, erased);
            }
        }
    }
}

fn copies(shape: RowMap, absent: MemberSet, state: usize, erased: usize) {
    let mut marks: Vec<Mark> = (0..shape.shards())
        .filter(|shard| erased >> shard & 1 == 1)
        .map(|shard| mark(shard, Class::Erased, 0..BLOCK))
        .collect();
    let classes: &[Class] = match state {
        0 => &[Class::Dirty],
        1 => &[Class::Partial],
        2 => &[Class::Unwritten, Class::Partial],
        3 => &[Class::Wanted],
        4 => &[Class::Cached, Class::Wanted],
        5 => &[Class::Unwritten, Class::Wanted],
        _ => &[Class::Cached, Class::Dirty],
    };
    for &class in classes {
        let shards = if class == Class::Unwritten { shape.shards() } else { 1 };
        marks.extend((0..shards).map(|shard| mark(shard, class, 0..BLOCK)));
    }
    let reading = classes.contains(&Class::Wanted);
    let mut case = Case::new(shape, absent, marks, state as u64);
    let plan = if reading { plan_read(&case) } else { plan_write(&case, Rules::default()) };
    let gone = shape.shards_on(absent);
    let unstorable = match shape.mirrors() {
        true => gone.len() == shape.shards(),
        false => gone.has(0),
    };
    match plan {
        Ok(plan) => {
            let most = plan.reads.len();
            assert_eq!(fewest_reads(&case, 0, most), Some(most), "{plan:?}");
            if reading { case.get(&plan) } else { case.write(&plan) }
        }
        Err(_) => {
            assert!(
                unstorable && !reading || fewest_reads(&case, 0, 64).is_none(),
                "{:?}",
                case.marks
            );
        }
    }
}

/// Every set of wanted shards, with every state that matters to a read, and every loss.
#[test]
fn every_read_is_planned_best() {
    let ls = Layout::Parity(Rotation::LeftSymmetric);
    for (level, members) in
        [(Level::Raid5, 3), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid6, 5)]
    {
        let shape = row(level, ls, members, 1, 1);
        for (wanted, number, absent) in (1usize..1 << members).flat_map(|wanted| {
            (0..4usize.pow(shape.data() as u32)).flat_map(move |number| {
                absences(members, shape.parity()).map(move |absent| (wanted, number, absent))
            })
        }) {
            let state = |data: usize| number >> (2 * data) & 3;
            let classes = [None, Some(Class::Erased), Some(Class::Cached), Some(Class::Unwritten)];
            let mut marks: Vec<Mark> = (0..shape.data())
                .filter_map(|data| classes[state(data)].map(|class| mark(data, class, 0..BLOCK)))
                .collect();
            let wants = (0..members).filter(|shard| wanted >> shard & 1 == 1);
            marks.extend(wants.map(|shard| mark(shard, Class::Wanted, 0..BLOCK)));
            let case = Case::new(shape, absent, marks, number as u64);
            match plan_read(&case) {
                Ok(plan) => {
                    // Parity that is wanted is read even where it could be computed: that is what a
                    // scrub wants it for.
                    let most = plan.reads.len();
                    if wanted >> shape.data() == 0 {
                        assert_eq!(fewest_reads(&case, 0, most), Some(most), "{plan:?} {absent:?}");
                    }
                    case.get(&plan);
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::TooManyLosses);
                    assert_eq!(fewest_reads(&case, 0, 64), None, "{:?} {absent:?}", case.marks);
                }
            }
        }
    }
}

/// The method and the transfers of the textbook cases.
#[test]
fn the_usual_cases_move_what_they_should() {
    let case = |level, members, marks: &[Mark], gone: Option<usize>| {
        let shape = usual(level, members, 8, 0);
        Case::new(shape, gone.into_iter().collect(), marks.to_vec(), 1)
    };
    let ways = |case: &Case| {
        let plan = plan_write(case, Rules::default()).unwrap();
        let methods: Vec<_> = plan.pieces.iter().map(|piece| piece.method).collect();
        (methods, plan.reads.len(), plan.writes.len(), plan.moved_bytes())
    };
    let block = |shard, class| mark(shard, class, 4..8);
    use Class::{Cached, Dirty, Partial, Unwritten};
    use Method::{Full, MirrorCopy, Plain, ReadModifyWrite, Reconstruct};
    for (level, members, marks, gone, expected) in [
        // A small write: old data and parity are read and written.
        (Level::Raid5, 5, vec![block(0, Dirty)], None, (ReadModifyWrite, 2, 2)),
        (Level::Raid5, 4, vec![block(0, Dirty)], None, (Reconstruct, 2, 2)),
        (Level::Raid5, 5, vec![block(0, Dirty), block(3, Dirty)], None, (Reconstruct, 2, 3)),
        (Level::Raid6, 6, vec![block(1, Dirty)], None, (Reconstruct, 3, 3)),
        (Level::Raid6, 7, vec![block(1, Dirty)], None, (ReadModifyWrite, 3, 3)),
        (Level::Raid6, 4, vec![block(1, Dirty)], None, (Reconstruct, 1, 3)),
        // Half-dirty blocks cost nothing more.
        (Level::Raid5, 4, vec![block(0, Partial)], None, (ReadModifyWrite, 2, 2)),
        // What is cached or was never written is not read.
        (Level::Raid5, 3, vec![block(0, Dirty), block(1, Cached)], None, (Reconstruct, 0, 2)),
        (
            Level::Raid5,
            4,
            vec![block(0, Dirty), block(0, Unwritten)],
            None,
            (ReadModifyWrite, 1, 2),
        ),
        (Level::Raid5, 3, vec![block(0, Dirty), block(1, Dirty)], None, (Full, 0, 3)),
        // Member 3 has P in row 0, member 1 data 1.
        (Level::Raid5, 4, vec![block(0, Dirty)], Some(3), (Plain, 0, 1)),
        (Level::Raid5, 4, vec![block(1, Dirty)], Some(1), (Reconstruct, 2, 1)),
        (Level::Raid5, 4, vec![block(0, Dirty)], Some(1), (ReadModifyWrite, 2, 2)),
        (Level::Raid1, 3, vec![block(0, Dirty)], Some(1), (MirrorCopy, 0, 2)),
        (Level::Raid10, 4, vec![block(0, Partial)], None, (MirrorCopy, 1, 2)),
        (Level::Raid0, 4, vec![block(2, Dirty)], Some(1), (Plain, 0, 1)),
    ] {
        let case = case(level, members, &marks, gone);
        let (method, reads, writes) = expected;
        let bytes = 4 * (reads + writes) as u64;
        assert_eq!(ways(&case), (vec![method], reads, writes, bytes), "{level} {marks:?} {gone:?}");
    }
    // A row is cut where the set of dirty shards changes, and transfers are joined all the same.
    let marks: Vec<Mark> = (0..4).map(|d| mark(d as usize, Dirty, 4 * d..16)).collect();
    let case = Case::new(usual(Level::Raid5, 5, 8, 0), MemberSet::EMPTY, marks, 1);
    let plan = plan_write(&case, Rules::default()).unwrap();
    let cut: Vec<_> = plan.pieces.iter().map(|it| (it.method, it.column.clone())).collect();
    let anew = [(Reconstruct, 4..8), (Reconstruct, 8..12)];
    assert_eq!(cut, [&[(ReadModifyWrite, 0..4)][..], &anew, &[(Full, 12..16)]].concat());
    let reads: Vec<_> = plan.reads.iter().map(|it| (it.shard, it.column.clone())).collect();
    assert_eq!(reads, [(0, 0..4), (2, 4..8), (3, 4..12), (4, 0..4)]);
    assert_eq!(plan.writes.len(), 5);
}

#[test]
fn a_granule_widens_what_is_written_to_its_multiples() {
    let shape = usual(Level::Raid5, 4, 16, 0);
    let marks = vec![mark(1, Class::Dirty, 10..12), mark(0, Class::Dirty, 30..32)];
    let rules = |granule| Rules { granule, rmw: RmwLevel::Fewer };
    let columns = |granule| {
        let mut case = Case::new(shape, MemberSet::EMPTY, marks.clone(), 7);
        let plan = plan_write(&case, rules(granule)).unwrap();
        case.write(&plan);
        plan.writes.iter().map(|it| (it.shard, it.column.clone())).collect::<Vec<_>>()
    };
    assert_eq!(columns(None), [(0, 30..32), (1, 10..12), (3, 10..12), (3, 30..32)]);
    assert_eq!(columns(Some(8)), [(0, 24..32), (1, 8..16), (3, 8..16), (3, 24..32)]);
    assert_eq!(columns(Some(32)), [(0, 0..32), (1, 0..32), (3, 0..32)]);
    // On an absent member nothing is widened: that would be a rebuild for nothing. Member 1 has
    // data 1.
    let mut case = Case::new(shape, MemberSet::one(1), marks.clone(), 7);
    let plan = plan_write(&case, rules(Some(8))).unwrap();
    case.write(&plan);
    let written: Vec<_> = plan.writes.iter().map(|it| (it.shard, it.column.clone())).collect();
    assert_eq!(written, [(0, 24..32), (3, 10..12), (3, 24..32)]);
    // Larger than the chunk is as large as the chunk.
    assert_eq!(columns(Some(1 << 30)), [(0, 0..32), (1, 0..32), (3, 0..32)]);
}

#[test]
fn rmw_levels_have_the_numbers_of_md() {
    assert_eq!([0, 1, 2].map(|n| RmwLevel::from_number(n).unwrap()), LEVELS);
    assert_eq!(RmwLevel::from_number(3).unwrap_err().kind(), Kind::Usage);
    let shape = usual(Level::Raid5, 4, 1, 0);
    let method = |rmw, marks: &[Mark]| {
        let case = Case::new(shape, MemberSet::EMPTY, marks.to_vec(), 1);
        plan_write(&case, Rules { granule: None, rmw }).unwrap().pieces[0].method
    };
    let tie = [mark(0, Class::Dirty, 0..BLOCK)];
    let by_level = LEVELS.map(|rmw| method(rmw, &tie));
    // One dirty of three: old data and parity, or the two that stay.
    assert_eq!(by_level, [Method::Reconstruct, Method::Reconstruct, Method::ReadModifyWrite]);
}

/// A row of any level with marks that are true of it, and members absent within what it bears.
fn any_case() -> impl Strategy<Value = (Case, Rules)> {
    let shape = (0usize..6, 4usize..12, 0u32..14, 0u64..12, any::<u64>());
    let spans = prop::collection::vec((any::<u8>(), 0u8..6, 0u32..32, 1u32..20), 0..24);
    let granule = prop_oneof![Just(None), (0u32..8).prop_map(|n| Some(1 << n))];
    (shape, spans, granule, 0usize..3).prop_map(|(shape, spans, granule, rmw)| {
        let (level, members, rotation, index, seed) = shape;
        let level = Level::ALL[level];
        let rotation = Rotation::all().nth(rotation as usize).unwrap();
        let layout = match Layout::Parity(rotation) {
            layout if rotation.suits(level) => layout,
            _ => Layout::default_of(level),
        };
        let row = row(level, layout, members, 32, index);
        let most = if row.mirrors() { 1 } else { row.parity() };
        let gone = seed as usize % (most + 1);
        let absent = (0..gone).map(|n| (seed as usize / 7 + 3 * n) % members).collect();
        (
            Case::new(row, absent, true_marks(&row, &spans), seed),
            Rules { granule, rmw: LEVELS[rmw] },
        )
    })
}

/// Marks without overlap, in any order.
fn true_marks(row: &RowMap, spans: &[(u8, u8, u32, u32)]) -> Vec<Mark> {
    let mut taken = HashSet::new();
    let mut marks = Vec::new();
    for &(shard, class, start, blocks) in spans {
        let content = if row.mirrors() { 1 } else { row.data() };
        let shard = usize::from(shard) % content;
        let class = match class {
            0 | 1 => Class::Dirty,
            2 => Class::Partial,
            3 => Class::Cached,
            4 if !row.mirrors() => Class::Unwritten,
            _ => continue,
        };
        let range = start..(start + blocks).min(32);
        let free = |block: &u32| {
            !taken.contains(&(shard, class as u8, *block))
                && (class != Class::Partial || !taken.contains(&(shard, 0, *block)))
                && (class != Class::Dirty || !taken.contains(&(shard, 1, *block)))
        };
        let range = range.start..range.clone().find(|block| !free(block)).unwrap_or(range.end);
        taken.extend(range.clone().map(|block| (shard, class as u8, block)));
        let column = range.start * BLOCK..range.end * BLOCK;
        marks.push(Mark { shard, class, column });
    }
    marks
}

proptest! {
    #[test]
    fn any_write_is_done((mut case, rules) in any_case()) {
        let plan = plan_write(&case, rules);
        if case.row.parity() == 0 && !case.row.mirrors() && plan.is_err() {
            return Ok(());
        }
        let plan = plan.unwrap();
        prop_assert!(plan.pieces.is_sorted_by(|a, b| a.column.end <= b.column.start));
        let gone = case.row.shards_on(case.absent);
        let granule = rules.granule.unwrap_or(1).min(case.row.len());
        for it in plan.writes.iter().filter(|_| gone.is_empty()) {
            prop_assert_eq!(it.column.start % granule, 0);
            prop_assert_eq!(it.column.end % granule, 0);
        }
        // A planner that has planned something else plans the same.
        let mut again = RowPlan::default();
        let mut planner = Planner::default();
        let other = [mark(0, Class::Dirty, 0..3)];
        let none = MemberSet::EMPTY;
        planner.plan_write(&case.row, none, &other, rules, &mut again).unwrap();
        planner.plan_write(&case.row, case.absent, &case.marks, rules, &mut again).unwrap();
        prop_assert_eq!(&again, &plan);
        case.write(&plan);
    }

    #[test]
    fn any_read_is_done((case, _) in any_case(), wanted in prop::collection::vec(any::<(u8, bool)>(), 1..6)) {
        let mut marks: Vec<Mark> = case.marks.clone();
        marks.retain(|it| matches!(it.class, Class::Cached | Class::Unwritten));
        let mut shards: Vec<_> =
            wanted.iter().map(|(shard, _)| usize::from(*shard) % case.row.shards()).collect();
        shards.sort_unstable();
        shards.dedup();
        for (shard, (_, half)) in shards.into_iter().zip(&wanted) {
            marks.push(mark(shard, Class::Wanted, 0..if *half { 30 } else { 64 }));
        }
        let case = Case::new(case.row, case.absent, marks, 5);
        match plan_read(&case) {
            Ok(plan) => case.get(&plan),
            Err(error) => {
                prop_assert_eq!(error.kind(), Kind::TooManyLosses);
                prop_assert!(case.row.parity() == 0 && !case.row.mirrors());
            }
        }
    }
}
