//! fio, the common benchmark of disks: its results read and written, and a second opinion from it.
//!
//! Not in this module: adjusting either result so that both agree.

pub mod check;
mod export;
mod import;
mod text;

pub use export::export;
pub use import::import;

#[cfg(test)]
pub(crate) mod tests;
