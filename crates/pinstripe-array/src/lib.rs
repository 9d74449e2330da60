//! A RAID of levels 0, 1, 4, 5, 6 and 10 in user space.
//!
//! [`geometry`] gives the place of every byte, [`plan`] the reads, computation and writes of a row.
//! Neither sees a byte of data: all is arithmetic on numbers and ranges, so that every case can be
//! tested without a disk. [`compute`] carries plans out on bytes. [`cache`] and [`sums`] hold the
//! content that members do not have yet; [`engine`] writes it to them.
//!
//! Words: a *row* is planned and written as one: with parity, one chunk on each member at one
//! member offset. A *shard* is one of its chunks, data in the order of user bytes, then P, then Q;
//! of a mirror, the copies of one chunk. A *column* is a byte range within the chunks of a row. An
//! *absent* member has failed or is missing; *erased* bytes are bytes of a present member that are
//! bad.
//!
//! Invariants:
//! - ranges are half-open, offsets are bytes;
//! - the same input gives the same plan: no clock, no randomness, no state but buffers that are
//!   used again;
//! - nothing absent is ever read or written.
//!
//! Floors, lowest first; a module imports from lower floors only:
//!
//! | modules | what they hold |
//! |---|---|
//! | `set` `runs` `executor` `ranked` `limits` `format` `probe` | small shared types; bytes on disk |
//! | `geometry` `signature` `sums` `control` | placement; foreign content; checksums; the socket |
//! | `plan` | reads, computation and writes of a row |
//! | `cache` `traffic` | bytes not on the members yet; counters |
//! | `compute` | plans carried out on bytes |
//! | `member` `md` | one member of an array of ours; an array that Linux md made |
//! | `engine` | a running array, without threads |
//! | `volume` | its threads |
//! | `ops` | verbs |
//!
//! Not in this crate, except in `control`, `volume` and `ops`: threads and clocks. Devices are seen
//! by [`member`], [`md`] and those that open them: [`engine`] when it assembles, and [`ops`].

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod cache;
pub mod compute;
pub mod engine;
pub mod executor;
pub mod format;
pub mod geometry;
pub mod limits;
pub mod md;
pub mod member;
pub mod ops;
pub mod plan;
pub mod probe;
mod ranked;
pub mod runs;
pub mod set;
pub mod signature;
pub mod sums;
pub mod traffic;
pub mod volume;
