//! `mount`: shows all snapshots of a store as a read-only file tree.
//!
//! Inode numbers encode where an entry is in its snapshot (`inode.rs`), so no memory is needed per
//! accessed file. Pages of trees are read at random (`pages.rs`); the content of files comes from
//! prefetched records (`content.rs`). Names that no path can contain, from a forged tree, are not
//! shown.

mod content;
mod inode;
mod listing;
mod nodes;
mod order;
mod pages;
mod rare;
mod status;
mod top;
mod versions;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use content::Content;
use inode::Inode;
use nodes::node_of;
use order::ReadOrder;
use pages::{Found, Lost, Pages};
use rare::RareAttributes;
use top::{Child, Top};
use versions::{UnionDirectories, VersionsState};

use crate::store::index::Index;
use crate::store::packs::PackReader;
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Wake, lock, read, write};
use pinstripe_io::file_tree::{FileTree, Node, ROOT, TakeEntry};
use pinstripe_member::ExtentKind;
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::TreeRoot;

pub use status::MemberMeters;
pub(crate) use top::NameOfTime;

/// The largest number of bytes of decoded pages in memory; a small budget reduces it.
const PAGES_BYTES: u64 = 64 << 20;
const SHARE_OF_PAGES: u64 = 4;
/// The number of threads that fetch from remote members: a record has some hundred KiB, and each
/// fetch waits for a round trip.
const FAR_THREADS: usize = 64;
/// The largest number of problems that are reported: if all packs were lost, each chunk would be a
/// problem.
const TOLD: usize = 1000;

/// Options of `mount`.
#[derive(Debug, Clone)]
pub struct SnapshotTreeOptions {
    /// The memory for content, decoded pages and pages of the index, in bytes.
    pub budget: u64,
    /// The number of threads that prefetch from local members.
    pub threads: usize,
    /// Owner and group of the directories that are in no snapshot.
    pub owner: (u32, u32),
    /// Makes the names of snapshots from their times.
    pub name_of_time: NameOfTime,
    /// The file of the catalog, which is created when it is needed; if `None`, the mount has no
    /// `versions`.
    pub catalog: Option<PathBuf>,
}

/// The file tree of all snapshots.
pub struct SnapshotTree {
    store: &'static Store,
    monitor: &'static Monitor,
    index: &'static Index<'static>,
    options: SnapshotTreeOptions,
    pages: Pages,
    content: Content,
    top: RwLock<Top>,
    /// The names of the snapshots and marks from which the top directories were made.
    made_of: Mutex<BTreeSet<[u8; 16]>>,
    /// For an inode with several names, the entry that represents it: by snapshot, device and inode
    /// number.
    links: Mutex<HashMap<(u64, u64, u64), u64>>,
    order: Mutex<ReadOrder>,
    /// Directories in which entries were lost during a listing.
    incomplete: Mutex<BTreeSet<u64>>,
    versions: Option<VersionsState>,
    unions: UnionDirectories,
    rare: RareAttributes,
    /// Called when there is work for [`work`](Self::work).
    wake: Wake,
    /// Problems that were reported already.
    told: Mutex<BTreeSet<String>>,
}

impl SnapshotTree {
    /// Loads the index and the snapshots. The index and the pack reader live as long as the
    /// process.
    ///
    /// # Errors
    /// Fails with the errors of loading the index and the snapshots.
    pub fn new(
        store: &'static Store,
        monitor: &'static Monitor,
        options: SnapshotTreeOptions,
    ) -> Result<Self> {
        // Files are asked for in the order of their names, chunks are sorted by their hashes.
        let index_bytes = options.budget / 8;
        let index = Index::load(store, monitor)?.keeping(index_bytes);
        let index: &'static Index<'static> = Box::leak(Box::new(index));
        let packs: &'static PackReader<'static> =
            Box::leak(Box::new(PackReader::new(store, monitor)));
        let keys = store.keys()?;
        let far = packs.reach().map_or(0, |_| FAR_THREADS);
        let pages_bytes = (options.budget / SHARE_OF_PAGES).min(PAGES_BYTES);
        let versions = options.catalog.clone().map(VersionsState::new);
        let tree = SnapshotTree {
            store,
            monitor,
            index,
            pages: Pages::new(packs, index, pages_bytes),
            content: Content::new(
                packs,
                index,
                keys,
                options.budget - pages_bytes - index_bytes,
                options.threads.max(far),
            ),
            top: RwLock::new(Top::new(options.name_of_time, versions.is_some())),
            options,
            made_of: Mutex::default(),
            links: Mutex::default(),
            order: Mutex::default(),
            incomplete: Mutex::default(),
            versions,
            unions: UnionDirectories::default(),
            rare: RareAttributes::default(),
            wake: Wake::new()?,
            told: Mutex::default(),
        };
        tree.refresh()?;
        Ok(tree)
    }

    /// Shows new snapshots, and hides those that were forgotten; returns whether anything changed.
    ///
    /// # Errors
    /// Fails when a member that is present cannot be listed.
    pub fn refresh(&self) -> Result<bool> {
        let mut now: BTreeSet<[u8; 16]> =
            self.store.list(ExtentKind::Snapshots)?.into_keys().collect();
        now.extend(self.store.list(ExtentKind::Forgotten)?.into_keys());
        let mut made_of = lock(&self.made_of);
        if *made_of == now {
            return Ok(false);
        }
        let snapshots = snapshots::load(self.store, self.monitor)?;
        // Packs of new snapshots, and those that a collector rewrote.
        self.index.refresh()?;
        if made_of.is_empty() {
            snapshots::warn_of_clocks(&snapshots, self.monitor);
        }
        write(&self.top).show(&snapshots);
        *made_of = now;
        if self.note_attributes() {
            self.wake.call();
        }
        Ok(true)
    }

    /// Called when there is work for [`work`](Self::work) that should be done soon.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Does background work for which no program should wait: a thread calls it from time to time,
    /// after [`refresh`](Self::refresh), and when [`wake`](Self::wake) was called. Ends early when
    /// `stop` is set.
    pub fn work(&self, stop: &AtomicBool) {
        self.bring_up_to_date(stop);
        self.scan_attributes(stop);
    }

    /// Snapshots shown.
    pub fn snapshots(&self) -> usize {
        self.top().snapshots()
    }

    fn top(&self) -> RwLockReadGuard<'_, Top> {
        read(&self.top)
    }

    fn root_of(&self, ordinal: u64) -> Result<TreeRoot> {
        let top = self.top();
        top.snapshot(ordinal).map(|snapshot| snapshot.root).ok_or_else(gone)
    }

    /// Returns the entry for an inode number.
    fn entry(&self, ordinal: u64, number: u64) -> Result<Found> {
        let root = self.root_of(ordinal)?;
        match self.pages.at(&root, number) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(gone()),
            Err(lost) => Err(self.lost(lost)),
        }
    }

    fn lost(&self, lost: Lost) -> Error {
        self.report(&lost.error);
        lost.error
    }

    /// Reports each problem once, and only the first problem of each pack: a lost pack is lost at
    /// every offset.
    fn report(&self, error: &Error) {
        let pack = error.place().filter(|place| place.starts_with(ExtentKind::Packs.dir()));
        let what = pack.map_or_else(|| error.to_string(), |pack| pack.display().to_string());
        let is_new = {
            let mut told = lock(&self.told);
            told.len() < TOLD && told.insert(what)
        };
        if is_new {
            self.monitor.warning("mount", error.duplicate());
        }
    }

    /// Returns a directory of a snapshot: the snapshot's ordinal, the path, and the number of the
    /// first entry in it.
    fn directory(&self, inode: u64) -> Result<(u64, Vec<u8>)> {
        match Inode::from_number(inode) {
            Inode::Own(_) | Inode::Union(_) => Err(gone()),
            Inode::Top(ordinal) => Ok((ordinal, Vec::new())),
            Inode::Entry { ordinal, number } => {
                let found = self.entry(ordinal, number)?;
                match found.entry().meta.kind {
                    FileKind::Directory => Ok((ordinal, found.entry().path.clone())),
                    _ => Err(Error::new(Kind::Usage, "this is not a directory")),
                }
            }
            Inode::Implied { ordinal, number, depth } => {
                let found = self.entry(ordinal, number)?;
                let path = &found.entry().path;
                let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                let end = slashes.nth(depth as usize - 1).map(|(at, _)| at).ok_or_else(gone)?;
                Ok((ordinal, path[..end].to_vec()))
            }
        }
    }
}

impl FileTree for SnapshotTree {
    fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node> {
        if let Inode::Own(number) = Inode::from_number(directory) {
            let top = self.top();
            let child = top.children(number).and_then(|children| children.get(name));
            return child.and_then(|child| self.own_node(&top, child)).ok_or_else(gone);
        }
        // A path is not a name, even if the path exists.
        if name.contains(&b'/') || name.is_empty() {
            return Err(gone());
        }
        match Inode::from_number(directory) {
            Inode::Union(number) => self.find_version(number, name),
            _ => self.find(directory, name),
        }
    }

    fn node(&self, inode: u64) -> Result<Node> {
        let at = Inode::from_number(inode);
        match at {
            Inode::Own(number) => {
                let top = self.top();
                let is_known = number == ROOT || top.children(number).is_some();
                let child = match top.target(number) {
                    Some(_) => Child::Link(number),
                    None => Child::Directory(number),
                };
                let is_there = is_known || matches!(child, Child::Link(_));
                self.own_node(&top, &child).filter(|_| is_there).ok_or_else(gone)
            }
            Inode::Top(_) | Inode::Implied { .. } => self.made_in_snapshot(at),
            Inode::Union(number) => self.union(number),
            Inode::Entry { ordinal, number } => {
                let found = self.entry(ordinal, number)?;
                Ok(node_of(found.entry(), inode))
            }
        }
    }

    fn list(&self, directory: u64, from: u64, take: TakeEntry<'_>) -> Result<()> {
        match Inode::from_number(directory) {
            Inode::Own(number) => self.list_own(number, from, take),
            Inode::Union(number) => self.list_versions(number, from, take),
            _ => self.list_snapshot(directory, from, take),
        }
    }

    fn read(&self, inode: u64, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let Inode::Entry { ordinal, number } = Inode::from_number(inode) else {
            return Err(no_file());
        };
        let found = self.entry(ordinal, number)?;
        let entry = found.entry();
        if entry.meta.kind != FileKind::File {
            return Err(no_file());
        }
        let range = range.start..range.end.min(entry.size);
        if range.start >= range.end {
            return Ok(());
        }
        if range.start == 0 {
            self.fetch_next_files(&self.root_of(ordinal)?, ordinal, number);
        }
        let read = self.content.read(&self.pages, inode, entry, range, out);
        read.inspect_err(|error| self.report(error)).map_err(|error| match error.kind() {
            // The file is present, and its bytes are not: a collector took them, or they are lost.
            Kind::NotFound => Error::new(Kind::TooManyLosses, error.to_string()),
            _ => error,
        })
    }

    fn target(&self, inode: u64) -> Result<Vec<u8>> {
        match Inode::from_number(inode) {
            Inode::Own(number) => {
                let top = self.top();
                top.target(number).map(<[u8]>::to_vec).ok_or_else(gone)
            }
            Inode::Entry { ordinal, number } => {
                let found = self.entry(ordinal, number)?;
                match found.entry().meta.kind {
                    FileKind::Symlink => Ok(found.entry().target.clone()),
                    _ => Err(Error::new(Kind::Usage, "this is not a symbolic link")),
                }
            }
            _ => Err(Error::new(Kind::Usage, "this is not a symbolic link")),
        }
    }

    fn xattrs(&self, inode: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match Inode::from_number(inode) {
            Inode::Entry { ordinal, number } => {
                Ok(self.entry(ordinal, number)?.entry().meta.xattrs.clone())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn has_nowhere(&self, name: &[u8]) -> bool {
        self.rare.has_nowhere(name)
    }

    fn hint(&self, inode: u64, text: &[u8]) -> Result<()> {
        let Inode::Entry { ordinal, number } = Inode::from_number(inode) else {
            return Err(no_file());
        };
        let (hint, next) = pinstripe_prefetch::parse_hint(text)?;
        let found = self.entry(ordinal, number)?;
        self.content.hint(&self.pages, inode, found.entry(), hint, next);
        Ok(())
    }

    fn data(&self, inode: u64) -> Result<Vec<Range<u64>>> {
        match Inode::from_number(inode) {
            Inode::Entry { ordinal, number } => {
                Ok(self.entry(ordinal, number)?.entry().data_extents())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn forget(&self, inode: u64, mentions: u64) {
        self.forget_union(inode, mentions);
    }

    fn totals(&self) -> (u64, u64) {
        let top = self.top();
        let mut ordinals = 1..;
        let shown = std::iter::from_fn(|| top.snapshot(ordinals.next()?));
        shown.fold((0, 0), |(bytes, entries), snapshot| {
            (bytes + snapshot.content_bytes(), entries + snapshot.root.entries)
        })
    }
}

fn gone() -> Error {
    Error::new(Kind::NotFound, "there is no such file in the mounted store")
}

fn no_file() -> Error {
    Error::new(Kind::Usage, "this is not a file")
}
