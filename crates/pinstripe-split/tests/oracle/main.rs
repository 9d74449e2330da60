//! Our formats against the C libraries of others: they decode ours, and we decode theirs.
//!
//! Needs the system's liblzo2 and libsnappy, with `--features lzo-oracle,snappy-oracle`; without
//! the features there is nothing here. `cargo xtask test` sets those whose library is there.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

#[cfg(any(feature = "lzo-oracle", feature = "snappy-oracle"))]
mod blocks;
#[cfg(feature = "lzo-oracle")]
mod lzo;
#[cfg(feature = "snappy-oracle")]
mod snappy;
