//! Walks a whole stripe set: what is damaged, what is lost, and a member's extent written anew.
//!
//! Invariants: `verify` reads every byte of every extent and reports each damaged part once; a
//! rebuilt extent is byte for byte the one that was written first.

use std::sync::Arc;

use super::reader::SetReader;
use super::report::{Damage, Part, ReadReport, Reason, Verification};
use super::row::{Row, push_range};
use crate::error::{Error, Result};
use crate::format::stripe_set::{FOOTER_BYTES, Footer, HEADER_BYTES, Trailer};
use crate::member::ExtentWriter;

impl SetReader {
    /// Holds every strip of every member against its checksum, every header and trailer against
    /// what they must be. `progress` is told the bytes read, row by row.
    ///
    /// Damage is a result, not an error; a missing extent is one damage, not one for each row.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Verification {
        let mut found = Verification::default();
        let members = self.geometry().members();
        let tail = self.trailer().encode();
        for member in 0..members {
            self.verify_ends(member, &tail, &mut found);
        }
        progress(found.fetched_bytes);

        // Of each member, whether some strip of it is beyond repair.
        let mut hopeless = vec![false; members];
        for row in 0..self.layout().rows() {
            let mut report = ReadReport::default();
            self.verify_row(row, &mut report, &mut hopeless, &mut found);
            found.fetched_bytes += report.fetched_bytes;
            progress(report.fetched_bytes);
        }
        for damage in &mut found.damage {
            if damage.part == Part::Extent {
                damage.repairable = !hopeless[damage.member];
            }
        }
        found.damage.sort_by_key(|damage| (damage.member, damage.part));
        found
    }

    /// The quick look: every header, trailer and length, no strip.
    pub fn verify_ends_only(&self) -> Verification {
        let mut found = Verification::default();
        let tail = self.trailer().encode();
        (0..self.geometry().members()).for_each(|m| self.verify_ends(m, &tail, &mut found));
        found.damage.sort_by_key(|damage| (damage.member, damage.part));
        found
    }

    /// Appends a member's whole extent as it was first written: its own strips where they are
    /// good, the others rebuilt. The caller seals the writer.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`](crate::error::Kind::TooManyLosses) when a strip of this member is
    /// beyond repair; those of the writer.
    pub fn rebuild_extent(
        &self,
        member: usize,
        writer: &mut dyn ExtentWriter,
    ) -> Result<ReadReport> {
        let mut report = ReadReport::default();
        writer.append(&self.expected_header(member).encode())?;
        for row in 0..self.layout().rows() {
            let mut strips = Row::whole(self, row);
            let position = strips.position(member);
            strips.heal(&[position], &mut report)?;
            writer.append(strips.bytes(position))?;
        }
        writer.append(&self.trailer().encode())?;
        Ok(report)
    }

    fn verify_row(
        &self,
        row: u64,
        report: &mut ReadReport,
        hopeless: &mut [bool],
        found: &mut Verification,
    ) {
        let strips = Row::whole(self, row);
        let lost = strips.survey(report);
        let repairable = lost.len() <= self.geometry().parity();
        if !repairable {
            let data = self.geometry().data();
            let lost_data = lost.iter().map(|&(position, _)| position).filter(|&p| p < data);
            for range in strips.logical(lost_data) {
                push_range(&mut found.lost_ranges, range);
            }
        }
        for (position, reason) in lost {
            let member = strips.member(position);
            hopeless[member] |= !repairable;
            if !reason.is_missing() {
                found.damage.push(Damage { member, part: Part::Strip(row), reason, repairable });
            }
        }
    }

    /// Checks what stands before and behind the strips of one extent.
    fn verify_ends(&self, member: usize, tail: &[u8], found: &mut Verification) {
        let mut damaged = |part, reason| {
            found.damage.push(Damage { member, part, reason, repairable: true });
        };
        match self.read_header(member) {
            Err(reason) if reason.is_missing() => return damaged(Part::Extent, reason),
            Err(reason) => damaged(Part::Header, reason),
            Ok(()) => found.fetched_bytes += HEADER_BYTES as u64,
        }
        match self.verify_tail(member, tail) {
            Err(reason) => damaged(Part::Trailer, reason),
            Ok(()) => found.fetched_bytes += tail.len() as u64,
        }
    }

    fn verify_tail(&self, member: usize, expected: &[u8]) -> Result<(), Reason> {
        let there = self.member(member).ok_or(Reason::MemberMissing)?;
        let wrong = |error: Error| Reason::Unreadable(Arc::new(error.at(self.place(member))));
        let expected_bytes = self.layout().extent_bytes(member);
        let extent_bytes = there.len(self.name()).map_err(wrong)?;
        if extent_bytes != expected_bytes {
            let error = Error::corrupt("the extent has a wrong length", self.place(member));
            return Err(wrong(error.expected(expected_bytes, extent_bytes)));
        }
        let mut found = vec![0; expected.len()];
        self.fetch(member, self.layout().trailer_offset(member), &mut found)?;
        if found == expected {
            return Ok(());
        }
        let (trailer, footer) = found.split_at(found.len() - FOOTER_BYTES);
        let decoded = Footer::decode(footer).and_then(|footer| Trailer::decode(trailer, &footer));
        Err(match decoded {
            Ok(_) => wrong(Error::corrupt("not the trailer of the others", self.place(member))),
            Err(error) => wrong(error),
        })
    }
}
