//! Makes the entry of a source object: its metadata, its holes, and what changed during the backup.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use super::shared::Reading;
use crate::source::{self, SourceFile};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::{FileKind, Metadata, Stat, XattrList};

/// A file opened for backup, with the data that its entry needs.
pub(crate) struct OpenedFile {
    /// The file.
    pub file: SourceFile,
    /// The data ranges of the file.
    pub extents: Vec<Range<u64>>,
}

impl OpenedFile {
    /// Opens `path` and determines its data ranges.
    ///
    /// # Errors
    /// Fails with the errors of the system, or with [`Kind::Changed`] when the path is not a file
    /// any more.
    pub fn open(shared: &Reading<'_>, path: &[u8]) -> Result<Self> {
        let file = SourceFile::open(shared.root, path)?;
        let extents = file.data_extents()?;
        if file.stat().size_bytes == 0 && file.read_at(0, &mut [0])? > 0 {
            let error = Error::new(
                Kind::Changed,
                "the file has content, but the kernel reports a size of 0 bytes",
            )
            .advice(
                "the kernel generates the content of such a file when a program reads the file: \
                 exclude /proc and /sys with --one-file-system",
            );
            shared.monitor.loss(shown_from_root(path), error);
        }
        Ok(OpenedFile { file, extents })
    }

    /// The number of bytes in all data ranges.
    pub fn data_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.end - extent.start).sum()
    }

    /// Makes the entry, without content, once everything was read. The times are those from before
    /// the first read: if the file changed during the backup, the next backup reads it again.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn finish(&self, shared: &Reading<'_>, path: Vec<u8>) -> Result<Entry> {
        let stat = *self.file.stat();
        if self.file.changed_since(&stat)? {
            self.report_change(shared, &path)?;
        }
        let found = self.file.xattrs();
        let mut entry = entry_of(path, &stat, report_xattrs(shared, found));
        let whole = matches!(self.extents[..], [Range { start: 0, end }] if end == stat.size_bytes);
        if !whole {
            entry.extents.clone_from(&self.extents);
        }
        Ok(entry)
    }

    /// Counts a file that changed while it was read, and names it unless it only grew: then its
    /// content at the time of opening is saved completely.
    fn report_change(&self, shared: &Reading<'_>, path: &[u8]) -> Result<()> {
        if self.file.has_grown()? {
            shared.monitor.add(Counter::ChangedWhileRead, 1);
        } else {
            let error = Error::new(Kind::Changed, "the file changed while it was being read")
                .advice("the content that was read is saved; the next backup reads the file again");
            shared.monitor.changed(shown_from_root(path), error);
        }
        Ok(())
    }
}

/// Shortens an entry to the first `read_bytes` bytes of its data ranges, because the file shrank.
pub fn shorten(entry: &mut Entry, extents: &[Range<u64>], mut read_bytes: u64) {
    let mut kept = Vec::new();
    for extent in extents {
        let take = (extent.end - extent.start).min(read_bytes);
        read_bytes -= take;
        if take > 0 {
            kept.push(extent.start..extent.start + take);
        }
    }
    entry.size = kept.last().map_or(0, |extent| extent.end);
    let whole = matches!(kept[..], [Range { start: 0, end }] if end == entry.size);
    entry.extents = if whole { Vec::new() } else { kept };
}

/// Returns an entry without content: for everything but files, and for later names of a file.
pub(crate) fn plain_entry(shared: &Reading<'_>, path: Vec<u8>, stat: Stat) -> Result<Entry> {
    let xattrs = report_xattrs(shared, source::xattrs_at(shared.root, &path)?);
    let mut entry = entry_of(path, &stat, xattrs);
    if stat.kind == FileKind::Symlink {
        entry.target = source::read_link(shared.root, &entry.path)?;
    }
    Ok(entry)
}

fn report_xattrs(shared: &Reading<'_>, found: source::Xattrs) -> XattrList {
    if found.lacks_proc && !shared.proc_is_reported.swap(true, Ordering::Relaxed) {
        let what = "the proc file system is not mounted: the extended attributes of symbolic \
                    links, devices, FIFOs and sockets cannot be read";
        let error = Error::new(Kind::NotFound, what).advice("run 'mount -t proc proc /proc'");
        shared.monitor.loss("/proc", error);
    }
    for error in found.problems {
        let place = error.place().map(|place| place.as_os_str().as_bytes()).unwrap_or_default();
        shared.monitor.loss(shown_from_root(place), error);
    }
    found.list
}

/// Returns the entry of what `stat` describes, without content.
pub fn entry_of(path: Vec<u8>, stat: &Stat, xattrs: XattrList) -> Entry {
    let stat = stat.as_told();
    Entry {
        path,
        meta: Metadata::new(&stat, xattrs),
        ctime: stat.ctime,
        inode: stat.inode,
        device: stat.device,
        links: stat.links,
        size: stat.size_bytes,
        extents: Vec::new(),
        target: Vec::new(),
        content: Content::default(),
    }
}
