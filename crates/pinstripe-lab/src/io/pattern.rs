//! Computes the n-th request: a pure function of a job and its seed.

use pinstripe_base::random::Noise;

/// The order in which blocks are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the first block to the last, then again from the first.
    Sequential,
    /// From the last block to the first.
    Backward,
    /// Any block, each with the same probability, independent of earlier requests.
    Random,
    /// Every n-th block, in n passes, until each block was accessed once.
    Strided(u64),
    /// Always the block in the middle.
    Same,
}

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Direction {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Reads and writes, mixed evenly; the number is the share of reads, from 0 to 1.
    Mixed(f64),
}

/// The requests that a job makes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pattern {
    /// In which order.
    pub order: Order,
    /// Which way.
    pub direction: Direction,
    /// Bytes of each request; its offset is a multiple of this number.
    pub block_bytes: usize,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number of the block, counted over all files.
    pub block: u64,
    /// Whether the request is a write.
    pub is_write: bool,
}

impl Pattern {
    /// The `n`-th request, counted from 0, over `blocks` blocks.
    pub fn request(&self, n: u64, blocks: u64, seed: u64) -> Request {
        let block = match self.order {
            Order::Sequential => n % blocks,
            Order::Backward => blocks - 1 - n % blocks,
            Order::Random => Noise(seed ^ n.wrapping_mul(0xd6e8_feb8_6659_fd93)).below(blocks),
            Order::Strided(stride) => strided(n % blocks, blocks, stride.max(1)),
            Order::Same => blocks / 2,
        };
        let is_write = match self.direction {
            Direction::Read => false,
            Direction::Write => true,
            // Spreads reads evenly: after any number of requests, their share is exact.
            Direction::Mixed(reads) => {
                ((n + 1) as f64 * reads).floor() <= (n as f64 * reads).floor()
            }
        };
        Request { block, is_write }
    }

    /// Whether the order accesses the same blocks again after it has accessed all of them.
    pub fn wraps(&self) -> bool {
        !matches!(self.order, Order::Random | Order::Same)
    }
}

/// The n-th block of the passes 0, s, 2s, ..., then 1, s + 1, ...; the first passes may be longer
/// by one block.
fn strided(n: u64, blocks: u64, stride: u64) -> u64 {
    let (short, longer) = (blocks / stride, blocks % stride);
    let in_longer = longer * (short + 1);
    if n < in_longer {
        return n / (short + 1) + n % (short + 1) * stride;
    }
    let n = n - in_longer;
    longer + n / short + n % short * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(order: Order, count: u64, blocks: u64) -> Vec<u64> {
        let pattern = Pattern { order, direction: Direction::Read, block_bytes: 1 };
        (0..count).map(|n| pattern.request(n, blocks, 9).block).collect()
    }

    #[test]
    fn orders_go_where_they_say() {
        assert_eq!(blocks(Order::Sequential, 5, 3), [0, 1, 2, 0, 1]);
        assert_eq!(blocks(Order::Backward, 4, 3), [2, 1, 0, 2]);
        assert_eq!(blocks(Order::Same, 2, 5), [2, 2]);
        assert_eq!(blocks(Order::Strided(3), 8, 8), [0, 3, 6, 1, 4, 7, 2, 5]);
        assert_eq!(blocks(Order::Strided(17), 3, 3), [0, 1, 2]);
    }

    #[test]
    fn a_strided_lap_meets_every_block_once() {
        for (count, stride) in [(1, 1), (100, 17), (16, 17), (17, 17), (35, 17), (64, 4)] {
            let mut met = blocks(Order::Strided(stride), count, count);
            met.sort_unstable();
            assert_eq!(met, (0..count).collect::<Vec<_>>(), "{count} {stride}");
        }
    }

    #[test]
    fn random_blocks_are_spread_and_the_same_for_the_same_seed() {
        let met = blocks(Order::Random, 10_000, 10);
        assert_eq!(met, blocks(Order::Random, 10_000, 10));
        for block in 0..10 {
            let count = met.iter().filter(|it| **it == block).count();
            assert!((850..1150).contains(&count), "{block}: {count}");
        }
    }

    #[test]
    fn a_mix_has_its_share_at_every_moment() {
        let direction = Direction::Mixed(0.6);
        let pattern = Pattern { order: Order::Random, direction, block_bytes: 1 };
        let is_write: Vec<bool> = (0..10).map(|n| pattern.request(n, 4, 1).is_write).collect();
        assert_eq!(is_write.iter().filter(|it| **it).count(), 4);
        assert_eq!(is_write[..5].iter().filter(|it| **it).count(), 2);
        for (reads, writes) in [(0.0, 100), (1.0, 0), (0.25, 75)] {
            let pattern = Pattern { direction: Direction::Mixed(reads), ..pattern };
            let found = (0..100).filter(|n| pattern.request(*n, 4, 1).is_write).count();
            assert_eq!(found, writes, "{reads}");
        }
    }
}
