//! Blocks of names, in the order in which `find` scans them.
//!
//! ```text
//! block: for each name, sorted: bytes shared with the name before varint, rest (length, bytes),
//!        count of directories varint, first directory varint, then the gap to each further one
//! ```
//!
//! Blocks are only added, one for each batch, so no tree of names must be kept sorted while rows
//! are added, and scanning all blocks costs a few bytes per path.

use pinstripe_base::error::Result;
use pinstripe_base::wire::{Reader, Writer};

/// Writes a block. Encodes `places`, pairs of a name and a directory's id, in any order.
pub fn encode(places: &mut [(&[u8], i64)]) -> Vec<u8> {
    places.sort_unstable();
    let mut block = Vec::with_capacity(places.len() * 12);
    let mut writer = Writer::new(&mut block);
    let mut last: &[u8] = b"";
    for group in places.chunk_by(|left, right| left.0 == right.0) {
        let name = group[0].0;
        let shared = last.iter().zip(name).take_while(|(l, r)| l == r).count();
        writer.varint(shared as u64).bytes(&name[shared..]).varint(group.len() as u64);
        let mut before = 0;
        for (_, directory) in group {
            writer.varint((directory - before) as u64);
            before = *directory;
        }
        last = name;
    }
    block
}

/// Passes every name of a block for which `admits` is true to `show`, with each directory that has
/// it.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that `encode` does
/// not write, or with the errors of `show`.
pub fn scan(
    block: &[u8],
    admits: &dyn Fn(&[u8]) -> bool,
    show: &mut dyn FnMut(&[u8], i64),
) -> Result<()> {
    let mut reader = Reader::new(block, "block of names");
    let mut name: Vec<u8> = Vec::new();
    while !reader.is_empty() {
        let shared = reader.varint()?;
        if shared > name.len() as u64 {
            return Err(reader.corrupt(
                "the prefix that a name shares with the previous name is longer than that name",
            ));
        }
        name.truncate(shared as usize);
        name.extend_from_slice(reader.bytes()?);
        let count = reader.count(1)?;
        let is_admitted = admits(&name);
        let mut directory = 0_i64;
        for _ in 0..count {
            let gap = i64::try_from(reader.varint()?).ok();
            let next = gap.and_then(|gap| directory.checked_add(gap));
            directory =
                next.ok_or_else(|| reader.corrupt("a name has an impossible directory number"))?;
            if is_admitted {
                show(&name, directory);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_come_back_with_their_directories() {
        let mut places: Vec<(&[u8], i64)> =
            vec![(b"b", 7), (b"a.txt", 9), (b"b", 3), (b"", 1), (b"a.txt", 4), (b"ab", i64::MAX)];
        let block = encode(&mut places);
        let mut seen = Vec::new();
        scan(&block, &|name| name != b"ab", &mut |name, directory| {
            seen.push((name.to_vec(), directory));
        })
        .unwrap();
        let expected: [(&[u8], i64); 5] =
            [(b"", 1), (b"a.txt", 4), (b"a.txt", 9), (b"b", 3), (b"b", 7)];
        assert_eq!(seen, expected.map(|(name, directory)| (name.to_vec(), directory)));
    }

    proptest! {
        #[test]
        fn arbitrary_blocks_never_panic(block: Vec<u8>) {
            let _ = scan(&block, &|_| true, &mut |_, _| {});
        }
    }
}
