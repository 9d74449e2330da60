//! The conclusions from repeated measurements, and their confidence: pure functions on numbers.
//!
//! Whatever draws by chance is given a seed, and answers the same for the same one. Never here: a
//! clock, a file, and the wish for an answer: "no difference" and "too few runs" are answers.

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
