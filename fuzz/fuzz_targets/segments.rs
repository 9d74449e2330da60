//! Cuts of a run in segments, scanned or not, are those of the same run in memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_stripe::{Candidates, Chunking, Cutter};

fuzz_target!(|input: (u8, u64, u16, u8, Vec<(u16, bool)>, &[u8])| {
    let (sizes, seed, offset, times, segments, bytes) = input;
    let data = bytes.repeat(usize::from(times % 32) + 1);
    let offset = u64::from(offset);
    let chunking = match sizes % 8 {
        0 => Chunking::Fixed { bytes: 100 },
        1 => Chunking::Fixed { bytes: 4096 },
        // Far below what a store may have, so that little data has many cuts.
        size => Chunking::ContentDefined { min: 64, avg: 64 << (size % 4 + 1), max: 2048 },
    };
    let cutter = Cutter::new(chunking, seed).expect("these lengths are allowed");

    let (mut cuts, mut at) = (Vec::new(), 0);
    while at < data.len() {
        at += cutter.next_cut(offset + at as u64, &data[at..], true);
        cuts.push(offset + at as u64);
    }

    let mut resolver = cutter.resolver(offset);
    let (mut found, mut start) = (Vec::new(), 0);
    // A last segment takes what the others leave.
    for (bytes, is_scanned) in segments.into_iter().chain([(u16::MAX, true), (u16::MAX, false)]) {
        let end = data.len().min(start + usize::from(bytes));
        let candidates = match is_scanned {
            true => cutter.scan(&data[..start], &data[start..end], offset + start as u64),
            false => Candidates::default(),
        };
        resolver.push(&data[start..end], &candidates, &mut found);
        start = end;
    }
    let candidates = cutter.scan(&data[..start], &data[start..], offset + start as u64);
    resolver.push(&data[start..], &candidates, &mut found);
    found.extend(resolver.finish());
    assert_eq!(found, cuts);
});
