//! Small objects with a copy on every member: these are put, found and removed together,
//! concurrently with other processes.
//!
//! An object counts when enough members have it that any two processes must have used one of these
//! members in common. Members are used in the order of their numbers, so that of two processes that
//! put different objects under one name, the first member decides and the loser gets an error.
//!
//! No single member is trusted. In an encrypted store of format version 2 that was opened with its
//! keys, each object carries a MAC, and one intact copy is enough. Otherwise [`Belief`] gives the
//! number of members that must have the same bytes before a reader acts on them; objects on fewer
//! members are returned separately. An unreadable object on too few members for its writer to have
//! continued is a *stray*; on more members it is a damaged object.

use std::collections::{BTreeMap, BTreeSet};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::envelope::Object;
use pinstripe_member::{ExtentKind, ExtentName, PlannedStep, PrefetchHint, envelope};

use super::votes::{Votes, votes_needed};
use super::{Store, read_small};

/// The number of objects requested from a member at once, and the largest length of each in bytes:
/// longer objects are read one at a time. The product of these limits bounds the memory that a
/// malicious member can make a reader use.
const AHEAD_OBJECTS: usize = 256;
const AHEAD_BYTES: u64 = 64 << 10;

/// The number of members that must take part in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quorum {
    /// As many as a backup needs: all members except as many as parity replaces.
    Backup,
    /// Enough members that every writer has used one of them: the same as for a backup if these are
    /// more than half of the members, otherwise all.
    Deletion,
}

/// The number of members that must have the same bytes before a reader acts on an object without a
/// MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// One member: for objects that only make the reader more cautious.
    One,
    /// As many members as any writer must have reached: for objects that delete, hide, or answer
    /// for others.
    Agreed,
}

/// The objects of a kind, by how far they count.
pub(crate) struct KindObjects<T> {
    /// Intact objects by name, on as many members as required.
    pub sound: BTreeMap<[u8; 16], T>,
    /// Intact objects on fewer members: their put is in progress or was interrupted, or their
    /// members forged them.
    pub few: BTreeMap<[u8; 16], T>,
    /// Names without an intact copy, after which the writer may have continued, with the error.
    pub unsound: Vec<(ExtentName, Error)>,
    /// Names without an intact copy, on too few members for the writer to have continued, with the
    /// error.
    pub strays: Vec<(ExtentName, Error)>,
    /// Those strays that at least as many members have as votes are needed, but no more than parity
    /// replaces: in a mirror, on one member. A reader that such strays only make more cautious may
    /// treat them as damaged objects.
    pub doubtful: Vec<ExtentName>,
    /// Names that were listed and that no member had when they were read.
    pub vanished: BTreeSet<[u8; 16]>,
}

impl Store {
    /// Returns the least number of members that must take part.
    pub(crate) fn least_members(&self, quorum: Quorum) -> usize {
        let all = self.all_members();
        let parity = usize::from(self.config.parity);
        match quorum {
            Quorum::Deletion if all <= 2 * parity => all,
            _ => all.saturating_sub(parity),
        }
    }

    /// The number of members that must have the same bytes if no MAC can be verified. Members that no
    /// other label lists yet do not count: no writer has put anything there.
    pub fn votes(&self) -> usize {
        let is_announced = |number: &usize| !self.unannounced.has(*number);
        let members = self.numbers().filter(is_announced).count();
        let absent = self.absent().filter(is_announced).count();
        votes_needed(members, self.config.parity.into(), absent)
    }

    /// The number of members that must have an object without an intact copy before it counts as
    /// damaged: more than parity replaces, so that members that may be lost cannot report a loss.
    pub(crate) fn votes_on_damage(&self) -> usize {
        let more_than_may_be_lost = usize::from(self.config.parity) + 1;
        self.votes().max(more_than_may_be_lost).min(self.all_members())
    }

    /// Whether small objects carry MACs that this process can verify.
    pub fn has_macs(&self) -> bool {
        self.voucher.is_some()
    }

    /// Returns an object in the form in which it is put under a name: with a MAC, if this store has
    /// them.
    pub fn vouch(&self, name: ExtentName, framed: Vec<u8>) -> Vec<u8> {
        match &self.voucher {
            Some(voucher) => voucher.vouch(name, &framed),
            None => framed,
        }
    }

    /// Verifies that a holder of the store's keys put this object, if that can be verified: in an
    /// encrypted store of format version 2 that was opened with its keys.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when no holder of the keys put it, or with
    /// [`Kind::KeysChanged`] when it was made with the keys of a rotation since this process opened
    /// the store.
    pub fn verify(&self, name: ExtentName, framed: &[u8]) -> Result<()> {
        let Some(voucher) = &self.voucher else { return Ok(()) };
        voucher.verify(name, framed).map_err(|error| self.newer_or_forged(error))
    }

    /// Puts an object on every present member, with a MAC if the store has them. An existing object
    /// with the same content is accepted. A member that has something else under this name that no
    /// process can have put counts as one on which the put failed.
    ///
    /// # Errors
    /// Fails with [`Kind::Exists`] when another object has the name (if the first member has it,
    /// the object is put on no member), with [`Kind::KeysChanged`] when a process with newer keys
    /// put it, or with a member's own error when too few members accepted the object.
    pub fn put_all(&self, name: ExtentName, framed: &[u8], quorum: Quorum) -> Result<()> {
        self.put_all_then(name, framed, quorum, None).map(drop)
    }

    /// Puts an object as [`put_all`](Self::put_all) does, and returns the number of members that have
    /// it. The caller then prefetches the listings of `then`, or some of them.
    ///
    /// # Errors
    /// Fails with the errors of [`put_all`](Self::put_all).
    pub(crate) fn put_all_then(
        &self,
        name: ExtentName,
        framed: &[u8],
        quorum: Quorum,
        then: Option<&[PrefetchHint]>,
    ) -> Result<usize> {
        // Steps of deletion decide: none is put with keys that are not the newest.
        if matches!(name, ExtentName::In(ExtentKind::Gc, _)) {
            self.confirm_keys()?;
        }
        let bytes = self.vouch(name, framed.to_vec());
        let mut steps = vec![PlannedStep::Put(name, bytes.clone())];
        steps.extend(then.map(|hints| PlannedStep::Look(hints.to_vec())));
        self.plan(&steps);
        let (mut took, mut failed) = (0, None);
        for (at, (_, member)) in self.present().enumerate() {
            let put = member.put(name, &bytes);
            if at == 0 && put.is_ok() {
                // The first has decided: the others are written in parallel.
                self.present().skip(1).for_each(|(_, member)| member.put_ahead(name, &bytes));
            }
            match put {
                Ok(()) => took += 1,
                Err(error) if error.kind() == Kind::Exists => {
                    match read_small(&**member, name).and_then(|there| self.opens(name, there)) {
                        Ok(there) if there == envelope::without_voucher(&bytes) => took += 1,
                        // Another process won the name here: stop before this object reaches
                        // further members that have the other one.
                        Ok(_) => return Err(error),
                        Err(newer) if newer.kind() == Kind::KeysChanged => return Err(newer),
                        // Gone again, damaged, or a stray.
                        Err(other) => failed = Some(failed.unwrap_or(other)),
                    }
                }
                // One that fails takes no further part: the verb names it.
                Err(error) => {
                    let _ = self.or_without(member, Err(error.duplicate()));
                    failed = Some(failed.unwrap_or(error));
                }
            }
        }
        if took >= self.least_members(quorum) {
            return Ok(took);
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(Kind::TooManyLosses, format!("too few members are present to write {name}"))
                .expected(self.least_members(quorum), took)
        }))
    }

    /// Returns the content of an object on a member, without its MAC, if a process of this store
    /// can have put it there.
    fn opens(&self, name: ExtentName, there: Vec<u8>) -> Result<Vec<u8>> {
        envelope::open_any(&there)?;
        // A sealed object needs no MAC: it cannot be made without the keys either.
        if self.voucher.is_some() && !envelope::is_of(Object::Snapshot, &there) {
            self.verify(name, &there)?;
        }
        Ok(envelope::without_voucher(&there))
    }

    /// Durably removes an object from every present member.
    ///
    /// # Errors
    /// Fails with the first error of a member; the other members were tried too.
    pub fn delete_all(&self, name: ExtentName) -> Result<()> {
        let deleted = self.drop_all(name);
        deleted.and(self.sync_all())
    }

    /// Removes an object from every present member. After a power cut the object may exist again.
    ///
    /// # Errors
    /// Fails with the errors of [`delete_all`](Self::delete_all).
    pub(crate) fn drop_all(&self, name: ExtentName) -> Result<()> {
        self.plan(&[PlannedStep::Delete(name)]);
        let deleted = self.present().map(|(_, it)| self.or_without(it, it.delete(name)));
        deleted.fold(Ok(()), Result::and)
    }

    /// Makes everything durable, on every present member, that was put and removed.
    ///
    /// # Errors
    /// Fails with the first error of a member; the other members were tried too.
    pub fn sync_all(&self) -> Result<()> {
        let synced = self.present().map(|(_, it)| self.or_without(it, it.sync()));
        synced.fold(Ok(()), Result::and)
    }

    /// Returns the names of all objects of a kind, intact or not.
    ///
    /// # Errors
    /// Fails with a member's own error when too few members can be listed.
    pub fn names(&self, kind: ExtentKind, quorum: Quorum) -> Result<BTreeSet<[u8; 16]>> {
        self.list_next(PrefetchHint::new(kind, 1), true);
        let mut names = BTreeSet::new();
        let (mut listed, mut failed) = (0, None);
        for (_, member) in self.present() {
            match member.names(kind) {
                Ok(found) => {
                    names.extend(found);
                    listed += 1;
                }
                Err(error) => failed = Some(failed.unwrap_or(error)),
            }
        }
        if listed >= self.least_members(quorum) {
            return Ok(names);
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(
                Kind::TooManyLosses,
                format!("too few members are present to list {}", kind.dir()),
            )
            .expected(self.least_members(quorum), listed)
        }))
    }

    /// Reads every object of a kind. An object that vanishes during the read counts as removed.
    /// `decode` also verifies the MAC of an object, if it has one.
    ///
    /// # Errors
    /// Fails with a member's own error when too few members can be listed, or with
    /// [`Kind::Unsupported`] when a newer version wrote an object that counts.
    pub(crate) fn objects<T>(
        &self,
        kind: ExtentKind,
        quorum: Quorum,
        belief: Belief,
        decode: impl Fn([u8; 16], &[u8]) -> Result<T>,
    ) -> Result<KindObjects<T>> {
        let (sound, few) = (BTreeMap::new(), BTreeMap::new());
        let (unsound, strays, doubtful) = (Vec::new(), Vec::new(), Vec::new());
        let vanished = BTreeSet::new();
        let mut found = KindObjects { sound, few, unsound, strays, doubtful, vanished };
        let needed = match belief {
            Belief::One => 1,
            Belief::Agreed if self.voucher.is_some() => 1,
            Belief::Agreed => self.votes(),
        };
        let names: Vec<_> = self.names(kind, quorum)?.into_iter().collect();
        let ahead = self.read_ahead(kind, &names, needed, &decode);
        for (id, ahead) in names.into_iter().zip(ahead) {
            let name = ExtentName::In(kind, id);
            if let Some(object) = ahead {
                found.sound.insert(id, object);
                continue;
            }
            let copies = self.copies(name, needed, |bytes| decode(id, bytes))?;
            match copies {
                ObjectCopies { best: Some((object, votes)), .. } if votes >= needed => {
                    found.sound.insert(id, object);
                }
                ObjectCopies { best: Some((object, _)), holders, .. } if holders < self.votes() => {
                    found.few.insert(id, object);
                }
                ObjectCopies { worst: Some(error), holders, is_forged, .. }
                    if is_forged || holders < self.votes_on_damage() =>
                {
                    if !is_forged && holders >= self.votes() {
                        found.doubtful.push(name);
                    }
                    found.strays.push((name, error));
                }
                ObjectCopies { worst: Some(error), .. } => found.unsound.push((name, error)),
                ObjectCopies { best: Some(_), .. } => {
                    let what = "the members do not agree on the content of this object";
                    found.unsound.push((name, Error::new(Kind::Corrupt, what)));
                }
                ObjectCopies { best: None, worst: None, .. } => drop(found.vanished.insert(id)),
            }
        }
        Ok(found)
    }

    /// Reads objects of a kind from `needed` members, with one request to each member for many
    /// objects. Returns `None` for an object whose copies differ or are damaged: such an object is
    /// read separately, from all members.
    pub(super) fn read_ahead<T>(
        &self,
        kind: ExtentKind,
        ids: &[[u8; 16]],
        needed: usize,
        decode: impl Fn([u8; 16], &[u8]) -> Result<T>,
    ) -> Vec<Option<T>> {
        let members: Vec<_> = self.nearest().into_iter().take(needed).collect();
        let mut objects = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AHEAD_OBJECTS) {
            let names: Vec<_> = ids.iter().map(|id| ExtentName::In(kind, *id)).collect();
            let mut copies: Vec<_> = (members.iter())
                .map(|member| member.read_whole(&names, AHEAD_BYTES).into_iter())
                .collect();
            let before = objects.len();
            for id in ids {
                let mut votes = Votes::default();
                for bytes in copies.iter_mut().filter_map(|copies| copies.next()?.ok()) {
                    // A copy that is not whole has no form that could be compared.
                    if envelope::open_any(&bytes).is_ok() {
                        votes.count(envelope::without_voucher(&bytes), bytes);
                    }
                }
                let agreed = votes.most().filter(|(_, votes)| *votes == needed);
                objects.push(agreed.and_then(|(bytes, _)| decode(*id, &bytes).ok()));
            }
            if objects[before..].iter().any(Option::is_none) {
                // The copy may have been damaged in transit: it is read again.
                self.prefetch(&[]);
            }
        }
        objects
    }

    /// Returns the content on which most members of an object agree, once as many agree as any
    /// writer must have reached.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no member has it; the error of a copy when none is
    /// intact.
    pub(crate) fn read_agreed<T>(
        &self,
        name: ExtentName,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let copies = self.copies(name, self.votes(), decode)?;
        match copies {
            ObjectCopies { best: Some((object, _)), .. } => Ok(object),
            ObjectCopies { worst: Some(error), .. } => Err(error),
            _ => Err(Error::new(Kind::NotFound, format!("no member has {name}"))),
        }
    }

    /// Reads the copies of one object until `needed` members agree.
    fn copies<T>(
        &self,
        name: ExtentName,
        needed: usize,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<ObjectCopies<T>> {
        let is_forged = self.voucher.is_some();
        let mut copies = ObjectCopies { best: None, worst: None, holders: 0, is_forged };
        let mut votes = Votes::default();
        for member in self.nearest() {
            let mut is_whole = false;
            let read = read_small(&**member, name).and_then(|bytes| {
                is_whole = envelope::open_any(&bytes).is_ok();
                let decoded = decode(&bytes);
                let object = decoded.map_err(|e| e.at(member.place().join(name.path())))?;
                Ok((bytes, object))
            });
            copies.holders += 1;
            match read {
                Ok((bytes, object)) => {
                    if votes.count(envelope::without_voucher(&bytes), object) >= needed {
                        break;
                    }
                }
                Err(error) if error.kind() == Kind::NotFound => copies.holders -= 1,
                // No defect of this object: this process is behind.
                Err(error) if error.kind() == Kind::KeysChanged => return Err(error),
                Err(error) => {
                    copies.is_forged &= is_whole && error.kind() == Kind::Corrupt;
                    copies.worst = Some(error);
                }
            }
        }
        copies.best = votes.most();
        // A newer version knows more, if a writer can have put it.
        let is_counting = copies.best.is_none() && copies.holders >= self.votes();
        if let Some(error) = &copies.worst
            && error.kind() == Kind::Unsupported
            && is_counting
        {
            return Err(error.duplicate());
        }
        Ok(copies)
    }
}

/// The copies that the members have under one name.
struct ObjectCopies<T> {
    /// The content on which most intact copies agree, and the number of these copies.
    best: Option<(T, usize)>,
    /// The error of a damaged copy.
    worst: Option<Error>,
    /// The number of members, among those read, that have any object with this name.
    holders: usize,
    /// Every copy that is not intact is complete, but was not made with the keys of this store.
    is_forged: bool,
}
