//! The handshake: from the greeting to the choice of an export and the terms of its use.
//!
//! Invariant: every option is answered according to the protocol, except the old way of choosing an
//! export (NBD_OPT_EXPORT_NAME); a choice of block status holds only for the export for which it
//! was made.

use super::option::{self, ClientOption, OptionHead};
use super::reply::ALLOCATION_ID;
use super::{OPTION_BYTES_MAX, REQUEST_BYTES_MAX, Terms, can};
use pinstripe_base::error::{Error, Kind, Result};

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u32 = 1;
const NO_ZEROES: u32 = 2;
/// The number of zeros that old clients expect after the answer to NBD_OPT_EXPORT_NAME.
const OLD_ZEROES: usize = 124;
/// The only kind of block status that is supported.
const ALLOCATION: &str = "base:allocation";
const NAMESPACE: &str = "base:";

mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const UNSUP: u32 = (1 << 31) + 1;
    pub(crate) const INVALID: u32 = (1 << 31) + 3;
    pub const UNKNOWN: u32 = (1 << 31) + 6;
    pub(crate) const TOO_BIG: u32 = (1 << 31) + 9;
}

mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// The description of an export for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// The name of the export; clients that give no name get the export with an empty one.
    pub name: String,
    /// For people.
    pub description: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the export is read-only.
    pub is_read_only: bool,
    /// The disks turn.
    pub is_rotational: bool,
    /// Whether TRIM frees space; never set for a read-only export.
    pub can_trim: bool,
    /// Whether zeros can be made faster than by writing them; never set for a read-only export.
    pub can_fast_zero: bool,
    /// The preferred alignment of requests in bytes, a power of two.
    pub preferred_bytes: u32,
}

/// What the client sends after an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next option.
    More,
    /// The client sends requests to the export with this index, on these terms.
    Begin(usize, Terms),
    /// The client sends nothing: the connection is to be closed.
    End,
}

/// A handshake in progress, after the client's flags.
#[derive(Debug)]
pub struct Handshake<'a> {
    exports: &'a [ExportInfo],
    wants_zeroes: bool,
    is_structured: bool,
    /// The index of the export for which block status was chosen.
    status_of: Option<usize>,
}

/// The server's greeting.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&option::MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&((FIXED_NEWSTYLE | NO_ZEROES) as u16).to_be_bytes());
    bytes
}

impl<'a> Handshake<'a> {
    /// Begins a handshake with a client that answered the greeting with `flags`.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a flag that was not offered; the connection is then to
    /// be closed.
    pub fn new(exports: &'a [ExportInfo], flags: [u8; 4]) -> Result<Self> {
        let flags = u32::from_be_bytes(flags);
        if flags & !(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(Error::new(
                Kind::Unsupported,
                "an NBD client sent unknown handshake flags",
            )
            .expected(format!("{:#x}", FIXED_NEWSTYLE | NO_ZEROES), format!("{flags:#x}")));
        }
        let wants_zeroes = flags & NO_ZEROES == 0;
        Ok(Handshake { exports, wants_zeroes, is_structured: false, status_of: None })
    }

    /// Answers one option with its data; `data` is `None` if they are too long to be read.
    pub fn answer(&mut self, head: OptionHead, data: Option<&[u8]>, out: &mut Vec<u8>) -> Step {
        let mut say = |kind: u32, data: &[u8]| say(out, head.number, kind, data);
        let Some(data) = data else {
            let text =
                format!("the option of the NBD client is longer than {OPTION_BYTES_MAX} bytes");
            say(answer::TOO_BIG, text.as_bytes());
            return Step::More;
        };
        let option = match ClientOption::decode(head.number, data) {
            Ok(option) => option,
            // NBD_OPT_EXPORT_NAME: nothing can be refused.
            Err(_) if head.number == 1 => return Step::End,
            Err(error) => {
                say(answer::INVALID, error.to_string().as_bytes());
                return Step::More;
            }
        };
        match option {
            ClientOption::ExportName(name) => return self.begin_by_export_name(name, out),
            ClientOption::Abort => {
                say(answer::ACK, &[]);
                return Step::End;
            }
            ClientOption::List => {
                for export in self.exports {
                    let len = (export.name.len() as u32).to_be_bytes();
                    say(answer::SERVER, &[&len, export.name.as_bytes()].concat());
                }
                say(answer::ACK, &[]);
            }
            ClientOption::StructuredReply => {
                self.is_structured = true;
                say(answer::ACK, &[]);
            }
            ClientOption::StartTls => say(answer::UNSUP, b"this NBD server does not support TLS"),
            ClientOption::Unknown => {
                say(answer::UNSUP, b"this NBD server does not support the option")
            }
            ClientOption::MetaContext { name, is_set, queries } => {
                self.choose_status(name, is_set, &queries, say);
            }
            ClientOption::Info { name, is_go, wanted } => {
                return self.describe(name, is_go, &wanted, say);
            }
        }
        Step::More
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.exports.iter().position(|export| export.name == name)
    }

    fn begin_by_export_name(&self, name: &str, out: &mut Vec<u8>) -> Step {
        let Some(at) = self.find(name) else { return Step::End };
        let export = &self.exports[at];
        out.extend_from_slice(&export.bytes.to_be_bytes());
        out.extend_from_slice(&self.transmission_flags(export).to_be_bytes());
        if self.wants_zeroes {
            out.resize(out.len() + OLD_ZEROES, 0);
        }
        Step::Begin(at, self.terms(at))
    }

    fn describe(
        &self,
        name: &str,
        is_go: bool,
        wanted: &[u16],
        mut say: impl FnMut(u32, &[u8]),
    ) -> Step {
        let Some(at) = self.find(name) else {
            say(answer::UNKNOWN, b"no export has this name");
            return Step::More;
        };
        let export = &self.exports[at];
        let mut tell = |kind: u16, data: &[u8]| {
            say(answer::INFO, &[&kind.to_be_bytes(), data].concat());
        };
        let flags = self.transmission_flags(export).to_be_bytes();
        tell(info::EXPORT, &[&export.bytes.to_be_bytes()[..], &flags].concat());
        if wanted.contains(&info::NAME) {
            tell(info::NAME, export.name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            tell(info::DESCRIPTION, export.description.as_bytes());
        }
        // Sent without a request as well: a client that ignores it is served anyway.
        let sizes = [1, export.preferred_bytes, REQUEST_BYTES_MAX].map(u32::to_be_bytes);
        tell(info::BLOCK_SIZE, sizes.as_flattened());
        say(answer::ACK, &[]);
        if is_go { Step::Begin(at, self.terms(at)) } else { Step::More }
    }

    fn choose_status(
        &mut self,
        name: &str,
        is_set: bool,
        queries: &[&str],
        mut say: impl FnMut(u32, &[u8]),
    ) {
        let found = self.find(name);
        if is_set {
            self.status_of = None;
        }
        if !self.is_structured {
            return say(
                answer::INVALID,
                b"the client must negotiate structured replies before this option",
            );
        }
        if found.is_none() {
            return say(answer::UNKNOWN, b"no export has this name");
        }
        let asks_for_all = !is_set && (queries.is_empty() || queries.contains(&NAMESPACE));
        if asks_for_all || queries.contains(&ALLOCATION) {
            // In a list, the number is reserved.
            let id = if is_set { ALLOCATION_ID } else { 0 };
            say(answer::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION.as_bytes()].concat());
            if is_set {
                self.status_of = found;
            }
        }
        say(answer::ACK, &[]);
    }

    fn terms(&self, at: usize) -> Terms {
        let export = &self.exports[at];
        Terms {
            bytes: export.bytes,
            is_read_only: export.is_read_only,
            can_trim: export.can_trim,
            is_structured: self.is_structured,
            has_status: self.status_of == Some(at),
        }
    }

    fn transmission_flags(&self, export: &ExportInfo) -> u16 {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN;
        flags |= match export.is_read_only {
            true => can::READ_ONLY,
            false => can::WRITE_ZEROES,
        };
        if export.can_trim {
            flags |= can::TRIM;
        }
        if export.can_fast_zero {
            flags |= can::FAST_ZERO;
        }
        if export.is_rotational {
            flags |= can::ROTATIONAL;
        }
        if self.is_structured {
            flags |= can::DF;
        }
        flags
    }
}

fn say(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}
