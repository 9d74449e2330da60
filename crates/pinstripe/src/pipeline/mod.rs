//! Threads and queues of the store: no other module creates them.
//!
//! ```text
//! backup:   walk workers -> join (caller) -> ingest workers -> packers -> member writers
//!                               |                  |              ^
//!                               +---> assembler <--+-- tree ------+
//!           meanwhile: watch (other writers' packs), merge (index runs)
//! restore:  plan (caller) -> runner, which fetches -> decoders, which also write
//! stream:   feed (plans) -> runner, which fetches and decodes -> caller, in order
//! join:     list of batches -> runner, which reads -> workers, which also write
//! ```
//!
//! Invariants: every queue is bounded, and `limits` is the table of all bounds. A stage never waits
//! for an earlier stage. After the first fatal error each stage drains its input and drops it, so
//! that no stage waits for ever.

#![allow(
    clippy::disallowed_methods,
    reason = "starts the threads of the store and creates their queues"
)]

pub mod backup;
pub mod fill;
pub mod heartbeat;
pub mod limits;
pub mod member_writers;
pub mod pack;
pub mod publish;
pub mod restore;
pub(crate) mod sched_slice;
pub mod scratch_pool;
pub mod stream;
pub mod survey;
