//! The error type of the library: what failed, where, what was expected and found, and what to do
//! next.
//!
//! Invariants: every error has a [`Kind`], which alone decides the exit code; the text never
//! repeats the kind. An error is built where the facts are known, and its callers only add context
//! (`at`, `advice`); it is never replaced by a less precise one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result type of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of failure, which determines the exit code (doc/exit-codes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The operating system or a device refused an operation.
    Io,
    /// No space is left on a member or target (ENOSPC, EDQUOT).
    NoSpace,
    /// A named object does not exist.
    NotFound,
    /// An object that must be new already exists.
    Exists,
    /// Stored bytes are not those that were written: bad magic, checksum, length or order.
    Corrupt,
    /// The data was written by a newer version, or with a feature that this version does not know.
    Unsupported,
    /// The arguments are invalid together.
    Usage,
    /// The operation is possible, but refused because it would endanger data; the advice names the
    /// option that overrides this.
    Refused,
    /// More members or strips are lost than parity can replace.
    TooManyLosses,
    /// A member belongs to another store, or is not the expected member.
    WrongMember,
    /// An object changed or disappeared while it was read.
    Changed,
    /// The data is sealed, and no password or key file was given.
    Locked,
    /// No key slot opens with the password or key file that was given.
    WrongKey,
    /// A store is not encrypted although an encrypted one is expected, or has both a sealed key
    /// ring and keys in clear.
    NotEncrypted,
    /// Another process has to finish or acknowledge something first.
    Busy,
    /// The operation ended early because its caller requested it.
    Interrupted,
    /// A member did not answer in time.
    Unanswered,
    /// The endpoint of a member lacks what several writers rely on: that only one of them can
    /// create a name.
    NoOneWinner,
    /// The store's keys were rotated since this process opened it.
    KeysChanged,
    /// A server has another key than the pinned one.
    WrongServer,
    /// A server refuses a token, or what a token's role does not allow.
    NotAllowed,
}

/// Every kind with its name in JSON.
const KINDS: [(Kind, &str); 21] = [
    (Kind::Io, "io"),
    (Kind::NoSpace, "no_space"),
    (Kind::NotFound, "not_found"),
    (Kind::Exists, "exists"),
    (Kind::Corrupt, "corrupt"),
    (Kind::Unsupported, "unsupported"),
    (Kind::Usage, "usage"),
    (Kind::Refused, "refused"),
    (Kind::TooManyLosses, "too_many_losses"),
    (Kind::WrongMember, "wrong_member"),
    (Kind::Changed, "changed"),
    (Kind::Locked, "locked"),
    (Kind::WrongKey, "wrong_key"),
    (Kind::NotEncrypted, "not_encrypted"),
    (Kind::Busy, "busy"),
    (Kind::Interrupted, "interrupted"),
    (Kind::Unanswered, "unanswered"),
    (Kind::NoOneWinner, "no_one_winner"),
    (Kind::KeysChanged, "keys_changed"),
    (Kind::WrongServer, "wrong_server"),
    (Kind::NotAllowed, "not_allowed"),
];

impl Kind {
    /// Whether the error only reports missing keys, and says nothing about the bytes.
    pub fn is_about_keys(self) -> bool {
        matches!(self, Kind::Locked | Kind::KeysChanged)
    }

    /// The name of the kind in JSON.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("other", |(_, name)| name)
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

/// An error: a failure with its facts. An error is cheap to pass, because it is one box.
#[derive(Debug)]
pub struct Error(Box<ErrorInner>);

#[derive(Debug)]
struct ErrorInner {
    kind: Kind,
    what: String,
    place: Option<PathBuf>,
    expected_found: Option<(String, String)>,
    advice: Option<String>,
    source: Option<io::Error>,
}

impl Error {
    /// An error with the text of what failed.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Error(Box::new(ErrorInner {
            kind,
            what: what.into(),
            place: None,
            expected_found: None,
            advice: None,
            source: None,
        }))
    }

    /// An error of the operating system: `what` is the attempted operation ("cannot open"), `place`
    /// its object.
    pub fn io(
        what: impl Into<String>,
        place: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let source = source.into();
        let kind = match source.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::AlreadyExists => Kind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            _ => Kind::Io,
        };
        let mut error = Error::new(kind, what).at(place);
        if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
            error = error.advice(
                "the limit of open files of this process is too low: raise it with 'ulimit -n'",
            );
        }
        error.0.source = Some(source);
        error
    }

    /// Like [`io`](Self::io), for a path that a user named: a path below a regular file (ENOTDIR)
    /// does not exist, so the kind is [`Kind::NotFound`]. Not for objects of a store: there
    /// ENOTDIR may mean that something else has replaced their directory.
    pub fn of_named(
        what: impl Into<String>,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let mut error = Error::io(what, path, source);
        if error.raw_os_error() == Some(rustix::io::Errno::NOTDIR.raw_os_error()) {
            error.0.kind = Kind::NotFound;
        }
        error
    }

    /// An error about stored bytes at `place` that are not those that were written.
    pub fn corrupt(what: impl Into<String>, place: impl AsRef<Path>) -> Self {
        Error::new(Kind::Corrupt, what).at(place)
    }

    /// Sets the place where the error occurred, unless it has one: the innermost place is kept.
    #[must_use]
    pub fn at(mut self, place: impl AsRef<Path>) -> Self {
        if self.0.place.is_none() {
            self.0.place = Some(place.as_ref().to_path_buf());
        }
        self
    }

    /// Replaces the place, for callers that know it by another name.
    #[must_use]
    pub fn at_instead(mut self, place: impl AsRef<Path>) -> Self {
        self.0.place = Some(place.as_ref().to_path_buf());
        self
    }

    /// States the expected and the actual value.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.0.expected_found = Some((expected.to_string(), found.to_string()));
        self
    }

    /// Adds advice for the user, unless the error has some: the innermost advice is kept.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        if self.0.advice.is_none() {
            self.0.advice = Some(advice.into());
        }
        self
    }

    /// Replaces the advice, for callers that know more.
    #[must_use]
    pub fn advice_instead(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Converts the error for a caller that wanted stored data: missing or damaged bytes are then a
    /// loss, rather than a wrong name or a failed command.
    #[must_use]
    pub fn as_loss(mut self) -> Self {
        if matches!(self.0.kind, Kind::NotFound | Kind::Corrupt) {
            self.0.kind = Kind::TooManyLosses;
        }
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What failed, without place and facts; [`fmt::Display`] prints all of it.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The expected and the actual value, if they were stated.
    pub fn expected_found(&self) -> Option<(&str, &str)> {
        self.0.expected_found.as_ref().map(|(expected, found)| (&**expected, &**found))
    }

    /// The operating system's error, if there is one.
    pub fn cause(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }

    /// The operating system's error number, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// The place of the failure, if it is known.
    pub fn place(&self) -> Option<&Path> {
        self.0.place.as_deref()
    }

    /// The advice for the user, if there is some.
    pub fn advice_text(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// Copies the error for a second owner; the operating system error keeps its number and text.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let inner = &self.0;
        Error(Box::new(ErrorInner {
            kind: inner.kind,
            what: inner.what.clone(),
            place: inner.place.clone(),
            expected_found: inner.expected_found.clone(),
            advice: inner.advice.clone(),
            source: inner.source.as_ref().map(|source| match source.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(source.kind(), source.to_string()),
            }),
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(place) = &inner.place {
            write!(f, "{}: ", place.display())?;
        }
        f.write_str(&inner.what)?;
        if let Some((expected, found)) = &inner.expected_found {
            write!(f, " (expected {expected}, found {found})")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
