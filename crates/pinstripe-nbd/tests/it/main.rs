//! Devices as they are served, by NBD and by FUSE, to clients of every kind.

mod fuse;
mod nbd;
