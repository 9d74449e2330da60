//! An object that is read in laps: each lap reads every nth record to the end of the object, and
//! the next lap begins one record later, as when the columns of a matrix are read that is stored
//! row by row.

use std::ops::Range;

/// The records of an object in the order of laps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Laps {
    /// The beginning of the first lap.
    pub(super) origin: u64,
    /// Bytes from the beginning of a record to that of the next record in the same lap.
    pub(super) stride: u64,
    /// Bytes of a record, which is also the distance between the beginnings of two laps.
    pub(super) record: u64,
    /// Bytes of the object.
    pub(super) object: u64,
}

impl Laps {
    /// The number of laps until all records were read.
    fn count(&self) -> u64 {
        self.stride / self.record
    }

    /// The number of records in a short lap, and the number of laps at the beginning that have one
    /// record more.
    fn lengths(&self) -> (u64, u64) {
        let bytes = self.object - self.origin;
        let longer = (bytes % self.stride).div_ceil(self.record);
        (bytes / self.stride, longer.min(self.count()))
    }

    /// The number of the record that contains an offset, counted from 0 over all laps.
    pub(super) fn number(&self, at: u64) -> Option<i64> {
        let distance = at.checked_sub(self.origin).filter(|_| at < self.object)?;
        let (row, lap) = (distance / self.stride, distance % self.stride / self.record);
        let (short, longer) = self.lengths();
        (lap < self.count()).then(|| (lap * short + lap.min(longer) + row) as i64)
    }

    /// The bytes of a record; `None` if the record would be after the last lap.
    pub(super) fn range(&self, number: i64) -> Option<Range<u64>> {
        let number = u64::try_from(number).ok()?;
        let (short, longer) = self.lengths();
        let in_longer = longer * (short + 1);
        let (lap, row) = match number.checked_sub(in_longer) {
            None => (number / (short + 1), number % (short + 1)),
            Some(_) if short == 0 => return None,
            Some(rest) => (longer + rest / short, rest % short),
        };
        let start = self.origin + row * self.stride + lap * self.record;
        (lap < self.count()).then(|| start..(start + self.record).min(self.object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record once, in the order in which they are counted, whatever the lengths.
    #[test]
    fn numbers_and_places_are_each_others_inverse() {
        for (origin, stride, record, object) in [
            (0, 17, 1, 1024),
            (0, 17, 1, 17 * 60),
            (0, 170, 10, 5_003),
            (40, 170, 10, 5_003),
            (5, 175, 10, 5_003),
            (0, 100, 10, 55),
        ] {
            let laps = Laps { origin, stride, record, object };
            let mut reads = Vec::new();
            for lap in 0..stride / record {
                let first = origin + lap * record;
                reads.extend((first..object).step_by(stride as usize));
            }
            for (number, &start) in reads.iter().enumerate() {
                let range = start..(start + record).min(object);
                assert_eq!(laps.range(number as i64), Some(range.clone()), "{laps:?}, {number}");
                for at in [range.start, range.end - 1] {
                    assert_eq!(laps.number(at), Some(number as i64), "{laps:?} at {at}");
                }
            }
            assert_eq!(laps.range(reads.len() as i64), None, "{laps:?}");
            assert_eq!((laps.range(-1), laps.number(object)), (None, None));
            assert_eq!(origin.checked_sub(1).and_then(|before| laps.number(before)), None);
        }
        // Between the last lap and the next row there may be less than a record.
        let laps = Laps { origin: 0, stride: 175, record: 10, object: 5_003 };
        assert_eq!(laps.number(172), None);
    }
}
