//! A file system with its mkfs and mount options, as users type it.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};

use super::kinds::{self, FileSystem};
use crate::program;
use crate::run::Live;

/// A candidate, for example `ext4`, `ext4 -O ^has_journal mount=noatime`, `btrfs
/// mount=compress=zstd:3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsCandidate {
    /// Which file system.
    pub kind: &'static FileSystem,
    /// The arguments of the mkfs program in addition to those in [`FileSystem`].
    pub making: Vec<String>,
    /// Mount options.
    pub mounting: Vec<String>,
}

/// A candidate, and the mkfs program for it on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Maker {
    /// The file system with its options.
    pub candidate: FsCandidate,
    /// By what.
    pub program: PathBuf,
}

impl Maker {
    /// The version that the program reports; `None` if it reports none.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] after a stop request; other errors as the system reports them.
    pub fn version(&self, live: &Live) -> Result<Option<String>> {
        let ran = program::run(Command::new(&self.program).arg("-V"), live)?;
        let mut lines = ran.out.lines().chain(ran.err.lines()).map(str::trim);
        Ok(lines.find(|line| !line.is_empty()).map(str::to_owned))
    }
}

impl FsCandidate {
    /// A candidate with default mkfs and mount options.
    pub fn plain(kind: &'static FileSystem) -> Self {
        FsCandidate { kind, making: Vec::new(), mounting: Vec::new() }
    }

    /// Parses candidates, separated by `;`.
    ///
    /// # Errors
    /// [`Kind::Usage`] for an invalid candidate.
    pub fn list(text: &str) -> Result<Vec<FsCandidate>> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let found = parts.map(str::parse).collect::<Result<Vec<_>>>()?;
        match found.is_empty() {
            true => Err(Error::new(Kind::Usage, "no file system was given")),
            false => Ok(found),
        }
    }
}

impl FromStr for FsCandidate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_whitespace();
        let mut candidate = FsCandidate::plain(kinds::find(words.next().unwrap_or_default())?);
        for word in words {
            let options = word.strip_prefix("mount=");
            let parts: Vec<&str> = options.map_or(vec![word], |it| it.split(',').collect());
            for part in &parts {
                refuse(part, options.is_some())?;
            }
            let list =
                if options.is_some() { &mut candidate.mounting } else { &mut candidate.making };
            list.extend(parts.into_iter().map(str::to_owned));
        }
        Ok(candidate)
    }
}

/// Options that could refer to another device than the one that may be overwritten: a path, a label
/// or UUID, an external journal.
const ELSEWHERE: &[&str] = &["/", "UUID=", "LABEL=", "device", "dev=", "journal_path"];
/// Mount options that only the mount program handles, or that would make the measurement useless.
const NOT_OURS: &[&str] = &["", "source", "loop", "ro", "remount", "bind", "move"];

fn refuse(word: &str, is_mount_option: bool) -> Result<()> {
    let key = word.split('=').next().unwrap_or_default();
    let refused = |what: &str| {
        Err(Error::new(Kind::Usage, format!("'{word}' {what}")).advice(
            "use only options that refer to no other device, for example 'ext4 -O ^has_journal \
             mount=noatime'",
        ))
    };
    if let Some(part) = ELSEWHERE.iter().find(|part| word.contains(**part)) {
        return refused(&format!(
            "this option is refused, because it could refer to another device ('{part}')"
        ));
    }
    match is_mount_option && NOT_OURS.contains(&key) {
        true => refused("this is a mount option that the case 'fs' does not support"),
        false => Ok(()),
    }
}

impl fmt::Display for FsCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        for word in &self.making {
            write!(f, " {word}")?;
        }
        match self.mounting.is_empty() {
            true => Ok(()),
            false => write!(f, " mount={}", self.mounting.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_read_as_they_are_shown() {
        for text in ["ext4", "ext4 -O ^has_journal mount=noatime", "btrfs mount=compress=zstd:3"] {
            let candidate: FsCandidate = text.parse().unwrap();
            assert_eq!(candidate.to_string(), text);
        }
        let list =
            FsCandidate::list("xfs; ext4 mount=noatime,data=writeback mount=barrier ;").unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].mounting, ["noatime", "data=writeback", "barrier"]);
        assert!(list[1].making.is_empty());
    }

    #[test]
    fn nothing_that_could_reach_another_device_is_let_through() {
        for text in [
            "ext5",
            "",
            ";",
            "ext4 /dev/sda",
            "ext4 LABEL=root",
            "ext4 -J device=UUID=1",
            "ext4 PARTUUID=1",
            "ext4 -d ./files",
            "xfs -l logdev=sdb",
            "xfs -r rtdev=sdb",
            "xfs mount=logdev=sdb",
            "ext4 mount=journal_dev=0x801",
            "ext4 mount=journal_path=x",
            "btrfs mount=device=x",
            "ext4 mount=source=x",
            "ext4 mount=",
            "ext4 mount=ro",
            "ext4 mount=noatime,,nodev",
        ] {
            let error = FsCandidate::list(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{text}");
        }
    }
}
