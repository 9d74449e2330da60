//! Stories of several hosts that write to buckets, each exactly as its seed says: endpoints in
//! memory lose answers, carry requests out late, refuse what they did not do, and list in no order;
//! hosts die in the middle of any request, and no host can tell of another whether it runs.
//!
//! Threads, timers, clocks and random bytes follow from the seed: the runtime that carries out
//! requests runs on threads of the story, as all of the store does (`pinstripe/tests/stories`).
//!
//! `PINSTRIPE_BUCKET_SEEDS=FROM..TO` chooses other seeds (`cargo xtask sim buckets` does).

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod endpoint;
mod host;
mod probe;
mod story;
mod world;

/// Seeds of `cargo xtask test --all`, of which the gate plays a third.
const SEEDS: std::ops::Range<u64> = 0..21;

#[test]
fn no_story_of_many_hosts_loses_a_byte() {
    story::run(pinstripe_testing::chosen_seeds("PINSTRIPE_BUCKET_SEEDS", SEEDS));
}

#[test]
fn a_story_goes_the_same_way_again() {
    for seed in [3, 7] {
        let [one, two] = [story::play(seed), story::play(seed)];
        assert_eq!(one.wrong, None);
        assert!(one.counts.choices > 100, "{}", one.counts.choices);
        assert_eq!((one.counts.order, one.met), (two.counts.order, two.met), "seed {seed}");
    }
}
