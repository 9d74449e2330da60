//! Devices as they are served, by NBD and by FUSE, to clients of every kind.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod fuse;
mod nbd;
