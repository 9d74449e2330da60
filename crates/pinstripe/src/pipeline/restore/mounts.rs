//! Files with several names whose names are on several mounts of the target.
//!
//! A hard link cannot lead to another mount: the names of one file on each mount of the target are
//! a file of their own.

use super::target_path;
use crate::sink::TreeSink;
use pinstripe_io::mounts::MountIdentity;
use pinstripe_member::entry::Entry;

/// The mounts of the target on which names of files with several names are.
pub(crate) struct LinkMounts<'a> {
    sink: &'a TreeSink,
    strip: &'a [u8],
    /// The mount of the target directory, and a device in the snapshot with another mount of the
    /// target for each of the others.
    own: Option<MountIdentity>,
    others: Vec<(u64, MountIdentity)>,
    /// The directory that was looked up last, and its mount.
    last: Option<(Vec<u8>, Option<MountIdentity>)>,
}

impl<'a> LinkMounts<'a> {
    pub fn new(sink: &'a TreeSink, strip: &'a [u8]) -> Self {
        let own = sink.mount_of(b"");
        LinkMounts { sink, strip, own, others: Vec::new(), last: None }
    }

    /// Gives the entry a device number that no device has, unless its name is on the mount of the
    /// target directory: the same one for each device and mount.
    pub(super) fn split(&mut self, entry: &mut Entry) {
        let path = target_path(self.strip, entry);
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let mount = self.mount(&path[..end]);
        let (Some(own), Some(mount)) = (self.own, mount) else { return };
        if mount.is_same(own) {
            return;
        }
        let is_known = |(device, known): &(u64, MountIdentity)| {
            *device == entry.device && mount.is_same(*known)
        };
        let number = self.others.iter().position(is_known).unwrap_or_else(|| {
            self.others.push((entry.device, mount));
            self.others.len() - 1
        });
        entry.device = u64::MAX - number as u64;
    }

    fn mount(&mut self, directory: &[u8]) -> Option<MountIdentity> {
        if let Some((known, mount)) = &self.last
            && known == directory
        {
            return *mount;
        }
        let mount = self.sink.mount_of(directory);
        self.last = Some((directory.to_vec(), mount));
        mount
    }
}
