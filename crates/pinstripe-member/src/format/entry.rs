//! One entry of a snapshot, and the page that holds it together with its neighbours.
//!
//! ```text
//! page:  'P' 1, entry count varint, entries
//! entry: bytes shared with the path before varint, rest of the path (length, bytes)
//!        kind 1, marks 1, mode, uid, gid, size, inode, device, links varint
//!        mtime, ctime: seconds zigzag varint, nanoseconds varint
//!        [rdev major, minor varint]           devices only
//!        [target (length, bytes)]             symlinks only
//!        [xattrs: count, then name, value]    when marked
//!        [extents: count, then gap, length]   when marked: a sparse file's data
//!        [content: chunk count, then id 32, raw bytes varint]          files, unmarked
//!        [content: list count, then id 32, content bytes varint]       files, marked long
//! ```
//!
//! Invariants of a decoded page: paths strictly ascend in path order. The extents of an entry
//! ascend, are not adjacent and are within its size. The chunks of an entry have as many bytes
//! together as its extents. Decoding does not check whether a path is clean:
//! `pinstripe_io::beneath` refuses an unclean path before anything is written.

use std::cmp::Ordering;
use std::ops::Range;

use super::meta::{FileKind, Metadata, Time};
use super::record::{ChunkRow, RECORD_MAX_RAW_BYTES};
use super::tree::{compare_paths, shared_len};
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::{Reader, ShortRun, Writer};

const PAGE_MARK: u8 = b'P';
const HAS_XATTRS: u8 = 1;
const HAS_EXTENTS: u8 = 2;
const IS_LONG: u8 = 4;
const KNOWN_MARKS: u8 = HAS_XATTRS | HAS_EXTENTS | IS_LONG;
/// The length of the shortest entry: the entry count of a page is checked against it.
const ENTRY_MIN_BYTES: usize = 15;

/// A row of a long content list: one chunk that holds part of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListRow {
    /// The chunk that holds the rows.
    pub id: ChunkId,
    /// The number of content bytes that the rows of the list cover.
    pub content_bytes: u64,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The chunks of the file, in order; empty for an empty file and for everything but regular
    /// files.
    Chunks(Vec<ChunkRow>),
    /// The lists of chunks of a file with too many chunks for one entry: each list is a chunk
    /// itself.
    Lists(Vec<ListRow>),
}

impl Default for Content {
    fn default() -> Self {
        Content::Chunks(Vec::new())
    }
}

/// One file, directory, link or special file of a snapshot. The default entry is an empty file
/// without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Absolute path without the leading slash, as raw bytes.
    pub path: Vec<u8>,
    /// The metadata that is restored.
    pub meta: Metadata,
    /// When the inode last changed: with size, mtime and inode number it shows whether the content
    /// is unchanged.
    pub ctime: Time,
    /// Inode number at the source.
    pub inode: u64,
    /// Device number (st_dev) at the source; hard links have the same device number and inode
    /// number.
    pub device: u64,
    /// The number of hard links to the file at the source.
    pub links: u64,
    /// Length in bytes; for a regular file, the number of bytes that were read.
    pub size: u64,
    /// The data ranges of a sparse file, ascending; empty when the file has no holes.
    pub extents: Vec<Range<u64>>,
    /// The target of a symlink.
    pub target: Vec<u8>,
    /// The content of a file: the bytes of its data extents, one after the other.
    pub content: Content,
}

impl Entry {
    /// Whether the entry shares its inode with another name: a restore links such entries again.
    pub fn is_hard_linked(&self) -> bool {
        self.links > 1 && self.meta.kind != FileKind::Directory
    }

    /// Whether a restore of either entry gives the same result: everything but inode, device, links
    /// and ctime is compared.
    pub fn restores_alike(&self, other: &Entry) -> bool {
        self.meta == other.meta && self.holds_alike(other)
    }

    /// Whether both entries have the same content or point to the same target, whatever their
    /// owner, mode and times.
    pub fn holds_alike(&self, other: &Entry) -> bool {
        self.meta.kind == other.meta.kind
            && self.meta.rdev == other.meta.rdev
            && self.size == other.size
            && self.extents == other.extents
            && self.target == other.target
            && self.content == other.content
    }

    /// Returns the data extents; for a file without holes, one extent with all of it.
    pub fn data_extents(&self) -> Vec<Range<u64>> {
        match (self.extents.is_empty(), self.size) {
            (false, _) => self.extents.clone(),
            (true, _) if self.content == Content::default() => Vec::new(),
            (true, size) => std::iter::once(0..size).collect(),
        }
    }
}

/// Builds one page.
#[derive(Debug, Clone, Default)]
pub struct PageWriter {
    entries: Vec<u8>,
    count: u64,
    first_path: Vec<u8>,
    last_path: Vec<u8>,
}

impl PageWriter {
    /// Adds an entry; paths must ascend in path order.
    pub fn push(&mut self, entry: &Entry) {
        debug_assert!(
            self.count == 0 || compare_paths(&self.last_path, &entry.path) == Ordering::Less
        );
        let shared = if self.count == 0 {
            self.first_path.clone_from(&entry.path);
            0
        } else {
            shared_len(&self.last_path, &entry.path)
        };
        let mut writer = Writer::new(&mut self.entries);
        writer.varint(shared as u64).bytes(&entry.path[shared..]);
        write_entry(&mut writer, entry);
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(&entry.path[shared..]);
        self.count += 1;
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the finished page as `(bytes, path of its first entry, number of entries)`; the writer
    /// is empty again.
    pub fn take(&mut self) -> (Vec<u8>, Vec<u8>, u64) {
        let mut page = Vec::with_capacity(self.entries.len() + 11);
        Writer::new(&mut page).u8(PAGE_MARK).varint(self.count).raw(&self.entries);
        self.entries.clear();
        self.last_path.clear();
        (page, std::mem::take(&mut self.first_path), std::mem::take(&mut self.count))
    }
}

fn write_entry(writer: &mut Writer<'_>, entry: &Entry) {
    let meta = &entry.meta;
    let mut marks = 0;
    if !meta.xattrs.is_empty() {
        marks |= HAS_XATTRS;
    }
    if !entry.extents.is_empty() {
        marks |= HAS_EXTENTS;
    }
    if matches!(entry.content, Content::Lists(_)) {
        marks |= IS_LONG;
    }
    // The marks come early: they tell the reader which optional parts follow. The fixed fields
    // are at most 89 bytes: two, three numbers of 32 bits, four of 64, two times.
    let mut fixed = ShortRun::default();
    fixed.u8(kind_byte(meta.kind)).u8(marks).varint(u64::from(meta.mode));
    for number in [meta.uid.into(), meta.gid.into(), entry.size, entry.inode, entry.device] {
        fixed.varint(number);
    }
    fixed.varint(entry.links);
    for time in [meta.mtime, entry.ctime] {
        fixed.signed_varint(time.seconds).varint(u64::from(time.nanos));
    }
    writer.raw(fixed.bytes());
    match meta.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            writer.varint(u64::from(meta.rdev.0)).varint(u64::from(meta.rdev.1));
        }
        FileKind::Symlink => {
            writer.bytes(&entry.target);
        }
        _ => {}
    }
    if marks & HAS_XATTRS != 0 {
        writer.varint(meta.xattrs.len() as u64);
        for (name, value) in &meta.xattrs {
            writer.bytes(name).bytes(value);
        }
    }
    if marks & HAS_EXTENTS != 0 {
        writer.varint(entry.extents.len() as u64);
        // Ascending, so gap and length are enough, and short as varints.
        let mut end = 0;
        for extent in &entry.extents {
            writer.varint(extent.start - end).varint(extent.end - extent.start);
            end = extent.end;
        }
    }
    // Last, and only for files: `IS_LONG` alone tells a list of lists from a list of chunks.
    if meta.kind == FileKind::File {
        match &entry.content {
            Content::Chunks(chunks) => write_chunks(writer, chunks),
            Content::Lists(lists) => {
                writer.varint(lists.len() as u64);
                for list in lists {
                    writer.raw(&list.id.0).varint(list.content_bytes);
                }
            }
        }
    }
}

/// Writes rows of chunks: those of a file's content, or those of one list of a long content.
pub fn write_chunks(writer: &mut Writer<'_>, chunks: &[ChunkRow]) {
    writer.varint(chunks.len() as u64);
    for chunk in chunks {
        writer.raw(&chunk.id.0).varint(u64::from(chunk.raw_bytes));
    }
}

/// Reads rows of chunks.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that `write_chunks`
/// does not write.
pub fn read_chunks(reader: &mut Reader<'_>) -> Result<Vec<ChunkRow>> {
    let count = reader.count(ChunkId::LEN + 1)?;
    let mut chunks = Vec::with_capacity(count);
    for _ in 0..count {
        let id = ChunkId(reader.array()?);
        let raw_bytes = reader.varint()?;
        if raw_bytes == 0 || raw_bytes > u64::from(RECORD_MAX_RAW_BYTES) {
            return Err(reader.corrupt(format!("a chunk has the impossible length {raw_bytes}")));
        }
        chunks.push(ChunkRow { id, raw_bytes: raw_bytes as u32 });
    }
    Ok(chunks)
}

/// Reads a page.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when an invariant of a page
/// does not hold.
pub fn decode_page(bytes: &[u8]) -> Result<Vec<Entry>> {
    let mut reader = Reader::new(bytes, "page of entries");
    if reader.u8()? != PAGE_MARK {
        return Err(reader.corrupt("this is not a page of entries"));
    }
    let count = reader.count(ENTRY_MIN_BYTES)?;
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    for _ in 0..count {
        let last_path = entries.last().map_or(&[][..], |last| &last.path);
        let shared = reader.varint()? as usize;
        let rest = reader.bytes()?;
        if shared > last_path.len() {
            return Err(reader.corrupt(
                "the prefix that a path shares with the previous path is longer than that path",
            ));
        }
        let path = [&last_path[..shared], rest].concat();
        if !entries.is_empty() && compare_paths(last_path, &path) != Ordering::Less {
            return Err(reader.corrupt("the paths are not in order"));
        }
        entries.push(read_entry(&mut reader, path)?);
    }
    reader.finish()?;
    Ok(entries)
}

fn read_entry(reader: &mut Reader<'_>, path: Vec<u8>) -> Result<Entry> {
    let kind = kind_from_byte(reader.u8()?)
        .ok_or_else(|| reader.corrupt("an entry has an unknown file type"))?;
    let marks = reader.u8()?;
    if marks & !KNOWN_MARKS != 0 {
        return Err(reader.corrupt(format!("an entry has unknown flags: {marks:#x}")));
    }
    let mode = small(reader)?;
    let (uid, gid) = (small(reader)?, small(reader)?);
    let (size, inode, device) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let links = reader.varint()?;
    let (mtime, ctime) = (read_time(reader)?, read_time(reader)?);
    let rdev = match kind {
        FileKind::CharDevice | FileKind::BlockDevice => (small(reader)?, small(reader)?),
        _ => (0, 0),
    };
    let target = match kind {
        FileKind::Symlink => reader.bytes()?.to_vec(),
        _ => Vec::new(),
    };
    let mut xattrs = Vec::new();
    if marks & HAS_XATTRS != 0 {
        for _ in 0..reader.count(2)? {
            xattrs.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
        }
    }
    let extents = if marks & HAS_EXTENTS != 0 { read_extents(reader, size)? } else { Vec::new() };
    let content = match kind {
        FileKind::File if marks & IS_LONG != 0 => Content::Lists(read_lists(reader)?),
        FileKind::File => Content::Chunks(read_chunks(reader)?),
        _ => Content::default(),
    };
    let meta = Metadata { kind, mode, uid, gid, mtime, xattrs, rdev };
    let entry = Entry { path, meta, ctime, inode, device, links, size, extents, target, content };
    check_content(reader, &entry)?;
    Ok(entry)
}

fn check_content(reader: &Reader<'_>, entry: &Entry) -> Result<()> {
    if entry.meta.kind != FileKind::File {
        return Ok(());
    }
    let content_bytes: u128 = match &entry.content {
        Content::Chunks(chunks) => chunks.iter().map(|chunk| u128::from(chunk.raw_bytes)).sum(),
        Content::Lists(lists) => lists.iter().map(|list| u128::from(list.content_bytes)).sum(),
    };
    let data_bytes: u128 = if entry.extents.is_empty() && content_bytes > 0 {
        u128::from(entry.size)
    } else {
        entry.extents.iter().map(|extent| u128::from(extent.end - extent.start)).sum()
    };
    if content_bytes != data_bytes {
        return Err(reader
            .corrupt("the lengths of a file's chunks do not add up to the length of its data")
            .expected(data_bytes, content_bytes));
    }
    Ok(())
}

fn read_extents(reader: &mut Reader<'_>, size: u64) -> Result<Vec<Range<u64>>> {
    let count = reader.count(2)?;
    let mut extents: Vec<Range<u64>> = Vec::with_capacity(count);
    let mut end = 0u64;
    for index in 0..count {
        let (gap, length) = (reader.varint()?, reader.varint()?);
        let start = end.checked_add(gap);
        let next = start.and_then(|start| start.checked_add(length)).filter(|&next| next <= size);
        let (Some(start), Some(next)) = (start, next) else {
            return Err(reader.corrupt("an extent of the file is outside the file"));
        };
        if length == 0 || (gap == 0 && index > 0) {
            return Err(reader.corrupt("extents of the file are empty or adjacent"));
        }
        extents.push(start..next);
        end = next;
    }
    Ok(extents)
}

fn read_lists(reader: &mut Reader<'_>) -> Result<Vec<ListRow>> {
    let count = reader.count(ChunkId::LEN + 1)?;
    (0..count)
        .map(|_| Ok(ListRow { id: ChunkId(reader.array()?), content_bytes: reader.varint()? }))
        .collect()
}

fn read_time(reader: &mut Reader<'_>) -> Result<Time> {
    let seconds = reader.signed_varint()?;
    let nanos = small(reader)?;
    if nanos >= 1_000_000_000 {
        return Err(reader.corrupt("a time has a nanosecond part of a second or more"));
    }
    Ok(Time { seconds, nanos })
}

fn small(reader: &mut Reader<'_>) -> Result<u32> {
    let value = reader.varint()?;
    u32::try_from(value).map_err(|_| reader.corrupt("a number in the entry exceeds 32 bits"))
}

const KINDS: [(FileKind, u8); 7] = [
    (FileKind::File, b'f'),
    (FileKind::Directory, b'd'),
    (FileKind::Symlink, b'l'),
    (FileKind::Fifo, b'p'),
    (FileKind::Socket, b's'),
    (FileKind::CharDevice, b'c'),
    (FileKind::BlockDevice, b'b'),
];

fn kind_byte(kind: FileKind) -> u8 {
    KINDS.iter().find(|(known, _)| *known == kind).expect("every kind has a byte").1
}

fn kind_from_byte(byte: u8) -> Option<FileKind> {
    KINDS.iter().find(|(_, known)| *known == byte).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &[u8], kind: FileKind, seed: u64) -> Entry {
        let rows = |n: u64| {
            (0..n).map(|i| ChunkRow { id: ChunkId([i as u8; 32]), raw_bytes: 100 }).collect()
        };
        let sparse = kind == FileKind::File && seed % 3 == 1;
        let long = kind == FileKind::File && seed % 3 == 2;
        let content = match kind {
            FileKind::File if long => {
                Content::Lists(vec![ListRow { id: ChunkId([9; 32]), content_bytes: 300 }])
            }
            FileKind::File => Content::Chunks(rows(3)),
            _ => Content::default(),
        };
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Entry {
            path: path.to_vec(),
            meta: Metadata {
                kind,
                mode: 0o4755,
                uid: seed as u32,
                gid: u32::MAX,
                mtime: Time { seconds: -(seed as i64), nanos: 999_999_999 },
                xattrs: (0..seed % 3)
                    .map(|n| (vec![b'a' + n as u8], vec![0; n as usize]))
                    .collect(),
                rdev: if device { (8, seed as u32) } else { (0, 0) },
            },
            ctime: Time { seconds: i64::MAX, nanos: 0 },
            inode: seed,
            device: u64::MAX,
            links: 1,
            size: if sparse {
                5000
            } else if kind == FileKind::File {
                300
            } else {
                seed
            },
            extents: if sparse { vec![10..110, 4800..5000] } else { Vec::new() },
            target: if kind == FileKind::Symlink { b"../x".to_vec() } else { Vec::new() },
            content,
        }
    }

    fn page(entries: &[Entry]) -> Vec<u8> {
        let mut writer = PageWriter::default();
        entries.iter().for_each(|entry| writer.push(entry));
        let (bytes, first, count) = writer.take();
        assert_eq!((first, count), (entries[0].path.clone(), entries.len() as u64));
        assert!(writer.is_empty());
        bytes
    }

    #[test]
    fn a_page_of_every_kind_comes_back() {
        for seed in 0..6 {
            let entries: Vec<Entry> = KINDS
                .iter()
                .enumerate()
                .map(|(n, &(kind, _))| entry(format!("dir/{n}\u{e9}").as_bytes(), kind, seed))
                .collect();
            assert_eq!(decode_page(&page(&entries)).unwrap(), entries);
        }
    }

    #[test]
    fn a_page_that_breaks_an_invariant_is_refused() {
        let good = entry(b"a", FileKind::File, 1);
        let mut outside = good.clone();
        outside.size = 4999;
        let mut short = good.clone();
        short.extents.pop();
        let mut touching = good.clone();
        touching.extents = vec![10..110, 110..310];
        for (name, bad) in [("outside", outside), ("short", short), ("touching", touching)] {
            assert!(decode_page(&page(&[bad])).is_err(), "{name}");
        }
        let two = [entry(b"a", FileKind::Fifo, 0), entry(b"b", FileKind::Fifo, 0)];
        let mut swapped = page(&two);
        let at = swapped.iter().rposition(|&byte| byte == b'b').unwrap();
        swapped[at] = b'a';
        assert!(decode_page(&swapped).is_err());
    }

    proptest! {
        #[test]
        fn damaged_pages_never_panic(seed in 0u64..6, at in any::<prop::sample::Index>(), value: u8) {
            let kinds = [FileKind::Directory, FileKind::File, FileKind::Symlink];
            let entries: Vec<Entry> = kinds
                .iter()
                .enumerate()
                .map(|(n, &kind)| entry(format!("{n}").as_bytes(), kind, seed))
                .collect();
            let mut bytes = page(&entries);
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = decode_page(&bytes);
            let _ = decode_page(&bytes[..at]);
        }
    }
}
