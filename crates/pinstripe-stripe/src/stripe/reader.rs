//! Reads ranges of a stripe set from its present members.
//!
//! There are two ways to read a set. [`SetReader::read`] is fast: it reads only the requested bytes
//! and does not verify them, because the caller verifies the records in them.
//! [`SetReader::read_verified`] is used when that verification failed: it reads complete strips and
//! compares each with its checksum in the trailer, so that the damaged strip is found and rebuilt.
//!
//! Invariants: an extent's bytes are trusted either because its header is that of the right extent,
//! or because their checksum matches: a damaged header alone never loses data. Nothing in a reader
//! changes after opening except the cache of headers.
//!
//! Not in this module: retries. To read an extent again after an error, a caller opens the set
//! again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use super::geometry::{Geometry, SetLayout, StripPiece};
use super::holders::Standing;
use super::nearness::turns;
use super::report::{ErasureReason, ExtentPart, ReadReport, is_lost_mark};
use super::row::{Row, Trust};
use super::trailer::{gravity, read_trailer};
use super::windows::Windows;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::stripe_set::{Checksum, SetKind, Trailer, checksum};
use pinstripe_member::{ExtentKind, ExtentName, Member, SharedMember};

/// An open stripe set. Any number of threads may read through one reader.
pub struct SetReader {
    /// By member number.
    pub(super) members: Vec<Option<SharedMember>>,
    name: ExtentName,
    trailer: Trailer,
    layout: SetLayout,
    /// The slot in each member's header, by member number, once it was read.
    pub(super) headers: Vec<OnceLock<Result<usize, ErasureReason>>>,
    /// The members that hold each slot; determined when first needed.
    pub(super) standings: OnceLock<Vec<Standing>>,
    /// For each slot, whether its strips are read only when those of other slots do not suffice;
    /// determined when first needed.
    pub(super) far_slots: OnceLock<Vec<bool>>,
    /// The member whose trailer was used, if a single member provided it.
    pub(super) opened_by: Option<usize>,
    /// No member of the store is absent: a number without a member belonged to one that has left.
    pub(super) is_everybody_there: bool,
}

impl SetReader {
    /// Opens the set whose extents have this name, by any one intact trailer.
    ///
    /// `members` are indexed by member number, with `None` for a missing member or an unused
    /// number. Each member may have any slot of the set, or none. The set id determines which
    /// member is asked first, so that reading many sets loads all members.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no member has the extent, with [`Kind::Unsupported`] when
    /// a newer version wrote it, or with [`Kind::WrongMember`], [`Kind::Corrupt`] or the member's
    /// own error when extents exist, but none with an intact trailer of this store and set.
    pub fn open(
        members: &[Option<SharedMember>],
        name: ExtentName,
        store: StoreId,
        set: SetId,
    ) -> Result<Self> {
        // Returns the first intact trailer, or else the gravest error: "not found" must not hide
        // "newer version".
        let mut worst: Option<Error> = None;
        for (number, member) in turns(members, set) {
            match read_trailer(member.as_ref(), name, store, set) {
                Ok(trailer) => {
                    let opened = Self::with_trailer(members, name, trailer)?;
                    return Ok(SetReader { opened_by: Some(number), ..opened });
                }
                Err(error) if worst.as_ref().is_none_or(|w| gravity(&error) > gravity(w)) => {
                    worst = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(worst.filter(|error| error.kind() != Kind::NotFound).unwrap_or_else(|| {
            Error::new(Kind::NotFound, "no member has an extent of this stripe set").at(name.path())
        }))
    }

    /// Hint: these sets of a kind will be opened next; the ends of all their extents are requested
    /// from remote members at once.
    pub fn open_ahead(members: &[Option<SharedMember>], kind: ExtentKind, sets: &[SetId]) {
        let mut wanted: BTreeMap<usize, Vec<ExtentName>> = BTreeMap::new();
        for set in sets {
            if let Some((number, _)) = turns(members, *set).first() {
                wanted.entry(*number).or_default().push(ExtentName::In(kind, set.0));
            }
        }
        for (number, names) in wanted {
            members[number].iter().for_each(|member| member.open_ahead(&names));
        }
    }

    /// Like [`open`](Self::open), but with the trailer on which most members agree. All trailers of
    /// a set are equal, and a single one may be forged, with checksums that make intact strips look
    /// damaged. This function is for callers that decide which strips are damaged, and for a second
    /// attempt after a failed read.
    ///
    /// # Errors
    /// Fails with the errors of [`open`](Self::open).
    pub fn open_agreed(
        members: &[Option<SharedMember>],
        name: ExtentName,
        store: StoreId,
        set: SetId,
    ) -> Result<Self> {
        let mut said: Vec<(Trailer, usize)> = Vec::new();
        for member in members.iter().flatten() {
            let Ok(trailer) = read_trailer(member.as_ref(), name, store, set) else { continue };
            match said.iter_mut().find(|(known, _)| *known == trailer) {
                Some((_, holders)) => *holders += 1,
                None => said.push((trailer, 1)),
            }
        }
        // Among equals, the first: `max_by_key` would take the last.
        said.reverse();
        match said.into_iter().max_by_key(|(_, holders)| *holders) {
            Some((trailer, _)) => Self::with_trailer(members, name, trailer),
            None => Self::open(members, name, store, set),
        }
    }

    /// Opens a set whose writer was interrupted before it wrote the trailers; `layout` gives the
    /// rows. Only [`read`](Self::read) works on such a set: the checksums of strips are unknown, so
    /// only the records in a strip show whether it is intact.
    ///
    /// # Errors
    /// Fails with the errors of the layout.
    pub fn unfinished(
        members: &[Option<SharedMember>],
        name: ExtentName,
        store: StoreId,
        set: SetId,
        kind: SetKind,
        layout: &SetLayout,
    ) -> Result<Self> {
        let strips = layout.rows() as usize * layout.geometry().members();
        let trailer = Trailer {
            store,
            set,
            kind,
            geometry: layout.geometry(),
            logical_bytes: layout.logical_bytes(),
            index: 0..0,
            checksums: vec![Checksum::default(); strips],
        };
        Self::with_trailer(members, name, trailer)
    }

    fn with_trailer(
        members: &[Option<SharedMember>],
        name: ExtentName,
        trailer: Trailer,
    ) -> Result<Self> {
        Ok(SetReader {
            members: members.to_vec(),
            name,
            layout: SetLayout::new(trailer.geometry, trailer.set, trailer.logical_bytes)?,
            trailer,
            headers: members.iter().map(|_| OnceLock::new()).collect(),
            standings: OnceLock::new(),
            far_slots: OnceLock::new(),
            opened_by: None,
            is_everybody_there: false,
        })
    }

    /// Tells the reader that no member of the store is absent, so that data on no member is lost.
    #[must_use]
    pub fn with_everybody_there(self, is_everybody_there: bool) -> Self {
        SetReader { is_everybody_there, ..self }
    }

    /// The kind of the set's content.
    pub fn kind(&self) -> SetKind {
        self.trailer.kind
    }

    /// The set's geometry.
    pub fn geometry(&self) -> Geometry {
        self.trailer.geometry
    }

    /// Where all strips of the set are.
    pub fn layout(&self) -> &SetLayout {
        &self.layout
    }

    /// Bytes of the logical run.
    pub fn logical_bytes(&self) -> u64 {
        self.trailer.logical_bytes
    }

    /// The range of the record index in the logical run; empty when the set has no index.
    pub fn index(&self) -> Range<u64> {
        self.trailer.index.clone()
    }

    /// Appends a range of the logical run to `out`, and rebuilds what cannot be read.
    ///
    /// Strips are not compared with their checksums: the caller verifies the records in the range
    /// and calls [`read_verified`](Self::read_verified) when that fails.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a range beyond the run, or with [`Kind::TooManyLosses`]
    /// when more strips of a row are missing than parity can replace. After a failure, `out` is
    /// unchanged.
    pub fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<ReadReport> {
        self.read_rows(range, out, Trust::Header)
    }

    /// Like [`read`](Self::read), but with complete strips, each compared with its checksum: the
    /// returned bytes are those that were written.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
    pub fn read_verified(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<ReadReport> {
        self.read_rows(range, out, Trust::Checksum)
    }

    fn read_rows(&self, range: Range<u64>, out: &mut Vec<u8>, trust: Trust) -> Result<ReadReport> {
        if range.start > range.end || range.end > self.logical_bytes() {
            return Err(Error::corrupt(
                "the range is beyond the end of the stripe set",
                self.name.path(),
            )
            .expected(
                format!("within 0..{}", self.logical_bytes()),
                format!("{}..{}", range.start, range.end),
            ));
        }
        let before = out.len();
        let mut report = ReadReport::default();
        for row in self.layout.rows_of(&range) {
            let read = match trust {
                Trust::Header => self.read_row(row, range.clone(), out, &mut report),
                Trust::Checksum => self.read_row_verified(row, range.clone(), out, &mut report),
            };
            if let Err(error) = read {
                out.truncate(before);
                return Err(error);
            }
        }
        Ok(report)
    }

    /// Reads the part of a range that is within one row, directly to its destination.
    fn read_row(
        &self,
        row: u64,
        range: Range<u64>,
        out: &mut Vec<u8>,
        report: &mut ReadReport,
    ) -> Result<()> {
        // All pieces are read before any is rebuilt: the good ones serve as sources, so that their
        // bytes are not read twice.
        let before = out.len();
        let (mut lost, mut spared) = (Vec::new(), Vec::new());
        let far = self.far_slots();
        for piece in self.layout.row_pieces(row, range.clone()) {
            let start = out.len();
            out.resize(start + piece.column.len(), 0);
            if far[piece.slot] {
                spared.push((piece, ErasureReason::Spared));
                continue;
            }
            match self.fetch(piece.slot, piece.extent_offset, &mut out[start..], None, None) {
                Ok(()) => report.fetched_bytes += piece.column.len() as u64,
                Err(reason) => lost.push((piece, reason)),
            }
        }
        if !spared.is_empty() {
            lost.extend(self.spare_pieces(row, &range, spared, &lost, &mut out[before..], report));
        }
        if lost.is_empty() {
            return Ok(());
        }
        match self.rebuild_pieces(row, &range, lost, &mut out[before..], report) {
            // Strips under a damaged header may still be good: their checksums show that.
            Err(error) if error.kind() == Kind::TooManyLosses => {
                out.truncate(before);
                self.read_row_verified(row, range, out, report)
            }
            other => other,
        }
    }

    fn read_row_verified(
        &self,
        row: u64,
        range: Range<u64>,
        out: &mut Vec<u8>,
        report: &mut ReadReport,
    ) -> Result<()> {
        let mut strips = Row::whole(self, row);
        let pieces: Vec<StripPiece> = self.layout.row_pieces(row, range).collect();
        let positions: Vec<usize> = pieces.iter().map(|piece| piece.position).collect();
        strips.heal(&positions, report)?;
        for piece in pieces {
            let column = piece.column.start as usize..piece.column.end as usize;
            out.extend_from_slice(&strips.bytes(piece.position)[column]);
        }
        Ok(())
    }

    pub(super) fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The name that all extents of the set have.
    pub fn name(&self) -> ExtentName {
        self.name
    }

    /// Returns the member of this number, if it is present.
    pub(super) fn member(&self, member: usize) -> Option<&dyn Member> {
        self.members.get(member)?.as_deref()
    }

    /// The number of members that were given, including missing ones.
    pub(super) fn places(&self) -> usize {
        self.members.len()
    }

    /// Describes in one line what is wrong with a part of an extent, and where that extent is.
    pub fn describe(&self, slot: usize, part: ExtentPart, reason: &ErasureReason) -> String {
        let Some(member) = self.member_of(slot) else {
            return format!("slot {slot}, {part}: {}: {reason}", self.name.path());
        };
        match reason {
            // These name the place themselves.
            ErasureReason::Header(_) | ErasureReason::Unreadable(_) => {
                format!("member {member}, {part}: {reason}")
            }
            _ => format!("member {member}, {part}: {}: {reason}", self.place(member)),
        }
    }

    /// Returns the place of a member's extent, for messages.
    pub(super) fn place(&self, member: usize) -> String {
        match self.member(member) {
            Some(there) => there.place().join(self.name.path()).display().to_string(),
            None => self.name.path(),
        }
    }

    /// Fills `buf` from a slot's extent on any member that has the bytes: a member whose header is
    /// right or, if the checksum is given, a member whose bytes match it. From a remote member, the
    /// bytes that follow are read as well.
    pub(super) fn fetch(
        &self,
        slot: usize,
        offset: u64,
        buf: &mut [u8],
        recorded: Option<&Checksum>,
        mut windows: Option<&mut Windows>,
    ) -> Result<(), ErasureReason> {
        if recorded.is_none()
            && let Some(member) = self.quick(slot)
            && self.read_from(member, offset, buf).is_ok()
        {
            return Ok(());
        }
        let standing = &self.standings()[slot];
        let mut failed = standing.reason.clone();
        let candidates = match recorded {
            None => standing.sound.clone(),
            Some(_) => standing.members().collect(),
        };
        for member in candidates {
            let end = self.layout.trailer_offset(slot);
            let read = match &mut windows {
                Some(windows) => windows.read(self, member, (offset, end), buf),
                None => self.read_from(member, offset, buf),
            };
            match read {
                Ok(()) if recorded.is_none_or(|recorded| checksum(buf) == *recorded) => {
                    return Ok(());
                }
                Ok(()) if is_lost_mark(buf) => failed = ErasureReason::GivenUp,
                Ok(()) => failed = ErasureReason::Checksum,
                Err(reason) => failed = reason,
            }
        }
        Err(failed)
    }

    /// Fills `buf` from a member's extent, without verifying it.
    pub(super) fn read_from(
        &self,
        member: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), ErasureReason> {
        let there = self.member(member).ok_or(ErasureReason::MemberMissing)?;
        let read = there.read_at(self.name, offset, buf);
        read.map_err(|error| {
            ErasureReason::unreadable(error.at(there.place().join(self.name.path())))
        })
    }
}
