//! Draws conclusions from repeated measurements, with their confidence, by pure functions on
//! numbers.
//!
//! Every function that draws random numbers takes a seed, and gives the same answer for the same
//! seed. This crate uses no clock and no files, and never forces an answer: "cannot tell" and "too
//! few runs" are answers.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod change;
mod executions;
mod humps;
mod knee;
mod order;
mod pairs;
mod rank;
mod simulated;
mod summary;
mod verdict;

pub use change::change_points;
pub use executions::{Spread, judge_executions};
pub use humps::{Humps, humps};
pub use knee::knee;
pub(crate) use order::ratio_interval;
pub use order::{Interval, LEVEL, median_interval};
pub use pairs::{Paired, bounds, judge_pairs, paired};
pub(crate) use rank::mann_whitney;
pub use simulated::{SpeedNoise, speed as simulated_speed};
pub use summary::{Summary, median, quantile};
pub use verdict::{AS_GOOD, Basis, Better, Finding, Verdict, correct, judge, rounds_to_tell_apart};

#[cfg(test)]
mod coverage;
