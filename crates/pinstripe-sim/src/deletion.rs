//! Forget, undelete and gc in stories: alone, interrupted, and in parallel with other operations.
//! The model requires that wanted snapshots stay, that deleted data does not reappear, and that the
//! space of unneeded data is freed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pinstripe::forget::ForgetChoice;
use pinstripe::gc::GcOutcome;
use pinstripe::{FailureDetector, Store, forget, gc as collecting, is_void, load_snapshots};
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::ExtentKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::Policy;

use crate::look::look;
use crate::operation::{End, Partner};
use crate::process::{Who, at_once, under};
use crate::support::{Ledger, assert_whole, backup, check, limits};
use crate::world::{Wanted, World};

/// The wait of gc for acknowledgements, longer than any writer of these stores takes to answer.
const WAIT: Duration = Duration::from_secs(120);
/// The most bytes of an extent in addition to its strips.
const FRAME_BYTES: u64 = 4096 + 1024;
/// The most bytes of a pack in rows that are not full.
const PACK_BYTES: u64 = 4096;
/// The most bytes of the tree of a snapshot of these stories.
const TREE_BYTES: u64 = 16 * 1024;

/// Runs a gc with this percentage of permitted waste.
pub fn gc(store: &Store, waste: u64, ledger: &Ledger) -> Result<GcOutcome, Error> {
    gc_for(store, waste, WAIT, &Arc::default(), ledger)
}

/// Runs a gc with a given wait and with given knowledge about writers on other hosts.
pub fn gc_for(
    store: &Store,
    waste: u64,
    wait: Duration,
    detector: &Arc<FailureDetector>,
    ledger: &Ledger,
) -> Result<GcOutcome, Error> {
    let (max_waste, detector) = (waste as f64 / 100.0, Arc::clone(detector));
    let options =
        collecting::GcOptions { max_waste, dry_run: false, wait, limits: limits(), detector };
    collecting::run(store, &options, &ledger.monitor)
}

fn forget_named(store: &Store, id: SnapshotId) -> Result<(), Error> {
    let names = [id.to_string()];
    let options = forget::ForgetOptions {
        allow_empty: true,
        ..forget::ForgetOptions::new(ForgetChoice::Named(&names))
    };
    forget::run(store, &options, &Ledger::new().monitor).map(drop)
}

fn undelete(store: &Store, id: SnapshotId) -> Result<Snapshot, Error> {
    forget::undelete(store, &id.to_string(), &Ledger::new().monitor)
}

impl World {
    /// Returns a listed snapshot by a number, modulo the number of such snapshots.
    fn pick_listed(&self, number: usize) -> Option<SnapshotId> {
        let listed = self.listed(&self.store());
        (!listed.is_empty()).then(|| listed[number % listed.len()].id)
    }

    /// Returns a snapshot that was forgotten and has not been seen to be deleted, by a number.
    fn pick_forgotten(&self, number: usize) -> Option<SnapshotId> {
        let forgotten = self.kept.iter().filter(|kept| kept.wanted != Wanted::Yes);
        let ids: Vec<_> = forgotten.map(|kept| kept.id()).collect();
        (!ids.is_empty()).then(|| ids[number % ids.len()])
    }

    fn set_wanted(&mut self, id: SnapshotId, wanted: Wanted) {
        let kept = self.kept.iter_mut().find(|kept| kept.id() == id).expect("it is known");
        kept.wanted = wanted;
        if wanted == Wanted::Yes {
            kept.exposed = false;
        }
    }

    pub fn forget(&mut self, snapshot: usize, end: End) {
        let Some(id) = self.pick_listed(snapshot) else { return };
        self.written();
        let (done, cut) = under(self.stage, end, |who| forget_named(&self.open("", who)?, id));
        self.take_note_of_forget(id, done, cut);
    }

    fn take_note_of_forget(&mut self, id: SnapshotId, done: Result<(), Error>, cut: bool) {
        self.untidy |= cut;
        match done {
            Ok(()) if !cut => self.set_wanted(id, Wanted::No),
            Err(error) if !cut => panic!("snapshot {id} could not be forgotten: {error}"),
            _ => self.set_wanted(id, Wanted::Unsure),
        }
    }

    pub fn forget_by_rule(&mut self, last: u64, end: End) {
        self.written();
        let mut groups: BTreeMap<Vec<Vec<u8>>, Vec<Snapshot>> = BTreeMap::new();
        for snapshot in self.listed(&self.store()) {
            groups.entry(snapshot.sources.clone()).or_default().push(snapshot);
        }
        let goes: BTreeSet<SnapshotId> = groups
            .into_values()
            .flat_map(|mut group| {
                // Two may begin in one tick of the clock.
                group.sort_by_key(|it| {
                    std::cmp::Reverse((it.created_seconds, it.created_nanos, it.id))
                });
                group.into_iter().skip(last as usize).map(|it| it.id)
            })
            .collect();
        let policy = Policy { last: Some(last), ..Policy::default() };
        let choice =
            ForgetChoice::Policy { policy: &policy, offset_at: &|_| 0, now: (i64::MAX, 0) };
        let options = forget::ForgetOptions::new(choice);
        let (done, cut) = under(self.stage, end, |who| {
            forget::run(&self.open("", who)?, &options, &Ledger::new().monitor)
        });
        if let Ok(outcome) = &done {
            let gone = outcome.verdicts.iter().filter(|it| !it.stays()).map(|it| it.snapshot.id);
            assert_eq!(gone.collect::<BTreeSet<_>>(), goes);
        }
        for id in goes {
            let done =
                done.as_ref().map(drop).map_err(|error| Error::new(error.kind(), error.what()));
            self.take_note_of_forget(id, done, cut);
        }
    }

    pub fn undelete(&mut self, snapshot: usize, end: End) {
        let Some(id) = self.pick_forgotten(snapshot) else { return };
        self.written();
        let (done, cut) = under(self.stage, end, |who| undelete(&self.open("", who)?, id));
        self.untidy |= cut;
        self.take_note_of_undelete(id, done, cut);
        self.meet_deletion(false);
    }

    /// Records the result of an undelete: the snapshot is back and restores, or is deleted
    /// permanently.
    fn take_note_of_undelete(&mut self, id: SnapshotId, done: Result<Snapshot, Error>, cut: bool) {
        let kept = self.kept.iter().find(|kept| kept.id() == id).expect("it is known");
        match done {
            Ok(snapshot) => {
                assert_eq!(snapshot, kept.snapshot);
                let store = self.store();
                if cut {
                    // What it says is true now, and may lie on some members only.
                    return self.set_wanted(id, Wanted::Unsure);
                }
                self.assert_restores(&store, kept);
                self.set_wanted(id, Wanted::Yes);
            }
            Err(_) if cut => self.set_wanted(id, Wanted::Unsure),
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
                // It was taken, is being taken, or was not forgotten after all.
                let is_sure = kept.firm && kept.wanted == Wanted::No;
                assert!(kept.exposed || !is_sure, "snapshot {id} did not come back: {error}");
            }
        }
    }

    /// Records that a gc begins, so that every snapshot that is forgotten now may be deleted.
    pub fn expose(&mut self, is_gc: bool) {
        for kept in self.kept.iter_mut().filter(|kept| is_gc && kept.wanted != Wanted::Yes) {
            kept.exposed = true;
        }
    }

    /// Finds out which forgotten snapshots are deleted; after a gc that ended well, all must be.
    pub fn meet_deletion(&mut self, is_done: bool) {
        let store = self.store();
        let known = load_snapshots(&store, &Ledger::new().monitor).unwrap();
        let ids: BTreeSet<_> = known.iter().map(|known| known.snapshot.id).collect();
        for at in (0..self.kept.len()).rev() {
            let kept = &self.kept[at];
            let is_there = ids.contains(&kept.id());
            assert!(is_there || !kept.must_stay(), "snapshot {} was taken", kept.id());
            if is_there {
                let stayed = is_done && kept.wanted == Wanted::No;
                assert!(!stayed, "snapshot {} was forgotten, and gc left it", kept.id());
            } else if kept.exposed && kept.wanted != Wanted::Yes {
                self.gone.push(self.kept.remove(at).id());
            }
        }
        self.assert_listed(&store);
    }

    /// Runs a gc; returns whether it ended well.
    pub fn collect(&mut self, waste: u64, end: End) -> bool {
        self.written();
        self.expose(true);
        let ledger = Ledger::new();
        let (done, cut) = under(self.stage, end, |who| gc(&self.open("", who)?, waste, &ledger));
        self.untidy |= cut;
        let is_done = self.take_note_of_gc(&done, cut, false, &ledger);
        // With all members there, what dead writers left has gone with it.
        self.leftovers &= !is_done || self.absent() > 0 || self.ghosts() > 0;
        self.meet_deletion(is_done);
        if is_done {
            self.assert_freed(waste);
        }
        is_done
    }

    /// Runs a gc, and repeats it as often as damage to sessions and to objects of a deletion stops
    /// it.
    fn collect_to_the_end(&mut self) {
        let tries = if self.damaged { 8 } else { 1 };
        let _ = (0..tries).any(|_| self.collect(0, End::Whole));
    }

    /// Judges the failure of a gc; returns whether the gc ended well.
    pub fn take_note_of_gc(
        &mut self,
        done: &Result<GcOutcome, Error>,
        cut: bool,
        is_beside: bool,
        ledger: &Ledger,
    ) -> bool {
        match done {
            Ok(outcome) => {
                ledger.assert_no_losses();
                assert!(outcome.missing_chunks == 0 || self.untidy, "{outcome:?}");
                !cut
            }
            Err(_) if cut => false,
            Err(error) => {
                self.untidy = true;
                let is_infirm = self.kept.iter().any(|kept| !kept.firm);
                let few = self.health.len() <= 2 * self.parity && self.absent() > 0;
                let is_right = match error.kind() {
                    // The only copy of a snapshot was damaged before its writer made a second one.
                    Kind::Refused if self.give_up_as_told(error) => true,
                    Kind::Refused => few || is_infirm || !self.can_write(),
                    Kind::TooManyLosses => !self.can_write(),
                    Kind::Busy => is_beside,
                    // The only copy of something that a killed process left was damaged.
                    Kind::Corrupt => self.follow_advice(error),
                    _ => false,
                };
                assert!(is_right, "a gc failed: {error} {:?}", error.advice_text());
                false
            }
        }
    }

    /// Removes a damaged object of a session or a deletion from all members, as the error advises.
    pub fn follow_advice(&self, error: &Error) -> bool {
        let is_asked = error.advice_text().is_some_and(|text| text.contains("remove this file"));
        let Some(place) = error.place().filter(|_| is_asked && self.damaged) else {
            return false;
        };
        for member in &self.site.members {
            let _ = fs::remove_file(member.join(place));
        }
        true
    }

    /// Forgets the snapshot that an error says can only be given up, if its writer never ended;
    /// returns whether the error said so.
    fn give_up_as_told(&self, error: &Error) -> bool {
        let advice = error.advice_text().unwrap_or_default();
        let named = advice.rsplit_once("pinstripe forget ").map(|(_, name)| name);
        let Some(id) = named.and_then(SnapshotId::from_hex).filter(|_| self.damaged) else {
            return false;
        };
        let is_firm = self.kept.iter().any(|kept| kept.id() == id && kept.firm);
        !is_firm && forget::forget_damaged(&self.store(), id).is_ok()
    }

    /// Runs a gc and another operation in parallel, each as a process of its own.
    pub fn collect_beside(
        &mut self,
        partner: Partner,
        snapshot: usize,
        waste: u64,
        end: End,
        of_partner: bool,
    ) {
        let listed = self.pick_listed(snapshot);
        let forgotten = self.pick_forgotten(snapshot);
        match partner {
            Partner::Forget | Partner::Restore if listed.is_none() => return,
            Partner::Undelete if forgotten.is_none() => return,
            _ => {}
        }
        self.written();
        self.expose(true);
        let (ledger, other) = (Ledger::new(), Ledger::new());
        let tree = look(&self.sources[0]);
        let world = &*self;
        let collect = |who: &Who| gc(&world.open("", who)?, waste, &ledger);
        let beside = |who: &Who| world.beside(partner, listed, forgotten, who, &other);
        let (done, cut, beside, beside_cut) = if of_partner {
            let ((beside, beside_cut), (done, cut)) = at_once(self.stage, end, beside, collect);
            (done, cut, beside, beside_cut)
        } else {
            let ((done, cut), (beside, beside_cut)) = at_once(self.stage, end, collect, beside);
            (done, cut, beside, beside_cut)
        };
        self.untidy |= cut || beside_cut || partner == Partner::Collect;
        self.take_note_of_gc(&done, cut, true, &ledger);
        match beside {
            Done::Backup(done) => self.take_note(0, tree, done, beside_cut, &other),
            Done::Collect(done) => drop(self.take_note_of_gc(&done, beside_cut, true, &other)),
            Done::Forget(id, done) => {
                self.take_note_of_forget(id, done, beside_cut);
                self.expose(true);
            }
            Done::Undelete(id, done) => self.take_note_of_undelete(id, done, beside_cut),
            Done::Nothing => {}
        }
        self.meet_deletion(false);
    }

    fn beside(
        &self,
        partner: Partner,
        listed: Option<SnapshotId>,
        forgotten: Option<SnapshotId>,
        who: &Who,
        ledger: &Ledger,
    ) -> Done {
        let store = self.open("", who);
        match (partner, listed, forgotten) {
            (Partner::Backup, ..) => {
                Done::Backup(store.and_then(|store| backup(&store, &self.sources[0], ledger)))
            }
            (Partner::Collect, ..) => Done::Collect(store.and_then(|it| gc(&it, 0, ledger))),
            (Partner::Restore, Some(id), _) => {
                let mut kept = self.kept.iter();
                let kept = kept.find(|it| it.id() == id && it.must_stay());
                if let (Some(kept), Ok(store)) = (kept, store) {
                    self.assert_restores(&store, kept);
                }
                Done::Nothing
            }
            (Partner::Forget, Some(id), _) => {
                Done::Forget(id, store.and_then(|store| forget_named(&store, id)))
            }
            (Partner::Undelete, _, Some(id)) => {
                Done::Undelete(id, store.and_then(|store| undelete(&store, id)))
            }
            (Partner::Check, ..) => {
                let outcome = check(&store.unwrap(), true, ledger);
                assert_eq!(outcome.hurt_paths, 0, "{outcome:?} {:#?}", ledger.seen());
                Done::Nothing
            }
            _ => Done::Nothing,
        }
    }

    /// Asserts that after a gc the members contain what the wanted snapshots need, and little more.
    fn assert_freed(&self, waste: u64) {
        let store = self.store();
        let is_quiet = store.list(ExtentKind::Checkpoints).unwrap().is_empty();
        if self.hurt_members() > 0 || self.untidy || !is_quiet || waste == 100 {
            return;
        }
        let wanted: Vec<_> = self.kept.iter().filter(|it| it.wanted != Wanted::No).collect();
        let mut contents: BTreeMap<&[u8], u64> = BTreeMap::new();
        for look in wanted.iter().flat_map(|kept| kept.tree.values()) {
            contents.insert(&look.content, look.size);
        }
        let live = contents.values().sum::<u64>() + wanted.len() as u64 * TREE_BYTES;
        // Records have heads, and noise becomes no smaller.
        let (packs, found) = self.data_bytes(&store);
        let most = live * 110 / (100 - waste) + packs * PACK_BYTES;
        assert!(found <= most, "{found} bytes are there, at most {most} are needed");
    }

    /// Returns the number of packs, and the approximate bytes of their data strips, without headers
    /// and trailers.
    fn data_bytes(&self, store: &Store) -> (u64, u64) {
        let mut packs: BTreeMap<[u8; 16], Vec<u64>> = BTreeMap::new();
        for (_, member) in store.present() {
            for (id, bytes) in member.list(ExtentKind::Packs).unwrap() {
                packs.entry(id).or_default().push(bytes.saturating_sub(FRAME_BYTES));
            }
        }
        let data = |extents: Vec<u64>| {
            let members = extents.len() as u64;
            extents.iter().sum::<u64>() * members.saturating_sub(self.parity as u64) / members
        };
        (packs.len() as u64, packs.into_values().map(data).sum())
    }

    /// Ends a story: forgets all snapshots except the newest ones, and then these, too. After that
    /// the store must be small, then empty, without remains of any deletion.
    pub fn purge(&mut self) {
        self.forget_by_rule(1, End::Whole);
        self.collect_to_the_end();
        self.judge();
        // As long as one is absent, what it may bring back is remembered.
        if self.ghosts() > 0 {
            return;
        }
        self.collect_to_the_end();
        let store = self.store();
        assert!(store.list(ExtentKind::Sessions).unwrap().is_empty());
        // Runs that speak of what is gone are merged first; a tombstone goes with the next gc.
        if !store.list(ExtentKind::Gc).unwrap().is_empty() {
            self.collect_to_the_end();
        }
        assert!(store.list(ExtentKind::Gc).unwrap().is_empty());
        if !self.leftovers {
            assert_whole(&store);
        }
        while let Some(id) = self.pick_listed(0) {
            forget_named(&store, id).unwrap();
            self.set_wanted(id, Wanted::No);
        }
        self.collect_to_the_end();
        let may_stay = |kind| kind == ExtentKind::Packs && self.leftovers;
        for kind in
            [ExtentKind::Packs, ExtentKind::Snapshots].into_iter().filter(|kind| !may_stay(*kind))
        {
            let store = self.store();
            let mut left = store.list(kind).unwrap();
            // Voids stay: it is not known that the writers which they keep out are gone.
            left.retain(|id, _| kind == ExtentKind::Packs || !is_void(&store, SnapshotId(*id)));
            assert!(left.is_empty(), "{kind:?}");
        }
    }
}

/// The outcome of the operation that ran in parallel with a gc.
enum Done {
    Backup(Result<Snapshot, Error>),
    Collect(Result<GcOutcome, Error>),
    Forget(SnapshotId, Result<(), Error>),
    Undelete(SnapshotId, Result<Snapshot, Error>),
    Nothing,
}
