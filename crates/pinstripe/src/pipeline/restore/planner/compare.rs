//! Finds chunks of a file that are in the target already, at their right offsets.

use std::sync::Arc;

use super::{Offsets, Unplaced};
use crate::pipeline::restore::RestorePlan;
use crate::sink::Existing;
use pinstripe_base::error::Result;
use pinstripe_io::pool::each;
use pinstripe_member::entry::Entry;
use pinstripe_member::keys::Keys;
use pinstripe_member::record::ChunkRow;

/// The number of pieces that one thread compares before it takes more.
const JOB_PIECES: usize = 64;

/// A chunk that may be in the existing file already.
pub(super) type Doubtful = (Arc<Existing>, Unplaced);

/// Computes the id of each chunk's range in the existing file, on `threads` threads, and compares
/// it with the chunk's id. A range that cannot be read counts as different.
pub(super) fn are_there(threads: usize, keys: &Keys, pieces: &[Doubtful]) -> Result<Vec<bool>> {
    let jobs: Vec<_> = pieces.chunks(JOB_PIECES).collect();
    let looked = each(threads, &jobs, |job| {
        let mut buffer = Vec::new();
        let look = |(existing, piece): &Doubtful| {
            is_there(keys, existing, piece.file_offset, &piece.row, &mut buffer)
        };
        Ok(job.iter().map(look).collect::<Vec<_>>())
    })?;
    Ok(looked.into_iter().flatten().collect())
}

/// Returns the number of content bytes of a file that differ from the existing one.
pub(crate) fn differing_bytes(
    plan: &RestorePlan<'_>,
    existing: &Existing,
    entry: &Entry,
    rows: &[ChunkRow],
) -> u64 {
    let mut offsets = Offsets::new(entry);
    let Ok(places) = rows.iter().map(|row| offsets.next(row.raw_bytes)).collect::<Result<Vec<_>>>()
    else {
        return entry.size; // Damaged: the restore itself reports it.
    };
    let pieces: Vec<_> = rows.iter().zip(places).collect();
    let jobs: Vec<_> = pieces.chunks(JOB_PIECES).collect();
    let differing = each(plan.limits.workers, &jobs, |job| {
        let mut buffer = Vec::new();
        let mut differs =
            |(row, at): &&(&ChunkRow, u64)| !is_there(plan.keys, existing, *at, row, &mut buffer);
        Ok(job
            .iter()
            .filter(|piece| differs(piece))
            .map(|(row, _)| u64::from(row.raw_bytes))
            .sum::<u64>())
    });
    differing.map_or(entry.size, |jobs| jobs.into_iter().sum())
}

fn is_there(
    keys: &Keys,
    existing: &Existing,
    at: u64,
    row: &ChunkRow,
    buffer: &mut Vec<u8>,
) -> bool {
    if at + u64::from(row.raw_bytes) > existing.size_bytes() {
        return false;
    }
    buffer.resize(row.raw_bytes as usize, 0);
    existing.read_at(at, buffer).unwrap_or(false) && keys.chunk_id(buffer) == row.id
}
