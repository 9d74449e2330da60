//! One option of the handshake: a request of a client before it chooses an export.

use super::request::part;
use super::{NAME_BYTES_MAX, OPTION_HEAD_BYTES};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::wire::Reader;

pub(super) const MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"

/// The head of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    /// Which option.
    pub number: u32,
    /// The number of bytes of data that follow.
    pub bytes: u32,
}

/// An option of the handshake with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientOption<'a> {
    /// Chooses an export in the old way, in which the server cannot refuse.
    ExportName(&'a str),
    /// The client goes.
    Abort,
    /// Asks for the names of all exports.
    List,
    /// Asks for encryption.
    StartTls,
    /// Asks for an export's description, and with `is_go` also chooses the export.
    Info {
        /// Which export.
        name: &'a str,
        /// Whether the export is also chosen.
        is_go: bool,
        /// Further information that the client wants, by number.
        wanted: Vec<u16>,
    },
    /// Structured replies.
    StructuredReply,
    /// Asks which kinds of block status there are, and with `is_set` also chooses them.
    MetaContext {
        /// The name of the export.
        name: &'a str,
        /// Whether the kinds of block status are also chosen.
        is_set: bool,
        /// Which kinds.
        queries: Vec<&'a str>,
    },
    /// Any other option, including options of newer versions of the protocol.
    Unknown,
}

impl OptionHead {
    /// Reads a head.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] without the magic number: the peer is not an NBD client.
    pub fn decode(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<Self> {
        let magic = u64::from_be_bytes(part(bytes, 0));
        if magic != MAGIC {
            return Err(Error::new(Kind::Corrupt, "this is not an NBD option")
                .expected(format!("{MAGIC:#x}"), format!("{magic:#x}")));
        }
        Ok(OptionHead {
            number: u32::from_be_bytes(part(bytes, 8)),
            bytes: u32::from_be_bytes(part(bytes, 12)),
        })
    }
}

impl<'a> ClientOption<'a> {
    /// Reads the data of an option.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if the data are not valid for this option.
    pub fn decode(number: u32, data: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "NBD option");
        let option = match number {
            1 => {
                let len = reader.remaining();
                ClientOption::ExportName(text(&mut reader, len)?)
            }
            2 => {
                reader.rest(); // Any body will do: the client leaves anyway.
                ClientOption::Abort
            }
            3 => ClientOption::List,
            5 => ClientOption::StartTls,
            6 | 7 => {
                let name = name(&mut reader)?;
                let count = u16::from_be_bytes(reader.array()?);
                let wanted = (0..count).map(|_| reader.array().map(u16::from_be_bytes));
                ClientOption::Info {
                    name,
                    is_go: number == 7,
                    wanted: wanted.collect::<Result<_>>()?,
                }
            }
            8 => ClientOption::StructuredReply,
            9 | 10 => {
                let name = name(&mut reader)?;
                let count = u32::from_be_bytes(reader.array()?);
                let queries = (0..count).map(|_| self::name(&mut reader));
                // Grows as bytes are found for it, whatever the count says.
                let queries = queries.collect::<Result<_>>()?;
                ClientOption::MetaContext { name, is_set: number == 10, queries }
            }
            _ => {
                reader.rest();
                ClientOption::Unknown
            }
        };
        reader.finish()?;
        Ok(option)
    }
}

/// Reads a text that is preceded by its length.
fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a str> {
    let len = u32::from_be_bytes(reader.array()?) as usize;
    text(reader, len)
}

fn text<'a>(reader: &mut Reader<'a>, len: usize) -> Result<&'a str> {
    if len > NAME_BYTES_MAX {
        return Err(reader
            .corrupt("a name in the NBD option is too long")
            .expected(NAME_BYTES_MAX, len));
    }
    let bytes = reader.take(len)?;
    std::str::from_utf8(bytes).map_err(|_| reader.corrupt("a name in the NBD option is not UTF-8"))
}
