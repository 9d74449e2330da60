//! Long reads from remote members: each request costs a round trip, so adjacent bytes of an extent
//! are requested together, across rows.

use std::ops::Range;

use super::reader::SetReader;
use super::report::ReadReport;
use pinstripe_base::error::Result;

/// Adjacent bytes of one extent.
struct ExtentRun {
    slot: usize,
    offset: u64,
    bytes: usize,
    /// Where the parts belong in the requested range: first byte and length.
    parts: Vec<(usize, usize)>,
}

impl SetReader {
    /// Like [`read`](Self::read), but with few requests. If one of the requests fails, everything
    /// is read as by [`read`](Self::read).
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
    pub fn read_span(&self, range: Range<u64>) -> Result<(Vec<u8>, ReadReport)> {
        if let Some(bytes) = self.read_runs(&range) {
            let fetched_bytes = bytes.len() as u64;
            return Ok((bytes, ReadReport { fetched_bytes, ..ReadReport::default() }));
        }
        let mut bytes = Vec::new();
        let report = self.read(range, &mut bytes)?;
        Ok((bytes, report))
    }

    fn read_runs(&self, range: &Range<u64>) -> Option<Vec<u8>> {
        if range.start >= range.end || range.end > self.logical_bytes() {
            return None; // `read` says what is wrong.
        }
        let runs = self.runs(range);
        let far = self.far_slots();
        if runs.iter().any(|run| far[run.slot]) {
            return None;
        }
        let read = |run: &ExtentRun| {
            let member = self.member(self.quick(run.slot)?)?;
            member.read_span(self.name(), run.offset, run.bytes).ok()
        };
        if let [run] = runs.as_slice() {
            return read(run);
        }
        let mut span = vec![0; (range.end - range.start) as usize];
        for run in &runs {
            let bytes = read(run)?;
            let mut rest = bytes.as_slice();
            for (start, bytes) in &run.parts {
                let (part, later) = rest.split_at_checked(*bytes)?;
                span[*start..*start + *bytes].copy_from_slice(part);
                rest = later;
            }
        }
        Some(span)
    }

    /// Returns the parts of each extent that a range needs; adjacent parts are merged.
    fn runs(&self, range: &Range<u64>) -> Vec<ExtentRun> {
        let mut runs: Vec<ExtentRun> = Vec::new();
        for piece in self.layout().pieces(range.clone()) {
            let part = ((piece.logical.start - range.start) as usize, piece.column.len());
            let of_slot = runs.iter_mut().rev().find(|run| run.slot == piece.slot);
            match of_slot.filter(|run| run.offset + run.bytes as u64 == piece.extent_offset) {
                Some(run) => {
                    run.bytes += part.1;
                    run.parts.push(part);
                }
                None => runs.push(ExtentRun {
                    slot: piece.slot,
                    offset: piece.extent_offset,
                    bytes: part.1,
                    parts: vec![part],
                }),
            }
        }
        runs
    }
}
