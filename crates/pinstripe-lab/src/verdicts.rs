//! Tests whether verdicts are right on devices whose requests take a known time; `cargo xtask soak
//! lab` runs the tests that are ignored here.

#![allow(clippy::disallowed_macros, reason = "a test")]

use std::sync::Arc;

use crate::io::{self, Area, Direction, Job, Order, Pattern, Target};
use crate::run::Live;
use pinstripe_io::device::{Device, MemoryDevice, SharedDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};
use pinstripe_stats::{Better, Finding, Verdict, judge};

const BYTES: u64 = 1 << 20;
/// The number of runs of each side, as a case makes them if nothing is disturbed.
const RUNS: usize = 7;
/// The number of requests of a run.
const REQUESTS: u64 = 25;

/// A device in memory that takes this time for every read.
fn delayed(micros: u64) -> Area {
    let memory = MemoryDevice::with_limit("memory", BYTES);
    memory.set_len(BYTES).unwrap();
    let plan: Plan = format!("op=read,delay={micros}us").parse().unwrap();
    let device: SharedDevice = Arc::new(FaultyDevice::new(Arc::new(memory), plan));
    Area::new(vec![Target::new(device)], BYTES)
}

/// Requests per second of 4 KiB reads at random offsets.
fn rate(area: &Area, seed: u64, live: &Live) -> f64 {
    let pattern = Pattern { order: Order::Random, direction: Direction::Read, block_bytes: 4096 };
    let job = Job { requests: Some(REQUESTS), seed, ..Job::new(pattern) };
    let done = io::run(&job, area, live).unwrap();
    done.requests as f64 / done.seconds
}

/// Compares two areas, which are measured in turns, in alternating order.
fn compare(one: &Area, other: &Area, seed: u64) -> Verdict {
    let live = Live::new(Arc::default());
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for run in 0..RUNS as u64 {
        let seed = seed * 1000 + run;
        let mut first = || ones.push(rate(one, seed, &live));
        let mut second = || others.push(rate(other, seed, &live));
        match run % 2 {
            0 => (first(), second()),
            _ => (second(), first()),
        };
    }
    judge(&ones, &others, Better::Higher)
}

#[test]
fn of_a_hundred_equal_pairs_five_at_most_are_called_different() {
    const TEST: &str = "verdicts::of_a_hundred_equal_pairs_five_at_most_are_called_different";
    if !pinstripe_testing::is_soaked(TEST, "lab") {
        return;
    }
    let (one, other) = (delayed(2000), delayed(2000));
    let differs = |seed: &u64| {
        matches!(compare(&one, &other, *seed).finding, Finding::Faster | Finding::Slower)
    };
    let different = (0..100).filter(differs).count();
    println!("reported as different: {different} of 100 equal pairs");
    assert!(different <= 5, "{different} of 100");
}

/// A difference of 3 % counts as equally good: it need not be detected, but must never be reported
/// in the wrong direction.
#[test]
fn slowdowns_of_a_tenth_and_more_are_found_again_and_again() {
    const TEST: &str = "verdicts::slowdowns_of_a_tenth_and_more_are_found_again_and_again";
    if !pinstripe_testing::is_soaked(TEST, "lab") {
        return;
    }
    for (percent, least) in [(3, 0), (10, 45), (30, 50)] {
        let (slow, usual) = (delayed(2000 + 20 * percent), delayed(2000));
        let findings: Vec<_> = (0..50).map(|seed| compare(&slow, &usual, seed).finding).collect();
        let count = |wanted| findings.iter().filter(|it| **it == wanted).count();
        let (found, wrong) = (count(Finding::Slower), count(Finding::Faster));
        println!(
            "pairs with one side {percent} % slower: {found} of 50 found, {wrong} reported as \
             faster"
        );
        assert!(found >= least && wrong == 0, "{percent} %: {found} of 50, {wrong} faster");
    }
}

#[test]
fn a_device_that_takes_twice_as_long_is_slower() {
    let verdict = compare(&delayed(2000), &delayed(500), 1);
    assert_ne!(verdict.finding, Finding::Faster, "{verdict:?}");
}
