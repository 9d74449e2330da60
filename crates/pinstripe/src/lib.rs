//! pinstripe: deduplicating backup over many disks, with parity.
//!
//! One data path, read top to bottom: `source` and `walk` find bytes, `chunk` cuts them, `dedup`
//! decides which are new, `codec` compresses them, `seal` encrypts them, `stripe` distributes them
//! over the members with parity, `member` stores them. `store` knows packs, index and snapshots;
//! `pipeline` starts the threads; `catalog` makes all snapshots searchable; `ops` has one file per
//! verb. `sink` writes restored bytes.
//!
//! The library prints nothing, exits nowhere and reads no environment: it reports events to the
//! [`Monitor`](pinstripe_base::monitor::Monitor), and failures as an
//! [`Error`](pinstripe_base::error::Error). Arrays and servers are crates of their own.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod sink;
pub mod source;

pub mod walk;

pub mod catalog;
pub mod pipeline;
pub mod store;

pub mod ops;
