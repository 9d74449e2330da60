//! Names in directories of `versions`.

use super::View;
use crate::catalog::{Catalog, ChildOfDirectory};
use pinstripe_base::checksum::checksum;
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;

/// The largest length of a file name (NAME_MAX in linux/limits.h).
const NAME_MAX: usize = 255;
/// The largest length of the suffix of a name: '@', a time, '_', part of an id.
const BEHIND_BYTES: usize = 1 + 32 + 1 + 8;
/// The number of bytes of a long name that are kept; a hash of the complete name follows.
const KEPT_BYTES: usize = NAME_MAX - BEHIND_BYTES - HASH_BYTES - 1;
/// Separates the two.
const CUT: u8 = b'~';
/// Digits of the hash.
const HASH_BYTES: usize = 16;

/// Whether this can be the name of a directory entry.
pub(super) fn is_name(name: &[u8]) -> bool {
    super::super::listing::is_name(name) && !name.contains(&b'/')
}

/// Returns the path of a name in a directory.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

/// Returns the name of a version of a file: `NAME@TIME`, or `NAME@TIME_ID` with part of the id of
/// its snapshot.
pub(super) fn with_time(name: &[u8], time: &str, id: Option<SnapshotId>) -> Vec<u8> {
    let id = id.map_or_else(String::new, |id| format!("_{}", id.short()));
    [&shortened(name)[..], b"@", time.as_bytes(), id.as_bytes()].concat()
}

/// Shortens a name to leave space for a suffix. A name that looks shortened is shortened as well:
/// otherwise it could be confused with a shortened one.
fn shortened(name: &[u8]) -> Vec<u8> {
    if name.len() + BEHIND_BYTES <= NAME_MAX && !looks_cut(name) {
        return name.to_vec();
    }
    let hash = &checksum(name)[..HASH_BYTES / 2];
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    [&name[..KEPT_BYTES], &[CUT], hash.as_bytes()].concat()
}

fn looks_cut(name: &[u8]) -> bool {
    name.len() == KEPT_BYTES + 1 + HASH_BYTES && name[KEPT_BYTES] == CUT
}

/// Returns the possible names of the file whose version is shown under `name`: both the file name
/// and the time may contain '@'.
pub(super) fn bases(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = name.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@');
    ends.map(|(at, _)| &name[..at]).filter(|base| !base.is_empty())
}

/// Passes the names of a directory that are shown with this beginning to `take`, until it returns
/// false.
pub(super) fn with_base(
    catalog: &Catalog,
    view: &View,
    directory: &[u8],
    base: &[u8],
    take: &mut dyn FnMut(ChildOfDirectory<'_>) -> Result<bool>,
) -> Result<()> {
    if base.len() + BEHIND_BYTES <= NAME_MAX && !looks_cut(base) {
        let (rows, is_above_source) = catalog.child(view.series(), directory, base)?;
        take(ChildOfDirectory { name: base, rows: &rows, is_above_source })?;
    }
    if !looks_cut(base) {
        return Ok(());
    }
    let begin = &base[..KEPT_BYTES];
    catalog.children(view.series(), directory, begin, &mut |child| {
        if !child.name.starts_with(begin) {
            return Ok(false);
        }
        Ok(shortened(child.name) != base || take(child)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions_fit_and_lead_back() {
        let id = SnapshotId([7; 16]);
        assert_eq!(with_time(b"a@b", "2024-05-01T00:00:00", None), b"a@b@2024-05-01T00:00:00");
        assert_eq!(with_time(b"a", "T", Some(id)), b"a@T_07070707");
        let all: Vec<_> = bases(b"a@b@@12").collect();
        assert_eq!(all, [&b"a@b@"[..], b"a@b", b"a"]);
        assert_eq!(bases(b"@x").count(), 0);
        let long = |last: u8| [&[b'n'; 254][..], &[last]].concat();
        let shown = with_time(&long(b'1'), &"T".repeat(32), Some(id));
        assert!(shown.len() <= NAME_MAX, "{}", shown.len());
        assert_ne!(shortened(&long(b'1')), shortened(&long(b'2')));
        // The longest that is not cut, and the shortest that is.
        for (bytes, is_cut) in
            [(NAME_MAX - BEHIND_BYTES, false), (NAME_MAX - BEHIND_BYTES + 1, true)]
        {
            let name = vec![b'n'; bytes];
            assert_eq!(shortened(&name) != name, is_cut);
            assert!(with_time(&name, &"T".repeat(32), Some(id)).len() <= NAME_MAX);
        }
        // A file that has the name to which another one is cut.
        let cut = shortened(&long(b'1'));
        assert!(cut.len() + BEHIND_BYTES <= NAME_MAX && shortened(&cut) != cut);
    }
}
