//! The instruction set in use, and the only entry point to its kernels.

use super::kernel::Kernel;
#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::x86;
use std::fmt;
use std::ops::Range;

/// An instruction set that the kernels are written for. The results of all instruction sets are
/// equal, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// Plain 64-bit words; works on every processor.
    Scalar,
    /// x86-64: vectors of 16 bytes, products by shuffle.
    Ssse3,
    /// x86-64: vectors of 32 bytes, products by shuffle.
    Avx2,
    /// x86-64: vectors of 32 bytes, products by bit matrix.
    Avx2Gfni,
    /// x86-64: vectors of 64 bytes, products by bit matrix. This instruction set needs AVX-512 F
    /// and BW.
    Avx512Gfni,
    /// aarch64: vectors of 16 bytes, products by table look-up.
    Neon,
}

/// The instruction sets that this processor supports, slowest first. Never empty.
pub fn levels() -> Vec<InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|level| level.runs_here()).collect()
}

/// The fastest instruction set that this processor supports.
pub fn best() -> InstructionSet {
    InstructionSet::ALL
        .into_iter()
        .rfind(|level| level.runs_here())
        .unwrap_or(InstructionSet::Scalar)
}

impl InstructionSet {
    /// All instruction sets of all architectures; those of one architecture are ordered from slow
    /// to fast.
    pub const ALL: [InstructionSet; 6] = [
        InstructionSet::Scalar,
        InstructionSet::Ssse3,
        InstructionSet::Avx2,
        InstructionSet::Avx2Gfni,
        InstructionSet::Avx512Gfni,
        InstructionSet::Neon,
    ];

    /// Whether this processor supports the instruction set. The standard library queries the
    /// processor only once.
    pub(crate) fn runs_here(self) -> bool {
        match self {
            InstructionSet::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2Gfni => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni")
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512Gfni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(
                unreachable_patterns,
                reason = "these instruction set levels belong to other architectures"
            )]
            _ => false,
        }
    }

    /// Computes `span` of every output of the kernel.
    ///
    /// If this processor does not support the instruction set, [`InstructionSet::Scalar`] is used.
    ///
    /// # Panics
    /// Panics if `span` ends beyond the kernel's bound.
    pub(super) fn run<K: Kernel>(self, kernel: &mut K, span: Range<usize>) {
        assert!(
            span.start <= span.end && span.end <= kernel.bound(),
            "all slices contain the span"
        );
        if self == InstructionSet::Scalar || !self.runs_here() {
            return kernel.plain(span);
        }
        let start = stream_start(kernel, &span);
        kernel.plain(span.start..start.unwrap_or(span.start));
        let rest = start.unwrap_or(span.start)..span.end;
        // SAFETY: the processor runs this level, the span ends within the kernel's bound, and
        // `stream_start` gives only offsets where the outputs are aligned to 64.
        let done = unsafe { self.sweep(kernel, rest, start.is_some()) };
        kernel.plain(done..span.end);
    }

    /// # Safety
    /// Requires that this processor supports the instruction set, and that `span` ends within the
    /// kernel's bound; with `stream` set, the kernel's outputs must be aligned to 64 at the start
    /// of `span`.
    unsafe fn sweep<K: Kernel>(self, kernel: &mut K, span: Range<usize>, stream: bool) -> usize {
        // SAFETY: the caller's promises are those of every level's function.
        #[cfg(target_arch = "x86_64")]
        return unsafe {
            match self {
                InstructionSet::Ssse3 => x86::ssse3(kernel, span, stream),
                InstructionSet::Avx2 => x86::avx2(kernel, span, stream),
                InstructionSet::Avx2Gfni => x86::avx2_gfni(kernel, span, stream),
                InstructionSet::Avx512Gfni => x86::avx512_gfni(kernel, span, stream),
                InstructionSet::Scalar | InstructionSet::Neon => span.start,
            }
        };
        // SAFETY: the same.
        #[cfg(target_arch = "aarch64")]
        return unsafe {
            match self {
                InstructionSet::Neon => neon::neon(kernel, span, stream),
                _ => span.start,
            }
        };
    }
}

/// The offset from which stores bypass the caches; `None` if all stores use the caches.
///
/// A result that does not fit in the caches would only evict other data from them, and stores that
/// bypass the caches need not read every cache line before it is overwritten. For a result that
/// fits in the caches, bypassing them costs far more than it saves.
fn stream_start<K: Kernel>(kernel: &K, span: &Range<usize>) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let fits_bytes = x86::cache_bytes();
    #[cfg(not(target_arch = "x86_64"))]
    let fits_bytes = usize::MAX;
    if span.len().saturating_mul(kernel.slices()) <= fits_bytes {
        return None;
    }
    let misaligned = (kernel.phase()? + span.start) % 64;
    Some(span.start + (64 - misaligned) % 64)
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstructionSet::Scalar => "scalar",
            InstructionSet::Ssse3 => "ssse3",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx2Gfni => "avx2+gfni",
            InstructionSet::Avx512Gfni => "avx512+gfni",
            InstructionSet::Neon => "neon",
        })
    }
}
