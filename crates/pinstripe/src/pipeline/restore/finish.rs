//! The second pass of a restore: the steps that must wait until all files are written.

use super::{ChosenReader, FirstNames, FirstPass, FoundDirectory, RestorePlan};
use crate::sink::Unset;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::shown;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::tree::is_at_or_below;

/// The second pass: restores symlinks, special files and later names of inodes, and sets the
/// metadata of directories when everything in them is finished. The second pass uses one thread,
/// since it is short work in path order.
///
/// # Errors
/// Errors of single entries are in the ledger and do not make it fail.
pub(crate) fn finish_tree(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    first: &mut FirstPass,
) -> Result<()> {
    let FirstPass { first_names, directories } = first;
    let mut found = directories.iter().copied();
    let mut open: Vec<(Entry, FoundDirectory)> = Vec::new();
    loop {
        let entry = match tree.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            // Reported by the first pass.
            Err(_) => continue,
        };
        while let Some((directory, found)) =
            open.pop_if(|(directory, _)| !is_at_or_below(&entry.path, &directory.path))
        {
            close(plan, &directory, found);
        }
        if entry.meta.kind == FileKind::Directory {
            open.push((entry, found.next().unwrap_or(FoundDirectory::Missing)));
            continue;
        }
        let path = plan.target_path(&entry);
        match later_entry(plan, &entry, path, first_names) {
            Ok(Some(unset)) => plan.count_restored(path, unset),
            Ok(None) => {}
            Err(error) => plan.lose(path, error),
        }
    }
    while let Some((directory, found)) = open.pop() {
        close(plan, &directory, found);
    }
    Ok(())
}

fn later_entry(
    plan: &RestorePlan<'_>,
    entry: &Entry,
    path: &[u8],
    first_names: &mut FirstNames,
) -> Result<Option<Vec<Unset>>> {
    if entry.is_hard_linked() {
        let key = (entry.device, entry.inode);
        let first = first_names.entry(key).or_insert_with(|| path.to_vec());
        if first != path {
            if plan.is_lost(first) {
                // Under --overwrite, the name may still belong to the former file.
                let what = "this path is a hard link, and the file could not be restored at its \
                            first path";
                return Err(Error::new(Kind::NotFound, what).at(shown(path)));
            }
            if plan.reuse.is_some() && plan.sink.are_linked(first, path) {
                plan.count_kept(path);
                return Ok(None);
            }
            // Before a name is made for a moment: that would touch the file.
            if plan.sink.is_directory(path) {
                plan.sink.check_clear(path)?;
            }
            let link = || plan.sink.hard_link(first, path);
            return plan.with_parents(path, link).map(|()| Some(Vec::new()));
        }
    }
    match entry.meta.kind {
        FileKind::File | FileKind::Directory => Ok(None),
        _ if plan.reuse.is_some() && plan.sink.is_as_wanted(path, &entry.target, &entry.meta) => {
            plan.count_kept(path);
            Ok(None)
        }
        FileKind::Symlink => {
            let link = || plan.sink.symlink(path, &entry.target, &entry.meta);
            plan.with_parents(path, link).map(Some)
        }
        _ => plan.with_parents(path, || plan.sink.special(path, &entry.meta)).map(Some),
    }
}

fn close(plan: &RestorePlan<'_>, directory: &Entry, found: FoundDirectory) {
    let path = plan.below(&directory.path);
    if path.is_empty() {
        // The target itself comes last, and its time with it.
        plan.sink.end(plan.mark);
    }
    match plan.sink.finish_directory(path, &directory.meta) {
        Ok(unset) => match found {
            FoundDirectory::Same => {
                // The target directory is not an entry of the snapshot.
                if !path.is_empty() {
                    plan.count_kept(path);
                }
                plan.note_unset(path, unset);
            }
            _ => plan.count_restored(path, unset),
        },
        Err(error) => plan.lose(path, error),
    }
}
