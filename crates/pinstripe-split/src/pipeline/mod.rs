//! Threads and queues: no other module of this crate creates them.
//!
//! ```text
//! split:    units -> workers -> queue -> writer of each log -> queues
//! join:     list of batches -> runner, which reads -> workers, which also write
//! ```
//!
//! Invariants: every queue is bounded; after the first fatal error each stage drains its input and
//! drops it, so that no stage waits for ever.

#![allow(
    clippy::disallowed_methods,
    reason = "this module starts the threads of a split and of a join, and creates their queues"
)]

pub mod join;
pub mod split;
