//! The model-based stress test: random interleavings of all that is done to a store, by seed, with
//! plain looks at the source trees as judge. No finished and unforgotten snapshot ever loses a
//! byte.
//!
//! `PINSTRIPE_STRESS_SEEDS=FROM..TO` chooses other seeds (`cargo xtask soak` does). The list of
//! operations follows from the seed alone; ids and the order of threads do not, so a failure that
//! hangs on them may take several runs of its seed. `tests/stories` plays shorter ones exactly, but
//! one thread at a time; here they are as long as those of users, and at work at the same time.
//! With `PINSTRIPE_STRESS_TELL` set, each operation is told before it begins. The directory of a
//! seed that fails stays, with its story and a trace of names; it is replayed before it is
//! shortened.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod driver;
mod found;
mod process;
mod trace;

/// Seeds of `cargo xtask test --all`, of which the gate plays a third.
const SEEDS: std::ops::Range<u64> = 0..6;

#[test]
fn no_finished_snapshot_ever_loses_a_byte() {
    let seeds = pinstripe_testing::chosen_seeds("PINSTRIPE_STRESS_SEEDS", SEEDS);
    driver::run(seeds);
}
