//! Stores without MACs: what a verb reported as done stays done, whichever members are absent, return,
//! join, are replaced or leave afterwards (doc/decisions/0065-what-was-reported-done.md).
//!
//! Random sequences of verbs on real directories, against a model of what was reported.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{FailureDetector, OpenOptions, Store, forget, gc, load_snapshot, member, repair};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::label::Label;
use pinstripe_member::{ExtentKind, ExtentName};
use proptest::prelude::*;

use pinstripe_sim::{Ledger, NoWait, Site, backup, check, limits, remove_tree};

/// One step of a sequence; the byte chooses among what there is.
#[derive(Debug, Clone, Copy)]
enum Step {
    Backup,
    Forget(u8),
    Undelete(u8),
    Gc,
    Repair,
    Away(u8),
    Return,
    Add,
    Remove(u8),
    /// Of a member that is there.
    Replace(u8),
    /// A member dies and is replaced.
    Die(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Backup),
        4 => any::<u8>().prop_map(Step::Forget),
        4 => any::<u8>().prop_map(Step::Undelete),
        3 => Just(Step::Gc),
        1 => Just(Step::Repair),
        4 => any::<u8>().prop_map(Step::Away),
        4 => Just(Step::Return),
        2 => Just(Step::Add),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => any::<u8>().prop_map(Step::Replace),
        3 => any::<u8>().prop_map(Step::Die),
    ]
}

/// What was reported of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Backed up, or brought back: it must be listed, with its content.
    Kept,
    /// Forgotten or deleted while all members were there: it must not be listed.
    Gone,
    /// Forgotten or deleted while a member was away (exit code 4): it may be listed again.
    Doubtful,
}

struct World {
    site: Site,
    parity: usize,
    /// Places of the members that are there, and of those away, by number.
    there: BTreeMap<usize, PathBuf>,
    away: BTreeMap<usize, PathBuf>,
    made: usize,
    said: BTreeMap<SnapshotId, Said>,
}

impl World {
    fn new(members: usize, parity: usize) -> Self {
        let site = Site::clear(members, parity as u8);
        let there = site.members.iter().cloned().enumerate().collect();
        let (away, said) = (BTreeMap::new(), BTreeMap::new());
        World { site, parity, there, away, made: members, said }
    }

    /// Opens the store by a member that knows the newest table: one that was away may name only members
    /// that have left since.
    fn store(&self) -> Store {
        let options = OpenOptions { steps: Some(Arc::new(NoWait)), ..OpenOptions::default() };
        let generation = |place: &&PathBuf| {
            let label = std::fs::read(place.join(ExtentName::Label.path())).unwrap();
            Label::decode(&label).unwrap().table.generation
        };
        let place = self.there.values().max_by_key(generation).expect("one is there");
        Store::open_with(place, options).unwrap()
    }

    fn new_place(&mut self) -> PathBuf {
        self.made += 1;
        self.site.path(&format!("m{}", self.made))
    }

    fn picked(&self, which: u8, said: impl Fn(Said) -> bool) -> Option<SnapshotId> {
        let fits: Vec<_> =
            self.said.iter().filter(|(_, it)| said(**it)).map(|(id, _)| *id).collect();
        (!fits.is_empty()).then(|| fits[usize::from(which) % fits.len()])
    }

    fn member(&self, which: u8) -> usize {
        *self.there.keys().nth(usize::from(which) % self.there.len()).expect("one is there")
    }

    fn gone(&self) -> Said {
        if self.away.is_empty() { Said::Gone } else { Said::Doubtful }
    }

    /// What an `undelete` promises now. Where parity replaces half of the members, those that took the mark
    /// may all be absent later: it ended with 4.
    fn brought_back(&self) -> Said {
        let members = self.there.len() + self.away.len();
        let is_safe = self.away.is_empty() || members > 2 * self.parity;
        if is_safe { Said::Kept } else { Said::Doubtful }
    }

    /// Whether the members may change now. With so few of them, each part of a divided store could change
    /// its own table, and would go on as a half (decision 0033).
    fn may_change(&self) -> bool {
        self.away.is_empty() || self.there.len() + self.away.len() > 2 * self.parity
    }

    fn take(&mut self, step: Step) -> Result<()> {
        if matches!(step, Step::Add | Step::Remove(_) | Step::Replace(_) | Step::Die(_))
            && !self.may_change()
        {
            return Ok(());
        }
        let (ledger, limits) = (Ledger::new(), limits());
        let monitor = &ledger.monitor;
        let mut store = self.store();
        match step {
            Step::Backup => {
                let source = self.site.source();
                std::fs::write(source.join("file"), format!("{}", self.said.len())).unwrap();
                let saved = backup(&store, &source, &ledger)?;
                self.said.insert(saved.id, Said::Kept);
            }
            Step::Forget(which) => {
                let Some(id) = self.picked(which, |said| said == Said::Kept) else { return Ok(()) };
                let names = [id.to_string()];
                let choice = ForgetChoice::Named(&names);
                let options = ForgetOptions { allow_empty: true, ..ForgetOptions::new(choice) };
                forget::run(&store, &options, monitor)?;
                self.said.insert(id, self.gone());
            }
            Step::Undelete(which) => {
                let Some(id) = self.picked(which, |said| said != Said::Kept) else {
                    return Ok(());
                };
                forget::undelete(&store, &id.to_string(), monitor)?;
                self.said.insert(id, self.brought_back());
            }
            Step::Gc => {
                let options = gc::GcOptions {
                    max_waste: 0.0,
                    dry_run: false,
                    wait: std::time::Duration::ZERO,
                    limits,
                    detector: Arc::new(FailureDetector::default()),
                };
                gc::run(&store, &options, monitor)?;
            }
            Step::Repair => {
                repair::run(&mut store, limits, monitor)?;
            }
            Step::Away(which) => {
                if self.away.len() < self.parity && self.there.len() > 1 {
                    let number = self.member(which);
                    let place = self.there.remove(&number).unwrap();
                    std::fs::rename(&place, place.with_extension("away")).unwrap();
                    self.away.insert(number, place);
                }
            }
            Step::Return => {
                if let Some((number, place)) = self.away.pop_first() {
                    std::fs::rename(place.with_extension("away"), &place).unwrap();
                    self.there.insert(number, place);
                }
            }
            Step::Add => {
                if self.there.len() + self.away.len() < 6 {
                    let place = self.new_place();
                    let added = member::add(&mut store, &place, true, monitor)?;
                    self.there.insert(added.member, place);
                }
            }
            Step::Remove(which) => {
                let number = self.member(which);
                if self.there.len() + self.away.len() > self.parity + 1 && self.there.len() > 1 {
                    member::remove(&mut store, number, &limits, monitor)?;
                    self.there.remove(&number);
                }
            }
            Step::Replace(which) => self.replace(&mut store, self.member(which), &ledger)?,
            Step::Die(which) => {
                if self.away.len() < self.parity && self.there.len() > 1 {
                    let number = self.member(which);
                    remove_tree(&self.there.remove(&number).unwrap());
                    self.replace(&mut self.store(), number, &ledger)?;
                }
            }
        }
        Ok(())
    }

    fn replace(&mut self, store: &mut Store, number: usize, ledger: &Ledger) -> Result<()> {
        let place = self.new_place();
        let replaced = member::replace(store, number, &place, true, &limits(), &ledger.monitor)?;
        assert_eq!(replaced.lost_extents, 0);
        self.there.remove(&number);
        self.there.insert(replaced.replaced_by, place);
        Ok(())
    }

    /// Holds what is listed against what was reported.
    fn assert_said(&self, after: &str) {
        let store = self.store();
        let ledger = Ledger::new();
        let listed: Vec<_> = load_snapshot(&store, &ledger.monitor).unwrap();
        for (id, said) in &self.said {
            let is_listed = listed.iter().any(|it| it.id == *id);
            match said {
                Said::Kept => assert!(is_listed, "{after}: {id} was kept, and is not listed"),
                Said::Gone => assert!(!is_listed, "{after}: {id} was forgotten, and is listed"),
                Said::Doubtful => {}
            }
        }
        let outcome = check(&store, false, &ledger);
        // A deletion that ended with 4 is undone when the members that took it are lost one after
        // the other: the snapshot is listed without its content.
        let is_doubtful = |place: &str| {
            let doubtful = self.said.iter().filter(|(_, said)| **said == Said::Doubtful);
            doubtful
                .map(|(id, _)| id.short())
                .any(|id| place.starts_with(&format!("snapshot {id}")))
        };
        let hurt: Vec<_> = ledger
            .losses()
            .into_iter()
            .filter(|it| !is_doubtful(&it.place.to_string_lossy()))
            .collect();
        assert!(outcome.lost == 0 && hurt.is_empty(), "{after}: {hurt:?}");
    }
}

/// Whether a verb may end so: for want of members, or of something to do.
fn may_end(error: &Error) -> bool {
    matches!(error.kind(), Kind::Refused | Kind::NotFound | Kind::TooManyLosses)
}

fn play(members: usize, parity: usize, steps: &[Step]) {
    let mut world = World::new(members, parity);
    for (at, step) in [Step::Backup, Step::Backup].iter().chain(steps).enumerate() {
        let after = format!("{at} {step:?}");
        if let Err(error) = world.take(*step) {
            assert!(may_end(&error), "{after}: {error}");
        }
        world.assert_said(&after);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(
        std::env::var("PINSTRIPE_VOTES_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(40)
    ) })]

    #[test]
    fn what_was_reported_done_stays_done(
        members in 2usize..=5,
        parity in 0usize..=2,
        steps in prop::collection::vec(step(), 1..20),
    ) {
        play(members, parity.min(members - 1), &steps);
    }
}

/// C2: `undelete` while a member was away, then the members that took it are replaced one by one.
#[test]
fn an_undelete_outlasts_the_members_that_took_it() {
    use Step::{Away, Backup, Die, Forget, Gc, Return, Undelete};
    // Members 0 and 1 take the mark, member 2 does not; then 0 and 1 die.
    let steps = [Forget(0), Away(2), Undelete(0), Return, Backup, Die(0), Die(0), Gc];
    play(3, 1, &steps);
    play(3, 1, &[Forget(0), Away(2), Undelete(0), Return, Step::Add, Gc, Undelete(0)]);
}

/// H2: a tombstone that had its votes lost them when a member was added.
#[test]
fn a_tombstone_outlasts_a_member_that_was_away_and_one_that_joins() {
    use Step::{Add, Away, Forget, Gc, Return};
    play(3, 1, &[Forget(0), Gc, Away(2), Return, Add, Gc]);
    play(3, 1, &[Forget(0), Away(2), Gc, Return, Add, Gc]);
    play(3, 1, &[Away(2), Forget(0), Gc, Return, Step::Die(0), Gc]);
}

/// The successor of a member says what the member said: a tombstone that a member was too few for hides
/// a snapshot that another member brought back.
#[test]
fn a_tombstone_of_few_members_outlasts_the_replacement_of_one_that_is_present() {
    use Step::{Away, Forget, Gc, Replace, Return};
    let mut world = World::new(3, 1);
    let steps = [Step::Backup, Step::Backup, Away(2), Forget(0), Gc, Return, Away(0), Replace(0)];
    for (at, step) in steps.into_iter().enumerate() {
        world.take(step).unwrap_or_else(|error| panic!("{at} {step:?}: {error}"));
    }
    let listed = load_snapshot(&world.store(), &Ledger::new().monitor).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(check(&world.store(), true, &Ledger::new()).hurt_paths, 0);
    world.take(Return).unwrap();
    world.take(Gc).unwrap();
    world.assert_said("all members are back");
}

/// M2: without parity a tombstone became a stray that repair did not set aside.
#[test]
fn a_tombstone_without_parity_is_carried_to_a_member_that_joins() {
    play(2, 0, &[Step::Forget(0), Step::Gc, Step::Add, Step::Repair]);
}

/// M1: five bytes on one member of a mirror were reported as a loss for ever.
#[test]
fn junk_and_empty_objects_on_one_member_of_a_mirror_are_strays() {
    for (kind, bytes) in [
        (ExtentKind::Snapshots, &b"junk!"[..]),
        (ExtentKind::Snapshots, b""),
        (ExtentKind::Sessions, b""),
        (ExtentKind::Gc, b""),
        (ExtentKind::Forgotten, b"junk!"),
    ] {
        let mut world = World::new(2, 1);
        world.take(Step::Backup).unwrap();
        let name = ExtentName::In(kind, [9; 16]);
        std::fs::write(world.there[&1].join(name.path()), bytes).unwrap();
        for step in [Step::Backup, Step::Gc, Step::Forget(0)] {
            world.take(step).unwrap_or_else(|error| panic!("{kind:?} {step:?}: {error}"));
        }
        world.assert_said(&format!("{kind:?}"));
        world.take(Step::Repair).unwrap();
        let outcome = check(&world.store(), true, &Ledger::new());
        assert_eq!((outcome.repairable, outcome.lost), (0, 0), "{kind:?}");
    }
}

/// M3: an empty object on all members ended every backup and gc for ever.
#[test]
fn an_empty_step_or_session_on_all_members_ends_no_verb() {
    for kind in [ExtentKind::Gc, ExtentKind::Sessions] {
        for verb in [Step::Backup, Step::Gc, Step::Repair] {
            let mut world = World::new(3, 1);
            world.take(Step::Backup).unwrap();
            let name = ExtentName::In(kind, [9; 16]);
            for place in world.there.values() {
                std::fs::write(place.join(name.path()), b"").unwrap();
            }
            world.take(verb).unwrap_or_else(|error| panic!("{kind:?} {verb:?}: {error}"));
            world.take(Step::Repair).unwrap();
            let outcome = check(&world.store(), true, &Ledger::new());
            assert_eq!((outcome.repairable, outcome.lost), (0, 0), "{kind:?} {verb:?}");
        }
    }
}

/// Its name tells that it was put, although one member alone has it, and damaged.
#[test]
fn a_damaged_mark_of_one_member_of_a_mirror_keeps_its_snapshot() {
    let mut world = World::new(2, 1);
    for step in [Step::Backup, Step::Backup, Step::Forget(0)] {
        world.take(step).unwrap();
    }
    let marks = world.there[&0].join("forgotten");
    let names = || std::fs::read_dir(&marks).unwrap().map(|it| it.unwrap().path());
    let before: Vec<_> = names().collect();
    world.take(Step::Away(1)).unwrap();
    world.take(Step::Undelete(0)).unwrap();
    let mark = names().find(|path| !before.contains(path)).unwrap();
    std::fs::write(mark, b"").unwrap();
    world.take(Step::Return).unwrap();
    world.assert_said("a damaged mark");
    world.take(Step::Gc).unwrap();
    world.assert_said("gc");
}
