//! `pinstripe restore`: restores a snapshot, or a part of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe::preview::{Act, ActTally};
use pinstripe::restore::{Delete, RestoreOptions};
use pinstripe::{Owners, PathFilter, Reuse, SnapshotName, preview, restore};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;
use pinstripe_member::entry::Entry;

use super::restore_file::FileTarget;
use super::snapshots;
use crate::choice_args::HostChoiceArgs;
use crate::escape;
use crate::event::Event;
use crate::exclude_args::{FilterArgs, Ordered};
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::snapshot_path;
use crate::time;
use crate::users;

/// Restore a snapshot, or a part of it, to a directory or to its original place
///
/// Without :PATH, the complete snapshot is restored, with full paths below DIR. With :PATH, the
/// content of PATH is restored as the content of DIR. Missing or damaged data is rebuilt from
/// parity.
///
/// With --in-place, DIR may already contain files. With --in-place and without --to, everything is
/// restored to its original place. With --in-place, an existing file is not changed if its size and
/// modification time are the same as in the snapshot. If an existing file differs from the
/// snapshot, only the parts that differ are read from the store. Each changed file is written under
/// a temporary name, and renamed when it is complete and durable. After a kill or a power cut,
/// either the old or the new version of a changed file exists.
///
/// Owners are stored and restored as numbers, not as names.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe restore latest --to /mnt/new
  pinstripe restore 1a2b3c4d:/home/me/Documents --to ~/Documents-of-may
  pinstripe restore latest:/etc --in-place --dry-run
  pinstripe restore latest:/etc/fstab --to-file fstab.old
  pinstripe restore latest:/srv/www --in-place --delete --verify
  pinstripe restore latest:/home --to /mnt/home --owner-map 1000:anna --group-map 1000:users
  pinstripe restore latest --to photos --include '*.jpg' --include '*.raw'
  pinstripe restore latest --to some --include-from paths.txt --exclude '*.tmp'")]
pub struct RestoreArgs {
    /// The snapshot: 'latest', 'latest~N' (N before the latest) or the beginning of its id; with :PATH, only PATH and everything
    /// below it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,

    /// The directory to restore to; without --in-place and --overwrite, it must be empty or must
    /// not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: Option<PathBuf>,

    /// Restore the single file PATH, and give it this name
    ///
    /// The file appears when it is complete.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["to",
          "in_place", "dry_run", "include", "include_from", "exclude", "exclude_from"])]
    to_file: Option<PathBuf>,

    /// After the restore, read all restored data again and compare it with the snapshot
    #[arg(long, conflicts_with = "dry_run")]
    verify: bool,

    /// Restore into a directory that is not empty; existing files with the same names are replaced
    #[arg(long)]
    overwrite: bool,

    /// Restore over existing files in DIR (without --to: over the original files), and write only
    /// data that differs
    #[arg(long)]
    in_place: bool,

    /// Compare the content of existing files even if size and modification time are the same as in
    /// the snapshot
    #[arg(long, requires = "in_place")]
    checksum: bool,

    /// Remove entries that are not in the snapshot, but only in directories that the snapshot
    /// contains completely
    ///
    /// A directory is removed with everything in it if the entry of the same name in the snapshot
    /// is not a directory. --yes is required if --delete would remove more entries than the
    /// snapshot contains in the same directories, or if the backup could not read some files.
    /// Members of stores, and everything that is mounted below PATH, are never removed. Files that
    /// the backup excluded by patterns are not in the snapshot, and are therefore removed; to see
    /// what would be removed, use --dry-run.
    #[arg(long, requires = "in_place")]
    delete: bool,

    /// Confirm a removal that --delete refuses without --yes
    #[arg(long, requires = "delete")]
    yes: bool,

    /// Only show what would be created, changed and removed
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    filter: Ordered<FilterArgs>,

    /// Restore files of user FROM as files of user TO, also in access control lists; FROM and TO
    /// are numbers or user names of this system; may be given more than once
    #[arg(long, value_name = "FROM:TO", value_parser = users::user_pair)]
    owner_map: Vec<(u32, u32)>,

    /// Restore files of group FROM as files of group TO, in the same way as --owner-map
    #[arg(long, value_name = "FROM:TO", value_parser = users::group_pair)]
    group_map: Vec<(u32, u32)>,

    /// Do not restore owners: restored files belong to you, without setuid, setgid and access
    /// control lists
    #[arg(long, conflicts_with_all = ["owner_map", "group_map"])]
    no_owner: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl RestoreArgs {
    /// Runs the restore.
    ///
    /// # Errors
    /// Fails with the errors of [`restore::run`] and [`preview::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (snapshot, path) = snapshot_path::parse(&self.what)?;
        if self.to.is_none() && self.to_file.is_none() && !self.in_place {
            return Err(Error::new(Kind::Usage, "no target directory was given").advice(
                "give an empty directory with --to DIR, a file with --to-file FILE, or restore to \
                 the original paths with --in-place ('--in-place --dry-run' shows what would \
                 change)",
            ));
        }
        let choice = self.choice.choice(run)?;
        let snapshot = SnapshotName { name: &snapshot, choice: &choice };
        let store = run.open_store()?;
        let limits = run.limits(&store);
        let file = self.to_file.as_deref().map(|it| FileTarget::new(it, self.overwrite));
        let file = file.transpose()?;
        let to = match &file {
            Some(file) => file.directory(),
            None => self.to.as_deref().unwrap_or(Path::new("/")),
        };
        let options = self.options(RestoreOptions::new(snapshot, path.as_bytes(), to, limits))?;
        if self.dry_run {
            run.warn_of_absent(&store);
            return preview(run, &store, &options);
        }
        let ticker = run.ticker(Gauge {
            label: "restoring",
            done_bytes: |monitor| {
                let counters = [Counter::RestoredBytes, Counter::KeptBytes, Counter::CheckedBytes];
                counters.iter().map(|&counter| monitor.get(counter)).sum()
            },
            passes: if self.verify { 2 } else { 1 },
        });
        let restored = restore::run(&store, &options, &run.monitor)?;
        drop(ticker);
        let to = self.to_file.clone().unwrap_or_else(|| to.to_path_buf());
        if file.map_or(Ok(true), |file| file.finish(Path::new(&path)))? {
            self.say(run, &to, &restored.id.short());
        }
        let facts = snapshots::facts(&restored).with_path("to", &to);
        Ok(Ending::done(facts.with("verified", self.verify)))
    }

    fn options<'a>(&self, plain: RestoreOptions<'a>) -> Result<RestoreOptions<'a>> {
        Ok(RestoreOptions {
            overwrite: self.overwrite,
            verify: self.verify,
            reuse: self.in_place.then_some(match self.checksum {
                true => Reuse::ByContent,
                false => Reuse::ByTime,
            }),
            full_paths: self.to.is_none() && self.to_file.is_none(),
            no_directory: self.to_file.is_some(),
            delete: self.delete.then_some(match self.yes {
                true => Delete::Whatever,
                false => Delete::WithinReason,
            }),
            filter: PathFilter {
                include: self.filter.included()?,
                exclude: self.filter.excluded()?,
            },
            owners: Owners {
                users: self.owner_map.clone(),
                groups: self.group_map.clone(),
                leave: self.no_owner,
            },
            ..plain
        })
    }

    fn say(&self, run: &Run, to: &Path, snapshot: &str) {
        let bytes = run.count(Counter::RestoredBytes);
        let elapsed = run.elapsed();
        run.screen.say(&format!(
            "restored {} ({}) of snapshot {snapshot} to {} in {}, {}",
            pinstripe_base::units::counted(run.count(Counter::RestoredEntries), "entry", "entries"),
            format_size(bytes),
            escape::path(to),
            time::span(elapsed),
            time::rate(bytes, elapsed),
        ));
        if self.in_place {
            run.screen.say(&format!(
                "kept {} and {} that already existed",
                pinstripe_base::units::counted(run.count(Counter::KeptEntries), "entry", "entries"),
                format_size(run.count(Counter::KeptBytes)),
            ));
        }
        if self.delete {
            run.screen.say(&format!(
                "removed {} ({})",
                pinstripe_base::units::counted(
                    run.count(Counter::RemovedEntries),
                    "entry",
                    "entries"
                ),
                format_size(run.count(Counter::RemovedBytes)),
            ));
        }
        let rebuilt = run.count(Counter::RebuiltStrips);
        if rebuilt > 0 {
            let rebuilt = counted(rebuilt, "strip");
            run.screen.say(&format!("rebuilt {rebuilt} from parity"));
        }
        if self.verify {
            let checked = format_size(run.count(Counter::CheckedBytes));
            run.screen
                .say(&format!("read {checked} again and compared the content with the snapshot"));
        }
    }
}

fn preview(run: &Run, store: &pinstripe::Store, options: &RestoreOptions<'_>) -> Result<Ending> {
    let mut show = |act: Act, place: PathBuf, bytes: u64, _: Option<&Entry>| {
        let word = match act {
            Act::Make => "make",
            Act::Change => "change",
            Act::Keep => "keep",
            Act::Remove => "remove",
        };
        let event = Event::new("preview").with("act", word).with_path("path", &place);
        run.screen.event(&event.with("bytes", bytes))?;
        run.screen.row(&format!("{word:<6} {:>11} {}", bytes, escape::path(&place)))
    };
    let (snapshot, found) = preview::run(store, options, &run.monitor, &mut show)?;
    let told = |ActTally { entries, bytes }: ActTally| {
        let entries = pinstripe_base::units::counted(entries, "entry", "entries");
        format!("{entries} ({})", format_size(bytes))
    };
    run.screen.say(&format!(
        "a restore would create {}, change {}, keep {} and remove {}; nothing was changed",
        told(found.make),
        told(found.change),
        told(found.keep),
        told(found.remove),
    ));
    let tallies = [
        ("make", found.make),
        ("change", found.change),
        ("keep", found.keep),
        ("remove", found.remove),
    ];
    let facts = snapshots::facts(&snapshot).with_path("to", options.to).with("dry_run", true);
    let facts = tallies.into_iter().fold(facts, |facts, (name, tally)| {
        let facts = facts.with(&format!("{name}_entries"), tally.entries);
        facts.with(&format!("{name}_bytes"), tally.bytes)
    });
    Ok(Ending::done(facts))
}
