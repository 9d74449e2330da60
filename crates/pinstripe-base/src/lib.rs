//! Code that every crate of pinstripe shares.
//!
//! The modules are small and may use each other: [`units`] of size and time, the one [`error`],
//! [`id`]s and random bytes, the [`monitor`] that counts and reports, the [`clock`], numbers from a
//! seed ([`random`]), locks and the stop for which threads wait ([`sync`]), locks whose order is
//! checked ([`ranked`]), the results of many tasks ([`each`]), enums of one byte ([`byte_enum!`]),
//! a bounded cache ([`weighted_cache`]), and the reading and writing of little-endian numbers
//! ([`wire`]) with their [`checksum`].
//!
//! Not in this crate: files, sockets, starting threads, or anything that only one product needs.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod byte_enum;
pub mod checksum;
pub mod clock;
pub mod each;
pub mod error;
pub mod id;
pub mod monitor;
pub mod random;
pub mod ranked;
pub mod sync;
pub mod units;
pub mod weighted_cache;
pub mod wire;
