//! Works with fio, the common disk benchmark: imports and exports its results, and runs it as a
//! second measurement.
//!
//! This module does not adjust either result to make both agree.

pub mod check;
mod export;
mod import;
mod text;

pub use export::export;
pub use import::import;

#[cfg(test)]
pub(crate) mod tests;
