//! The store under stress, and its model: the content of each snapshot, whether it is wanted, and
//! the members that may be lost without data loss.
//!
//! A member counts as *hurt* from the moment something is wrong with it (it was detached during a
//! write, destroyed or damaged, or it lost data) until a repair that includes it has ended well. A
//! story never hurts more members than parity replaces; within this limit, all data must be
//! recovered.
//!
//! The other modules of this directory contain the operations: writing, deletion, health, members,
//! keys.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe::{OpenOptions, Store, snapshots};
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::label::MemberState;
use pinstripe_member::snapshot::Snapshot;

use crate::keys::Key;
use crate::look::{Tree, assert_same, look};
use crate::operation::{End, Operation, Story};
use crate::process::{Stage, Trace, Who};
use crate::source::{self, Stamps};
use crate::support::{Ledger, Site, remove_tree, repair, restore};

/// Whether a snapshot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Yes,
    /// The snapshot is forgotten: gc may delete it.
    No,
    /// A forget or undelete was interrupted: the mark may be on some members only.
    Unsure,
}

/// A snapshot, and the content that it must restore.
pub struct Kept {
    pub snapshot: Snapshot,
    pub source: usize,
    pub tree: Tree,
    /// Whether the snapshot's backup reported success, or a repair has seen the snapshot since. A
    /// backup that was interrupted between writing the snapshot's object and its end may have
    /// written it to some members only; the snapshot may be complete, or be lost with these
    /// members.
    pub firm: bool,
    pub wanted: Wanted,
    /// Whether a gc began since the snapshot was forgotten; an undelete may then be too late.
    pub exposed: bool,
}

impl Kept {
    pub fn id(&self) -> SnapshotId {
        self.snapshot.id
    }

    /// Whether the snapshot must exist.
    pub fn must_stay(&self) -> bool {
        self.firm && self.wanted == Wanted::Yes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Here,
    Away,
    Destroyed,
}

pub struct Health {
    pub place: Where,
    pub hurt: bool,
    /// Whether the member's removal was interrupted.
    pub leaving: bool,
}

impl Health {
    pub fn sound() -> Self {
        Health { place: Where::Here, hurt: false, leaving: false }
    }
}

pub struct World {
    pub site: Site,
    pub parity: usize,
    pub sources: [PathBuf; 2],
    stamps: Stamps,
    pub kept: Vec<Kept>,
    /// Snapshots that gc has deleted; they must not reappear.
    pub gone: Vec<SnapshotId>,
    pub health: Vec<Health>,
    /// Whether an operation was interrupted since the last repair, or left something that repair
    /// cannot fix; check may then find leftovers, which no parity protects and no snapshot needs.
    pub untidy: bool,
    /// Whether leftovers existed when a repair ended, and no gc with all members has ended since;
    /// repair keeps leftovers of a dead writer, and damage to them is harmless.
    pub leftovers: bool,
    /// Whether any file has ever been damaged.
    pub damaged: bool,
    /// Whether a member was removed: stripe sets that lacked a slot may then have no member for it,
    /// until gc rewrites them.
    pub shrunk: bool,
    /// The number of member directories created so far.
    pub made: usize,
    pub keys: Vec<Key>,
    /// The number of key files created so far.
    pub made_keys: u64,
    /// How processes are run, and in which order threads run.
    pub(crate) stage: &'static dyn Stage,
    trace: Arc<dyn Trace>,
    /// The text of the story, if the directory is to be kept when the story fails.
    keep: Option<String>,
}

impl World {
    /// Plays a story to its end; panics if a promise is broken. With `keep`, the directory of a
    /// failed story is kept, together with the story and a trace of the name changes by every
    /// process.
    pub fn play(stage: &'static dyn Stage, story: &Story, keep: bool) {
        let tell = std::env::var_os("PINSTRIPE_STRESS_TELL").is_some();
        let mut world = World::plain(stage, stage.site(story), story.parity);
        world.keep = keep.then(|| story.to_string());
        for (number, operation) in story.operations.iter().enumerate() {
            if tell {
                eprintln!("stress: {number:>2} {operation:?}");
            }
            world.trace.note(&format!("{number:>2} {operation:?}"));
            world.carry_out(operation);
            if stage.is_checked_each_time(story) {
                world.check();
            }
            if number % stage.judged_every() == stage.judged_every() - 1 {
                world.judge();
            }
        }
        world.check();
        world.judge();
        if stage.is_healed_at_the_end(story) {
            world.heal();
            world.judge();
            world.purge();
        }
    }

    /// Creates a store without any history.
    pub fn plain(stage: &'static dyn Stage, site: Site, parity: u8) -> Self {
        let members = site.members.len();
        let sources = [site.source(), site.path("other")];
        let mut stamps = Stamps::default();
        for (number, source) in sources.iter().enumerate() {
            source::make_source(source, number as u64, &mut stamps);
        }
        World {
            site,
            parity: usize::from(parity),
            sources,
            stamps,
            kept: Vec::new(),
            gone: Vec::new(),
            health: (0..members).map(|_| Health::sound()).collect(),
            untidy: false,
            leftovers: false,
            damaged: false,
            shrunk: false,
            made: 0,
            keys: vec![Key::first()],
            made_keys: 0,
            stage,
            trace: stage.trace(),
            keep: None,
        }
    }

    fn carry_out(&mut self, operation: &Operation) {
        let wrap = |member: usize| member % self.health.len();
        match *operation {
            Operation::Change { source, seed } => {
                source::change_source(&self.sources[source], seed, &mut self.stamps);
            }
            Operation::Backup { source, end } => self.backup(source, end),
            Operation::TroubledBackup { source, member, trouble, after } => {
                self.troubled_backup(source, wrap(member), trouble, after);
            }
            Operation::Together { beside, end } => self.together(beside, end),
            Operation::Lose { member } => self.lose(wrap(member)),
            Operation::Return { member } => self.come_back(wrap(member)),
            Operation::Destroy { member } => self.destroy(wrap(member)),
            Operation::Replace { end } => self.replace(end),
            Operation::Damage { member, seed } => self.damage(wrap(member), seed),
            Operation::Repair { end } => self.repair(end),
            Operation::Scrub { part, end } => self.scrub(part, end),
            // One is made after every operation.
            Operation::Check => {}
            Operation::TroubledRestore { snapshot, member, seed } => {
                self.troubled_restore(snapshot, wrap(member), seed);
            }
            Operation::Forget { snapshot, end } => self.forget(snapshot, end),
            Operation::ForgetByRule { last, end } => self.forget_by_rule(last, end),
            Operation::Undelete { snapshot, end } => self.undelete(snapshot, end),
            Operation::Collect { waste, end } => drop(self.collect(waste, end)),
            Operation::CollectBeside { partner, snapshot, waste, end, of_partner } => {
                self.collect_beside(partner, snapshot, waste, end, of_partner);
            }
            Operation::Silent { source, after, wakes, waste } => {
                self.silent_backup(source, after, wakes, waste);
            }
            Operation::AddMember { end } => self.add_member(end),
            Operation::RemoveMember { member, end } => self.remove_member(wrap(member), end),
            Operation::KeepMember => self.keep_member(),
            Operation::SwapMember { member, end } => self.swap_member(wrap(member), end),
            Operation::Rebalance { end } => self.rebalance(end),
            Operation::Keys { work, end } => self.change_keys(work, end),
        }
    }

    // What the members can bear.

    pub fn hurt_members(&self) -> usize {
        self.health.iter().filter(|health| health.hurt).count()
    }

    pub fn absent(&self) -> usize {
        self.health.iter().filter(|health| health.place != Where::Here).count()
    }

    pub fn leaving(&self) -> Option<usize> {
        self.health.iter().position(|health| health.leaving)
    }

    /// Whether new packs can be written with the requested parity, although members are hurt.
    pub fn can_write(&self) -> bool {
        let unfit = |health: &&Health| health.hurt || health.leaving;
        self.health.len() - self.health.iter().filter(unfit).count() > self.parity
    }

    /// Whether a story may hurt this member now.
    pub fn bears(&self, member: usize) -> bool {
        let health = &self.health[member];
        let is_fit = health.place == Where::Here && !health.leaving;
        is_fit && (health.hurt || self.hurt_members() + self.ghosts() < self.parity)
    }

    /// The number of members that were replaced while extents were lost; they stay in the table of
    /// members as absent.
    pub fn ghosts(&self) -> usize {
        self.ghosts_in(&self.store())
    }

    pub fn ghosts_in(&self, store: &Store) -> usize {
        store.absent().count().saturating_sub(self.absent())
    }

    /// Records that something was written, which every absent member lacks from now on.
    pub fn written(&mut self) {
        for health in &mut self.health {
            health.hurt |= health.place != Where::Here;
        }
    }

    /// Opens the store through an available member; undamaged members are tried first.
    pub fn open(&self, faults: &str, who: &Who) -> Result<Store, Error> {
        let here = |member: &usize| self.health[*member].place == Where::Here;
        let mut members: Vec<usize> = (0..self.health.len()).filter(here).collect();
        let order = |member: &usize| {
            // One whose replacement was cut off may be none any more.
            let is_none = !self.site.members[*member].join("pinstripe.member").exists();
            (is_none, self.health[*member].hurt || self.health[*member].leaving)
        };
        members.sort_by_key(order);
        let faults = match [faults, self.stage.faults()].join(";") {
            none if none == ";" => pinstripe_io::fault::Plan::default(),
            faults => faults.trim_matches(';').parse().unwrap(),
        };
        let steps = Arc::clone(&self.trace).before(who);
        let (steps, process) = (Some(steps), who.process);
        let options = OpenOptions { faults, steps, process, ..OpenOptions::default() };
        let through = *members.first().expect("one is here");
        let mut store = Store::open_with(&self.site.members[through], options)?;
        self.unlock(&mut store)?;
        Ok(store)
    }

    /// Returns the store's number of a member; a new member gets a number that no other member ever
    /// had.
    pub fn number(&self, store: &Store, member: usize) -> usize {
        let place = &self.site.members[member];
        store
            .member_slots
            .iter()
            .position(|member_slot| member_slot.place == *place)
            .expect("the store knows the place")
    }

    pub fn store(&self) -> Store {
        self.open("", &Who::own()).unwrap()
    }

    /// Removes members from the model that the store no longer knows, after their removal has ended
    /// or was interrupted.
    pub fn meet_members(&mut self) {
        let store = self.store();
        for member in (0..self.health.len()).rev() {
            let place = &self.site.members[member];
            let row = |member_slot: &pinstripe::MemberSlot| {
                (member_slot.place == *place)
                    .then(|| member_slot.row.as_ref().map(|row| row.state))
                    .flatten()
            };
            match store.member_slots.iter().find_map(row) {
                Some(state) => self.health[member].leaving = state != MemberState::Active,
                None => {
                    let _ = std::fs::remove_dir_all(place);
                    self.site.members.remove(member);
                    self.health.remove(member);
                    self.shrunk = true;
                }
            }
        }
    }

    // What must hold.

    pub fn listed(&self, store: &Store) -> Vec<Snapshot> {
        let ledger = Ledger::new();
        let listed = snapshots::run(store, &ledger.monitor).unwrap();
        // Of one that was cut off the only copy may be damaged.
        for loss in ledger.losses() {
            let is_it = |kept: &&Kept| loss.place.ends_with(kept.id().to_string());
            let mut kept = self.kept.iter().filter(|kept| kept.must_stay());
            assert!(!kept.any(|kept| is_it(&kept)), "{loss:?}");
        }
        listed
    }

    /// Asserts that exactly the wanted snapshots are listed, and that each restores, byte for byte.
    pub fn judge(&self) {
        let store = self.store();
        for kept in self.assert_listed(&store) {
            self.assert_restores(&store, kept);
        }
        self.assert_keys_open();
    }

    /// Asserts that exactly the wanted snapshots are listed, and returns them.
    pub fn assert_listed(&self, store: &Store) -> Vec<&Kept> {
        let listed = self.listed(store);
        for snapshot in &listed {
            let is_known = self.kept.iter().any(|kept| kept.snapshot == *snapshot);
            assert!(!self.gone.contains(&snapshot.id), "deleted, and there again: {snapshot:?}");
            assert!(is_known, "nobody made {snapshot:?}");
        }
        let is_listed = |kept: &&Kept| listed.contains(&kept.snapshot);
        for kept in &self.kept {
            let (id, is_listed) = (kept.id(), is_listed(&kept));
            assert!(is_listed || !kept.must_stay(), "snapshot {id} is gone");
            assert!(!is_listed || kept.wanted != Wanted::No, "snapshot {id} was forgotten");
        }
        self.kept.iter().filter(is_listed).collect()
    }

    pub fn assert_restores(&self, store: &Store, kept: &Kept) {
        let (ledger, to) = (Ledger::new(), self.site.target());
        let name = kept.id().to_string();
        restore(store, &name, &self.sources[kept.source], &to, &ledger).unwrap();
        ledger.assert_no_losses();
        assert_same(&kept.tree, &look(&to));
        remove_tree(&to);
    }

    /// Attaches all members again, and asserts that one repair makes the store healthy.
    fn heal(&mut self) {
        (0..self.health.len()).for_each(|member| self.come_back(member));
        while self.health.iter().any(|health| health.place == Where::Destroyed) {
            self.replace(End::Whole);
        }
        self.keep_member();
        let outcome = repair(&mut self.store(), &Ledger::new());
        self.repaired(outcome.lost_extents);
        for source in 0..self.sources.len() {
            self.backup(source, End::Whole);
        }
    }

    /// Whether an error is permitted because members are absent or hurt.
    pub fn is_for_want_of_members(&self, error: &Error) -> bool {
        matches!(error.kind(), Kind::Refused | Kind::TooManyLosses) && !self.can_write()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(story) = self.keep.take().filter(|_| std::thread::panicking()) {
            let kept = self.site.keep();
            // A second panic would hide the first.
            let _ = std::fs::write(kept.join("story"), story);
            let _ = std::fs::write(kept.join("trace"), self.trace.text());
            eprintln!("kept {}", kept.display());
        }
    }
}
