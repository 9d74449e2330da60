//! The table of patterns with its bars, in virtual time.

use super::patterns::{all, generated};
use super::rules::{KnownPlan, Ours};
use super::{Cluster, Rule, SimulatedRun, run};

const RECORDS: u64 = 1024;
const BUDGET: usize = 192;
const WINDOW: u32 = 64;
/// Records that plans may take of the budget.
const TOTAL: u32 = 160;

/// The mean over three placements.
fn mean(pattern: usize, rule: impl Fn(&[u64]) -> Box<dyn Rule + '_>) -> SimulatedRun {
    let outcomes: Vec<SimulatedRun> = (1..=3)
        .map(|seed| {
            let records = &all(RECORDS, seed)[pattern].records;
            run(&Cluster::far24(seed), records, &mut *rule(records), BUDGET)
        })
        .collect();
    let of =
        |of: fn(&SimulatedRun) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
    let peak = outcomes.iter().map(|outcome| outcome.peak).max().unwrap_or(0);
    SimulatedRun { rate: of(|outcome| outcome.rate), waste: of(|outcome| outcome.waste), peak }
}

fn end_of(records: &[u64]) -> u64 {
    records.iter().max().map_or(0, |last| last + 1)
}

/// Published figures of the model at fixed depths; 4 % is what another placement changes.
#[test]
fn fixed_depths_give_the_known_rates() {
    for (depth, expected) in
        [(0, 51.0), (1, 101.0), (4, 236.0), (16, 538.0), (64, 922.0), (128, 1017.0)]
    {
        let outcome = mean(2, |records| Box::new(KnownPlan::new(records, depth)));
        let off = (outcome.rate / expected - 1.0).abs();
        assert!(off < 0.06, "depth {depth}: {:.0} MB/s, {expected} expected", outcome.rate);
    }
}

#[test]
fn every_pattern_reaches_its_share_of_a_plan_that_is_known() {
    let bars = [
        ("sequential", 0.85, 0.05),
        ("reverse", 0.85, 0.05),
        ("stride 17", 0.85, 0.05),
        ("stride -17", 0.85, 0.05),
        ("4 interleaved, stride 17", 0.75, 0.20),
        ("16 interleaved, stride 17", 0.60, 0.20),
        ("4 interleaved, sequential", 0.75, 0.20),
        ("random", 0.0, 0.12),
        ("random pairs", 0.0, 0.30),
        ("sequential, shuffled within 4", 0.60, 0.05),
        ("sequential, 3 % lost seeks", 0.20, 0.60),
        ("runs of 16 at random places", 0.12, 0.60),
        ("stride 17, in laps", 0.85, 0.05),
    ];
    for (at, pattern) in all(RECORDS, 1).iter().enumerate() {
        let (name, share, waste) = bars[at];
        assert_eq!(pattern.name, name);
        let ours = mean(at, |records| Box::new(Ours::new(end_of(records), WINDOW, TOTAL)));
        let known = mean(at, |records| Box::new(KnownPlan::new(records, WINDOW as usize)));
        let none = mean(at, |_| Box::new(KnownPlan::new(&[], 0)));
        assert!(ours.rate >= share * known.rate, "{name}: {ours:?} of {known:?}");
        assert!(ours.rate >= 0.98 * none.rate, "{name}: {ours:?}, without read-ahead {none:?}");
        assert!(ours.waste <= waste, "{name}: {ours:?}");
        assert!(ours.peak <= TOTAL as usize, "{name}: {ours:?}");
    }
}

#[test]
fn no_generated_pattern_wastes_more_than_it_reads() {
    for seed in pinstripe_testing::chosen_seeds("PINSTRIPE_PATTERN_SEEDS", 0..800) {
        let records = generated(seed);
        let mut ours = Ours::new(end_of(&records), WINDOW, TOTAL);
        let outcome = run(&Cluster::far24(seed), &records, &mut ours, BUDGET);
        assert!(outcome.waste <= 1.0, "seed {seed}: {outcome:?}");
        assert!(outcome.peak <= BUDGET, "seed {seed}: {outcome:?}");
    }
}

/// What records are dropped of when there is less memory than plans may take.
#[test]
fn records_dropped_for_lack_of_memory_make_the_planner_modest() {
    let records: Vec<u64> = (0..RECORDS).collect();
    let mut ours = Ours::new(RECORDS, WINDOW, TOTAL);
    let outcome = run(&Cluster::far24(1), &records, &mut ours, 8);
    assert!(outcome.waste <= 1.0 && outcome.peak <= 8, "{outcome:?}");
}
