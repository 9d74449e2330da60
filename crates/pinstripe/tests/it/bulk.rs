//! Made-up bytes against the codecs: what is said to be random does not shrink, words do.

use pinstripe::codec::{Encoder, looks_incompressible};
use pinstripe::source::bulk::Fake;

const BLOCK_BYTES: usize = 64 << 10;

/// What zstd makes of each 64 KiB, as a part of them.
fn stored(told: &str) -> f64 {
    let fake = Fake::new(format!("fake:16M,{told}").parse().unwrap()).unwrap();
    let mut encoder = Encoder::new("zstd:1".parse().unwrap()).unwrap();
    let (mut raw, mut out) = (vec![0; BLOCK_BYTES], Vec::new());
    let blocks = fake.spec().bytes / BLOCK_BYTES as u64;
    let bytes = (0..blocks).map(|block| {
        fake.fill(block * BLOCK_BYTES as u64, &mut raw);
        let encoded = encoder.encode(&raw, &mut out).unwrap();
        encoded.stored(&raw, &out).len()
    });
    bytes.sum::<usize>() as f64 / fake.spec().bytes as f64
}

#[test]
fn made_up_bytes_shrink_by_what_is_not_random() {
    for (told, part) in [
        ("block=4K", 1.0..=1.0),
        ("block=64K,seed=9", 1.0..=1.0),
        ("entropy=0.5", 0.6..=0.9),
        ("entropy=0", 0.25..=0.5),
        ("entropy=0,zero=50%", 0.12..=0.25),
        ("zero=100%", 0.0..=0.001),
    ] {
        let found = stored(told);
        assert!(part.contains(&found), "{told}: {found}");
    }
}

#[test]
fn random_blocks_look_incompressible_at_once() {
    let fake = Fake::new("fake:4M".parse().unwrap()).unwrap();
    let mut raw = vec![0; fake.spec().bytes as usize];
    fake.fill(0, &mut raw);
    assert!(looks_incompressible(&raw));
    assert!(raw.chunks(BLOCK_BYTES).all(looks_incompressible));
}
