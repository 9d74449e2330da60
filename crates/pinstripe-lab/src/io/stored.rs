//! Reads the files of a backup as a mount reads them: through the index, the packs and the
//! read-ahead of their store, but in this process and without a file system above them.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::Store;
use pinstripe::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Caps, Device, SharedDevice, too_short, write_parts};
use pinstripe_io::file_tree::{FileTree, Node, ROOT};
use pinstripe_member::ExtentKind;
use rustix::fs::Advice;

use super::ahead::read_only;

/// The number of threads that prefetch, as in a mount.
const FETCHERS: usize = 64;
/// The longest read that the kernel requests from a mount.
const REQUEST_BYTES: usize = 1 << 20;

/// A store with one snapshot, whose files are to be read.
pub(crate) struct StoredFiles {
    store: &'static Store,
    monitor: &'static Monitor,
    memory_bytes: u64,
}

impl StoredFiles {
    /// The files of a store, for readers who share this amount of memory. The store stays open
    /// until the process ends, as in a mount.
    pub fn new(store: Store, memory_bytes: u64) -> Self {
        let monitor: &'static Monitor = Box::leak(Box::default());
        StoredFiles { store: Box::leak(Box::new(store)), monitor, memory_bytes }
    }

    /// Opens the files at these absolute paths; they share a new read-ahead that has no history.
    ///
    /// # Errors
    /// Errors of opening the snapshot, and of finding the paths in it.
    pub fn open(&self, paths: &[PathBuf]) -> Result<Vec<SharedDevice>> {
        let options = SnapshotTreeOptions {
            budget: self.memory_bytes,
            threads: FETCHERS,
            owner: (0, 0),
            name_of_time: |seconds| seconds.to_string(),
            catalog: None,
        };
        let tree = Arc::new(SnapshotTree::new(self.store, self.monitor, options)?);
        // A link to the directory of the only snapshot.
        let latest = tree.lookup(ROOT, b"latest")?.inode;
        let top = find_below(&tree, ROOT, &tree.target(latest)?)?.inode;
        let device = |path: &PathBuf| -> Result<SharedDevice> {
            let Node { inode, size, .. } = find_below(&tree, top, path.as_os_str().as_bytes())?;
            let tree = Arc::clone(&tree);
            Ok(Arc::new(SnapshotDevice { tree, inode, bytes: size, place: path.clone() }))
        };
        paths.iter().map(device).collect()
    }

    /// Drops the pages of the packs from the page cache.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub(crate) fn drop_cache(&self) -> Result<()> {
        for slot in &self.store.member_slots {
            let failed = |error| {
                Error::io("cannot drop the file's pages from the page cache", &slot.place, error)
            };
            for pack in packs_of(&slot.place).map_err(failed)? {
                let file = File::open(pack).map_err(failed)?;
                let dropped = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
                dropped.map_err(|errno| failed(errno.into()))?;
            }
        }
        Ok(())
    }
}

/// The files of all packs of a member; they are in directories named after the beginnings of the
/// pack names.
///
/// # Errors
/// Returns errors as the system reports them.
pub fn packs_of(member: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut open, mut files) = (vec![member.join(ExtentKind::Packs.dir())], Vec::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => open.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    Ok(files)
}

/// The node at a path below a directory.
fn find_below(tree: &SnapshotTree, directory: u64, path: &[u8]) -> Result<Node> {
    let mut node = tree.node(directory)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        node = tree.lookup(node.inode, name)?;
    }
    Ok(node)
}

/// A file of a snapshot as a device.
struct SnapshotDevice {
    tree: Arc<SnapshotTree>,
    inode: u64,
    bytes: u64,
    place: PathBuf,
}

impl Device for SnapshotDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(too_short(&self.place, offset, buf.len(), self.bytes));
        }
        let mut read = Vec::with_capacity(buf.len().min(REQUEST_BYTES));
        for (number, piece) in buf.chunks_mut(REQUEST_BYTES).enumerate() {
            let start = offset + (number * REQUEST_BYTES) as u64;
            read.clear();
            self.tree.read(self.inode, start..start + piece.len() as u64, &mut read)?;
            if read.len() != piece.len() {
                return Err(too_short(&self.place, start, piece.len(), start + read.len() as u64));
            }
            piece.copy_from_slice(&read);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.place))
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(read_only(&self.place))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(read_only(&self.place))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: 1, is_block_device: false, device: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}
