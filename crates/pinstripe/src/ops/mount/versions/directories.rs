//! The inode numbers of directories of `versions`: hashes of their paths, so that a path always has
//! the same number. Paths are kept as long as the kernel knows their inode numbers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::super::inode::OF_VERSIONS;
use pinstripe_base::checksum::checksum;
use pinstripe_base::sync::lock;

/// The number of the directory `versions` itself, which is always known.
pub(in super::super) const ROOT_OF_VERSIONS: u64 = OF_VERSIONS;

/// Directories that the kernel knows.
#[derive(Default)]
pub(in super::super) struct UnionDirectories {
    known: Mutex<PathsByNumber>,
}

/// Paths with their lookup counts.
type PathsByNumber = HashMap<u64, (Arc<[u8]>, u64)>;

impl UnionDirectories {
    /// Returns the number of a path, and adds one to its lookup count.
    pub(super) fn mention(&self, path: &[u8]) -> u64 {
        self.mention_from(hash(path), path)
    }

    /// Returns the number of a path as [`mention`](Self::mention) does, but searches from `number`
    /// on.
    fn mention_from(&self, mut number: u64, path: &[u8]) -> u64 {
        if path.is_empty() {
            return ROOT_OF_VERSIONS;
        }
        let mut known = lock(&self.known);
        loop {
            let (taken, mentions) = known.entry(number).or_insert_with(|| (path.into(), 0));
            if **taken == *path {
                *mentions += 1;
                return number;
            }
            // Two paths of one hash: the later one has the next number that is free.
            number = next(number);
        }
    }

    /// Returns the path that has a number.
    pub(super) fn path(&self, number: u64) -> Option<Arc<[u8]>> {
        if number == ROOT_OF_VERSIONS {
            return Some(Arc::from(&b""[..]));
        }
        lock(&self.known).get(&number).map(|(path, _)| Arc::clone(path))
    }

    /// Takes mentions back.
    pub(super) fn forget(&self, number: u64, mentions: u64) {
        let mut known = lock(&self.known);
        if let Some((_, left)) = known.get_mut(&number) {
            *left = left.saturating_sub(mentions);
            if *left == 0 {
                known.remove(&number);
            }
        }
    }
}

fn hash(path: &[u8]) -> u64 {
    let first = checksum(path)[..8].try_into().expect("a checksum has 16 bytes");
    match u64::from_le_bytes(first) | OF_VERSIONS {
        ROOT_OF_VERSIONS => next(ROOT_OF_VERSIONS),
        number => number,
    }
}

fn next(number: u64) -> u64 {
    match number.wrapping_add(1) | OF_VERSIONS {
        ROOT_OF_VERSIONS => ROOT_OF_VERSIONS + 1,
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_number_and_is_kept_while_it_is_mentioned() {
        let all = UnionDirectories::default();
        let number = all.mention(b"home/me");
        assert_eq!(all.mention(b"home/me"), number);
        assert_ne!(all.mention(b"home/you"), number);
        assert_eq!(all.path(number).as_deref(), Some(&b"home/me"[..]));
        all.forget(number, 1);
        assert!(all.path(number).is_some());
        all.forget(number, 1);
        assert!(all.path(number).is_none());
        assert_eq!(all.mention(b"home/me"), number);
        // The top needs no mention.
        assert_eq!(all.mention(b""), ROOT_OF_VERSIONS);
        all.forget(ROOT_OF_VERSIONS, 9);
        assert_eq!(all.path(ROOT_OF_VERSIONS).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn paths_of_one_hash_have_numbers_of_their_own() {
        let all = UnionDirectories::default();
        let numbers: Vec<u64> =
            [b"a", b"b", b"a", b"c"].map(|path| all.mention_from(u64::MAX, path)).into();
        assert_eq!(numbers[0], numbers[2]);
        // The number of the top is passed over.
        assert_eq!(numbers[1], ROOT_OF_VERSIONS + 1);
        assert_eq!(numbers[3], ROOT_OF_VERSIONS + 2);
        assert_eq!(all.path(numbers[3]).as_deref(), Some(&b"c"[..]));
    }
}
