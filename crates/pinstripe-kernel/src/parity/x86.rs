//! The instruction sets of x86-64: how SSSE3, AVX2, GFNI and AVX-512 store and multiply bytes.
//!
//! GFNI's own product is in another field (0x11b), so products use its bit matrix instruction
//! instead, which works for any field. Without GFNI, a product is two shuffles with tables of
//! sixteen entries.

use super::gf256::{MATRICES, NIBBLES};
use super::kernel::{Kernel, Lanes, sweep};
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::OnceLock;

#[derive(Clone, Copy)]
struct Ssse3(__m128i);
#[derive(Clone, Copy)]
struct Avx2(__m256i);
#[derive(Clone, Copy)]
struct Avx2Gfni(__m256i);
#[derive(Clone, Copy)]
struct Avx512Gfni(__m512i);

/// Defines the function of one instruction set, from its features and its lanes.
macro_rules! entry {
    ($name:ident, $lanes:ty, $features:literal) => {
        /// Computes the part of `span` that complete vectors cover; returns where the rest begins.
        ///
        /// # Safety
        /// Requires that the processor has the features, and that `span` ends within the kernel's
        /// bound; with `stream` set, the kernel's outputs must be aligned to 64 at the start of
        /// `span`.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<K: Kernel>(
            kernel: &mut K,
            span: Range<usize>,
            stream: bool,
        ) -> usize {
            // SAFETY: promised by the caller, feature by feature.
            unsafe {
                if stream {
                    let end = sweep::<$lanes, K, true>(kernel, span);
                    // Streamed stores are weakly ordered: let none pass what the caller does next.
                    _mm_sfence();
                    end
                } else {
                    sweep::<$lanes, K, false>(kernel, span)
                }
            }
        }
    };
}

entry!(ssse3, Ssse3, "ssse3");
entry!(avx2, Avx2, "avx2");
entry!(avx2_gfni, Avx2Gfni, "avx2,gfni");
entry!(avx512_gfni, Avx512Gfni, "avx512f,avx512bw,gfni");

/// Defines loads and stores, which are the same for every kind of lanes of one width.
macro_rules! moves {
    ($vector:ty, $load:ident, $store:ident, $stream:ident, $xor:ident) => {
        const BYTES: usize = size_of::<$vector>();

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller promised the bytes and the features.
            Self(unsafe { $load(from.cast()) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller promised the bytes and the features.
            unsafe { $store(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller promised the bytes, their alignment and the features.
            unsafe { $stream(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller promised the features.
            Self(unsafe { $xor(self.0, other.0) })
        }
    };
}

impl Lanes for Ssse3 {
    type Factor = (__m128i, __m128i);
    moves!(__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128, _mm_xor_si128);

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe {
            let overflowed = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
            let reduction = _mm_and_si128(overflowed, _mm_set1_epi8(0x1d));
            _mm_xor_si128(_mm_add_epi8(self.0, self.0), reduction)
        })
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLES[usize::from(factor)].as_ptr().cast();
        // SAFETY: a table is 32 bytes; the caller promised the features.
        unsafe { (_mm_loadu_si128(table), _mm_loadu_si128(table.add(1))) }
    }

    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe {
            let mask = _mm_set1_epi8(0x0f);
            let low = _mm_shuffle_epi8(low, _mm_and_si128(self.0, mask));
            let nibbles = _mm_and_si128(_mm_srli_epi16::<4>(self.0), mask);
            _mm_xor_si128(low, _mm_shuffle_epi8(high, nibbles))
        })
    }
}

impl Lanes for Avx2 {
    type Factor = (__m256i, __m256i);
    moves!(__m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm256_xor_si256);

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe {
            let overflowed = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(overflowed, _mm256_set1_epi8(0x1d));
            _mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction)
        })
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLES[usize::from(factor)].as_ptr().cast();
        // SAFETY: a table is 32 bytes; the caller promised the features.
        unsafe {
            let (low, high) = (_mm_loadu_si128(table), _mm_loadu_si128(table.add(1)));
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, mask));
            let nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), mask);
            _mm256_xor_si256(low, _mm256_shuffle_epi8(high, nibbles))
        })
    }
}

impl Lanes for Avx2Gfni {
    type Factor = __m256i;
    moves!(__m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm256_xor_si256);

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promised the features.
        unsafe { self.times(Self::factor(2)) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller promised the features.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(factor)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

impl Lanes for Avx512Gfni {
    type Factor = __m512i;
    moves!(__m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512, _mm512_xor_si512);

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promised the features.
        unsafe { self.times(Self::factor(2)) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller promised the features.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(factor)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller promised the features.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

/// The size of the largest cache that this processor reports, or a usual size if it reports none.
pub(super) fn cache_bytes() -> usize {
    const USUAL: usize = 32 << 20;
    static STATED: OnceLock<usize> = OnceLock::new();
    *STATED.get_or_init(|| {
        // The same description of caches, by Intel and by AMD. A leaf that does not exist states
        // no cache or an absurd one, hence the filter.
        let leaves = [0x4, 0x8000_001d].into_iter().flat_map(|leaf| (0..8).map(move |n| (leaf, n)));
        let stated = leaves.filter_map(|(leaf, n)| stated_bytes(leaf, n)).max();
        stated.filter(|bytes| (1 << 20..=4 << 30).contains(bytes)).unwrap_or(USUAL)
    })
}

/// The size of the `n`th cache that a CPUID leaf describes.
fn stated_bytes(leaf: u32, n: u32) -> Option<usize> {
    #[allow(unused_unsafe, reason = "this is unsafe only in the older of the supported compilers")]
    // SAFETY: every x86-64 processor has CPUID; a leaf beyond its range only yields other figures.
    let (highest, stated) = unsafe { (__cpuid(leaf & 0x8000_0000), __cpuid_count(leaf, n)) };
    let kind = stated.eax & 0x1f;
    if highest.eax < leaf || kind == 0 {
        return None;
    }
    let field = |register: u32, from: u32, bits: u32| (register >> from & ((1 << bits) - 1)) + 1;
    let ways = field(stated.ebx, 22, 10) as usize;
    let partitions = field(stated.ebx, 12, 10) as usize;
    let line = field(stated.ebx, 0, 12) as usize;
    Some(ways * partitions * line * (stated.ecx as usize + 1))
}
