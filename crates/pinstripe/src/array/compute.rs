//! What a plan computes: new bytes of data and parity, what is logged, and the checksums to be.
//!
//! ```text
//! old bytes (read, zeros, rebuilt) --+
//!                                    +--> new data --> parity --> what is written, with its checksums
//! runs that were written ------------+        \--> the part of parity that stays: logged
//! ```
//! Invariant: what a run holds in one piece goes to the member from there; all else is made once, in the
//! buffer that it is written from.
//!
//! Never here: reading, writing, and the question whether old bytes are to be believed.

use std::ops::Range;

use pinstripe_kernel::parity::{encode, rebuild, update};

use super::cache::Dirty;
use super::geometry::RowMap;
use super::plan::{Method, Piece, RowPlan, Transfer};
use crate::error::{Error, Kind, Result};
use crate::format::array::BLOCK_BYTES;
use crate::format::array::sums::Sum;

/// What a row operation writes and logs.
#[derive(Debug, Default)]
pub struct Made {
    /// By transfer of the plan's writes; `None` where a run has the bytes as they are.
    writes: Vec<Option<Vec<u8>>>,
    /// By piece: what the members of P and Q keep of it.
    pub logged: Vec<[Vec<u8>; 2]>,
}

/// A row with its plan, and what was read for it.
pub struct Operation<'a> {
    /// Where its shards lie.
    pub row: &'a RowMap,
    /// What is to be done.
    pub plan: &'a RowPlan,
    /// By transfer of the plan's reads, its bytes.
    pub reads: &'a [Vec<u8>],
    /// What is new.
    pub dirty: &'a Dirty,
}

impl Made {
    /// The bytes that a transfer of the plan's writes puts on its member.
    pub fn bytes<'a>(&'a self, number: usize, operation: &Operation<'a>) -> &'a [u8] {
        match &self.writes[number] {
            Some(bytes) => bytes,
            None => {
                let it = &operation.plan.writes[number];
                let run = operation.run(content(operation.row, it.shard), &it.column);
                run.expect("what was not made lies in one run")
            }
        }
    }

    /// The checksums of a piece's written shards, lowest first, each with all blocks.
    pub fn sums(&self, piece: &Piece, operation: &Operation<'_>) -> Vec<Sum> {
        let sums_of = |shard: usize| {
            let number = transfer(&operation.plan.writes, shard, &piece.column);
            let (bytes, column) =
                (self.bytes(number, operation), &operation.plan.writes[number].column);
            bytes[within(&piece.column, column)].chunks(BLOCK_BYTES as usize).map(Sum::of)
        };
        piece.writes.iter().flat_map(sums_of).collect()
    }
}

impl<'a> Operation<'a> {
    /// Computes all pieces.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`] if the plan rebuilds what cannot be rebuilt, which no planner asks for.
    pub fn run_plan(&self) -> Result<Made> {
        let mut made = Made {
            writes: self.plan.writes.iter().map(|it| self.buffer(it)).collect(),
            logged: Vec::with_capacity(self.plan.pieces.len()),
        };
        for piece in &self.plan.pieces {
            let logged = self.piece(piece, &mut made)?;
            made.logged.push(logged);
        }
        Ok(made)
    }

    /// Where a transfer is made, unless a run has it.
    fn buffer(&self, it: &Transfer) -> Option<Vec<u8>> {
        let is_data = self.row.mirrors() || it.shard < self.row.data();
        let has_run = is_data && self.run(content(self.row, it.shard), &it.column).is_some();
        (!has_run).then(|| vec![0; it.column.len()])
    }

    /// The bytes of a column, if one run has them all.
    fn run(&self, data: usize, column: &Range<u32>) -> Option<&'a [u8]> {
        self.dirty.shard(data).slice(column)
    }

    fn piece(&self, piece: &Piece, made: &mut Made) -> Result<[Vec<u8>; 2]> {
        let old = old(self.row, self.plan, self.reads, piece)?;
        let changed = piece.dirty.or(piece.fill);
        let new: Vec<(usize, Vec<u8>)> = changed
            .iter()
            .filter(|&data| self.run(data, &piece.column).is_none())
            .map(|data| (data, self.merged(data, piece, &old)))
            .collect();
        let new_of = |data: usize| -> &[u8] {
            self.run(data, &piece.column).unwrap_or_else(|| {
                let made = new.iter().find(|(shard, _)| *shard == data);
                &made.expect("what changes was merged").1
            })
        };
        let targets = piece.writes.minus(self.row.parity_shards());
        for shard in targets.iter() {
            self.put(made, shard, &piece.column, new_of(content(self.row, shard)));
        }
        let parity = piece.writes.and(self.row.parity_shards());
        if parity.is_empty() {
            return Ok(Default::default());
        }
        let mut sums = self.unchanged(piece, &old);
        let mut logged: [Vec<u8>; 2] = Default::default();
        for (n, is_logged) in [piece.log.p, piece.log.q].into_iter().enumerate() {
            if is_logged {
                logged[n].extend_from_slice(&sums[n]);
            }
        }
        let sources: Vec<_> =
            changed.iter().map(|data| (self.row.coefficient(data), new_of(data))).collect();
        let mut rows: Vec<(usize, &mut [u8])> =
            sums.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
        update(&sources, &mut rows);
        for shard in parity.iter() {
            self.put(made, shard, &piece.column, &sums[shard - self.row.data()]);
        }
        for data in piece.log.data.iter() {
            for n in parity.iter().map(|shard| shard - self.row.data()) {
                logged[n].extend_from_slice(new_of(data));
            }
        }
        Ok(logged)
    }

    /// Parity of the data shards that stay as they are.
    fn unchanged(&self, piece: &Piece, old: &[Option<Vec<u8>>]) -> Vec<Vec<u8>> {
        let (data, len) = (self.row.data(), piece.column.len());
        let mut sums = vec![vec![0; len]; self.row.parity()];
        let changed = piece.dirty.or(piece.fill);
        match piece.method {
            Method::Full => {}
            Method::ReadModifyWrite => {
                for (n, sum) in sums.iter_mut().enumerate() {
                    if let Some(bytes) = &old[data + n] {
                        sum.copy_from_slice(bytes);
                    }
                }
                self.add(changed.iter(), old, &mut sums);
            }
            _ => {
                let stays = |shard: &usize| !changed.has(*shard);
                if (0..data).all(|shard| self.row.coefficient(shard) == shard) {
                    let shards: Vec<&[u8]> = (0..data)
                        .map(|shard| old[shard].as_deref().filter(|_| stays(&shard)))
                        .map(Option::unwrap_or_default)
                        .collect();
                    encode(
                        &shards,
                        &mut sums.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
                    );
                } else {
                    self.add((0..data).filter(stays), old, &mut sums);
                }
            }
        }
        sums
    }

    /// Adds the old bytes of data shards to parity.
    fn add(
        &self,
        shards: impl Iterator<Item = usize>,
        old: &[Option<Vec<u8>>],
        sums: &mut [Vec<u8>],
    ) {
        let sources: Vec<_> = shards
            .filter_map(|data| Some((self.row.coefficient(data), old[data].as_deref()?)))
            .collect();
        let mut rows: Vec<_> = sums.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
        update(&sources, &mut rows);
    }

    /// The new bytes of a shard of which only some are new.
    fn merged(&self, data: usize, piece: &Piece, old: &[Option<Vec<u8>>]) -> Vec<u8> {
        // Any copy of a mirror will do.
        let before = match self.row.mirrors() {
            true => old.iter().flatten().next(),
            false => old[data].as_ref(),
        };
        let mut bytes = before.cloned().unwrap_or_else(|| vec![0; piece.column.len()]);
        self.dirty.shard(data).read(piece.column.start, &mut bytes);
        bytes
    }

    /// Puts bytes of a shard where they are written from, if that is not where they lie.
    fn put(&self, made: &mut Made, shard: usize, column: &Range<u32>, bytes: &[u8]) {
        let number = transfer(&self.plan.writes, shard, column);
        if let Some(to) = &mut made.writes[number] {
            to[within(column, &self.plan.writes[number].column)].copy_from_slice(bytes);
        }
    }
}

/// The shard whose content a shard has: of a mirror there is one.
fn content(row: &RowMap, shard: usize) -> usize {
    if row.mirrors() { 0 } else { shard }
}

/// The transfer that moves a shard's bytes in a column.
fn transfer(transfers: &[Transfer], shard: usize, column: &Range<u32>) -> usize {
    let has = |it: &Transfer| it.shard == shard && it.column.contains(&column.start);
    transfers.iter().position(has).expect("the plan moves what its pieces name")
}

/// Where a column lies in another one.
fn within(column: &Range<u32>, of: &Range<u32>) -> Range<usize> {
    (column.start - of.start) as usize..(column.end - of.start) as usize
}

/// The old bytes that a piece of a plan needs, by shard: as they were read, zeros, or computed.
///
/// # Errors
/// [`Kind::TooManyLosses`] if the plan rebuilds what cannot be rebuilt, which no planner asks for.
pub fn old(
    row: &RowMap,
    plan: &RowPlan,
    reads: &[Vec<u8>],
    piece: &Piece,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut old: Vec<Option<Vec<u8>>> = vec![None; row.shards()];
    for shard in piece.reads.iter() {
        let number = transfer(&plan.reads, shard, &piece.column);
        let column = &plan.reads[number].column;
        old[shard] = Some(reads[number][within(&piece.column, column)].to_vec());
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

/// A shard computed from those that are there.
///
/// # Errors
/// [`Kind::TooManyLosses`] if they do not suffice.
fn rebuilt(row: &RowMap, old: &[Option<Vec<u8>>], wanted: usize, bytes: usize) -> Result<Vec<u8>> {
    let too_many = || Error::new(Kind::TooManyLosses, "too much of a row is lost to rebuild it");
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

#[cfg(test)]
mod tests;
