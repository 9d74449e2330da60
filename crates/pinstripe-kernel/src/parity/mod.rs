//! Parity over shards: encode and rebuild, at the speed of memory.
//!
//! A row of data shards `D0, D1 ..` gets up to [`MAX_PARITY`] parity shards, byte by byte in
//! GF(2^8) over 0x11d: `P = sum D_i`, `Q = sum 2^i * D_i`, exactly those of RAID-5 and RAID-6 in
//! Linux md, then two more rows of a Cauchy matrix. With m parity shards any m lost shards can be
//! rebuilt.
//!
//! Shards of one row may differ in length: bytes past a shard's end count as zero. So the last row
//! of a stripe set, which is cut, needs no padding.
//!
//! Every sum exists for every instruction set ([`InstructionSet`]) and is equal bit for bit in all; the best
//! one is chosen at run time. Results never depend on alignment, on length or on the level. Nothing
//! here knows where data comes from, keeps state, or fails on what the bytes are.

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

/// The most parity shards a row can have.
pub(crate) const MAX_PARITY: usize = 4;

/// More shards are lost than the parity that is left can bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyLost {
    /// Shards lost, data and parity.
    pub lost: usize,
    /// Parity shards the row was made with: the most that may be lost.
    pub parity: usize,
}

impl fmt::Display for TooManyLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shards are lost, but only {} can be rebuilt", self.lost, self.parity)
    }
}

impl std::error::Error for TooManyLost {}

/// Computes the parity shards of a row: P, then Q, then the further ones. With none, does nothing.
///
/// Data shards may be shorter than the parity shards, never longer.
///
/// # Panics
/// If the parity shards differ in length, a data shard is longer than they are, there are more than
/// [`MAX_PARITY`] of them, or more data shards than [`max_data`] allows with them.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    encode_at(best(), data, parity);
}

/// Like [`encode`], on a chosen level. A level that this processor cannot run gives way to the plain
/// one, whose result is the same.
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
/// `present` holds the `data_count` data shards, then the parity shards, `None` where one is lost;
/// a present shard may be shorter than the longest. `wanted` names shards by that index, each with
/// where its bytes go: as many from its start as the slice is long. The wanted shards may be some
/// of the lost ones or all of them; one that is present is copied.
///
/// # Errors
/// [`TooManyLost`] if more data shards are lost than parity shards are left. Then nothing is
/// written.
///
/// # Panics
/// If `present` is shorter than `data_count` or longer than that and [`MAX_PARITY`], if there are
/// more data shards than [`max_data`] allows, or if a wanted index is beyond the end of `present`.
pub fn rebuild(
    data_count: usize,
    present: &[Option<&[u8]>],
    wanted: &mut [(usize, &mut [u8])],
) -> Result<(), TooManyLost> {
    rebuild_at(best(), data_count, present, wanted)
}

/// Like [`rebuild`], on a chosen level; see [`encode_at`].
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
/// `sources` are `(i, bytes)`, `parity` are `(row, bytes)` with row 0 for P and 1 for Q; other rows
/// are not touched. Adding is also subtracting: parity follows a change of some shards when their
/// old bytes are added, and then their new bytes. Both can be in one call, or in two where the
/// parity of the unchanged shards is of use. All slices are equally long.
///
/// # Panics
/// If slices differ in length, a row is not below [`MAX_PARITY`], or a data shard's number is
/// beyond [`max_data`].
pub fn update(sources: &[(usize, &[u8])], parity: &mut [(usize, &mut [u8])]) {
    update_at(best(), sources, parity);
}

/// Like [`update`], on a chosen level; see [`encode_at`].
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

/// The number of shards that [`update`] adds at once.
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
/// If the source is longer than the target.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    assert!(source.len() <= target.len(), "the source fits in the target");
    best().run(&mut XorInto { target, source }, 0..source.len());
}

/// Rebuilds at most [`MAX_PARITY`] shards of one length.
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

/// The sources must not grow in length: what ends early is then always the highest powers.
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

/// All outputs are equally long, and at most [`MAX_PARITY`].
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

/// Sets to zero what no source reaches.
fn zero_beyond(longest: Option<&&[u8]>, out: &mut [u8]) {
    let reached = longest.map_or(0, |source| source.len()).min(out.len());
    out[reached..].fill(0);
}

/// Cuts `0..len` where sources, longest first, end: each span with the sources that cover it.
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
