//! Verifies a complete stripe set: reports damage and losses, and rewrites the extent of a slot.
//!
//! Invariants: `verify` reads every byte of every extent and reports each damaged part once; a
//! rebuilt extent is identical, byte for byte, to the original one.

use std::sync::Arc;

use super::reader::SetReader;
use super::report::{
    ErasureReason, ExtentDamage, ExtentPart, ReadReport, Salvaged, Verification, mark_lost,
};
use super::row::{Buffers, Row, push_range};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::ExtentWriter;
use pinstripe_member::stripe_set::{FOOTER_BYTES, Footer, HEADER_BYTES, Trailer};

impl SetReader {
    /// Compares every strip of every slot with its checksum, and every header and trailer with its
    /// expected content. `progress` gets the number of bytes read, row by row.
    ///
    /// Damage is a result, not an error; a missing extent counts as one damaged part, not as one
    /// per row.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Verification {
        self.verify_and_show(progress, &mut |_, _| {})
    }

    /// Like [`verify`](Self::verify); `show` also gets the parts of the logical run that match
    /// their checksums, each with its offset, in order. Damaged parts are not passed to `show`.
    pub fn verify_and_show(
        &self,
        progress: &mut dyn FnMut(u64),
        show: &mut dyn FnMut(u64, &[u8]),
    ) -> Verification {
        let mut found = Verification::default();
        let slots = self.geometry().members();
        let tail = self.trailer().encode();
        for slot in 0..slots {
            self.verify_ends(slot, &tail, &mut found);
        }
        progress(found.fetched_bytes);

        // For each slot, whether a strip of it is beyond repair.
        let mut hopeless = vec![false; slots];
        let mut buffers = Buffers::of_all_rows();
        for row in 0..self.layout().rows() {
            let mut report = ReadReport::default();
            let mut strips = Row::whole(self, row).with(buffers);
            let lost = strips.survey(&mut report, show);
            self.note_row((row, &strips), lost, &mut hopeless, &mut found);
            buffers = strips.into_buffers();
            found.fetched_bytes += report.fetched_bytes;
            progress(report.fetched_bytes);
        }
        for damage in &mut found.damage {
            if damage.part == ExtentPart::Extent {
                damage.repairable = !hopeless[damage.slot];
            }
        }
        found.damage.sort_by_key(|damage| (damage.slot, damage.part));
        found
    }

    /// Verifies every header, trailer and length, but no strip.
    pub fn verify_ends_only(&self) -> Verification {
        let mut found = Verification::default();
        let tail = self.trailer().encode();
        (0..self.geometry().members()).for_each(|slot| self.verify_ends(slot, &tail, &mut found));
        found.damage.sort_by_key(|damage| (damage.slot, damage.part));
        found
    }

    /// Appends a slot's complete extent as it was first written: its own strips where they are
    /// intact, rebuilt strips elsewhere. The caller seals the writer.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when a strip
    /// of this slot cannot be repaired, or with the errors of the writer.
    pub fn rebuild_extent(&self, slot: usize, writer: &mut dyn ExtentWriter) -> Result<ReadReport> {
        let mut report = ReadReport::default();
        let mut buffers = Buffers::of_all_rows();
        writer.append(&self.expected_header(slot).encode())?;
        for row in 0..self.layout().rows() {
            let mut strips = Row::whole(self, row).with(buffers);
            let position = strips.position(slot);
            strips.heal(&[position], &mut report)?;
            writer.append(strips.bytes(position))?;
            buffers = strips.into_buffers();
        }
        writer.append(&self.trailer().encode())?;
        Ok(report)
    }

    /// Like [`rebuild_extent`](Self::rebuild_extent), except that a strip that cannot be repaired
    /// is copied from a member as it is, or else marked as lost. The caller decides by the result
    /// whether to seal.
    ///
    /// # Errors
    /// Fails with the errors of the writer.
    pub fn salvage_extent(&self, slot: usize, writer: &mut dyn ExtentWriter) -> Result<Salvaged> {
        let mut salvaged = Salvaged::default();
        let mut buffers = Buffers::of_all_rows();
        writer.append(&self.expected_header(slot).encode())?;
        for row in 0..self.layout().rows() {
            let mut strips = Row::whole(self, row).with(buffers);
            let position = strips.position(slot);
            if strips.heal(&[position], &mut ReadReport::default()).is_ok() {
                salvaged.sound_rows += 1;
                writer.append(strips.bytes(position))?;
            } else {
                let mut strip = Vec::new();
                if self.read_unsound(slot, row, &mut strip) {
                    salvaged.copied_rows += 1;
                } else {
                    salvaged.lost_rows += 1;
                    mark_lost(&mut strip);
                }
                writer.append(&strip)?;
            }
            buffers = strips.into_buffers();
        }
        writer.append(&self.trailer().encode())?;
        Ok(salvaged)
    }

    /// Reads a strip from a member without verifying it; returns whether a member returned one.
    /// With or without success, `strip` has the length of the strip.
    fn read_unsound(&self, slot: usize, row: u64, strip: &mut Vec<u8>) -> bool {
        let is_there = |reason: Option<ErasureReason>| match reason {
            None | Some(ErasureReason::Checksum) => true,
            Some(_) => false,
        };
        let mut members = self.standings()[slot].members();
        let found = members.any(|it| is_there(self.verify_strip(it, slot, row, strip).err()));
        let position = self.layout().permutation(row).position(slot);
        strip.resize(self.layout().row_shape(row).strip_len(position) as usize, 0);
        found
    }

    /// Whether the damage will certainly be found again: the bytes were read and are wrong, or the
    /// extent is on no member. An I/O error counts only while another part of the same extent can
    /// be read, so that nothing is decided because a disk fails completely.
    pub fn is_certain(&self, damage: &ExtentDamage) -> bool {
        match &damage.reason {
            ErasureReason::Checksum
            | ErasureReason::GivenUp
            | ErasureReason::Header(_)
            | ErasureReason::ExtentMissing => true,
            ErasureReason::MemberMissing => self.is_everybody_there,
            ErasureReason::Unreadable(error) => {
                error.kind() != Kind::Unanswered
                    && damage.member.is_some_and(|it| self.read_header(it).is_ok())
            }
            ErasureReason::Spared => false,
        }
    }

    /// Whether every strip of the last row matches its checksum, except those of `missing` slots.
    ///
    /// A caller that has rebuilt as many missing slots as parity replaces has read every strip of
    /// all the other rows. The last row may be short, so some of its strips were not read.
    pub fn is_last_row_sound(&self, missing: &[usize]) -> bool {
        let Some(row) = self.layout().rows().checked_sub(1) else { return true };
        let mut strips = Row::whole(self, row);
        let lost = strips.survey(&mut ReadReport::default(), &mut |_, _| {});
        lost.iter().all(|(position, _)| missing.contains(&strips.slot(*position)))
    }

    /// Records what a row has lost.
    fn note_row(
        &self,
        (row, strips): (u64, &Row<'_>),
        lost: Vec<(usize, ErasureReason)>,
        hopeless: &mut [bool],
        found: &mut Verification,
    ) {
        let repairable = lost.len() <= self.geometry().parity();
        if !repairable {
            let data = self.geometry().data();
            let lost_data = lost.iter().map(|&(position, _)| position).filter(|&p| p < data);
            for range in strips.logical(lost_data) {
                push_range(&mut found.lost_ranges, range);
            }
        }
        let part = ExtentPart::Strip(row);
        let mut beyond_repair = Vec::new();
        for (position, reason) in lost {
            let slot = strips.slot(position);
            if !repairable {
                hopeless[slot] = true;
                beyond_repair.push(slot);
            }
            if !reason.is_missing() && self.holders_of(slot).len() < 2 {
                let member = self.member_of(slot);
                found.damage.push(ExtentDamage { slot, member, part, reason, repairable });
            }
        }
        // If a slot has two copies, each is verified: either may be the one that stays.
        let twins = (0..self.geometry().members()).filter(|slot| self.holders_of(*slot).len() > 1);
        for (slot, member) in
            twins.flat_map(|slot| self.holders_of(slot).iter().map(move |m| (slot, *m)))
        {
            if let Err(reason) = self.verify_strip(member, slot, row, &mut Vec::new()) {
                let repairable = !beyond_repair.contains(&slot);
                let member = Some(member);
                found.damage.push(ExtentDamage { slot, member, part, reason, repairable });
            }
        }
    }

    /// Whether a member's extent is that of a slot, and intact to its last byte.
    pub fn is_sound_on(&self, member: usize, slot: usize) -> bool {
        let mut strip = Vec::new();
        self.header(member).is_ok_and(|found| found == slot)
            && self.verify_tail(slot, member, &self.trailer().encode()).is_ok()
            && (0..self.layout().rows())
                .all(|row| self.verify_strip(member, slot, row, &mut strip).is_ok())
    }

    /// Verifies the header and the trailer of a slot on every member that holds it.
    fn verify_ends(&self, slot: usize, tail: &[u8], found: &mut Verification) {
        let standing = &self.standings()[slot];
        let mut damaged = |member, part, reason| {
            found.damage.push(ExtentDamage { slot, member, part, reason, repairable: true });
        };
        if standing.members().next().is_none() {
            return damaged(standing.home, ExtentPart::Extent, standing.reason.clone());
        }
        if let Some(doubtful) = standing.doubtful {
            damaged(Some(doubtful), ExtentPart::Header, standing.reason.clone());
        }
        let mut fetched_bytes = (standing.sound.len() * HEADER_BYTES) as u64;
        for member in standing.members() {
            match self.verify_tail(slot, member, tail) {
                Err(reason) => damaged(Some(member), ExtentPart::Trailer, reason),
                Ok(()) => fetched_bytes += tail.len() as u64,
            }
        }
        found.fetched_bytes += fetched_bytes;
    }

    fn verify_tail(
        &self,
        slot: usize,
        member: usize,
        expected: &[u8],
    ) -> Result<(), ErasureReason> {
        let there = self.member(member).ok_or(ErasureReason::MemberMissing)?;
        let wrong =
            |error: Error| ErasureReason::Unreadable(Arc::new(error.at(self.place(member))));
        let expected_bytes = self.layout().extent_bytes(slot);
        let extent_bytes = there.len(self.name()).map_err(wrong)?;
        if extent_bytes != expected_bytes {
            let error = Error::corrupt("the extent has a wrong length", self.place(member));
            return Err(wrong(error.expected(expected_bytes, extent_bytes)));
        }
        let mut found = vec![0; expected.len()];
        self.read_from(member, self.layout().trailer_offset(slot), &mut found)?;
        if found == expected {
            return Ok(());
        }
        let (trailer, footer) = found.split_at(found.len() - FOOTER_BYTES);
        let decoded = Footer::decode(footer).and_then(|footer| Trailer::decode(trailer, &footer));
        Err(match decoded {
            Ok(_) => wrong(Error::corrupt(
                "the trailer differs from the trailers of the other extents",
                self.place(member),
            )),
            Err(error) => wrong(error),
        })
    }
}
