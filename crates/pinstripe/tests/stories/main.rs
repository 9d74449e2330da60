//! The stories: what the stress test does to a store, in short, and each exactly as its seed says.
//! Ids, clocks and the order of all threads follow from it: one goes at a time, and at the calls
//! of the member seam the seed says which. So a failure comes again whenever its seed is played,
//! and is shortened by playing it.
//!
//! `PINSTRIPE_STORY_SEEDS=FROM..TO` chooses other seeds (`cargo xtask soak stories` does). Of a
//! seed that fails, directory, story and trace are kept; with `PINSTRIPE_STORY_ONLY`, which is told
//! beside its shortened story, only that part is played.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod calls;
mod draw;
mod driver;
mod found;
mod pairs;
mod process;
mod schedule;
mod shrink;
mod trace;

// What is done to a store and what must hold then, shared with the stress test.
#[path = "../stress/deletion.rs"]
mod deletion;
#[path = "../stress/ends.rs"]
mod ends;
#[path = "../stress/health.rs"]
mod health;
#[path = "../stress/keys.rs"]
mod keys;
#[path = "../stress/members.rs"]
mod members;
#[allow(dead_code, reason = "shared with the stress test, which draws other stories")]
#[path = "../stress/operation.rs"]
mod operation;
#[allow(dead_code, reason = "shared with the stress test: it needs threads that are not ordered")]
#[path = "../stress/silence.rs"]
mod silence;
#[path = "../stress/source.rs"]
mod source;
#[path = "../stress/world.rs"]
mod world;
#[path = "../stress/writing.rs"]
mod writing;

#[allow(dead_code, reason = "shared with other tests, of which each uses a part")]
#[path = "../it/look.rs"]
mod look;
#[allow(dead_code, reason = "shared with other tests, of which each uses a part")]
#[path = "../it/support.rs"]
mod support;

/// Waits until what was changed before is older than what the clock tells. The clock is the story's
/// own: this takes no time, and is a place where other threads have their turns. A look at the
/// system's clock would make the order depend on it.
fn await_tick() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}

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
        let played = driver::play(&operation::Story { seed: schedule, ..story.clone() }, false);
        played.counts.order
    });
    let orders: std::collections::BTreeSet<u64> = orders.collect();
    assert!(orders.len() > 1, "{orders:?}");
}
