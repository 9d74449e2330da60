//! The bytes of the network block device protocol (NBD), as a server reads and writes them.
//!
//! ```text
//! server:  greeting |       | option replies |          | replies, in any order
//! client:           | flags |     option ... | request, with bytes to be written ...
//! ```
//! Source: doc/proto.md of the nbd project, with its extensions INFO, WRITE_ZEROES and
//! BLOCK_STATUS, which every current client supports. Fixed newstyle only; no TLS and no extended
//! headers: requests for both get the protocol's own refusals.
//!
//! Invariants: numbers are big-endian; every length that a client sends is compared with a limit of
//! this file before it is used; any bytes of a client are answered or refused, never a panic.
//!
//! Not in this module: sockets, devices, and who may connect.

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
/// Bytes of a request without what is to be written.
pub const REQUEST_BYTES: usize = 28;
/// Longest data of an option: two names and some numbers.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest name, as the protocol has it.
pub const NAME_BYTES_MAX: usize = 4096;
/// Most bytes of one read or write. Clients that ask get it; the others keep below it, because all
/// servers have this limit.
pub(crate) const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Errors as the protocol numbers them; the numbers are those of Linux.
pub mod error {
    /// Writing to an export that is read only.
    pub const EPERM: u32 = 1;
    /// The device failed.
    pub const EIO: u32 = 5;
    /// The request makes no sense.
    pub const EINVAL: u32 = 22;
    /// There is no room, or the export ends before.
    pub const ENOSPC: u32 = 28;
    /// There is no fast way to do this.
    pub const ENOTSUP: u32 = 95;
    /// The server ends.
    pub(crate) const ESHUTDOWN: u32 = 108;
}

/// The flags that a client may set on a command.
pub mod flag {
    /// Answer when it is durable.
    pub const FUA: u16 = 1 << 0;
    /// Zeros shall take space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One piece of data in the reply.
    pub const DF: u16 = 1 << 2;
    /// One extent in the reply.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeros only if that is faster than writing them.
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
