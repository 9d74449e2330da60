//! A store: members that belong together, with the packs, index and snapshots on them.
//!
//! A store is opened through any of its members: its label says where the other members were last
//! seen, and a directory found there counts only if its own label agrees. A member that is not
//! found is absent, not an error; each verb decides whether it can continue without it.
//!
//! Not in this module: threads (pipeline/), decisions of a verb (ops/).

mod agreement;
pub mod checkpoints;
pub mod choice;
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
    Caps, ExtentKind, ExtentName, Member, Places, PlannedStep, PrefetchHint, Replace, SealedCache,
    SharedMember, is_remote,
};
use pinstripe_stripe::{Opener, Sealer, SetReader, Voucher, distance, locked_error};

/// A member number of the store, with the member if it is present.
#[derive(Default)]
pub struct MemberSlot {
    /// The member's row in the table; `None` for a number whose member has left permanently.
    pub row: Option<MemberRow>,
    /// The directory where the member is, or was last seen.
    pub place: PathBuf,
    /// The member, if it is present.
    pub member: Option<SharedMember>,
    /// Why the member is absent.
    pub absence: Option<Error>,
    /// The error of the member's label, if the member was recognized by its other objects.
    pub bad_label: Option<Error>,
}

/// An open store.
pub struct Store {
    /// The settings that all members agree on.
    pub config: StoreConfig,
    /// A slot for every number that a member ever had, by number.
    pub member_slots: Vec<MemberSlot>,
    /// The table of members in the newest label found.
    pub table: MemberTable,
    /// Members that were found at another place than the one in the labels of other members.
    pub moved: Vec<(usize, PathBuf)>,
    /// Members of other halves that were found, and members that were left behind.
    outsiders: Vec<halves::Outsider>,
    /// The version of the store's format.
    pub format: Format,
    keys: Option<Keys>,
    opener: Opener,
    /// Makes and verifies MACs of small objects: in an encrypted store of format version 2 that was
    /// opened with its keys.
    voucher: Option<Voucher>,
    unlocked: Option<keyring::Unlocked>,
    /// The place of the member that the user named when the store was opened.
    named: PathBuf,
    options: OpenOptions,
    kept: Option<Arc<SealedCache>>,
    newcomers: newcomers::Newcomers,
    failed: failed::Failed,
    unannounced: unannounced::Unannounced,
}

/// Whether a member has space for an extent.
fn has_room(caps: Caps) -> bool {
    !caps.is_full && caps.free_bytes.is_none_or(|it| it >= ROOM_BYTES)
}

/// A member with fewer free bytes than this gets no extents as long as enough other members have
/// more.
pub(crate) const ROOM_BYTES: u64 = 64 << 10;

/// The extents of a kind with the members that list each, and the members that could not be listed.
type ListedKind = (BTreeMap<[u8; 16], Vec<usize>>, Vec<usize>);

/// The object name of the keys of a store without encryption.
pub(crate) fn keys_name(config: &StoreConfig) -> ExtentName {
    ExtentName::In(ExtentKind::Keys, config.store.0)
}

/// The advice for a member that is absent or has failed.
pub(crate) fn attach_or_replace(number: usize) -> String {
    format!(
        "is the disk mounted? attach the disk again, then run 'pinstripe repair'; if the disk is \
         lost, run 'pinstripe member replace {number} --to DIR'"
    )
}

/// Returns the geometry of a stripe set over `members` members: the store's parity, and the rest
/// for data.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] when parity leaves no member for data.
pub(crate) fn geometry_over(config: &StoreConfig, members: usize) -> Result<Geometry> {
    let data = members.saturating_sub(config.parity.into()).min(MEMBERS_MAX);
    if data == 0 {
        return Err(Error::new(
            Kind::TooManyLosses,
            format!(
                "too few members are present to write new data with {} parity extents",
                config.parity
            ),
        )
        .expected(format!("at least {} members", config.parity + 1), members)
        .advice(
            "attach the absent members, or add another member with 'pinstripe member add DIR'",
        ));
    }
    Geometry::new(data as u8, config.parity, config.strip_bytes)
}

/// Returns the number of packs that each page of a tree should be in, in a store with this parity.
/// Without parity, one flipped byte would lose the names of all entries below a page.
#[must_use]
pub(crate) fn page_copies(parity: u8) -> usize {
    if parity == 0 { 2 } else { 1 }
}

impl Store {
    /// The secrets.
    ///
    /// # Errors
    /// Fails with [`Kind::Locked`] when the store is encrypted and was not unlocked.
    pub fn keys(&self) -> Result<&Keys> {
        self.keys.as_ref().ok_or_else(locked_error)
    }

    /// Returns the opener of sealed records and snapshots; without keys it opens nothing sealed.
    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Makes a sealer for the records and snapshots of one run; each run needs its own.
    ///
    /// # Errors
    /// Fails with [`Kind::Locked`] when the store is encrypted and was not unlocked, or with the
    /// errors of members on which its keys cannot be put.
    pub fn sealer(&self) -> Result<Sealer> {
        let keys = self.keys()?;
        self.spread_keys()?;
        Sealer::new(self.config.encryption, self.config.padding, keys)
    }

    /// Returns the members by number; `None` for absent ones.
    pub fn members(&self) -> Vec<Option<SharedMember>> {
        self.member_slots.iter().map(|slot| self.answering(slot).cloned()).collect()
    }

    /// Returns the member of a slot, unless it is absent, has failed, or does not answer any more.
    fn answering<'a>(&self, slot: &'a MemberSlot) -> Option<&'a SharedMember> {
        slot.member.as_ref().filter(|member| !self.is_out(member))
    }

    fn is_out(&self, member: &SharedMember) -> bool {
        let patience = self.options.patience.as_ref();
        let is_silent = patience.is_some_and(|it| it.is_silent(member.place()));
        is_silent || self.failed.has(member)
    }

    /// The number of members that may have objects of the store, including absent ones.
    pub(crate) fn all_members(&self) -> usize {
        self.numbers().count()
    }

    /// Their numbers.
    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let is_one = |(_, slot): &(usize, &MemberSlot)| {
            let state = slot.row.as_ref().map(|row| row.state);
            slot.member.is_some() || state.is_some_and(|state| state != MemberState::Left)
        };
        self.member_slots.iter().enumerate().filter(is_one).map(|(number, _)| number)
    }

    /// Whether a member is present and has hardly more space than deleting needs.
    pub fn is_full(&self, number: usize) -> bool {
        let member = self.member_slots.get(number).and_then(|slot| slot.member.as_ref());
        member.is_some_and(|member| member.caps().is_full)
    }

    /// Opens a stripe set with the trailer that most members have, to find out which of its extents
    /// are damaged.
    ///
    /// # Errors
    /// Fails with the errors of [`SetReader::open_agreed`].
    pub(crate) fn open_to_judge(&self, name: ExtentName, set: SetId) -> Result<SetReader> {
        self.open_agreed(&self.members(), name, set)
    }

    /// Opens a stripe set like [`open_to_judge`](Self::open_to_judge), including extents that have
    /// moved to newcomers.
    ///
    /// # Errors
    /// Fails with the errors of [`SetReader::open_agreed`].
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

    /// Returns a name for a new object.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub(crate) fn new_name<const N: usize>(&self) -> Result<[u8; N]> {
        let Some(names) = &self.options.names else { return pinstripe_base::id::random() };
        let mut name = [0; N];
        names.fill(&mut name)?;
        Ok(name)
    }

    /// Returns the means to open members, as this store was opened.
    pub(crate) fn places(&self) -> Places {
        self.options.places()
    }

    /// Uses this cache first for parts of the index and pages of trees, if it belongs to this
    /// store. Verbs that verify the members' own bytes must not use the cache.
    pub fn keep_in(&mut self, kept: Arc<SealedCache>) {
        self.kept = Some(kept).filter(|kept| kept.store() == self.config.store);
    }

    /// Returns the cache of the store on this host.
    pub(crate) fn kept(&self) -> Option<&Arc<SealedCache>> {
        self.kept.as_ref()
    }

    /// The place of the member through which the store was opened.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// The process that opened the store, as recorded in its sessions.
    pub fn process(&self) -> Process {
        self.options.process.unwrap_or_else(pinstripe_member::own_process)
    }

    /// Returns why a member is absent, with advice.
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

    /// Describes why a member is absent, in the words of a verb. If nothing is at its place, the
    /// words suffice; otherwise the cause, such as the error of an endpoint, follows them, with its
    /// own advice.
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

    /// Returns the numbers of the absent members that may have objects of the store. A member that
    /// fails or does not answer any more counts as absent from then on.
    pub fn absent(&self) -> impl Iterator<Item = usize> + '_ {
        let is_absent = move |slot: &MemberSlot| {
            let state = slot.row.as_ref().map(|row| row.state);
            self.answering(slot).is_none() && state.is_some_and(|it| it != MemberState::Left)
        };
        let slots = self.member_slots.iter().enumerate();
        slots.filter(move |(_, slot)| is_absent(slot)).map(|(number, _)| number)
    }

    /// Returns the members that get new extents, by number: they are present, not leaving, and
    /// named by enough labels; members without space are left out if enough others have some. All
    /// others are `None`.
    pub fn takers(&self) -> Vec<Option<SharedMember>> {
        let take = |slot: &MemberSlot| {
            let is_active = slot.row.as_ref()?.state == MemberState::Active;
            self.answering(slot).cloned().filter(|_| is_active)
        };
        let mut takers: Vec<_> = self.member_slots.iter().map(take).collect();
        self.unannounced.leave_out_of(&mut takers, usize::from(self.config.parity));
        takers
    }

    /// Returns the members for a stripe set that is written at once: those that get sets and have
    /// space or, if these are too few, all that get sets.
    pub(crate) fn takers_with_room(&self) -> Vec<SharedMember> {
        let all: Vec<SharedMember> = self.takers().into_iter().flatten().collect();
        let fit: Vec<SharedMember> = all.iter().filter(|it| has_room(it.caps())).cloned().collect();
        if fit.len() > usize::from(self.config.parity) { fit } else { all }
    }

    /// Returns the geometry of a new stripe set, over all members that get sets.
    ///
    /// # Errors
    /// Fails with the errors of [`geometry_over`].
    pub fn geometry(&self) -> Result<Geometry> {
        geometry_over(&self.config, self.takers().iter().flatten().count())
    }

    /// Returns the present members with their numbers, without those that do not answer any more.
    pub fn present(&self) -> impl Iterator<Item = (usize, &SharedMember)> + '_ {
        self.member_slots
            .iter()
            .enumerate()
            .filter_map(|(n, slot)| Some((n, self.answering(slot)?)))
    }

    /// Returns the present members, local ones first, for reads that any of them can answer.
    /// Objects, in contrast, are put on the lowest number first.
    pub(crate) fn nearest(&self) -> Vec<&SharedMember> {
        let mut members: Vec<_> = self.present().map(|(_, member)| member).collect();
        members.sort_by_cached_key(|member| distance(&***member));
        members
    }

    /// Whether a member is remote, so that requests should be made in advance.
    pub(crate) fn is_far(&self) -> bool {
        self.present().any(|(_, member)| is_remote(member.place()))
    }

    /// Whether this process may not delete what others rely on.
    pub(crate) fn is_append_only(&self) -> bool {
        self.is_far() && self.present().any(|(_, member)| member.caps().is_append_only)
    }

    /// Whether only one process may write at a time, since a member's endpoint has no
    /// create-if-absent.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.table.rows.iter().any(|row| row.facts.has_one_writer())
    }

    /// Announces to all members what will be listed: see [`Member::prefetch`]. Only callers for
    /// which the order of these listings does not matter may announce them; an empty list discards
    /// prefetched listings when the order matters again.
    pub(crate) fn prefetch(&self, wanted: &[PrefetchHint]) {
        self.present().for_each(|(_, member)| member.prefetch(wanted));
    }

    /// Announces to all members the steps that are carried out next on each of them: see
    /// [`BatchedMember::plan`](pinstripe_member::BatchedMember::plan).
    pub(crate) fn plan(&self, steps: &[PlannedStep]) {
        let members = self.present().count();
        self.present().for_each(|(_, member)| member.plan(steps, members));
    }

    /// Announces to all members what is listed next on each of them: see
    /// [`BatchedMember::list_next`](pinstripe_member::BatchedMember::list_next).
    pub(crate) fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        self.present().for_each(|(_, member)| member.list_next(wanted, with_content));
    }

    /// Returns the extents of a kind, and the members that have each. A member that cannot be
    /// listed counts as having no extents, as long as parity replaces it; check reports it. Packs
    /// and snapshots that are deleted are not included, even if a member that was absent still has
    /// them.
    ///
    /// # Errors
    /// Fails with a member's own error when more members cannot be listed or are absent than parity
    /// replaces.
    pub fn list(&self, kind: ExtentKind) -> Result<BTreeMap<[u8; 16], Vec<usize>>> {
        Ok(self.list_by_members(kind)?.0)
    }

    /// Returns the extents of a kind with their members, and the members that could not be listed.
    pub(crate) fn list_by_members(&self, kind: ExtentKind) -> Result<ListedKind> {
        let mut extents: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut unlisted = Vec::new();
        let spare = usize::from(self.config.parity).saturating_sub(self.absent().count());
        self.list_next(PrefetchHint::new(kind, 1), false);
        for (number, member) in self.present() {
            match member.names(kind) {
                Ok(names) => {
                    names.into_iter().for_each(|id| extents.entry(id).or_default().push(number));
                }
                Err(_) if unlisted.len() < spare => unlisted.push(number),
                Err(error) => return Err(error),
            }
        }
        if matches!(kind, ExtentKind::Packs | ExtentKind::Snapshots) && !extents.is_empty() {
            deletion::leave_out_dead(self, kind, &mut extents)?;
        }
        Ok((extents, unlisted))
    }

    /// Removes the unsealed extents of killed writers. An extent that cannot be removed now does no
    /// harm.
    pub fn sweep(&self, monitor: &Monitor) {
        for (_, member) in self.present() {
            if let Err(error) = member.sweep() {
                monitor.warning(member.place(), error);
            }
        }
    }

    /// Reads a small object completely from any member with an intact copy; `decode` decides which
    /// copies are intact.
    ///
    /// # Errors
    /// Fails with the last member's error when no copy is intact.
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
/// Fails with the errors of the member, or with [`Kind::Corrupt`] when the object is longer than a
/// small object can be.
pub fn read_small(member: &dyn Member, name: ExtentName) -> Result<Vec<u8>> {
    member.read_whole(&[name], OBJECT_MAX_BYTES).pop().expect("one was asked for")
}

/// Replaces a damaged or outdated small object; the old one stays until the new one is durable.
///
/// # Errors
/// Fails with the errors of the member.
pub(crate) fn replace_small(member: &dyn Member, name: ExtentName, bytes: &[u8]) -> Result<()> {
    let mut writer = member.create(name, Replace::Allowed)?;
    writer.append(bytes)?;
    writer.seal()
}
