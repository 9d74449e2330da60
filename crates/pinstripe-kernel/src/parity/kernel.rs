//! The four sums as kernels: each is a short step over vectors of any width, plus its plain
//! version.
//!
//! A [`Kernel`] defines *what* is computed at an offset; [`Lanes`] defines how one instruction set
//! loads, stores and multiplies bytes; [`sweep`] iterates over a span of offsets. So an instruction
//! set needs only one implementation of `Lanes`, and no kernel is written twice.
//!
//! Every generic function in this module is `inline(always)`, so it is compiled with the target
//! features of the function that calls [`sweep`]; each instruction set has one such function.

use super::{MAX_PARITY, scalar};
use std::ops::Range;

/// A vector register of bytes; each byte is an element of GF(2^8).
pub(super) trait Lanes: Copy {
    /// Width.
    const BYTES: usize;
    /// A constant factor, prepared for multiplication.
    type Factor: Copy;

    /// # Safety
    /// The caller ensures that `BYTES` bytes can be read at `from`, and that the processor has the
    /// features of the instruction set, as for all functions below.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// The caller ensures that `BYTES` bytes can be written at `to`.
    unsafe fn store(self, to: *mut u8);
    /// Stores and bypasses the caches if the processor can.
    /// # Safety
    /// The requirements of `store`, and `to` must be a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8);
    /// # Safety
    /// The processor must have the features of the instruction set.
    unsafe fn xor(self, other: Self) -> Self;
    /// # Safety
    /// The processor must have the features of the instruction set.
    unsafe fn double(self) -> Self;
    /// # Safety
    /// The processor must have the features of the instruction set.
    unsafe fn factor(factor: u8) -> Self::Factor;
    /// # Safety
    /// The processor must have the features of the instruction set.
    unsafe fn times(self, factor: Self::Factor) -> Self;
}

/// A kernel that computes one of the sums.
///
/// # Safety
/// `step` must only access offsets `0..bound()` of its slices if `at + N * V::BYTES <= bound()`.
pub(super) unsafe trait Kernel {
    /// Offsets below this bound are within every slice, of sources and outputs. Without sources the
    /// bound is 0.
    fn bound(&self) -> usize;
    /// The number of slices that are read or written.
    fn slices(&self) -> usize;
    /// The address of the outputs modulo 64, if it is equal for all of them and stores may bypass
    /// the caches.
    fn phase(&self) -> Option<usize>;
    /// Computes `span` with safe code.
    fn plain(&mut self, span: Range<usize>);
    /// Computes `N` vectors of every output at offset `at`.
    ///
    /// # Safety
    /// Requires that `at + N * V::BYTES <= bound()`, and that the processor has the features of
    /// `V`; with `STREAM` set, `phase` must be known and `phase + at` must be a multiple of 64.
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize);
}

/// Processes `span` in steps and returns where it stopped, which is less than a vector before the
/// end of `span`.
///
/// # Safety
/// The requirements of [`Kernel::step`] for every offset of `span`.
#[inline(always)]
pub(super) unsafe fn sweep<V: Lanes, K: Kernel, const STREAM: bool>(
    kernel: &mut K,
    span: Range<usize>,
) -> usize {
    let mut at = span.start;
    while span.end - at >= 4 * V::BYTES {
        // SAFETY: four vectors at `at` end within the span, the rest the caller promised.
        unsafe { kernel.step::<V, 4, STREAM>(at) };
        at += 4 * V::BYTES;
    }
    while span.end - at >= V::BYTES {
        // SAFETY: one vector at `at` ends within the span, the rest the caller promised.
        unsafe { kernel.step::<V, 1, STREAM>(at) };
        at += V::BYTES;
    }
    at
}

/// Computes `out` = sum of the sources.
pub(super) struct Xor<'a> {
    pub sources: &'a [&'a [u8]],
    pub out: &'a mut [u8],
}

// SAFETY: `bound` is the shortest slice; `step` touches N vectors at `at` of each and no more.
unsafe impl Kernel for Xor<'_> {
    fn bound(&self) -> usize {
        shortest(self.sources).min(self.out.len())
    }

    fn slices(&self) -> usize {
        self.sources.len() + 1
    }

    fn phase(&self) -> Option<usize> {
        Some(phase(self.out))
    }

    fn plain(&mut self, span: Range<usize>) {
        scalar::xor(self.sources, self.out, span);
    }

    #[inline(always)]
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize) {
        let Some((first, rest)) = self.sources.split_first() else { return };
        // SAFETY: the caller keeps N vectors at `at` within every slice.
        unsafe {
            let mut sum = load::<V, N>(first.as_ptr().add(at));
            for source in rest {
                let data = load::<V, N>(source.as_ptr().add(at));
                for n in 0..N {
                    sum[n] = sum[n].xor(data[n]);
                }
            }
            put::<V, N, STREAM>(sum, self.out.as_mut_ptr().add(at));
        }
    }
}

/// Computes `p` = sum of the sources and `q` = sum of 2^index * source, in one pass by Horner's
/// rule.
pub(super) struct Pq<'a> {
    pub sources: &'a [&'a [u8]],
    pub p: &'a mut [u8],
    pub q: &'a mut [u8],
}

// SAFETY: `bound` is the shortest slice; `step` touches N vectors at `at` of each and no more.
unsafe impl Kernel for Pq<'_> {
    fn bound(&self) -> usize {
        shortest(self.sources).min(self.p.len()).min(self.q.len())
    }

    fn slices(&self) -> usize {
        self.sources.len() + 2
    }

    fn phase(&self) -> Option<usize> {
        Some(phase(self.p)).filter(|&p| p == phase(self.q))
    }

    fn plain(&mut self, span: Range<usize>) {
        scalar::pq(self.sources, self.p, self.q, span);
    }

    #[inline(always)]
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize) {
        let Some((last, rest)) = self.sources.split_last() else { return };
        // SAFETY: the caller keeps N vectors at `at` within every slice.
        unsafe {
            let mut p = load::<V, N>(last.as_ptr().add(at));
            let mut q = p;
            for source in rest.iter().rev() {
                let data = load::<V, N>(source.as_ptr().add(at));
                for n in 0..N {
                    p[n] = p[n].xor(data[n]);
                    q[n] = q[n].double().xor(data[n]);
                }
            }
            put::<V, N, STREAM>(p, self.p.as_mut_ptr().add(at));
            put::<V, N, STREAM>(q, self.q.as_mut_ptr().add(at));
        }
    }
}

/// A source with its coefficient in each output.
#[derive(Clone, Copy)]
pub(super) struct Term<'a> {
    pub source: &'a [u8],
    pub factors: [u8; MAX_PARITY],
}

/// The length of the shortest slice, of sources and outputs, in bytes.
fn shortest_term(terms: &[Term<'_>], outs: &[&mut [u8]]) -> usize {
    let sources = terms.iter().map(|term| term.source.len());
    sources.chain(outs.iter().map(|out| out.len())).min().unwrap_or(0)
}

/// Computes `sums[n] ^=` sum of `factors[n] * source`, for N vectors at `at`.
///
/// # Safety
/// Requires that N vectors at `at` are within every source, and that the processor can run V.
#[inline(always)]
unsafe fn add_terms<V: Lanes, const N: usize, const OUTS: usize>(
    terms: &[Term<'_>],
    sums: &mut [[V; N]; OUTS],
    at: usize,
) {
    for term in terms {
        // SAFETY: as the caller promises.
        unsafe {
            let data = load::<V, N>(term.source.as_ptr().add(at));
            for (o, sum) in sums.iter_mut().enumerate() {
                let factor = V::factor(term.factors[o]);
                for n in 0..N {
                    sum[n] = sum[n].xor(data[n].times(factor));
                }
            }
        }
    }
}

/// Computes `outs[n]` = sum of `factors[n] * source`.
pub(super) struct Combine<'a, const OUTS: usize> {
    pub terms: &'a [Term<'a>],
    pub outs: [&'a mut [u8]; OUTS],
}

// SAFETY: `bound` is the shortest slice; `step` touches N vectors at `at` of each and no more.
unsafe impl<const OUTS: usize> Kernel for Combine<'_, OUTS> {
    fn bound(&self) -> usize {
        shortest_term(self.terms, &self.outs)
    }

    fn slices(&self) -> usize {
        self.terms.len() + OUTS
    }

    fn phase(&self) -> Option<usize> {
        let first = phase(self.outs.first()?);
        self.outs.iter().all(|out| phase(out) == first).then_some(first)
    }

    fn plain(&mut self, span: Range<usize>) {
        scalar::combine(self.terms, &mut self.outs, span);
    }

    #[inline(always)]
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize) {
        let Some((first, rest)) = self.terms.split_first() else { return };
        // SAFETY: the caller keeps N vectors at `at` within every slice.
        unsafe {
            let data = load::<V, N>(first.source.as_ptr().add(at));
            let mut sums = [data; OUTS];
            for (o, sum) in sums.iter_mut().enumerate() {
                let factor = V::factor(first.factors[o]);
                for lanes in sum {
                    *lanes = lanes.times(factor);
                }
            }
            add_terms::<V, N, OUTS>(rest, &mut sums, at);
            for (sum, out) in sums.into_iter().zip(&mut self.outs) {
                put::<V, N, STREAM>(sum, out.as_mut_ptr().add(at));
            }
        }
    }
}

/// Computes `outs[n] ^=` sum of `factors[n] * source`.
pub(super) struct AddInto<'a, const OUTS: usize> {
    pub terms: &'a [Term<'a>],
    pub outs: [&'a mut [u8]; OUTS],
}

// SAFETY: `bound` is the shortest slice; `step` touches N vectors at `at` of each and no more.
unsafe impl<const OUTS: usize> Kernel for AddInto<'_, OUTS> {
    fn bound(&self) -> usize {
        shortest_term(self.terms, &self.outs)
    }

    fn slices(&self) -> usize {
        self.terms.len() + OUTS
    }

    /// Returns `None`: the outputs have just been read into the caches, so bypassing the caches
    /// gains nothing.
    fn phase(&self) -> Option<usize> {
        None
    }

    fn plain(&mut self, span: Range<usize>) {
        scalar::add_into(self.terms, &mut self.outs, span);
    }

    #[inline(always)]
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize) {
        let Some(first) = self.outs.first() else { return };
        // SAFETY: the caller keeps N vectors at `at` within every slice.
        unsafe {
            let mut sums = [load::<V, N>(first.as_ptr().add(at)); OUTS];
            for (sum, out) in sums.iter_mut().zip(&self.outs).skip(1) {
                *sum = load::<V, N>(out.as_ptr().add(at));
            }
            add_terms::<V, N, OUTS>(self.terms, &mut sums, at);
            for (sum, out) in sums.into_iter().zip(&mut self.outs) {
                put::<V, N, STREAM>(sum, out.as_mut_ptr().add(at));
            }
        }
    }
}

/// `target ^= source`.
pub(super) struct XorInto<'a> {
    pub target: &'a mut [u8],
    pub source: &'a [u8],
}

// SAFETY: `bound` is the shortest slice; `step` touches N vectors at `at` of each and no more.
unsafe impl Kernel for XorInto<'_> {
    fn bound(&self) -> usize {
        self.target.len().min(self.source.len())
    }

    fn slices(&self) -> usize {
        2
    }

    /// Returns `None`: the target has just been read into the caches, so bypassing the caches gains
    /// nothing.
    fn phase(&self) -> Option<usize> {
        None
    }

    fn plain(&mut self, span: Range<usize>) {
        scalar::xor_into(self.target, self.source, span);
    }

    #[inline(always)]
    unsafe fn step<V: Lanes, const N: usize, const STREAM: bool>(&mut self, at: usize) {
        // SAFETY: the caller keeps N vectors at `at` within both slices.
        unsafe {
            let to = self.target.as_mut_ptr().add(at);
            let mut sum = load::<V, N>(to);
            let data = load::<V, N>(self.source.as_ptr().add(at));
            for n in 0..N {
                sum[n] = sum[n].xor(data[n]);
            }
            put::<V, N, STREAM>(sum, to);
        }
    }
}

/// # Safety
/// Requires that `N * V::BYTES` bytes can be read at `from`.
#[inline(always)]
unsafe fn load<V: Lanes, const N: usize>(from: *const u8) -> [V; N] {
    // SAFETY: the caller promised all N vectors.
    unsafe {
        let mut lanes = [V::load(from); N];
        for (n, lane) in lanes.iter_mut().enumerate().skip(1) {
            *lane = V::load(from.add(n * V::BYTES));
        }
        lanes
    }
}

/// # Safety
/// Requires that `N * V::BYTES` bytes can be written at `to`, which must be a multiple of 64 with
/// `STREAM` set.
#[inline(always)]
unsafe fn put<V: Lanes, const N: usize, const STREAM: bool>(lanes: [V; N], to: *mut u8) {
    for (n, lane) in lanes.into_iter().enumerate() {
        // SAFETY: the caller promised all N vectors and, for streaming, the alignment.
        unsafe {
            match STREAM {
                true => lane.stream(to.add(n * V::BYTES)),
                false => lane.store(to.add(n * V::BYTES)),
            }
        }
    }
}

/// Returns the length of the shortest slice; 0 without slices.
fn shortest(slices: &[&[u8]]) -> usize {
    slices.iter().map(|slice| slice.len()).min().unwrap_or(0)
}

fn phase(slice: &[u8]) -> usize {
    slice.as_ptr().addr() % 64
}
