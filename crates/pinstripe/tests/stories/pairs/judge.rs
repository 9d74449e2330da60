//! What must hold when a story is over.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::gc::GcOptions;
use pinstripe::upgrade::Direction;
use pinstripe::{Store, backup, forget, gc, load_snapshots, member, repair, snapshots, upgrade};
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::snapshot::Snapshot;

use super::keys::{Opens, opens_nothing};
use super::stage::Outcome;
use super::template::options_of;
use super::verb::Verb;
use super::world::{Kept, Wanted, Where, World, limits};
use pinstripe_sim::is_named;
use pinstripe_sim::{Ledger, Seen, check, remove_tree, restore};
use pinstripe_sim::{assert_same, look};

/// The place of a loss in the snapshot before a backup.
const PREVIOUS: &str = "the previous snapshot";

impl World {
    fn opened(&self, when: &str) -> Store {
        self.open().unwrap_or_else(|error| {
            panic!("the store does not open {when}: {error} {:?}", error.advice_text())
        })
    }

    /// Takes note of snapshots that are gone, and of those of backups that were cut off.
    pub fn meet_snapshots(&mut self, outcomes: &[Outcome]) {
        let store = self.opened("after a scene");
        let ledger = Ledger::new();
        let known = load_snapshots(&store, &ledger.monitor).unwrap();
        self.assert_no_firm_loss(&ledger, "listing snapshots");
        let ids: BTreeSet<SnapshotId> = known.iter().map(|known| known.snapshot.id).collect();
        for known in known {
            let snapshot = known.snapshot;
            assert!(self.may_return(snapshot.id), "deleted, and there again: {}", snapshot.id);
            if self.kept(snapshot.id).is_none() && !self.gone.contains(&snapshot.id) {
                self.adopt(snapshot, outcomes);
            }
        }
        for at in (0..self.kept.len()).rev() {
            let kept = &self.kept[at];
            if ids.contains(&kept.id()) {
                continue;
            }
            assert!(!kept.must_stay() || self.may_lose, "snapshot {} is gone", kept.id());
            if kept.is_exposed || !kept.is_firm {
                let is_firm = kept.is_firm;
                let id = self.kept.remove(at).id();
                self.gone.extend(is_firm.then_some(id));
            }
        }
    }

    /// Takes in the snapshot of a backup or a change of tags that was cut off after it had
    /// committed.
    fn adopt(&mut self, snapshot: Snapshot, outcomes: &[Outcome]) {
        let before = snapshot.parent.and_then(|id| self.kept(id)).cloned();
        if let Some(before) = before.filter(|it| it.snapshot.tags != snapshot.tags) {
            return self.kept.push(Kept {
                snapshot,
                is_firm: false,
                wanted: Wanted::Yes,
                is_exposed: false,
                ..before
            });
        }
        if snapshot.sources == [b"stream".to_vec()] {
            return self.kept.push(Kept { is_firm: false, ..Kept::stream(snapshot) });
        }
        let half = self.other_half.as_ref().map(|(_, kept)| kept.clone());
        if let Some(half) = half.filter(|half| half.id() == snapshot.id) {
            return self.kept.push(Kept { is_firm: false, ..half });
        }
        let is_of = |outcome: &&Outcome| {
            let path = self.sources.path(outcome.target.source);
            let saves = matches!(outcome.act.verb, Verb::Backup | Verb::Resume);
            saves && snapshot.sources == [path.as_os_str().as_encoded_bytes()[1..].to_vec()]
        };
        let made = outcomes.iter().find(is_of);
        let source = made.unwrap_or_else(|| panic!("nobody made {snapshot:?}")).target.source;
        let kept = Kept::new(snapshot, &self.sources.path(source), self.sources.tree(source));
        self.kept.push(Kept { is_firm: false, ..kept });
    }

    /// Whether a loss is one of what must be there.
    pub fn is_firm_loss(&self, seen: &Seen) -> bool {
        let place = seen.place.to_string_lossy();
        // A pack that was deleted may be named again by an index run that was deleted with it. What the
        // kept snapshots need is restored then ([`World::judge`]).
        let is_deleted = |id: &SnapshotId| is_named(*id, &place);
        // A snapshot that was deleted may be the one before a backup again.
        let is_of_deleted = |place: &str| place.starts_with("packs/") || place == PREVIOUS;
        let may_be_deleted = is_of_deleted(&place) || self.gone.iter().any(is_deleted);
        if self.may_forget_deletions && may_be_deleted {
            return false;
        }
        let of = |kept: &&Kept| is_named(kept.id(), &place);
        self.kept.iter().find(of).map_or(!self.has_stale, Kept::must_stay)
    }

    fn assert_no_firm_loss(&self, ledger: &Ledger, when: &str) {
        if self.may_lose {
            return;
        }
        let losses = ledger.losses();
        let losses: Vec<_> = losses.iter().filter(|seen| self.is_firm_loss(seen)).collect();
        assert!(losses.is_empty(), "{when} reports a loss: {losses:#?}");
    }

    /// Whether a snapshot that gc took may be listed.
    fn may_return(&self, id: SnapshotId) -> bool {
        self.has_stale || self.may_forget_deletions || !self.gone.contains(&id)
    }

    /// Everything that must hold, with all members that are there and without any that parity
    /// replaces.
    pub fn judge(&mut self) {
        let store = self.opened("at the end");
        self.assert_listed(&store, "at the end");
        if !self.may_lose {
            self.assert_restores(&store);
            self.assert_checks(&store, "check");
        }
        drop(store);
        self.assert_keys();
        for away in self.sets_that_may_be_lost() {
            if self.is_beyond_what_was_stated(&away) {
                continue;
            }
            let was_here: Vec<usize> =
                away.iter().copied().filter(|at| self.seats[*at].is_here()).collect();
            was_here.iter().for_each(|at| self.take_away(*at));
            let when = format!("without member {away:?}");
            let store = self.opened(&when);
            self.assert_listed(&store, &when);
            if !self.may_lose {
                self.assert_checks(&store, &when);
            }
            if !self.may_lose && self.may_forget_deletions {
                self.assert_restores(&store);
            }
            was_here.iter().for_each(|at| self.bring_back(*at));
        }
    }

    /// Whether a verb stated that not every snapshot survives the loss of these members.
    pub fn is_beyond_what_was_stated(&self, away: &[usize]) -> bool {
        self.survives.as_ref().is_some_and(|(survives, infirm)| {
            let is_more = |at: &&usize| !infirm.contains(&self.seats[**at].place);
            away.iter().filter(is_more).count() as u64 > *survives
        })
    }

    /// Sets of as many members as parity replaces, with all of those that are hurt or away.
    fn sets_that_may_be_lost(&self) -> Vec<Vec<usize>> {
        let all = 0..self.seats.len();
        let is_wrong = |at: &usize| self.seats[*at].is_hurt || !self.seats[*at].is_here();
        let wrong: Vec<usize> = all.clone().filter(is_wrong).collect();
        let wrong = if self.may_lose {
            wrong.into_iter().filter(|at| !self.seats[*at].is_here()).collect()
        } else {
            wrong
        };
        let mut sets = vec![wrong];
        while sets.first().is_some_and(|set| set.len() + self.unseen_losses() < self.parity()) {
            let longer = sets.iter().flat_map(|set| {
                let next = if sets[0].is_empty() { set.last().map_or(0, |it| it + 1) } else { 0 };
                let left = (next..self.seats.len()).filter(|at| !set.contains(at));
                left.map(|at| [&set[..], &[at]].concat()).collect::<Vec<_>>()
            });
            sets = longer.collect();
        }
        let sets: BTreeSet<Vec<usize>> = sets
            .into_iter()
            .map(|mut set| {
                set.sort_unstable();
                set
            })
            .collect();
        sets.into_iter().filter(|set| !set.is_empty() && set.len() < self.seats.len()).collect()
    }

    fn assert_listed(&self, store: &Store, when: &str) {
        let ledger = Ledger::new();
        let listed = snapshots::run(store, &ledger.monitor).unwrap();
        self.assert_no_firm_loss(&ledger, &format!("snapshots {when}"));
        for snapshot in &listed {
            assert!(
                self.may_return(snapshot.id),
                "deleted, and there again {when}: {}",
                snapshot.id
            );
        }
        for kept in &self.kept {
            let (id, is_listed) = (kept.id(), listed.contains(&kept.snapshot));
            assert!(
                is_listed || !kept.must_stay() || self.may_lose,
                "snapshot {id} is gone {when}"
            );
            assert!(
                !is_listed || kept.wanted != Wanted::No || self.is_mark_on_few(),
                "snapshot {id} was forgotten, and is listed {when}"
            );
        }
    }

    /// Whether a mark may be only on members that are lost now: of a store that may lose data, the
    /// judge also loses members that were never away.
    fn is_mark_on_few(&self) -> bool {
        self.may_lose && self.seats.iter().any(|seat| seat.is_hurt && seat.is_here())
    }

    fn assert_restores(&self, store: &Store) {
        for kept in self.kept.iter().filter(|kept| kept.must_stay() && !kept.tree.is_empty()) {
            let (ledger, to) = (Ledger::new(), self.site.target());
            let name = kept.id().to_string();
            restore(store, &name, &kept.path, &to, &ledger).unwrap();
            ledger.assert_no_losses();
            assert_same(&kept.tree, &look(&to));
            remove_tree(&to);
        }
    }

    fn assert_checks(&self, store: &Store, when: &str) {
        let ledger = Ledger::new();
        let outcome = check(store, true, &ledger);
        self.assert_no_firm_loss(&ledger, when);
        // A snapshot that was deleted may come back, and its content does not.
        let is_hurt = outcome.hurt_paths > 0 && !self.has_stale && !self.may_forget_deletions;
        assert!(!is_hurt, "{when}: {outcome:?} {:#?}", ledger.seen());
        assert!(
            outcome.lost == 0 || self.is_disorderly(),
            "{when}: {outcome:?} {:#?}",
            ledger.seen()
        );
    }

    fn assert_keys(&self) {
        let keys = self.keys.lock().unwrap().clone();
        for key in keys.iter().filter(|_| self.shape.is_sealed) {
            let mut store = self.opened("for its keys");
            let opens = match store.unlock(&key.credential()) {
                Ok(_) => true,
                Err(error) if opens_nothing(&error) => false,
                Err(error) => panic!("{error}"),
            };
            assert!(opens || key.opens != Opens::Yes, "'{}' opens no more", key.label);
            assert!(!opens || key.opens != Opens::No, "'{}' still opens", key.label);
        }
    }

    /// Every trouble ends, and the store becomes as good as new.
    pub fn heal(&mut self) {
        for at in 0..self.seats.len() {
            self.bring_back(at);
            self.quota.lift(&self.seats[at].place);
        }
        self.replace_dead();
        if self.is_half_upgraded {
            self.finish_upgrade();
        }
        let ledger = Ledger::new();
        let repaired = repair::run(&mut self.opened("for repair"), limits(), &ledger.monitor);
        let repaired = repaired.unwrap_or_else(|error| panic!("repair at the end: {error}"));
        let may_lose = self.is_disorderly() || self.may_lose;
        assert!(repaired.lost_extents == 0 || may_lose, "{repaired:?} {:#?}", ledger.seen());
        self.assert_no_firm_loss(&ledger, "repair at the end");
        self.assert_later_verbs();
    }

    /// As the advice says, where a session cannot be read.
    fn finish_upgrade(&self) {
        loop {
            let upgraded = upgrade::run(&mut self.opened("to upgrade"), Direction::Forward);
            let Err(error) = upgraded else { return };
            let place = error.place().filter(|_| error.kind() == Kind::Corrupt);
            let name = place.and_then(|it| it.file_name()).map(|it| Path::new("sessions").join(it));
            let name = name.unwrap_or_else(|| panic!("upgrade at the end: {error}"));
            self.seats.iter().for_each(|seat| drop(fs::remove_file(seat.place.join(&name))));
        }
    }

    fn replace_dead(&mut self) {
        while let Some(at) = self.seats.iter().position(|seat| seat.is == Where::Dead) {
            let number = self.new_number();
            let place = self.site.path(&format!("new-{number}"));
            let dead = self.seats[at].clone();
            let (ledger, mut store) = (Ledger::new(), self.opened("to replace a dead member"));
            let monitor = &ledger.monitor;
            let done = member::replace(&mut store, dead.number, &place, true, &limits(), monitor);
            let replaced = done.unwrap_or_else(|error| {
                panic!("a dead member stays: {error} {:?}", error.advice_text())
            });
            let may_lose = self.is_disorderly() || self.may_lose;
            assert!(replaced.lost_extents == 0 || may_lose, "{replaced:?} {:#?}", ledger.seen());
            let store = self.opened("when a dead member was replaced");
            let is_there =
                store.table.rows.iter().any(|row| usize::from(row.number) == dead.number);
            assert!(!is_there, "the dead member {} stays in the table", dead.number);
            self.seats[at] = super::world::Seat::sound(replaced.replaced_by, place);
        }
    }

    /// Forgets deleted snapshots whose trees gc cannot read, as its error advises.
    fn forget_deleted(&self, error: &Error) -> bool {
        let what = error.to_string();
        let names: Vec<String> =
            self.gone.iter().filter(|id| is_named(**id, &what)).map(ToString::to_string).collect();
        let options =
            ForgetOptions { allow_empty: true, ..ForgetOptions::new(ForgetChoice::Named(&names)) };
        let store = self.opened("to forget what came back");
        !names.is_empty() && forget::run(&store, &options, &Ledger::new().monitor).is_ok()
    }

    /// A backup, two gcs and a check end well.
    fn assert_later_verbs(&mut self) {
        pinstripe_sim::await_tick();
        let ledger = Ledger::new();
        let (path, tree) = (self.sources.path(0), self.sources.tree(0));
        let saved = backup::run(&self.opened("for a backup"), options_of(&path), &ledger.monitor);
        let saved = saved.unwrap_or_else(|error| {
            panic!("a backup at the end: {error} {:?}", error.advice_text())
        });
        self.assert_no_firm_loss(&ledger, "a backup at the end");
        let stated = ledger.monitor.redundancy().expect("a backup states it");
        assert!(
            stated.survives == stated.parity || self.is_untidy || self.may_lose,
            "after repair: {stated:?} {:#?}",
            ledger.seen()
        );
        self.kept.push(Kept::new(saved, &path, tree));
        for _ in 0..2 {
            let (max_waste, wait, detector) = (0.0, std::time::Duration::ZERO, Default::default());
            let options = GcOptions { max_waste, dry_run: false, wait, limits: limits(), detector };
            let ledger = Ledger::new();
            let done = gc::run(&self.opened("for gc"), &options, &ledger.monitor);
            let may_refuse = self.may_lose || self.may_forget_deletions;
            // An older copy of a member brought a deleted snapshot back: it is forgotten again.
            let is_allowed = |error: &Error| {
                error.kind() == Kind::Refused
                    && (may_refuse || self.has_stale && self.forget_deleted(error))
            };
            if let Err(error) = done.map(drop) {
                assert!(is_allowed(&error), "gc at the end: {error} {:?}", error.advice_text());
            }
            self.assert_no_firm_loss(&ledger, "gc at the end");
        }
        let store = self.opened("after gc");
        if self.may_lose {
            self.kept.drain(..self.kept.len() - 1);
            return self.assert_restores(&store);
        }
        self.assert_restores(&store);
        self.assert_listed(&store, "after gc");
        let (ledger, outcome) = {
            let ledger = Ledger::new();
            let outcome = check(&store, true, &ledger);
            (ledger, outcome)
        };
        self.assert_no_firm_loss(&ledger, "check after gc");
        let found = (outcome.repairable, outcome.lost, outcome.hurt_paths);
        let is_whole = found == (0, 0, 0);
        assert!(
            is_whole || self.is_disorderly(),
            "after repair and gc: {outcome:?} {:#?}",
            ledger.seen()
        );
    }
}
