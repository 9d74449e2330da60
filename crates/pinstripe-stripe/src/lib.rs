//! The stages that bytes pass between a source and members.
//!
//! `chunk` cuts a stream, `dedup` decides which chunks are new, `codec` compresses them, `seal`
//! encrypts them, and `stripe` lays them over the members with parity. `retention` chooses the
//! snapshots that rules keep. The stages themselves only compute; `abort` ends a run whose stages
//! have threads.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod abort;
pub mod chunk;
pub mod codec;
pub mod dedup;
pub mod retention;
pub mod seal;
pub mod stripe;
