//! Rebuilds pieces of a row that are lost, or that are not read because they are remote.

use std::ops::Range;

use super::geometry::StripPiece;
use super::nearness::{self, distance};
use super::reader::SetReader;
use super::report::{ErasureReason, ReadReport};
use super::row::{Row, Trust};
use pinstripe_base::error::Result;

impl SetReader {
    /// Rebuilds remote pieces from near ones; where that fails, fetches the remote ones instead.
    /// Returns the pieces that are lost.
    pub(super) fn spare_pieces(
        &self,
        row: u64,
        range: &Range<u64>,
        spared: Vec<(StripPiece, ErasureReason)>,
        lost: &[(StripPiece, ErasureReason)],
        read: &mut [u8],
        report: &mut ReadReport,
    ) -> Vec<(StripPiece, ErasureReason)> {
        let count = spared.len() as u64;
        let mut tried = ReadReport::default();
        let all: Vec<_> = spared.iter().chain(lost).cloned().collect();
        let is_made =
            lost.is_empty() && self.rebuild_pieces(row, range, all, read, &mut tried).is_ok();
        report.fetched_bytes += tried.fetched_bytes;
        if is_made {
            report.spared += count;
            return Vec::new();
        }
        let mut gone = Vec::new();
        for (piece, _) in spared {
            let start = self.layout().row_shape(row).logical.start.max(range.start);
            let at = (piece.logical.start - start) as usize;
            let part = &mut read[at..at + piece.column.len()];
            match self.fetch(piece.slot, piece.extent_offset, part, None, None) {
                Ok(()) => report.fetched_bytes += piece.column.len() as u64,
                Err(reason) => gone.push((piece, reason)),
            }
        }
        gone
    }

    /// For each slot, whether its strips are read only when those of other slots do not suffice.
    pub(super) fn far_slots(&self) -> &[bool] {
        self.far_slots.get_or_init(|| {
            let slots = self.geometry().members();
            let distances: Vec<_> =
                self.members.iter().map(|it| it.as_deref().map(distance)).collect();
            let spared = nearness::spared(&distances, self.geometry().data());
            let mut far = vec![false; slots];
            if spared.contains(&true) {
                far.fill(true);
                let near = (0..self.places()).filter(|number| !spared[*number]);
                // Headers of near members only: those of far ones need not be asked.
                near.filter_map(|number| self.header(number).ok())
                    .for_each(|slot| far[slot] = false);
            }
            let is_enough = far.iter().filter(|far| !**far).count() >= self.geometry().data();
            if is_enough { far } else { vec![false; slots] }
        })
    }

    /// Rebuilds the lost pieces of a row in `read` from the same columns of the other strips;
    /// `read` is the part of a range that is within the row.
    pub(super) fn rebuild_pieces(
        &self,
        row: u64,
        range: &Range<u64>,
        lost: Vec<(StripPiece, ErasureReason)>,
        read: &mut [u8],
        report: &mut ReadReport,
    ) -> Result<()> {
        let start = lost.iter().map(|(piece, _)| piece.column.start).min().unwrap_or(0);
        let end = lost.iter().map(|(piece, _)| piece.column.end).max().unwrap_or(0);
        let row_start = self.layout().row_shape(row).logical.start.max(range.start);
        let place = |piece: &StripPiece| {
            (piece.logical.start - row_start) as usize..(piece.logical.end - row_start) as usize
        };
        let positions: Vec<usize> = lost.iter().map(|(piece, _)| piece.position).collect();

        // One span of columns covers all losses: parity works column by column, so the same columns
        // of the other strips are all that is needed.
        let mut strips = Row::new(self, row, start..end, Trust::Header);
        for piece in self.layout().row_pieces(row, range.clone()) {
            strips.offer(piece.position, piece.column.clone(), &read[place(&piece)]);
        }
        for (piece, reason) in &lost {
            strips.lose(piece.position, reason.clone());
        }
        if lost.iter().all(|(_, reason)| matches!(reason, ErasureReason::Spared)) {
            strips.lose_far();
        }
        strips.heal(&positions, report)?;
        let healed: Vec<Vec<u8>> =
            positions.into_iter().map(|position| strips.take(position)).collect();
        for ((piece, _), strip) in lost.iter().zip(healed) {
            let from = (piece.column.start - start) as usize;
            read[place(piece)].copy_from_slice(&strip[from..from + piece.column.len()]);
        }
        Ok(())
    }
}
