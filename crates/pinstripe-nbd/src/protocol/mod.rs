//! The bytes of the network block device protocol (NBD), as a server reads and writes them.
//!
//! ```text
//! server:  greeting |       | option replies |          | replies, in any order
//! client:           | flags |     option ... | request, with bytes to be written ...
//! ```
//!
//! The source is doc/proto.md of the nbd project, with its extensions INFO, WRITE_ZEROES and
//! BLOCK_STATUS, which every current client supports. Only the fixed newstyle handshake is
//! supported; requests for TLS and extended headers are refused as the protocol demands.
//!
//! Invariants: numbers are big-endian; every length that a client sends is compared with a limit in
//! this file before it is used; any input from a client is answered or refused, and never causes a
//! panic.
//!
//! Not in this module: sockets, devices, and access control.

mod handshake;
mod option;
mod reply;
mod request;

pub use handshake::{ExportInfo, Handshake, Step, greeting};
pub use option::OptionHead;
pub use reply::{Extent, Form, hole, number_of, status};
pub use request::{Command, Request, Terms};

/// Bytes of the head of an option.
pub const OPTION_HEAD_BYTES: usize = 16;
/// Bytes of a request, without the data of a write.
pub const REQUEST_BYTES: usize = 28;
/// The most bytes of data of an option, which has two names and some numbers.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The longest name that the protocol allows, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// The most bytes of one read or write. Clients that ask for this limit get it; other clients stay
/// below it, because all servers have the same limit.
pub(crate) const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// The error numbers of the protocol, which are those of Linux.
pub mod error {
    /// A write to a read-only export.
    pub const EPERM: u32 = 1;
    /// The device failed.
    pub const EIO: u32 = 5;
    /// The request is invalid.
    pub const EINVAL: u32 = 22;
    /// There is no space, or the write extends beyond the end of the export.
    pub const ENOSPC: u32 = 28;
    /// There is no fast way to make zeros.
    pub const ENOTSUP: u32 = 95;
    /// The server ends.
    pub(crate) const ESHUTDOWN: u32 = 108;
}

/// The flags that a client may set on a command.
pub mod flag {
    /// The request is answered only when it is durable.
    pub const FUA: u16 = 1 << 0;
    /// The zeros must take space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply must have a single piece of data.
    pub const DF: u16 = 1 << 2;
    /// The reply must have a single extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeros are to be made only if that is faster than writing them.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The capabilities that the server announces once an export is chosen.
mod can {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    pub const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub const FAST_ZERO: u16 = 1 << 11;
}

#[cfg(test)]
mod tests;
