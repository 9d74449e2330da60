//! `dump`: writes a snapshot, or a subtree of it, as one tar archive.

use std::collections::HashMap;

use super::select::{Selected, first_entry, select};
use crate::pipeline::limits::Limits;
use crate::pipeline::stream::{Feed, Holes, Origin, StreamPart, stream};
use crate::store::Store;
use crate::store::choice::SnapshotName;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::{SEE_WHAT_IS_LOST, TreeReader};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::{check_relative, shown_from_root};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tar::{self, TarEntry};

/// Options of `dump`.
pub struct DumpOptions<'a> {
    /// The snapshot.
    pub snapshot: SnapshotName<'a>,
    /// A path in the snapshot, which becomes the top of the archive; empty for everything.
    pub path: &'a [u8],
    /// Write holes as zeros, for readers that do not support GNU's sparse files.
    pub fill_holes: bool,
    /// Threads and memory.
    pub limits: Limits,
}

/// Writes the archive to `out` in pieces of any length.
///
/// An entry with lost content is a loss in the ledger; zeros fill its content to the length in its
/// header, so that the rest of the archive can be read.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot or path, or with the errors of
/// `out`.
pub fn run(
    store: &Store,
    options: &DumpOptions<'_>,
    monitor: &Monitor,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Snapshot> {
    let named = select(store, options.snapshot, options.path, monitor)?;
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let Selected { snapshot, below } = named.settle(&packs, &index, monitor);
    let tree =
        || TreeReader::new(ChunkReader::below(&packs, &index, &below), &snapshot.root, &below);
    if !below.is_empty() {
        first_entry(&mut tree()?, &below)?;
    }
    if below.is_empty() {
        monitor.set_total(snapshot.content_bytes(), snapshot.root.entries);
    }
    let origin =
        Origin { packs: &packs, index: &index, keys: store.keys()?, limits: options.limits };
    let holes = if options.fill_holes { Holes::Zeros } else { Holes::LeftOut };
    let source = tree()?;
    let mut archive =
        Archive { holes, monitor, out, written_bytes: 0, path: Vec::new(), is_damaged: false };
    let feed = |feed: &mut Feed<'_, '_, OutputMark>| feed_all(feed, source, &below, holes, monitor);
    stream(origin, feed, &mut |output| archive.take(output))?;
    archive.zeros(tar::ending(archive.written_bytes) as u64)?;
    Ok(snapshot)
}

/// The marks between pieces of content.
enum OutputMark {
    /// The beginning of an entry, with its name in the archive and, if it is a hard link, the name
    /// of the earlier entry that it links to.
    Begin { entry: Box<Entry>, name: Vec<u8>, link_to: Option<Vec<u8>> },
    /// The end of a file's content.
    End,
}

fn feed_all(
    feed: &mut Feed<'_, '_, OutputMark>,
    mut tree: TreeReader<'_>,
    strip: &[u8],
    holes: Holes,
    monitor: &Monitor,
) -> Result<()> {
    // First name in the archive of each inode that has several.
    let mut first_names = HashMap::new();
    while !feed.is_over() {
        let entry = match tree.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => {
                monitor.add(Counter::LostEntries, tree.lost_entries());
                monitor.loss("snapshot", error.advice(SEE_WHAT_IS_LOST));
                continue;
            }
        };
        if let Err(error) = can_hold(&entry) {
            match error.kind() {
                Kind::Unsupported => monitor.warning(shown_from_root(&entry.path), error),
                _ => monitor.loss(shown_from_root(&entry.path), error),
            }
            continue;
        }
        let name = name_of(strip, &entry);
        let mut link_to = None;
        if entry.is_hard_linked() {
            let key = (entry.device, entry.inode);
            let first: &Vec<u8> = first_names.entry(key).or_insert_with(|| name.clone());
            link_to = (*first != name).then(|| first.clone());
        }
        let is_file = entry.meta.kind == FileKind::File && link_to.is_none();
        feed.mark(OutputMark::Begin { entry: Box::new(entry.clone()), name, link_to });
        if is_file {
            feed.file(&mut tree, &entry, 0..entry.size, holes);
            feed.mark(OutputMark::End);
        }
    }
    Ok(())
}

fn can_hold(entry: &Entry) -> Result<()> {
    check_relative(&entry.path)?;
    if entry.meta.kind == FileKind::Socket {
        return Err(Error::new(Kind::Unsupported, "a tar archive cannot contain a socket"));
    }
    Ok(())
}

/// The archive being written.
struct Archive<'a> {
    holes: Holes,
    monitor: &'a Monitor,
    out: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    written_bytes: u64,
    /// The path of the entry whose content is being written.
    path: Vec<u8>,
    is_damaged: bool,
}

impl Archive<'_> {
    fn take(&mut self, output: StreamPart<'_, OutputMark>) -> Result<()> {
        match output {
            StreamPart::Mark(OutputMark::Begin { entry, name, link_to }) => {
                self.begin(&entry, &name, link_to.as_deref())
            }
            StreamPart::Mark(OutputMark::End) => {
                self.zeros(tar::padding(self.written_bytes) as u64)
            }
            StreamPart::Bytes(bytes) => {
                self.monitor.add(Counter::RestoredBytes, bytes.len() as u64);
                self.put(bytes)
            }
            StreamPart::Zeros(bytes) => self.zeros(bytes),
            StreamPart::Lost(bytes, error) => {
                // Reported once for each file.
                if !std::mem::replace(&mut self.is_damaged, true) {
                    let place = shown_from_root(&self.path);
                    let advice =
                        "in the archive, the lost content of this file is replaced by zeros";
                    self.monitor.loss(place, error.advice(advice));
                }
                self.zeros(bytes)
            }
        }
    }

    fn begin(&mut self, entry: &Entry, name: &[u8], link_to: Option<&[u8]>) -> Result<()> {
        self.path.clone_from(&entry.path);
        self.is_damaged = false;
        let runs = entry.data_extents();
        let is_sparse = self.holes == Holes::LeftOut
            && entry.meta.kind == FileKind::File
            && link_to.is_none()
            && runs != whole(entry.size);
        let head = TarEntry {
            path: name,
            meta: &entry.meta,
            target: &entry.target,
            link_to,
            size_bytes: entry.size,
            sparse: is_sparse.then_some(&runs),
        }
        .head();
        self.monitor.add(Counter::RestoredEntries, 1);
        self.put(&head)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written_bytes += bytes.len() as u64;
        (self.out)(bytes)
    }

    fn zeros(&mut self, mut left: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while left > 0 {
            let piece = left.min(ZEROS.len() as u64);
            self.put(&ZEROS[..piece as usize])?;
            left -= piece;
        }
        Ok(())
    }
}

/// Returns the data ranges of a file without holes: one range.
fn whole(size: u64) -> Vec<std::ops::Range<u64>> {
    if size == 0 { Vec::new() } else { std::iter::once(0..size).collect() }
}

/// Returns the name of an entry in the archive, which is the name that `restore` would give it
/// below its target.
fn name_of(strip: &[u8], entry: &Entry) -> Vec<u8> {
    let rest = if strip.is_empty() { &entry.path[..] } else { &entry.path[strip.len()..] };
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    match (rest, entry.meta.kind) {
        ([], FileKind::Directory) => b"./".to_vec(),
        ([], _) => entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(b".").to_vec(),
        (_, FileKind::Directory) => [rest, b"/"].concat(),
        _ => rest.to_vec(),
    }
}
