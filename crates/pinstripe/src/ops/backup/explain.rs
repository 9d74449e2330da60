//! Explains whether a backup would save one path, and why. Needs no store.

use std::path::Path;

use super::BackupOptions;
use super::sources::{exclude_mounted, source};
use crate::walk::{self, Explanation, WalkOptions};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::tree::{compare_paths, is_at_or_below};

/// Returns which rule decides whether a backup with these options saves `path`. Nothing is read but
/// the metadata, tags and ignore files of the directories on the way to the path. Sources that do
/// not exist are passed over.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if the path does not exist or is not at or below a source.
pub fn explain(options: &BackupOptions, path: &Path, monitor: &Monitor) -> Result<Explanation> {
    let (path, _) = source(path)?;
    let found = options.paths.iter().filter_map(|path| source(path).ok());
    let mut sources: Vec<_> = found.map(|(source, _)| source).collect();
    sources.sort_by(|left, right| compare_paths(left, right));
    sources.dedup();
    let Some(top) = sources.iter().position(|source| is_at_or_below(&path, source)) else {
        return Err(Error::new(Kind::NotFound, "this path is not in any of the given paths")
            .at(shown_from_root(&path))
            .advice("give the paths of the backup as for the backup itself"));
    };
    let absolute = |path: &[u8]| match path {
        [] => Vec::new(),
        _ => [b"/", path].concat(),
    };
    let root = sources[top].clone();
    let below = sources[top + 1..].iter().take_while(|source| is_at_or_below(source, &root));
    let options = WalkOptions {
        one_file_system: options.one_file_system,
        exclude: exclude_mounted(options.exclude.clone(), &sources, monitor),
        named: below.map(|source| absolute(source)).collect(),
        ..WalkOptions::default()
    };
    let report = &mut |place: &Path, error: Error| monitor.warning(place, error);
    walk::explain(&absolute(&root), &absolute(&path), &options, report)
}
