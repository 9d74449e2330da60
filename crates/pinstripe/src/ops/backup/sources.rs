//! The paths that a backup walks: they are absolute, in path order, without duplicates, and none is
//! a member of the store. One source may be below another: the walk of the other one does not reach
//! everything.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use super::BackupOptions;
use crate::store::{MemberSlot, Store};
use crate::walk::Exclude;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_io::mounts::{self, MountInfo};
use pinstripe_io::paths;
use pinstripe_member::is_remote;
use pinstripe_member::tree::{compare_paths, is_at_or_below};

/// The largest size of the list of sources in a snapshot object, which every member stores
/// completely.
const SOURCES_MAX_BYTES: usize = 8 << 20;

/// Excludes members that are within a source, and places where snapshots are mounted: otherwise
/// each backup would save those before it.
pub(crate) fn exclude_own(
    store: &Store,
    mut exclude: Exclude,
    sources: &[Vec<u8>],
    monitor: &Monitor,
) -> Exclude {
    // A member that left has no place.
    let is_here = |slot: &&MemberSlot| slot.row.is_some() && !is_remote(&slot.place);
    for slot in store.member_slots.iter().filter(is_here) {
        let place = slot.place.as_os_str().as_bytes();
        let below_root = place.strip_prefix(b"/").unwrap_or(place);
        if sources.iter().any(|source| is_at_or_below(below_root, source)) {
            monitor.note(&format!(
                "the directory {} is not backed up, because it is a member of the store",
                slot.place.display()
            ));
            exclude = exclude.with_place(place, "this directory is a member of the store");
        }
    }
    exclude_mounted(exclude, sources, monitor)
}

/// Excludes places where snapshots are mounted.
pub(crate) fn exclude_mounted(
    mut exclude: Exclude,
    sources: &[Vec<u8>],
    monitor: &Monitor,
) -> Exclude {
    for MountInfo { at, .. } in mounts::of_this_process().into_iter().filter(shows_snapshots) {
        let place = at.as_os_str().as_bytes();
        let below_root = place.strip_prefix(b"/").unwrap_or(place);
        let is_within =
            |source: &Vec<u8>| source != below_root && is_at_or_below(below_root, source);
        if sources.iter().any(is_within) {
            monitor.note(&format!(
                "the directory {} is not backed up, because snapshots are mounted there",
                at.display()
            ));
            exclude = exclude.with_place(place, "snapshots are mounted there");
        }
    }
    exclude
}

/// Whether `pinstripe mount` shows snapshots there, of whatever store.
fn shows_snapshots(mount: &MountInfo) -> bool {
    // Without its helper program, FUSE gives the kind no second part.
    let is_fuse = ["fuse", "fuse.pinstripe"].contains(&&*mount.kind);
    is_fuse && mount.source == Path::new("pinstripe")
}

/// The sources as absolute paths, in path order, without duplicates.
pub struct Sources {
    /// The sources that identify the series of snapshots, including paths that are missing this
    /// time. From a list, only those sources are used that are not below another one, because a
    /// list may name every file of a tree.
    pub named: Vec<Vec<u8>>,
    /// The sources to walk.
    pub there: Vec<Vec<u8>>,
    /// The sources to walk that are directories.
    directories: HashSet<Vec<u8>>,
}

impl Sources {
    /// Warns about sources that match an exclude pattern: they are backed up nevertheless, since
    /// the user named them.
    pub(crate) fn warn_of_excluded(&self, exclude: &Exclude, monitor: &Monitor) {
        let is_excluded = |source: &&Vec<u8>| {
            !source.is_empty()
                && exclude
                    .leaves_out(&[b"/", &source[..]].concat(), self.directories.contains(*source))
        };
        let mut excluded = self.there.iter().filter(is_excluded);
        let Some(first) = excluded.next() else { return };
        let more = match excluded.count() {
            0 => String::new(),
            others => format!("; the same applies to {others} other given paths"),
        };
        let what = format!(
            "this path matches an exclude pattern, but it is backed up because it was given \
             explicitly{more}"
        );
        let error = Error::new(Kind::Usage, what);
        monitor.warning(
            shown_from_root(first),
            error.advice("to exclude the path, give its parent directory instead"),
        );
    }
}

/// Returns the sources that are not below another one.
pub fn topmost(sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut topmost = sources.to_vec();
    topmost.dedup_by(|later, earlier| is_at_or_below(later, earlier));
    topmost
}

/// Returns the paths to walk. A symlink in the last component of a path is not followed: it is
/// backed up as a symlink.
///
/// A missing path is a loss, and the other paths are backed up. A missing path that was named by
/// itself stays among the sources, so that this snapshot has the same sources as those before and
/// after it; a missing path from a list is left out, because a list names other paths each time.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when none of the paths exists.
pub fn sources(options: &BackupOptions, monitor: &Monitor) -> Result<Sources> {
    let (mut named, mut there, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut directories = HashSet::new();
    for path in &options.paths {
        match source(path) {
            Ok((source, kind)) => {
                if kind.is_dir() {
                    directories.insert(source.clone());
                }
                if !options.paths_are_a_list {
                    note_content_left_out(path, kind, monitor);
                }
                there.push(source);
            }
            Err(error) => missing.push((path, error)),
        }
    }
    if there.is_empty() {
        let several = missing.len() > 1;
        let is_gone = |(_, error): &(&PathBuf, Error)| error.kind() == Kind::NotFound;
        let first = missing.iter().position(is_gone).unwrap_or(0);
        let error = match missing.into_iter().nth(first) {
            Some((_, error)) if !several || error.kind() != Kind::NotFound => error,
            _ => Error::new(
                Kind::NotFound,
                "there is nothing to back up, because none of the given paths exists",
            ),
        };
        return Err(error.advice("give files and directories that exist"));
    }
    for (path, error) in missing {
        if !options.paths_are_a_list {
            named.extend(vanished(path));
        }
        monitor.loss(path, error.advice("the other paths are backed up"));
    }
    named.extend_from_slice(&there);
    if !options.paths_are_a_list {
        report_repeated(&there, monitor);
    }
    for sources in [&mut named, &mut there] {
        sources.sort_by(|left, right| compare_paths(left, right));
        sources.dedup();
    }
    if options.paths_are_a_list {
        named = topmost(&named);
    }
    let bytes: usize = named.iter().map(Vec::len).sum();
    if bytes > SOURCES_MAX_BYTES {
        return Err(Error::new(Kind::Usage, "too many paths were given for one snapshot")
            .expected(format!("at most {SOURCES_MAX_BYTES} bytes of paths"), bytes)
            .advice("give directories that contain these paths, or run several backups"));
    }
    Ok(Sources { named, there, directories })
}

/// Reports paths that were named more than once.
fn report_repeated(sources: &[Vec<u8>], monitor: &Monitor) {
    let mut known = HashSet::new();
    for source in sources {
        if !known.insert(source) {
            let shown = shown_from_root(source);
            monitor.note(&format!("the path {} was given more than once", shown.display()));
        }
    }
}

/// Returns the source that a path names, and its file type.
pub(super) fn source(path: &Path) -> Result<(Vec<u8>, FileType)> {
    let io = |error| Error::of_named("cannot back up this path", path, error);
    let kind = paths::own_metadata(path).map_err(io)?.file_type();
    let absolute = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !ends_in_dot(path) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            paths::real(parent).map_err(io)?.join(name)
        }
        // "/", "..", "a/..", "a/.": no name that could be a symlink.
        _ => paths::real(path).map_err(io)?,
    };
    Ok((below_root(&absolute), kind))
}

/// Reports that the content of a named path is not in the backup, because the path is neither a
/// directory nor a regular file.
fn note_content_left_out(path: &Path, kind: FileType, monitor: &Monitor) {
    let what = match kind {
        _ if kind.is_symlink() => {
            "a symbolic link, so its target is not backed up; to back up the target, give the path \
             of the target"
        }
        _ if kind.is_block_device() || kind.is_char_device() => {
            "a device, so its content is not backed up; to back up the content, run 'pinstripe \
             backup --stdin NAME < DEVICE'"
        }
        _ if kind.is_fifo() => {
            "a FIFO, so its content is not backed up; to back up the content, run 'pinstripe \
             backup --stdin NAME < FIFO'"
        }
        _ if kind.is_socket() => "a socket, which has no content",
        _ => return,
    };
    monitor.note(&format!("{} is {what}", path.display()));
}

/// Whether the last component of a path is `.`, which [`Path`] ignores.
fn ends_in_dot(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    bytes[..end].ends_with(b"/.")
}

/// Returns the absolute name of a missing path, made from those directories above it that exist.
fn vanished(path: &Path) -> Option<Vec<u8>> {
    let absolute = std::path::absolute(path).ok()?;
    let mut above = absolute.ancestors().skip(1);
    let (above, there) = above.find_map(|above| Some((above, paths::real(above).ok()?)))?;
    let missing = absolute.strip_prefix(above).ok()?;
    // Where `..` leads from a missing directory is unknown.
    let is_plain = missing.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| below_root(&there.join(missing)))
}

fn below_root(absolute: &Path) -> Vec<u8> {
    let bytes = absolute.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}

/// Refuses sources that are members of the store: a backup of the store into itself would find its
/// own new packs in every run.
pub fn refuse_members(store: &Store, sources: &[Vec<u8>]) -> Result<()> {
    let is_here = |slot: &&MemberSlot| slot.member.is_some() && !is_remote(&slot.place);
    for slot in store.member_slots.iter().filter(is_here) {
        let place = slot.place.as_os_str().as_bytes();
        let place = place.strip_prefix(b"/").unwrap_or(place);
        if let Some(source) = sources.iter().find(|source| is_at_or_below(source, place)) {
            return Err(Error::new(
                Kind::Refused,
                "this path is inside a member of the store itself",
            )
            .at(Path::new("/").join(OsStr::from_bytes(source)))
            .advice("a store cannot be backed up into itself"));
        }
    }
    Ok(())
}
