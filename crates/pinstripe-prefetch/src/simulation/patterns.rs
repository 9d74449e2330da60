//! Orders in which records are read.

/// A pseudorandom number generator (xorshift64, by George Marsaglia).
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A pseudorandom number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    fn shuffle(&mut self, records: &mut [u64]) {
        for at in (1..records.len()).rev() {
            records.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// An order of reads, with its name.
#[derive(Debug, Clone)]
pub struct ReadPattern {
    /// The name of the pattern in a table.
    pub name: &'static str,
    /// The records in the order in which they are read.
    pub records: Vec<u64>,
}

/// The patterns of the table, of `count` records each.
pub fn all(count: u64, seed: u64) -> Vec<ReadPattern> {
    let mut numbers = Numbers::new(seed);
    let far = 17 * count;
    let named = |name, records| ReadPattern { name, records };
    let mut random: Vec<u64> = (0..count).collect();
    numbers.shuffle(&mut random);
    let mut pairs: Vec<u64> = (0..count / 2).map(|pair| 2 * pair).collect();
    numbers.shuffle(&mut pairs);
    let mut runs: Vec<u64> = (0..count / 16).map(|run| 37 * run).collect();
    numbers.shuffle(&mut runs);
    let mut shuffled: Vec<u64> = (0..count).collect();
    shuffled.chunks_mut(4).for_each(|four| numbers.shuffle(four));
    let lost_seeks = |numbers: &mut Numbers| {
        let mut at = 0;
        let mut next = || {
            if numbers.below(100) < 3 {
                at = numbers.below(far);
            }
            at += 1;
            at
        };
        (0..count).map(|_| next()).collect()
    };
    vec![
        named("sequential", (0..count).collect()),
        named("reverse", (0..count).rev().collect()),
        named("stride 17", (0..count).map(|n| 17 * n).collect()),
        named("stride -17", (0..count).rev().map(|n| 17 * n).collect()),
        named("4 interleaved, stride 17", interleaved(4, count, 17, &mut numbers)),
        named("16 interleaved, stride 17", interleaved(16, count, 17, &mut numbers)),
        named("4 interleaved, sequential", interleaved(4, count, 1, &mut numbers)),
        named("random", random),
        named("random pairs", pairs.iter().flat_map(|&first| [first, first + 1]).collect()),
        named("sequential, shuffled within 4", shuffled),
        named("sequential, 3 % lost seeks", lost_seeks(&mut numbers)),
        named("runs of 16 at random places", runs.iter().flat_map(|&run| run..run + 16).collect()),
        named("stride 17, in laps", (0..17).flat_map(|lap| (lap..count).step_by(17)).collect()),
    ]
}

/// Several readers of one object, each from a different offset, which take turns at random.
fn interleaved(readers: u64, count: u64, stride: u64, numbers: &mut Numbers) -> Vec<u64> {
    let each = (count / readers).max(1);
    // Places that no other reader comes to.
    let mut next: Vec<u64> = (0..readers).map(|reader| reader * (each * stride + 5)).collect();
    let mut left = vec![each; readers as usize];
    let mut records = Vec::new();
    while records.len() < (each * readers) as usize {
        let reader = numbers.below(readers) as usize;
        if left[reader] > 0 {
            left[reader] -= 1;
            records.push(next[reader]);
            next[reader] += stride;
        }
    }
    records
}

/// A pseudorandom pattern for a seed: several pieces, each of one kind.
#[cfg(test)]
pub fn generated(seed: u64) -> Vec<u64> {
    let mut numbers = Numbers::new(seed + 1);
    let mut records = Vec::new();
    for _ in 0..1 + numbers.below(6) {
        let count = 8 + numbers.below(120);
        let base = 10_000 + numbers.below(20_000);
        let stride = 1 + numbers.below(40);
        match numbers.below(8) {
            0 => records.extend((0..count).map(|n| base + n)),
            1 => records.extend((0..count).map(|n| base - n)),
            2 => records.extend((0..count).map(|n| base + stride * n)),
            3 => records.extend((0..count).map(|n| base + 6_000 - stride * n)),
            4 => records.extend((0..count).map(|_| numbers.below(1 + stride * 50))),
            5 => {
                let readers = 2 + numbers.below(15);
                records.extend(interleaved(readers, count, stride, &mut numbers));
            }
            6 => {
                let length = 2 + numbers.below(6);
                for _ in 0..count / length {
                    let at = numbers.below(30_000);
                    records.extend(at..at + length);
                }
            }
            _ => {
                let mut dense: Vec<u64> = (base..base + count).collect();
                dense.chunks_mut(2 + stride as usize % 7).for_each(|some| numbers.shuffle(some));
                records.extend(dense);
            }
        }
    }
    records
}
