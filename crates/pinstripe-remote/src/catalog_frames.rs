//! The frames of rows that a host sends to the shared catalog, and of the answers.
//!
//! A frame is a length (4 bytes), a kind (1 byte), content. The last frame of rows has the number of
//! changes; the last frame of an answer is empty. A stream without its last frame is cut and counts
//! for nothing. Paths of rows are strictly ascending in path order, and each names only the bytes
//! that differ from the path before it in its frame.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, StoreId};
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tree::compare_paths;
use pinstripe_member::{AnswerRow, Change, Facts, Holder, SnapshotSeries, kind_and_mode};

use crate::catalog_messages::read_flag;
use crate::protocol::{SentError, error_from};

/// The most bytes of a frame.
pub(crate) const FRAME_MAX_BYTES: usize = 1 << 20;
/// A frame is sent when it has this many bytes.
const FRAME_FULL_BYTES: usize = FRAME_MAX_BYTES / 2;
/// The longest path in a row.
pub(crate) const ROW_PATH_MAX_BYTES: usize = 32 << 10;
/// The longest name in a row: a B-tree of PostgreSQL takes no long keys.
pub(crate) const ROW_NAME_MAX_BYTES: usize = 1024;
/// Nanoseconds of a time are below this.
const NANOS: u32 = 1_000_000_000;
/// The highest ordinal.
const ORDINAL_MAX: u64 = i32::MAX as u64;

const HEAD: u8 = 1;
const CHANGES: u8 = 2;
const ROWS_END: u8 = 3;
const SERIES: u8 = 4;
const HOLDERS: u8 = 5;
const ROWS: u8 = 6;
const SNAPSHOT: u8 = 7;
const ANSWER_END: u8 = 8;
const FAILED: u8 = 9;

/// Splits a stream of pieces into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    read: usize,
}

impl FrameReader {
    /// Adds a piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(piece);
    }

    /// The next complete frame: its kind and its content.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for an impossible length.
    pub fn next_frame(&mut self) -> Result<Option<(u8, &[u8])>> {
        let rest = &self.bytes[self.read..];
        let Some((length, content)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > FRAME_MAX_BYTES {
            return Err(Error::new(Kind::Corrupt, "a frame has an impossible length"));
        }
        if content.len() < length {
            return Ok(None);
        }
        let begin = self.read + 4;
        self.read = begin + length;
        Ok(Some((self.bytes[begin], &self.bytes[begin + 1..begin + length])))
    }

    /// Whether all bytes were read as frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }
}

fn frame(kind: u8, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    fill(Writer::new(&mut out).u8(kind));
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// The first frame of rows: the snapshot, and the one before it in its series.
#[must_use]
pub fn encode_rows_head(snapshot: &Snapshot, base: Option<SnapshotId>) -> Vec<u8> {
    frame(HEAD, |writer| {
        writer.u8(u8::from(base.is_some())).raw(&base.map_or([0; 16], |base| base.0));
        writer.raw(&snapshot.id.0).raw(&snapshot.encode_fields());
    })
}

/// The last frame of rows.
#[must_use]
pub fn encode_rows_end(changes: u64) -> Vec<u8> {
    frame(ROWS_END, |writer| {
        writer.u64(changes);
    })
}

/// Encodes changes into frames.
#[must_use]
pub fn encode_changes(changes: &[Change]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = changes.iter().peekable();
    while rest.peek().is_some() {
        frames.push(frame(CHANGES, |writer| {
            let begin = writer.position();
            let mut last: &[u8] = b"";
            while writer.position() - begin < FRAME_FULL_BYTES {
                let Some(change) = rest.next() else { break };
                let (kind, facts) = match change {
                    Change::Added(_, facts) => (0, Some(facts)),
                    Change::Changed(_, facts) => (1, Some(facts)),
                    Change::Removed(_) => (2, None),
                };
                write_path(writer.u8(kind), &mut last, change.path());
                if let Some(facts) = facts {
                    write_facts(writer, facts);
                }
            }
        }));
    }
    frames
}

fn write_path<'p>(writer: &mut Writer<'_>, last: &mut &'p [u8], path: &'p [u8]) {
    let shared = last.iter().zip(path).take_while(|(l, r)| l == r).count();
    writer.varint(shared as u64).bytes(&path[shared..]);
    *last = path;
}

/// Reads a path into `path`, which has the path before it.
fn read_path(reader: &mut Reader<'_>, path: &mut Vec<u8>) -> Result<()> {
    let shared = reader.varint()?;
    let rest = reader.bytes()?;
    if shared > path.len() as u64 || shared as usize + rest.len() > ROW_PATH_MAX_BYTES {
        return Err(reader.corrupt("a path has an impossible length"));
    }
    path.truncate(shared as usize);
    path.extend_from_slice(rest);
    Ok(())
}

fn write_facts(writer: &mut Writer<'_>, facts: &Facts) {
    writer.varint(facts.kind_and_mode() as u64).varint(facts.size);
    writer.signed_varint(facts.mtime.seconds).varint(u64::from(facts.mtime.nanos));
    writer.i64(facts.content);
}

fn read_facts(reader: &mut Reader<'_>) -> Result<Facts> {
    let (number, size) = (reader.varint()?, reader.varint()?);
    let (seconds, nanos) = (reader.signed_varint()?, reader.varint()?);
    let content = reader.i64()?;
    let known = i64::try_from(number).ok().and_then(kind_and_mode);
    let Some((kind, mode)) = known.filter(|(_, mode)| *mode <= 0o7777) else {
        return Err(reader.corrupt("a row has an impossible type or mode"));
    };
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < NANOS);
    let Some(nanos) = nanos else { return Err(reader.corrupt("a row has an impossible time")) };
    Ok(Facts { kind, mode, size, mtime: Time { seconds, nanos }, content })
}

/// How a path of a row changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The path did not exist before.
    Added,
    /// The path has a new version.
    Changed,
    /// The path no longer exists.
    Removed,
}

/// A change as the server reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentChange {
    /// How the path changes.
    pub kind: ChangeKind,
    /// The path.
    pub path: Vec<u8>,
    /// The new version; without meaning for a path that was removed.
    pub facts: Facts,
}

/// A frame of rows.
#[derive(Debug)]
pub enum RowsFrame {
    /// The first one: the snapshot, and the one before it in its series.
    Head(Box<Snapshot>, Option<SnapshotId>),
    /// Changes.
    Changes(Vec<SentChange>),
    /// The last one, with the number of changes.
    End(u64),
}

impl RowsFrame {
    /// Decodes a frame. Paths must come after `after`.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that are not such a frame.
    pub fn decode(store: StoreId, kind: u8, content: &[u8], after: Option<&[u8]>) -> Result<Self> {
        let mut reader = Reader::new(content, "frame of rows");
        match kind {
            HEAD => {
                let has_base = read_flag(&mut reader)?;
                let (base, id) = (SnapshotId(reader.array()?), SnapshotId(reader.array()?));
                let snapshot = Snapshot::decode_fields(store, id, reader.rest())?;
                if snapshot.created_nanos >= NANOS {
                    return Err(reader.corrupt("the snapshot has an impossible time"));
                }
                Ok(RowsFrame::Head(Box::new(snapshot), Some(base).filter(|_| has_base)))
            }
            CHANGES => read_changes(reader, after).map(RowsFrame::Changes),
            ROWS_END => {
                let count = reader.u64()?;
                reader.finish()?;
                Ok(RowsFrame::End(count))
            }
            _ => Err(reader.corrupt("the frame is of an unknown kind")),
        }
    }
}

fn read_changes(mut reader: Reader<'_>, after: Option<&[u8]>) -> Result<Vec<SentChange>> {
    let (mut changes, mut path): (Vec<SentChange>, _) = (Vec::new(), Vec::new());
    while !reader.is_empty() {
        let kind = match reader.u8()? {
            0 => ChangeKind::Added,
            1 => ChangeKind::Changed,
            2 => ChangeKind::Removed,
            _ => return Err(reader.corrupt("a change is of an unknown kind")),
        };
        read_path(&mut reader, &mut path)?;
        let before = changes.last().map(|it| &it.path[..]).or(after);
        if before.is_some_and(|before| compare_paths(before, &path).is_ge()) {
            return Err(reader.corrupt("the paths of rows are not ascending"));
        }
        let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        if path.len() - name > ROW_NAME_MAX_BYTES {
            return Err(reader.corrupt("a name is longer than 1024 bytes"));
        }
        let facts = match kind {
            ChangeKind::Removed => Facts::of_kind(FileKind::File),
            _ => read_facts(&mut reader)?,
        };
        changes.push(SentChange { kind, path: path.clone(), facts });
    }
    Ok(changes)
}

/// Encodes an answer.
#[derive(Debug, Default)]
pub struct AnswerWriter {
    frames: Vec<Vec<u8>>,
    rows: Vec<u8>,
    last: Vec<u8>,
}

/// The holders in one frame.
const HOLDERS_MAX: usize = 16 << 10;

impl AnswerWriter {
    /// Adds a series. All series come before the first row.
    ///
    /// # Errors
    /// Fails if host and sources are too long for a frame.
    pub fn series(&mut self, series: &SnapshotSeries) -> Result<()> {
        self.push(frame(SERIES, |writer| {
            writer.bytes(&series.host).varint(series.sources.len() as u64);
            for source in &series.sources {
                writer.bytes(source);
            }
        }))?;
        for holders in series.snapshots.chunks(HOLDERS_MAX) {
            self.push(frame(HOLDERS, |writer| {
                for Holder { ordinal, id, created } in holders {
                    writer.varint(*ordinal as u64).raw(&id.0);
                    writer.i64(created.seconds).u32(created.nanos);
                }
            }))?;
        }
        Ok(())
    }

    fn push(&mut self, frame: Vec<u8>) -> Result<()> {
        if frame.len() - 4 > FRAME_MAX_BYTES {
            return Err(Error::new(Kind::Unsupported, "a part of the answer is too long"));
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Adds a row.
    pub fn row(&mut self, row: &AnswerRow) {
        let mut writer = Writer::new(&mut self.rows);
        writer.varint(row.series as u64);
        write_path(&mut writer, &mut &self.last[..], &row.path);
        write_facts(&mut writer, &row.facts);
        writer.varint(row.first as u64).varint(row.last.map_or(0, |last| last as u64 + 1));
        self.last.clone_from(&row.path);
        if self.rows.len() >= FRAME_FULL_BYTES {
            self.end_rows();
        }
    }

    fn end_rows(&mut self) {
        self.last.clear();
        if !self.rows.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            self.frames.push(frame(ROWS, |writer| {
                writer.raw(&rows);
            }));
        }
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// Fails if the snapshot is too long for a frame.
    pub fn snapshot(&mut self, id: SnapshotId, fields: &[u8]) -> Result<()> {
        self.push(frame(SNAPSHOT, |writer| {
            writer.raw(&id.0).raw(fields);
        }))
    }

    /// Ends the answer.
    pub fn end(&mut self, result: Result<()>) {
        self.end_rows();
        self.frames.push(match result {
            Ok(()) => frame(ANSWER_END, |_| ()),
            Err(error) => {
                let sent = serde_json::to_vec(&SentError::from_error(&error)).unwrap_or_default();
                frame(FAILED, |writer| {
                    writer.raw(&sent);
                })
            }
        });
    }

    /// Takes the complete frames.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.frames)
    }
}

/// A frame of an answer.
#[derive(Debug)]
pub enum AnswerFrame {
    /// A series begins; its snapshots follow.
    Series(SnapshotSeries),
    /// More snapshots of the last series.
    Holders(Vec<Holder>),
    /// Rows.
    Rows(Vec<AnswerRow>),
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// The end of the answer.
    End,
}

impl AnswerFrame {
    /// Decodes a frame.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that are not such a frame, or with the error that the
    /// server sent.
    pub fn decode(store: StoreId, kind: u8, content: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(content, "answer of the catalog");
        let frame = match kind {
            SERIES => {
                let host = reader.bytes()?.to_vec();
                let count = reader.count(1)?;
                let sources = (0..count).map(|_| Ok(reader.bytes()?.to_vec()));
                let sources = sources.collect::<Result<_>>()?;
                AnswerFrame::Series(SnapshotSeries { id: 0, host, sources, snapshots: Vec::new() })
            }
            HOLDERS => AnswerFrame::Holders(read_holders(&mut reader)?),
            ROWS => AnswerFrame::Rows(read_rows(&mut reader)?),
            SNAPSHOT => {
                let id = SnapshotId(reader.array()?);
                let snapshot = Snapshot::decode_fields(store, id, reader.rest())?;
                AnswerFrame::Snapshot(Box::new(snapshot))
            }
            ANSWER_END => AnswerFrame::End,
            FAILED => return Err(error_from(content)),
            _ => return Err(reader.corrupt("the frame is of an unknown kind")),
        };
        reader.finish()?;
        Ok(frame)
    }
}

fn read_ordinal(reader: &mut Reader<'_>) -> Result<i64> {
    match reader.varint()? {
        ordinal if ordinal <= ORDINAL_MAX + 1 => Ok(ordinal as i64),
        _ => Err(reader.corrupt("an ordinal is impossible")),
    }
}

fn read_holders(reader: &mut Reader<'_>) -> Result<Vec<Holder>> {
    let mut holders = Vec::new();
    while !reader.is_empty() {
        let (ordinal, id) = (read_ordinal(reader)?, SnapshotId(reader.array()?));
        let created = Time { seconds: reader.i64()?, nanos: reader.u32()? };
        holders.push(Holder { ordinal, id, created });
    }
    Ok(holders)
}

fn read_rows(reader: &mut Reader<'_>) -> Result<Vec<AnswerRow>> {
    let (mut rows, mut path) = (Vec::new(), Vec::new());
    while !reader.is_empty() {
        let series = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        read_path(reader, &mut path)?;
        let facts = read_facts(reader)?;
        let (first, last) = (read_ordinal(reader)?, read_ordinal(reader)?);
        let last = (last > 0).then(|| last - 1);
        rows.push(AnswerRow { series, path: path.clone(), facts, first, last });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use pinstripe_base::id::ChunkId;
    use pinstripe_member::snapshot::TreeRoot;

    use super::*;

    fn facts(size: u64) -> Facts {
        let mtime = Time { seconds: -5, nanos: 999_999_999 };
        Facts { mode: 0o7777, size, mtime, content: -1, ..Facts::of_kind(FileKind::BlockDevice) }
    }

    fn read(bytes: &[u8], piece: usize) -> Vec<(u8, Vec<u8>)> {
        let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            while let Some((kind, content)) = reader.next_frame().unwrap() {
                frames.push((kind, content.to_vec()));
            }
        }
        assert!(reader.is_empty());
        frames
    }

    #[test]
    fn rows_are_read_as_they_were_written_whatever_the_pieces_are() {
        let store = StoreId([7; 16]);
        let snapshot = Snapshot {
            store,
            id: SnapshotId([1; 16]),
            created_seconds: 1,
            created_nanos: 2,
            host: b"h".to_vec(),
            program: "p".into(),
            sources: vec![b"etc".to_vec()],
            parent: None,
            root: TreeRoot { id: ChunkId([3; 32]), height: 1, entries: 2 },
            counts: Vec::new(),
            tags: Vec::new(),
            comment: String::new(),
        };
        let changes = [
            Change::Added(b"".to_vec(), facts(0)),
            Change::Changed(b"etc/a\xff".to_vec(), facts(u64::MAX)),
            Change::Removed(b"etc/b".to_vec()),
        ];
        let mut bytes = encode_rows_head(&snapshot, Some(SnapshotId([9; 16])));
        bytes.extend(encode_changes(&changes).concat());
        bytes.extend(encode_rows_end(3));
        for piece in [1, 3, 7, bytes.len()] {
            let frames = read(&bytes, piece);
            let decode =
                |at: usize| RowsFrame::decode(store, frames[at].0, &frames[at].1, None).unwrap();
            let RowsFrame::Head(found, base) = decode(0) else { panic!("no head") };
            assert_eq!((*found, base), (snapshot.clone(), Some(SnapshotId([9; 16]))));
            let RowsFrame::Changes(found) = decode(1) else { panic!("no changes") };
            let kinds = [ChangeKind::Added, ChangeKind::Changed, ChangeKind::Removed];
            assert_eq!(found.iter().map(|it| it.kind).collect::<Vec<_>>(), kinds);
            assert!(found.iter().zip(&changes).all(|(a, b)| a.path == b.path()));
            assert_eq!((found[0].facts, found[1].facts), (facts(0), facts(u64::MAX)));
            let RowsFrame::End(3) = decode(2) else { panic!("no end") };
        }
        let frames = read(&bytes, 64);
        let after = RowsFrame::decode(store, frames[1].0, &frames[1].1, Some(b"etc/a"));
        assert_eq!(after.unwrap_err().kind(), Kind::Corrupt);
        assert!(FrameReader { bytes: vec![0; 4], read: 0 }.next_frame().is_err());
        assert!(FrameReader { bytes: vec![0xff; 4], read: 0 }.next_frame().is_err());
    }

    #[test]
    fn many_changes_become_several_frames() {
        let path = |n: u32| format!("{}{n:09}", "d/".repeat(100)).into_bytes();
        let changes: Vec<_> = (0..60_000).map(|n| Change::Added(path(n), facts(9))).collect();
        let frames = encode_changes(&changes);
        assert!(frames.len() > 1 && frames.iter().all(|it| it.len() < FRAME_MAX_BYTES));
        let (mut count, mut last) = (0, None::<Vec<u8>>);
        for (kind, content) in read(&frames.concat(), 4096) {
            let frame = RowsFrame::decode(StoreId([7; 16]), kind, &content, last.as_deref());
            let RowsFrame::Changes(changes) = frame.unwrap() else { panic!("no changes") };
            count += changes.len();
            last = changes.last().map(|it| it.path.clone());
        }
        assert_eq!(count, 60_000);
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let holder = |byte: u8| Holder {
            ordinal: byte.into(),
            id: SnapshotId([byte; 16]),
            created: Time { seconds: 1, nanos: 2 },
        };
        let series = SnapshotSeries {
            id: 0,
            host: b"h".to_vec(),
            sources: vec![b"a".to_vec(), b"b".to_vec()],
            snapshots: vec![holder(1), holder(4)],
        };
        let row = |path: &[u8], last| AnswerRow {
            series: 0,
            path: path.to_vec(),
            facts: facts(1),
            first: 1,
            last,
        };
        let rows = [row(b"a/b", Some(1)), row(b"a/bc", None)];
        let mut writer = AnswerWriter::default();
        writer.series(&series).unwrap();
        rows.iter().for_each(|it| writer.row(it));
        writer.end(Ok(()));
        let frames = read(&writer.take().concat(), 5);
        let decode = |at: usize| AnswerFrame::decode(StoreId([7; 16]), frames[at].0, &frames[at].1);
        let AnswerFrame::Series(mut found) = decode(0).unwrap() else { panic!("no series") };
        let AnswerFrame::Holders(holders) = decode(1).unwrap() else { panic!("no holders") };
        found.snapshots = holders;
        assert_eq!(found, series);
        let AnswerFrame::Rows(found) = decode(2).unwrap() else { panic!("no rows") };
        assert_eq!(found, rows);
        assert!(matches!(decode(3).unwrap(), AnswerFrame::End));
        writer.end(Err(Error::new(Kind::Busy, "later")));
        let (kind, content) = read(&writer.take().concat(), 9).remove(0);
        let error = AnswerFrame::decode(StoreId([7; 16]), kind, &content).unwrap_err();
        assert_eq!((error.kind(), error.what()), (Kind::Busy, "later"));
    }
}
