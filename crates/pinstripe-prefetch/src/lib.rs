//! Read-ahead for any reader of any object: finds sequential, reverse, strided and interleaved
//! streams of reads, and fetches what comes next within one budget of memory.
//!
//! ```text
//! read --> planner (pure: which records come next) --> runner (fetches, budget) --> source
//!            ^ one per object                            one per process            anything with ranges
//! ```
//! Rooms, highest floor first: `runner`, `readers` (the planners of all objects) and `simulation`,
//! then `planner` and `latencies` (how long sources took). Not in this crate: what the bytes mean,
//! and where they come from.

pub mod hint;
pub mod latencies;
pub mod planner;
pub mod readers;
pub mod runner;
pub mod simulation;
