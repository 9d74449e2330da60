//! Objects of a Ceph cluster, through the system's own librados.
//!
//! The library is opened when the first cluster is connected (dlopen(3)): no part of Ceph is needed
//! to build, and a system without it gets an error that names the package. Rooms: `remote` opens
//! members of stores, `member` is one in a namespace of a pool; `many` sends several requests at
//! once; `cluster` has the safe calls, `library` the symbols for them. Not in this crate: the
//! environment, the meaning of the bytes.
//!
//! Invariants: a call ends by the deadline that its cluster was connected with, as far as librados
//! keeps its own (`rados_osd_op_timeout`); the library is opened once and never closed, since
//! its threads outlive its handles.

mod cluster;
mod library;
mod listing;
mod manifest;
mod many;
mod member;
mod remote;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Pool};
pub use remote::{Pools, is_pool};
