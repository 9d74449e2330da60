//! The parity code: the coefficient of every data shard in every parity row, and how lost shards
//! are computed from the present ones. The module only computes with single bytes; it does not
//! process shards.
//!
//! Row 0 of the matrix is P; all its coefficients are one. The coefficient of row r > 0 at data
//! index i is proportional to 1 / (2^-i + y), where y is 0 for Q (which gives 2^i, as in Linux md)
//! and 2, 4 for the rows after it; it is scaled so that every row begins with 1. Without the row P,
//! the matrix is a Cauchy matrix. A Cauchy matrix with an added row of ones still has the property
//! that every square submatrix can be inverted: **any** data shards can be recovered from **any**
//! parity rows of the same number, as long as no 2^-i equals a y, which [`max_data`] ensures.

use super::{MAX_PARITY, TooManyLost, gf256};

/// The y of each row; row 0 has none.
const Y: [u8; MAX_PARITY] = [0, 0, 2, 4];

/// A coefficient for each output, or for each equation, up to the greatest possible number.
pub(super) type Factors = [u8; MAX_PARITY];

/// Returns the most data shards for this number of parity shards.
pub const fn max_data(parity_count: usize) -> usize {
    match parity_count {
        0 | 1 => usize::MAX,
        2 => 255,
        // 2^-254 = 2 and 2^-253 = 4 are where a denominator would become zero.
        3 => 254,
        4 => 253,
        _ => 0,
    }
}

/// Returns the coefficient of data shard `data` in parity row `row`.
pub(super) fn coefficient(row: usize, data: usize) -> u8 {
    if row == 0 {
        return 1;
    }
    let reciprocal = gf256::inv(gf256::exp(255 - data % 255) ^ Y[row]);
    gf256::mul(1 ^ Y[row], reciprocal.expect("max_data keeps 2^-i from meeting y"))
}

/// Computes how the lost data shards of a row follow from the present shards.
pub(super) struct Recovery<'a> {
    data_count: usize,
    /// Whether each shard is present; the data shards come first.
    present: &'a [bool],
    /// The lost data shards, which are the unknowns.
    lost: Vec<usize>,
    /// The parity rows that are used as equations: as many as needed, the lowest rows first.
    rows: Vec<usize>,
    /// `inverse[a][b]` is the coefficient of equation `b` in unknown `a`.
    inverse: [Factors; MAX_PARITY],
}

impl<'a> Recovery<'a> {
    pub(super) fn new(data_count: usize, present: &'a [bool]) -> Result<Self, TooManyLost> {
        let (data, parity) = present.split_at(data_count);
        let lost: Vec<_> = (0..data_count).filter(|&n| !data[n]).collect();
        let rows: Vec<_> = (0..parity.len()).filter(|&n| parity[n]).take(lost.len()).collect();
        if rows.len() < lost.len() {
            let lost = present.iter().filter(|&&here| !here).count();
            return Err(TooManyLost { lost, parity: parity.len() });
        }
        let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
        for (equation, &row) in matrix.iter_mut().zip(&rows) {
            for (factor, &data) in equation.iter_mut().zip(&lost) {
                *factor = coefficient(row, data);
            }
        }
        let inverse = invert(matrix, lost.len());
        Ok(Recovery { data_count, present, lost, rows, inverse })
    }

    /// Returns the coefficient of the present shard `shard` in shard `wanted`.
    pub(super) fn factor(&self, wanted: usize, shard: usize) -> u8 {
        if self.present[wanted] {
            u8::from(wanted == shard)
        } else if wanted < self.data_count {
            let unknown = self.lost.iter().position(|&lost| lost == wanted);
            self.share(unknown.expect("a data shard that is not present is lost"), shard)
        } else {
            let row = wanted - self.data_count;
            let direct = if shard < self.data_count { coefficient(row, shard) } else { 0 };
            self.lost.iter().enumerate().fold(direct, |sum, (unknown, &data)| {
                sum ^ gf256::mul(coefficient(row, data), self.share(unknown, shard))
            })
        }
    }

    /// Returns the coefficient of the present shard `shard` in an unknown.
    fn share(&self, unknown: usize, shard: usize) -> u8 {
        self.rows.iter().zip(self.inverse[unknown]).fold(0, |sum, (&row, share)| {
            let in_equation = match shard.checked_sub(self.data_count) {
                Some(parity) => u8::from(parity == row),
                None => coefficient(row, shard),
            };
            sum ^ gf256::mul(share, in_equation)
        })
    }
}

/// Inverts the leading `size` x `size` part of the matrix by Gauss-Jordan elimination.
fn invert(mut matrix: [Factors; MAX_PARITY], size: usize) -> [Factors; MAX_PARITY] {
    let mut inverse = [[0; MAX_PARITY]; MAX_PARITY];
    (0..size).for_each(|n| inverse[n][n] = 1);
    for pivot in 0..size {
        let found = (pivot..size).find(|&row| matrix[row][pivot] != 0);
        let found = found.expect("every square part of the code can be inverted");
        matrix.swap(pivot, found);
        inverse.swap(pivot, found);
        let scale = gf256::inv(matrix[pivot][pivot]).expect("the pivot is not zero");
        for n in 0..size {
            matrix[pivot][n] = gf256::mul(matrix[pivot][n], scale);
            inverse[pivot][n] = gf256::mul(inverse[pivot][n], scale);
        }
        for row in (0..size).filter(|&row| row != pivot) {
            let share = matrix[row][pivot];
            for n in 0..size {
                matrix[row][n] ^= gf256::mul(share, matrix[pivot][n]);
                inverse[row][n] ^= gf256::mul(share, inverse[pivot][n]);
            }
        }
    }
    inverse
}
