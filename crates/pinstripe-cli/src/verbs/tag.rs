//! `pinstripe tag`: changes the tags and the comment of snapshots.

use pinstripe::tag::{self, TagEdit, TagOptions};
use pinstripe::{SnapshotName, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::snapshot::Snapshot;

use super::snapshots;
use crate::args::{comment, tag as parse_tag};
use crate::choice_args::HostChoiceArgs;
use crate::run::rollback;
use crate::run::{Ending, Run};

/// Change the tags and the comment of a snapshot
///
/// A snapshot never changes: a new snapshot of the same files takes its place, with a new id, the
/// same time and the new tags. The old snapshot is forgotten, and can be brought back with
/// 'pinstripe undelete' until the next 'pinstripe gc'. No file is read or stored again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe tag add latest before-upgrade
  pinstripe tag remove 3f2a9c10 daily weekly
  pinstripe tag set latest~1 keep --comment 'the last one with the old mail server'
  pinstripe tag set 3f2a9c10                              # no tags")]
pub struct TagArgs {
    #[command(subcommand)]
    verb: TagVerb,
}

#[derive(clap::Subcommand)]
enum TagVerb {
    /// Add tags to a snapshot
    Add(ChangeArgs),
    /// Remove tags from a snapshot
    Remove(ChangeArgs),
    /// Replace all tags of a snapshot
    Set(SetArgs),
}

#[derive(clap::Args)]
struct ChangeArgs {
    #[command(flatten)]
    of: OfArgs,

    /// Tags, each of one word
    #[arg(required = true, value_name = "TAG", value_parser = parse_tag)]
    tags: Vec<String>,
}

#[derive(clap::Args)]
struct SetArgs {
    #[command(flatten)]
    of: OfArgs,

    /// The new tags; without any, the snapshot has none
    #[arg(value_name = "TAG", value_parser = parse_tag)]
    tags: Vec<String>,

    /// Set the comment, and without TAGs keep the tags; '' removes the comment
    #[arg(long, value_name = "TEXT", value_parser = comment)]
    comment: Option<String>,
}

#[derive(clap::Args)]
struct OfArgs {
    /// The snapshot: 'latest', 'latest~N', or the beginning of its id
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,

    /// Only show what would change
    #[arg(long, short = 'n')]
    dry_run: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl TagArgs {
    /// Changes the snapshot.
    ///
    /// # Errors
    /// Fails with the errors of [`tag::run`]; with [`Kind::NotFound`] if the snapshot has
    /// none of the tags to be removed.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (of, tags, comment) = match &self.verb {
            TagVerb::Add(args) => (&args.of, TagEdit::Add(&args.tags), None),
            TagVerb::Remove(args) => (&args.of, TagEdit::Remove(&args.tags), None),
            // A comment alone leaves the tags as they are.
            TagVerb::Set(args) if args.tags.is_empty() && args.comment.is_some() => {
                (&args.of, TagEdit::Add(&[]), args.comment.as_deref())
            }
            TagVerb::Set(args) => (&args.of, TagEdit::Set(&args.tags), args.comment.as_deref()),
        };
        let choice = &of.choice.choice(run)?;
        let store = run.open_store()?;
        if !of.dry_run {
            rollback::warn(run, &store)?;
        }
        let name = SnapshotName { name: &of.snapshot, choice };
        let options = TagOptions { tags, comment, dry_run: of.dry_run };
        let tagged = tag::run(&store, name, &options, &run.limits(&store), &run.monitor)?;
        let Some(after) = tagged.after else {
            return unchanged(run, &tagged.before, tags);
        };
        if !of.dry_run {
            keep(run, &store, &after);
        }
        say(run, &tagged.before, &after, of.dry_run);
        run.screen.event(&snapshots::event(&after))?;
        let facts = snapshots::facts(&after).with("replaces", tagged.before.id.to_string());
        Ok(Ending::done(facts.with("dry_run", of.dry_run)))
    }
}

/// Nothing was to change: an error if the snapshot has none of the tags to be removed.
fn unchanged(run: &Run, snapshot: &Snapshot, tags: TagEdit<'_>) -> Result<Ending> {
    let short = snapshot.id.short();
    match tags {
        TagEdit::Remove(tags) => {
            let what = format!("snapshot {short} does not have the tag {}", tags.join(", "));
            Err(Error::new(Kind::NotFound, what)
                .advice("'pinstripe snapshots' shows the tags of each snapshot"))
        }
        _ => {
            run.screen.say(&format!("snapshot {short} already is as asked: nothing was changed"));
            Ok(Ending::done(snapshots::facts(snapshot).with("unchanged", true)))
        }
    }
}

/// Remembers the new snapshot, and passes it on to a shared catalog.
fn keep(run: &Run, store: &Store, after: &Snapshot) {
    rollback::keep_made(run, store, after);
    #[cfg(feature = "serve")]
    run.share(store);
}

fn say(run: &Run, before: &Snapshot, after: &Snapshot, dry_run: bool) {
    let tags = match after.tags.as_slice() {
        [] => "no tags".to_owned(),
        tags => format!("the tags {}", tags.join(", ")),
    };
    let old = before.id.short();
    run.screen.say(&match dry_run {
        true => format!("a new snapshot would take the place of {old}, with {tags}"),
        false => format!("snapshot {} takes the place of {old}, with {tags}", after.id.short()),
    });
}
