//! Members in stories: loss, damage and return of members; repair, scrub and check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pinstripe::{Store, repair, scrub};
use pinstripe_base::error::Error;
use pinstripe_base::id::SnapshotId;
use pinstripe_member::ExtentKind;

use crate::operation::{Dice, End};
use crate::process::{Who, under};
use crate::support::{Ledger, Seen, check, limits, read_files, replace};
use crate::world::{Health, Wanted, Where, World};

impl World {
    pub fn lose(&mut self, member: usize) {
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

    pub fn come_back(&mut self, member: usize) {
        if self.health[member].place == Where::Away {
            fs::rename(away(&self.site.members[member]), &self.site.members[member]).unwrap();
            self.health[member].place = Where::Here;
        }
    }

    pub fn destroy(&mut self, member: usize) {
        if self.bears(member) {
            fs::remove_dir_all(&self.site.members[member]).unwrap();
            self.health[member] = Health { place: Where::Destroyed, hurt: true, leaving: false };
        }
    }

    pub fn replace(&mut self, end: End) {
        let Some(member) = self.health.iter().position(|h| h.place == Where::Destroyed) else {
            return;
        };
        self.made += 1;
        let place = self.site.path(&format!("m{member}-{}", self.made));
        let number = self.number(&self.store(), member);
        let attempt = |end| {
            under(self.stage, end, |who| {
                replace(&mut self.open("", who)?, number, &place, &Ledger::new())
            })
        };
        let (mut done, cut) = attempt(end);
        if cut {
            done = attempt(End::Whole).0;
        }
        let replaced =
            done.unwrap_or_else(|error| panic!("member {member} was not replaced: {error}"));
        self.untidy |= cut;
        self.site.members[member] = place;
        self.health[member].place = Where::Here;
        self.repaired(replaced.lost_extents);
    }

    pub fn damage(&mut self, member: usize, seed: u64) {
        if !self.bears(member) {
            return;
        }
        self.health[member].hurt = true;
        self.damaged = true;
        let mut dice = Dice::new(seed);
        let mut files = std::collections::BTreeMap::new();
        read_files(&self.site.members[member], &mut files);
        let is_label = |path: &Path| path.ends_with("pinstripe.member");
        let is_spared = |path: &Path| is_label(path) || self.is_lone_step(member, path);
        let files: Vec<_> = files.into_iter().filter(|(path, _)| !is_spared(path)).collect();
        for _ in 0..files.len().min(dice.below(6) + 1) {
            let (path, bytes) = dice.pick(&files);
            hurt(path, bytes, &mut dice);
        }
    }

    /// Whether this file is an object of a session or deletion that a killed process left, with so
    /// few copies that it may become the only one available. If that copy is damaged, its content
    /// is unknown, so every writer stops until an administrator removes it.
    fn is_lone_step(&self, member: usize, path: &Path) -> bool {
        let name = path.strip_prefix(&self.site.members[member]).unwrap();
        let is_step =
            [ExtentKind::Sessions, ExtentKind::Gc].iter().any(|it| name.starts_with(it.dir()));
        let others = self.site.members.iter().enumerate().filter(|(other, _)| *other != member);
        is_step && others.filter(|(_, other)| other.join(name).exists()).count() <= self.parity
    }

    pub fn repair(&mut self, end: End) {
        let (done, cut) = under(self.stage, end, |who| {
            repair::run(&mut self.open("", who)?, limits(), &Ledger::new().monitor)
        });
        self.untidy |= cut;
        match done {
            Ok(outcome) if !cut => self.repaired(outcome.lost_extents),
            Ok(_) => {}
            Err(error) => assert!(cut, "a repair failed: {error}"),
        }
    }

    pub fn scrub(&mut self, part: u64, end: End) {
        let (done, cut) = under(self.stage, end, |who| scrub(&self.open("", who)?, part));
        self.untidy |= cut;
        match done {
            Ok(outcome) if !cut => {
                assert!(outcome.lost == 0 || self.untidy, "{outcome:?}");
                if part == 100 {
                    assert_eq!(outcome.sets, outcome.all_sets);
                    if outcome.repairable == 0 && !self.untidy && !self.marks_differ() {
                        self.repaired(0);
                    }
                }
            }
            Ok(_) => {}
            Err(error) => assert!(cut, "a scrub failed: {error}"),
        }
    }

    /// Whether a member lacks a mark that another member has. A scrub cannot distinguish this from
    /// a mark that was just removed, and leaves it to the verbs that read the mark.
    fn marks_differ(&self) -> bool {
        let marks = |member: &PathBuf| {
            let list = |kind: ExtentKind| {
                let names = fs::read_dir(member.join(kind.dir())).into_iter().flatten();
                names.map(|it| it.unwrap().file_name()).collect::<BTreeSet<_>>()
            };
            [ExtentKind::Forgotten, ExtentKind::Sessions, ExtentKind::Gc].map(list)
        };
        let here = self.health.iter().zip(&self.site.members);
        let mut here = here.filter(|(health, _)| health.place == Where::Here);
        let Some((_, first)) = here.next() else { return false };
        here.any(|(_, member)| marks(member) != marks(first))
    }

    /// Records that a repair ended well: all available members are complete again.
    pub fn repaired(&mut self, lost_extents: u64) {
        let may_lose = self.untidy || self.leftovers;
        assert!(lost_extents == 0 || may_lose, "{lost_extents} extents lost");
        self.leftovers |= self.untidy;
        // While a member is leaving, a slot may have no member that could take it.
        if self.leaving().is_none() {
            for health in self.health.iter_mut().filter(|health| health.place == Where::Here) {
                health.hurt = false;
            }
            // What a cut-off left on a member that is away comes back with it.
            self.untidy = lost_extents > 0 || (self.untidy && self.absent() > 0);
        }
        self.settle();
        self.check();
    }

    /// Records that the objects of an interrupted step are now on every member, or on none.
    fn settle(&mut self) {
        let listed = self.listed(&self.store());
        let all_here = self.absent() == 0;
        for kept in &mut self.kept {
            let is_listed = listed.contains(&kept.snapshot);
            kept.firm |= is_listed;
            if kept.wanted == Wanted::Unsure && all_here {
                kept.wanted = if is_listed { Wanted::Yes } else { Wanted::No };
            }
        }
        if all_here {
            self.settle_keys();
        }
    }

    pub fn check(&self) {
        let (store, ledger) = (self.store(), Ledger::new());
        let outcome = check(&store, true, &ledger);
        let firm = |seen: &Seen| {
            let place = seen.place.to_string_lossy().into_owned();
            self.kept.iter().any(|kept| kept.must_stay() && is_named(kept.id(), &place))
        };
        let is_hurt = ledger.losses().iter().any(firm);
        assert!(!is_hurt, "a finished snapshot is hurt: {:#?}", ledger.seen());
        assert_eq!(outcome.hurt_paths, 0, "{outcome:?} {:#?}", ledger.seen());
        assert!(outcome.lost == 0 || self.untidy, "{outcome:?} {:#?}", ledger.seen());
        // While a member is leaving, a slot may have no member that could take it.
        let stays = self.leaving().is_none() && self.ghosts_in(&store) == 0;
        let is_whole = stays && self.hurt_members() == 0;
        if is_whole && !self.untidy && !self.shrunk {
            assert_eq!(outcome.repairable, 0, "{:#?}", ledger.seen());
        }
    }

    pub fn troubled_restore(&self, snapshot: usize, member: usize, seed: u64) {
        let firm: Vec<_> = self.kept.iter().filter(|kept| kept.must_stay()).collect();
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
        let store = self.open(&faults, &Who::own()).unwrap();
        self.assert_restores(&store, firm[snapshot % firm.len()]);
    }
}

/// Scrubs this percentage of a store.
pub fn scrub(store: &Store, part: u64) -> Result<scrub::ScrubOutcome, Error> {
    let options = scrub::ScrubOptions {
        budget: format!("{part}%").parse()?,
        rate: None,
        save_bytes: 20_000,
        limits: limits(),
    };
    scrub::run(store, &options, &Ledger::new().monitor, &|_| {})
}

/// Whether the place of a loss names this snapshot, in the form of `check`: by its first digits.
pub fn is_named(snapshot: SnapshotId, place: &str) -> bool {
    place.contains(&format!("snapshot {}", snapshot.short()))
        || place.contains(&snapshot.to_string())
}

pub fn away(member: &Path) -> PathBuf {
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
