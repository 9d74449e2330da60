//! Backups in stories: alone, with a misbehaving member, interrupted, several in parallel.

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::snapshot::Snapshot;

use crate::deletion::gc;
use crate::health::scrub;
use crate::look::{Tree, look};
use crate::operation::{Beside, End, Trouble};
use crate::process::{Who, at_once, mortal, under};
use crate::support::{Ledger, backup, check};
use crate::world::{Kept, Wanted, World};

impl World {
    pub fn backup(&mut self, source: usize, end: End) {
        self.written();
        let tree = look(&self.sources[source]);
        let ledger = Ledger::new();
        let (done, cut) = under(self.stage, end, |who| {
            backup(&self.open("", who)?, &self.sources[source], &ledger)
        });
        self.untidy |= cut;
        self.take_note(source, tree, done, cut, &ledger);
    }

    /// Records the result of a backup, or judges its failure.
    pub fn take_note(
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
                self.keep(snapshot, source, tree, !cut);
            }
            Err(_) if cut => self.adopt(&[(source, &tree)]),
            // Fewer members than it takes to give new packs the parity that was asked for.
            Err(error) if self.is_for_want_of_members(&error) => self.untidy = true,
            // The only copy of something that a killed process left was damaged.
            Err(error) if error.kind() == Kind::Corrupt && self.follow_advice(&error) => {}
            Err(error) => panic!("a backup failed: {error}\n{:#?}", ledger.seen()),
        }
    }

    /// Adds snapshots of backups to the model that were interrupted after they had been committed.
    pub fn adopt(&mut self, trees: &[(usize, &Tree)]) {
        let known: Vec<SnapshotId> = self.kept.iter().map(|kept| kept.id()).collect();
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
            self.keep(snapshot, *source, tree, false);
        }
    }

    fn keep(&mut self, snapshot: Snapshot, source: usize, tree: Tree, firm: bool) {
        let wanted = Wanted::Yes;
        self.kept.push(Kept { snapshot, source, tree, firm, wanted, exposed: false });
    }

    pub fn troubled_backup(
        &mut self,
        source: usize,
        member: usize,
        trouble: Trouble,
        after: usize,
    ) {
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
        let done = mortal(self.stage, |who| {
            backup(&self.open(&faults, who)?, &self.sources[source], &ledger)
        });
        self.take_note(source, tree, done, false, &ledger);
    }

    /// Backs up both sources at the same time, in parallel with another operation.
    pub fn together(&mut self, beside: Beside, end: End) {
        self.written();
        self.untidy |= beside == Beside::Collect;
        self.expose(beside == Beside::Collect);
        let trees: Vec<Tree> = self.sources.iter().map(|source| look(source)).collect();
        let ledgers = [Ledger::new(), Ledger::new(), Ledger::new()];
        let (world, sources, ledgers) = (&*self, &self.sources, &ledgers);
        let run = |number: usize, source: usize, who: &Who| {
            backup(&world.open("", who)?, &sources[source], &ledgers[number])
        };
        let others = |who: &Who| {
            std::thread::scope(|scope| {
                let third = scope.spawn(|| match beside {
                    Beside::ThirdBackup => Some(run(2, 0, who)),
                    Beside::Check => {
                        let _ = check(&world.open("", who).unwrap(), true, &Ledger::new());
                        None
                    }
                    Beside::Scrub => {
                        let _ = scrub(&world.open("", who).unwrap(), 100);
                        None
                    }
                    Beside::Collect => {
                        let _ = gc(&world.open("", who).unwrap(), 10, &Ledger::new());
                        None
                    }
                    Beside::Nothing => None,
                });
                (run(1, 1, who), third.join().unwrap())
            })
        };
        let ((first, first_cut), ((second, third), cut)) =
            at_once(self.stage, end, |who| run(0, 0, who), others);
        self.untidy |= first_cut;
        let [a, b, c] = ledgers;
        let mut ended = vec![(0, first, first_cut, a), (1, second, cut, b)];
        ended.extend(third.map(|third| (0, third, cut, c)));
        // Those that ended well first: what is then unknown is of those that were cut off.
        ended.sort_by_key(|(_, done, ..)| done.is_err());
        for (source, done, cut, ledger) in ended {
            let tree = trees[source].clone();
            match done {
                Err(_) if cut => self.adopt(&[(0, &trees[0]), (1, &trees[1])]),
                done => self.take_note(source, tree, done, cut, ledger),
            }
        }
        if beside == Beside::Collect {
            self.meet_deletion(false);
        }
    }
}
