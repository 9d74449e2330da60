//! `pinstripe member`: adds, removes, replaces and rebalances members; merges halves of a store.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe::member::{self, MemberShare, Moved};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;

use crate::args::{Time, duration};
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::known_stores::Proof;
use crate::run::opening;
use crate::run::progress::Gauge;
use crate::run::unlock::unlock_half;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Add, remove, replace, merge or rebalance members of the store
///
/// The store stays usable while its members are changed: backup, restore and check may run at the
/// same time. If a command was interrupted, it continues where it stopped when it is run again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe member add /mnt/e/store
  pinstripe member remove 2
  pinstripe member replace 2 --to /mnt/new/store
  pinstripe member merge /mnt/old/store
  pinstripe member rebalance --dry-run")]
pub struct MemberArgs {
    #[command(subcommand)]
    act: MemberVerb,

    /// If another process is changing members, moving data or repairing, wait until it ends, at
    /// most for TIME (for example 10m), or without limit if no TIME is given
    #[arg(long, global = true, value_name = "TIME", num_args = 0..=1, require_equals = true,
          value_parser = duration)]
    wait: Option<Option<Time>>,
}

#[derive(clap::Subcommand)]
enum MemberVerb {
    /// Add a new member: a directory that is empty or does not exist, or a prefix in a bucket
    ///
    /// All later backups write to the new member. Data that is already stored is moved to the new
    /// member only by 'member rebalance'. Adding a member that is being removed cancels the
    /// removal.
    Add {
        /// The new member: a directory, or s3://BUCKET/PREFIX
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        place: PathBuf,

        /// Allow the new member to be on the same disk, or at the same endpoint, as another member
        #[arg(long, visible_alias = "same-disk")]
        same_fate: bool,

        #[cfg(feature = "s3")]
        #[command(flatten)]
        new_buckets: crate::bucket_args::NewBucketArgs,
    },
    /// Move all data of a member to the other members, and remove the member
    ///
    /// Each part of a pack (a unit of stored data) is moved to a member that has no other part of
    /// the same pack. If the remaining members are too few for the parts of a pack, nothing is
    /// moved; add a member before you remove one.
    Remove {
        /// Number of the member, as 'pinstripe members' shows it
        #[arg(value_name = "N")]
        member: usize,
    },
    /// Replace a member, which may be absent, by a new member
    ///
    /// Data that can be read from the old member is verified and copied; missing data is rebuilt
    /// from parity.
    Replace {
        /// Number of the old member, as 'pinstripe members' shows it
        #[arg(value_name = "N")]
        member: usize,

        /// Directory of the new member, which must be empty or must not exist
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        to: PathBuf,

        /// Allow the new member to be on the same disk, or at the same endpoint, as another member
        /// that remains
        #[arg(long, visible_alias = "same-disk")]
        same_fate: bool,

        #[cfg(feature = "s3")]
        #[command(flatten)]
        new_buckets: crate::bucket_args::NewBucketArgs,
    },
    /// Import the snapshots of the other half of a divided store
    ///
    /// A store is divided if its members were separated into two halves, each half made its own
    /// backups, and one half replaced the members of the other half. 'member merge' reads the data
    /// of the snapshots from the other half, verifies the data, and writes it to the store that
    /// --store names. The other half is not changed by 'member merge'.
    Merge {
        /// A directory that is a member of the other half
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        place: PathBuf,

        /// Only show what would be imported
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Move stored data from fuller members to emptier members
    Rebalance {
        /// Only show what would be moved
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
}

const GAUGE: Gauge =
    Gauge { label: "moving", done_bytes: |monitor| monitor.get(Counter::MovedBytes), passes: 1 };

impl MemberArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of [`member`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        #[cfg(feature = "s3")]
        if let MemberVerb::Add { place, new_buckets, .. }
        | MemberVerb::Replace { to: place, new_buckets, .. } = &self.act
        {
            run.new_buckets(*new_buckets, std::slice::from_ref(place))?;
        }
        run.wait_for(self.wait, || match &self.act {
            MemberVerb::Add { place, same_fate, .. } => add(run, place, *same_fate),
            MemberVerb::Remove { member } => remove(run, *member),
            MemberVerb::Replace { member, to, same_fate, .. } => {
                replace(run, *member, to, *same_fate)
            }
            MemberVerb::Merge { place, dry_run } => merge(run, place, *dry_run),
            MemberVerb::Rebalance { dry_run } => rebalance(run, *dry_run),
        })
    }
}

fn add(run: &Run, place: &Path, same_disk: bool) -> Result<Ending> {
    let place = &run.place(place)?;
    let mut store = run.open_store()?;
    let added = member::add(&mut store, place, same_disk, &run.monitor)?;
    run.remember(&store, Proof::Label);
    let parity = store.config.parity;
    run.screen.say(&format!(
        "the new member has number {}; its location is {}",
        added.member,
        escape::path(place)
    ));
    run.screen.say(&format!(
        "in new packs, each row (stripe) has {} for data and {parity} for parity",
        counted(added.data as u64, "strip")
    ));
    run.screen.say(
        "the data that is already stored was not moved; to distribute it over all members, run \
         'pinstripe member rebalance'",
    );
    Ok(Ending::done(Event::default().with_fields(&added)))
}

fn remove(run: &Run, number: usize) -> Result<Ending> {
    let mut store = run.open_store()?;
    let limits = run.limits(&store);
    let ticker = run.ticker(GAUGE);
    let removed = member::remove(&mut store, number, &limits, &run.monitor)?;
    drop(ticker);
    run.remember(&store, Proof::Label);
    say_moved(run, &removed.moved, "moved");
    let left = counted(removed.members as u64, "member");
    run.screen.say(&format!("removed member {number}; the store now has {left}"));
    run.screen.say(LEFT_THERE);
    Ok(Ending::done(Event::default().with("member", number).with_fields(&removed)))
}

/// The text about snapshots, index and sealed key slots, which stay on a removed member.
const LEFT_THERE: &str = "the files of the removed member, including sealed keys, stay where they \
                          are until you delete them";

pub(super) fn replace(run: &Run, number: usize, place: &Path, same_disk: bool) -> Result<Ending> {
    let place = &run.place(place)?;
    let mut store = run.open_store()?;
    let limits = run.limits(&store);
    let ticker = run.ticker(GAUGE);
    let replaced = member::replace(&mut store, number, place, same_disk, &limits, &run.monitor)?;
    drop(ticker);
    run.remember(&store, Proof::Label);
    say_moved(run, &replaced.moved, "moved");
    if replaced.rebuilt_extents > 0 {
        run.screen.say(&format!(
            "rebuilt {} from parity in {}",
            counted(replaced.rebuilt_extents, "extent"),
            time::span(run.elapsed())
        ));
    }
    let (new, place) = (replaced.replaced_by, escape::path(place));
    run.screen.say(&format!("member {number} was replaced by member {new} at {place}"));
    say_given_up(run, replaced.given_up_chunks);
    Ok(Ending::done(Event::default().with("member", number).with_fields(&replaced)))
}

const MERGE_GAUGE: Gauge = Gauge {
    label: "bringing over",
    done_bytes: |monitor| monitor.get(Counter::ReadBytes),
    passes: 1,
};

fn merge(run: &Run, place: &Path, dry_run: bool) -> Result<Ending> {
    let (store, credential) = run.open_with_credential()?;
    let place = &run.place(place)?;
    let mut other = opening::open_half(run, place)?;
    unlock_half(run, &mut other, credential.as_ref())?;
    let ticker = run.ticker(MERGE_GAUGE);
    let merged = member::merge(&store, &other, dry_run, &run.limits(&store), &run.monitor)?;
    drop(ticker);
    let act = if dry_run { "would import" } else { "brought over" };
    for id in &merged.brought {
        run.screen.event(&Event::new("snapshot").with("snapshot", id.to_string()))?;
        run.screen.say(&format!("{act} snapshot {}", id.short()));
    }
    let of = [
        (merged.brought_snapshots, act, ""),
        (merged.known_snapshots, "found", " that this half of the store also has"),
        (merged.deleted_snapshots, "left", " that this half of the store has deleted"),
    ];
    for (count, act, which) in of.into_iter().filter(|(count, ..)| *count > 0) {
        run.screen.say(&format!("{act} {}{which}", counted(count, "snapshot")));
    }
    run.say_redundancy();
    let is_thin = run.monitor.redundancy().is_some_and(|it| it.survives < it.parity);
    if !dry_run && run.count(Counter::Losses) == 0 {
        let place = escape::path(place);
        run.screen.say(&match is_thin {
            false => format!(
                "the other half of the store is no longer needed: you can empty {place}, and then add \
                 it to this store with 'pinstripe member add'"
            ),
            true => format!(
                "keep the other half of the store ({place}) until 'pinstripe repair' has restored the \
                 parity of this half"
            ),
        });
    }
    Ok(Ending::done(Event::default().with("dry_run", dry_run).with_fields(&merged)))
}

const HEAD: [(&str, Side); 3] =
    [("member", Side::Right), ("before", Side::Right), ("after", Side::Right)];

fn rebalance(run: &Run, dry_run: bool) -> Result<Ending> {
    let store = run.open_store()?;
    let limits = run.limits(&store);
    let ticker = run.ticker(GAUGE);
    let done = member::rebalance(&store, dry_run, &limits, &run.monitor)?;
    drop(ticker);
    for share in &done.shares {
        run.screen.event(&Event::new("share").with_fields(share))?;
    }
    let row = |share: &MemberShare| {
        let [before, after] = [share.before_bytes, share.after_bytes].map(format_size);
        vec![share.member.to_string(), before, after]
    };
    let rows: Vec<_> = done.shares.iter().map(row).collect();
    for line in table::lines(&HEAD, &rows) {
        // The table is the purpose of a dry run.
        match dry_run {
            true => run.screen.row(&line)?,
            false => run.screen.say(&line),
        }
    }
    say_moved(run, &done.moved, if dry_run { "would move" } else { "moved" });
    if done.moved == Moved::default() {
        run.screen.say(
            "there is nothing to move, because all members have about the same amount of data",
        );
    }
    Ok(Ending::done(Event::default().with("dry_run", dry_run).with_fields(&done.moved)))
}

fn say_moved(run: &Run, moved: &Moved, act: &str) {
    if moved.moved_extents > 0 {
        let (extents, bytes) =
            (counted(moved.moved_extents, "extent"), format_size(moved.moved_bytes));
        run.screen.say(&format!("{act} {extents}, {bytes}"));
    }
    if moved.removed_copies > 0 {
        let act = if act == "moved" { "removed" } else { "would remove" };
        let extents = counted(moved.removed_copies, "extent");
        run.screen.say(&format!("{act} {extents} that were stored twice"));
    }
}

/// Reports what to do about chunks that were given up.
pub(super) fn say_given_up(run: &Run, chunks: u64) {
    if chunks > 0 {
        run.screen.say(&format!(
            "gave up {} that cannot be recovered; all other content has its parity again. Run a \
             backup now: it stores the lost data that the sources still have, and so completes the \
             snapshots listed above",
            counted(chunks, "chunk")
        ));
    }
}
