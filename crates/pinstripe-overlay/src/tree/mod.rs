//! The files of a source as the kernel sees them.
//!
//! Invariants: no wait for the source exceeds the deadline. An open file shows the content that it
//! had when it was looked up, or fails (`nodes.rs`). The memory for content of files stays within
//! the budget.

mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::file_tree::{FileKind, FileOpening, FileTree, Node, ROOT, TakeEntry};
use pinstripe_prefetch::{Ahead, Bounds, FetchPlan, Presence, Readers, Runner};
use rustix::io::Errno;

use crate::blocks::{Block, BlockKey, Blocks, LARGE_BYTES, small_lengths};
use crate::cache::BlockCache;
use crate::calls::{CallPool, CallReply};
use crate::listings::{Listings, is_name};
use crate::locks::{OverlayLock, RankedMutex};
use crate::nodes::{Nodes, SourceNode};
use crate::source::{ContentVersion, RangeSource, SourceEntry, changed};

pub use crate::calls::SourceUsage;
pub use status::{FileReaders, OverlayStatus};

/// The number of read-ahead blocks per stream.
const WINDOW: u32 = 64;
/// The number of threads that wait for the source on behalf of readers, in addition to those for
/// read-ahead.
const DEMAND_THREADS: usize = 64;
/// The most distinct problems that are reported.
const TOLD_MAX: usize = 1000;

/// Options of an overlay.
#[derive(Debug, Clone, Copy)]
pub struct OverlayOptions {
    /// The most bytes of content in memory.
    pub budget: u64,
    /// The number of blocks that are prefetched in parallel.
    pub fetchers: usize,
    /// The time limit of each request to the source.
    pub deadline: Duration,
}

/// The tree of a source.
pub struct OverlayTree<S: RangeSource> {
    source: Arc<S>,
    nodes: Arc<Nodes>,
    calls: Arc<CallPool>,
    cache: Option<Arc<BlockCache>>,
    runner: Runner<Blocks<S>>,
    readers: Readers,
    listings: Listings,
    root: RankedMutex<SourceEntry>,
    /// The budget for read-ahead; the rest of the memory is for blocks that readers wait for.
    planned_max: u64,
    small_lengths: &'static [u64],
    monitor: Arc<Monitor>,
    told: RankedMutex<BTreeSet<String>>,
}

/// A part of a block.
struct ReadPart {
    block: Arc<Block>,
    part: Range<usize>,
}

impl ReadPart {
    fn bytes(&self) -> &[u8] {
        &self.block[self.part.clone()]
    }
}

impl<S: RangeSource> OverlayTree<S> {
    /// The tree of a source; its blocks are kept in `cache`, if one is given. Problems are reported
    /// to `monitor`, each distinct problem only once.
    ///
    /// # Errors
    /// Fails if the root of the source cannot be read; with [`Kind::Usage`] if the root is not a
    /// directory.
    pub fn new(
        source: S,
        cache: Option<BlockCache>,
        options: OverlayOptions,
        monitor: Arc<Monitor>,
    ) -> Result<Self> {
        let (source, nodes, cache) =
            (Arc::new(source), Arc::<Nodes>::default(), cache.map(Arc::new));
        let calls = Arc::new(CallPool::new(options.fetchers + DEMAND_THREADS, options.deadline));
        let asked = Arc::clone(&source);
        let root = calls.call(move |reply: CallReply<_>| reply.give(asked.stat(b"")))??;
        if root.kind != FileKind::Directory {
            return Err(Error::new(Kind::Usage, "the source is not a directory"));
        }
        let small_lengths = small_lengths(source.is_local(), cache.is_some());
        let blocks = Blocks {
            source: Arc::clone(&source),
            nodes: Arc::clone(&nodes),
            calls: Arc::clone(&calls),
            cache: cache.clone(),
        };
        Ok(OverlayTree {
            source,
            nodes,
            calls,
            cache,
            runner: Runner::new(blocks, options.budget, options.fetchers),
            readers: Readers::default(),
            listings: Listings::default(),
            root: RankedMutex::new(OverlayLock::Root, root),
            planned_max: options.budget / 6 * 5,
            small_lengths,
            monitor,
            told: RankedMutex::new(OverlayLock::Reported, BTreeSet::new()),
        })
    }

    /// Calls the source, and waits at most until the deadline.
    fn ask<T: Send + 'static>(
        &self,
        node: &SourceNode,
        ask: impl FnOnce(&S, &[u8]) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (source, path) = (Arc::clone(&self.source), node.path.clone());
        let answer = self.calls.call(move |reply: CallReply<_>| reply.give(ask(&source, &path)));
        answer.and_then(|answer| answer).inspect_err(|error| self.report(error))
    }

    /// Reports a problem of the source, each distinct one once. Missing and changed files are not
    /// reported, nor are invalid names.
    fn report(&self, error: &Error) {
        let is_none = matches!(
            error.kind(),
            Kind::NotFound | Kind::Changed | Kind::Usage | Kind::Unsupported
        );
        if is_none || error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) {
            return;
        }
        let mut told = self.told.lock();
        if told.len() >= TOLD_MAX || !told.insert(error.to_string()) {
            return;
        }
        match error.kind() {
            Kind::Unanswered => self.monitor.silent_member("source", error.duplicate()),
            _ => self.monitor.warning("source", error.duplicate()),
        }
    }

    fn get(&self, inode: u64) -> Result<Arc<SourceNode>> {
        if inode != ROOT {
            return self.nodes.get(inode);
        }
        let entry = self.root.lock().clone();
        Ok(Arc::new(SourceNode { path: Box::default(), entry }))
    }

    fn bounds(&self, size: u64) -> Bounds {
        Bounds { object: size, record: LARGE_BYTES, window: WINDOW, total: self.planned_max }
    }

    /// Begins to prefetch for the readers of a file, before the read itself.
    fn plan(&self, inode: u64, size: u64, range: &Range<u64>) {
        if size <= LARGE_BYTES {
            return;
        }
        let found = self.found(inode, range.start);
        let dropped = self.runner.take_dropped(inode);
        let plan = self.readers.read(inode, self.bounds(size), range.clone(), found, &dropped);
        self.send(inode, size, plan);
    }

    /// Whether the bytes at an offset are in memory, in a block of any length.
    fn found(&self, inode: u64, offset: u64) -> Presence {
        let of = |bytes| self.runner.presence(&BlockKey::new(inode, offset, bytes));
        let lengths = std::iter::once(LARGE_BYTES).chain(self.small_lengths.iter().copied());
        lengths.map(of).find(|found| *found != Presence::Absent).unwrap_or(Presence::Absent)
    }

    fn send(&self, inode: u64, size: u64, plan: FetchPlan) {
        self.runner.unwanted(inode, &plan.drop);
        for range in plan.fetch {
            let end = range.end.min(size);
            let first = BlockKey::new(inode, range.start, LARGE_BYTES).at;
            let keys = (first..end).step_by(LARGE_BYTES as usize).map(|at| BlockKey {
                inode,
                at,
                bytes: LARGE_BYTES,
            });
            self.runner.ahead(keys.map(|key| {
                let part = key.range(size);
                Ahead { key, bytes: part.end - part.start, origin: (inode, range.clone()) }
            }));
        }
    }

    /// Begins to prefetch after a read. Returns the part of the range that is within the file.
    fn begin_read(&self, inode: u64, range: Range<u64>) -> Result<(Arc<SourceNode>, Range<u64>)> {
        let node = self.get(inode)?;
        if node.entry.kind != FileKind::File {
            return Err(Error::new(Kind::Usage, "this is not a regular file"));
        }
        let size = node.entry.version.size;
        let range = range.start..range.end.min(size);
        if range.start < range.end {
            self.plan(inode, size, &range);
        }
        Ok((node, range))
    }

    /// The beginning of a range, as far as it is in one block; waits for that block.
    fn piece(&self, inode: u64, node: &SourceNode, range: Range<u64>) -> Result<ReadPart> {
        let size = node.entry.version.size;
        let key = self.block(inode, size, &range);
        let whole = key.range(size);
        let block = self
            .runner
            .get(key, whole.end - whole.start)
            .inspect_err(|error| self.report(error))?;
        let part =
            (range.start - whole.start) as usize..(range.end.min(whole.end) - whole.start) as usize;
        match block.get(part.clone()) {
            Some(_) => Ok(ReadPart { block, part }),
            None => Err(changed(&node.path)),
        }
    }

    /// The block from which a read is served: the smallest block that contains the range, unless a
    /// larger one was prefetched.
    fn block(&self, inode: u64, size: u64, range: &Range<u64>) -> BlockKey {
        let of = |bytes| BlockKey::new(inode, range.start, bytes);
        let is_there = |key: &BlockKey| self.runner.presence(key) != Presence::Absent;
        let large = of(LARGE_BYTES);
        if size <= LARGE_BYTES || is_there(&large) {
            return large;
        }
        let long_enough = |bytes: &&u64| range.end - range.start <= **bytes;
        let small = || self.small_lengths.iter().filter(long_enough).map(|bytes| of(*bytes));
        let least = small().find(|key| key.holds(range)).or_else(|| small().next());
        small().find(is_there).or(least).unwrap_or(large)
    }
}

impl<S: RangeSource> FileTree for OverlayTree<S> {
    fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node> {
        let parent = self.get(directory)?;
        if !is_name(name) || !parent.is_directory() {
            return Err(Error::new(Kind::NotFound, "this file does not exist"));
        }
        let path = parent.below(name);
        let at = path.clone();
        let entry = self.ask(&parent, move |source, _| source.stat(&at))?;
        let inode = self.nodes.mention(path, entry.clone());
        Ok(node_of(inode, &entry))
    }

    fn node(&self, inode: u64) -> Result<Node> {
        let node = self.get(inode)?;
        // Any other node is described as it was when its number was given out.
        if !node.is_directory() {
            return Ok(node_of(inode, &node.entry));
        }
        let entry = self.ask(&node, |source, path| source.stat(path))?;
        if entry.kind != FileKind::Directory || entry.identity != node.entry.identity {
            return Err(changed(&node.path));
        }
        if inode == ROOT {
            *self.root.lock() = entry.clone();
        }
        Ok(node_of(inode, &entry))
    }

    fn list(&self, directory: u64, from: u64, take: TakeEntry<'_>) -> Result<()> {
        let node = self.get(directory)?;
        let listing = self
            .listings
            .of(directory, &node, from == 0, &self.source, &self.calls)
            .inspect_err(|error| self.report(error))?;
        let mut place = from as usize;
        while let Some(next) = listing.at(place, &node, &self.source, &self.calls) {
            let (name, entry) = next.inspect_err(|error| self.report(error))?;
            place += 1;
            let Some(entry) = entry else { continue };
            let inode = self.nodes.mention(node.below(name), entry.clone());
            if !take(place as u64, name, &node_of(inode, &entry)) {
                return Ok(());
            }
        }
        self.listings.done(directory);
        Ok(())
    }

    fn read(&self, inode: u64, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let (node, range) = self.begin_read(inode, range)?;
        let mut at = range.start;
        while at < range.end {
            let piece = self.piece(inode, &node, at..range.end)?;
            out.extend_from_slice(piece.bytes());
            at += piece.bytes().len() as u64;
        }
        Ok(())
    }

    fn give(
        &self,
        inode: u64,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let (node, range) = self.begin_read(inode, range)?;
        buffer.clear();
        let mut at = range.start;
        while at < range.end {
            let piece = self.piece(inode, &node, at..range.end)?;
            at += piece.bytes().len() as u64;
            if at == range.end && buffer.is_empty() {
                // The usual case: the kernel requests a block or a part of one.
                give(piece.bytes());
                return Ok(());
            }
            buffer.extend_from_slice(piece.bytes());
        }
        give(buffer);
        Ok(())
    }

    fn target(&self, inode: u64) -> Result<Vec<u8>> {
        self.ask(&*self.get(inode)?, |source, path| source.target(path))
    }

    fn xattrs(&self, inode: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.ask(&*self.get(inode)?, |source, path| source.xattrs(path))
    }

    fn has_nowhere(&self, name: &[u8]) -> bool {
        // Requests for these of each entry that `ls -l` lists would take longer than the listing
        // itself on a slow source: `getfacl` shows them, but `ls` no `+`.
        name.starts_with(b"system.posix_acl_") || name == b"security.selinux"
    }

    fn hint(&self, inode: u64, text: &[u8]) -> Result<()> {
        let (hint, next) = pinstripe_prefetch::parse_hint(text)?;
        let size = self.get(inode)?.entry.version.size;
        let plan = self.readers.hint(inode, self.bounds(size), hint, next);
        self.send(inode, size, plan);
        Ok(())
    }

    fn data(&self, inode: u64) -> Result<Vec<Range<u64>>> {
        let ContentVersion { size, .. } = self.get(inode)?.entry.version;
        Ok(std::iter::once(0..size).filter(|all| !all.is_empty()).collect())
    }

    fn totals(&self) -> (u64, u64) {
        let asked = Arc::clone(&self.source);
        let totals = self.calls.call(move |reply: CallReply<_>| reply.give(asked.totals()));
        totals.and_then(|totals| totals).unwrap_or_default()
    }

    /// Checks the file at each open, so that its present content is shown: close-to-open
    /// consistency, as in network file systems.
    fn open(&self, inode: u64) -> Result<FileOpening> {
        let node = self.get(inode)?;
        let entry =
            self.ask(&node, |source, path| source.stat(path)).map_err(|error| {
                match error.kind() {
                    Kind::NotFound => changed(&node.path),
                    _ => error,
                }
            })?;
        match (entry.identity, entry.version) == (node.entry.identity, node.entry.version) {
            true => Ok(FileOpening::Current),
            false => Err(changed(&node.path)),
        }
    }

    fn backing(&self, inode: u64) -> Option<OwnedFd> {
        let node = self.get(inode).ok().filter(|node| node.entry.kind == FileKind::File)?;
        let version = node.entry.version;
        let find = move |source: &S, path: &[u8]| Ok(source.local_file(path, &version));
        self.ask(&node, find).ok().flatten()
    }

    fn forget(&self, inode: u64, mentions: u64) {
        if inode != ROOT {
            self.nodes.forget(inode, mentions);
        }
    }
}

fn node_of(inode: u64, entry: &SourceEntry) -> Node {
    Node {
        inode,
        kind: entry.kind,
        mode: entry.mode,
        uid: entry.owner.0,
        gid: entry.owner.1,
        size: entry.version.size,
        data_bytes: entry.data_bytes,
        links: entry.links,
        rdev: entry.rdev,
        mtime: entry.mtime,
        ctime: entry.ctime,
        is_lasting: false,
    }
}
