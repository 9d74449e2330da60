//! Finds the member that holds each slot of a set: no list is stored, because the headers of the
//! extents tell.
//!
//! A slot is the number in an extent's header; members join and leave, and extents are moved as a
//! whole, so the slot need not be the member's number, though it often is: that member is asked
//! first. After an interrupted move a slot is on two members; both copies are equally good.
//!
//! An extent whose header is damaged is recognized by its strips: they match the checksums of one
//! slot only.

use std::sync::Arc;

use super::reader::SetReader;
use super::report::{ErasureReason, is_lost_mark};
use pinstripe_base::error::{Error, Kind};
use pinstripe_member::stripe_set::{HEADER_BYTES, Header, checksum};

/// The number of rows that are compared with checksums to find the slot of an extent with a damaged
/// header.
const ROWS_COMPARED: u64 = 8;

/// The members that may hold a certain slot.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// Members whose header gives this slot.
    pub(super) sound: Vec<usize>,
    /// A member whose extent seems to be this slot, but has a damaged header.
    pub(super) doubtful: Option<usize>,
    /// The member that should hold the slot, when no member does.
    pub(super) home: Option<usize>,
    /// Why no member holds the slot under a trustworthy header, if that is the case.
    pub(super) reason: ErasureReason,
}

impl Standing {
    /// The members to ask, the best first.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.sound.iter().copied().chain(self.doubtful)
    }
}

impl SetReader {
    /// Returns the member that holds a slot, with an intact or a damaged header; for a slot that no
    /// member holds, the present member that seems to have lost it. Returns `None` when no member
    /// holds the slot and no present member has lost it.
    pub fn member_of(&self, slot: usize) -> Option<usize> {
        self.quick(slot).or_else(|| {
            let standing = &self.standings()[slot];
            standing.members().next().or(standing.home)
        })
    }

    /// Returns all members that hold a slot under an intact header: more than one after an
    /// interrupted move.
    pub fn holders_of(&self, slot: usize) -> &[usize] {
        &self.standings()[slot].sound
    }

    /// Returns the present members whose extent another present member has as well, both under
    /// intact headers; [`verify`](Self::verify) examined the extent of the other member.
    pub fn spare_members(&self) -> Vec<usize> {
        let spare = |standing: &Standing| standing.sound.iter().skip(1).copied().collect();
        self.standings().iter().flat_map::<Vec<_>, _>(spare).collect()
    }

    /// Whether no present member has a slot, with an intact or a damaged header.
    pub fn is_nowhere(&self, slot: usize) -> bool {
        self.quick(slot).is_none() && self.standings()[slot].members().next().is_none()
    }

    /// Returns the present members without any extent of the set.
    pub fn free_members(&self) -> Vec<usize> {
        let is_free = |member: &usize| {
            self.member(*member).is_some()
                && matches!(self.header(*member), Err(reason) if reason.is_missing())
        };
        (0..self.places()).filter(is_free).collect()
    }

    /// Returns a member whose header gives this slot, found without asking all members.
    pub(super) fn quick(&self, slot: usize) -> Option<usize> {
        // The extent of a set of one: its trailer says whose it is as well as its header does, and
        // that was read.
        if self.geometry().members() == 1 && self.opened_by.is_some() {
            return self.opened_by;
        }
        let has = |member: &usize| self.header(*member).is_ok_and(|found| found == slot);
        [slot, self.nth_present(slot)?].into_iter().find(has)
    }

    /// Reads the headers of all members and returns which members may hold each slot.
    pub(super) fn standings(&self) -> &[Standing] {
        self.standings.get_or_init(|| self.find_standings())
    }

    fn find_standings(&self) -> Vec<Standing> {
        let absent = Standing {
            sound: Vec::new(),
            doubtful: None,
            home: None,
            reason: ErasureReason::MemberMissing,
        };
        let mut found = vec![absent; self.geometry().members()];
        let mut damaged = Vec::new();
        for member in 0..self.places() {
            match self.header(member) {
                // Where it is by nature first: that is where it has been for longest.
                Ok(slot) if slot == member => found[slot].sound.insert(0, member),
                Ok(slot) => found[slot].sound.push(member),
                Err(reason) if reason.is_missing() => {}
                Err(reason) => damaged.push((member, reason)),
            }
        }
        // First those that their strips identify: the others take the remaining slots.
        damaged.sort_by_cached_key(|(member, _)| self.known_by_strips(*member, &found).is_none());
        for (member, reason) in damaged {
            let open = |slot: &usize| found[*slot].members().next().is_none();
            let slot = self.known_by_strips(member, &found).or_else(|| {
                let natural = Some(member).filter(|slot| *slot < found.len());
                natural.filter(open).or_else(|| (0..found.len()).find(open))
            });
            if let Some(slot) = slot {
                found[slot].doubtful = Some(member);
                found[slot].reason = reason;
            }
        }
        self.find_homes(&mut found);
        found
    }

    /// Finds the present members that have lost those slots that no member holds. A member is named
    /// only when that is certain: no member is absent that might have the slot, and there are as
    /// many members without an extent as slots without a holder, so that each such member has lost
    /// one. Otherwise, moved extents or members that joined later would make an intact member look
    /// as if it had lost one.
    fn find_homes(&self, found: &mut [Standing]) {
        let mut free = self.free_members();
        let everybody_is_there = self.is_everybody_there
            || (0..self.places()).all(|member| self.member(member).is_some());
        let is_open = |standing: &Standing| standing.members().next().is_none();
        let open: Vec<usize> = (0..found.len()).filter(|slot| is_open(&found[*slot])).collect();
        if everybody_is_there {
            open.iter().for_each(|slot| found[*slot].reason = ErasureReason::ExtentMissing);
        }
        if !everybody_is_there || open.len() != free.len() {
            return;
        }
        // Most likely each has lost the slot of its own number.
        let (natural, others): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|slot| free.contains(slot));
        free.retain(|member| !natural.contains(member));
        for slot in natural {
            found[slot].home = Some(slot);
        }
        for (slot, member) in others.into_iter().zip(free) {
            found[slot].home = Some(member);
        }
    }

    /// Returns the slot without a holder whose strips this member has.
    fn known_by_strips(&self, member: usize, found: &[Standing]) -> Option<usize> {
        let mut open = (0..found.len()).filter(|slot| found[*slot].members().next().is_none());
        let mut strip = Vec::new();
        let rows = self.layout().rows().min(ROWS_COMPARED);
        open.find(|slot| {
            (0..rows).any(|row| {
                self.verify_strip(member, *slot, row, &mut strip).is_ok() && !strip.is_empty()
            })
        })
    }

    /// Reads the strip of a row on one member into `strip` and compares it with the checksum of a
    /// slot.
    pub(super) fn verify_strip(
        &self,
        member: usize,
        slot: usize,
        row: u64,
        strip: &mut Vec<u8>,
    ) -> Result<(), ErasureReason> {
        let layout = self.layout();
        let position = layout.permutation(row).position(slot);
        strip.resize(layout.row_shape(row).strip_len(position) as usize, 0);
        if strip.is_empty() {
            return Ok(());
        }
        self.read_from(member, layout.strip_offset(row), strip)?;
        if checksum(strip) == *self.trailer().checksum(row, slot) {
            Ok(())
        } else if is_lost_mark(strip) {
            Err(ErasureReason::GivenUp)
        } else {
            Err(ErasureReason::Checksum)
        }
    }

    /// Returns the n-th present member, which has the n-th slot of a set if the table of members
    /// has not changed since the set was made.
    fn nth_present(&self, n: usize) -> Option<usize> {
        (0..self.places()).filter(|member| self.member(*member).is_some()).nth(n).or(Some(n))
    }

    /// Returns the slot that the header of a member's extent gives; the header is read at first
    /// use.
    ///
    /// Two threads may both read the header at first use; they get the same result, and one result
    /// is kept.
    pub(super) fn header(&self, member: usize) -> Result<usize, ErasureReason> {
        let Some(known) = self.headers.get(member) else {
            return Err(ErasureReason::MemberMissing);
        };
        if let Some(known) = known.get() {
            return known.clone();
        }
        let found = self.read_header(member);
        known.get_or_init(|| found).clone()
    }

    /// Reads the header of a member's extent and compares it with those that the set must have.
    pub(super) fn read_header(&self, member: usize) -> Result<usize, ErasureReason> {
        let mut block = [0; HEADER_BYTES];
        self.read_from(member, 0, &mut block)?;
        let wrong = |error: Error| ErasureReason::Header(Arc::new(error.at(self.place(member))));
        let found = Header::decode(&block).map_err(wrong)?;
        let expected = self.expected_header(found.slot.into());
        if found == expected {
            return Ok(found.slot.into());
        }
        let name = |header: &Header| {
            let Header { store, set, geometry, slot, .. } = header;
            let (data, parity) = (geometry.data(), geometry.parity());
            let (store, set, strip) = (store.short(), set.short(), geometry.strip_bytes());
            format!("store {store} set {set} slot {slot} of {data}+{parity} x {strip}")
        };
        Err(wrong(
            Error::new(Kind::WrongMember, "the extent belongs to another store, set or slot")
                .expected(name(&expected), name(&found)),
        ))
    }

    /// Returns the header that the extent of a slot must have.
    pub(super) fn expected_header(&self, slot: usize) -> Header {
        let trailer = self.trailer();
        Header {
            store: trailer.store,
            set: trailer.set,
            kind: trailer.kind,
            geometry: trailer.geometry,
            slot: slot as u8,
        }
    }
}
