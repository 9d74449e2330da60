//! An overlay of a directory whose reads take 40 ms, compared with that directory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::sync::Stop;
use pinstripe_base::units::{GIB, MIB};
use pinstripe_fuse::{Mount, TreeFileSystem, TreeOptions};
use pinstripe_io::file_tree::{FileKind, FileTree, Node, ROOT, TakeEntry};
use pinstripe_lab::{Align, Cell, Table};

use super::Settings;
use super::place::{MountedAt, Reads};
use crate::Result;
use crate::child;

const DELAY: Duration = Duration::from_millis(40);
const SIZE: u64 = 8 * GIB;
const NAME: &str = "file";
const FILE: u64 = 2;
const THREADS: usize = 128;

pub(super) fn table(settings: &Settings) -> Result<Table> {
    let note = "MB/s of one reader; each read of the directory (a FUSE file system of this program, \
                128 at a time) takes 40 ms, whatever its length. The kernel reads ahead of the bare \
                directory by its own rule, 1 MiB; the overlay has no hints and no cache.";
    let columns = [
        ("order", Align::Left),
        ("bare", Align::Right),
        ("overlay", Align::Right),
        ("times", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new("Overlay of a directory of 40 ms", note, &columns);
    let record = 4 * MIB;
    let orders = [
        ("stride 17 x 4 MiB, 100 records", Reads::stride(record, 17 * record, 100, false), 12.0),
        ("the same backwards", Reads::stride(record, 17 * record, 100, true), 12.0),
        ("4 MiB records in reverse order", Reads::stride(record, record, 100, true), 12.0),
        ("1 MiB records in reverse order", Reads::stride(MIB, MIB, 200, true), 12.0),
        ("in order", Reads::stride(MIB, MIB, 400, false), 1.0),
        ("random 64 KiB", Reads::random(64 << 10, 100, SIZE), 0.9),
    ];
    for (name, reads, wanted) in orders {
        let bare = measure(settings, &reads, false)?;
        let overlay = measure(settings, &reads, true)?;
        let times = overlay / bare;
        eprintln!("{name}: bare {bare:.1} MB/s, overlay {overlay:.1} MB/s");
        table.row([
            name.into(),
            Cell::Number(bare, 1),
            Cell::Number(overlay, 1),
            Cell::Number(times, 1),
            format!(">= {wanted} x").into(),
            if times >= wanted { "reached" } else { "not reached" }.into(),
        ]);
    }
    Ok(table)
}

/// Everything is mounted anew, so that no cache has anything.
fn measure(settings: &Settings, reads: &Reads, through_overlay: bool) -> Result<f64> {
    let work = &settings.bench.work;
    let slow = MountedAt::new(work, "slow")?;
    let stop = Stop::new().map_err(|error| error.to_string())?;
    let served = serve(&slow.0)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| served.serve(&stop));
        let rate = match through_overlay {
            false => reads.rate(&slow.0.join(NAME), &is_content),
            true => overlaid(settings, &slow.0, reads),
        };
        stop.set();
        let ended = server.join().map_err(|_| "the slow directory panicked".to_owned())?;
        ended.map_err(|error| error.to_string())?;
        rate
    })
}

fn overlaid(settings: &Settings, slow: &Path, reads: &Reads) -> Result<f64> {
    let pinstripe = settings.bench.pinstripe()?;
    let fast = MountedAt::new(&settings.bench.work, "fast")?;
    let mut overlay = pinstripe.bare("overlay");
    child::run(overlay.arg(slow).arg(&fast.0), &pinstripe.logs, "overlay")?;
    reads.rate(&fast.0.join(NAME), &is_content)
}

fn serve(place: &Path) -> Result<Mount> {
    let options = TreeOptions {
        name: "slow".to_owned(),
        threads: THREADS,
        allow_other: false,
        leaves_out_xattrs: true,
    };
    let ended = Arc::new(Stop::new().map_err(|error| error.to_string())?);
    let files = TreeFileSystem::new(Arc::new(SlowTree), &options, Arc::clone(&ended));
    Mount::new(files, place, &options.config(), ended).map_err(|error| error.to_string())
}

/// Each eight bytes are their offset.
fn fill(range: Range<u64>, out: &mut Vec<u8>) {
    let first = range.start / 8 * 8;
    let words: Vec<u8> = (first..range.end).step_by(8).flat_map(u64::to_le_bytes).collect();
    let skipped = (range.start - first) as usize;
    out.extend_from_slice(&words[skipped..][..(range.end - range.start) as usize]);
}

/// Whether bytes are those of this offset, by some of them.
fn is_content(at: u64, bytes: &[u8]) -> bool {
    bytes.chunks(4096).zip((at..).step_by(4096)).all(|(page, at)| page[..8] == at.to_le_bytes())
}

/// A directory with one file.
struct SlowTree;

fn node(inode: u64) -> Node {
    let is_file = inode == FILE;
    Node {
        inode,
        kind: if is_file { FileKind::File } else { FileKind::Directory },
        mode: if is_file { 0o444 } else { 0o555 },
        uid: 0,
        gid: 0,
        size: if is_file { SIZE } else { 0 },
        data_bytes: if is_file { SIZE } else { 0 },
        links: 1,
        rdev: (0, 0),
        mtime: (0, 0),
        ctime: (0, 0),
        is_lasting: true,
    }
}

type Answer<T> = pinstripe_base::error::Result<T>;

impl FileTree for SlowTree {
    fn lookup(&self, _: u64, name: &[u8]) -> Answer<Node> {
        match name == NAME.as_bytes() {
            true => Ok(node(FILE)),
            false => Err(Error::new(Kind::NotFound, "no such file")),
        }
    }

    fn node(&self, inode: u64) -> Answer<Node> {
        Ok(node(inode))
    }

    fn list(&self, _: u64, from: u64, take: TakeEntry<'_>) -> Answer<()> {
        if from == 0 {
            take(1, NAME.as_bytes(), &node(FILE));
        }
        Ok(())
    }

    fn read(&self, _: u64, range: Range<u64>, out: &mut Vec<u8>) -> Answer<()> {
        std::thread::sleep(DELAY);
        fill(range.start.min(SIZE)..range.end.min(SIZE), out);
        Ok(())
    }

    fn target(&self, _: u64) -> Answer<Vec<u8>> {
        Err(Error::new(Kind::Usage, "no link"))
    }

    fn xattrs(&self, _: u64) -> Answer<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn hint(&self, _: u64, _: &[u8]) -> Answer<()> {
        Err(Error::new(Kind::Unsupported, "it is slow on purpose"))
    }

    fn data(&self, inode: u64) -> Answer<Vec<Range<u64>>> {
        Ok(std::iter::once(0..node(inode).size).collect())
    }

    fn totals(&self) -> (u64, u64) {
        (SIZE, ROOT + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_by_its_offset() {
        for range in [0..8u64, 5..21, 4096..12288] {
            let mut out = Vec::new();
            fill(range.clone(), &mut out);
            assert_eq!(out.len() as u64, range.end - range.start);
            assert_eq!(is_content(range.start, &out), range.start.is_multiple_of(8), "{range:?}");
        }
        assert!(!is_content(8, &[0; 8]));
    }
}
