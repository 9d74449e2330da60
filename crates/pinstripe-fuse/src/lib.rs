//! What programs see in a directory that this process answers for, by FUSE.
//!
//! [`Mount`] shows any file system of the crate `fuser`; [`TreeFileSystem`] is the one of a
//! read-only tree of files. Nothing stays mounted however serving ends, unless the process is
//! killed. The threads that answer the kernel are those of `fuser`. Not in this crate: where the
//! files come from.

#![allow(clippy::disallowed_methods, reason = "mounts file systems")]

mod attributes;
mod hints;
mod mountpoint;
mod passthrough;
mod tree;

pub use hints::send_hint;
pub use mountpoint::Mount;
pub use tree::{TreeFileSystem, TreeOptions};
