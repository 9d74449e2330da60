//! A power cut at any single step, and the disk as it may look afterwards.
//!
//! The model assumes only what POSIX guarantees. Bytes are durable when their file was synced, a
//! name when its directory was. After the cut, each name that changed since its directory's last
//! sync has its state of any one moment since then. Each file keeps its synced bytes, and of the
//! others all, some, none, or zeros instead of them. Each name is decided by itself: a rename may
//! be seen in one directory and not in the other. Files only grow: overwrites of synced bytes are
//! outside the model.
//!
//! Everything that existed before the first step counts as durable. Syncs are not passed to the
//! disk, whose own page cache survives the test; that makes a crash test fast.

#![allow(
    clippy::disallowed_methods,
    reason = "this module leaves the files of a member in a state in which a power cut could leave \
              them"
)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{DiskStep, Steps};
use pinstripe_base::sync::lock;
use pinstripe_io::fault::Dice;

/// Bytes copied or zeroed at a time.
const COPY_BYTES: usize = 64 * 1024;

/// Stops every member that shares it at one step. Give it to
/// [`DirectoryMember::with_steps`](crate::DirectoryMember::with_steps).
pub struct PowerCut {
    stop_at_step: u64,
    is_counted: Box<dyn Fn(&DiskStep<'_>) -> bool + Send + Sync>,
    books: Mutex<Books>,
}

/// The content of the disk, and the part of it that would survive.
#[derive(Default)]
struct Books {
    steps_done: u64,
    /// Files that were created, written or moved, by their name now.
    files: BTreeMap<PathBuf, Arc<DurableInode>>,
    /// Names that changed since their directory was synced.
    unsettled: BTreeMap<PathBuf, History>,
    /// Counts inodes and histories: an order that does not hang on random names.
    clock: u64,
}

/// The values of a name, in order; the first is durable.
struct History {
    born: u64,
    values: Vec<Option<DurableNode>>,
}

#[derive(Clone)]
enum DurableNode {
    Directory,
    File(Arc<DurableInode>),
}

/// A file, independent of its names.
struct DurableInode {
    born: u64,
    content: Mutex<DurableContent>,
}

struct DurableContent {
    synced_bytes: u64,
    /// The place, or the file itself once it has no name.
    at: NodePlace,
}

enum NodePlace {
    Path(PathBuf),
    Open(File),
}

impl PowerCut {
    /// Lets `stop_at_step` steps happen and none after them; with `u64::MAX` it only counts.
    pub fn new(stop_at_step: u64) -> Self {
        Self::counting(stop_at_step, |_| true)
    }

    /// The same, but counts only steps for which `is_counted` holds: rare steps are hit as often as
    /// frequent ones.
    pub fn counting(
        stop_at_step: u64,
        is_counted: impl Fn(&DiskStep<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        PowerCut { stop_at_step, is_counted: Box::new(is_counted), books: Mutex::default() }
    }

    /// The number of counted steps so far, over all members that share this.
    pub fn steps_done(&self) -> u64 {
        self.books().steps_done
    }

    /// Whether a step was refused or the next one will be.
    pub fn is_off(&self) -> bool {
        self.steps_done() >= self.stop_at_step
    }

    /// Changes the real directories to what a power cut now could leave, one of many possibilities,
    /// chosen by `seed`. Then everything counts as durable. Drop the members before, and open them
    /// again after it.
    ///
    /// # Errors
    /// Fails when the files of the test itself cannot be changed.
    pub fn after_power_cut(&self, seed: u64) -> io::Result<()> {
        let mut books = self.books();
        let mut dice = Dice::new(seed);
        for inode in books.inodes() {
            inode.lose_unsynced(&mut dice)?;
        }
        let unsettled = std::mem::take(&mut books.unsettled);
        books.files.clear();
        drop(books);
        revise_names(unsettled, &mut dice)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }
}

impl Steps for PowerCut {
    /// One step at a time over all members, so that the books and the disk agree.
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut books = self.books();
        if books.steps_done >= self.stop_at_step {
            return Err(io::Error::other("simulated fault: the power is off"));
        }
        books.steps_done += u64::from((self.is_counted)(step));
        books.take(step, act)
    }
}

impl Books {
    fn take(
        &mut self,
        step: &DiskStep<'_>,
        act: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        match *step {
            DiskStep::Create(path) => {
                act()?;
                let inode = self.new_inode(path, 0);
                self.record(path, None, Some(DurableNode::File(inode)));
            }
            DiskStep::Write { path, .. } => {
                // The first access records how much was durable before.
                self.node(path)?;
                act()?;
            }
            DiskStep::SyncFile(path) => {
                if let Some(DurableNode::File(inode)) = self.node(path)? {
                    inode.content().synced_bytes = fs::metadata(path)?.len();
                }
            }
            DiskStep::Rename { from, to } => {
                let moved = self.node(from)?;
                let victim = self.node(to)?;
                let kept = victim.as_ref().map(|node| node.hold(to)).transpose()?;
                act()?;
                if let (Some(node), Some(kept)) = (&victim, kept) {
                    node.settle_unnamed(kept);
                }
                if let Some(DurableNode::File(inode)) = &moved {
                    inode.content().at = NodePlace::Path(to.to_path_buf());
                }
                self.record(from, moved.clone(), None);
                self.record(to, victim, moved);
            }
            DiskStep::SyncDirectory(path) => {
                self.unsettled.retain(|name, _| name.parent() != Some(path));
            }
            DiskStep::Unlink(path) => {
                let victim = self.node(path)?;
                let kept = victim.as_ref().map(|node| node.hold(path)).transpose()?;
                act()?;
                if let (Some(node), Some(kept)) = (&victim, kept) {
                    node.settle_unnamed(kept);
                }
                self.record(path, victim, None);
            }
            DiskStep::MakeDirectory(path) => {
                act()?;
                self.record(path, None, Some(DurableNode::Directory));
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn new_inode(&mut self, path: &Path, synced_bytes: u64) -> Arc<DurableInode> {
        let at = NodePlace::Path(path.to_path_buf());
        let born = self.tick();
        Arc::new(DurableInode { born, content: Mutex::new(DurableContent { synced_bytes, at }) })
    }

    /// The present value of a name. A file that existed before the first step is durable as it is.
    fn node(&mut self, path: &Path) -> io::Result<Option<DurableNode>> {
        if let Some(inode) = self.files.get(path) {
            return Ok(Some(DurableNode::File(inode.clone())));
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(found) if found.is_dir() => Ok(Some(DurableNode::Directory)),
            Ok(found) => {
                let inode = self.new_inode(path, found.len());
                self.files.insert(path.to_path_buf(), inode.clone());
                Ok(Some(DurableNode::File(inode)))
            }
        }
    }

    /// Notes that a name changed.
    fn record(&mut self, path: &Path, before: Option<DurableNode>, after: Option<DurableNode>) {
        match &after {
            Some(DurableNode::File(inode)) => {
                self.files.insert(path.to_path_buf(), inode.clone());
            }
            _ => {
                self.files.remove(path);
            }
        }
        let born = self.tick();
        let history = self
            .unsettled
            .entry(path.to_path_buf())
            .or_insert_with(|| History { born, values: vec![before] });
        history.values.push(after);
    }

    /// Every file that may lose bytes, the oldest first.
    fn inodes(&self) -> Vec<Arc<DurableInode>> {
        let past = self.unsettled.values().flat_map(|history| &history.values);
        let past = past.filter_map(|value| match value {
            Some(DurableNode::File(inode)) => Some(inode),
            _ => None,
        });
        let all = self.files.values().chain(past).map(|inode| (inode.born, inode.clone()));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }
}

impl DurableNode {
    /// Opens a file that is about to lose its name.
    fn hold(&self, path: &Path) -> io::Result<Option<File>> {
        match self {
            DurableNode::Directory => Ok(None),
            DurableNode::File(_) => OpenOptions::new().read(true).write(true).open(path).map(Some),
        }
    }

    fn settle_unnamed(&self, kept: Option<File>) {
        if let (DurableNode::File(inode), Some(file)) = (self, kept) {
            inode.content().at = NodePlace::Open(file);
        }
    }
}

impl DurableInode {
    fn content(&self) -> MutexGuard<'_, DurableContent> {
        lock(&self.content)
    }

    /// The file, opened; `None` when something outside the test took it away.
    fn open(&self) -> io::Result<Option<File>> {
        match &self.content().at {
            NodePlace::Open(file) => file.try_clone().map(Some),
            NodePlace::Path(path) => match OpenOptions::new().read(true).write(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            },
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        matches!(&self.content().at, NodePlace::Path(at) if at == path)
    }

    /// Bytes that were not synced stay, go, or turn to zeros, from some point on.
    fn lose_unsynced(&self, dice: &mut Dice) -> io::Result<()> {
        let (fate, cut) = (dice.below(4), dice.next());
        let Some(file) = self.open()? else { return Ok(()) };
        let len = file.metadata()?.len();
        let synced = self.content().synced_bytes.min(len);
        let cut = synced + cut % (len - synced + 1);
        match fate {
            0 => Ok(()),
            1 => file.set_len(synced),
            2 => file.set_len(cut),
            _ => zero(&file, cut, len),
        }
    }
}

fn zero(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    while from < to {
        let len = (to - from).min(COPY_BYTES as u64);
        file.write_all_at(&[0; COPY_BYTES][..len as usize], from)?;
        from += len;
    }
    Ok(())
}

/// Gives each unsettled name one of the values it had. First what is to come is copied aside,
/// while every file is still where it was; then what is to go goes; then the copies move in.
fn revise_names(unsettled: BTreeMap<PathBuf, History>, dice: &mut Dice) -> io::Result<()> {
    let mut names: Vec<_> = unsettled.into_iter().collect();
    names.sort_by_key(|(_, history)| history.born);
    let mut staged = Vec::new();
    let mut doomed = Vec::new();
    for (path, history) in names {
        let choice = dice.below(history.values.len() as u64) as usize;
        match history.values.into_iter().nth(choice).flatten() {
            Some(DurableNode::Directory) => {}
            Some(DurableNode::File(inode)) if inode.is_at(&path) => {}
            Some(DurableNode::File(inode)) => staged.extend(stage(&inode, &path)?),
            None => doomed.push(path),
        }
    }
    for path in doomed {
        remove(&path)?;
    }
    for (copy, path) in staged {
        match fs::rename(copy, path) {
            // Its directory went as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Copies a file next to the name that it is to get.
fn stage(inode: &DurableInode, path: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let Some(mut source) = inode.open()? else { return Ok(None) };
    source.seek(SeekFrom::Start(0))?;
    let copy = path.with_extension("staged");
    let mut target = File::create(&copy)?;
    io::copy(&mut source.by_ref(), &mut target)?;
    Ok(Some((copy, path.to_path_buf())))
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
