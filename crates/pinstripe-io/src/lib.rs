//! Input and output: devices, several writes in flight on a device, simulated faults, and paths.
//!
//! [`device`] is the interface to block devices: files, disks, memory. [`write queue`] keeps several
//! writes in flight on one device. [`fault`] wraps devices so that they fail as real disks do.
//! [`beneath`] opens paths that cannot leave a directory; [`descriptors`] shares the open files
//! that the system allows; [`disk`] finds the disk of a path, [`mounts`] its mount; [`paths`]
//! examines paths. [`remove`] removes a directory with its content, except for mounts. [`pool`] has
//! threads that work in parallel, [`calls`] threads that make calls with a time limit. [`control`]
//! is the socket at which a process answers other processes of its user. [`process`] runs other
//! programs, [`library`] loads C libraries that may be missing.
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
pub mod library;
pub mod mounts;
pub mod paths;
pub mod pool;
pub mod process;
pub mod remove;
pub mod replace;
pub mod write_queue;
