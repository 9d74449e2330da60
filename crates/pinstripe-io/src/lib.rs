//! Bytes at places: devices, several writes in flight on one, their faults, and paths.
//!
//! [`device`] is the block seam: files, block devices, memory. [`lane`] keeps several writes in
//! flight on one device. [`fault`] wraps devices so that they fail as real disks do. [`beneath`]
//! opens paths that cannot leave a directory; [`descriptors`] shares out the open files that the
//! system allows; [`disk`] names the disk that a path is on, [`mounts`] the mount; [`paths`] says what
//! is at a path.
//! [`remove`] removes a directory with everything in it, but no mount.
//! [`pool`] has the threads that work side by side, [`calls`] those that make calls with a deadline.
//! [`control`] is the socket at which a process answers others of its user.
//! [`process`] runs other programs, [`library`] loads C libraries that may be missing.
//!
//! Not in this crate: the meaning of the bytes.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod beneath;
pub mod calls;
pub mod control;
pub mod descriptors;
pub mod device;
pub mod disk;
pub mod fault;
pub mod file_tree;
pub mod lane;
pub mod library;
pub mod mounts;
pub mod paths;
pub mod pool;
pub mod process;
pub mod remove;
