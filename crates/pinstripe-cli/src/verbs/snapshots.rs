//! `pinstripe snapshots`: lists what was backed up, when, and how much.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pinstripe::snapshots::{self, Known};
use pinstripe::{Store, shared};
use pinstripe_base::error::Result;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_member::snapshot::Snapshot;
use serde_json::Value;

use crate::args::AllHosts;
use crate::choice_args::ChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::run::rollback;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// List the snapshots of the store, oldest first
///
/// The column SIZE shows the amount of data that a restore would write. The column STORED shows the
/// amount of data, including parity, that the backup added to the store.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe snapshots
  pinstripe snapshots --all
  pinstripe snapshots --latest 1 --compact
  pinstripe snapshots --store /mnt/a/store --json")]
pub struct SnapshotsArgs {
    /// Also show forgotten snapshots
    #[arg(long)]
    all: bool,

    /// Show only the latest N snapshots of each combination of host and paths
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    latest: Option<u64>,

    /// Show only id, time, host and tags
    #[arg(long)]
    compact: bool,

    /// Order of the snapshots: by time, by host, or by size (largest first)
    #[arg(long, value_name = "ORDER", default_value = "time")]
    sort: Order,

    #[command(flatten)]
    hosts: AllHosts,

    #[command(flatten)]
    choice: ChoiceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Time,
    Host,
    Size,
}

impl SnapshotsArgs {
    /// Prints the list.
    ///
    /// # Errors
    /// Fails with the errors of [`snapshots::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        rollback::warn(run, &store)?;
        let mut snapshots = self.list(run, &store)?;
        let choice = self.choice.choice(run, self.hosts.all_hosts)?;
        if !snapshots.is_empty() {
            choice.require(snapshots.iter().map(|known| &known.snapshot))?;
        }
        snapshots.retain(|known| choice.has(&known.snapshot));
        self.keep_latest(&mut snapshots);
        match self.sort {
            Order::Time => {}
            Order::Host => snapshots.sort_by(|a, b| a.snapshot.host.cmp(&b.snapshot.host)),
            Order::Size => snapshots.sort_by_key(|it| Reverse(it.snapshot.content_bytes())),
        }
        for Known { snapshot, is_forgotten } in &snapshots {
            let forgotten = is_forgotten.then_some(true);
            run.screen.event(&event(snapshot).with_some("forgotten", forgotten))?;
        }
        if snapshots.is_empty() {
            run.screen.say("the store has no snapshot yet; 'pinstripe backup PATH' creates one");
        } else {
            let rows = snapshots.iter();
            let lines = match self.compact {
                true => table::lines(&COMPACT_HEAD, &rows.map(compact_row).collect::<Vec<_>>()),
                false => table::lines(&HEAD, &rows.map(row).collect::<Vec<_>>()),
            };
            for line in lines {
                run.screen.row(&line)?;
            }
        }
        Ok(Ending::done(Event::default().with("snapshots", snapshots.len())))
    }
}

impl SnapshotsArgs {
    /// Keeps the latest ones of each host and its paths, as `--latest` says.
    fn keep_latest(&self, snapshots: &mut Vec<Known>) {
        let Some(latest) = self.latest else { return };
        let mut kept: HashMap<_, u64> = HashMap::new();
        let mut is_kept: Vec<_> = (snapshots.iter().rev())
            .map(|Known { snapshot, .. }| {
                let count =
                    kept.entry((snapshot.host.clone(), snapshot.sources.clone())).or_default();
                *count += 1;
                *count <= latest
            })
            .collect();
        snapshots.retain(|_| is_kept.pop().unwrap_or(true));
    }

    fn list(&self, run: &Run, store: &Store) -> Result<Vec<Known>> {
        // The catalog has no forgotten snapshots.
        if let Some(of_all) = run.catalog_of_all(store, self.hosts.all_hosts && !self.all)? {
            let all = shared::snapshots(store, &*of_all, &run.monitor)?;
            let known = |snapshot| Known { snapshot, is_forgotten: false };
            return Ok(all.into_iter().map(known).collect());
        }
        let mut snapshots = snapshots::all(store, &run.monitor)?;
        rollback::keep_newest(run, store, &snapshots);
        snapshots.retain(|known| self.all || !known.is_forgotten);
        Ok(snapshots)
    }
}

const COMPACT_HEAD: [(&str, Side); 4] =
    [("snapshot", Side::Left), ("time", Side::Left), ("host", Side::Left), ("tags", Side::Left)];

fn compact_row(Known { snapshot, is_forgotten }: &Known) -> Vec<String> {
    let mut tags = snapshot.tags.join(", ");
    if *is_forgotten {
        tags += if tags.is_empty() { "(forgotten)" } else { " (forgotten)" };
    }
    vec![
        snapshot.id.short(),
        time::date(snapshot.created_seconds),
        escape::name(&snapshot.host),
        tags,
    ]
}

const HEAD: [(&str, Side); 7] = [
    ("snapshot", Side::Left),
    ("time", Side::Left),
    ("host", Side::Left),
    ("entries", Side::Right),
    ("size", Side::Right),
    ("stored", Side::Right),
    ("paths", Side::Left),
];

fn row(Known { snapshot, is_forgotten }: &Known) -> Vec<String> {
    let stored = snapshot.count("written_bytes");
    let mut paths = paths(snapshot);
    if !snapshot.tags.is_empty() {
        paths += &format!(" (tags: {})", snapshot.tags.join(", "));
    }
    if !snapshot.comment.is_empty() {
        paths += &format!(" (comment: {})", escape::name(snapshot.comment.as_bytes()));
    }
    if let Some(losses) = snapshot.count("losses").filter(|&losses| losses > 0) {
        paths += &format!(" (losses: {})", format_count(losses));
    }
    if *is_forgotten {
        paths += " (forgotten)";
    }
    vec![
        snapshot.id.short(),
        time::date(snapshot.created_seconds),
        escape::name(&snapshot.host),
        format_count(snapshot.root.entries),
        format_size(snapshot.content_bytes()),
        stored.map_or_else(|| "-".to_owned(), format_size),
        paths,
    ]
}

/// The largest number of paths of one snapshot that is shown.
const PATHS_SHOWN: usize = 10;

/// The paths of the backup, on one line: of a long list, the first ones.
pub fn paths(snapshot: &Snapshot) -> String {
    paths_of(&snapshot.sources)
}

/// These paths of backups on one line: of a long list, the first ones.
pub fn paths_of(sources: &[Vec<u8>]) -> String {
    let paths = sources.iter().map(|it| escape::name(&absolute(it)));
    let shown = paths.take(PATHS_SHOWN).collect::<Vec<_>>().join(" ");
    match sources.len().saturating_sub(PATHS_SHOWN) {
        0 => shown,
        more => format!("{shown} and {} more", format_count(more as u64)),
    }
}

/// Formats a snapshot as an event.
pub fn event(snapshot: &Snapshot) -> Event {
    let event = Event::new("snapshot").with_all(facts(snapshot));
    let counts = snapshot.counts.iter();
    let counts = counts.map(|(name, count)| (name.clone(), Value::from(*count))).collect();
    event.with("counts", Value::Object(counts))
}

/// An event with the name and the place of a snapshot.
pub fn facts(snapshot: &Snapshot) -> Event {
    let sources: Vec<_> = snapshot.sources.iter().map(|source| absolute(source)).collect();
    Event::default()
        .with("snapshot", snapshot.id.to_string())
        .with("short", snapshot.id.short())
        .with("created_seconds", snapshot.created_seconds)
        .with("created_nanos", snapshot.created_nanos)
        .with_some("time", time::utc(snapshot.created_seconds, snapshot.created_nanos))
        .with_name("host", &snapshot.host)
        .with("program", snapshot.program.as_str())
        .with_names("sources", &sources)
        .with("tags", snapshot.tags.clone())
        .with_some("comment", Some(&snapshot.comment).filter(|it| !it.is_empty()).cloned())
        .with_some("parent", snapshot.parent.map(|parent| parent.to_string()))
        .with("entries", snapshot.root.entries)
}

/// A path of a backup, which is stored without the slash at its beginning.
pub fn absolute(source: &[u8]) -> Vec<u8> {
    Path::new("/").join(OsStr::from_bytes(source)).into_os_string().as_bytes().to_vec()
}
