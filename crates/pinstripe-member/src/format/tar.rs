//! The tar archive that `dump` writes: with POSIX pax headers, readable by GNU tar, bsdtar and
//! Python.
//!
//! ```text
//! entry:   [extended header 'x': block, records, zeros to 512] header block, content, zeros to 512
//! record:  "LENGTH KEY=VALUE\n", LENGTH counting itself
//! sparse:  GNU's version 1.0: the content begins with a map of its runs, padded to 512, then data
//! end:     two blocks of zeros, then zeros to 10,240
//! ```
//!
//! Invariants: a value that the old header fields cannot hold exactly is in an extended header:
//! long names, names beyond ASCII, nanoseconds, times before 1970, large numbers, extended
//! attributes. Names are bytes; if they are not UTF-8, the header says so (`hdrcharset=BINARY`).
//! Owners are numbers, never names. Nothing here reads an archive.

use std::ops::Range;

use super::acl;
use super::meta::{FileKind, Metadata, Time};

/// The size of a tar block: all parts of an archive are multiples of it.
pub const BLOCK_BYTES: usize = 512;
/// The length of a complete archive is a multiple of this.
const ARCHIVE_BLOCK_BYTES: u64 = 20 * BLOCK_BYTES as u64;

/// One entry as the archive describes it.
pub struct TarEntry<'e> {
    /// The name in the archive; a directory's name ends with a slash.
    pub path: &'e [u8],
    /// The kind of the entry and its attributes.
    pub meta: &'e Metadata,
    /// The target of a symlink.
    pub target: &'e [u8],
    /// The earlier name in the archive that this one is a hard link to.
    pub link_to: Option<&'e [u8]>,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// The data ranges of a file that is stored without its holes.
    pub sparse: Option<&'e [Range<u64>]>,
}

impl TarEntry<'_> {
    /// Encodes everything before the content: the headers, and the map of a sparse file.
    pub fn head(&self) -> Vec<u8> {
        let mut records = TarRecords::default();
        let map = self.sparse.map(|runs| sparse_map(runs, self.size_bytes));
        let mut name = self.path.to_vec();
        if map.is_some() {
            records.add(b"GNU.sparse.major", b"1");
            records.add(b"GNU.sparse.minor", b"0");
            records.add(b"GNU.sparse.name", self.path);
            records.add(b"GNU.sparse.realsize", self.size_bytes.to_string().as_bytes());
            name = sparse_name(self.path);
        }
        let link = self.link_to.unwrap_or(self.target);
        let stored = match &map {
            Some(map) => map.len() as u64 + self.stored_bytes(),
            None => self.stored_bytes(),
        };
        self.describe(&mut records, &name, link, stored);
        let mut out = Vec::new();
        if !records.bytes.is_empty() {
            let mut header = TarHeader::new(b"././@PaxHeader", b'x');
            header.number(SIZE, records.bytes.len() as u64);
            out.extend_from_slice(&header.sealed());
            out.extend_from_slice(&records.bytes);
            pad(&mut out);
        }
        out.extend_from_slice(&self.header(&name, link, stored).sealed());
        out.extend(map.into_iter().flatten());
        out
    }

    /// The number of content bytes that follow the headers.
    pub fn stored_bytes(&self) -> u64 {
        match (self.meta.kind, self.link_to, self.sparse) {
            (FileKind::File, None, Some(runs)) => runs.iter().map(|run| run.end - run.start).sum(),
            (FileKind::File, None, None) => self.size_bytes,
            _ => 0,
        }
    }

    /// Adds a record for every value that the old header fields cannot hold.
    fn describe(&self, records: &mut TarRecords, name: &[u8], link: &[u8], stored: u64) {
        let meta = self.meta;
        let names = [name, link, self.path];
        if names.iter().any(|name| std::str::from_utf8(name).is_err()) {
            // Must come before the entry that it describes.
            let mut first = TarRecords::default();
            first.add(b"hdrcharset", b"BINARY");
            records.bytes.splice(0..0, first.bytes);
        }
        if !fits_plainly(name, 100) {
            records.add(b"path", name);
        }
        if !fits_plainly(link, 100) {
            records.add(b"linkpath", link);
        }
        if stored > octal_max(SIZE) {
            records.add(b"size", stored.to_string().as_bytes());
        }
        for (key, number) in [(&b"uid"[..], meta.uid), (b"gid", meta.gid)] {
            if u64::from(number) > octal_max(UID) {
                records.add(key, number.to_string().as_bytes());
            }
        }
        let Time { seconds, nanos } = meta.mtime;
        let is_plain = nanos == 0 && u64::try_from(seconds).is_ok_and(|it| it <= octal_max(MTIME));
        if !is_plain {
            records.add(b"mtime", decimal(meta.mtime).as_bytes());
        }
        for (key, value) in &meta.xattrs {
            records.add(&[b"SCHILY.xattr.", &keyword(key)[..]].concat(), value);
        }
        // With --acls, GNU tar takes lists from these alone.
        for (name, key) in
            [(acl::ACCESS, &b"SCHILY.acl.access"[..]), (acl::DEFAULT, b"SCHILY.acl.default")]
        {
            let list = meta.xattrs.iter().find(|(it, _)| it == name);
            if let Some(text) = list.and_then(|(_, list)| acl::text(list)) {
                records.add(key, text.as_bytes());
            }
        }
    }

    fn header(&self, name: &[u8], link: &[u8], stored: u64) -> TarHeader {
        let meta = self.meta;
        let mut header = TarHeader::new(name, self.type_flag());
        header.number(MODE, u64::from(meta.mode & 0o7777));
        header.number(UID, meta.uid.into());
        header.number(GID, meta.gid.into());
        header.number(SIZE, stored);
        header.number(MTIME, u64::try_from(meta.mtime.seconds).unwrap_or(0));
        header.text(LINK, link);
        if matches!(meta.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            header.number(MAJOR, meta.rdev.0.into());
            header.number(MINOR, meta.rdev.1.into());
        }
        header
    }

    fn type_flag(&self) -> u8 {
        if self.link_to.is_some() {
            return b'1';
        }
        match self.meta.kind {
            FileKind::File | FileKind::Socket => b'0',
            FileKind::Symlink => b'2',
            FileKind::CharDevice => b'3',
            FileKind::BlockDevice => b'4',
            FileKind::Directory => b'5',
            FileKind::Fifo => b'6',
        }
    }
}

/// The number of zero bytes that pad content of this length to full blocks.
pub fn padding(bytes: u64) -> usize {
    (bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes) as usize
}

/// The number of zero bytes that end an archive of this length.
pub fn ending(bytes: u64) -> usize {
    let end = bytes + 2 * BLOCK_BYTES as u64;
    (end.next_multiple_of(ARCHIVE_BLOCK_BYTES) - bytes) as usize
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
}

fn fits_plainly(text: &[u8], bytes: usize) -> bool {
    text.len() <= bytes && text.is_ascii()
}

/// Encodes the map before a sparse file's data: the number of data ranges, then offset and length
/// of each. An empty run at the end marks a trailing hole.
fn sparse_map(runs: &[Range<u64>], size: u64) -> Vec<u8> {
    let has_end = runs.last().is_none_or(|run| run.end < size);
    let end = has_end.then_some(size..size);
    let mut text = format!("{}\n", runs.len() + usize::from(has_end));
    for run in runs.iter().chain(&end) {
        text += &format!("{}\n{}\n", run.start, run.end - run.start);
    }
    let mut map = text.into_bytes();
    pad(&mut map);
    map
}

/// The name that readers without support for sparse files see.
fn sparse_name(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..at], b"GNUSparseFile.0/", &path[at..]].concat()
}

/// Formats the time as seconds in decimal; before 1970, seconds and fraction both count back.
fn decimal(Time { seconds, nanos }: Time) -> String {
    let (sign, seconds, nanos) = match (seconds < 0, nanos) {
        (true, 1..) => ("-", (seconds + 1).unsigned_abs(), 1_000_000_000_u32.saturating_sub(nanos)),
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (false, _) => ("", seconds.unsigned_abs(), nanos),
    };
    match nanos {
        0 => format!("{sign}{seconds}"),
        _ => format!("{sign}{seconds}.{nanos:09}"),
    }
}

/// Returns an attribute's name as part of a record's key, which ends at the first `=`.
fn keyword(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b'=' => out.extend_from_slice(b"%3D"),
            _ => out.push(byte),
        }
    }
    out
}

/// The records of an extended header.
#[derive(Default)]
struct TarRecords {
    bytes: Vec<u8>,
}

impl TarRecords {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3; // a space, an equals sign, a newline
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.bytes.extend_from_slice(format!("{length} ").as_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.push(b'=');
        self.bytes.extend_from_slice(value);
        self.bytes.push(b'\n');
    }
}

type Field = Range<usize>;
const NAME: Field = 0..100;
const MODE: Field = 100..108;
const UID: Field = 108..116;
const GID: Field = 116..124;
const SIZE: Field = 124..136;
const MTIME: Field = 136..148;
const SUM: Field = 148..156;
const TYPE: usize = 156;
const LINK: Field = 157..257;
const MAGIC: Field = 257..265;
const MAJOR: Field = 329..337;
const MINOR: Field = 337..345;

/// The largest number that a field of octal digits and a NUL can hold.
fn octal_max(field: Field) -> u64 {
    (1 << (3 * (field.len() - 1))) - 1
}

struct TarHeader([u8; BLOCK_BYTES]);

impl TarHeader {
    fn new(name: &[u8], type_flag: u8) -> Self {
        let mut header = TarHeader([0; BLOCK_BYTES]);
        header.text(NAME, name);
        header.0[TYPE] = type_flag;
        header.text(MAGIC, b"ustar\x0000");
        for field in [MODE, UID, GID, SIZE, MTIME, MAJOR, MINOR] {
            header.number(field, 0);
        }
        header
    }

    /// Writes a name to a header field; a name that is too long is truncated in the field and
    /// complete in a record.
    fn text(&mut self, field: Field, text: &[u8]) {
        let text = &text[..text.len().min(field.len())];
        self.0[field][..text.len()].copy_from_slice(text);
    }

    /// Writes a number to a header field; a number that is too large becomes the field's maximum,
    /// and the true number goes into a record.
    fn number(&mut self, field: Field, number: u64) {
        let digits = field.len() - 1;
        let text = format!("{:0digits$o}", number.min(octal_max(field.clone())));
        self.0[field][..digits].copy_from_slice(text.as_bytes());
    }

    fn sealed(mut self) -> [u8; BLOCK_BYTES] {
        self.0[SUM].fill(b' ');
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.0[SUM][..7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn meta(kind: FileKind) -> Metadata {
        let mtime = Time { seconds: 1_700_000_000, nanos: 0 };
        Metadata { kind, mode: 0o644, uid: 1, gid: 2, mtime, rdev: (0, 0), xattrs: Vec::new() }
    }

    fn entry<'e>(path: &'e [u8], meta: &'e Metadata) -> TarEntry<'e> {
        TarEntry { path, meta, target: b"", link_to: None, size_bytes: 0, sparse: None }
    }

    /// A pax record: key and value.
    type Fact = (Vec<u8>, Vec<u8>);

    /// The archive of one entry as another reader sees it: its records, and the entry's facts.
    fn read(entry: &TarEntry<'_>, content: &[u8]) -> (Vec<Fact>, tar::Header) {
        let mut bytes = entry.head();
        assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + padding(content.len() as u64), 0);
        bytes.resize(bytes.len() + ending(bytes.len() as u64), 0);
        assert_eq!(bytes.len() % ARCHIVE_BLOCK_BYTES as usize, 0);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entries = archive.entries().unwrap();
        let mut found = entries.next().unwrap().unwrap();
        let mut records = Vec::new();
        if let Some(all) = found.pax_extensions().unwrap() {
            for record in all {
                let record = record.unwrap();
                records.push((record.key_bytes().to_vec(), record.value_bytes().to_vec()));
            }
        }
        let mut whole = Vec::new();
        found.read_to_end(&mut whole).unwrap();
        let header = found.header().clone();
        assert!(entries.next().is_none());
        (records, header)
    }

    #[test]
    fn a_plain_entry_needs_no_extended_header() {
        let meta = meta(FileKind::File);
        let plain = TarEntry { size_bytes: 5, ..entry(b"a/b", &meta) };
        assert_eq!(plain.head().len(), BLOCK_BYTES);
        let (records, header) = read(&plain, b"hello");
        assert!(records.is_empty());
        assert_eq!(header.path_bytes().as_ref(), b"a/b");
        assert_eq!((header.mode().unwrap(), header.uid().unwrap()), (0o644, 1));
        assert_eq!((header.size().unwrap(), header.mtime().unwrap()), (5, 1_700_000_000));
    }

    #[test]
    fn what_does_not_fit_stands_in_records() {
        let mut meta = meta(FileKind::Symlink);
        (meta.uid, meta.mtime) = (u32::MAX - 1, Time { seconds: -2, nanos: 500_000_000 });
        meta.xattrs = vec![(b"user.a=b%".to_vec(), b"x\0=y".to_vec())];
        let long = [b'n'; 300];
        let odd = TarEntry { target: b"to \xff", ..entry(&long, &meta) };
        let (records, header) = read(&odd, b"");
        let uid = (u32::MAX - 1).to_string();
        let wanted = [
            (&b"hdrcharset"[..], &b"BINARY"[..]),
            (b"path", &long),
            (b"linkpath", b"to \xff"),
            (b"uid", uid.as_bytes()),
            (b"mtime", b"-1.500000000"),
            (b"SCHILY.xattr.user.a%3Db%25", b"x\0=y"),
        ];
        let wanted = wanted.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(records, wanted);
        assert_eq!(header.entry_type(), tar::EntryType::Symlink);
    }

    #[test]
    fn records_count_themselves() {
        for value in [0, 1, 80, 85, 86, 87, 88, 89, 90, 91, 92, 93, 980, 985, 986, 987, 990, 10_000]
        {
            let mut records = TarRecords::default();
            records.add(b"k", &vec![b'v'; value]);
            let text = std::str::from_utf8(&records.bytes).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn times_read_as_decimals() {
        for (seconds, nanos, text) in [
            (0, 0, "0"),
            (5, 1, "5.000000001"),
            (-1, 0, "-1"),
            (-1, 500_000_000, "-0.500000000"),
            (-3, 999_999_999, "-2.000000001"),
        ] {
            assert_eq!(decimal(Time { seconds, nanos }), text);
        }
    }

    #[test]
    fn a_sparse_file_has_its_map_before_its_data() {
        let meta = meta(FileKind::File);
        let runs = [512..1024, 4096..4100];
        let sparse = TarEntry { size_bytes: 8192, sparse: Some(&runs), ..entry(b"d/s", &meta) };
        assert_eq!(sparse.stored_bytes(), 516);
        let head = sparse.head();
        let map = &head[head.len() - BLOCK_BYTES..];
        assert!(map.starts_with(b"3\n512\n512\n4096\n4\n8192\n0\n\0"));
        assert!(sparse_map(std::slice::from_ref(&(0..10)), 10).starts_with(b"1\n0\n10\n\0"));
        assert!(sparse_map(&[], 10).starts_with(b"1\n10\n0\n\0"));
        assert_eq!(sparse_name(b"d/s"), b"d/GNUSparseFile.0/s");
    }

    #[test]
    fn huge_files_have_their_size_in_a_record() {
        let meta = meta(FileKind::File);
        let huge = TarEntry { size_bytes: 9 << 30, ..entry(b"huge", &meta) };
        let head = huge.head();
        let text = String::from_utf8_lossy(&head);
        assert!(text.contains("19 size=9663676416\n"), "{text}");
    }
}
