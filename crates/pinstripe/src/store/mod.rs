//! A store: members that belong together, the packs, index and snapshots on them.
//!
//! A store is opened through any one member: its label says where the others were last seen, and a
//! directory found there counts only when its own label agrees. A member that is not found is
//! absent, not an error; each verb decides whether it can continue without it.
//!
//! Not in this module: threads (pipeline/), decisions of a verb (ops/).

mod agreement;
pub mod checkpoints;
mod claim;
pub mod deletion;
mod downgrade;
mod failed;
pub mod failure_detector;
pub mod forgotten;
mod halves;
pub(crate) mod heartbeats;
pub mod index;
mod keyring;
mod lasting;
mod locks;
pub(crate) mod newcomers;
pub mod objects;
mod open;
pub mod packs;
pub mod redundancy;
mod search;
pub mod sessions;
pub mod snapshots;
mod table;
pub mod tree;
mod unannounced;
mod votes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use claim::Claim;
pub use halves::OtherHalf;
pub use keyring::UnlockLimits;
pub(crate) use keyring::judge_key_object;
use objects::Quorum;
pub use open::OpenOptions;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::envelope::OBJECT_MAX_BYTES;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Format, MemberRow, MemberState, MemberTable, StoreConfig};
use pinstripe_member::session::Process;
use pinstripe_member::stripe_set::{Geometry, MEMBERS_MAX};
use pinstripe_member::{
    Caps, ExtentName, Glance, Member, Places, Replace, Room, SealedCache, SharedMember, is_remote,
};
use pinstripe_stripe::{Opener, Sealer, SetReader, Voucher, distance, locked_error};

/// One member's slot in the store: taken or absent.
#[derive(Default)]
pub struct MemberSlot {
    /// The row in the table; `None` for a number whose member has left for good.
    pub row: Option<MemberRow>,
    /// The directory where it is, or was last seen.
    pub place: PathBuf,
    /// The member, if it is present.
    pub member: Option<SharedMember>,
    /// Why it is absent.
    pub absence: Option<Error>,
    /// The error of its label, if the member was recognised by its other objects.
    pub bad_label: Option<Error>,
}

/// An open store.
pub struct Store {
    /// The settings that all members agree on.
    pub config: StoreConfig,
    /// One slot for every number that a member ever had, by number.
    pub member_slots: Vec<MemberSlot>,
    /// The members as the newest label found has them.
    pub table: MemberTable,
    /// Members that were found in a place other than the one in their neighbours' labels.
    pub moved: Vec<(usize, PathBuf)>,
    /// Members of other halves that were met, and members left behind.
    outsiders: Vec<halves::Outsider>,
    /// The version of its format.
    pub format: Format,
    keys: Option<Keys>,
    opener: Opener,
    /// Vouches for small objects: in a store that seals, of format version 2, opened with its keys.
    voucher: Option<Voucher>,
    unlocked: Option<keyring::Unlocked>,
    /// The place of the member that was named when the store was opened.
    named: PathBuf,
    options: OpenOptions,
    kept: Option<Arc<SealedCache>>,
    newcomers: newcomers::Newcomers,
    failed: failed::Failed,
    unannounced: unannounced::Unannounced,
}

/// Whether a member has room for an extent.
fn has_room(caps: Caps) -> bool {
    !caps.is_full && caps.free_bytes.is_none_or(|it| it >= ROOM_BYTES)
}

/// A member with less free than this takes no extents while enough others have more.
pub(crate) const ROOM_BYTES: u64 = 64 << 10;

/// The extents of a room with the members that list each, and the members that could not be listed.
type ListedRoom = (BTreeMap<[u8; 16], Vec<usize>>, Vec<usize>);

/// The name of the keys of a store that is not encrypted.
pub(crate) fn keys_name(config: &StoreConfig) -> ExtentName {
    ExtentName::In(Room::Keys, config.store.0)
}

/// The advice about a member that is absent or has failed.
pub(crate) fn attach_or_replace(number: usize) -> String {
    format!(
        "is the disk mounted? attach the disk again, then run 'pinstripe repair'; if the disk is \
         lost, run 'pinstripe member replace {number} --to DIR'"
    )
}

/// Returns the geometry of a stripe set over `members` members: the store's parity, the rest data.
///
/// # Errors
/// [`Kind::TooManyLosses`] when parity leaves no member for data.
pub(crate) fn geometry_over(config: &StoreConfig, members: usize) -> Result<Geometry> {
    let data = members.saturating_sub(config.parity.into()).min(MEMBERS_MAX);
    if data == 0 {
        return Err(Error::new(
            Kind::TooManyLosses,
            format!("too few members are present for new data with {} for parity", config.parity),
        )
        .expected(format!("at least {}", config.parity + 1), members)
        .advice(
            "attach the absent members, or add another member with 'pinstripe member add DIR'",
        ));
    }
    Geometry::new(data as u8, config.parity, config.strip_bytes)
}

/// Returns the number of packs that each page of a tree is in, in a store with this parity. Without
/// parity, one flipped byte would lose the names of all entries below a page.
#[must_use]
pub(crate) fn page_copies(parity: u8) -> usize {
    if parity == 0 { 2 } else { 1 }
}

impl Store {
    /// The secrets.
    ///
    /// # Errors
    /// [`Kind::Locked`] when the store is encrypted and was not unlocked.
    pub fn keys(&self) -> Result<&Keys> {
        self.keys.as_ref().ok_or_else(locked_error)
    }

    /// The opener of sealed records and snapshots; without keys it opens none.
    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// The sealer of the records and snapshots of one run: make one per run.
    ///
    /// # Errors
    /// [`Kind::Locked`] when the store is encrypted and was not unlocked; those of members that
    /// cannot be given its keys.
    pub fn sealer(&self) -> Result<Sealer> {
        let keys = self.keys()?;
        self.spread_keys()?;
        Sealer::new(self.config.encryption, self.config.padding, keys)
    }

    /// The members by number, `None` where absent.
    pub fn members(&self) -> Vec<Option<SharedMember>> {
        self.member_slots.iter().map(|slot| self.answering(slot).cloned()).collect()
    }

    /// Returns the member of a slot, unless it is absent, has failed, or no longer answers.
    fn answering<'a>(&self, slot: &'a MemberSlot) -> Option<&'a SharedMember> {
        slot.member.as_ref().filter(|member| !self.is_out(member))
    }

    fn is_out(&self, member: &SharedMember) -> bool {
        let patience = self.options.patience.as_ref();
        let is_silent = patience.is_some_and(|it| it.is_silent(member.place()));
        is_silent || self.failed.has(member)
    }

    /// The number of members that may have something of the store, absent ones too.
    pub(crate) fn all_members(&self) -> usize {
        let is_one = |slot: &&MemberSlot| {
            let state = slot.row.as_ref().map(|row| row.state);
            slot.member.is_some() || state.is_some_and(|state| state != MemberState::Left)
        };
        self.member_slots.iter().filter(is_one).count()
    }

    /// Whether a member is present and has hardly more room than deleting takes.
    pub fn is_full(&self, number: usize) -> bool {
        let member = self.member_slots.get(number).and_then(|slot| slot.member.as_ref());
        member.is_some_and(|member| member.caps().is_full)
    }

    /// Opens a stripe set for a judgement on its extents, by the trailer that most members have.
    ///
    /// # Errors
    /// The errors of [`SetReader::open_agreed`].
    pub(crate) fn open_to_judge(&self, name: ExtentName, set: SetId) -> Result<SetReader> {
        self.open_agreed(&self.members(), name, set)
    }

    /// The same of what has moved to newcomers, too.
    ///
    /// # Errors
    /// The errors of [`SetReader::open_agreed`].
    pub(crate) fn open_to_check(&self, name: ExtentName, set: SetId) -> Result<SetReader> {
        self.open_agreed(&self.members_to_read(), name, set)
    }

    fn open_agreed(
        &self,
        members: &[Option<SharedMember>],
        name: ExtentName,
        set: SetId,
    ) -> Result<SetReader> {
        let reader = SetReader::open_agreed(members, name, self.config.store, set)?;
        Ok(reader.with_everybody_there(self.absent().next().is_none()))
    }

    /// A name for something new.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub(crate) fn new_name<const N: usize>(&self) -> Result<[u8; N]> {
        let Some(names) = &self.options.names else { return pinstripe_base::id::random() };
        let mut name = [0; N];
        names.fill(&mut name)?;
        Ok(name)
    }

    /// The way to members, as this store was opened.
    pub(crate) fn places(&self) -> Places {
        self.options.places()
    }

    /// Uses this cache first for parts of the index and pages of trees, if it is of this store. Not
    /// for verbs that judge the members' own bytes.
    pub fn keep_in(&mut self, kept: Arc<SealedCache>) {
        self.kept = Some(kept).filter(|kept| kept.store() == self.config.store);
    }

    /// Returns the cache of the store on this host.
    pub(crate) fn kept(&self) -> Option<&Arc<SealedCache>> {
        self.kept.as_ref()
    }

    /// The member that it was opened through.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// The process that opened it, as recorded in its sessions.
    pub fn process(&self) -> Process {
        self.options.process.unwrap_or_else(pinstripe_member::own_process)
    }

    /// Why a member is absent, and what to do about it.
    pub fn absence(&self, number: usize) -> Error {
        let slot = self.member_slots.get(number);
        let why = slot.and_then(|slot| slot.absence.as_ref()).map(Error::duplicate);
        let member = slot.and_then(|slot| slot.member.as_ref());
        let failure = || member.and_then(|member| self.failed.why(member));
        let error = why.or_else(failure).unwrap_or_else(|| match member {
            Some(_) => Error::new(Kind::Unanswered, "the member does not answer"),
            None => Error::new(Kind::NotFound, format!("member {number} is absent")),
        });
        error.advice(attach_or_replace(number))
    }

    /// Describes why a member is absent, in words of a verb. If nothing is in its place, the words
    /// suffice; otherwise the cause, such as the refusal of an endpoint, follows them, and its
    /// advice is used.
    pub fn absence_as(&self, number: usize, words: &str) -> Error {
        let slot = self.member_slots.get(number);
        // A directory that does not answer was reported when it stopped answering.
        let is_telling = |why: &&Error| {
            !matches!(why.kind(), Kind::NotFound | Kind::Unanswered)
                || slot.is_some_and(|slot| is_remote(&slot.place))
        };
        let why = slot.and_then(|slot| slot.absence.as_ref()).filter(is_telling);
        let Some(why) = why else { return Error::new(Kind::NotFound, words) };
        let error = Error::new(why.kind(), format!("{words}: {}", why.what()));
        match why.advice_text() {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }

    /// Returns the members that were present when the store was opened, and have failed or not
    /// answered since.
    pub fn silent(&self) -> impl Iterator<Item = usize> + '_ {
        let is_out = |slot: &MemberSlot| slot.member.as_ref().is_some_and(|it| self.is_out(it));
        let slots = self.member_slots.iter().enumerate();
        slots.filter(move |(_, slot)| is_out(slot)).map(|(number, _)| number)
    }

    /// Returns the numbers of the absent members that may have objects of the store. One that fails
    /// or no longer answers is absent from then on.
    pub fn absent(&self) -> impl Iterator<Item = usize> + '_ {
        let is_absent = move |slot: &MemberSlot| {
            let state = slot.row.as_ref().map(|row| row.state);
            self.answering(slot).is_none() && state.is_some_and(|it| it != MemberState::Left)
        };
        let slots = self.member_slots.iter().enumerate();
        slots.filter(move |(_, slot)| is_absent(slot)).map(|(number, _)| number)
    }

    /// Returns the members that take new extents, by number: present, not leaving, and named by
    /// enough labels, as long as enough of those have room. All others are `None`.
    pub fn takers(&self) -> Vec<Option<SharedMember>> {
        let take = |slot: &MemberSlot| {
            let is_active = slot.row.as_ref()?.state == MemberState::Active;
            self.answering(slot).cloned().filter(|_| is_active)
        };
        let mut takers: Vec<_> = self.member_slots.iter().map(take).collect();
        self.unannounced.leave_out_of(&mut takers, usize::from(self.config.parity));
        takers
    }

    /// Members for a stripe set that is written in one go: those that take one and have room; if they
    /// are too few, all that take one.
    pub(crate) fn takers_with_room(&self) -> Vec<SharedMember> {
        let all: Vec<SharedMember> = self.takers().into_iter().flatten().collect();
        let fit: Vec<SharedMember> = all.iter().filter(|it| has_room(it.caps())).cloned().collect();
        if fit.len() > usize::from(self.config.parity) { fit } else { all }
    }

    /// The geometry of a new stripe set: over all members that take one.
    ///
    /// # Errors
    /// The errors of [`geometry_over`].
    pub fn geometry(&self) -> Result<Geometry> {
        geometry_over(&self.config, self.takers().iter().flatten().count())
    }

    /// Returns the present members with their numbers, without those that no longer answer.
    pub fn present(&self) -> impl Iterator<Item = (usize, &SharedMember)> + '_ {
        self.member_slots
            .iter()
            .enumerate()
            .filter_map(|(n, slot)| Some((n, self.answering(slot)?)))
    }

    /// Returns the present members, local ones first: for reads that any of them can answer.
    /// Objects are put on the lowest number first.
    pub(crate) fn nearest(&self) -> Vec<&SharedMember> {
        let mut members: Vec<_> = self.present().map(|(_, member)| member).collect();
        members.sort_by_cached_key(|member| distance(&***member));
        members
    }

    /// Whether a member is remote, so that requests should be made ahead of time.
    pub(crate) fn is_far(&self) -> bool {
        self.present().any(|(_, member)| is_remote(member.place()))
    }

    /// Whether one at a time may write, since a member's endpoint has no create-if-absent.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.table.rows.iter().any(|row| row.facts.has_one_writer())
    }

    /// Announces what will be listed, to all members: see [`Member::foresee`]. To be called by who
    /// knows that the order of these listings does not matter, and drops it with an empty list
    /// where it does.
    pub(crate) fn foresee(&self, wanted: &[Glance]) {
        self.present().for_each(|(_, member)| member.foresee(wanted));
    }

    /// Returns the extents of a room, and which members have each. A member that cannot be listed
    /// counts as one without any, as long as parity replaces it; check reports it. Packs and
    /// snapshots that are deleted are not included, even if a member that was absent still has
    /// them.
    ///
    /// # Errors
    /// A member's own, when more cannot be listed or are absent than parity replaces.
    pub fn list(&self, room: Room) -> Result<BTreeMap<[u8; 16], Vec<usize>>> {
        Ok(self.list_by_members(room)?.0)
    }

    /// The same, and the members that could not be listed.
    pub(crate) fn list_by_members(&self, room: Room) -> Result<ListedRoom> {
        let mut extents: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut unlisted = Vec::new();
        let spare = usize::from(self.config.parity).saturating_sub(self.absent().count());
        for (number, member) in self.present() {
            match member.names(room) {
                Ok(names) => {
                    names.into_iter().for_each(|id| extents.entry(id).or_default().push(number));
                }
                Err(_) if unlisted.len() < spare => unlisted.push(number),
                Err(error) => return Err(error),
            }
        }
        if matches!(room, Room::Packs | Room::Snapshots) && !extents.is_empty() {
            deletion::leave_out_dead(self, room, &mut extents)?;
        }
        Ok((extents, unlisted))
    }

    /// Removes extents that killed writers left unsealed. One that cannot be removed now does no
    /// harm.
    pub fn sweep(&self, monitor: &Monitor) {
        for (_, member) in self.present() {
            if let Err(error) = member.sweep() {
                monitor.warning(member.place(), error);
            }
        }
    }

    /// Reads a small object whole from whichever member has it sound; `decode` judges.
    ///
    /// # Errors
    /// The last member's error when none has it.
    pub(crate) fn read_object<T>(
        &self,
        name: ExtentName,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let mut last = Error::new(Kind::NotFound, format!("no member has {name}"));
        for member in self.nearest() {
            match read_small(&**member, name).and_then(|bytes| {
                decode(&bytes).map_err(|error| error.at(member.place().join(name.path())))
            }) {
                Ok(value) => return Ok(value),
                Err(error) if error.kind() == Kind::KeysChanged => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Reads a small object from one member.
///
/// # Errors
/// The errors of the member; [`Kind::Corrupt`] when it is longer than a small object can be.
pub fn read_small(member: &dyn Member, name: ExtentName) -> Result<Vec<u8>> {
    member.read_whole(&[name], OBJECT_MAX_BYTES).pop().expect("one was asked for")
}

/// Puts a small object instead of a damaged or outdated one; the old one stays until the new one is
/// durable.
///
/// # Errors
/// The errors of the member.
pub(crate) fn replace_small(member: &dyn Member, name: ExtentName, bytes: &[u8]) -> Result<()> {
    let mut writer = member.create(name, Replace::Allowed)?;
    writer.append(bytes)?;
    writer.seal()
}
