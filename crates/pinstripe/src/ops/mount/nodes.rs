//! The files behind the inode numbers of a mount, as stat(2) reports them.

use super::inode::Inode;
use super::pages::Found;
use super::top::{Child, Top};
use super::{SnapshotTree, gone};
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_io::file_tree::Node;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

impl SnapshotTree {
    pub(super) fn node_of(&self, ordinal: u64, found: &Found) -> Option<Node> {
        let entry = found.entry();
        let mut number = found.number();
        if entry.is_hard_linked() {
            let key = (ordinal, entry.device, entry.inode);
            number = *lock(&self.links).entry(key).or_insert(number);
        }
        Some(node_of(entry, Inode::Entry { ordinal, number }.number()?))
    }

    /// Returns the attributes of a directory that is in no snapshot.
    pub(super) fn made_directory(&self, inode: u64, time: (i64, u32), is_lasting: bool) -> Node {
        Node {
            inode,
            kind: FileKind::Directory,
            mode: 0o555,
            uid: self.options.owner.0,
            gid: self.options.owner.1,
            size: 0,
            data_bytes: 0,
            links: 1,
            rdev: (0, 0),
            mtime: time,
            ctime: time,
            is_lasting,
        }
    }

    pub(super) fn made_in_snapshot(&self, inode: Inode) -> Result<Node> {
        let (Inode::Top(ordinal) | Inode::Implied { ordinal, .. }) = inode else {
            return Err(gone());
        };
        let top = self.top();
        let seconds = top.snapshot(ordinal).ok_or_else(gone)?.created_seconds;
        Ok(self.made_directory(inode.number().ok_or_else(gone)?, (seconds, 0), true))
    }

    pub(super) fn own_node(&self, top: &Top, child: &Child) -> Option<Node> {
        match *child {
            Child::Versions => self.versions_root(top),
            Child::Snapshot(ordinal) => {
                let seconds = top.snapshot(ordinal)?.created_seconds;
                Some(self.made_directory(Inode::Top(ordinal).number()?, (seconds, 0), false))
            }
            Child::Directory(number) | Child::Link(number) => {
                let node = self.made_directory(number, top.time(number), false);
                Some(match top.target(number) {
                    None => node,
                    Some(target) => Node {
                        kind: FileKind::Symlink,
                        mode: 0o777,
                        size: target.len() as u64,
                        ..node
                    },
                })
            }
        }
    }
}

pub(super) fn node_of(entry: &Entry, inode: u64) -> Node {
    let meta = &entry.meta;
    let data: u64 = match entry.extents.is_empty() {
        true => entry.size,
        false => entry.extents.iter().map(|extent| extent.end - extent.start).sum(),
    };
    Node {
        inode,
        kind: meta.kind,
        mode: meta.mode & 0o7777,
        uid: meta.uid,
        gid: meta.gid,
        size: entry.size,
        data_bytes: data,
        // 1 means that the number of subdirectories is unknown.
        links: if meta.kind == FileKind::Directory {
            1
        } else {
            entry.links.clamp(1, 1 << 30) as u32
        },
        rdev: meta.rdev,
        mtime: (meta.mtime.seconds, meta.mtime.nanos),
        ctime: (entry.ctime.seconds, entry.ctime.nanos),
        is_lasting: true,
    }
}
