//! `pinstripe find`: searches names and paths in all snapshots.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use pinstripe::{
    FoundVersion, Glob, Holder, Query, SnapshotChoice, SnapshotName, Store, find, shared, snapshots,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::meta::FileKind;

use super::catalog::{CatalogFile, GAUGE};
use super::ls;
use crate::args::{self, Size};
use crate::choice_args::ChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::run::{Ending, Run};
use crate::time;

/// Find files by name or path in all snapshots
///
/// Prints one line for each version of each matching path. Each line shows the size in bytes, the
/// time of the last change, the first and the last snapshot that contain the version, the number of
/// snapshots that contain it, and the path. The search uses the catalog, an index file outside the
/// store. If the catalog is missing or out of date, it is created or updated before the search.
#[derive(clap::Args)]
#[command(after_long_help = "\
Patterns are matched against names at any depth, or against paths:
  invoice.pdf      this name
  '*invoice*'      any name that contains this word
  'src/*.c'        the end of any path
  '/home/*/tmp'    a complete path
  'build/'         directories of this name

Examples:
  pinstripe find '*invoice*'
  pinstripe find '/etc/**' --snapshot latest --type symlink
  pinstripe find '*.iso' --min-size 1G --host nas
  pinstripe find '*.odt' --newer 2024-05-01 --json | jq -r .path
  pinstripe find 'id_rsa' --all-hosts")]
pub struct FindArgs {
    /// Pattern to search for
    #[arg(value_name = "PATTERN")]
    pattern: OsString,

    /// Search only this snapshot: 'latest', 'latest~N' or the beginning of its id; may be given more
    /// than once
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Vec<String>,

    /// Find only entries of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Type>,

    /// Find only entries of at least this many bytes, for example 100M
    #[arg(long, value_name = "SIZE", value_parser = args::size)]
    min_size: Option<Size>,

    /// Find only entries of at most this many bytes
    #[arg(long, value_name = "SIZE", value_parser = args::size)]
    max_size: Option<Size>,

    /// Find only entries last changed at this time or later: 2024-05-01, or '2024-05-01 12:30:00'
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    newer: Option<i64>,

    /// Find only entries last changed before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    older: Option<i64>,

    #[command(flatten)]
    all: args::AllHosts,

    #[command(flatten)]
    place: CatalogFile,

    #[command(flatten)]
    choice: ChoiceArgs,
}

/// The types of entries, as `ls --json` names them.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Type {
    #[value(alias = "f")]
    File,
    #[value(alias = "d")]
    Directory,
    #[value(alias = "l")]
    Symlink,
    #[value(alias = "p")]
    Fifo,
    #[value(alias = "s")]
    Socket,
    #[value(alias = "c", name = "char_device")]
    CharDevice,
    #[value(alias = "b", name = "block_device")]
    BlockDevice,
}

impl FindArgs {
    /// Searches.
    ///
    /// # Errors
    /// Fails with the errors of [`find::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let glob = Glob::new(self.pattern.as_bytes())?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let query = self.query(glob, &store, run)?;
        let ticker = run.ticker(GAUGE);
        let mut versions = 0_u64;
        let mut show = |found: FoundVersion| {
            versions += 1;
            if run.screen.is_json() {
                run.screen.event(&event(&found))
            } else {
                run.screen.row(&line(&found))
            }
        };
        match run.catalog_of_all(&store, self.all.all_hosts)? {
            Some(of_all) => shared::find(&store, &*of_all, &query, &run.monitor, &mut show)?,
            None => {
                let place = self.place.database(run, &store)?;
                find::run(&store, &place, &query, &run.monitor, &mut show)?;
            }
        }
        drop(ticker);
        let facts = Event::default().with("versions", versions);
        if versions > 0 {
            return Ok(Ending::done(facts));
        }
        let is_plain = !self.pattern.as_bytes().iter().any(|byte| b"*?[/".contains(byte));
        let hint = if is_plain {
            let pattern = self.pattern.to_string_lossy();
            format!("; a pattern must match a complete name: try '*{}*'", escape::text(&pattern))
        } else {
            String::new()
        };
        run.monitor.note(&format!("no entry in the searched snapshots matches the search{hint}"));
        Ok(Ending { code: exit::NOT_FOUND, facts })
    }

    fn query(&self, glob: Glob, store: &Store, run: &Run) -> Result<Query> {
        let mut query = Query::new(glob);
        query.kind = self.kind.map(Type::kind);
        query.size.start = self.min_size.map_or(0, |size| size.0);
        query.size.end = self.max_size.map_or(u64::MAX, |size| size.0.saturating_add(1));
        query.mtime.start = self.newer.unwrap_or(i64::MIN);
        query.mtime.end = self.older.unwrap_or(i64::MAX);
        if query.size.is_empty() || query.mtime.is_empty() {
            return Err(Error::new(Kind::Usage, "no file can match this range of sizes or times")
                .advice("give the smaller size to --min-size and the earlier time to --newer"));
        }
        let choice = &self.choice.choice(run, self.all.all_hosts)?;
        if !self.snapshot.is_empty() {
            let known = snapshots::run(store, &run.monitor)?;
            let find = |name: &String| {
                let name = SnapshotName { name, choice };
                pinstripe::find_snapshot(&known, name, &run.monitor).map(|snapshot| snapshot.id)
            };
            query.snapshots = Some(self.snapshot.iter().map(find).collect::<Result<HashSet<_>>>()?);
        } else if let Some(host) = choice.only_host() {
            query.host = Some(host.to_vec());
        } else if choice.is_limited() {
            query.snapshots = Some(chosen(run, store, choice)?);
        }
        Ok(query)
    }
}

/// The snapshots that a choice leaves.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when it leaves none.
pub fn chosen(run: &Run, store: &Store, choice: &SnapshotChoice) -> Result<HashSet<SnapshotId>> {
    let known = snapshots::run(store, &run.monitor)?;
    Ok(choice.require(known.iter())?.into_iter().map(|snapshot| snapshot.id).collect())
}

impl Type {
    fn kind(self) -> FileKind {
        match self {
            Type::File => FileKind::File,
            Type::Directory => FileKind::Directory,
            Type::Symlink => FileKind::Symlink,
            Type::Fifo => FileKind::Fifo,
            Type::Socket => FileKind::Socket,
            Type::CharDevice => FileKind::CharDevice,
            Type::BlockDevice => FileKind::BlockDevice,
        }
    }
}

fn line(found: &FoundVersion) -> String {
    let slash = if found.kind == FileKind::Directory { "/" } else { "" };
    format!(
        "{:>12} {} {:<23} /{}{slash}",
        found.size,
        time::date(found.mtime.seconds),
        holders(&found.snapshots),
        escape::name(&found.path),
    )
}

/// Formats the snapshots as `1a2b3c4d`, or `1a2b3c4d..5e6f7a8b (12)`.
pub fn holders(snapshots: &[Holder]) -> String {
    match snapshots {
        [] => "-".to_owned(),
        [one] => one.id.short(),
        [first, .., last] => {
            format!("{}..{} ({})", first.id.short(), last.id.short(), snapshots.len())
        }
    }
}

/// Formats a version as an event.
fn event(found: &FoundVersion) -> Event {
    facts(Event::new("found"), found).with_all(held_by(&found.snapshots))
}

/// Adds the facts about a version to an event.
pub fn facts(event: Event, found: &FoundVersion) -> Event {
    event
        .with_name("path", &[b"/", &found.path[..]].concat())
        .with("type", ls::kind_name(found.kind))
        .with("mode", format!("{:04o}", found.mode))
        .with("bytes", found.size)
        .with("mtime_seconds", found.mtime.seconds)
        .with("mtime_nanos", found.mtime.nanos)
        .with_name("host", &found.host)
}

/// An event with the snapshots that hold a version.
pub fn held_by(snapshots: &[Holder]) -> Event {
    let ids: Vec<_> = snapshots.iter().map(|snapshot| snapshot.id.to_string()).collect();
    Event::default().with("snapshots", ids)
}
