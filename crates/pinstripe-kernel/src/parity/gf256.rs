//! Arithmetic in GF(2^8), the field of bytes that is used by Q and every further parity row.
//!
//! Elements are polynomials over GF(2) of degree below 8; bit `n` of the byte is the coefficient of
//! x^n. Addition is XOR. Products are reduced by x^8 + x^4 + x^3 + x^2 + 1 ([`POLYNOMIAL`]), as in
//! Linux md's RAID-6; with this polynomial, 2 generates every non-zero element.
//!
//! All tables are computed by `const fn` at compile time, so they are always consistent. This
//! module does not process slices of data; it is the plain reference for the kernels.

/// The reducing polynomial, including its x^8 term: 0x11d.
pub(crate) const POLYNOMIAL: u16 = 0x11d;

/// `EXP[n]` is 2^n. The table is twice as long as the order of the group, so that a sum of two
/// logarithms needs no modulus.
const EXP: [u8; 510] = exp_table();

/// `LOG[a]` is the n below 255 for which 2^n = a. `LOG[0]` has no meaning and is never read.
const LOG: [u8; 256] = log_table();

/// For every factor, the products with the low nibbles 0..16, then with the high nibbles (0x00,
/// 0x10 .. 0xf0): the tables that a byte shuffle needs to multiply.
pub(super) static NIBBLES: [[u8; 32]; 256] = nibble_tables();

/// For every factor, multiplication by it as an 8x8 bit matrix, in the form of `gf2p8affineqb`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "GFNI is an x86 extension"))]
pub(super) static MATRICES: [u64; 256] = matrices();

/// Returns `a * x`, the product with the generator.
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { (POLYNOMIAL & 0xff) as u8 }
}

/// Returns `2^power`; the power is taken modulo 255.
pub const fn exp(power: usize) -> u8 {
    EXP[power % 255]
}

/// `a * b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// Returns the `b` for which `a * b = 1`; `None` for zero, which has no inverse.
pub const fn inv(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(EXP[255 - LOG[a as usize] as usize]) }
}

const fn exp_table() -> [u8; 510] {
    let mut table = [1; 510];
    let mut n = 1;
    while n < table.len() {
        table[n] = double(table[n - 1]);
        n += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 255 {
        table[EXP[n] as usize] = n as u8;
        n += 1;
    }
    table
}

const fn nibble_tables() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][nibble] = mul(factor as u8, nibble as u8);
            tables[factor][16 + nibble] = mul(factor as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        factor += 1;
    }
    tables
}

/// Byte `7 - n` of a matrix selects the input bits whose sum is bit `n` of the product.
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut input = 0;
        while input < 8 {
            let column = mul(factor as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                let bit = (column >> output & 1) as u64;
                matrices[factor] |= bit << (8 * (7 - output) + input);
                output += 1;
            }
            input += 1;
        }
        factor += 1;
    }
    matrices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schoolbook product: shift, add, reduce.
    fn slow_mul(a: u8, b: u8) -> u8 {
        let mut product =
            (0..8).filter(|n| b >> n & 1 == 1).fold(0, |sum, n| sum ^ (a as u16) << n);
        for n in (8..15).rev() {
            if product >> n & 1 == 1 {
                product ^= POLYNOMIAL << (n - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_are_the_schoolbook_ones() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let product = slow_mul(a, b);
                assert_eq!(mul(a, b), product);
                let table = &NIBBLES[a as usize];
                assert_eq!(table[(b & 15) as usize] ^ table[16 + (b >> 4) as usize], product);
            }
            assert_eq!(double(a), slow_mul(a, 2));
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inv(0), None);
        for a in 1..=255u8 {
            assert_eq!(mul(a, inv(a).unwrap()), 1);
        }
    }

    #[test]
    fn two_generates_the_field() {
        let mut seen = [false; 256];
        (0..255).for_each(|n| seen[exp(n) as usize] = true);
        assert!(!seen[0] && seen[1..].iter().all(|&s| s));
        assert_eq!((exp(8), exp(255), exp(254)), (0x1d, 1, 0x8e));
    }

    #[test]
    fn matrices_multiply() {
        assert_eq!(MATRICES[2], 0x8001_8284_8810_2040);
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let bit = |n: u32| {
                    let row = (MATRICES[a as usize] >> (8 * (7 - n))) as u8;
                    ((row & b).count_ones() as u8 & 1) << n
                };
                assert_eq!((0..8).map(bit).sum::<u8>(), mul(a, b));
            }
        }
    }
}
