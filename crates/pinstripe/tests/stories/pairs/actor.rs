//! One verb in one process: it opens the store, does its work as the command line would, and says
//! what came of it.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe::backup::Stream;
use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::gc::GcOptions;
use pinstripe::member::Brought;
use pinstripe::tag::{TagEdit, TagOptions, Tagged};
use pinstripe::upgrade::Direction;
use pinstripe::{
    Glob, OpenOptions, Query, Store, backup, cat, check, diff, dump, find, forget, gc, history,
    key, ls, member, members, preview, rebuild_catalog, repair, restore, scrub, seen, snapshots,
    stats, tag, upgrade,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::Deadlines;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_sim::{Stage as _, Who};
use pinstripe_stripe::Policy;

use super::keys::Key;
use super::mount;
use super::story::Act;
use super::template::options_of;
use super::verb::Verb;
use super::world::{Where, World, limits};
use crate::process::Scheduled;
use pinstripe_sim::Dice;
use pinstripe_sim::{Ledger, remove_tree};
use pinstripe_sim::{Tree, look};

/// Longer than any writer of these stores takes to answer.
const WAIT: Duration = Duration::from_secs(120);
/// The time that members are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The content of streams.
const STREAM: &[u8] = b"a stream like many others, of a few bytes";

/// What a verb is about, chosen before anything of its scene happens.
#[derive(Clone)]
pub struct Target {
    pub snapshot: SnapshotId,
    pub source: usize,
    /// A key that is there, to be removed, and one that is not, to be added.
    pub old_key: Key,
    pub new_key: Key,
    /// A member, and the directory of a new one.
    pub seat: usize,
    pub new_place: PathBuf,
}

impl Target {
    pub fn choose(world: &mut World, act: Act) -> Target {
        let mut dice = Dice::new(act.pick);
        let forgotten = world.kept.iter().filter(|kept| !kept.must_stay()).map(|kept| kept.id());
        let forgotten: Vec<SnapshotId> = forgotten.collect();
        let wanted = world.kept.iter().filter(|kept| kept.must_stay()).map(|kept| kept.id());
        let wanted: Vec<SnapshotId> = wanted.collect();
        let [first, second] = match act.verb {
            Verb::Undelete => [forgotten, wanted],
            _ => [wanted, forgotten],
        };
        let from = if first.is_empty() { &second } else { &first };
        let snapshot = from.get(dice.below(from.len().max(1))).copied();
        let mut seat = dice.below(world.seats.len());
        for wanted in [Where::Away, Where::Dead] {
            let at = world.seats.iter().position(|seat| seat.is == wanted);
            seat = at.filter(|_| act.verb == Verb::ReplaceDead).unwrap_or(seat);
        }
        let number = world.new_number();
        let keys = world.keys.lock().unwrap();
        let old_key = dice.pick(&keys).clone();
        drop(keys);
        Target {
            snapshot: snapshot.unwrap_or(SnapshotId([0; 16])),
            source: if act.verb == Verb::Resume { 2 } else { dice.below(2) },
            old_key,
            new_key: Key::new(number),
            seat,
            new_place: world.site.path(&format!("new-{number}")),
        }
    }
}

/// What a verb reported.
pub enum Done {
    /// Nothing that a judge could hold it to.
    Read,
    Saved(Snapshot),
    Streamed(Snapshot),
    Restored(SnapshotId, Tree),
    Checked(check::CheckOutcome),
    /// The snapshots, and whether no member was absent when it ended.
    Forgot(Vec<SnapshotId>, bool),
    Undeleted(Snapshot),
    /// Whether no member was absent when it ended.
    Tagged(Box<Tagged>, bool),
    Collected,
    Scrubbed(scrub::ScrubOutcome),
    Repaired(repair::RepairOutcome),
    Replaced(u64),
    Key,
    Member,
    Merged(Brought),
}

/// A process.
pub struct Actor<'a> {
    pub world: &'a World,
    pub number: usize,
    pub act: Act,
    pub target: Target,
    pub who: Who,
    pub faults: String,
    /// Whether members have a deadline.
    pub has_patience: bool,
    pub ledger: Ledger,
    /// Members that did not answer.
    pub silent: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Actor<'_> {
    fn options(&self) -> OpenOptions {
        let faults = [self.faults.as_str(), Scheduled.faults()].join(";");
        let patience = self.has_patience.then(|| {
            let silent = Arc::clone(&self.silent);
            let tell = move |place: &Path, _| {
                silent.lock().unwrap().insert(place.into());
            };
            Deadlines::new(PATIENCE, Arc::<AtomicBool>::default(), tell)
        });
        let faults = faults.trim_matches(';').parse().unwrap();
        OpenOptions { faults, patience, ..OpenOptions::default() }
    }

    /// Does the work of its verb.
    pub fn run(&self) -> Result<Done> {
        let store = self.world.open_as(&self.who, self.options())?;
        pinstripe_schedule::has_opened(self.number);
        let done = self.carry_out(store);
        match self.ledger.monitor.take_outdated() {
            Some(outdated) => done.and(Err(outdated)),
            None => done,
        }
    }

    fn carry_out(&self, mut store: Store) -> Result<Done> {
        match self.act.verb {
            Verb::Backup | Verb::Resume | Verb::Stream => self.save(&store),
            Verb::Forget | Verb::ForgetByRule | Verb::Undelete => self.forget(&store),
            Verb::Tag => self.tag(&store),
            Verb::Gc => self.collect(&store),
            Verb::Scrub => self.scrub(&store),
            Verb::Repair => self.repair(&mut store),
            Verb::Upgrade => upgrade::run(&mut store, Direction::Forward).map(|_| Done::Member),
            Verb::KeyAdd | Verb::KeyRemove | Verb::KeyRotate => self.change_keys(&mut store),
            Verb::MemberAdd
            | Verb::MemberRemove
            | Verb::ReplaceLiving
            | Verb::ReplaceDead
            | Verb::Rebalance => self.change_members(&mut store),
            Verb::Merge => self.merge(&store),
            Verb::Mount => mount::read(store).map(|()| Done::Read),
            _ => self.read(&store),
        }
    }

    fn save(&self, store: &Store) -> Result<Done> {
        pinstripe_sim::await_tick();
        let options = options_of(&self.world.sources.path(self.target.source));
        if self.act.verb == Verb::Stream {
            let content = Box::new(STREAM);
            let stream = Stream { name: b"stream".to_vec(), content, owner: (0, 0) };
            let saved = backup::run_stream(store, stream, &options, &self.ledger.monitor);
            return saved.map(Done::Streamed);
        }
        backup::run(store, options, &self.ledger.monitor).map(Done::Saved)
    }

    fn name(&self) -> String {
        self.target.snapshot.to_string()
    }

    fn forget(&self, store: &Store) -> Result<Done> {
        let monitor = &self.ledger.monitor;
        let names = [self.name()];
        let policy = Policy { last: Some(1), ..Policy::default() };
        let choice = match self.act.verb {
            Verb::Undelete => {
                return forget::undelete(store, &names[0], monitor).map(Done::Undeleted);
            }
            Verb::Forget => ForgetChoice::Named(&names),
            _ => {
                let now = (i64::MAX, 0);
                ForgetChoice::Policy { policy: &policy, offset_at: &|_| 0, now }
            }
        };
        let options = ForgetOptions { allow_empty: true, ..ForgetOptions::new(choice) };
        let verdicts = forget::run(store, &options, monitor)?.verdicts;
        let gone = verdicts.iter().filter(|it| !it.stays()).map(|it| it.snapshot.id);
        Ok(Done::Forgot(gone.collect(), store.absent().next().is_none()))
    }

    fn tag(&self, store: &Store) -> Result<Done> {
        let tags = [format!("tag-{}", self.act.pick)];
        let comment = self.act.pick.is_multiple_of(2).then_some("a comment");
        let options = TagOptions { tags: TagEdit::Add(&tags), comment, dry_run: false };
        let tagged = tag::run(store, &*self.name(), &options, &limits(), &self.ledger.monitor)?;
        Ok(Done::Tagged(Box::new(tagged), store.absent().next().is_none()))
    }

    fn collect(&self, store: &Store) -> Result<Done> {
        let max_waste = if self.act.pick.is_multiple_of(4) { 0.5 } else { 0.0 };
        let detector = Arc::default();
        let options =
            GcOptions { max_waste, dry_run: false, wait: WAIT, limits: limits(), detector };
        gc::run(store, &options, &self.ledger.monitor).map(|_| Done::Collected)
    }

    fn scrub(&self, store: &Store) -> Result<Done> {
        let budget = "100%".parse()?;
        let options =
            scrub::ScrubOptions { budget, rate: None, save_bytes: 20_000, limits: limits() };
        scrub::run(store, &options, &self.ledger.monitor, &|_| {}).map(Done::Scrubbed)
    }

    fn repair(&self, store: &mut Store) -> Result<Done> {
        repair::run(store, limits(), &self.ledger.monitor).map(Done::Repaired)
    }

    fn change_keys(&self, store: &mut Store) -> Result<Done> {
        match self.act.verb {
            Verb::KeyAdd => key::add(store, &self.target.new_key.slot()).map(drop)?,
            Verb::KeyRemove => key::remove(store, &self.target.old_key.label).map(drop)?,
            _ => key::rotate(store, &self.target.new_key.slot()).map(drop)?,
        }
        Ok(Done::Key)
    }

    fn change_members(&self, store: &mut Store) -> Result<Done> {
        let (monitor, limits) = (&self.ledger.monitor, limits());
        let number = self.world.seats[self.target.seat].number;
        let place = &self.target.new_place;
        match self.act.verb {
            Verb::MemberAdd => member::add(store, place, true, monitor).map(|_| Done::Member),
            Verb::MemberRemove => {
                member::remove(store, number, &limits, monitor).map(|_| Done::Member)
            }
            Verb::Rebalance => {
                member::rebalance(store, false, &limits, monitor).map(|_| Done::Member)
            }
            _ => {
                let replaced = member::replace(store, number, place, true, &limits, monitor)?;
                Ok(Done::Replaced(replaced.lost_extents))
            }
        }
    }

    fn merge(&self, store: &Store) -> Result<Done> {
        let (place, _) = self
            .world
            .other_half
            .as_ref()
            .ok_or_else(|| Error::new(Kind::Usage, "the story's store is not divided"))?;
        let mut other = Store::open_with(place, OpenOptions { half: true, ..self.options() })?;
        if self.world.shape.is_sealed {
            other.unlock(&Key::first().credential())?;
        }
        member::merge(store, &other, false, &limits(), &self.ledger.monitor).map(Done::Merged)
    }

    fn read(&self, store: &Store) -> Result<Done> {
        let (monitor, name) = (&self.ledger.monitor, self.name());
        let path = self.world.kept(self.target.snapshot).map(|kept| kept.path.clone());
        let path = path.unwrap_or_else(|| self.world.sources.path(0));
        let bytes = path.as_os_str().as_encoded_bytes();
        match self.act.verb {
            Verb::Restore => return self.restore(store, &name, bytes),
            Verb::Check => {
                let read_data = !self.act.pick.is_multiple_of(3);
                let options = check::CheckOptions { read_data, limits: limits() };
                return check::run(store, &options, monitor).map(Done::Checked);
            }
            Verb::Preview => {
                let to = self.world.site.target();
                let options = restore::RestoreOptions::new(&name, bytes, &to, limits());
                preview::run(store, &options, monitor, &mut |_, _, _, _| Ok(())).map(drop)?;
            }
            Verb::Survey => {
                let options = options_of(&self.world.sources.path(self.target.source));
                backup::survey(store, &options, monitor, &mut |_| Ok(()))?;
            }
            Verb::Ls => ls::run(store, &name, bytes, monitor, &mut |_| Ok(()))?,
            Verb::Cat => self.cat(store, name)?,
            Verb::Dump => {
                let options = dump::DumpOptions {
                    snapshot: (&name).into(),
                    path: bytes,
                    fill_holes: true,
                    limits: limits(),
                };
                dump::run(store, &options, monitor, &mut |_| Ok(())).map(drop)?;
            }
            Verb::Diff => {
                let mut wanted = self.world.kept.iter().filter(|kept| kept.must_stay());
                let other = wanted.next_back().map_or(name.clone(), |kept| kept.id().to_string());
                diff::run(store, &name, &other, monitor, &mut |_, _, _| Ok(())).map(drop)?;
            }
            Verb::Find => {
                let query = Query::new(Glob::new(b"a")?);
                find::run(store, &self.catalog(), &query, monitor, &mut |_| Ok(()))?;
            }
            Verb::History => {
                history::run(store, &self.catalog(), bytes, monitor).map(drop)?;
            }
            Verb::Catalog => rebuild_catalog(store, &self.catalog(), monitor).map(drop)?,
            Verb::Snapshots => snapshots::run(store, monitor).map(drop)?,
            Verb::Seen => {
                let seen = self
                    .world
                    .kept
                    .last()
                    .map(|it| seen::SeenSnapshot::from_snapshot(&it.snapshot));
                seen::compare(store, seen.as_ref()).map(drop)?;
            }
            Verb::Stats => {
                let read_data = self.act.pick.is_multiple_of(2);
                let options = stats::StatsOptions {
                    choice: pinstripe::SnapshotChoice::any(),
                    snapshot: None,
                    read_data,
                    limits: limits(),
                };
                stats::run(store, &options, monitor).map(drop)?;
            }
            Verb::Members => members::run(store).map(drop)?,
            Verb::ScrubStatus => scrub::status(store, 0, monitor).map(drop)?,
            Verb::KeyList => key::list(store, monitor).map(drop)?,
            other => unreachable!("{other:?} does not only read"),
        }
        Ok(Done::Read)
    }

    /// A file of this process.
    fn catalog(&self) -> PathBuf {
        self.world.site.path(&format!("catalog-{}-{}", self.number, self.act.pick))
    }

    fn restore(&self, store: &Store, name: &str, path: &[u8]) -> Result<Done> {
        let to = self.world.site.target();
        let options = restore::RestoreOptions {
            verify: true,
            ..restore::RestoreOptions::new(name, path, &to, limits())
        };
        let restored = restore::run(store, &options, &self.ledger.monitor)?;
        let tree = look(&to);
        remove_tree(&to);
        Ok(Done::Restored(restored.id, tree))
    }

    /// Every file of a snapshot.
    fn cat(&self, store: &Store, name: String) -> Result<()> {
        let Some(kept) = self.world.kept(self.target.snapshot) else { return Ok(()) };
        let path = kept.path.as_os_str().as_encoded_bytes();
        let mut inodes = HashSet::new();
        let is_file = |look: &pinstripe_sim::Look| look.mode & libc::S_IFMT == libc::S_IFREG;
        let files = kept.tree.iter().filter(|(_, look)| is_file(look));
        let files = files.filter(|(_, look)| inodes.insert(look.first_name.clone()));
        let files = files.map(|(below, _)| (name.clone(), [path, b"/", below].concat()));
        let files: Vec<_> = files.take(5).collect();
        let options = cat::CatOptions::new(&files, limits());
        cat::run(store, &options, &self.ledger.monitor, &mut |_| Ok(()))
    }
}
