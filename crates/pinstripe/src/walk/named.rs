//! The paths below the root of a walk that the user also named.
//!
//! The walk enters each of them, and passes through the directories above one if it would otherwise
//! have stopped there. This module only does lookups in a sorted list. Invariant: the paths are
//! absolute, in path order, and none occurs twice.

use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_member::tree::{compare_paths, is_at_or_below};

/// The named paths of one walk.
#[derive(Debug, Default)]
pub(super) struct Named {
    paths: Vec<Vec<u8>>,
    /// For each path, whether the walk would have reached it even if it had not been named.
    covered: Vec<AtomicBool>,
}

/// How a path relates to the named ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lead {
    /// The number of the named path that is equal to the path, if there is one.
    pub named: Option<usize>,
    /// The numbers of the named paths below the path.
    pub below: Range<usize>,
}

impl Lead {
    /// Whether neither the path nor anything below it is named.
    pub fn is_none(&self) -> bool {
        self.named.is_none() && self.below.is_empty()
    }
}

impl Named {
    pub fn new(paths: Vec<Vec<u8>>) -> Self {
        debug_assert!(paths.is_sorted_by(|left, right| compare_paths(left, right).is_lt()));
        let covered = paths.iter().map(|_| AtomicBool::new(false)).collect();
        Named { paths, covered }
    }

    /// The numbers of all paths.
    pub fn all(&self) -> Range<usize> {
        0..self.paths.len()
    }

    /// Looks up `path` among the named paths `within`, which are those below its directory.
    pub fn lead(&self, within: &Range<usize>, path: &[u8]) -> Lead {
        if within.is_empty() {
            return Lead { named: None, below: 0..0 };
        }
        let among = &self.paths[within.clone()];
        let start = among.partition_point(|named| compare_paths(named, path).is_lt());
        let count = among[start..].partition_point(|named| is_at_or_below(named, path));
        let start = within.start + start;
        let is_named = count > 0 && self.paths[start] == path;
        let below = start + usize::from(is_named)..start + count;
        Lead { named: is_named.then_some(start), below }
    }

    /// Returns the names in a directory that are named or lead to a named path, in byte order.
    /// `path` is the directory's path, and `below` the numbers of the named paths below it.
    pub fn children(&self, below: &Range<usize>, path: &[u8]) -> Vec<CString> {
        let name = |named: &Vec<u8>| {
            let rest = &named[path.len() + 1..];
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            CString::new(&rest[..end]).ok()
        };
        let mut names: Vec<_> = self.paths[below.clone()].iter().filter_map(name).collect();
        names.dedup();
        names
    }

    /// Records that the walk would have reached this path even if it had not been named.
    pub(crate) fn set_covered(&self, number: usize) {
        self.covered[number].store(true, Ordering::Relaxed);
    }

    /// Returns the paths that the walk would have reached even if they had not been named.
    pub fn covered(&self) -> impl Iterator<Item = &[u8]> {
        let both = self.paths.iter().zip(&self.covered);
        both.filter(|(_, covered)| covered.load(Ordering::Relaxed)).map(|(path, _)| &path[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_or_leads_to_what_is_named() {
        let paths = ["/a/b", "/a/b/c", "/a/b/c/d", "/a/b.c", "/e/f/g"];
        let named = Named::new(paths.map(|path| path.as_bytes().to_vec()).to_vec());
        let lead = |path: &str| named.lead(&named.all(), path.as_bytes());
        assert_eq!(lead("/a"), Lead { named: None, below: 0..4 });
        assert_eq!(lead("/a/b"), Lead { named: Some(0), below: 1..3 });
        assert_eq!(lead("/a/b/c"), Lead { named: Some(1), below: 2..3 });
        assert_eq!(lead("/a/b/c/d"), Lead { named: Some(2), below: 3..3 });
        assert_eq!(lead("/a/b.c"), Lead { named: Some(3), below: 4..4 });
        assert_eq!(lead("/e/f"), Lead { named: None, below: 4..5 });
        assert!(lead("/a/bb").is_none() && lead("/z").is_none() && lead("/").named.is_none());
        assert_eq!(named.lead(&(1..3), b"/a/b/c/d").named, Some(2));
        assert_eq!(named.children(&(0..4), b"/a"), [c"b".to_owned(), c"b.c".to_owned()]);
        assert_eq!(named.children(&named.all(), b""), [c"a".to_owned(), c"e".to_owned()]);
        named.set_covered(3);
        assert_eq!(named.covered().collect::<Vec<_>>(), [b"/a/b.c"]);
    }
}
