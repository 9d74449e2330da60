//! Read-ahead for any reader of any object: finds sequential, reverse, strided and interleaved
//! streams of reads, and prefetches their next records within one memory budget.
//!
//! ```text
//! read --> planner (pure: which records come next) --> runner (fetches, budget) --> source
//!            ^ one per object                            one per process            anything with ranges
//! ```
//!
//! Rooms, highest floor first: `runner`, `readers` (the planners of all objects) and `simulation`,
//! then `planner` and `latencies` (how long sources took). This crate does not know what the bytes
//! mean or where they come from.

mod hint;
mod latencies;
mod planner;
mod readers;
mod runner;
mod simulation;

pub use hint::parse as parse_hint;
pub use latencies::Latencies;
pub use planner::{Bounds, FetchPlan, Hint, Presence, StreamStatus};
pub use readers::{Readers, ReadersOfObject};
pub use runner::{Ahead, BudgetUsage, FetchSource, Pinned, Runner};
pub use simulation::patterns::all as patterns;
pub use simulation::rules::{Doubling, KnownPlan, OneCursor, OneStride, Ours as OwnRule};
pub use simulation::{Cluster, Rule, SimulatedRun, run as simulate};
