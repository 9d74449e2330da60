//! Speed of the parity kernels, in bytes of data a second, with the plain version and memcpy
//! beside.
//!
//! Three working sets: blocks of 4 KiB (first-level cache), of 64 KiB (second level) and of 32 MiB
//! (memory). Time is the processor time of the thread, so that other processes on the processor do
//! not count (their use of the caches does). Blocks do not all begin at the same place within their
//! page, as they would not in use.
//!
//! `cargo bench -p pinstripe-kernel --bench parity`; a filter such as `L2/pq` picks some of them.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use pinstripe_kernel::parity::{encode_at, levels, rebuild_at, xor_into};
use std::hint::black_box;
use std::time::Duration;

const WORKING_SETS: [(&str, usize); 3] = [("L1", 4 << 10), ("L2", 64 << 10), ("DRAM", 32 << 20)];
const DATA_COUNTS: [usize; 2] = [4, 8];
/// Between the starts of two blocks, beyond their length: a multiple of a line, not of a page.
const SKEW_BYTES: usize = 1792;

type Group<'a> = BenchmarkGroup<'a, CpuTime>;

/// The processor time of the calling thread.
struct CpuTime;

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("processor time is not negative")
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        cpu_time() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Blocks in one allocation, each skewed against the one before.
struct Blocks {
    bytes: Vec<u8>,
    block_bytes: usize,
}

impl Blocks {
    fn new(count: usize, block_bytes: usize) -> Blocks {
        let len = count * (block_bytes + SKEW_BYTES) + 64;
        Blocks { bytes: (0..len).map(|n| ((n * 31) >> 3) as u8).collect(), block_bytes }
    }

    fn slices(&mut self) -> Vec<&mut [u8]> {
        let aligned = self.bytes.as_ptr().align_offset(64);
        let blocks = self.bytes[aligned..].chunks_exact_mut(self.block_bytes + SKEW_BYTES);
        blocks.map(|block| &mut block[..self.block_bytes]).collect()
    }
}

fn kernels(c: &mut Criterion<CpuTime>) {
    for (working_set, block_bytes) in WORKING_SETS {
        for data_count in DATA_COUNTS {
            let mut blocks = Blocks::new(data_count + 4, block_bytes);
            let group = |c: &mut Criterion<CpuTime>,
                         kernel: &str,
                         run: &mut dyn FnMut(&mut Group)| {
                let mut group = c.benchmark_group(format!("{working_set}/{kernel}/k={data_count}"));
                group.throughput(Throughput::Bytes((data_count * block_bytes) as u64));
                group.warm_up_time(Duration::from_millis(100));
                group.measurement_time(Duration::from_millis(500)).sample_size(20);
                run(&mut group);
                group.finish();
            };
            for (kernel, parity_count) in [("xor", 1), ("pq", 2), ("k+4", 4)] {
                group(c, kernel, &mut |g| encoding(g, &mut blocks, data_count, parity_count));
            }
            group(c, "rebuild 2 data of pq", &mut |g| rebuilding(g, &mut blocks, data_count));
            group(c, "beside", &mut |g| beside(g, &mut blocks, data_count));
        }
    }
}

fn encoding(group: &mut Group, blocks: &mut Blocks, data_count: usize, parity_count: usize) {
    for level in levels() {
        let mut slices = blocks.slices();
        let (data, parity) = slices.split_at_mut(data_count);
        let data: Vec<&[u8]> = data.iter().map(|block| &**block).collect();
        group.bench_function(BenchmarkId::from_parameter(level), |b| {
            b.iter(|| encode_at(level, black_box(&data), &mut parity[..parity_count]));
        });
    }
}

fn rebuilding(group: &mut Group, blocks: &mut Blocks, data_count: usize) {
    for level in levels() {
        let mut slices = blocks.slices();
        let (sources, outs) = slices.split_at_mut(data_count + 2);
        let mut present: Vec<Option<&[u8]>> = sources.iter().map(|block| Some(&**block)).collect();
        (present[0], present[2]) = (None, None);
        let [first, second] = outs else { unreachable!("four blocks beside the data") };
        let mut wanted = [(0, &mut **first), (2, &mut **second)];
        group.bench_function(BenchmarkId::from_parameter(level), |b| {
            b.iter(|| rebuild_at(level, data_count, black_box(&present), &mut wanted));
        });
    }
}

/// The cost of any pass over the same data.
fn beside(group: &mut Group, blocks: &mut Blocks, data_count: usize) {
    let mut copies = Blocks::new(data_count, blocks.block_bytes);
    let (sources, mut copies) = (blocks.slices(), copies.slices());
    group.bench_function("memcpy", |b| {
        b.iter(|| {
            for (from, to) in sources.iter().zip(&mut copies) {
                to.copy_from_slice(black_box(from));
            }
        });
    });
    group.bench_function("xor_into", |b| {
        let target = &mut *copies[0];
        b.iter(|| sources[..data_count].iter().for_each(|from| xor_into(target, black_box(from))));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = kernels
}
criterion_main!(benches);
