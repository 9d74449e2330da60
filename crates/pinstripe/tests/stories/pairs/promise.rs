//! What the outcome of a verb promises, and with which errors a verb may end.
//!
//! Invariant: each error that is allowed is one that doc/semantics.md or doc/exit-codes.md names for
//! what was the case; whatever else ends a verb is a fault.

use std::collections::{BTreeMap, BTreeSet};

use pinstripe::beside::{Meeting, beside};
use pinstripe::tag::Tagged;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::ExtentKind;
use pinstripe_member::label::{MemberRow, MemberState};

use super::actor::Done;
use super::keys::Opens;
use super::stage::Outcome;
use super::story::{Scene, Trouble};
use super::verb::{Class, Verb};
use super::world::{Kept, Wanted, Where, World};
use pinstripe_sim::assert_same;

/// What was the case when a verb ended.
pub struct Facts<'a> {
    scene: &'a Scene,
    at: usize,
    verb: Verb,
    /// Members that were away, dead or hurt before the scene.
    absent: usize,
    hurt: usize,
    members: usize,
    parity: usize,
    is_sealed: bool,
    is_untidy: bool,
    may_lose: bool,
    /// Whether it is unsure which snapshots are wanted, a backup was cut off, or no snapshot exists.
    is_infirm: bool,
    /// An upgrade began that has not come to its end.
    is_half_upgraded: bool,
    /// A rotation ended without success.
    is_half_rotated: bool,
    /// Members with limited room.
    full: usize,
    /// Members on their way out.
    leaving: usize,
    /// A claim of before may have come back with a member. Its process is the simulator, which runs.
    may_meet_old_claims: bool,
    /// Kinds of which every member has or had junk.
    junk: &'a BTreeSet<ExtentKind>,
}

impl Facts<'_> {
    fn beside(&self, classes: &[Class]) -> bool {
        self.scene.has_beside(self.at, classes)
    }

    fn beside_verb(&self, verbs: &[Verb]) -> bool {
        let acts = self.scene.acts.iter().enumerate().filter(|(at, _)| *at != self.at);
        acts.into_iter().any(|(_, act)| verbs.contains(&act.verb))
    }

    fn fails(&self) -> bool {
        self.scene.trouble.fails()
    }

    fn is_junk_on_all(&self, kind: ExtentKind) -> bool {
        self.junk.contains(&kind)
    }

    fn moves_away(&self) -> bool {
        self.scene.trouble.moves_away()
    }

    /// Members that cannot be written to, at most.
    fn unfit(&self) -> usize {
        let troubled = self.fails() || self.moves_away();
        self.absent + self.full + usize::from(troubled)
    }

    /// Whether new packs have the parity that was asked for.
    fn can_write(&self) -> bool {
        let removed = self.scene.acts.iter().filter(|it| it.verb == Verb::MemberRemove).count();
        self.members.saturating_sub(self.unfit() + removed + self.leaving) > self.parity
    }

    /// Whether it needs every member, or some in particular.
    fn needs_members(&self) -> bool {
        matches!(self.verb.class(), Class::Mover | Class::Key) && self.verb != Verb::Repair
    }

    /// Whether it deletes in a store in which a writer may have met any one member alone.
    fn needs_everybody(&self) -> bool {
        self.verb == Verb::Gc && self.members <= 2 * self.parity
    }

    fn allows(&self, kind: Kind) -> bool {
        use Class::{Key, Mover};
        let is_key = self.verb.class() == Key || self.verb == Verb::KeyList;
        match kind {
            Kind::Busy => {
                // What no member can read may be a step that the other gc is about to put.
                let is_step = self.is_junk_on_all(ExtentKind::Gc) && self.verb == Verb::Gc;
                self.may_end()
                    || self.may_all_have_left()
                    || self.is_half_upgraded
                    || self.verb.class() == Mover && self.may_meet_old_claims
                    || is_step && self.beside_verb(&[Verb::Gc])
            }
            // An absent member may have the session that no other one can read. An upgrade ends, and
            // names the file to remove.
            Kind::Corrupt => {
                let looks_for_writers = self.verb == Verb::Gc || self.verb.class() == Mover;
                self.is_junk_on_all(ExtentKind::Sessions)
                    && (self.verb == Verb::Upgrade || looks_for_writers && self.unfit() > 0)
            }
            // A rotation ends all that have older keys; an upgrade puts a ring, too.
            // The copy that comes back may be older than a ring that one member alone had.
            Kind::KeysChanged => {
                let is_older = matches!(self.scene.trouble, Trouble::Stale { .. });
                is_older || self.beside_verb(&[Verb::KeyRotate, Verb::Upgrade])
            }
            Kind::Refused => self.may_refuse(),
            Kind::NotFound => self.may_miss(),
            Kind::Usage => {
                let is_of_members = matches!(self.verb.class(), Mover);
                (is_key && !self.is_sealed)
                    || (is_of_members && (self.beside(&[Mover]) || !self.is_dead_there()))
                    || self.verb == Verb::Merge
            }
            Kind::TooManyLosses => {
                // The ring of the newest keys may be only on a member that cannot be read.
                self.may_lose
                    || (self.is_half_rotated && self.unfit() > 0)
                    || (self.needs_everybody() && self.unfit() > 0)
                    || self.unfit() > self.parity
                    || !self.can_write()
                    || self.verb == Verb::MemberRemove
            }
            Kind::NoSpace => {
                // Small objects go to all members but as many as parity replaces.
                let are_too_many = self.unfit() > self.parity;
                self.full > 0
                    && (self.needs_members()
                        || are_too_many
                        || !self.can_write()
                        || self.verb == Verb::Repair)
            }
            Kind::Io | Kind::Unanswered => {
                // A directory that goes away while it is open is a member that fails.
                (self.fails() || self.moves_away())
                    && (self.needs_everybody()
                        || self.needs_members()
                        || !self.can_write()
                        || self.verb == Verb::Repair)
            }
            Kind::WrongKey => {
                self.scene.acts.iter().filter(|it| it.verb == Verb::KeyRotate).count() > 1
            }
            _ => false,
        }
    }

    /// Whether the documented table lets one of the verbs beside it end this one.
    fn may_end(&self) -> bool {
        let others = self.scene.acts.iter().enumerate().filter(|(at, _)| *at != self.at);
        let own = self.verb.role();
        others
            .map(|(_, act)| act.verb.role())
            .any(|other| beside(other, own) != Meeting::Both || beside(own, other) != Meeting::Both)
    }

    /// Whether every member that a reader opened may have been replaced: then it ends.
    fn may_all_have_left(&self) -> bool {
        let acts = self.scene.acts.iter();
        let replaces = |verb| matches!(verb, Verb::ReplaceLiving | Verb::ReplaceDead);
        let left = acts.filter(|act| replaces(act.verb)).count();
        left > 0 && left + self.unfit() >= self.members
    }

    fn is_dead_there(&self) -> bool {
        self.absent > 0 || self.verb != Verb::ReplaceDead
    }

    fn may_refuse(&self) -> bool {
        let unfit = self.unfit() > 0;
        match self.verb {
            Verb::KeyRemove | Verb::KeyRotate | Verb::Upgrade => {
                unfit || self.verb == Verb::KeyRemove
            }
            Verb::Gc => {
                let are_too_few = unfit && self.members <= 2 * self.parity;
                are_too_few || !self.can_write() || self.may_lose || self.is_infirm
            }
            Verb::MemberRemove | Verb::ReplaceLiving | Verb::ReplaceDead => {
                unfit
                    || self.hurt > 0
                    || self.is_untidy
                    || !self.can_write()
                    || self.is_dead_there()
            }
            Verb::Backup
            | Verb::Resume
            | Verb::Stream
            | Verb::Tag
            | Verb::Merge
            | Verb::MemberAdd => !self.can_write(),
            _ => false,
        }
    }

    /// What it is about may have gone.
    fn may_miss(&self) -> bool {
        let takers = [Verb::Gc, Verb::Forget, Verb::ForgetByRule, Verb::Undelete, Verb::Tag];
        let is_taken = self.beside_verb(&takers) || self.is_infirm;
        match self.verb {
            Verb::Undelete => true,
            Verb::KeyRemove => self.beside(&[Class::Key]) || !self.is_sealed || self.is_untidy,
            Verb::Forget | Verb::Tag => is_taken,
            _ => is_taken && !self.verb.writes(),
        }
    }
}

impl World {
    /// Holds the verbs of a scene to what they reported, and takes note of it.
    pub fn settle(&mut self, scene: &Scene, absent: usize, outcomes: Vec<Outcome>) {
        let is_half_rotated = self.keys.lock().unwrap().iter().any(|it| it.opens == Opens::Unsure);
        let facts = |at: usize, verb: Verb| Facts {
            scene,
            at,
            verb,
            absent,
            hurt: self.hurt(),
            members: self.seats.len(),
            parity: self.parity(),
            is_sealed: self.shape.is_sealed,
            is_untidy: self.is_untidy,
            may_lose: self.may_lose,
            is_half_upgraded: self.is_half_upgraded,
            is_half_rotated,
            full: self.limited(),
            leaving: self.leaving,
            may_meet_old_claims: self.has_stale || self.is_untidy,
            junk: &self.junk,
            is_infirm: self.kept.is_empty()
                || self.kept.iter().any(|kept| !kept.is_firm || kept.wanted != Wanted::Yes),
        };
        for (at, outcome) in outcomes.iter().enumerate() {
            if let Err(error) = &outcome.done
                && !outcome.is_cut
            {
                let facts = facts(at, outcome.act.verb);
                assert!(facts.allows(error.kind()), "{}", told(outcome, error));
            }
            if !outcome.is_cut {
                self.assert_no_loss(scene, outcome);
            }
        }
        let done = outcomes.iter().filter(|it| !it.is_cut && it.done.is_ok());
        for outcome in outcomes.iter().filter(|it| it.act.verb == Verb::Upgrade) {
            self.is_half_upgraded = outcome.is_cut || outcome.done.is_err();
        }
        self.note_redundancy(done.filter_map(|it| it.ledger.monitor.redundancy()));
        let is_anyone_out = absent > 0 || scene.trouble.moves_away() || scene.trouble.fails();
        self.may_forget_deletions |=
            !self.has_macs() && is_anyone_out && scene.has(|verb| verb == Verb::Gc);
        self.settle_keys(&outcomes);
        self.settle_snapshots(scene, &outcomes);
        self.settle_members(&outcomes);
        self.meet_members(&outcomes);
        self.meet_snapshots(&outcomes);
    }

    /// No verb reports the loss of what must be there, whatever is at work beside it.
    fn assert_no_loss(&self, scene: &Scene, outcome: &Outcome) {
        if self.may_lose {
            return;
        }
        let is_firm = self.kept(outcome.target.snapshot).is_some_and(Kept::must_stay);
        let is_taken =
            scene.has(|verb| matches!(verb, Verb::Forget | Verb::ForgetByRule | Verb::Tag));
        let losses = outcome.ledger.losses();
        let losses: Vec<_> = losses.iter().filter(|seen| self.is_firm_loss(seen)).collect();
        let name = outcome.act.verb.name();
        let is_excused = outcome.act.verb.class() == Class::Reader && (!is_firm || is_taken);
        assert!(losses.is_empty() || is_excused, "'{name}' reports a loss: {losses:#?}");
        match &outcome.done {
            Ok(Done::Checked(checked)) if !is_taken => {
                assert_eq!(checked.hurt_paths, 0, "{checked:?} {:#?}", outcome.ledger.seen());
                assert!(
                    checked.lost == 0 || self.is_disorderly(),
                    "{checked:?} {:#?}",
                    outcome.ledger.seen()
                );
            }
            Ok(Done::Scrubbed(scrubbed)) => {
                assert!(
                    scrubbed.lost == 0 || self.is_disorderly(),
                    "{scrubbed:?} {:#?}",
                    outcome.ledger.seen()
                );
            }
            Ok(Done::Repaired(repaired)) => {
                assert!(
                    repaired.lost_extents == 0 || self.is_disorderly(),
                    "{repaired:?} {:#?}",
                    outcome.ledger.seen()
                );
            }
            Ok(Done::Restored(id, tree)) => {
                let kept = self.kept(*id).expect("a snapshot that is known");
                if !kept.tree.is_empty() {
                    assert_same(&kept.tree, tree);
                }
            }
            _ => {}
        }
    }

    fn settle_snapshots(&mut self, scene: &Scene, outcomes: &[Outcome]) {
        let takes = |verb: Verb| verb == Verb::Gc || verb.class() == Class::Mover;
        let mut marks: BTreeMap<SnapshotId, Vec<(bool, bool)>> = BTreeMap::new();
        let has_macs = self.has_macs();
        // One that was cut off may have changed the table and not have carried the mark.
        let is_mover_cut =
            outcomes.iter().any(|it| it.act.verb.class() == Class::Mover && it.is_cut);
        for outcome in outcomes {
            let is_firm = !outcome.is_cut;
            match &outcome.done {
                Ok(Done::Saved(snapshot)) => {
                    let source = outcome.target.source;
                    let (path, tree) = (self.sources.path(source), self.sources.tree(source));
                    let kept = Kept::new(snapshot.clone(), &path, tree);
                    self.kept.push(Kept { is_firm, ..kept });
                }
                Ok(Done::Streamed(snapshot)) => {
                    self.kept.push(Kept { is_firm, ..Kept::stream(snapshot.clone()) });
                }
                Ok(Done::Merged(merged)) if !merged.brought.is_empty() => {
                    let (_, kept) = self.other_half.clone().expect("it was merged from there");
                    // Two merges beside each other bring it once.
                    if self.kept(kept.id()).is_none() {
                        self.kept.push(Kept { is_firm, ..kept });
                    }
                }
                Ok(Done::Forgot(ids, is_everybody_there)) => {
                    // In a store without MACs a mark counts by votes, and one that was put while a member
                    // was absent may lose them with the next: the verb ends with 4 (decision 0065).
                    let counts = *is_everybody_there && !is_mover_cut;
                    let is_sure = is_firm && (has_macs || counts);
                    ids.iter().for_each(|id| marks.entry(*id).or_default().push((false, is_sure)));
                }
                Ok(Done::Tagged(tagged, is_everybody_there)) => {
                    let Tagged { before, after: Some(after) } = &**tagged else { continue };
                    let counts = *is_everybody_there && !is_mover_cut;
                    let is_sure = is_firm && (has_macs || counts);
                    marks.entry(before.id).or_default().push((false, is_sure));
                    let kept = self.kept(before.id).expect("a snapshot that is known").clone();
                    let snapshot = after.clone();
                    let wanted = Wanted::Yes;
                    self.kept.push(Kept { snapshot, is_firm, wanted, is_exposed: false, ..kept });
                }
                Ok(Done::Undeleted(snapshot)) => {
                    marks.entry(snapshot.id).or_default().push((true, is_firm));
                }
                Err(_) if matches!(outcome.act.verb, Verb::Forget | Verb::Undelete | Verb::Tag) => {
                    let wants = outcome.act.verb == Verb::Undelete;
                    let id = outcome.target.snapshot;
                    let is_ended =
                        outcome.done.as_ref().is_err_and(|it| it.kind() == Kind::NotFound);
                    if outcome.is_cut || !is_ended {
                        marks.entry(id).or_default().push((wants, false));
                    }
                }
                Err(_) if outcome.act.verb == Verb::ForgetByRule => {
                    for kept in &self.kept {
                        marks.entry(kept.id()).or_default().push((false, false));
                    }
                }
                _ => {}
            }
        }
        for (id, marks) in marks {
            let Some(kept) = self.kept_mut(id) else { continue };
            let wants = marks[0].0;
            let is_one = marks.iter().all(|(other, _)| *other == wants);
            let is_sure = marks.iter().any(|(_, is_sure)| *is_sure);
            let is_so = kept.wanted == if wants { Wanted::Yes } else { Wanted::No };
            kept.wanted = match (is_one && (is_sure || is_so), wants) {
                (true, true) => Wanted::Yes,
                (true, false) => Wanted::No,
                (false, _) => Wanted::Unsure,
            };
        }
        let is_exposed = scene.has(takes);
        for kept in &mut self.kept {
            kept.is_exposed = kept.wanted != Wanted::Yes && (kept.is_exposed || is_exposed);
        }
    }

    fn settle_keys(&mut self, outcomes: &[Outcome]) {
        if !self.shape.is_sealed {
            return;
        }
        let of = |verb: Verb| outcomes.iter().filter(move |it| it.act.verb == verb);
        let is_done = |it: &Outcome| it.done.is_ok() && !it.is_cut;
        let rotations = of(Verb::KeyRotate).count();
        let mut keys = self.keys.lock().unwrap();
        for rotation in of(Verb::KeyRotate) {
            // One that ended before it began changed nothing.
            let is_nothing = rotation.calls == 0 && !rotation.is_cut && rotation.done.is_err();
            let label = &rotation.target.new_key.label;
            for key in keys.iter_mut().filter(|_| !is_nothing) {
                key.opens = match (key.label == *label, is_done(rotation)) {
                    (true, true) if rotations == 1 => Opens::Yes,
                    (false, true)
                        if rotations == 1 && is_older(key.opens, outcomes, &key.label) =>
                    {
                        Opens::No
                    }
                    _ if key.opens == Opens::No => Opens::No,
                    _ => Opens::Unsure,
                };
            }
        }
        for added in of(Verb::KeyAdd).filter(|_| rotations == 0) {
            let label = &added.target.new_key.label;
            if let Some(key) = keys.iter_mut().find(|key| key.label == *label) {
                key.opens = if is_done(added) { Opens::Yes } else { Opens::Unsure };
            }
        }
        for removed in of(Verb::KeyRemove) {
            let label = &removed.target.old_key.label;
            let is_refused = |error: &Error| {
                let is_unknown = error.what().starts_with("no key slot");
                is_unknown || matches!(error.kind(), Kind::Refused | Kind::Usage)
            };
            let is_nothing = !removed.is_cut && removed.done.as_ref().is_err_and(is_refused);
            if let Some(key) =
                keys.iter_mut().find(|key| key.label == *label).filter(|_| !is_nothing)
            {
                key.opens = if is_done(removed) { Opens::No } else { Opens::Unsure };
            }
        }
    }

    fn settle_members(&mut self, outcomes: &[Outcome]) {
        let store = self.open().unwrap_or_else(|error| {
            panic!("the store does not open: {error} {:?}", error.advice_text())
        });
        let has = |place: &std::path::Path| {
            store.member_slots.iter().any(|slot| slot.row.is_some() && slot.place == place)
        };
        for outcome in outcomes.iter().filter(|it| !it.is_cut) {
            let (target, verb) = (&outcome.target, outcome.act.verb);
            let old = &self.seats[target.seat].place;
            let name = verb.name();
            match &outcome.done {
                Ok(Done::Member) if verb == Verb::MemberAdd => {
                    assert!(
                        has(&target.new_place),
                        "'{name}' ended, and the store lacks the member"
                    );
                }
                Ok(Done::Member) if verb == Verb::MemberRemove => {
                    assert!(!has(old), "'{name}' ended, and the store has the member");
                }
                Ok(Done::Replaced(lost)) => {
                    assert!(
                        has(&target.new_place),
                        "'{name}' ended, and the store lacks the member"
                    );
                    assert!(
                        *lost == 0 || self.may_lose || self.is_disorderly(),
                        "'{name}' lost {lost} extents"
                    );
                    assert!(*lost > 0 || !has(old), "'{name}' ended, and the store has the member");
                }
                _ => {}
            }
        }
    }

    /// The members are those of the store's table from now on.
    fn meet_members(&mut self, outcomes: &[Outcome]) {
        let is_done = |it: &&Outcome| !it.is_cut && it.done.is_ok();
        // The verbs that finish a change of the table, or warn that they cannot.
        let finishes = |it: &Outcome| match it.act.verb {
            Verb::Backup | Verb::Resume | Verb::Stream | Verb::Gc => true,
            verb => verb.class() == Class::Mover && verb != Verb::Upgrade,
        };
        let has_finished = |it: &Outcome| finishes(it) && it.ledger.warnings().is_empty();
        if outcomes.iter().filter(is_done).any(has_finished) {
            self.half_gone = 0;
        }
        let mut movers = outcomes.iter().filter(|it| it.act.verb.class() == Class::Mover);
        let is_mover_cut = movers.any(|it| it.is_cut || it.done.is_err());
        let store = self.open().unwrap_or_else(|error| panic!("the store does not open: {error}"));
        let rows = store.member_slots.iter().enumerate().filter(|(_, slot)| slot.row.is_some());
        let rows: Vec<_> = rows.map(|(number, slot)| (number, slot.place.clone())).collect();
        let is_leaving = |row: &&MemberRow| row.state != MemberState::Active;
        self.leaving = store.table.rows.iter().filter(is_leaving).count();
        for at in (0..self.seats.len()).rev() {
            let seat = &self.seats[at];
            if rows.iter().all(|(_, place)| *place != seat.place) {
                // Its directory stays where it is, as a disk that stays attached.
                let left = self.seats.remove(at);
                self.lacking += usize::from(left.is_hurt);
                self.half_gone += usize::from(is_mover_cut && !left.place.exists());
            }
        }
        for (number, place) in rows {
            match self.seats.iter_mut().find(|seat| seat.place == place) {
                Some(seat) => seat.number = number,
                None => self.seats.push(super::world::Seat::sound(number, place)),
            }
        }
        for seat in self.seats.iter_mut().filter(|seat| seat.is == Where::Here) {
            if !seat.place.exists() {
                seat.is = Where::Dead;
            }
        }
    }
}

/// Whether a key was there before the scene began.
fn is_older(opens: Opens, outcomes: &[Outcome], label: &str) -> bool {
    opens != Opens::Unsure && outcomes.iter().all(|it| it.target.new_key.label != label)
}

fn told(outcome: &Outcome, error: &Error) -> String {
    let name = outcome.act.verb.name();
    let advice = error.advice_text().unwrap_or_default();
    format!(
        "'{name}' ends with {:?}: {error} ({advice}) {:#?}",
        error.kind(),
        outcome.ledger.seen()
    )
}
