//! The old bytes of a row: as they were read, zeros, or rebuilt from the available shards.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_kernel::parity::rebuild;

use super::{transfer, within};
use crate::geometry::RowMap;
use crate::plan::{PlanPiece, RowPlan};

/// The old bytes that a piece of a plan needs, by shard: read, zeros, or computed. `reads` holds
/// the bytes that were read, by transfer of the plan's reads.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] if the plan rebuilds what cannot be rebuilt, which no planner
/// asks for.
pub fn old(
    row: &RowMap,
    plan: &RowPlan,
    reads: &[Vec<u8>],
    piece: &PlanPiece,
) -> Result<Vec<Option<Vec<u8>>>> {
    all_old(row, piece, |shard| {
        let number = transfer(&plan.reads, shard, &piece.column);
        reads[number][within(&piece.column, &plan.reads[number].column)].to_vec()
    })
}

pub(super) fn all_old(
    row: &RowMap,
    piece: &PlanPiece,
    read: impl Fn(usize) -> Vec<u8>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut old: Vec<Option<Vec<u8>>> = vec![None; row.shards()];
    for shard in piece.reads.iter() {
        old[shard] = Some(read(shard));
    }
    for shard in piece.zeros.iter() {
        old[shard] = Some(vec![0; piece.column.len()]);
    }
    for shard in piece.rebuild.iter() {
        let bytes = rebuilt(row, &old, shard, piece.column.len())?;
        old[shard] = Some(bytes);
    }
    Ok(old)
}

/// A shard computed from the available ones.
///
/// # Errors
/// Fails with [`Kind::TooManyLosses`] if the available shards do not suffice.
pub fn rebuilt(
    row: &RowMap,
    old: &[Option<Vec<u8>>],
    wanted: usize,
    bytes: usize,
) -> Result<Vec<u8>> {
    let too_many = || {
        Error::new(
            Kind::TooManyLosses,
            "this row (a stripe of the array) cannot be rebuilt, because too many of its chunks \
             are lost",
        )
    };
    if row.mirrors() {
        return old.iter().flatten().next().cloned().ok_or_else(too_many);
    }
    let index = |shard: usize| match shard.checked_sub(row.data()) {
        None => row.coefficient(shard),
        Some(parity) => row.coefficients() + parity,
    };
    // Coefficients of no shard are zeros, as DDF's layouts have them.
    let mut present: Vec<Option<&[u8]>> = vec![Some(&[]); row.coefficients() + row.parity()];
    for (shard, bytes) in old.iter().enumerate() {
        present[index(shard)] = bytes.as_deref();
    }
    let mut out = vec![0; bytes];
    rebuild(row.coefficients(), &present, &mut [(index(wanted), &mut out)])
        .map_err(|_| too_many())?;
    Ok(out)
}
