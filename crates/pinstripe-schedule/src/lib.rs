//! The order of the threads of a test program, drawn from a seed. [`calls`] replaces functions of the
//! C library in every program that links this crate: only tests that play stories may. Never part of
//! what is shipped.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "helpers of tests")]
#![allow(missing_docs, reason = "helpers of tests")]

pub mod calls;
pub mod schedule;
