//! `pinstripe history`: shows every version of one path.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use pinstripe::{FoundVersion, Version, history, shared};
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;

use super::catalog::{CatalogFile, GAUGE};
use super::find::{chosen, facts, held_by, holders};
use crate::args::AllHosts;
use crate::choice_args::ChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::snapshot_path;
use crate::table::{self, Side};
use crate::time;

/// Show every version of a path in all snapshots
///
/// Prints one table for each combination of host and backed-up paths, with the oldest version
/// first. Each line shows one version: the time of the first snapshot that contains the version,
/// its size in bytes, the time of its last change, the kind of difference from the previous
/// version, the first and the last snapshot that contain the version, and the number of those
/// snapshots. A line with 'gone' stands for snapshots in which the path no longer exists.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe history /etc/passwd
  pinstripe history thesis.odt --json | jq .snapshots
  pinstripe history /etc/passwd --all-hosts")]
pub struct HistoryArgs {
    /// The path of a file or directory
    #[arg(value_name = "PATH")]
    path: OsString,

    #[command(flatten)]
    all: AllHosts,

    #[command(flatten)]
    place: CatalogFile,

    #[command(flatten)]
    choice: ChoiceArgs,
}

impl HistoryArgs {
    /// Prints the versions.
    ///
    /// # Errors
    /// Fails with the errors of [`history::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let path = snapshot_path::absolute(&self.path)?;
        let path = path.as_bytes();
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let ticker = run.ticker(GAUGE);
        let choice = self.choice.choice(run, self.all.all_hosts)?;
        let mut all = match run.catalog_of_all(&store, self.all.all_hosts)? {
            Some(of_all) => shared::history(&store, &*of_all, path, &run.monitor)?,
            None => {
                let place = self.place.database(run, &store)?;
                history::run(&store, &place, path, &run.monitor)?
            }
        };
        drop(ticker);
        if choice.is_limited() {
            keep(&mut all, &chosen(run, &store, &choice)?);
        }
        for versions in &all {
            let known = versions.iter().find_map(|it| it.found.as_ref());
            let told: Vec<_> =
                versions.iter().enumerate().map(|(n, it)| report(n, it, known)).collect();
            if let Some(host) = known.map(|found| &found.host).filter(|_| all.len() > 1) {
                run.screen.say(&format!("on {}", escape::name(host)));
            }
            let rows: Vec<_> = told.iter().map(|(_, row)| row.clone()).collect();
            for line in table::lines(&HEAD, &rows) {
                run.screen.row(&line)?;
            }
            told.iter().try_for_each(|(event, _)| run.screen.event(event))?;
        }
        let versions: usize = all.iter().flatten().filter(|it| it.found.is_some()).count();
        Ok(Ending::done(Event::default().with("versions", versions)))
    }
}

/// Keeps the versions that some snapshots have.
fn keep(all: &mut Vec<Vec<Version>>, snapshots: &HashSet<SnapshotId>) {
    for versions in &mut *all {
        for version in &mut *versions {
            version.snapshots.retain(|holder| snapshots.contains(&holder.id));
        }
        versions.retain(|version| !version.snapshots.is_empty());
    }
    all.retain(|versions| !versions.is_empty());
}

const HEAD: [(&str, Side); 5] = [
    ("since", Side::Left),
    ("size", Side::Right),
    ("changed", Side::Left),
    ("what", Side::Left),
    ("snapshots", Side::Left),
];

/// Formats a version as an event and as a row; `known` is any existing version of the same host.
fn report(number: usize, version: &Version, known: Option<&FoundVersion>) -> (Event, Vec<String>) {
    let what = match &version.found {
        None => "gone",
        Some(_) if number == 0 => "first",
        Some(_) if version.same_content => "metadata",
        Some(_) => "content",
    };
    let created = version.snapshots[0].created;
    let event = Event::new("version")
        .with("what", what)
        .with("since_seconds", created.seconds)
        .with("since_nanos", created.nanos);
    let (event, size, changed) = match &version.found {
        Some(found) => {
            (facts(event, found), found.size.to_string(), time::date(found.mtime.seconds))
        }
        None => {
            let event = known.into_iter().fold(event, |event, known| {
                let path = [b"/", &known.path[..]].concat();
                event.with_name("path", &path).with_name("host", &known.host)
            });
            (event, "-".to_owned(), "-".to_owned())
        }
    };
    let row =
        vec![time::date(created.seconds), size, changed, what.into(), holders(&version.snapshots)];
    (event.with_all(held_by(&version.snapshots)), row)
}
