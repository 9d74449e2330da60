//! The places of members: a directory, or a name with a scheme, such as `s3+https://`, which a
//! crate of a higher layer opens.
//!
//! Invariant: a place with a scheme is stored and compared as it is written; the code that makes a
//! place from user input brings it to its canonical form first. No file system call is made for a
//! place with a scheme.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_io::paths;

use super::{DirectoryMember, ExtentName, SharedMember, Steps};
use crate::format::label::MemberFacts;

/// Opens the members that are not local directories.
pub trait RemoteMembers: Send + Sync {
    /// Opens the member at a place. Opening a member does not check that it exists; reading its
    /// label does.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a place of an unknown form, or with the error that prevents
    /// requests.
    fn open(&self, place: &Path) -> Result<SharedMember>;

    /// Makes a member at an empty place, and returns the facts that were found about it.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] if the place is not empty, or with the errors of
    /// [`open`](Self::open).
    fn create(&self, place: &Path) -> Result<NewMember>;

    /// Uses these facts, which come from the store's table of members, for the member at a place
    /// from now on.
    fn agree(&self, _place: &Path, _facts: &MemberFacts) {}

    /// Returns the place at which this host reaches the member with this number, if the store was
    /// opened at `named` behind a server of this store: `recorded` is then a place of the server.
    fn served_place(
        &self,
        _named: &Path,
        _store: StoreId,
        _recorded: &Path,
        _number: u16,
    ) -> Option<PathBuf> {
        None
    }

    /// Returns the failure domain of a member at this place: members with equal values fail
    /// together.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open).
    fn fate(&self, place: &Path) -> Result<String>;

    /// Returns a value that distinguishes the label at a place from a copy of it elsewhere, if
    /// there is one: all places that lead to the same label have the same value.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open), or if the label is missing.
    fn label_mark(&self, _place: &Path) -> Result<Option<String>> {
        Ok(None)
    }
}

/// A new member.
pub struct NewMember {
    /// The new member, which has no label yet.
    pub member: SharedMember,
    /// The facts that were found about the new member.
    pub facts: MemberFacts,
}

/// Opens the members of a store: directories directly, and remote members through `remote`.
#[derive(Clone, Default)]
pub struct Places {
    /// Opens places with a scheme; if `None`, such places are refused.
    pub remote: Option<Arc<dyn RemoteMembers>>,
    /// Every change of the disk by a directory member passes these steps.
    pub steps: Option<Arc<dyn Steps>>,
}

/// Whether a place is remote and not a path of this machine: it begins with a scheme and `://`.
#[must_use]
pub fn is_remote(place: &Path) -> bool {
    let bytes = place.as_os_str().as_bytes();
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = bytes.iter().take_while(|byte| is_of_scheme(byte)).count();
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes[scheme..].starts_with(b"://")
}

impl Places {
    /// Opens the member at a place.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the directory is missing, or with the errors of
    /// [`RemoteMembers::open`].
    pub fn open(&self, place: &Path) -> Result<SharedMember> {
        if is_remote(place) {
            return self.remote(place)?.open(place);
        }
        let member = DirectoryMember::open(place)?;
        Ok(match &self.steps {
            Some(steps) => Arc::new(member.with_steps(Arc::clone(steps))),
            None => Arc::new(member),
        })
    }

    /// Makes a member at an empty remote place, or in an empty or missing directory.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] if the place is not empty.
    pub fn create(&self, place: &Path) -> Result<NewMember> {
        if is_remote(place) {
            return self.remote(place)?.create(place);
        }
        let above =
            place.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        refuse_inside_member(above, place)?;
        let member = DirectoryMember::create_in_with(place, self.steps.clone())?;
        Ok(NewMember { member: Arc::new(member), facts: MemberFacts::default() })
    }

    /// Returns the failure domain of a member at a remote place.
    ///
    /// # Errors
    /// Fails with the errors of [`RemoteMembers::fate`].
    pub fn fate(&self, place: &Path) -> Result<String> {
        self.remote(place)?.fate(place)
    }

    /// Whether the labels at two places are two objects rather than one object with two names, as
    /// far as that can be determined.
    ///
    /// # Errors
    /// Fails if one of the labels cannot be read.
    pub fn are_two_labels(&self, one: &Path, other: &Path) -> Result<bool> {
        Ok(match (self.label_mark(one)?, self.label_mark(other)?) {
            (Some(one), Some(other)) => one != other,
            _ => is_remote(one) != is_remote(other),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this function calls stat on the label of a member"
    )]
    fn label_mark(&self, place: &Path) -> Result<Option<String>> {
        if is_remote(place) {
            return self.remote(place)?.label_mark(place);
        }
        let file = place.join(ExtentName::Label.path());
        // A directory may be mounted at several places.
        let stat = rustix::fs::stat(&file).map_err(|e| Error::io("cannot stat", &file, e))?;
        Ok(Some(format!("{} {}", stat.st_dev, stat.st_ino)))
    }

    fn remote(&self, place: &Path) -> Result<&Arc<dyn RemoteMembers>> {
        self.remote.as_ref().ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                "this build of pinstripe can use only directories as members",
            )
            .at(place)
            .advice("use a build of pinstripe with the feature 's3'")
        })
    }
}

/// Refuses a directory that is a member of any store, or is inside such a member, as the place of
/// something else; `place` is the path to show in the error. For a directory that does not exist
/// yet, the directory above it is checked.
///
/// # Errors
/// Fails with [`Kind::Refused`].
pub fn refuse_inside_member(directory: &Path, place: &Path) -> Result<()> {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
    let Some(there) = directory.ancestors().find_map(|above| paths::real(above).ok()) else {
        return Ok(());
    };
    let is_member = |above: &&Path| paths::exists(&above.join(ExtentName::Label.path()));
    let Some(member) = there.ancestors().find(is_member) else { return Ok(()) };
    Err(Error::new(Kind::Refused, "this directory is inside a member of a store")
        .at(place)
        .advice(format!("give a directory outside {}", member.display())))
}

/// Returns the canonical form of a place: for a path, the path without symlinks; a remote place is
/// returned unchanged.
///
/// # Errors
/// Fails if the path does not exist.
pub fn real(place: &Path) -> std::io::Result<PathBuf> {
    if is_remote(place) { Ok(place.to_path_buf()) } else { paths::real(place) }
}

/// Makes a place from its bytes in a label.
pub fn of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_makes_a_place_remote() {
        for remote in ["s3://b/p", "s3+https://host:9000/b", "gs://b", "a://"] {
            assert!(is_remote(Path::new(remote)), "{remote}");
        }
        for local in ["/a", "a:/b", "./s3://b", "://b", "s3:b", "", "3s://b", "a b://c"] {
            assert!(!is_remote(Path::new(local)), "{local}");
        }
    }

    #[test]
    fn without_an_opener_a_remote_place_is_refused() {
        let opened = Places::default().open(Path::new("s3://b/p"));
        assert_eq!(opened.err().map(|error| error.kind()), Some(Kind::Unsupported));
    }
}
