//! One row during a read: the strips in memory, the reasons why other strips are missing, and how
//! missing strips are rebuilt.
//!
//! Invariants: a strip is read at most once. Parity is read only when a strip is lost. Under
//! [`Trust::Checksum`] every strip in memory matches its checksum, including rebuilt strips.

use std::borrow::Cow;
use std::ops::Range;

use pinstripe_kernel::parity;

use super::geometry::{Permutation, RowShape};
use super::reader::SetReader;
use super::report::{ErasureReason, ExtentPart, ReadReport, Rebuilt};
use super::windows::Windows;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::stripe_set::{Checksum, checksum};

/// Why bytes from a member can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The extent's header is the right one.
    Header,
    /// The strip's checksum matches, whatever the header is; this requires complete strips.
    Checksum,
}

enum Strip<'a> {
    Unread,
    AtHand(Cow<'a, [u8]>),
    Lost(ErasureReason),
}

/// The same columns of all strips of a row, by position.
pub(super) struct Row<'a> {
    set: &'a SetReader,
    row: u64,
    shape: RowShape,
    permutation: Permutation,
    columns: Range<u32>,
    trust: Trust,
    strips: Vec<Strip<'a>>,
    spare: Buffers,
}

/// Buffers that are reused for the strips of the next row, because fresh memory from the system
/// costs more than reading into it.
#[derive(Default)]
pub(super) struct Buffers {
    strips: Vec<Vec<u8>>,
    /// For a pass over all rows: bytes read from remote members beyond the current row.
    windows: Option<Windows>,
}

impl Buffers {
    /// Makes the buffers for a pass over all rows.
    pub(super) fn of_all_rows() -> Self {
        Buffers { strips: Vec::new(), windows: Some(Windows::default()) }
    }

    /// Returns a buffer of this length, with its old content.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.strips.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }
}

impl<'a> Row<'a> {
    /// Makes a row of some columns; none of them has been read yet.
    pub(super) fn new(set: &'a SetReader, row: u64, columns: Range<u32>, trust: Trust) -> Self {
        let layout = set.layout();
        Row {
            set,
            row,
            shape: layout.row_shape(row),
            permutation: layout.permutation(row),
            columns,
            trust,
            strips: (0..layout.geometry().members()).map(|_| Strip::Unread).collect(),
            spare: Buffers::default(),
        }
    }

    /// Reuses the buffers of an earlier row.
    pub(super) fn with(self, spare: Buffers) -> Self {
        Row { spare, ..self }
    }

    /// Returns the buffers, for a later row.
    pub(super) fn into_buffers(mut self) -> Buffers {
        for strip in std::mem::take(&mut self.strips) {
            if let Strip::AtHand(Cow::Owned(bytes)) = strip {
                self.spare.strips.push(bytes);
            }
        }
        self.spare
    }

    /// Makes a row of complete strips, each to be compared with its checksum.
    pub(super) fn whole(set: &'a SetReader, row: u64) -> Self {
        let columns = 0..set.layout().row_shape(row).strip_bytes;
        Row::new(set, row, columns, Trust::Checksum)
    }

    /// Marks a strip as lost.
    pub(super) fn lose(&mut self, position: usize, reason: ErasureReason) {
        self.strips[position] = Strip::Lost(reason);
    }

    /// Marks all remote strips as lost, so that none of them is read.
    pub(super) fn lose_far(&mut self) {
        for position in 0..self.strips.len() {
            if self.set.far_slots()[self.slot(position)]
                && matches!(self.strips[position], Strip::Unread)
            {
                self.lose(position, ErasureReason::Spared);
            }
        }
    }

    /// Offers columns of a strip that were read already; this saves a read if they suffice.
    pub(super) fn offer(&mut self, position: usize, columns: Range<u32>, bytes: &'a [u8]) {
        let needed = self.part(position);
        if columns.start <= needed.start && needed.end <= columns.end {
            let from = (needed.start - columns.start) as usize;
            let bytes = &bytes[from..from + needed.len()];
            self.strips[position] = Strip::AtHand(Cow::Borrowed(bytes));
        }
    }

    /// Returns the bytes of a strip that [`heal`](Self::heal) was asked for.
    pub(super) fn bytes(&self, position: usize) -> &[u8] {
        match &self.strips[position] {
            Strip::AtHand(bytes) => bytes,
            _ => unreachable!("heal leaves every strip that it was asked for in memory"),
        }
    }

    /// Like [`bytes`](Self::bytes), but removes the strip from the row.
    pub(super) fn take(&mut self, position: usize) -> Vec<u8> {
        match std::mem::replace(&mut self.strips[position], Strip::Unread) {
            Strip::AtHand(bytes) => bytes.into_owned(),
            _ => unreachable!("heal leaves every strip that it was asked for in memory"),
        }
    }

    /// Reads the strips at these positions into memory, and rebuilds those that are lost.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] when parity cannot replace what is lost; the error names
    /// everything that is lost.
    pub(super) fn heal(&mut self, wanted: &[usize], report: &mut ReadReport) -> Result<()> {
        let mut lost = wanted.to_vec();
        lost.retain(|&position| !self.load(position, report));
        if lost.is_empty() {
            return Ok(());
        }
        // As many strips as there are of data, near ones first, then data before parity.
        let geometry = self.set.geometry();
        let mut order: Vec<usize> = (0..geometry.members()).collect();
        order.sort_by_key(|&position| self.set.far_slots()[self.slot(position)]);
        let mut short = geometry.data();
        for position in order {
            if short > 0 && self.load(position, report) {
                short -= 1;
            }
        }
        if short > 0 {
            return Err(self.too_many_losses());
        }
        self.rebuild(&lost, report)?;
        debug_assert!(
            wanted.iter().all(|at| matches!(self.strips[*at], Strip::AtHand(_))),
            "every strip that was asked for is loaded"
        );
        Ok(())
    }

    /// Reads every strip, passes each data strip with its offset in the logical run to `show`, and
    /// frees it again. Returns the positions of the lost strips, with the reasons.
    pub(super) fn survey(
        &mut self,
        report: &mut ReadReport,
        show: &mut dyn FnMut(u64, &[u8]),
    ) -> Vec<(usize, ErasureReason)> {
        let data = self.set.geometry().data();
        let mut lost = Vec::new();
        for position in 0..self.strips.len() {
            match self.fetch(position, report) {
                Ok(bytes) => {
                    if position < data {
                        show(self.shape.strip_logical(position).start, &bytes);
                    }
                    self.spare.strips.push(bytes);
                }
                Err(reason) => lost.push((position, reason)),
            }
        }
        lost
    }

    /// Returns the logical ranges of the data strips at these positions, which are in order;
    /// adjacent ranges are merged.
    pub(super) fn logical(&self, positions: impl Iterator<Item = usize>) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for position in positions {
            push_range(&mut ranges, self.shape.strip_logical(position));
        }
        ranges
    }

    /// Returns the slot that holds a position.
    pub(super) fn slot(&self, position: usize) -> usize {
        self.permutation.slot(position)
    }

    /// Returns the position that a slot holds.
    pub(super) fn position(&self, slot: usize) -> usize {
        self.permutation.position(slot)
    }

    /// Returns the columns that a strip really has: it may be shorter than the row's longest strip.
    fn part(&self, position: usize) -> Range<u32> {
        let len = self.shape.strip_len(position);
        self.columns.start.min(len)..self.columns.end.min(len)
    }

    fn recorded_checksum(&self, position: usize) -> &Checksum {
        self.set.trailer().checksum(self.row, self.slot(position))
    }

    /// Reads a strip, unless that was tried before; returns whether it is in memory.
    fn load(&mut self, position: usize, report: &mut ReadReport) -> bool {
        if matches!(self.strips[position], Strip::Unread) {
            self.strips[position] = match self.fetch(position, report) {
                Ok(bytes) => Strip::AtHand(Cow::Owned(bytes)),
                Err(reason) => Strip::Lost(reason),
            };
        }
        matches!(self.strips[position], Strip::AtHand(_))
    }

    /// Reads the columns of a strip; a strip of length 0 cannot be lost.
    fn fetch(
        &mut self,
        position: usize,
        report: &mut ReadReport,
    ) -> Result<Vec<u8>, ErasureReason> {
        let part = self.part(position);
        if part.is_empty() {
            return Ok(Vec::new());
        }
        debug_assert!(
            self.trust == Trust::Header || part == (0..self.shape.strip_len(position)),
            "a checksum is of a whole strip"
        );
        let mut bytes = self.spare.take(part.len());
        let offset = self.set.layout().strip_offset(self.row) + u64::from(part.start);
        let slot = self.slot(position);
        let recorded = match self.trust {
            Trust::Header => None,
            Trust::Checksum => Some(*self.recorded_checksum(position)),
        };
        let windows = self.spare.windows.as_mut();
        if let Err(reason) = self.set.fetch(slot, offset, &mut bytes, recorded.as_ref(), windows) {
            self.spare.strips.push(bytes);
            return Err(reason);
        }
        report.fetched_bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn rebuild(&mut self, lost: &[usize], report: &mut ReadReport) -> Result<()> {
        let lengths: Vec<_> = lost.iter().map(|&position| self.part(position).len()).collect();
        let mut made: Vec<_> = lengths.into_iter().map(|bytes| self.spare.take(bytes)).collect();
        let present: Vec<Option<&[u8]>> = self
            .strips
            .iter()
            .map(|strip| match strip {
                Strip::AtHand(bytes) => Some(bytes.as_ref()),
                _ => None,
            })
            .collect();
        let mut wanted: Vec<(usize, &mut [u8])> =
            lost.iter().copied().zip(made.iter_mut().map(Vec::as_mut_slice)).collect();
        parity::rebuild(self.set.geometry().data(), &present, &mut wanted)
            .map_err(|_| self.too_many_losses())?;

        for (&position, bytes) in lost.iter().zip(made) {
            if self.trust == Trust::Checksum
                && checksum(&bytes) != *self.recorded_checksum(position)
            {
                let what = format!(
                    "the parity of row {} (a stripe) of the stripe set contradicts its data",
                    self.row
                );
                return Err(Error::corrupt(what, self.set.name().path()));
            }
            let rebuilt = Strip::AtHand(Cow::Owned(bytes));
            // A strip that was spared is not damage, and its owner was not read.
            if let Strip::Lost(reason) = std::mem::replace(&mut self.strips[position], rebuilt)
                && !matches!(reason, ErasureReason::Spared)
            {
                let slot = self.slot(position);
                let member = self.set.member_of(slot);
                report.rebuilt.push(Rebuilt { slot, member, row: self.row, reason });
            }
        }
        Ok(())
    }

    /// Makes the error that names every lost strip of the row, and the logical bytes lost with
    /// them.
    fn too_many_losses(&self) -> Error {
        let mut strips = Vec::new();
        for (position, strip) in self.strips.iter().enumerate() {
            if let Strip::Lost(reason) = strip {
                let part = ExtentPart::Strip(self.row);
                strips.push(self.set.describe(self.slot(position), part, reason));
            }
        }
        let is_lost = |&position: &usize| matches!(self.strips[position], Strip::Lost(_));
        let gone = self.logical((0..self.set.geometry().data()).filter(is_lost));
        let gone: Vec<String> =
            gone.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
        let what = format!(
            "bytes {} of the stripe set are lost: row {} (a stripe) has lost {} strips, but parity \
             can replace only {} ({})",
            gone.join(" and "),
            self.row,
            strips.len(),
            self.set.geometry().parity(),
            strips.join("; ")
        );
        Error::new(Kind::TooManyLosses, what)
            .at(self.set.name().path())
            .advice("attach the absent members, then run 'pinstripe check'")
    }
}

/// Appends a range to a list of ranges, merged with the last one if they are adjacent.
pub(super) fn push_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
