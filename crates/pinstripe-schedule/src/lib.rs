//! Schedules the threads of a test program in an order drawn from a seed. [`calls`] replaces
//! functions of the C library in every program that links this crate, so only tests that play
//! stories may link it. The crate is never part of a released program.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "these are helpers of tests"
)]
#![allow(missing_docs, reason = "these are helpers of tests")]

mod calls;
mod schedule;

pub use calls::{
    aside, await_calls, forget_processes, has_opened, leave, now, scheduled, scheduled_from, seam,
    take_part,
};
pub use schedule::{Counts, Schedule, Turn, Wait};
