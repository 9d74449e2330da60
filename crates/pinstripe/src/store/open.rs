//! Finds a store's members, starting from any one of them.
//!
//! A place that does not answer counts as a place without a member: with [`Deadlines`] every access
//! to a place has a deadline.
//!
//! A directory is recognized as a member by its own label or, if it lost only its label, by the
//! headers of its extents.
//!
//! The table of members that counts is determined twice: before the keys are known, by what the
//! members agree on (`agreement`), and afterwards by the newest label that a holder of the keys
//! made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failed::Failed;
use super::newcomers::Newcomers;
use super::search::{OPENING, Search, candidates, forgery, label_of, read_member_at};
use super::{MemberSlot, Store, downgrade, judge_key_object, keys_name, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{Names, StoreId};
use pinstripe_io::fault::Plan;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Label, MemberRow, MemberTable, StoreConfig};
use pinstripe_member::session::Process;
use pinstripe_member::stripe_set::{HEADER_BYTES, Header};
use pinstripe_member::{
    Deadlines, ExtentKind, ExtentName, FaultMember, Member, Places, RemoteMembers, SharedMember,
    Steps, WatchedMember, is_remote, of_bytes, real,
};
use pinstripe_stripe::Opener;

/// The layers between a store and its disks: none, unless a test or an experiment asks for them.
#[derive(Default, Clone)]
pub struct OpenOptions {
    /// Faults to inject into the members that the plan names.
    pub faults: Plan,
    /// Every change of the disk by a directory member passes these steps.
    pub steps: Option<Arc<dyn Steps>>,
    /// Opens members that are not local directories.
    pub remote: Option<Arc<dyn RemoteMembers>>,
    /// The process that opens the store; `None` means this process.
    pub process: Option<Process>,
    /// Open a store with the encryption that its label gives, even if other objects contradict it.
    pub accept_plain: bool,
    /// The source of names for new sets, sessions and snapshots; `None` means the system's
    /// randomness. These names are never used as secrets.
    pub names: Option<Arc<dyn Names>>,
    /// Former places of members, where another half of the store may be.
    pub also: Vec<PathBuf>,
    /// Open the half of a divided store to which the named member belongs, by the table in its own
    /// label, regardless of other members.
    pub half: bool,
    /// How long to wait for members; if `None`, without a limit.
    pub patience: Option<Deadlines>,
    /// Numbers of members that are treated as absent. The places of these members are not accessed.
    pub without: Vec<usize>,
}

impl OpenOptions {
    /// Returns the means to open members.
    pub(super) fn places(&self) -> Places {
        Places { remote: self.remote.clone(), steps: self.steps.clone() }
    }

    /// Returns the place at which this process reaches the member of a row, if the store is opened
    /// at `named`.
    pub(super) fn reached(&self, named: &Path, store: StoreId, row: &MemberRow) -> PathBuf {
        let recorded = of_bytes(&row.place);
        let served = self
            .remote
            .as_ref()
            .and_then(|remote| remote.served_place(named, store, &recorded, row.number));
        served.unwrap_or(recorded)
    }

    /// Opens the member at a place that may not answer.
    pub(super) fn open(&self, place: &Path) -> Result<SharedMember> {
        let places = self.places();
        self.ask(place, move |place| places.open(place))
    }

    /// Opens the member at a place that may not answer, and reads its label.
    pub(super) fn read_member(&self, place: &Path) -> Result<(SharedMember, Label)> {
        let places = self.places();
        self.ask(place, move |place| read_member_at(&places, place))
    }

    /// Whether the labels at both places can be read now and are different objects.
    pub(super) fn are_two_labels(&self, one: &Path, other: &Path) -> bool {
        let (places, other) = (self.places(), other.to_path_buf());
        self.ask(one, move |one| places.are_two_labels(one, &other)).unwrap_or(false)
    }

    /// Prefetches from all remote members of a table what opening will request from one after the
    /// other.
    pub(super) fn look_ahead(&self, store: StoreId, table: &MemberTable, but: &Path) {
        let places = table.rows.iter().filter(|row| !self.without.contains(&row.number.into()));
        let places = places.map(|row| self.reached(but, store, row));
        for place in places.filter(|place| is_remote(place) && place != but) {
            self.look_ahead_at(&place);
        }
    }

    /// Prefetches from one place what opening will request from it. If the place cannot be opened,
    /// the error is reported later, when it is its turn.
    pub(super) fn look_ahead_at(&self, place: &Path) {
        if let Ok(member) = self.open(place) {
            member.prefetch(&OPENING);
        }
    }

    /// Wraps a member with the requested layers.
    pub(super) fn share(&self, member: SharedMember, number: usize) -> SharedMember {
        let faults = self.faults.for_member(number as u32);
        if faults.faults.is_empty() {
            return self.watch(member);
        }
        self.watch(FaultMember::new(member, faults))
    }

    pub(super) fn watch(&self, member: impl Member + 'static) -> SharedMember {
        match &self.patience {
            Some(patience) => Arc::new(WatchedMember::new(member, patience.clone())),
            None => Arc::new(member),
        }
    }

    /// Runs a query about a place that may not answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        place: &Path,
        work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match &self.patience {
            None => work(place),
            Some(patience) => {
                let own = place.to_path_buf();
                patience.ask(place, move || work(&own))
            }
        }
    }
}

impl MemberSlot {
    /// Puts a member in its slot.
    pub(super) fn take(
        &mut self,
        options: &OpenOptions,
        place: PathBuf,
        member: SharedMember,
        number: usize,
    ) {
        self.place = place;
        let member = options.share(member, number);
        // One request through all layers: a member that does not answer now is absent. A remote one
        // would cost a round trip, and has a deadline of its own.
        let is_asked = options.patience.is_some() && !is_remote(&self.place);
        let asked = is_asked.then(|| member.len(ExtentName::Label));
        match asked {
            Some(Err(error)) if error.kind() == Kind::Unanswered => self.absence = Some(error),
            _ => {
                self.member = Some(member);
                self.absence = None;
            }
        }
    }
}

impl Store {
    /// Opens the store that has `any` as a member. `faults` are injected into the members that they
    /// name.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when `any` is not a member, with [`Kind::TooManyLosses`] when
    /// more members are absent than parity replaces, with [`Kind::WrongMember`] when other members
    /// are at their places, with [`Kind::Unsupported`] when a newer version wrote it, or with
    /// [`Kind::NotEncrypted`] when it has both sealed keys and keys in the clear.
    pub fn open(any: &Path, faults: &Plan) -> Result<Store> {
        Self::open_with(any, OpenOptions { faults: faults.clone(), ..OpenOptions::default() })
    }

    /// Like [`open`](Self::open), with options about what is between the store and its disks.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open).
    pub fn open_with(any: &Path, options: OpenOptions) -> Result<Store> {
        let any = options.ask(any, |any| {
            real(any).map_err(|error| {
                Error::of_named("there is no store here", any, error).advice(
                    "is the disk of the store mounted? give the directory of a member of the store",
                )
            })
        })?;
        if is_remote(&any) {
            options.look_ahead_at(&any);
        }
        let search = Search::run(&any, None, &options)?;
        let (member_slots, moved) = search.member_slots();
        let outsiders = search.outsiders();
        let unannounced = search.unannounced(false);
        if !options.accept_plain {
            downgrade::refuse(&search.config, &search.looked, &options)?;
        }
        let Search { config, format, table, own_old, .. } = search;
        let (keys, opener) = match config.encryption {
            Encryption::None => (Some(read_keys(&member_slots, &config)?), Opener::clear()),
            _ => (None, Opener::locked()),
        };
        let mut store = Store {
            config,
            member_slots,
            table,
            moved,
            outsiders,
            format,
            keys,
            opener,
            voucher: None,
            unlocked: None,
            named: any.clone(),
            options,
            kept: None,
            newcomers: Newcomers::default(),
            failed: Failed::default(),
            unannounced,
        };
        store.refuse_unknown()?;
        store.assign_unlabelled(|place| candidates(place, &own_old, &any));
        store.report_facts();
        store.require_quorum()?;
        Ok(store)
    }

    /// Changes the members to those of the newest label that a holder of the keys made. The caller
    /// calls this function when the keys are known. Returns the errors of labels that no holder of
    /// the keys made.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when no label found was made with the keys, or with the errors
    /// of [`open`](Self::open).
    pub(super) fn settle_members(&mut self) -> Result<Vec<Error>> {
        let Some(voucher) = &self.voucher else { return Ok(Vec::new()) };
        let search = |from: &Path| Search::run(from, Some(voucher), &self.options);
        let search = match search(&self.named) {
            // The member that was named no longer answers.
            Err(error) if error.kind() == Kind::Unanswered => {
                let mut places = self.present().map(|(_, member)| member.place());
                search(places.find(|place| *place != self.named).ok_or(error)?)?
            }
            found => found?,
        };
        let is_newer = |error: &Error| error.kind() == Kind::KeysChanged;
        if search.looked.iter().any(|(_, found)| found.as_ref().is_err_and(is_newer)) {
            self.refuse_older_keys()?;
        }
        let is_same = search.table == self.table && search.config == self.config;
        let forged = search.looked.iter().filter_map(|(_, found)| forgery(found));
        let forged: Vec<Error> = forged.map(Error::duplicate).collect();
        self.outsiders = search.outsiders();
        self.unannounced = search.unannounced(true);
        if !is_same || !forged.is_empty() {
            let (member_slots, moved) = search.member_slots();
            let Search { config, table, own_old, any, .. } = search;
            (self.member_slots, self.moved, self.config, self.table) =
                (member_slots, moved, config, table);
            self.assign_unlabelled(|place| candidates(place, &own_old, &any));
            self.report_facts();
        }
        self.require_quorum().map(|()| forged)
    }

    /// Finds members with a missing or damaged label: their directory is at its place, and its
    /// other objects identify it. Repair rewrites the label.
    fn assign_unlabelled(&mut self, candidates: impl Fn(&Path) -> Vec<PathBuf>) {
        for number in 0..self.member_slots.len() {
            let no_label = |error: &Error| matches!(error.kind(), Kind::Corrupt | Kind::NotFound);
            if self.options.without.contains(&number)
                || !self.member_slots[number].absence.as_ref().is_some_and(no_label)
            {
                continue;
            }
            for candidate in candidates(&self.member_slots[number].place) {
                let Ok(member) = self.options.open(&candidate) else { continue };
                if self.is_ours(&*self.options.watch(Arc::clone(&member))) {
                    let slot = &mut self.member_slots[number];
                    slot.bad_label = slot.absence.take();
                    slot.take(&self.options, candidate, member, number);
                    break;
                }
            }
        }
    }

    /// Whether a member without an intact label belongs to this store: the first intact header of
    /// its extents says so or, if there is none, the member has the store's keys. Which member it
    /// is follows from its place, and matters little, because each extent says which slot it is.
    fn is_ours(&self, member: &dyn Member) -> bool {
        let voucher = self.voucher.as_ref();
        if !matches!(label_of(member, voucher), Err(error) if error.kind() != Kind::Unsupported) {
            return false;
        }
        let mut headers = [ExtentKind::Packs, ExtentKind::Index].into_iter().flat_map(|kind| {
            let extents = member.list(kind).unwrap_or_default();
            extents.into_iter().filter_map(move |(id, _)| {
                let mut block = [0; HEADER_BYTES];
                member.read_at(ExtentName::In(kind, id), 0, &mut block).ok()?;
                Header::decode(&block).ok()
            })
        });
        match headers.next() {
            Some(header) => header.store == self.config.store,
            None => {
                let ids = member.list(ExtentKind::Keys).unwrap_or_default();
                ids.into_iter().any(|(id, _)| {
                    read_small(member, ExtentName::In(ExtentKind::Keys, id))
                        .and_then(|bytes| judge_key_object(self, id, &bytes))
                        .is_ok()
                })
            }
        }
    }

    /// Refuses to leave out a number that no member has.
    fn refuse_unknown(&self) -> Result<()> {
        let is_one = |number: &usize| self.table.row(*number).is_some();
        match self.options.without.iter().find(|number| !is_one(number)) {
            None => Ok(()),
            Some(number) => Err(Error::new(
                Kind::Usage,
                format!("--without-member: the store has no member {number}"),
            )
            .advice("'pinstripe members' lists the members")),
        }
    }

    fn require_quorum(&self) -> Result<()> {
        let absent: Vec<_> =
            self.absent().map(|number| (number, &self.member_slots[number])).collect();
        if absent.len() <= usize::from(self.config.parity) {
            return Ok(());
        }
        let describe = |(number, slot): &(usize, &MemberSlot)| {
            let why = slot.absence.as_ref().map_or("absent", Error::what);
            format!("{number} ({}: {why})", slot.place.display())
        };
        let places: Vec<_> = absent.iter().map(describe).collect();
        let is_wrong = |(_, slot): &(usize, &MemberSlot)| {
            slot.absence.as_ref().is_some_and(|error| error.kind() == Kind::WrongMember)
        };
        let (kind, advice) = if absent.iter().any(is_wrong) {
            (Kind::WrongMember, "attach the members of this store at their former locations")
        } else {
            (
                Kind::TooManyLosses,
                "attach the members at their former locations, or give with --store a member that \
                 knows the new locations",
            )
        };
        Err(Error::new(
            kind,
            format!("too many members are absent: member {}", places.join(", member ")),
        )
        .expected(format!("at most {} absent members", self.config.parity), absent.len())
        .advice(advice))
    }
}

/// Returns the keys in the clear that most members have: a single member with forged keys has no
/// effect.
fn read_keys(member_slots: &[MemberSlot], config: &StoreConfig) -> Result<Keys> {
    let (mut said, mut last): (Vec<(Keys, usize)>, _) = (Vec::new(), None);
    for member in member_slots.iter().filter_map(|slot| slot.member.as_deref()) {
        let name = keys_name(config);
        let place = member.place().join(name.path());
        match read_small(member, name)
            .and_then(|bytes| Keys::decode(&bytes).map_err(|e| e.at(&place)))
        {
            Ok(keys) if keys.store == config.store => {
                match said.iter_mut().find(|(known, _)| *known == keys) {
                    Some((_, votes)) => *votes += 1,
                    None => said.push((keys, 1)),
                }
            }
            Ok(_) => last = Some(Error::corrupt("these keys belong to another store", place)),
            Err(error) => last = Some(error),
        }
    }
    said.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
    let most = said.first().map_or(0, |(_, votes)| *votes);
    if said.iter().filter(|(_, votes)| *votes == most).count() > 1 {
        return Err(Error::new(Kind::Corrupt, "the members have different keys of this store")
            .at(keys_name(config).path())
            .advice(
                "exclude the untrusted members with --without-member, and open the store again",
            ));
    }
    let keys = said.into_iter().next().map(|(keys, _)| keys);
    keys.ok_or_else(|| last.expect("a store that opens has at least one member"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::init;

    #[test]
    fn a_label_of_another_geometry_takes_no_slot() {
        let around = tempfile::tempdir().unwrap();
        let places = ["m0", "m1"].map(|name| around.path().join(name));
        let config = init::run(&init::InitOptions::plain(places.to_vec(), 1)).unwrap();
        let mut label = crate::store::search::read_member(&places[1]).unwrap().1;
        label.config = StoreConfig { parity: 0, ..config };
        std::fs::write(places[1].join(ExtentName::Label.path()), label.encode()).unwrap();
        let store = Store::open(&places[0], &Plan::default()).unwrap();
        assert_eq!(store.absent().collect::<Vec<_>>(), [1]);
    }
}
