//! A request, and the check whether it may be carried out.

use super::{REQUEST_BYTES, REQUEST_BYTES_MAX, error, flag};
use pinstripe_base::error::{Error, Kind, Result};

const MAGIC: u32 = 0x2560_9513;

/// A client's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Reads a range.
    Read,
    /// Writes the bytes that follow to a range.
    Write,
    /// Disconnects after all requests are answered.
    Disconnect,
    /// Makes all answered writes durable.
    Flush,
    /// Says that the content of a range is no longer needed.
    Trim,
    /// Says that a range will be needed soon.
    Cache,
    /// Makes a range read as zeros.
    WriteZeroes,
    /// Asks which parts of a range are holes.
    BlockStatus,
    /// None of these.
    Unknown(u16),
}

/// One request, as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// How: see [`flag`].
    pub flags: u16,
    /// Identifies the reply for the client.
    pub cookie: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// The length of the range, in bytes.
    pub len: u32,
}

/// The terms that client and server have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Length of the export.
    pub bytes: u64,
    /// Whether changes are refused.
    pub is_read_only: bool,
    /// Whether TRIM was offered.
    pub can_trim: bool,
    /// Replies are structured.
    pub is_structured: bool,
    /// Whether the client may ask for the block status `base:allocation`.
    pub has_status: bool,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] without the magic number, because the start of the next request
    /// is then unknown.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self> {
        let magic = u32::from_be_bytes(part(bytes, 0));
        if magic != MAGIC {
            return Err(Error::new(Kind::Corrupt, "this is not an NBD request")
                .expected(format!("{MAGIC:#x}"), format!("{magic:#x}")));
        }
        Ok(Request {
            flags: u16::from_be_bytes(part(bytes, 4)),
            command: Command::from(u16::from_be_bytes(part(bytes, 6))),
            cookie: u64::from_be_bytes(part(bytes, 8)),
            offset: u64::from_be_bytes(part(bytes, 16)),
            len: u32::from_be_bytes(part(bytes, 24)),
        })
    }

    /// Whether the request has a flag.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The number of bytes that follow the request.
    pub fn payload(&self) -> u32 {
        if self.command == Command::Write { self.len } else { 0 }
    }

    /// Checks whether the request may be carried out; if not, returns the error number of the
    /// protocol.
    ///
    /// # Errors
    /// Fails with EINVAL for a request that is unknown, was not agreed on, is too long, empty, or
    /// beyond the end; with EPERM for a change to a read-only export; with ENOSPC for a write
    /// beyond the end.
    pub fn check(&self, terms: &Terms) -> Result<(), u32> {
        use Command as C;
        let allowed = flag::FUA // Clients set it everywhere.
            | match self.command {
                C::Read if terms.is_structured => flag::DF,
                C::WriteZeroes => flag::NO_HOLE | flag::FAST_ZERO,
                C::BlockStatus => flag::REQ_ONE,
                _ => 0,
            };
        let is_known = match self.command {
            C::Unknown(_) | C::Cache => false,
            C::BlockStatus => terms.has_status,
            // A read-only export never offers it, and refuses it as a change.
            C::Trim => terms.can_trim || terms.is_read_only,
            _ => true,
        };
        if !is_known || self.flags & !allowed != 0 {
            return Err(error::EINVAL);
        }
        if matches!(self.command, C::Flush | C::Disconnect) {
            return Ok(()); // Offset and length are reserved, and ignored.
        }
        let writes = matches!(self.command, C::Write | C::WriteZeroes);
        if terms.is_read_only && (writes || self.command == C::Trim) {
            return Err(error::EPERM);
        }
        let moves = matches!(self.command, C::Read | C::Write);
        if self.len == 0 || moves && self.len > REQUEST_BYTES_MAX {
            return Err(error::EINVAL);
        }
        let end = self.offset.checked_add(self.len.into());
        match end.is_some_and(|end| end <= terms.bytes) {
            true => Ok(()),
            false if writes => Err(error::ENOSPC),
            false => Err(error::EINVAL),
        }
    }
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }
}

/// Takes `N` bytes of a head of fixed length.
pub(super) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of this length")
}
