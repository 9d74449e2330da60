//! The messages about the catalog that the hosts of a server share.
//!
//! ```text
//! POST /v1/VOLUME/catalog        a request of one piece (`CatalogRequest`)
//! POST /v1/VOLUME/catalog/rows   the changes of one snapshot, as frames
//! ```
//!
//! `catalog_frames` describes frames.

use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::{
    CatalogQuestion, CatalogSize, Facts, Glob, Query, SharedHead, SnapshotSync, kind_and_mode,
};

/// The header of an answer to a look whose server has a catalog.
pub const CATALOG_HEADER: &str = "pinstripe-catalog";
/// The most bytes of a request of one piece.
pub const CATALOG_REQUEST_MAX_BYTES: usize = 8 << 20;
/// A request of one piece.
#[derive(Debug, Clone)]
pub enum CatalogRequest {
    /// How the catalog differs from the snapshots that the store lists.
    Compare {
        /// The snapshots of the store that the host sees.
        listed: Vec<SnapshotId>,
        /// Whether snapshots of all hosts are compared.
        all_hosts: bool,
    },
    /// The head of a series.
    Head {
        /// A snapshot that may become the next one of the series; for its owner.
        id: SnapshotId,
        /// The host in the snapshot.
        host: Vec<u8>,
        /// The sources of the snapshot.
        sources: Vec<Vec<u8>>,
    },
    /// Removes snapshots.
    LetGo(Vec<SnapshotId>),
    /// Removes all snapshots.
    Clear,
    /// The size of the catalog.
    Size,
    /// Rows or snapshots; the answer consists of frames.
    Ask {
        /// The question.
        question: CatalogQuestion,
        /// Whether snapshots of all hosts are searched.
        all_hosts: bool,
    },
}

fn write_ids(writer: &mut Writer<'_>, ids: &[SnapshotId]) {
    writer.varint(ids.len() as u64);
    for id in ids {
        writer.raw(&id.0);
    }
}

fn read_ids(reader: &mut Reader<'_>) -> Result<Vec<SnapshotId>> {
    let count = reader.count(16)?;
    (0..count).map(|_| reader.array().map(SnapshotId)).collect()
}

pub(crate) fn read_flag(reader: &mut Reader<'_>) -> Result<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.corrupt("a flag of the message is invalid")),
    }
}

impl CatalogRequest {
    /// Encodes the request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        match self {
            CatalogRequest::Compare { listed, all_hosts } => {
                write_ids(writer.u8(0).u8(u8::from(*all_hosts)), listed);
            }
            CatalogRequest::Head { id, host, sources } => {
                writer.u8(1).raw(&id.0).bytes(host).varint(sources.len() as u64);
                for source in sources {
                    writer.bytes(source);
                }
            }
            CatalogRequest::LetGo(ids) => write_ids(writer.u8(2), ids),
            CatalogRequest::Clear => {
                writer.u8(3);
            }
            CatalogRequest::Size => {
                writer.u8(4);
            }
            CatalogRequest::Ask { question, all_hosts } => {
                write_question(writer.u8(5).u8(u8::from(*all_hosts)), question);
            }
        }
        out
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for bytes that are not such a request, or with [`Kind::Usage`]
    /// for a pattern that could match nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "request to the catalog");
        let request = match reader.u8()? {
            0 => {
                let all_hosts = read_flag(&mut reader)?;
                CatalogRequest::Compare { listed: read_ids(&mut reader)?, all_hosts }
            }
            1 => {
                let (id, host) = (SnapshotId(reader.array()?), reader.bytes()?.to_vec());
                let count = reader.count(1)?;
                let sources = (0..count).map(|_| Ok(reader.bytes()?.to_vec()));
                CatalogRequest::Head { id, host, sources: sources.collect::<Result<_>>()? }
            }
            2 => CatalogRequest::LetGo(read_ids(&mut reader)?),
            3 => CatalogRequest::Clear,
            4 => CatalogRequest::Size,
            5 => {
                let all_hosts = read_flag(&mut reader)?;
                CatalogRequest::Ask { question: read_question(&mut reader)?, all_hosts }
            }
            _ => return Err(reader.corrupt("the request is of an unknown kind")),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn write_question(writer: &mut Writer<'_>, question: &CatalogQuestion) {
    match question {
        CatalogQuestion::Find(Query { glob, host, snapshots, kind, size, mtime }) => {
            writer.u8(0).bytes(glob.text()).u8(u8::from(host.is_some()));
            writer.bytes(host.as_deref().unwrap_or_default());
            writer.u8(u8::from(snapshots.is_some()));
            write_ids(writer, &snapshots.iter().flatten().copied().collect::<Vec<_>>());
            let kind = kind.map_or(0, |kind| Facts::of_kind(kind).kind_and_mode() as u8 + 1);
            writer.u8(kind).u64(size.start).u64(size.end).i64(mtime.start).i64(mtime.end);
        }
        CatalogQuestion::History(path) => {
            writer.u8(1).bytes(path);
        }
        CatalogQuestion::Diff(old, new) => {
            writer.u8(2).raw(&old.0).raw(&new.0);
        }
        CatalogQuestion::Snapshots => {
            writer.u8(3);
        }
    }
}

fn read_question(reader: &mut Reader<'_>) -> Result<CatalogQuestion> {
    Ok(match reader.u8()? {
        0 => {
            let mut query = Query::new(Glob::new(reader.bytes()?)?);
            let has_host = read_flag(reader)?;
            query.host = Some(reader.bytes()?.to_vec()).filter(|_| has_host);
            let has_snapshots = read_flag(reader)?;
            query.snapshots =
                Some(read_ids(reader)?.into_iter().collect()).filter(|_| has_snapshots);
            query.kind = match reader.u8()? {
                0 => None,
                kind => match kind_and_mode(i64::from(kind - 1)) {
                    Some((kind, 0)) => Some(kind),
                    _ => return Err(reader.corrupt("the search is for an unknown type")),
                },
            };
            query.size = reader.u64()?..reader.u64()?;
            query.mtime = reader.i64()?..reader.i64()?;
            CatalogQuestion::Find(query)
        }
        1 => CatalogQuestion::History(reader.bytes()?.to_vec()),
        2 => CatalogQuestion::Diff(SnapshotId(reader.array()?), SnapshotId(reader.array()?)),
        3 => CatalogQuestion::Snapshots,
        _ => return Err(reader.corrupt("the question is of an unknown kind")),
    })
}

/// Encodes the answer to a comparison.
#[must_use]
pub fn encode_sync(sync: &SnapshotSync) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    for ids in [&sync.missing, &sync.of_others, &sync.gone] {
        write_ids(&mut writer, ids);
    }
    out
}

/// Decodes the answer to a comparison.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for other bytes.
pub fn decode_sync(bytes: &[u8]) -> Result<SnapshotSync> {
    let mut reader = Reader::new(bytes, "answer of the catalog");
    let mut ids = || read_ids(&mut reader);
    let sync = SnapshotSync { missing: ids()?, of_others: ids()?, gone: ids()? };
    reader.finish()?;
    Ok(sync)
}

/// Encodes the head of a series.
#[must_use]
pub fn encode_head(head: Option<&SharedHead>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(SharedHead { id, root }) = head {
        Writer::new(&mut out).raw(&id.0).raw(&root.id.0).u8(root.height).u64(root.entries);
    }
    out
}

/// Decodes the head of a series; `None` if there is no series.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for other bytes.
pub fn decode_head(bytes: &[u8]) -> Result<Option<SharedHead>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes, "answer of the catalog");
    let id = SnapshotId(reader.array()?);
    let root = ChunkId(reader.array()?);
    let root = TreeRoot { id: root, height: reader.u8()?, entries: reader.u64()? };
    reader.finish()?;
    Ok(Some(SharedHead { id, root }))
}

/// Encodes the size of the catalog.
#[must_use]
pub fn encode_size(size: &CatalogSize) -> Vec<u8> {
    let mut out = Vec::new();
    let CatalogSize { snapshots, series, versions, bytes } = *size;
    Writer::new(&mut out).u64(snapshots).u64(series).u64(versions).u64(bytes);
    out
}

/// Decodes the size of the catalog.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for other bytes.
pub(crate) fn decode_size(bytes: &[u8]) -> Result<CatalogSize> {
    let mut reader = Reader::new(bytes, "answer of the catalog");
    let mut number = || reader.u64();
    let (snapshots, series) = (number()?, number()?);
    let size = CatalogSize { snapshots, series, versions: number()?, bytes: number()? };
    reader.finish()?;
    Ok(size)
}

/// Encodes a count.
#[must_use]
pub fn encode_count(count: u64) -> Vec<u8> {
    count.to_le_bytes().to_vec()
}

/// Decodes a count.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for other bytes.
pub(crate) fn decode_count(bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(bytes, "answer of the catalog");
    let count = reader.u64()?;
    reader.finish()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;
    use pinstripe_member::meta::FileKind;

    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let id = |byte| SnapshotId([byte; 16]);
        let mut query = Query::new(Glob::new(b"*.c").unwrap());
        query.host = Some(b"h".to_vec());
        query.snapshots = Some([id(1)].into());
        query.kind = Some(FileKind::Symlink);
        query.size = 3..9;
        query.mtime = -4..7;
        let ask = |question| CatalogRequest::Ask { question, all_hosts: true };
        for request in [
            CatalogRequest::Compare { listed: vec![id(1), id(2)], all_hosts: true },
            CatalogRequest::Head { id: id(1), host: b"h".to_vec(), sources: vec![b"a".to_vec()] },
            CatalogRequest::LetGo(vec![id(3)]),
            CatalogRequest::Clear,
            CatalogRequest::Size,
            ask(CatalogQuestion::Find(query)),
            ask(CatalogQuestion::Find(Query::new(Glob::new(b"build/").unwrap()))),
            ask(CatalogQuestion::History(b"etc/passwd".to_vec())),
            ask(CatalogQuestion::Diff(id(1), id(2))),
            ask(CatalogQuestion::Snapshots),
        ] {
            let bytes = request.encode();
            let again = CatalogRequest::decode(&bytes).unwrap();
            assert_eq!(format!("{again:?}"), format!("{request:?}"));
            for cut in 0..bytes.len() {
                assert!(CatalogRequest::decode(&bytes[..cut]).is_err(), "{request:?} {cut}");
            }
        }
        let bad = CatalogRequest::decode(&[5, 0, 0, 1, b'/']).unwrap_err();
        assert_eq!(bad.kind(), Kind::Usage);
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let id = |byte| SnapshotId([byte; 16]);
        let sync = SnapshotSync { missing: vec![id(1)], of_others: Vec::new(), gone: vec![id(2)] };
        assert_eq!(decode_sync(&encode_sync(&sync)).unwrap(), sync);
        let root = TreeRoot { id: ChunkId([5; 32]), height: 2, entries: 7 };
        let head = SharedHead { id: id(1), root };
        assert_eq!(decode_head(&encode_head(Some(&head))).unwrap(), Some(head));
        assert_eq!(decode_head(&encode_head(None)).unwrap(), None);
        let size = CatalogSize { snapshots: 1, series: 2, versions: 3, bytes: 4 };
        assert_eq!(decode_size(&encode_size(&size)).unwrap(), size);
        assert_eq!(decode_count(&encode_count(9)).unwrap(), 9);
    }
}
