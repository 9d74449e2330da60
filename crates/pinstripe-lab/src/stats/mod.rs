//! The conclusions from repeated measurements, and their confidence: pure functions on numbers.
//!
//! Every function that draws random numbers takes a seed, and gives the same answer for the same
//! seed. Never here: clocks and files, or a forced answer: "no difference" and "too few runs" are
//! answers.

mod bootstrap;
mod change;
mod knee;
mod pairs;
mod rank;
mod summary;
mod verdict;

pub use bootstrap::{Interval, LEVEL, median_interval, ratio_interval};
pub use change::{MIN_SIDE, change_points, divergence};
pub use knee::knee;
pub use pairs::{PAIRS_ALPHA, Paired, judge_pairs, paired};
pub use rank::{RankTest, mann_whitney};
pub use summary::{Summary, median, quantile};
pub use verdict::{ALPHA, Better, Finding, Verdict, judge};
