//! The store under stress, and the model beside it: what each snapshot must give back, and which
//! members may be lost without anybody having a right to complain.
//!
//! A member counts as *hurt* from the moment something is wrong with it (detached while others
//! were written to, destroyed, damaged, lied to) until a repair with it ended well. The world never
//! hurts more members than parity replaces; within that, everything must come back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::error::{Error, Kind};
use pinstripe::fault::PowerCut;
use pinstripe::format::snapshot::Snapshot;
use pinstripe::id::SnapshotId;
use pinstripe::member::Steps;
use pinstripe::ops;
use pinstripe::store::Store;

use crate::look::{Tree, assert_same, look};
use crate::operation::{Beside, Dice, End, Operation, Story, Trouble};
use crate::source;
use crate::support::{
    Ledger, NoWait, Seen, Site, backup, check, limits, read_files, remove_tree, repair, restore,
};

/// Operations between two looks at everything.
const JUDGED_EVERY: usize = 4;

/// A snapshot, and what it must give back.
struct Kept {
    snapshot: Snapshot,
    source: usize,
    tree: Tree,
    /// Whether its backup said that it is done, or a repair has seen it since. One that was cut
    /// off between its object and its end may lie on some members only: it may be there, whole, or
    /// be gone with them.
    firm: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Here,
    Away,
    Destroyed,
}

struct Health {
    place: Where,
    hurt: bool,
}

pub struct World {
    site: Site,
    parity: usize,
    sources: [PathBuf; 2],
    kept: Vec<Kept>,
    health: Vec<Health>,
    /// Whether something was cut off since the last repair, or leaves what repair cannot mend:
    /// check may then find leftovers, which no parity protects and no snapshot needs.
    untidy: bool,
    /// Directories of members made so far.
    made: usize,
}

impl World {
    /// Plays a story to its end; panics where a promise is broken.
    pub fn play(story: &Story) {
        let mut world = World::new(story.members, story.parity);
        for (number, operation) in story.operations.iter().enumerate() {
            world.carry_out(operation);
            if number % JUDGED_EVERY == JUDGED_EVERY - 1 {
                world.judge();
            }
        }
        world.judge();
        world.heal();
        world.judge();
    }

    fn new(members: usize, parity: u8) -> Self {
        let site = Site::new(members, parity);
        let sources = [site.source(), site.path("other")];
        for (number, source) in sources.iter().enumerate() {
            source::make(source, number as u64);
        }
        let health = (0..members).map(|_| Health { place: Where::Here, hurt: false }).collect();
        let parity = usize::from(parity);
        World { site, parity, sources, kept: Vec::new(), health, untidy: false, made: 0 }
    }

    fn carry_out(&mut self, operation: &Operation) {
        match *operation {
            Operation::Change { source, seed } => source::change(&self.sources[source], seed),
            Operation::Backup { source, end } => self.backup(source, end),
            Operation::TroubledBackup { source, member, trouble, after } => {
                self.troubled_backup(source, member % self.health.len(), trouble, after);
            }
            Operation::Together { beside, end } => self.together(beside, end),
            Operation::Lose { member } => self.lose(member % self.health.len()),
            Operation::Return { member } => self.come_back(member % self.health.len()),
            Operation::Destroy { member } => self.destroy(member % self.health.len()),
            Operation::Replace { end } => self.replace(end),
            Operation::Damage { member, seed } => self.damage(member % self.health.len(), seed),
            Operation::Repair { end } => self.repair(end),
            Operation::Scrub { part, end } => self.scrub(part, end),
            Operation::Check => self.check(),
            Operation::TroubledRestore { snapshot, member, seed } => {
                self.troubled_restore(snapshot, member % self.health.len(), seed);
            }
        }
    }

    // What the members can bear.

    fn hurt_members(&self) -> usize {
        self.health.iter().filter(|health| health.hurt).count()
    }

    fn absent(&self) -> usize {
        self.health.iter().filter(|health| health.place != Where::Here).count()
    }

    /// Whether something may go wrong with this member now.
    fn bears(&self, member: usize) -> bool {
        let health = &self.health[member];
        health.place == Where::Here && (health.hurt || self.hurt_members() < self.parity)
    }

    /// Something was written: who was not there lacks it from now on.
    fn written(&mut self) {
        for health in &mut self.health {
            health.hurt |= health.place != Where::Here;
        }
    }

    fn open(&self, faults: &str, steps: Arc<dyn Steps>) -> Result<Store, Error> {
        let sound = |health: &Health| health.place == Where::Here && !health.hurt;
        let here = |health: &Health| health.place == Where::Here;
        let through = self.health.iter().position(sound);
        let through = through.or_else(|| self.health.iter().position(here)).expect("one is here");
        self.site.open_doomed(through, faults, steps)
    }

    /// The store's number of a member: a new one gets a number that no other ever had.
    fn number(&self, store: &Store, member: usize) -> usize {
        let place = &self.site.members[member];
        store.seats.iter().position(|seat| seat.place == *place).expect("the store knows the place")
    }

    fn store(&self) -> Store {
        self.open("", Arc::new(NoWait)).unwrap()
    }

    // What happens.

    fn backup(&mut self, source: usize, end: End) {
        self.written();
        let tree = look(&self.sources[source]);
        let ledger = Ledger::new();
        let (done, cut) =
            under(end, |steps| backup(&self.open("", steps)?, &self.sources[source], &ledger));
        self.untidy |= cut;
        self.take_note(source, tree, done, cut, &ledger);
    }

    /// Keeps what a backup made, or finds its failure right.
    fn take_note(
        &mut self,
        source: usize,
        tree: Tree,
        done: Result<Snapshot, Error>,
        cut: bool,
        ledger: &Ledger,
    ) {
        match done {
            Ok(snapshot) => {
                // While extents are lost, a member that was replaced stays in the table.
                if self.hurt_members() == 0 && !cut && !self.untidy {
                    ledger.assert_no_losses();
                }
                self.kept.push(Kept { snapshot, source, tree, firm: !cut });
            }
            Err(_) if cut => self.adopt(&[(source, &tree)]),
            // Fewer members than it takes to give new packs the parity that was asked for.
            Err(error)
                if matches!(error.kind(), Kind::Refused | Kind::TooManyLosses)
                    && self.health.len() - self.hurt_members() <= self.parity
                    && self.hurt_members() > 0 =>
            {
                self.untidy = true;
            }
            Err(error) => panic!("a backup failed: {error}\n{:#?}", ledger.seen()),
        }
    }

    /// Takes in snapshots of backups that were cut off after they had committed.
    fn adopt(&mut self, trees: &[(usize, &Tree)]) {
        let known: Vec<SnapshotId> = self.kept.iter().map(|kept| kept.snapshot.id).collect();
        for snapshot in self.listed(&self.store()) {
            if known.contains(&snapshot.id) {
                continue;
            }
            let is_of = |source: usize| {
                let path = self.sources[source].as_os_str().as_encoded_bytes();
                snapshot.sources == [path[1..].to_vec()]
            };
            let (source, tree) = trees.iter().find(|(source, _)| is_of(*source)).expect("ours");
            let tree = (*tree).clone();
            self.kept.push(Kept { snapshot, source: *source, tree, firm: false });
        }
    }

    fn listed(&self, store: &Store) -> Vec<Snapshot> {
        let ledger = Ledger::new();
        let listed = ops::snapshots::run(store, &ledger.monitor).unwrap();
        // Of one that was cut off the only copy may be damaged.
        for loss in ledger.losses() {
            let is_it = |kept: &&Kept| loss.place.ends_with(kept.snapshot.id.to_string());
            assert!(
                !self.kept.iter().filter(|kept| kept.firm).any(|kept| is_it(&kept)),
                "{loss:?}"
            );
        }
        listed
    }

    fn troubled_backup(&mut self, source: usize, member: usize, trouble: Trouble, after: usize) {
        if !self.bears(member) {
            return;
        }
        let number = self.number(&self.store(), member);
        self.written();
        self.health[member].hurt = true;
        let effect = match trouble {
            Trouble::Fails => format!("after={after},error=EIO"),
            Trouble::Loses => format!("op=append,after={after},times=2,lost=yes"),
            Trouble::Tears => format!("op=append,after={after},times=3,torn=100"),
            Trouble::Flips => format!("op=append,seed={after},chance=0.3,flip=2"),
        };
        // A member that fails at once is as good as absent.
        let faults = match trouble {
            Trouble::Fails => ["create", "append", "seal", "put"]
                .map(|op| format!("op={op},member={number},{effect}"))
                .join(";"),
            _ => format!("member={number},{effect}"),
        };
        let (tree, ledger) = (look(&self.sources[source]), Ledger::new());
        let store = self.open(&faults, Arc::new(NoWait)).unwrap();
        let done = backup(&store, &self.sources[source], &ledger);
        drop(store);
        self.take_note(source, tree, done, false, &ledger);
    }

    fn together(&mut self, beside: Beside, end: End) {
        self.written();
        let trees: Vec<Tree> = self.sources.iter().map(|source| look(source)).collect();
        let ledgers = [Ledger::new(), Ledger::new(), Ledger::new()];
        let (site, sources) = (&*self, &self.sources);
        let run = |number: usize, source: usize, steps: Arc<dyn Steps>| {
            backup(&site.open("", steps)?, &sources[source], &ledgers[number])
        };
        // A power cut is one for all, a kill is of one process.
        let shared = matches!(end, End::PowerCut(..));
        let (done, cut) = under(end, |steps| {
            let others = || if shared { Arc::clone(&steps) } else { Arc::new(NoWait) };
            std::thread::scope(|scope| {
                let second = scope.spawn(|| run(1, 1, others()));
                let third = scope.spawn(|| match beside {
                    Beside::ThirdBackup => Some(run(2, 0, others())),
                    Beside::Check => {
                        let _ = check(&site.open("", others()).unwrap(), true, &Ledger::new());
                        None
                    }
                    Beside::Scrub => {
                        let _ = scrub(&site.open("", others()).unwrap(), 100);
                        None
                    }
                    Beside::Nothing => None,
                });
                let first = run(0, 0, Arc::clone(&steps));
                (first, second.join().unwrap(), third.join().unwrap())
            })
        });
        self.untidy |= cut;
        let (first, second, third) = done;
        let [a, b, c] = &ledgers;
        let mut ended = vec![(0, first, cut, a), (1, second, cut && shared, b)];
        ended.extend(third.map(|third| (0, third, cut && shared, c)));
        // Those that ended well first: what is then unknown is of those that were cut off.
        ended.sort_by_key(|(_, done, ..)| done.is_err());
        for (source, done, cut, ledger) in ended {
            let tree = trees[source].clone();
            match done {
                Err(_) if cut => self.adopt(&[(0, &trees[0]), (1, &trees[1])]),
                done => self.take_note(source, tree, done, cut, ledger),
            }
        }
    }

    fn lose(&mut self, member: usize) {
        if !self.bears(member) {
            return;
        }
        // As long as nothing is written, it comes back as it went.
        if self.absent() + self.hurt_members() >= self.parity && !self.health[member].hurt {
            return;
        }
        fs::rename(&self.site.members[member], away(&self.site.members[member])).unwrap();
        self.health[member].place = Where::Away;
        self.health[member].hurt = true;
    }

    fn come_back(&mut self, member: usize) {
        if self.health[member].place == Where::Away {
            fs::rename(away(&self.site.members[member]), &self.site.members[member]).unwrap();
            self.health[member].place = Where::Here;
        }
    }

    fn destroy(&mut self, member: usize) {
        if self.bears(member) {
            fs::remove_dir_all(&self.site.members[member]).unwrap();
            self.health[member] = Health { place: Where::Destroyed, hurt: true };
        }
    }

    fn replace(&mut self, end: End) {
        let Some(member) = self.health.iter().position(|h| h.place == Where::Destroyed) else {
            return;
        };
        self.made += 1;
        let place = self.site.path(&format!("m{member}-{}", self.made));
        let (done, cut) = under(end, |steps| {
            let mut store = self.open("", steps)?;
            let number = self.number(&store, member);
            let options =
                ops::repair::Options { replace: Some((number, place.clone())), limits: limits() };
            ops::repair::run(&mut store, &options, &Ledger::new().monitor)
        });
        self.untidy |= cut;
        match &done {
            Ok(_) if !cut => {
                self.site.members[member] = place;
                self.health[member].place = Where::Here;
                self.repaired(done.unwrap().lost_extents);
            }
            Err(error) if !cut => panic!("member {member} could not be made anew: {error}"),
            // Whatever there is of it, it is thrown away, and the next attempt is at another place.
            _ => {
                let _ = fs::remove_dir_all(&place);
                // It may have been cut off when the store knew the new one already: that is the
                // member that is gone now.
                let mut seats = self.store().seats.into_iter();
                if seats.any(|seat| seat.row.is_some() && seat.place == place) {
                    self.site.members[member] = place;
                }
            }
        }
    }

    fn damage(&mut self, member: usize, seed: u64) {
        if !self.bears(member) {
            return;
        }
        self.health[member].hurt = true;
        let mut dice = Dice::new(seed);
        let mut files = std::collections::BTreeMap::new();
        read_files(&self.site.members[member], &mut files);
        let is_label = |path: &PathBuf| path.ends_with("pinstripe.member");
        let files: Vec<_> = files.into_iter().filter(|(path, _)| !is_label(path)).collect();
        for _ in 0..files.len().min(dice.below(6) + 1) {
            let (path, bytes) = dice.pick(&files);
            hurt(path, bytes, &mut dice);
        }
    }

    fn repair(&mut self, end: End) {
        let (done, cut) = under(end, |steps| {
            let options = ops::repair::Options { replace: None, limits: limits() };
            ops::repair::run(&mut self.open("", steps)?, &options, &Ledger::new().monitor)
        });
        self.untidy |= cut;
        match done {
            Ok(outcome) if !cut => self.repaired(outcome.lost_extents),
            Ok(_) => {}
            Err(error) => assert!(cut, "a repair failed: {error}"),
        }
    }

    fn scrub(&mut self, part: u64, end: End) {
        let (done, cut) = under(end, |steps| scrub(&self.open("", steps)?, part));
        self.untidy |= cut;
        match done {
            Ok(outcome) if !cut => {
                assert!(outcome.lost == 0 || self.untidy, "{outcome:?}");
                if part == 100 {
                    assert_eq!(outcome.sets, outcome.all_sets);
                    if outcome.repairable == 0 && !self.untidy {
                        self.repaired(0);
                    }
                }
            }
            Ok(_) => {}
            Err(error) => assert!(cut, "a scrub failed: {error}"),
        }
    }

    /// A repair ended well: what is here is whole again.
    fn repaired(&mut self, lost_extents: u64) {
        assert!(lost_extents == 0 || self.untidy, "{lost_extents} extents lost");
        for health in self.health.iter_mut().filter(|health| health.place == Where::Here) {
            health.hurt = false;
        }
        // What a cut-off left on a member that is away comes back with it.
        self.untidy = lost_extents > 0 || (self.untidy && self.absent() > 0);
        let listed = self.listed(&self.store());
        for kept in &mut self.kept {
            kept.firm |= listed.contains(&kept.snapshot);
        }
        self.check();
    }

    fn check(&self) {
        let ledger = Ledger::new();
        let outcome = check(&self.store(), true, &ledger);
        let firm = |seen: &Seen| {
            let place = seen.place.to_string_lossy().into_owned();
            let names = |kept: &Kept| place.contains(&kept.snapshot.id.to_string());
            self.kept.iter().any(|kept| kept.firm && names(kept))
        };
        assert!(!ledger.losses().iter().any(firm), "{:#?}", ledger.seen());
        assert_eq!(outcome.hurt_paths, 0, "{outcome:?} {:#?}", ledger.seen());
        assert!(outcome.lost == 0 || self.untidy, "{outcome:?} {:#?}", ledger.seen());
        if self.hurt_members() == 0 && !self.untidy {
            assert_eq!(outcome.repairable, 0, "{:#?}", ledger.seen());
        }
    }

    fn troubled_restore(&self, snapshot: usize, member: usize, seed: u64) {
        let firm: Vec<_> = self.kept.iter().filter(|kept| kept.firm).collect();
        if firm.is_empty() || !self.bears(member) {
            return;
        }
        let mut dice = Dice::new(seed);
        let fault = *dice.pick(&[
            "op=read,room=packs,error=EIO",
            "op=read,chance=0.4,flip=2",
            "op=read,room=index,flip=1",
            "op=read,room=packs,short=100",
            "error=EIO",
        ]);
        let number = self.number(&self.store(), member);
        let faults = format!("{fault},member={number},seed={}", dice.below(1000));
        let store = self.open(&faults, Arc::new(NoWait)).unwrap();
        self.assert_restores(&store, firm[snapshot % firm.len()]);
    }

    // What must hold.

    /// Every finished snapshot is listed and comes back, byte for byte.
    fn judge(&self) {
        let store = self.store();
        let listed = self.listed(&store);
        for kept in &self.kept {
            if listed.contains(&kept.snapshot) {
                self.assert_restores(&store, kept);
            } else {
                assert!(!kept.firm, "snapshot {} is gone", kept.snapshot.id);
            }
        }
        let known = |snapshot: &&Snapshot| self.kept.iter().any(|k| k.snapshot == **snapshot);
        let strange: Vec<_> = listed.iter().filter(|snapshot| !known(snapshot)).collect();
        assert!(strange.is_empty(), "snapshots that nobody made: {strange:?}");
    }

    fn assert_restores(&self, store: &Store, kept: &Kept) {
        let (ledger, to) = (Ledger::new(), self.site.target());
        let name = kept.snapshot.id.to_string();
        restore(store, &name, &self.sources[kept.source], &to, &ledger).unwrap();
        ledger.assert_no_losses();
        assert_same(&kept.tree, &look(&to));
        remove_tree(&to);
    }

    /// Everybody comes back, and one repair makes the store as good as new.
    fn heal(&mut self) {
        (0..self.health.len()).for_each(|member| self.come_back(member));
        while self.health.iter().any(|health| health.place == Where::Destroyed) {
            self.replace(End::Whole);
        }
        let outcome = repair(&mut self.store(), &Ledger::new());
        self.repaired(outcome.lost_extents);
        for source in 0..self.sources.len() {
            self.backup(source, End::Whole);
        }
    }
}

/// Scrubs so many hundredths of a store.
fn scrub(store: &Store, part: u64) -> Result<ops::scrub::Outcome, Error> {
    let options = ops::scrub::Options {
        budget: format!("{part}%").parse()?,
        rate: None,
        save_bytes: 20_000,
        limits: limits(),
    };
    ops::scrub::run(store, &options, &Ledger::new().monitor, &|_| {})
}

/// Runs `work` to the end that was drawn; says whether that end came before its own.
fn under<T>(end: End, work: impl FnOnce(Arc<dyn Steps>) -> T) -> (T, bool) {
    let steps = match end {
        End::Whole => return (work(Arc::new(NoWait)), false),
        End::Killed(steps) | End::PowerCut(steps, _) => steps,
    };
    let power = Arc::new(PowerCut::new(steps));
    let done = work(Arc::clone(&power) as Arc<dyn Steps>);
    let cut = power.is_off();
    if let End::PowerCut(_, seed) = end
        && cut
    {
        power.after_power_cut(seed).unwrap();
    }
    (done, cut)
}

fn away(member: &Path) -> PathBuf {
    member.with_extension("away")
}

fn hurt(path: &Path, bytes: &[u8], dice: &mut Dice) {
    match dice.below(4) {
        0 => {
            let _ = fs::remove_file(path);
        }
        1 => fs::write(path, &bytes[..dice.below(bytes.len() + 1)]).unwrap(),
        2 => fs::write(path, b"something else").unwrap(),
        _ => {
            let mut bytes = bytes.to_vec();
            if !bytes.is_empty() {
                let at = dice.below(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
            fs::write(path, bytes).unwrap();
        }
    }
}
