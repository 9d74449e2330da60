//! Which paths a backup walks: absolute, in order, none within another, and no member of the store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Options;
use crate::error::{Error, Kind, Result};
use crate::format::tree::{compare_paths, is_at_or_below};
use crate::monitor::Monitor;
use crate::store::Store;
use crate::walk::Exclude;

/// What sources may take of a snapshot object, which stands whole on every member.
const SOURCES_MAX_BYTES: usize = 8 << 20;

/// Members that lie within a source are left out: else every backup would take in the packs of
/// the one before.
pub fn exclude_members(
    store: &Store,
    mut exclude: Exclude,
    sources: &[Vec<u8>],
    monitor: &Monitor,
) -> Exclude {
    for seat in &store.seats {
        let place = seat.place.as_os_str().as_bytes();
        let below_root = place.strip_prefix(b"/").unwrap_or(place);
        if sources.iter().any(|source| is_at_or_below(below_root, source)) {
            monitor
                .note(&format!("left out {}: it is a member of the store", seat.place.display()));
            exclude = exclude.with_place(place);
        }
    }
    exclude
}

/// The paths to walk, from the file system's root, in path order, none within another. The last
/// component of a path is never followed, so a symlink is backed up as one.
pub fn sources(options: &Options, monitor: &Monitor) -> Result<Vec<Vec<u8>>> {
    let mut sources = Vec::with_capacity(options.paths.len());
    for path in &options.paths {
        match source(path) {
            Err(error) if options.paths_may_vanish => monitor.loss(path, error),
            named => sources.push(named?),
        }
    }
    if sources.is_empty() {
        return Err(Error::new(Kind::NotFound, "there is nothing to back up: no path is there")
            .advice("name files and directories that exist"));
    }
    sources.sort_by(|left, right| compare_paths(left, right));
    sources.dedup_by(|later, earlier| is_at_or_below(later, earlier));
    let bytes: usize = sources.iter().map(Vec::len).sum();
    if bytes > SOURCES_MAX_BYTES {
        return Err(Error::new(Kind::Usage, "too many paths are named for one snapshot")
            .expected(format!("at most {SOURCES_MAX_BYTES} bytes of paths"), bytes)
            .advice("name directories that hold them, or make several backups"));
    }
    Ok(sources)
}

fn source(path: &Path) -> Result<Vec<u8>> {
    let io = |error| {
        Error::io("cannot back this path up", path, error)
            .advice("name files and directories that exist")
    };
    std::fs::symlink_metadata(path).map_err(io)?;
    let absolute = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            std::fs::canonicalize(parent).map_err(io)?.join(name)
        }
        // "/", "..", "a/..": no name that could be a symlink.
        _ => std::fs::canonicalize(path).map_err(io)?,
    };
    let bytes = absolute.as_os_str().as_bytes();
    Ok(bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec())
}

/// A store must not back itself up: every run would find its own new packs.
pub fn refuse_members(store: &Store, sources: &[Vec<u8>]) -> Result<()> {
    for seat in store.seats.iter().filter(|seat| seat.member.is_some()) {
        let place = seat.place.as_os_str().as_bytes();
        let place = place.strip_prefix(b"/").unwrap_or(place);
        if let Some(source) = sources.iter().find(|source| is_at_or_below(source, place)) {
            return Err(Error::new(
                Kind::Refused,
                "this path lies within a member of the store itself",
            )
            .at(Path::new("/").join(OsStr::from_bytes(source)))
            .advice("a store cannot back itself up"));
        }
    }
    Ok(())
}
