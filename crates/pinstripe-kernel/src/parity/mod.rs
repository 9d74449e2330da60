//! Computes and rebuilds the parity of shards, at the speed of memory.
//!
//! A row of data shards `D0, D1 ..` gets up to [`MAX_PARITY`] parity shards, byte by byte in
//! GF(2^8) over 0x11d: `P = sum D_i` and `Q = sum 2^i * D_i`, exactly as in RAID-5 and RAID-6 of
//! Linux md, then two more rows of a Cauchy matrix. With m parity shards, any m lost shards can be
//! rebuilt.
//!
//! Shards of one row may differ in length: bytes beyond a shard's end count as zero. So the last
//! row of a stripe set, which can be shorter, needs no padding.
//!
//! Every sum is implemented for every instruction set ([`InstructionSet`]), with results that are
//! equal bit for bit; the fastest one is chosen at run time. Results never depend on alignment, on
//! the length of spans or on the instruction set. The module does not know where data comes from,
//! keeps no state, and accepts any content of the shards.

mod code;
pub mod gf256;
mod kernel;
mod level;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use code::max_data;
pub use level::{InstructionSet, best, levels};

use code::{Factors, Recovery, coefficient};
use kernel::{AddInto, Combine, Pq, Term, Xor, XorInto};
use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;

/// The most parity shards of a row.
pub(crate) const MAX_PARITY: usize = 4;

/// The error that more shards are lost than the remaining parity can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyLost {
    /// The number of lost shards, of data and parity.
    pub lost: usize,
    /// The number of parity shards of the row, which is the most shards that may be lost.
    pub parity: usize,
}

impl fmt::Display for TooManyLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} shards (chunks of one stripe) are lost, but only {} can be rebuilt",
            self.lost, self.parity
        )
    }
}

impl std::error::Error for TooManyLost {}

/// Computes the parity shards of a row: P, then Q, then the further rows. Without parity shards it
/// does nothing.
///
/// Data shards may be shorter than the parity shards, but not longer.
///
/// # Panics
/// Panics if the parity shards differ in length, if a data shard is longer than they are, if there
/// are more than [`MAX_PARITY`] parity shards, or if there are more data shards than [`max_data`]
/// permits.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    encode_at(best(), data, parity);
}

/// Does the same as [`encode`], with a chosen instruction set. If this processor does not support
/// the instruction set, the plain version is used, whose result is the same.
///
/// # Panics
/// Like [`encode`].
pub fn encode_at(level: InstructionSet, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let Some(first) = parity.first() else { return };
    let len = first.len();
    assert!(parity.iter().all(|shard| shard.len() == len), "parity shards are equally long");
    assert!(data.iter().all(|shard| shard.len() <= len), "no data shard is longer than its parity");
    assert!(parity.len() <= MAX_PARITY, "at most {MAX_PARITY} parity shards");
    assert!(data.len() <= max_data(parity.len()), "too many data shards for the parity");
    match parity {
        [p] => xor_at(level, data, p),
        [p, q] if data.is_sorted_by(|a, b| a.len() >= b.len()) => pq_at(level, data, p, q),
        _ => {
            let terms = data.iter().enumerate().map(|(n, &source)| Term {
                source,
                factors: std::array::from_fn(|row| coefficient_or_zero(row, parity.len(), n)),
            });
            combine_at(level, terms.collect(), parity);
        }
    }
}

/// Rebuilds shards of a row.
///
/// `present` contains the `data_count` data shards, then the parity shards; an element is `None` if
/// the shard is lost. A present shard may be shorter than the longest one. `wanted` contains
/// indices of shards, each with a slice for the result; as many bytes from the beginning of the
/// shard are rebuilt as the slice is long. The wanted shards may be some or all of the lost shards;
/// a wanted shard that is present is copied.
///
/// # Errors
/// [`TooManyLost`] if more data shards are lost than parity shards are present. In this case no
/// output is written.
///
/// # Panics
/// Panics if `present` is shorter than `data_count` or longer than `data_count` + [`MAX_PARITY`],
/// if there are more data shards than [`max_data`] permits, or if a wanted index is beyond the end
/// of `present`.
pub fn rebuild(
    data_count: usize,
    present: &[Option<&[u8]>],
    wanted: &mut [(usize, &mut [u8])],
) -> Result<(), TooManyLost> {
    rebuild_at(best(), data_count, present, wanted)
}

/// Does the same as [`rebuild`], with a chosen instruction set; see [`encode_at`].
///
/// # Errors
/// The errors of [`rebuild`].
///
/// # Panics
/// Like [`rebuild`].
pub fn rebuild_at(
    level: InstructionSet,
    data_count: usize,
    present: &[Option<&[u8]>],
    wanted: &mut [(usize, &mut [u8])],
) -> Result<(), TooManyLost> {
    let parity_count = present.len().checked_sub(data_count).expect("all data shards are listed");
    assert!(parity_count <= MAX_PARITY, "at most {MAX_PARITY} parity shards");
    assert!(data_count <= max_data(parity_count), "too many data shards for the parity");
    assert!(wanted.iter().all(|(index, _)| *index < present.len()), "a wanted shard is of the row");

    let here: Vec<bool> = present.iter().map(Option::is_some).collect();
    let recovery = Recovery::new(data_count, &here)?;
    let mut wanted: Vec<_> = wanted.iter_mut().map(|(index, out)| (*index, &mut **out)).collect();
    wanted.sort_by_key(|(_, out)| out.len());
    // Shards of one length are computed together, each source being read once for all of them.
    for alike in wanted.chunk_by_mut(|(_, a), (_, b)| a.len() == b.len()) {
        for together in alike.chunks_mut(MAX_PARITY) {
            let (indices, mut outs): (Vec<_>, Vec<_>) =
                together.iter_mut().map(|(index, out)| (*index, &mut **out)).unzip();
            rebuild_alike(level, &recovery, present, &indices, &mut outs);
        }
    }
    Ok(())
}

/// Adds data shards to existing parity shards: P += D_i, Q += 2^i * D_i, and so on.
///
/// `sources` contains pairs `(i, bytes)`; `parity` contains pairs `(row, bytes)`, where row 0 is P
/// and row 1 is Q. Other rows are not changed. Addition is also subtraction: when shards change,
/// the parity is updated by adding their old bytes and their new bytes. The old and the new bytes
/// can be added in one call, or in two calls if the parity of only the unchanged shards is needed.
/// All slices must have the same length.
///
/// # Panics
/// Panics if slices differ in length, if a row is not below [`MAX_PARITY`], or if the number of a
/// data shard is beyond [`max_data`].
pub fn update(sources: &[(usize, &[u8])], parity: &mut [(usize, &mut [u8])]) {
    update_at(best(), sources, parity);
}

/// Does the same as [`update`], with a chosen instruction set; see [`encode_at`].
///
/// # Panics
/// Like [`update`].
pub(crate) fn update_at(
    level: InstructionSet,
    sources: &[(usize, &[u8])],
    parity: &mut [(usize, &mut [u8])],
) {
    let Some((_, first)) = parity.first() else { return };
    let len = first.len();
    let equal = parity.iter().all(|(_, shard)| shard.len() == len);
    assert!(equal && sources.iter().all(|(_, shard)| shard.len() == len), "all are equally long");
    let rows = parity.iter().map(|(row, _)| row + 1).max().unwrap_or(0);
    assert!(rows <= MAX_PARITY && parity.len() <= MAX_PARITY, "at most {MAX_PARITY} parity shards");
    assert!(sources.iter().all(|(data, _)| *data < max_data(rows)), "too many data shards");
    if let [(0, p)] = parity {
        for (_, source) in sources {
            level.run(&mut XorInto { target: p, source }, 0..len);
        }
        return;
    }
    // On the stack: this is done for every few KiB that are written.
    for sources in sources.chunks(UPDATE_TERMS) {
        let mut terms = [Term { source: &[], factors: [0; _] }; UPDATE_TERMS];
        for (term, (data, source)) in terms.iter_mut().zip(sources) {
            term.source = source;
            for (factor, (row, _)) in term.factors.iter_mut().zip(parity.iter()) {
                *factor = coefficient(*row, *data);
            }
        }
        add_alike(level, &terms[..sources.len()], parity);
    }
}

/// The number of shards that [`update`] adds in one pass.
const UPDATE_TERMS: usize = 8;

fn add_alike(level: InstructionSet, terms: &[Term], parity: &mut [(usize, &mut [u8])]) {
    let len = parity.first().map_or(0, |(_, shard)| shard.len());
    match parity {
        [(_, a)] => level.run(&mut AddInto { terms, outs: [a] }, 0..len),
        [(_, a), (_, b)] => level.run(&mut AddInto { terms, outs: [a, b] }, 0..len),
        [(_, a), (_, b), (_, c)] => level.run(&mut AddInto { terms, outs: [a, b, c] }, 0..len),
        [(_, a), (_, b), (_, c), (_, d)] => {
            level.run(&mut AddInto { terms, outs: [a, b, c, d] }, 0..len);
        }
        _ => unreachable!("callers pass 1..=MAX_PARITY outputs"),
    }
}

/// Adds (XORs) `source` to the beginning of `target`.
///
/// # Panics
/// Panics if the source is longer than the target.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    assert!(source.len() <= target.len(), "the source fits in the target");
    best().run(&mut XorInto { target, source }, 0..source.len());
}

/// Rebuilds at most [`MAX_PARITY`] shards of equal length.
fn rebuild_alike(
    level: InstructionSet,
    recovery: &Recovery,
    present: &[Option<&[u8]>],
    indices: &[usize],
    outs: &mut [&mut [u8]],
) {
    let mut terms = Vec::with_capacity(present.len());
    for (shard, source) in present.iter().enumerate() {
        let Some(source) = source else { continue };
        let mut factors: Factors = [0; _];
        for (factor, &wanted) in factors.iter_mut().zip(indices) {
            *factor = recovery.factor(wanted, shard);
        }
        if factors != [0; _] {
            terms.push(Term { source, factors });
        }
    }
    match outs {
        [out] if terms.iter().all(|term| term.factors[0] == 1) => {
            let sources: Vec<_> = terms.iter().map(|term| term.source).collect();
            xor_at(level, &sources, out);
        }
        _ => combine_at(level, terms, outs),
    }
}

fn coefficient_or_zero(row: usize, rows: usize, data: usize) -> u8 {
    if row < rows { coefficient(row, data) } else { 0 }
}

fn xor_at(level: InstructionSet, sources: &[&[u8]], out: &mut [u8]) {
    if !sources.is_sorted_by(|a, b| a.len() >= b.len()) {
        let mut sorted = sources.to_vec();
        sorted.sort_by_key(|source| Reverse(source.len()));
        return xor_at(level, &sorted, out);
    }
    zero_beyond(sources.first(), out);
    let len = out.len();
    let mut kernel = Xor { sources, out };
    for (sources, span) in prefixes(sources, len, |source| source.len()) {
        kernel.sources = sources;
        level.run(&mut kernel, span);
    }
}

/// Requires that the lengths of the sources do not increase; the sources that end early are then
/// always those of the highest powers.
fn pq_at(level: InstructionSet, sources: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    zero_beyond(sources.first(), p);
    zero_beyond(sources.first(), q);
    let len = p.len();
    let mut kernel = Pq { sources, p, q };
    for (sources, span) in prefixes(sources, len, |source| source.len()) {
        kernel.sources = sources;
        level.run(&mut kernel, span);
    }
}

/// Requires that all outputs have the same length, and that there are at most [`MAX_PARITY`].
fn combine_at(level: InstructionSet, mut terms: Vec<Term>, outs: &mut [&mut [u8]]) {
    terms.sort_by_key(|term| Reverse(term.source.len()));
    outs.iter_mut().for_each(|out| zero_beyond(terms.first().map(|term| &term.source), out));
    match outs {
        [a] => combine_sorted(level, &terms, [a]),
        [a, b] => combine_sorted(level, &terms, [a, b]),
        [a, b, c] => combine_sorted(level, &terms, [a, b, c]),
        [a, b, c, d] => combine_sorted(level, &terms, [a, b, c, d]),
        _ => unreachable!("callers pass 1..=MAX_PARITY outputs"),
    }
}

fn combine_sorted<const OUTS: usize>(
    level: InstructionSet,
    terms: &[Term],
    outs: [&mut &mut [u8]; OUTS],
) {
    let outs = outs.map(|out| &mut **out);
    let len = outs.first().map_or(0, |out| out.len());
    let mut kernel = Combine { terms, outs };
    for (terms, span) in prefixes(terms, len, |term| term.source.len()) {
        kernel.terms = terms;
        level.run(&mut kernel, span);
    }
}

/// Sets the bytes beyond the longest source to zero.
fn zero_beyond(longest: Option<&&[u8]>, out: &mut [u8]) {
    let reached = longest.map_or(0, |source| source.len()).min(out.len());
    out[reached..].fill(0);
}

/// Divides `0..len` at the ends of the sources, which are sorted from the longest to the shortest:
/// returns each span with the sources that cover it.
fn prefixes<T>(
    sources: &[T],
    len: usize,
    length: impl Fn(&T) -> usize,
) -> impl Iterator<Item = (&[T], Range<usize>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let covering = sources.partition_point(|source| length(source) > start);
        let end = length(sources[..covering].last()?).min(len);
        let span = start..end;
        start = end;
        (!span.is_empty()).then_some((&sources[..covering], span))
    })
}
