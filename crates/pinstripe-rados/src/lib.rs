//! Accesses objects of a Ceph cluster through the system's librados.
//!
//! The library is loaded when the first cluster is connected (dlopen(3)): no part of Ceph is needed
//! to build this program, and on a system without the library the error names the package. Modules:
//! `remote` opens members of stores, `member` is a member in a namespace of a pool, `many` sends
//! several requests in parallel, `cluster` contains the safe calls, and `library` the symbols for
//! them. This crate does not read the environment, and does not interpret the bytes of objects.
//!
//! Invariants: a call ends by the deadline with which its cluster was connected, as far as librados
//! respects its own limit (`rados_osd_op_timeout`); the library is loaded once and never unloaded,
//! because its threads outlive its handles.

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
