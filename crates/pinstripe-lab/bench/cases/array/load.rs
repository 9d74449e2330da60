//! Loads and what they cost, as the lab has them, and how fast memory is.

use std::time::Instant;

use pinstripe_array::Volume;
use pinstripe_lab::{ArrayRequests, Live};

use super::places::text;
use crate::Result;

pub use pinstripe_lab::{ARRAY_LOADS, ArrayCost as Run, ArrayLoad, array_noise};

/// Places of loads among [`LOADS`].
pub const RANDOM_WRITE: usize = 0;
pub const LONG_WRITE: usize = 2;

/// Does `count` reads or writes; writes are durable at the end.
pub fn run(volume: &Volume, load: ArrayLoad, count: u64, seed: u64) -> Result<Run> {
    let live = Live::new(Default::default());
    let requests = ArrayRequests { count, at_once: 1, seed };
    pinstripe_lab::run_array_load(volume, load, requests, &live).map_err(text)
}

/// Bytes per second that one thread copies from memory to memory, 64 MiB at a time.
pub fn memory_bandwidth() -> f64 {
    let from = array_noise(64 << 20);
    let mut to = from.clone();
    let copies = (0..5).map(|_| {
        let start = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        from.len() as f64 / start.elapsed().as_secs_f64()
    });
    copies.fold(0.0, f64::max)
}
