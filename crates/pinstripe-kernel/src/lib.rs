//! Pure functions on byte slices: parity and the gear scan. No I/O, no threads, no clock.
//!
//! Each SIMD version has a plain version with the same results, bit for bit; tests compare them.
//! The version is chosen at run time by the features of the processor.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod gear;
pub mod parity;
