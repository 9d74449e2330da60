//! The store of a story, and the model beside it: the content of each snapshot, whether it is
//! wanted, the members, and the keys.
//!
//! Invariant: the model says only what verbs have reported and what was done to members. What two
//! verbs decided beside each other, or what was cut off, is `Unsure`, and may be either.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pinstripe::{Limits, OpenOptions, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Redundancy;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, Quota, Steps};
use pinstripe_sim::Who;

use super::keys::{Key, unlock};
use super::story::{Origin, Shape};
use super::template::{Sources, Template};
use crate::trace::Trace;
use pinstripe_sim::Site;
use pinstripe_sim::Tree;

/// Whether a snapshot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Yes,
    No,
    Unsure,
}

/// A snapshot, and what it must give back.
#[derive(Clone)]
pub struct Kept {
    pub snapshot: Snapshot,
    /// The path that it is of, and the tree there; empty for a stream.
    pub path: PathBuf,
    pub tree: Arc<Tree>,
    /// Whether its backup reported that it is done.
    pub is_firm: bool,
    pub wanted: Wanted,
    /// Whether a gc began since it was forgotten.
    pub is_exposed: bool,
}

impl Kept {
    pub fn new(snapshot: Snapshot, path: &Path, tree: Arc<Tree>) -> Self {
        let path = path.to_path_buf();
        Kept { snapshot, path, tree, is_firm: true, wanted: Wanted::Yes, is_exposed: false }
    }

    /// One of a stream: a file, of which no tree is kept.
    pub fn stream(snapshot: Snapshot) -> Self {
        let path = Path::new("/").join(OsStr::from_bytes(&snapshot.sources[0]));
        Kept::new(snapshot, &path, Arc::default())
    }

    pub fn id(&self) -> SnapshotId {
        self.snapshot.id
    }

    /// Whether it must be there.
    pub fn must_stay(&self) -> bool {
        self.is_firm && self.wanted == Wanted::Yes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Here,
    Away,
    Dead,
}

/// A member of the store.
#[derive(Debug, Clone)]
pub struct Seat {
    pub number: usize,
    pub place: PathBuf,
    pub is: Where,
    /// Whether it may lack something that it should have.
    pub is_hurt: bool,
}

impl Seat {
    pub fn sound(number: usize, place: PathBuf) -> Self {
        Seat { number, place, is: Where::Here, is_hurt: false }
    }

    pub fn is_here(&self) -> bool {
        self.is == Where::Here
    }

    /// Where its directory is while it is away.
    pub fn aside(&self) -> PathBuf {
        self.place.with_extension("away")
    }
}

pub struct World {
    pub site: Site,
    pub shape: Shape,
    pub sources: Arc<Sources>,
    pub template: Arc<Template>,
    pub seats: Vec<Seat>,
    pub kept: Vec<Kept>,
    /// Snapshots that gc took: they must not be seen again.
    pub gone: Vec<SnapshotId>,
    pub keys: Mutex<Vec<Key>>,
    pub other_half: Option<(PathBuf, Kept)>,
    pub quota: Arc<Quota>,
    /// Members that may have lacked something when they left: what they lacked is on no member.
    pub lacking: usize,
    /// Dead members that left the table in a change that was cut off or failed: they may count as absent
    /// until a verb that writes packs or labels ends well.
    pub half_gone: usize,
    /// How many more members every snapshot survives, as a verb stated last, and the members that were
    /// hurt or absent then.
    pub survives: Option<(u64, Vec<PathBuf>)>,
    /// Whether something was cut off since the last repair.
    pub is_untidy: bool,
    /// Whether a member was away while the members were changed.
    pub has_older_table: bool,
    /// Members on their way out.
    pub leaving: usize,
    /// Kinds of which every member has or had junk.
    pub junk: BTreeSet<ExtentKind>,
    /// Whether an upgrade began and did not finish. No verb writes until it finishes.
    pub is_half_upgraded: bool,
    /// Whether more was lost than parity replaces.
    pub may_lose: bool,
    /// Whether an older copy of a member came back: what was deleted in between, and is forgotten by
    /// all members since, may be there again.
    pub has_stale: bool,
    /// Whether a gc ran while a member was away, in a store that votes: once the members that took its
    /// tombstones have left, what it deleted may be listed again, without its content (decision 0065).
    pub may_forget_deletions: bool,
    /// Directories and keys made so far.
    pub made: u64,
    /// Directories that verbs were told to make members of.
    pub new_places: Vec<PathBuf>,
    trace: Arc<Trace>,
}

/// One worker: what several processes do at once is more than what the threads of one do.
pub fn limits() -> Limits {
    Limits::new(1, 1, 64 << 20)
}

/// Whether another member may know better where the members are.
fn may_know_less(error: &Error) -> bool {
    matches!(error.kind(), Kind::TooManyLosses | Kind::WrongMember | Kind::NotFound)
}

impl World {
    #[expect(clippy::too_many_arguments, reason = "the parts of a world, put together once")]
    pub fn new(
        site: Site,
        shape: Shape,
        sources: Arc<Sources>,
        template: Arc<Template>,
        seats: Vec<Seat>,
        kept: Vec<Kept>,
        keys: Vec<Key>,
        other_half: Option<(PathBuf, Kept)>,
    ) -> Self {
        World {
            site,
            shape,
            sources,
            template,
            seats,
            kept,
            gone: Vec::new(),
            keys: Mutex::new(keys),
            other_half,
            quota: Arc::default(),
            lacking: 0,
            half_gone: 0,
            survives: None,
            is_untidy: false,
            has_older_table: false,
            leaving: 0,
            junk: BTreeSet::new(),
            is_half_upgraded: false,
            may_lose: false,
            has_stale: false,
            may_forget_deletions: false,
            made: 1,
            new_places: Vec::new(),
            trace: Arc::default(),
        }
    }

    pub fn note(&self, line: &str) {
        self.trace.note(line);
    }

    /// Whether members may have parts of packs that nothing needs any more.
    pub fn is_disorderly(&self) -> bool {
        self.is_untidy || self.may_forget_deletions
    }

    /// Whether small objects prove themselves, and need no votes.
    pub fn has_macs(&self) -> bool {
        self.shape.is_sealed && self.shape.origin != Origin::Old
    }

    pub fn parity(&self) -> usize {
        self.shape.parity.into()
    }

    /// A number that no directory and no key has had.
    pub fn new_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub fn absent(&self) -> usize {
        self.seats.iter().filter(|seat| !seat.is_here()).count()
    }

    /// Takes note of what verbs stated of the redundancy.
    pub fn note_redundancy(&mut self, stated: impl Iterator<Item = Redundancy>) {
        let Some(survives) = stated.map(|it| it.survives).min() else { return };
        // What a full member could not take may be on the one that was away alone.
        let may_lack = self.limited() == 0;
        let is_infirm = |seat: &&Seat| (seat.is_hurt && may_lack) || !seat.is_here();
        let infirm = self.seats.iter().filter(is_infirm);
        self.survives = Some((survives, infirm.map(|seat| seat.place.clone()).collect()));
    }

    /// How many losses of members are on no member that is here: what [`lacking`](Self::lacking) counts
    /// is missing in packs, what [`half_gone`](Self::half_gone) counts in the table.
    pub fn unseen_losses(&self) -> usize {
        self.lacking.max(self.half_gone)
    }

    pub fn hurt(&self) -> usize {
        self.lacking + self.seats.iter().filter(|seat| seat.is_hurt).count()
    }

    /// The members that users name, in this order: the sound ones first. One that was away may not
    /// know where the others are now; then they name another one.
    fn through(&self) -> Vec<&Path> {
        let is_member = |place: &&Path| place.join(ExtentName::Label.path()).exists();
        let here = |is_hurt| {
            self.seats.iter().filter(move |seat| seat.is_here() && seat.is_hurt == is_hurt)
        };
        let places = |is_hurt| here(is_hurt).map(|seat| seat.place.as_path());
        let new = self.new_places.iter().rev().map(PathBuf::as_path);
        // One that was away while others were replaced knows an older store.
        let places: Vec<&Path> =
            places(false).chain(new).chain(places(true)).filter(is_member).collect();
        if places.is_empty() { vec![&self.seats[0].place] } else { places }
    }

    /// How many members that are there have limited room.
    pub fn limited(&self) -> usize {
        let is_limited = |seat: &&Seat| seat.is_here() && self.quota.left(&seat.place).is_some();
        self.seats.iter().filter(is_limited).count()
    }

    /// Opens the store as a process does that has these faults before its members.
    pub fn open_as(&self, who: &Who, options: OpenOptions) -> Result<Store> {
        let limited = who.with_steps(self.quota.before(Arc::clone(&who.steps)));
        let steps: Arc<dyn Steps> = Trace::before(&self.trace, &limited);
        let options = OpenOptions { steps: Some(steps), process: who.process, ..options };
        let mut opened = None;
        for place in self.through() {
            let store = Store::open_with(place, options.clone()).and_then(|it| self.unlocked(it));
            let is_final = store.as_ref().err().is_none_or(|error| !may_know_less(error));
            opened = Some(store);
            if is_final {
                break;
            }
        }
        opened.expect("a store has a member")
    }

    fn unlocked(&self, mut store: Store) -> Result<Store> {
        if self.shape.is_sealed {
            let keys = self.keys.lock().unwrap().clone();
            unlock(&mut store, &keys)?;
        }
        Ok(store)
    }

    pub fn open(&self) -> Result<Store> {
        self.open_as(&Who::own(), OpenOptions::default())
    }

    pub fn kept(&self, id: SnapshotId) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.id() == id)
    }

    pub fn kept_mut(&mut self, id: SnapshotId) -> Option<&mut Kept> {
        self.kept.iter_mut().find(|kept| kept.id() == id)
    }

    /// Moves a member's directory out of the way.
    pub fn take_away(&mut self, at: usize) {
        if self.seats[at].is_here() {
            fs::rename(&self.seats[at].place, self.seats[at].aside()).unwrap();
            self.seats[at].is = Where::Away;
        }
    }

    /// Brings it back as it went.
    pub fn bring_back(&mut self, at: usize) {
        if self.seats[at].is == Where::Away {
            fs::rename(self.seats[at].aside(), &self.seats[at].place).unwrap();
            self.seats[at].is = Where::Here;
        }
    }
}
