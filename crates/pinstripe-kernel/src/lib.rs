//! Pure functions on byte slices: parity and the gear scan. The crate does no I/O, starts no
//! threads, and reads no clock.
//!
//! Each SIMD version has a plain version with the same results, bit for bit; tests compare the two.
//! The fastest version that the processor supports is chosen at run time.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod gear;
pub mod parity;
