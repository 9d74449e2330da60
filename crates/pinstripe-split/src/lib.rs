//! One huge source over many outputs, with parity, and back again.
//!
//! ```text
//! ops/split: source --> pipeline/split: blocks, codec, frames --> logs --> outputs
//! ops/join:  outputs --> logs, indexes --> pipeline/join: blocks checked, healed, decoded --> target
//! ```
//! This crate does not use a store: an output describes itself (doc/decisions/0018-split.md).

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod format;
pub mod ops;
pub mod outputs;
pub mod pipeline;
pub mod source;
