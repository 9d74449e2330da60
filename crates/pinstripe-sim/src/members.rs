//! Members in stories that join, leave, are replaced, and share data evenly.

use std::fs;

use pinstripe::member::{self, Replaced};
use pinstripe_base::error::{Error, Kind};

use crate::operation::End;
use crate::process::{Who, under};
use crate::support::{Ledger, limits};
use crate::world::{Health, Where, World};

/// The most members of a store.
const MOST: usize = 6;

impl World {
    fn new_place(&mut self) -> std::path::PathBuf {
        self.made += 1;
        self.site.path(&format!("new-{}", self.made))
    }

    /// A member joins. Adds a member; an interrupted operation is started again at once.
    pub fn add_member(&mut self, end: End) {
        if self.health.len() >= MOST {
            return;
        }
        self.written();
        let place = self.new_place();
        let add = |world: &World, who: &Who| {
            let mut store = world.open("", who)?;
            member::add(&mut store, &place, true, &Ledger::new().monitor).map(drop)
        };
        let (done, cut) = under(self.stage, end, |who| add(self, who));
        self.untidy |= cut;
        if cut {
            self.check();
            add(self, &Who::own()).unwrap();
        } else if let Err(error) = done {
            panic!("a member could not join: {error}");
        }
        self.site.members.push(place);
        self.health.push(Health::sound());
    }

    /// A member leaves. Removes a member; an interrupted removal is continued by the next one.
    pub fn remove_member(&mut self, member: usize, end: End) {
        let member = self.leaving().unwrap_or(member);
        let members = self.health.len() - usize::from(self.leaving().is_some());
        // What a hurt member lacks would be on no member once it has left, until the next repair.
        if self.health[member].hurt
            || self.health[member].place != Where::Here
            || self.leaving().is_none() && members <= self.parity + 1
        {
            return;
        }
        self.written();
        self.expose(true);
        let (done, cut) = under(self.stage, end, |who| {
            let mut store = self.open("", who)?;
            let number = self.number(&store, member);
            member::remove(&mut store, number, &limits(), &Ledger::new().monitor)
        });
        self.untidy |= cut;
        // Asked last for what there is: it may be none any more.
        self.health[member].leaving = true;
        match done {
            Ok(_) => {}
            Err(_) if cut => {}
            // Sets are laid anew only with all members, and what is hurt may stand in the way.
            Err(error) if self.hurt_members() > 0 || self.untidy => {
                let is_refusal = matches!(error.kind(), Kind::Refused | Kind::TooManyLosses);
                assert!(is_refusal, "a member could not leave: {error}");
                self.untidy = true;
            }
            Err(error) => panic!("a member could not leave: {error}"),
        }
        self.meet_members();
        self.meet_deletion(false);
    }

    /// Keeps a member whose removal was interrupted.
    pub fn keep_member(&mut self) {
        let Some(member) = self.leaving() else { return };
        self.written();
        let place = self.site.members[member].clone();
        member::add(&mut self.store(), &place, true, &Ledger::new().monitor).unwrap();
        self.meet_members();
        assert!(self.leaving().is_none());
    }

    /// Replaces a member by a new one. An interrupted replacement is started again at once.
    pub fn swap_member(&mut self, member: usize, end: End) {
        // While extents are lost, the old one stays in the table.
        if self.untidy || self.leaving().is_some() {
            return;
        }
        let was_here = self.health[member].place == Where::Here;
        let number = self.number(&self.store(), member);
        self.written();
        let place = self.new_place();
        let swap = |world: &World, who: &Who| -> Result<Replaced, Error> {
            let mut store = world.open("", who)?;
            member::replace(&mut store, number, &place, true, &limits(), &Ledger::new().monitor)
        };
        let (mut done, cut) = under(self.stage, end, |who| swap(self, who));
        self.untidy |= cut;
        if cut {
            done = swap(self, &Who::own());
        }
        match done {
            Ok(replaced) => assert_eq!(replaced.lost_extents, 0),
            // Everything that counts had already been done.
            Err(error) if cut && error.kind() == Kind::Usage => {}
            // The member by which the store is opened is the old one, which has left.
            Err(error) if cut && error.kind() == Kind::NotFound => {}
            Err(error) => panic!("member {member} could not be replaced: {error}"),
        }
        let old = std::mem::replace(&mut self.site.members[member], place);
        let _ = fs::remove_dir_all(if was_here { old } else { crate::health::away(&old) });
        // What it lacked before, it may lack now.
        self.health[member].place = Where::Here;
    }

    pub fn rebalance(&mut self, end: End) {
        self.written();
        let (done, cut) = under(self.stage, end, |who| {
            member::rebalance(&self.open("", who)?, false, &limits(), &Ledger::new().monitor)
        });
        self.untidy |= cut;
        if !cut {
            done.unwrap();
        }
    }
}
