//! Stores for tests, operations on them, and the model of what must then be true; used by the tests
//! of verbs, the stress test, the stories, and the hosts that write to buckets. The crate is never
//! part of a released program.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "these are helpers of tests"
)]
#![allow(missing_docs, reason = "these are helpers of tests")]
#![allow(
    clippy::should_implement_trait,
    clippy::new_without_default,
    reason = "the names are those that the tests use, and other crates need no stable interface"
)]

mod deletion;
mod ends;
mod health;
mod hostile;
mod keys;
mod look;
mod made_up;
mod manifest;
mod members;
mod operation;
mod process;
mod silence;
mod source;
mod suites;
mod support;
mod tick;
mod world;
mod writing;

pub use ends::{StepsOfTwo, cut_off};
pub use health::{is_named, scrub};
pub use hostile::{Forge, entry, symlink};
pub use look::{Look, Stamp, Tree, assert_same, look, paths, stamps};
pub use made_up::{MadeUpChild, MadeUpEntry, MadeUpPage, MadeUpTree, show_tree};
pub use manifest::{XATTR, describe_tree, file_hashes};
pub use operation::{
    BESIDE, Beside, Cut, Dice, End, KEY_WORKS, KeyWork, Operation, PARTNERS, PARTS, Partner,
    SHAPES, Story, TROUBLES, Trouble, WASTE,
};
pub use process::{SentWork, Stage, Trace, Who, Work, at_once, mortal, under};
pub use source::{STAMP_SECONDS, Stamps, change_source, make_source};
pub use suites::{OnDirectories, SuiteSite, faults, hostile_members};
pub use support::{
    ELSEWHERE, Image, Ledger, Meanwhile, NoWait, STRIP_BYTES, Seen, Site, assert_whole, backup,
    check, credential, limits, new_slot, noise, read_files, remove_tree, repair, replace, restore,
    small_tree,
};
pub use tick::{await_tick, sleep_for_ticks};
pub use world::{Health, Kept, Wanted, Where, World};
