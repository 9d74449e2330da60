//! `pinstripe diff`: shows the differences between two snapshots, or a snapshot and a directory.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pinstripe::preview::{self, Act};
use pinstripe::restore::{Delete, RestoreOptions};
use pinstripe::{
    Reuse, SnapshotName, Store,
    diff::{self, Sort, Totals},
    shared,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

use clap::ValueHint;

use super::ls;
use crate::args::{AllHosts, refuse_option};
use crate::choice_args::ChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::snapshot_path;

/// Show the differences between two snapshots, or between a snapshot and a directory
///
/// Prints one line for each path that differs. Each line begins with a letter: A if the path is
/// only in the second snapshot, D if it is only in the first snapshot, M if the content or the link
/// target differs, T if the type differs, and m if only the owner, mode, times or attributes
/// differ. Directories that are equal in both snapshots are not read, so the duration depends on
/// the number of changes.
///
/// If B has a slash or is '.' or '..', B is a directory, which is compared with the same path of
/// snapshot A, or with PATH of A:PATH. Files of the same size and time of modification count as
/// equal, unless --checksum is given; times of directories are not compared. Nothing is changed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe diff latest~1 latest
  pinstripe diff 1a2b3c4d latest
  pinstripe diff latest /etc
  pinstripe diff latest:/srv/www ./www --checksum
  pinstripe diff 1a2b3c4d 5e6f7a8b --json | jq -r 'select(.event == \"difference\") | .path'")]
pub struct DiffArgs {
    /// The first snapshot: 'latest', 'latest~N' (N before the latest), or the beginning of its id
    #[arg(value_name = "A")]
    old: OsString,

    /// The second snapshot, or a directory
    #[arg(value_name = "B", value_hint = ValueHint::DirPath)]
    new: OsString,

    /// Compare the content of files with that of the directory, instead of size and time
    #[arg(long)]
    checksum: bool,

    #[command(flatten)]
    all: AllHosts,

    #[command(flatten)]
    choice: ChoiceArgs,
}

const GAUGE: Gauge = Gauge {
    label: "comparing",
    done_bytes: |monitor| monitor.get(Counter::FetchedBytes),
    passes: 1,
};

impl DiffArgs {
    /// Prints the differences.
    ///
    /// # Errors
    /// Fails with the errors of [`diff::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let new = match self.new.to_str() {
            Some(new) if !new.contains('/') && !matches!(new, "." | "..") => new,
            _ => return self.with_directory(run, &store),
        };
        let old = self.old.to_str().filter(|old| !old.contains(':')).ok_or_else(|| {
            Error::new(Kind::Usage, "a path in the first snapshot needs a directory to compare")
                .at(&self.old)
                .advice("give two snapshots, or a snapshot and a directory")
        })?;
        let refuse = "compare a snapshot with a directory";
        refuse_option(self.checksum, "--checksum", refuse)?;
        let ticker = run.ticker(GAUGE);
        let mut show = |sort, old: Option<&Entry>, new: Option<&Entry>| {
            if run.screen.is_json() {
                run.screen.event(&event(sort, old, new))
            } else {
                let path = old.or(new).map_or_else(String::new, shown);
                run.screen.row(&format!("{} {path}", letter(sort)))
            }
        };
        let choice = &self.choice.choice(run, self.all.all_hosts)?;
        let names = (SnapshotName { name: old, choice }, SnapshotName { name: new, choice });
        let of_all = run.catalog_of_all(&store, self.all.all_hosts)?;
        let told = match of_all {
            Some(of_all) => shared::diff(&store, &*of_all, names, &run.monitor, &mut show)?,
            None => None,
        };
        let totals = match told {
            Some(totals) => totals,
            None => diff::run(&store, names.0, names.1, &run.monitor, &mut show)?,
        };
        drop(ticker);
        let is_all = run.count(Counter::Losses) == 0;
        run.screen.say(&summary(&totals, is_all));
        Ok(Ending::done(facts(&totals)))
    }
}

impl DiffArgs {
    /// Compares a snapshot with a directory: a restore in place that changes nothing.
    fn with_directory(&self, run: &Run, store: &Store) -> Result<Ending> {
        let (name, path) = snapshot_path::parse(&self.old)?;
        let directory = std::fs::canonicalize(&self.new).map_err(|error| {
            Error::of_named("cannot compare with this directory", &self.new, error)
        })?;
        let path = if path.is_empty() { directory.clone().into_os_string() } else { path };
        let choice = &self.choice.choice(run, self.all.all_hosts)?;
        let name = SnapshotName { name: &name, choice };
        let plain = RestoreOptions::new(name, path.as_bytes(), &directory, run.limits(store));
        let reuse = if self.checksum { Reuse::ByContent } else { Reuse::ByTime };
        let options =
            RestoreOptions { reuse: Some(reuse), delete: Some(Delete::Whatever), ..plain };
        let ticker = run.ticker(GAUGE);
        let (mut totals, mut retyped) = (Totals::default(), HashSet::new());
        preview::run(store, &options, &run.monitor, &mut |act, path, bytes, entry| {
            let found = path.symlink_metadata().ok();
            let sort = sort_on_disk(act, (&path, found.as_ref()), bytes, entry);
            if sort == Sort::Retyped {
                retyped.insert(path.clone());
            } else if retyped.contains(&path) {
                // A directory in the way of another entry is listed again, among what is removed.
                return Ok(());
            }
            count(&mut totals, sort, found.as_ref(), entry);
            let is_directory = match entry {
                Some(entry) => entry.meta.kind == FileKind::Directory,
                None => found.is_some_and(|it| it.is_dir()),
            };
            let slash = if is_directory { "/" } else { "" };
            run.screen.row(&format!("{} {}{slash}", letter(sort), escape::path(&path)))?;
            let event = Event::new("difference").with("change", change(sort));
            run.screen.event(&event.with_name("path", path.as_os_str().as_bytes()))
        })?;
        drop(ticker);
        run.screen.say(&summary(&totals, run.count(Counter::Losses) == 0));
        Ok(Ending::done(facts(&totals)))
    }
}

/// What happened since the snapshot, if a restore would do this.
fn sort_on_disk(
    act: Act,
    (path, found): (&Path, Option<&Metadata>),
    bytes: u64,
    entry: Option<&Entry>,
) -> Sort {
    let (Some(entry), Some(found)) = (entry, found) else {
        return if act == Act::Remove { Sort::Added } else { Sort::Deleted };
    };
    let kind = entry.meta.kind;
    let is_same = match kind {
        FileKind::File => found.is_file(),
        FileKind::Directory => found.is_dir(),
        FileKind::Symlink => found.is_symlink(),
        _ => !(found.is_file() || found.is_dir() || found.is_symlink()),
    };
    let is_other_target = || {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.as_os_str().as_bytes() != entry.target
    };
    let is_other_file = kind == FileKind::File && (bytes > 0 || found.len() != entry.size);
    match is_same {
        false => Sort::Retyped,
        true if is_other_file => Sort::Modified,
        true if kind == FileKind::Symlink && is_other_target() => Sort::Modified,
        true => Sort::Metadata,
    }
}

/// Counts a difference.
fn count(totals: &mut Totals, sort: Sort, found: Option<&Metadata>, entry: Option<&Entry>) {
    *match sort {
        Sort::Added => &mut totals.added,
        Sort::Deleted => &mut totals.deleted,
        Sort::Retyped => &mut totals.retyped,
        Sort::Modified => &mut totals.modified,
        Sort::Metadata => &mut totals.metadata,
    } += 1;
    let found = found.filter(|it| it.is_file());
    let file = entry.filter(|it| it.meta.kind == FileKind::File);
    totals.new_bytes += found.map_or(0, Metadata::len);
    totals.old_bytes += file.map_or(0, |it| it.size);
}

fn shown(entry: &Entry) -> String {
    let slash = if entry.meta.kind == FileKind::Directory { "/" } else { "" };
    format!("/{}{slash}", escape::name(&entry.path))
}

fn letter(sort: Sort) -> char {
    match sort {
        Sort::Added => 'A',
        Sort::Deleted => 'D',
        Sort::Retyped => 'T',
        Sort::Modified => 'M',
        Sort::Metadata => 'm',
    }
}

fn change(sort: Sort) -> &'static str {
    match sort {
        Sort::Added => "added",
        Sort::Deleted => "deleted",
        Sort::Retyped => "retyped",
        Sort::Modified => "modified",
        Sort::Metadata => "metadata",
    }
}

fn event(sort: Sort, old: Option<&Entry>, new: Option<&Entry>) -> Event {
    let name = change(sort);
    let path = old.or(new).map_or(&[][..], |entry| &entry.path);
    let event =
        Event::new("difference").with("change", name).with_name("path", &[b"/", path].concat());
    let sides = [("old", old), ("new", new)];
    sides.into_iter().fold(event, |event, (side, entry)| {
        let Some(entry) = entry else { return event };
        event
            .with(&format!("{side}_type"), ls::kind_name(entry.meta.kind))
            .with(&format!("{side}_mode"), format!("{:04o}", entry.meta.mode))
            .with(&format!("{side}_bytes"), entry.size)
            .with(&format!("{side}_mtime_seconds"), entry.meta.mtime.seconds)
            .with(&format!("{side}_mtime_nanos"), entry.meta.mtime.nanos)
    })
}

fn summary(totals: &Totals, is_all: bool) -> String {
    let Totals { added, deleted, retyped, modified, metadata, new_bytes, old_bytes } = totals;
    if [added, deleted, retyped, modified, metadata].iter().all(|count| **count == 0) {
        return match is_all {
            true => "no difference".to_owned(),
            false => "the readable parts of both snapshots do not differ".to_owned(),
        };
    }
    format!(
        "{} added, {deleted} deleted, {modified} modified, {retyped} with a changed type, \
         {metadata} with only changed metadata; the size changed from {} to {}",
        counted(*added, "path"),
        format_size(*old_bytes),
        format_size(*new_bytes),
    )
}

fn facts(totals: &Totals) -> Event {
    Event::default()
        .with("added", totals.added)
        .with("deleted", totals.deleted)
        .with("modified", totals.modified)
        .with("retyped", totals.retyped)
        .with("metadata", totals.metadata)
        .with("new_bytes_in_differences", totals.new_bytes)
        .with("old_bytes_in_differences", totals.old_bytes)
}
