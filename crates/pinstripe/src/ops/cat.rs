//! `cat`: writes the content of files of a snapshot, in order, without restoring them.

use std::ops::Range;

use super::select::{Selected, first_entry, select};
use crate::pipeline::limits::Limits;
use crate::pipeline::stream::{Holes, Origin, StreamPart, stream};
use crate::store::Store;
use crate::store::choice::{SnapshotChoice, SnapshotName};
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

/// Options of `cat`.
pub struct CatOptions<'a> {
    /// Snapshots (`latest` or the beginning of an id) and paths of files in them.
    pub files: &'a [(String, Vec<u8>)],
    /// The snapshots that the names may mean.
    pub choice: &'a SnapshotChoice,
    /// The offset in each file of the first byte to show.
    pub offset: u64,
    /// The largest number of bytes of each file to show; all bytes if not given.
    pub length: Option<u64>,
    /// Threads and memory.
    pub limits: Limits,
}

impl<'a> CatOptions<'a> {
    /// Options for all bytes of files of any snapshots.
    pub fn new(files: &'a [(String, Vec<u8>)], limits: Limits) -> Self {
        CatOptions { files, choice: SnapshotChoice::any(), offset: 0, length: None, limits }
    }
}

/// Zeros are written in pieces of this length.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes the content of all files to `out`, in the order in which they are named; holes are
/// written as zeros.
///
/// All names are looked up before the first byte is written.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot or path, with [`Kind::Usage`] for a
/// path that is not a file or an offset beyond its end, with [`Kind::TooManyLosses`] at the first
/// damage, since no byte may be left out, and for a path that may have been in lost pages, or with
/// the errors of `out`.
pub fn run(
    store: &Store,
    options: &CatOptions<'_>,
    monitor: &Monitor,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let tree_of = |selected: &Selected| {
        let chunks = ChunkReader::new(&packs, &index);
        TreeReader::new(chunks, &selected.snapshot.root, &selected.below)
    };
    let mut files = Vec::new();
    for (name, path) in options.files {
        let name = SnapshotName { name, choice: options.choice };
        let selected = select(store, name, path, monitor)?.settle(&packs, &index, monitor);
        let mut tree = tree_of(&selected)?;
        let entry = first_entry(&mut tree, &selected.below)?;
        let range = wanted(&entry, &selected.below, options)?;
        let bytes = range.end - range.start;
        monitor.set_total(monitor.expected().0 + bytes, files.len() as u64 + 1);
        files.push((tree, entry, range));
    }
    let origin =
        Origin { packs: &packs, index: &index, keys: store.keys()?, limits: options.limits };
    let names: Vec<_> = files.iter().map(|(_, entry, _)| shown_from_root(&entry.path)).collect();
    let mut current = 0;
    let mut give = |bytes: &[u8]| {
        monitor.add(Counter::RestoredBytes, bytes.len() as u64);
        out(bytes)
    };
    stream(
        origin,
        |feed| {
            for (number, (mut tree, entry, range)) in files.into_iter().enumerate() {
                feed.mark(number);
                feed.file(&mut tree, &entry, range, Holes::Zeros);
                if feed.is_over() {
                    break;
                }
            }
            Ok(())
        },
        &mut |output| match output {
            StreamPart::Mark(number) => {
                current = number;
                Ok(())
            }
            StreamPart::Bytes(bytes) => give(bytes),
            StreamPart::Zeros(mut left) => {
                while left > 0 {
                    let piece = left.min(ZEROS.len() as u64);
                    give(&ZEROS[..piece as usize])?;
                    left -= piece;
                }
                Ok(())
            }
            StreamPart::Lost(_, error) => Err(error.as_loss().at(&names[current])),
        },
    )
}

/// Returns the bytes of an entry to show, if the entry is a file with exactly this path.
fn wanted(entry: &Entry, path: &[u8], options: &CatOptions<'_>) -> Result<Range<u64>> {
    let at = || shown_from_root(path);
    if entry.path != path || entry.meta.kind != FileKind::File {
        let kind = if entry.path == path {
            entry.meta.kind
        } else {
            FileKind::Directory // A path with entries below it, but no entry, is the top.
        };
        let error = Error::new(Kind::Usage, "this entry is not a file with content").at(at());
        return Err(error.expected(FileKind::File.name(), kind.name()));
    }
    if options.offset > entry.size {
        let error = Error::new(Kind::Usage, "the offset is beyond the end of the file");
        return Err(error
            .at(at())
            .expected(format!("an offset of at most {}", entry.size), options.offset));
    }
    let left = entry.size - options.offset;
    Ok(options.offset..options.offset + options.length.unwrap_or(left).min(left))
}
