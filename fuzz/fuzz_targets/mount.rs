//! The tree that a mount shows, of pages that no backup would write: names with slashes and dots,
//! sizes and counts of any number, pages that stand in many places. Nothing shown leads outside,
//! every listing ends, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_sim::made_up;

fuzz_target!(|tree: made_up::MadeUpTree| made_up::show(&tree));
