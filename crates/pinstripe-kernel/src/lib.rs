//! Pure functions on byte slices: parity and the gear scan. No I/O, no threads, no clock.
//!
//! Beside each SIMD version stands a plain one, and tests hold them equal bit for bit. Which one
//! runs is chosen at run time from what the processor has.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod gear;
pub mod parity;
