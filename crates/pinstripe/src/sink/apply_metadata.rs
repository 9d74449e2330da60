//! Sets an entry's metadata in the only order in which no step undoes an earlier one: owner (which
//! clears setuid and capabilities), extended attributes (an ACL rewrites the mode), mode, times.
//!
//! Invariants: metadata is set on the open entry, never on a name that may have been reused. Parts
//! of the metadata that cannot be set are returned. A setuid or setgid bit is never set for an
//! owner or group other than the original one.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{magic_path, shown};
use pinstripe_member::acl::ACCESS as ACL_ACCESS;
pub(super) use pinstripe_member::acl::DEFAULT as ACL_DEFAULT;
use pinstripe_member::meta::{FileKind, Metadata};

/// The coarsest steps of times in file systems: those of FAT.
const TIME_STEP_SECONDS: u64 = 2;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// A part of an entry's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetadataPart {
    /// User or group; usually fails when not restoring as root.
    Owner,
    /// Permission bits.
    Mode,
    /// Modification time.
    Times,
    /// One extended attribute, which may be an ACL, a capability or a label.
    Xattr,
}

impl fmt::Display for MetadataPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MetadataPart::Owner => "owner",
            MetadataPart::Mode => "mode",
            MetadataPart::Times => "times",
            MetadataPart::Xattr => "extended attribute",
        })
    }
}

/// Metadata that an entry had when it was backed up, and that could not be set.
#[derive(Debug)]
pub struct Unset {
    /// Which part.
    pub part: MetadataPart,
    /// The reason, with the name of the entry.
    pub error: Error,
}

/// An opened entry whose metadata is set.
#[derive(Clone, Copy)]
pub(super) enum Handle<'f> {
    /// The entry was opened for reading or writing.
    Open(BorrowedFd<'f>),
    /// The entry was opened with `O_PATH`, as are all entries that must not be opened otherwise.
    Named(BorrowedFd<'f>),
}

/// The metadata to set.
pub(super) struct MetadataWriter<'m> {
    /// For messages.
    pub path: &'m [u8],
    pub metadata: &'m Metadata,
    /// Whether the entry may have attributes that it should not have: inherited ones, or those of
    /// an earlier entry. If so, only differences are set, and a correct entry is not changed at
    /// all.
    pub strip: bool,
    /// Whether owner and group are restored at all.
    pub owner: bool,
}

impl MetadataWriter<'_> {
    /// Sets all metadata.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] when the entry is of another type than its metadata says;
    /// otherwise only when the entry's metadata cannot be read.
    pub fn apply(&self, handle: Handle<'_>) -> Result<Vec<Unset>> {
        let metadata = self.metadata;
        let now = rustix::fs::fstat(handle.fd())
            .map_err(|errno| Error::io("cannot stat", shown(self.path), errno))?;
        if FileKind::from_st_mode(now.st_mode) != Some(metadata.kind) {
            let what = format!("this entry is no longer {}", metadata.kind.name());
            return Err(Error::new(Kind::Changed, what).at(shown(self.path)));
        }
        let mut unset = Vec::new();
        let mut mode = metadata.mode & 0o7777;
        let is_given = self.owner && (now.st_uid, now.st_gid) != (metadata.uid, metadata.gid);
        if is_given {
            mode &= !self.own(handle, (now.st_uid, now.st_gid), &mut unset);
        }
        let acl_changed = self.attribute(handle, &mut unset);
        // Changing the owner removed these bits.
        let lost_bits = is_given && mode & (SETUID | SETGID) != 0;
        let differs = now.st_mode & 0o7777 != mode || lost_bits || acl_changed;
        if differs && metadata.kind != FileKind::Symlink {
            self.permit(handle, mode, &mut unset);
        }
        let mtime = (now.st_mtime, now.st_mtime_nsec as u32);
        if mtime != (metadata.mtime.seconds, metadata.mtime.nanos) {
            self.date(handle, &mut unset);
        }
        self.look_again(handle, mode, &mut unset);
        Ok(unset)
    }

    /// Finds what the file system accepted and did not keep.
    fn look_again(&self, handle: Handle<'_>, mode: u32, unset: &mut Vec<Unset>) {
        let Ok(now) = rustix::fs::fstat(handle.fd()) else { return };
        let wanted = self.metadata;
        let is_link = wanted.kind == FileKind::Symlink;
        let kept = [
            (
                MetadataPart::Owner,
                !self.owner || (now.st_uid, now.st_gid) == (wanted.uid, wanted.gid),
                "owner",
            ),
            (MetadataPart::Mode, is_link || now.st_mode & 0o7777 == mode, "mode"),
            (
                MetadataPart::Times,
                now.st_mtime.abs_diff(wanted.mtime.seconds) <= TIME_STEP_SECONDS,
                "modification time",
            ),
        ];
        for (part, is_kept, name) in kept {
            if !is_kept && unset.iter().all(|known| known.part != part) {
                let what = format!("the file system does not keep this entry's {name}");
                let error = Error::new(Kind::Unsupported, what).at(shown(self.path));
                unset.push(Unset { part, error });
            }
        }
    }

    /// Whether the entry has all of this metadata already.
    pub(crate) fn is_applied(&self, handle: Handle<'_>) -> bool {
        let metadata = self.metadata;
        let Ok(now) = rustix::fs::fstat(handle.fd()) else { return false };
        let mtime = (now.st_mtime, now.st_mtime_nsec as u32);
        let wanted = &metadata.xattrs;
        FileKind::from_st_mode(now.st_mode) == Some(metadata.kind)
            && (!self.owner || (now.st_uid, now.st_gid) == (metadata.uid, metadata.gid))
            && (metadata.kind == FileKind::Symlink
                || now.st_mode & 0o7777 == metadata.mode & 0o7777)
            && mtime == (metadata.mtime.seconds, metadata.mtime.nanos)
            && handle.strippable().iter().all(|name| wanted.iter().any(|(it, _)| it == name))
            && wanted.iter().all(|(name, value)| handle.xattr_is(name, value))
    }

    /// Sets owner and group; returns the mode bits that must not be set because setting the owner
    /// or group failed.
    fn own(&self, handle: Handle<'_>, now: (u32, u32), unset: &mut Vec<Unset>) -> u32 {
        let (uid, gid) = (self.metadata.uid, self.metadata.gid);
        let Err(errno) = handle.set_owner(uid, gid) else { return 0 };
        // A user may not change the owner, but may be in the group.
        let group_fits = now.1 == gid || handle.set_owner(now.0, gid).is_ok();
        self.lacks(
            unset,
            MetadataPart::Owner,
            format!("cannot set the owner to {uid}:{gid}"),
            errno,
        );
        let uid_bit = if now.0 == uid { 0 } else { SETUID };
        let gid_bit = if group_fits { 0 } else { SETGID };
        uid_bit | gid_bit
    }

    /// Sets the extended attributes; returns whether this may have changed the mode.
    fn attribute(&self, handle: Handle<'_>, unset: &mut Vec<Unset>) -> bool {
        let wanted = &self.metadata.xattrs;
        let mut acl_changed = false;
        if self.strip {
            for name in handle.strippable() {
                if wanted.iter().all(|(wanted, _)| *wanted != name) {
                    acl_changed |= name == ACL_ACCESS;
                    if let Err(errno) = handle.remove_xattr(&name) {
                        let name = String::from_utf8_lossy(&name);
                        let what = format!("cannot remove the extended attribute {name}");
                        self.lacks(unset, MetadataPart::Xattr, what, errno);
                    }
                }
            }
        }
        for (name, value) in wanted {
            if self.strip && handle.xattr_is(name, value) {
                continue;
            }
            acl_changed |= name == ACL_ACCESS;
            if let Err(errno) = handle.set_xattr(name, value) {
                let name = String::from_utf8_lossy(name);
                let what = format!("cannot set the extended attribute {name}");
                self.lacks(unset, MetadataPart::Xattr, what, errno);
            }
        }
        acl_changed
    }

    fn permit(&self, handle: Handle<'_>, mode: u32, unset: &mut Vec<Unset>) {
        let what = || format!("cannot set the mode to {mode:04o}");
        if let Err(errno) = handle.set_mode(mode) {
            self.lacks(unset, MetadataPart::Mode, what(), errno);
        } else if mode & SETGID != 0 {
            // The system drops this bit without a word where the caller is not in the group.
            let kept = rustix::fs::fstat(handle.fd()).is_ok_and(|now| now.st_mode & SETGID != 0);
            if !kept {
                self.lacks(unset, MetadataPart::Mode, what(), Errno::PERM);
            }
        }
    }

    fn date(&self, handle: Handle<'_>, unset: &mut Vec<Unset>) {
        let mtime = self.metadata.mtime;
        // Numbers beyond a second mean "now" and "leave it" to the system.
        let set = if mtime.nanos < 1_000_000_000 {
            handle.set_mtime(Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() })
        } else {
            Err(Errno::INVAL)
        };
        if let Err(errno) = set {
            self.lacks(
                unset,
                MetadataPart::Times,
                "cannot set the modification time".into(),
                errno,
            );
        }
    }

    fn lacks(&self, unset: &mut Vec<Unset>, part: MetadataPart, what: String, errno: Errno) {
        unset.push(Unset { part, error: Error::io(what, shown(self.path), errno) });
    }
}

impl<'f> Handle<'f> {
    fn fd(self) -> BorrowedFd<'f> {
        match self {
            Handle::Open(fd) | Handle::Named(fd) => fd,
        }
    }

    fn set_owner(self, uid: u32, gid: u32) -> Result<(), Errno> {
        // All ones would mean "leave it" to the system.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Handle::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Handle::Named(fd) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn set_mode(self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Handle::Open(fd) => rustix::fs::fchmod(fd, mode),
            Handle::Named(fd) => rustix::fs::chmod(magic_path(fd), mode),
        }
    }

    fn set_mtime(self, mtime: Timespec) -> Result<(), Errno> {
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification: mtime };
        match self {
            Handle::Open(fd) => rustix::fs::futimens(fd, &times),
            Handle::Named(fd) => rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH),
        }
    }

    fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Handle::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            Handle::Named(fd) => rustix::fs::setxattr(magic_path(fd), name, value, flags),
        }
    }

    fn remove_xattr(self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Handle::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Handle::Named(fd) => rustix::fs::removexattr(magic_path(fd), name),
        }
    }

    /// Whether the entry has the attribute `name`.
    pub(crate) fn has_xattr(self, name: &[u8]) -> bool {
        let mut no_room: [u8; 0] = [];
        match self {
            Handle::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut no_room).is_ok(),
            Handle::Named(fd) => rustix::fs::getxattr(magic_path(fd), name, &mut no_room).is_ok(),
        }
    }

    /// Whether the entry's attribute `name` has this value.
    fn xattr_is(self, name: &[u8], value: &[u8]) -> bool {
        let mut found = vec![0; value.len() + 1];
        let length = match self {
            Handle::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut found[..]),
            Handle::Named(fd) => rustix::fs::getxattr(magic_path(fd), name, &mut found[..]),
        };
        length.is_ok_and(|length| found[..length] == *value)
    }

    /// Returns the names of attributes that users and administrators set, not the system's security
    /// modules: ACLs and `user.*`.
    fn strippable(self) -> Vec<Vec<u8>> {
        let mut names = vec![0; 64 << 10]; // XATTR_LIST_MAX
        let length = match self {
            Handle::Open(fd) => rustix::fs::flistxattr(fd, &mut names[..]),
            Handle::Named(fd) => rustix::fs::listxattr(magic_path(fd), &mut names[..]),
        };
        names.truncate(length.unwrap_or(0));
        let ours = |name: &&[u8]| {
            *name == ACL_ACCESS || *name == ACL_DEFAULT || name.starts_with(b"user.")
        };
        names.split(|&byte| byte == 0).filter(ours).map(<[u8]>::to_vec).collect()
    }
}
