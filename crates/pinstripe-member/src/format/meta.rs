//! The metadata of a file: kind, owner, mode, times, extended attributes.
//!
//! Invariants: this module has plain values, no handles and no system calls; mode bits never
//! include the file type; names and attribute values are bytes. No choice is made here of what to
//! keep: the reader fills in all fields.

use std::sync::OnceLock;

pub use pinstripe_io::file_tree::FileKind;

/// A point in time since 1970 UTC: `seconds` may be negative, `nanos` always counts forward from
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`; a valid time has less than 1,000,000,000.
    pub nanos: u32,
}

/// What the file system reports about an entry, as far as a backup needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stat {
    /// The kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 07777 at most.
    pub mode: u32,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// The number of hard links to the file.
    pub links: u64,
    /// Device number of the file's file system.
    pub device: u64,
    /// Inode number there.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Space that the file takes, in blocks of 512 bytes.
    pub blocks: u64,
    /// When its content last changed.
    pub mtime: Time,
    /// When its content or its metadata last changed (ctime), by the system's clock.
    pub ctime: Time,
    /// Major and minor number, for device nodes.
    pub rdev: (u32, u32),
}

/// A function, set by a test, that replaces what the system reports.
static TELLER: OnceLock<fn(Stat) -> Stat> = OnceLock::new();

/// Replaces the inode numbers and times that file systems choose, for the whole process and until
/// its end. `teller`, applied to its own result, must return that result unchanged.
pub fn be_told_by(teller: fn(Stat) -> Stat) {
    TELLER.get_or_init(|| teller);
}

impl Stat {
    /// Returns these values, or those that a test's function replaces them with.
    #[must_use]
    pub fn as_told(self) -> Stat {
        TELLER.get().map_or(self, |teller| teller(self))
    }

    /// The identity of the inode on this machine: `(device, inode)`, equal for hard links.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// Extended attributes as (name, value), sorted by name; ACLs and capabilities are among them.
pub type XattrList = Vec<(Vec<u8>, Vec<u8>)>;

/// The metadata that a restore gives an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 07777 at most. Symlinks have none.
    pub mode: u32,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// When its content last changed.
    pub mtime: Time,
    /// Major and minor number, for device nodes.
    pub rdev: (u32, u32),
    /// Extended attributes.
    pub xattrs: XattrList,
}

/// The prefix of the names of attributes that are access control lists.
pub const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// The name of the attribute that holds an SELinux label.
pub const LABEL: &[u8] = b"security.selinux";

impl Metadata {
    /// Whether the entry has an access control list (acl(5)), or a default one for new files below
    /// it.
    pub fn has_acl(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| name.starts_with(ACL_PREFIX))
    }

    /// Whether the entry has an SELinux label.
    pub fn has_label(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| name == LABEL)
    }

    /// Returns the part of `stat` that is restored, together with the extended attributes.
    pub fn new(stat: &Stat, xattrs: XattrList) -> Self {
        Metadata {
            kind: stat.kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            mtime: stat.mtime,
            rdev: stat.rdev,
            xattrs,
        }
    }
}
