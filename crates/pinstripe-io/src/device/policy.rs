//! How bytes get to a disk: through the page cache or past it, and whether a write waits for the
//! disk.

use std::fmt;
use std::io;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};

/// How a file or block device is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Writes go through the page cache; the kernel writes them to the disk at any time, at the
    /// latest in a sync.
    #[default]
    Buffered,
    /// Each write returns when its bytes are durable (O_DSYNC, open(2)).
    Dsync,
    /// Each write returns when its bytes and all metadata, times included, are durable (O_SYNC).
    Sync,
    /// Writes bypass the page cache (O_DIRECT); they are durable only after a sync, since disks
    /// have caches too.
    Direct,
    /// Writes bypass the page cache, and each write returns when its bytes are durable.
    DirectDsync,
    /// Writes go through the page cache, which drops the bytes as soon as they are written
    /// (RWF_DONTCACHE, Linux 6.14).
    Uncached,
}

impl Policy {
    /// Every policy with its name.
    pub const ALL: [(Policy, &'static str); 6] = [
        (Policy::Buffered, "buffered"),
        (Policy::Dsync, "dsync"),
        (Policy::Sync, "sync"),
        (Policy::Direct, "direct"),
        (Policy::DirectDsync, "direct+dsync"),
        (Policy::Uncached, "uncached"),
    ];

    /// Whether writes bypass the page cache.
    pub const fn is_direct(self) -> bool {
        matches!(self, Policy::Direct | Policy::DirectDsync)
    }

    /// The policy that is used if this one is refused: it gives the same guarantee, through the
    /// page cache.
    pub const fn fallback(self) -> Policy {
        match self {
            Policy::Direct | Policy::Uncached => Policy::Buffered,
            Policy::DirectDsync => Policy::Dsync,
            other => other,
        }
    }

    /// The flags for open(2) of the descriptor that uses the page cache.
    pub(super) const fn open_flags(self) -> i32 {
        match self {
            Policy::Dsync | Policy::DirectDsync => libc::O_DSYNC,
            Policy::Sync => libc::O_SYNC,
            Policy::Buffered | Policy::Direct | Policy::Uncached => 0,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].1)
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name("write policy", text, &Self::ALL)
    }
}

/// Finds a value by its name; the error lists the known names.
pub(super) fn by_name<T: Copy>(what: &str, text: &str, known: &[(T, &str)]) -> Result<T> {
    let found = known.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    found.map(|(it, _)| *it).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(_, name)| *name).collect();
        let error = Error::new(Kind::Usage, format!("'{text}' is not a known {what}"));
        error.advice(format!("one of {}", names.join(", ")))
    })
}

/// A policy that the kernel or the file system refused, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The requested policy.
    pub asked: Policy,
    /// The policy in use.
    pub used: Policy,
    /// The reason, as text for people.
    pub why: String,
}

impl Fallback {
    pub(super) fn new(asked: Policy, why: impl Into<io::Error>) -> Self {
        Fallback { asked, used: asked.fallback(), why: why.into().to_string() }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the write policy '{}' was refused ({}), so '{}' is used instead",
            self.asked, self.why, self.used
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (policy, name) in Policy::ALL {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.to_uppercase().parse::<Policy>().unwrap(), policy);
        }
        let error = "fast".parse::<Policy>().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.advice_text().unwrap().contains("direct+dsync"));
    }

    #[test]
    fn a_fallback_promises_the_same() {
        for (policy, _) in Policy::ALL {
            let used = policy.fallback();
            assert!(!used.is_direct() && used != Policy::Uncached);
            assert_eq!(used.open_flags(), policy.open_flags());
        }
    }
}
