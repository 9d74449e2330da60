//! How fast the gear scan is on one core: the plain version and the one that runs, and beside
//! them the `fastcdc` crate, which finds cuts at once and skips a quarter of the bytes.
//! `cargo bench -p pinstripe-kernel --bench gear`

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastcdc::v2020::FastCDC;
use pinstripe_kernel::gear::{Gear, Masks};

/// Random-looking bytes (xorshift64*): what compressed files look like, and the gear's usual case.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56
    };
    (0..len).map(|_| next() as u8).collect()
}

fn bench(criterion: &mut Criterion) {
    let gear = Gear::new(0x5eed);
    let masks = Masks::for_average(64 << 10).expect("there are masks for 64 KiB");
    let mut out = Vec::new();
    for (name, len) in [("64K", 64 << 10), ("4M", 4 << 20)] {
        let data = noise(len);
        let mut group = criterion.benchmark_group(format!("gear/{name}"));
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function("plain", |bencher| {
            bencher.iter(|| {
                out.clear();
                gear.scan_plain(masks, &[], &data, 0, &mut out);
            });
        });
        group.bench_function("lanes", |bencher| {
            bencher.iter(|| {
                out.clear();
                gear.scan(masks, &[], &data, 0, &mut out);
            });
        });
        group.bench_function("fastcdc", |bencher| {
            bencher.iter(|| FastCDC::new(&data, 16 << 10, 64 << 10, 256 << 10).count());
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
