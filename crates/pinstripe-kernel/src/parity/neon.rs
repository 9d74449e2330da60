//! The instruction set of aarch64: how NEON stores and multiplies bytes.
//!
//! A product is two lookups in tables of sixteen entries. No intrinsic bypasses the caches when
//! storing; these processors recognize such streams of stores by themselves.

use super::gf256::NIBBLES;
use super::kernel::{Kernel, Lanes, sweep};
use std::arch::aarch64::*;
use std::ops::Range;

#[derive(Clone, Copy)]
struct Neon(uint8x16_t);

/// Computes the part of `span` that complete vectors cover; returns where the rest begins.
///
/// # Safety
/// Requires that the processor has NEON, and that `span` ends within the kernel's bound.
#[target_feature(enable = "neon")]
pub(super) unsafe fn neon<K: Kernel>(kernel: &mut K, span: Range<usize>, _stream: bool) -> usize {
    // SAFETY: promised by the caller.
    unsafe { sweep::<Neon, K, false>(kernel, span) }
}

impl Lanes for Neon {
    const BYTES: usize = 16;
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller promised the bytes and the feature.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller promised the bytes and the feature.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the same promises.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller promised the feature.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promised the feature.
        Self(unsafe {
            let overflowed = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            veorq_u8(vshlq_n_u8::<1>(self.0), vandq_u8(overflowed, vdupq_n_u8(0x1d)))
        })
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(factor)].as_ptr();
        // SAFETY: a table is 32 bytes; the caller promised the feature.
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller promised the feature.
        Self(unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0)))
        })
    }
}
