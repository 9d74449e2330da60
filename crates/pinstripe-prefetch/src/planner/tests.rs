use std::ops::Range;

use proptest::prelude::*;

use crate::simulation::patterns::Numbers;

use super::{Bounds, FetchPlan, Hint, Presence, ReadPlanner};

const MIB: u64 = 1 << 20;
const BOUNDS: Bounds = Bounds { object: 4096 * MIB, record: MIB, window: 64, total: 256 * MIB };

/// Reads one range after the other, each found as the plans before say; returns the plans.
fn read_all(planner: &mut ReadPlanner, reads: &[Range<u64>]) -> Vec<FetchPlan> {
    let mut planned: Vec<Range<u64>> = Vec::new();
    let mut plans = Vec::new();
    for (now, read) in reads.iter().enumerate() {
        let is_planned =
            planned.iter().any(|range| range.start <= read.start && read.end <= range.end);
        let found = if is_planned { Presence::InFlight } else { Presence::Absent };
        let plan = planner.read(now as u64 * 1000, read.clone(), found);
        planned.extend(plan.fetch.iter().cloned());
        plans.push(plan);
    }
    plans
}

fn at(mib: u64) -> Range<u64> {
    mib * MIB..(mib + 1) * MIB
}

/// The number of reads until the next one was planned.
fn reads_until_found(reads: &[Range<u64>]) -> usize {
    let mut planner = ReadPlanner::new(BOUNDS);
    let plans = read_all(&mut planner, reads);
    plans.iter().position(|plan| !plan.fetch.is_empty()).map_or(usize::MAX, |at| at + 1)
}

#[test]
fn a_stream_is_found_in_three_reads() {
    let reads = |places: [u64; 4]| places.map(at).to_vec();
    assert!(reads_until_found(&reads([7, 8, 9, 10])) <= 3);
    assert!(reads_until_found(&reads([900, 899, 898, 897])) <= 3);
    assert!(reads_until_found(&reads([3, 20, 37, 54])) <= 3);
    assert!(reads_until_found(&reads([354, 337, 320, 303])) <= 3);
}

#[test]
fn the_plan_goes_on_where_the_stream_does() {
    let mut planner = ReadPlanner::new(BOUNDS);
    let plans = read_all(&mut planner, &[at(3), at(20), at(37)]);
    assert_eq!(plans[2].fetch, [at(54)]);
    let mut planner = ReadPlanner::new(BOUNDS);
    let plans = read_all(&mut planner, &[at(90), at(80), at(70)]);
    assert_eq!(plans[2].fetch, [at(60)]);
}

#[test]
fn short_reads_in_order_are_one_run() {
    let mut planner = ReadPlanner::new(BOUNDS);
    let reads: Vec<Range<u64>> = (0..64).map(|n| n * MIB / 8..(n + 1) * MIB / 8).collect();
    let plans = read_all(&mut planner, &reads);
    assert_eq!(plans[1].fetch, [at(1)], "{plans:?}");
    let planned: u64 =
        plans.iter().flat_map(|plan| &plan.fetch).map(|range| range.end - range.start).sum();
    assert!(planned >= 7 * MIB, "{planned}");
}

/// Records of 4 MiB, each read in 32 pieces, 17 records apart.
#[test]
fn records_read_in_pieces_are_planned_whole() {
    let mut planner = ReadPlanner::new(BOUNDS);
    let record = |number: u64| {
        let start = number * 68 * MIB;
        (0..32).map(move |piece| start + piece * MIB / 8..start + (piece + 1) * MIB / 8)
    };
    let reads: Vec<Range<u64>> = (0..6).flat_map(record).collect();
    let plans = read_all(&mut planner, &reads);
    let planned = |reads: Range<usize>| plans[reads].iter().flat_map(|plan| plan.fetch.clone());
    assert!(
        planned(64..96).any(|range| range == (204 * MIB..208 * MIB)),
        "while the third is read"
    );
    let later: Vec<_> = planned(96..192).collect();
    assert!(later.len() >= 4, "{later:?}");
    for range in later {
        assert_eq!((range.start % (68 * MIB), range.end - range.start), (0, 4 * MIB));
    }
}

#[test]
fn two_readers_of_one_object_are_two_streams() {
    let mut planner = ReadPlanner::new(BOUNDS);
    let reads: Vec<_> = (0..40).flat_map(|n| [at(n), at(2000 - 17 * n)]).collect();
    read_all(&mut planner, &reads);
    let strides: Vec<i64> = planner.statuses().iter().map(|status| status.stride).collect();
    assert!(
        strides.contains(&(MIB as i64)) && strides.contains(&(-17 * MIB as i64)),
        "{strides:?}"
    );
}

#[test]
fn nothing_is_planned_beyond_the_end() {
    let bounds = Bounds { object: 10 * MIB + 5, ..BOUNDS };
    let mut planner = ReadPlanner::new(bounds);
    let plans = read_all(&mut planner, &(0..10).map(at).collect::<Vec<_>>());
    let last = plans.iter().flat_map(|plan| &plan.fetch).map(|range| range.end).max();
    assert_eq!(last, Some(bounds.object));
}

#[test]
fn hints_start_and_end_streams() {
    let mut planner = ReadPlanner::new(BOUNDS);
    planner.hint(Hint::Stride { length: MIB, distance: -5 * MIB as i64 }, 1000 * MIB);
    let plan = planner.read(0, at(1000), Presence::Absent);
    assert_eq!(plan.fetch, [at(995)]);
    let plan = planner.hint(Hint::Random, 0);
    assert_eq!(plan.drop, [at(995)]);
    assert_eq!(
        read_all(&mut planner, &(0..9).map(at).collect::<Vec<_>>()),
        vec![FetchPlan::default(); 9]
    );
    let plan = planner.hint(Hint::WillNeed(vec![at(7), at(3)]), 0);
    assert_eq!(plan.fetch, [at(7), at(3)]);
}

#[test]
fn a_wrong_hint_loses_its_credit() {
    let mut planner = ReadPlanner::new(BOUNDS);
    planner.hint(Hint::Stride { length: MIB, distance: MIB as i64 }, 0);
    let mut numbers = Numbers::new(3);
    let scattered: Vec<_> = (0..60).map(|_| at(numbers.below(4096))).collect();
    let plans = read_all(&mut planner, &scattered);
    let late: usize = plans[30..].iter().map(|plan| plan.fetch.len()).sum();
    assert!(late <= 8, "{late}");
}

/// The columns of a matrix that is stored row by row: at the end of the first it is not known that
/// there is another, from then on it is.
#[test]
fn a_stream_goes_on_in_laps() {
    let bounds = Bounds { object: 100 * 17 * MIB + 5 * MIB, ..BOUNDS };
    let mut planner = ReadPlanner::new(bounds);
    let columns = (0..17u64).flat_map(|lap| (lap..100 * 17 + 5).step_by(17));
    let reads: Vec<Range<u64>> = columns.map(at).collect();
    let plans = read_all(&mut planner, &reads);
    let planned: Vec<&Range<u64>> = plans.iter().flat_map(|plan| &plan.fetch).collect();
    for (number, read) in reads.iter().enumerate() {
        let times = planned.iter().filter(|range| **range == read).count();
        let is_first_of_second = number == 101;
        assert_eq!(times, usize::from(number >= 3 && !is_first_of_second), "read {number}");
    }
    assert_eq!(planner.counts().wasted, 0);
    assert_eq!(planner.statuses().len(), 1, "{:?}", planner.statuses());
}

fn reads() -> impl Strategy<Value = Vec<Range<u64>>> {
    let read = (0u64..4096, 0u64..8, 1u64..5).prop_map(|(mib, eighth, eighths)| {
        let start = (mib * 8 + eighth) * MIB / 8;
        start..(start + eighths * MIB / 8).min(BOUNDS.object)
    });
    let piece = prop_oneof![
        prop::collection::vec(read, 1..40),
        (0u64..2000, 1u64..30, 2u64..60)
            .prop_map(|(base, stride, count)| (0..count).map(|n| at(base + stride * n)).collect()),
        (2000u64..4000, 1u64..30, 2u64..60)
            .prop_map(|(base, stride, count)| (0..count).map(|n| at(base - stride * n)).collect()),
        (0u64..2000, 2u64..60)
            .prop_map(|(base, count)| { (0..count).map(|n| at(base + (n ^ 1))).collect() }),
    ];
    prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// The bounds hold whatever is read, and whatever is dropped in between.
    #[test]
    fn plans_stay_within_their_bounds(reads in reads(), drops in prop::collection::vec(any::<u8>(), 200)) {
        let mut planner = ReadPlanner::new(BOUNDS);
        let mut planned: Vec<Range<u64>> = Vec::new();
        for (now, read) in reads.iter().enumerate() {
            let plan = planner.read(now as u64, read.clone(), Presence::Absent);
            let counts = planner.counts();
            prop_assert!(planner.outstanding() <= BOUNDS.total);
            // Twice what was read: a stream that begins counts reads that another stream has counted, too.
            let most = 2 * counts.read + 16 * BOUNDS.record;
            prop_assert!(planner.outstanding() + counts.wasted <= most);
            for range in &plan.fetch {
                prop_assert!(range.start < range.end && range.end <= BOUNDS.object);
            }
            planned.extend(plan.fetch);
            let drop = drops[now % drops.len()] as usize;
            if drop < 30 && !planned.is_empty() {
                let dropped = planned.swap_remove(drop % planned.len());
                planner.dropped(&dropped);
            }
        }
    }

    /// A naive planner that knows the one stream that there is plans nothing that ours does not
    /// plan as well, but for the first reads.
    #[test]
    fn a_single_stream_is_followed_to_its_end(base in 0u64..100, stride in 1u64..30, count in 8u64..100) {
        let mut planner = ReadPlanner::new(BOUNDS);
        let reads: Vec<_> = (0..count).map(|n| at(base + stride * n)).collect();
        let plans = read_all(&mut planner, &reads);
        let planned: Vec<Range<u64>> = plans.into_iter().flat_map(|plan| plan.fetch).collect();
        for read in &reads[3..] {
            prop_assert_eq!(planned.iter().filter(|range| *range == read).count(), 1);
        }
    }
}

/// The kernel reads ahead of a strided reader by itself: a piece beyond each record, which it asks
/// for when the reader is at the next one already.
#[test]
fn what_the_kernel_reads_ahead_of_a_strided_reader_begins_no_stream() {
    let mut reads = Vec::new();
    for record in 0..40u64 {
        let start = record * 17 * 4;
        reads.push(at(start));
        if record > 0 {
            reads.push(at(start - 17 * 4 + 4));
        }
        reads.extend((1..4).map(|part| at(start + part)));
    }
    let mut planner = ReadPlanner::new(BOUNDS);
    read_all(&mut planner, &reads);
    let statuses = planner.statuses();
    assert_eq!(statuses[0].stride, 17 * 4 * MIB as i64);
    assert!(statuses[0].ahead >= 16, "{statuses:?}");
    let others = statuses.iter().filter(|it| it.stride != statuses[0].stride).count();
    assert!(others <= 1, "those of the first records at most: {statuses:?}");
    // A reader who goes on in order is found all the same.
    let end = 39 * 17 * 4 + 4;
    let plans = read_all(&mut planner, &(end..end + 4).map(at).collect::<Vec<_>>());
    assert!(plans.iter().any(|plan| plan.fetch.contains(&at(end + 4))), "{plans:?}");
}
