//! The stories: what the stress test does to a store, in short, and each exactly as its seed says.
//! Ids, clocks and the order of all threads follow from it: one goes at a time, and at the calls
//! of the member seam the seed says which. So a failure comes again whenever its seed is played,
//! and is shortened by playing it.
//!
//! `PINSTRIPE_STORY_SEEDS=FROM..TO` chooses other seeds (`cargo xtask soak stories` does). Of a
//! seed that fails, directory, story and trace are kept; with `PINSTRIPE_STORY_ONLY`, which is told
//! beside its shortened story, only that part is played.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod draw;
mod driver;
mod found;
mod pairs;
mod process;
mod shrink;
mod trace;

/// Seeds of `cargo xtask test --all`, of which the gate plays a third.
const SEEDS: std::ops::Range<u64> = 0..25;

#[test]
fn every_story_ends_well() {
    let seeds = pinstripe_testing::chosen_seeds("PINSTRIPE_STORY_SEEDS", SEEDS);
    let only = std::env::var("PINSTRIPE_STORY_ONLY").ok();
    driver::run(seeds, only.as_deref());
}

#[test]
fn a_story_goes_the_same_way_each_time() {
    for seed in 0..10 {
        let story = draw::story(seed);
        let [once, again] = [(); 2].map(|()| driver::play(&story, true));
        let both = once.trace.lines().zip(again.trace.lines()).enumerate();
        for (number, (one, other)) in both {
            assert_eq!(one, other, "seed {seed}, line {number} of the trace");
        }
        assert_eq!(once.trace, again.trace, "seed {seed}");
        assert_eq!(once.counts, again.counts, "seed {seed}");
    }
}

#[test]
fn another_seed_is_another_order() {
    let story = draw::story(1);
    let orders = (0..5).map(|schedule| {
        let played = driver::play(&pinstripe_sim::Story { seed: schedule, ..story.clone() }, false);
        played.counts.order
    });
    let orders: std::collections::BTreeSet<u64> = orders.collect();
    assert!(orders.len() > 1, "{orders:?}");
}
