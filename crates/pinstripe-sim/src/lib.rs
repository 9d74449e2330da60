//! Stores for tests, operations on them, and the model of what must then be true; used by the tests
//! of verbs, the stress test, the stories, and the hosts that write to buckets. The crate is never
//! part of a released program.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "these are helpers of tests"
)]
#![allow(missing_docs, reason = "these are helpers of tests")]
#![allow(
    clippy::should_implement_trait,
    clippy::new_without_default,
    reason = "the names are those that the tests use, and other crates need no stable interface"
)]

mod deletion;
pub mod ends;
pub mod health;
pub mod hostile;
mod keys;
pub mod look;
pub mod made_up;
pub mod manifest;
mod members;
pub mod operation;
pub mod process;
mod silence;
pub mod source;
pub mod suites;
pub mod support;
pub mod tick;
pub mod world;
mod writing;
