//! Members that lie: objects of every kind, made up, replayed, swapped between names, stores, kinds
//! and generations, on one member and on as many as parity replaces; then every verb in turn.
//! Nothing honest is lost, and nothing false is shown.
//!
//! `PINSTRIPE_HOSTILE_SEEDS=FROM..TO` plays more draws of attacks and verbs (`cargo xtask soak`).

mod attacks;

use std::fs;
use std::path::Path;
use std::time::Duration;

use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::{Store, forget, gc, member, repair, scrub, snapshots};
use pinstripe_base::random::splitmix64;
use pinstripe_member::label::{Encryption, StoreConfig};
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, envelope};

use crate::look::{Tree, look};
use crate::suites::SuiteSite;
use crate::support::{
    Image, Ledger, backup, check, limits, read_files, remove_tree, repair, small_tree,
};
use attacks::{ATTACKS, Attack, REACH};

/// A store with two snapshots, one forgotten and one taken back, and what its members held before
/// the last of them: what a hostile member may put back.
struct World<S> {
    site: S,
    /// The forgotten one. Once gc has taken it, and its tombstone too, nothing tells it from a true
    /// one when a member puts it back: a backup made it.
    gone: Snapshot,
    /// Times that gc has run: the first run takes the forgotten snapshot, the second its tombstone.
    collected: usize,
    saved: Vec<(Snapshot, Tree)>,
    /// Every file of the members as they were earlier.
    earlier: Image,
    /// Members that lie.
    evil: Vec<usize>,
}

impl<S: SuiteSite> World<S> {
    fn new(is_sealed: bool, members: usize, parity: u8, evil: &[usize]) -> Self {
        let site = match is_sealed {
            true => S::new(members, parity),
            false => S::clear(members, parity),
        };
        let mut saved = Vec::new();
        let mut earlier = None;
        for seed in 0..3 {
            small_tree(&site.source(), seed);
            saved.push((site.save(), look(&site.source())));
            earlier.get_or_insert_with(|| site.image());
        }
        let (gone, _) = saved.remove(0);
        forget(&site, &gone);
        World { site, gone, collected: 0, saved, earlier: earlier.unwrap(), evil: evil.to_vec() }
    }

    /// The first member that does not lie.
    fn honest(&self) -> usize {
        (0..self.site.members.len()).find(|number| !self.evil.contains(number)).unwrap()
    }

    /// The store, opened through a member that does not lie.
    fn store(&self) -> Store {
        self.site.store_through(self.honest())
    }

    fn is_sealed(&self) -> bool {
        self.config().encryption != Encryption::None
    }

    fn config(&self) -> StoreConfig {
        self.store().config.clone()
    }

    /// Puts bytes under a name on every member that lies, whatever is there.
    fn plant(&self, name: ExtentName, bytes: &[u8]) {
        for evil in &self.evil {
            let path = self.site.members[*evil].join(name.path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Every snapshot is shown, and no other; each comes back whole.
    fn assert_honest(&self, what: &str) {
        let store = self.store();
        let ledger = Ledger::new();
        let shown = snapshots::run(&store, &ledger.monitor).unwrap();
        for (snapshot, _) in &self.saved {
            assert!(shown.contains(snapshot), "{what}: a snapshot is not shown");
        }
        // In a store that seals nothing a liar may also hide the tombstone's votes.
        let may_return = self.collected > 1 || !self.is_sealed();
        let is_true = |it: &Snapshot| {
            self.saved.iter().any(|(own, _)| own == it) || may_return && *it == self.gone
        };
        let count = shown.iter().filter(|it| !is_true(it)).count();
        assert_eq!(count, 0, "{what}: something false is shown: {shown:#?}");
        for (snapshot, tree) in &self.saved {
            let (ledger, to) = (Ledger::new(), self.site.target());
            let name = snapshot.id.to_string();
            crate::support::restore(&store, &name, &self.site.source(), &to, &ledger)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(ledger.losses().is_empty(), "{what}: {:#?}", ledger.seen());
            crate::look::assert_same(tree, &look(&to));
            remove_tree(&to);
        }
    }

    /// The honest members alone still have everything.
    fn assert_whole_without_the_liars(&self, what: &str) {
        let aside: Vec<_> = (self.evil.iter())
            .map(|evil| (self.site.members[*evil].clone(), self.site.path(&format!("aside{evil}"))))
            .collect();
        aside.iter().for_each(|(from, to)| fs::rename(from, to).unwrap());
        self.assert_honest(&format!("{what}, without the liars"));
        aside.iter().for_each(|(from, to)| fs::rename(to, from).unwrap());
    }
}

fn forget<S: SuiteSite>(site: &S, snapshot: &Snapshot) {
    let names = [snapshot.id.to_string()];
    let options = ForgetOptions::new(ForgetChoice::Named(&names));
    forget::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
}

fn collect<S: SuiteSite>(site: &S, through: usize) -> pinstripe_base::error::Result<gc::GcOutcome> {
    let options = gc::GcOptions {
        max_waste: 0.0,
        dry_run: false,
        wait: Duration::ZERO,
        limits: limits(),
        detector: Default::default(),
    };
    gc::run(&site.store_through(through), &options, &Ledger::new().monitor)
}

/// The operations on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Check,
    Backup,
    Collect,
    Scrub,
    LockedRepair,
    Repair,
    AddMember,
}

const VERBS: [Verb; 7] = [
    Verb::Check,
    Verb::Backup,
    Verb::Collect,
    Verb::Scrub,
    Verb::LockedRepair,
    Verb::Repair,
    Verb::AddMember,
];

impl<S: SuiteSite> World<S> {
    /// Does it through an honest member. A verb may refuse; it may not harm.
    fn act(&mut self, verb: Verb) -> Result<(), pinstripe_base::error::Error> {
        let honest = self.honest();
        let ledger = Ledger::new();
        match verb {
            Verb::Check => {
                check(&self.site.store_through(honest), true, &ledger);
            }
            Verb::Backup => {
                let store = self.site.store_through(honest);
                let snapshot = backup(&store, &self.site.source(), &ledger)?;
                self.saved.push((snapshot, look(&self.site.source())));
            }
            Verb::Collect => {
                collect(&self.site, honest)?;
                self.collected += 1;
            }
            Verb::Scrub => {
                let options = scrub::ScrubOptions {
                    budget: scrub::Budget::default(),
                    rate: None,
                    save_bytes: scrub::SAVE_BYTES_DEFAULT,
                    limits: limits(),
                };
                let store = self.site.store_through(honest);
                scrub::run(&store, &options, &ledger.monitor, &|_| ())?;
            }
            Verb::LockedRepair if self.site.sealed => {
                let mut store = self.site.locked_store_through(honest);
                repair::run(&mut store, limits(), &ledger.monitor)?;
            }
            Verb::LockedRepair => {}
            Verb::Repair => {
                repair(&mut self.site.store_through(honest), &ledger);
            }
            Verb::AddMember => {
                let place = self.site.path(&format!("m{}", self.site.members.len()));
                let mut store = self.site.store_through(honest);
                member::add(&mut store, &place, true, &ledger.monitor)?;
                self.site.members.push(place);
            }
        }
        Ok(())
    }
}

/// One attack, then every verb; what honest members say is all that is believed.
fn play<S: SuiteSite>(
    is_sealed: bool,
    members: usize,
    parity: u8,
    evil: &[usize],
    attacks: &[(Attack, bool)],
) {
    let mut world = World::<S>::new(is_sealed, members, parity, evil);
    let what = format!("{attacks:?} by {evil:?} of {members}, sealed: {is_sealed}");
    attacks.iter().for_each(|(attack, has_mac)| attack.strike(&world, *has_mac));
    world.assert_honest(&what);
    for verb in VERBS {
        let done = world.act(verb);
        // A hostile member of a store without MACs may stand in the way; it may not do harm.
        if let Err(error) = done {
            assert!(!is_sealed, "{what}: {verb:?}: {error:?}");
        }
        world.assert_honest(&format!("{what}, after {verb:?}"));
    }
    world.assert_whole_without_the_liars(&what);
}

pub fn one_member_of_four_deletes_nothing_of_a_sealed_store<S: SuiteSite>() {
    for attack in ATTACKS.into_iter().step_by(S::stride()) {
        play::<S>(true, 4, 1, &[2], &[(attack, (attack as usize).is_multiple_of(2))]);
    }
}

pub fn one_member_of_four_deletes_nothing_of_a_plain_store<S: SuiteSite>() {
    for attack in ATTACKS.into_iter().step_by(S::stride()) {
        play::<S>(false, 4, 1, &[2], &[(attack, false)]);
    }
}

pub fn as_many_members_as_parity_replaces_delete_nothing_together<S: SuiteSite>() {
    let kinds = [(true, true), (true, false), (false, true), (false, false)];
    // At a distance, none: it is the longest of these tests.
    for (is_sealed, has_mac) in kinds.into_iter().skip(S::stride() - 1) {
        let all = ATTACKS.map(|attack| (attack, has_mac));
        play::<S>(is_sealed, 6, 2, &[1, 4], &all[..7]);
        play::<S>(is_sealed, 6, 2, &[0, 3], &all[7..]);
    }
}

/// The numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        (splitmix64(&mut self.0) % limit as u64) as usize
    }
}

/// Attacks and verbs in an order that the seed draws.
fn play_seed<S: SuiteSite>(seed: u64) {
    let mut dice = Dice(seed);
    let is_sealed = dice.below(3) > 0;
    let (members, parity) = [(4, 1), (5, 1), (6, 2), (5, 2)][dice.below(4)];
    let first = dice.below(members);
    let evil: Vec<_> = (0..usize::from(parity)).map(|at| (first + at) % members).collect();
    let mut world = World::<S>::new(is_sealed, members, parity, &evil);
    let mut told = format!("seed {seed}: sealed {is_sealed}, {evil:?} of {members}+{parity}:");
    for _ in 0..6 {
        if dice.below(2) == 0 {
            let (attack, has_mac) = (ATTACKS[dice.below(ATTACKS.len())], dice.below(2) == 0);
            told += &format!(" {attack:?}");
            attack.strike(&world, has_mac);
        } else {
            // One more member a story, so that the liars stay as few as parity replaces.
            let verb = VERBS[dice.below(VERBS.len() - 1)];
            told += &format!(" {verb:?}");
            if dice.below(3) == 0 {
                small_tree(&world.site.source(), seed + world.saved.len() as u64);
            }
            if let Err(error) = world.act(verb) {
                assert!(!is_sealed, "{told}: {error:?}");
            }
        }
    }
    world.assert_honest(&told);
    world.assert_whole_without_the_liars(&told);
}

/// A snapshot that gc took, and its tombstone after it, comes back when a member puts it back: a
/// check names what it lacks, and it can be forgotten and collected again.
pub fn a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again<S: SuiteSite>() {
    let mut world = World::<S>::new(true, 4, 1, &[1]);
    for _ in 0..2 {
        world.act(Verb::Collect).unwrap();
    }
    Attack::Rollback.strike(&world, true);
    world.assert_honest("after the rollback");
    let ledger = Ledger::new();
    check(&world.store(), true, &ledger);
    let lost = ledger.losses();
    assert!(!lost.is_empty(), "its content is gone: {lost:#?}");
    forget(&world.site, &world.gone);
    world.act(Verb::Collect).unwrap();
    let shown = snapshots::run(&world.store(), &Ledger::new().monitor).unwrap();
    assert_eq!(shown.len(), world.saved.len());
    let ledger = Ledger::new();
    check(&world.store(), true, &ledger);
    ledger.assert_no_losses();
    world.assert_honest("after it was forgotten again");
}

pub fn whatever_hostile_members_do_in_turn_nothing_is_lost<S: SuiteSite>() {
    let seeds = pinstripe_testing::chosen_seeds("PINSTRIPE_HOSTILE_SEEDS", 0..12);
    seeds.step_by(S::stride()).for_each(play_seed::<S>);
}

/// In a store that seals nothing, a state of the last generation may be believed.
pub fn a_scrub_state_of_the_last_generation_stops_no_scrub<S: SuiteSite>() {
    let mut world = World::<S>::new(false, 4, 1, &[0]);
    Attack::ScrubStates.strike(&world, false);
    for _ in 0..3 {
        world.act(Verb::Scrub).unwrap();
    }
    world.assert_honest("after three scrubs");
}

/// The shortest lie: five bytes in the place of each small object.
pub fn junk_in_the_place_of_every_object_of_a_member_stops_nothing<S: SuiteSite>() {
    for is_sealed in [true, false].into_iter().step_by(S::stride()) {
        let mut world = World::<S>::new(is_sealed, 4, 1, &[0]);
        let mut files = Default::default();
        read_files(&world.site.members[0], &mut files);
        for path in files.keys() {
            let is_set = |kind: &str| path.components().any(|part| part.as_os_str() == kind);
            if !is_set("packs") && !is_set("index") {
                fs::write(path, b"junk!").unwrap();
            }
        }
        world.assert_honest("junk");
        for verb in VERBS {
            if let Err(error) = world.act(verb) {
                assert!(!is_sealed, "{verb:?}: {error:?}");
            }
            world.assert_honest(&format!("junk, then {verb:?}"));
        }
    }
}

/// A label that was not made with the keys is named whenever the store is opened, until a repair.
pub fn a_made_up_label_is_named_and_written_anew<S: SuiteSite>() {
    let world = World::<S>::new(true, 4, 1, &[3]);
    // Without the keys, a server takes the member for one of another half, and does not serve it.
    if world.site.has_keyless_server() {
        return;
    }
    world.relabel(Attack::Table, true);
    let mut store = world.site.locked_store();
    let told = store.unlock(&crate::support::credential()).unwrap();
    let is_of_liar = |error: &pinstripe_base::error::Error| {
        error.place().and_then(Path::parent).is_some_and(|it| world.site.is_place_of(it, 3))
    };
    assert!(told.iter().all(is_of_liar), "{told:?}");
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("pinstripe.member"), "{told:?}");
    assert_eq!(repair(&mut store, &Ledger::new()).repaired_objects, 1);
    let mut store = world.site.locked_store();
    assert!(store.unlock(&crate::support::credential()).unwrap().is_empty());
}

/// One made-up trailer of four: nothing is given up for it, and `repair` writes it anew.
pub fn a_made_up_trailer_gives_up_no_extent<S: SuiteSite>() {
    for evil in (0..4).step_by(S::stride()) {
        let world = World::<S>::new(true, 4, 1, &[evil]);
        world.forge_trailers();
        let mut store = world.store();
        let ledger = Ledger::new();
        let outcome = check(&store, true, &ledger);
        ledger.assert_no_losses();
        assert!(outcome.repairable > 0, "the trailer is named");
        let ledger = Ledger::new();
        let outcome = repair(&mut store, &ledger);
        assert_eq!(outcome.lost_extents, 0, "{:#?}", ledger.seen());
        crate::support::assert_whole(&world.store());
        world.assert_honest("after a repair");
    }
}

/// The MAC of an object does not help it in another place: the frame is sound, the name is not its.
pub fn a_mac_of_the_store_itself_does_not_move_with_its_object<S: SuiteSite>() {
    let world = World::<S>::new(true, 4, 1, &[2]);
    let marks = world.site.store().names(ExtentKind::Forgotten, REACH).unwrap();
    let from = ExtentName::In(ExtentKind::Forgotten, *marks.first().unwrap());
    let bytes = fs::read(world.site.members[0].join(from.path())).unwrap();
    assert!(envelope::vouched(&bytes).is_some());
    for kind in [ExtentKind::Forgotten, ExtentKind::Gc, ExtentKind::Sessions, ExtentKind::Keys] {
        world.plant(ExtentName::In(kind, [3; 16]), &bytes);
    }
    world.assert_honest("after the copies");
    let store = world.site.store();
    let ledger = Ledger::new();
    assert_eq!(check(&store, false, &ledger).strays, 4, "{:#?}", ledger.seen());
    let mut store = world.site.store();
    assert_eq!(repair(&mut store, &Ledger::new()).strays, 4);
    let ledger = Ledger::new();
    assert_eq!(check(&store, false, &ledger).strays, 0, "named once: {:#?}", ledger.seen());
    assert_eq!(
        store.member_slots[2].member.as_ref().unwrap().list(ExtentKind::Strays).unwrap().len(),
        4
    );
}
