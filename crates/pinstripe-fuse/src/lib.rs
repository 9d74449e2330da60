//! File systems that this process serves by FUSE.
//!
//! [`Mount`] mounts any file system that implements the trait of the crate `fuser`;
//! [`TreeFileSystem`] implements it for a read-only tree of files. The file system is always
//! unmounted when serving ends, unless the process is killed. The threads that answer the kernel
//! are those of the crate `fuser`. This crate does not know where the files come from.

#![allow(clippy::disallowed_methods, reason = "this crate mounts file systems")]

mod attributes;
mod hints;
mod mountpoint;
mod passthrough;
mod tree;

pub use hints::send_hint;
pub use mountpoint::Mount;
pub use tree::{TreeFileSystem, TreeOptions};
