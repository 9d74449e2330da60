//! `pinstripe diff`: shows the differences between two snapshots.

use pinstripe::{
    SnapshotName,
    diff::{self, Sort, Totals},
    shared,
};
use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

use super::ls;
use crate::args::AllHosts;
use crate::choice_args::ChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};

/// Show the differences between two snapshots
///
/// Prints one line for each path that differs. Each line begins with a letter: A if the path is
/// only in the second snapshot, D if it is only in the first snapshot, M if the content or the link
/// target differs, T if the type differs, and m if only the owner, mode, times or attributes
/// differ. Directories that are equal in both snapshots are not read, so the duration depends on
/// the number of changes.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe diff 1a2b3c4d latest
  pinstripe diff 1a2b3c4d 5e6f7a8b --json | jq -r 'select(.event == \"difference\") | .path'")]
pub struct DiffArgs {
    /// The first snapshot: 'latest', 'latest~N' (N before the latest), or the beginning of its id
    #[arg(value_name = "A")]
    old: String,

    /// The second snapshot: 'latest', 'latest~N' (N before the latest), or the beginning of its id
    #[arg(value_name = "B")]
    new: String,

    #[command(flatten)]
    all: AllHosts,

    #[command(flatten)]
    choice: ChoiceArgs,
}

const GAUGE: Gauge = Gauge {
    label: "comparing",
    done_bytes: |monitor| monitor.get(pinstripe_base::monitor::Counter::FetchedBytes),
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
        let names =
            (SnapshotName { name: &self.old, choice }, SnapshotName { name: &self.new, choice });
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
        let is_all = run.count(pinstripe_base::monitor::Counter::Losses) == 0;
        run.screen.say(&summary(&totals, is_all));
        Ok(Ending::done(facts(&totals)))
    }
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

fn event(sort: Sort, old: Option<&Entry>, new: Option<&Entry>) -> Event {
    let name = match sort {
        Sort::Added => "added",
        Sort::Deleted => "deleted",
        Sort::Retyped => "retyped",
        Sort::Modified => "modified",
        Sort::Metadata => "metadata",
    };
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
