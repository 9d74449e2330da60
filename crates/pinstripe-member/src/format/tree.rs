//! The tree of pages that holds a snapshot's entries, sorted by path.
//!
//! A page holds entries; a node holds the first path and the id of each of its children. Pages and
//! nodes are chunks, so an unchanged part of a tree is stored only once. The paths alone decide
//! where a page ends ([`PageEnds`]): one new file moves no other boundary.
//!
//! Path order compares component by component, byte by byte: a directory, everything below it, then
//! its next sibling. Path order is byte order in which `/` sorts before every other byte
//! ([`compare_paths`]).

use std::cmp::Ordering;

use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::{Reader, Writer};

/// The mean number of entries per page: a page ends after the first entry whose path is a page end.
const PAGE_MEAN_ENTRIES: u64 = 256;
/// A page ends when it has this many bytes, whatever its paths.
pub const PAGE_MAX_BYTES: usize = 128 << 10;
/// A node ends at this many children, or after a child whose id is a node end.
pub const NODE_MAX_CHILDREN: usize = 1024;
const NODE_MEAN_CHILDREN: u16 = 256;
/// The largest number of rows in one content list; a file with more chunks than this has a long
/// content.
pub const LIST_MAX_ROWS: usize = 4096;
const LIST_MEAN_ROWS: u16 = 2048;
/// The largest number of levels of nodes above the pages; no tree has 256^8 pages.
pub const HEIGHT_MAX: u8 = 8;

const _: () = assert!(PAGE_MEAN_ENTRIES.is_power_of_two());
const _: () = assert!(NODE_MEAN_CHILDREN.is_power_of_two() && LIST_MEAN_ROWS.is_power_of_two());

/// Path order.
pub fn compare_paths(left: &[u8], right: &[u8]) -> Ordering {
    let common = shared_len(left, right);
    let rank = |path: &[u8]| match path.get(common) {
        None => 0,
        Some(b'/') => 1,
        Some(&byte) => 2 + u16::from(byte),
    };
    rank(left).cmp(&rank(right))
}

/// Whether `path` is `ancestor` or below it; everything is below the empty path.
pub fn is_at_or_below(path: &[u8], ancestor: &[u8]) -> bool {
    ancestor.is_empty()
        || path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The number of bytes that two paths have in common at their beginning.
pub(crate) fn shared_len(left: &[u8], right: &[u8]) -> usize {
    let (left_words, right_words) = (left.as_chunks::<8>().0, right.as_chunks::<8>().0);
    for (at, (l, r)) in left_words.iter().zip(right_words).enumerate() {
        let differing = u64::from_le_bytes(*l) ^ u64::from_le_bytes(*r);
        if differing != 0 {
            return 8 * at + differing.trailing_zeros() as usize / 8;
        }
    }
    let same = 8 * left_words.len().min(right_words.len());
    same + left[same..].iter().zip(&right[same..]).take_while(|(l, r)| l == r).count()
}

const FNV_BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv_step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn ends_at(hash: u64) -> bool {
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40 & (PAGE_MEAN_ENTRIES - 1) == 0
}

/// Whether a page ends after the entry with this path, computed directly from the definition.
#[cfg(test)]
fn ends_page(path: &[u8]) -> bool {
    ends_at(path.iter().fold(FNV_BEGIN, |hash, &byte| fnv_step(hash, byte)))
}

/// Decides for one path after the other whether a page ends there, by a mixed FNV-1a hash of the
/// path. The hash up to each byte of the last path is kept, because neighbouring paths share most
/// of their bytes and FNV must process one byte after the other.
#[derive(Debug, Clone, Default)]
pub struct PageEnds {
    path: Vec<u8>,
    /// The hash after each byte of the path.
    hashes: Vec<u64>,
}

impl PageEnds {
    /// Whether the page ends after the entry with this path.
    pub fn after(&mut self, path: &[u8]) -> bool {
        let shared = shared_len(&self.path, path);
        self.path.truncate(shared);
        self.hashes.truncate(shared);
        self.path.extend_from_slice(&path[shared..]);
        let mut hash = self.hashes.last().copied().unwrap_or(FNV_BEGIN);
        self.hashes.extend(path[shared..].iter().map(|&byte| {
            hash = fnv_step(hash, byte);
            hash
        }));
        ends_at(hash)
    }
}

/// Whether the node ends after the child with this id.
pub fn ends_node(id: &ChunkId) -> bool {
    u16::from_le_bytes([id.0[0], id.0[1]]) & (NODE_MEAN_CHILDREN - 1) == 0
}

/// Whether a content list may end after the chunk with this id; because the id decides, an edit
/// moves no other list's boundary.
pub fn ends_list(id: &ChunkId) -> bool {
    u16::from_le_bytes([id.0[0], id.0[1]]) & (LIST_MEAN_ROWS - 1) == 0
}

/// One child of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Path of the first entry below the child.
    pub first_path: Vec<u8>,
    /// The chunk that is the page or the node.
    pub id: ChunkId,
    /// Entries below it.
    pub entries: u64,
}

const NODE_MARK: u8 = b'N';

/// Writes a node.
pub fn encode_node(children: &[Child]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.u8(NODE_MARK).varint(children.len() as u64);
    for child in children {
        writer.bytes(&child.first_path).raw(&child.id.0).varint(child.entries);
    }
    out
}

/// Reads a node.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for anything that
/// `encode_node` does not write, including children out of order.
pub fn decode_node(bytes: &[u8]) -> Result<Vec<Child>> {
    let mut reader = Reader::new(bytes, "tree node");
    if reader.u8()? != NODE_MARK {
        return Err(reader.corrupt("this is not a node of a snapshot's tree"));
    }
    let count = reader.count(ChunkId::LEN + 2)?;
    let mut children: Vec<Child> = Vec::with_capacity(count);
    for _ in 0..count {
        let first_path = reader.bytes()?.to_vec();
        let sorted = children
            .last()
            .is_none_or(|last| compare_paths(&last.first_path, &first_path) == Ordering::Less);
        if !sorted {
            return Err(reader.corrupt("the children of the node are not in order"));
        }
        let id = ChunkId(reader.array()?);
        children.push(Child { first_path, id, entries: reader.varint()? });
    }
    reader.finish()?;
    Ok(children)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_directory_is_followed_by_what_is_below_it() {
        let sorted: [&[u8]; 7] = [b"", b"a", b"a/b", b"a/b/c", b"a-b", b"a.b", b"b"];
        for (l, left) in sorted.iter().enumerate() {
            for (r, right) in sorted.iter().enumerate() {
                assert_eq!(compare_paths(left, right), l.cmp(&r), "{left:?} {right:?}");
            }
        }
        assert!(is_at_or_below(b"a/b", b"a") && is_at_or_below(b"a", b"a"));
        assert!(!is_at_or_below(b"ab", b"a") && is_at_or_below(b"ab", b""));
    }

    #[test]
    fn pages_end_about_as_often_as_they_should() {
        let ends = (0..100_000).filter(|n| ends_page(format!("usr/share/doc/{n}").as_bytes()));
        let mean = 100_000 / ends.count().max(1) as u64;
        assert!((PAGE_MEAN_ENTRIES / 2..PAGE_MEAN_ENTRIES * 2).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn ends_of_pages_do_not_depend_on_the_path_before(paths: Vec<Vec<u8>>) {
            let mut ends = PageEnds::default();
            for path in paths {
                prop_assert_eq!(ends.after(&path), ends_page(&path));
            }
        }

        #[test]
        fn shared_bytes_are_counted(common: Vec<u8>, left: Vec<u8>, right: Vec<u8>) {
            let (left, right) = ([&common[..], &left].concat(), [&common[..], &right].concat());
            let slow = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
            prop_assert_eq!(shared_len(&left, &right), slow);
        }

        #[test]
        fn order_is_order_of_components(left: Vec<u8>, right: Vec<u8>) {
            let parts = |path: &[u8]| path.split(|&b| b == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
            let tidy = |path: &[u8]| parts(path).into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>();
            let (left, right) = (tidy(&left), tidy(&right));
            let ordering = compare_paths(&left.join(&b'/'), &right.join(&b'/'));
            prop_assert_eq!(ordering, left.cmp(&right));
        }

        #[test]
        fn arbitrary_nodes_never_panic(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() { *first = NODE_MARK; }
            let _ = decode_node(&bytes);
        }
    }

    #[test]
    fn a_node_comes_back() {
        let child =
            |path: &[u8]| Child { first_path: path.to_vec(), id: ChunkId([1; 32]), entries: 300 };
        let children = vec![child(b"a"), child(b"a/b"), child(b"a-b")];
        assert_eq!(decode_node(&encode_node(&children)).unwrap(), children);
        let wrong = vec![child(b"a-b"), child(b"a/b")];
        assert!(decode_node(&encode_node(&wrong)).is_err());
    }
}
