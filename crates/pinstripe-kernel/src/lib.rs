//! Pure functions on byte slices: parity and the gear scan. The crate does no I/O, starts no
//! threads, and reads no clock.
//!
//! Each SIMD version has a plain version with the same results, bit for bit; tests compare the two.
//! The version is chosen at run time by the features of the processor.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod gear;
pub mod parity;
