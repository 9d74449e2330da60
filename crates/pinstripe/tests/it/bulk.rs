//! Made-up bytes against the codecs: what is said to be random does not shrink, words do. And a
//! block device, which only root can make.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use pinstripe_split::{Fake, Units, open_source};
use pinstripe_stripe::{Encoder, Look, looks_incompressible};
use pinstripe_testing::{is_root, skipped};

const BLOCK_BYTES: usize = 64 << 10;

/// The output of zstd for each 64 KiB, as a part of them.
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
    assert!(looks_incompressible(&raw, Look::Thorough));
    assert!(raw.chunks(BLOCK_BYTES).all(|block| looks_incompressible(block, Look::Thorough)));
}

/// A loop device, given back at the end.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && !name.is_empty()).then_some(Loop(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_read_to_its_end() {
    let test = "a_block_device_is_read_to_its_end";
    if !is_root() {
        return skipped(test, "only root may make a loop device");
    }
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("image");
    let fake = Fake::new("fake:3M".parse().unwrap()).unwrap();
    let mut content = vec![0; (3 << 20) - 512];
    fake.fill(0, &mut content);
    std::fs::write(&path, &content).unwrap();
    let Some(device) = Loop::over(&path) else {
        return skipped(test, "no loop device can be made here");
    };
    let null = File::open("/dev/null").unwrap();
    let source = open_source(device.0.as_ref(), null.as_fd()).unwrap();
    assert_eq!(source.length(), Some(content.len() as u64));
    assert_eq!(source.identity().unwrap().bytes, content.len() as u64);
    let units = Units::new(source, 1 << 20, Vec::new()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut read = Vec::new();
    while let Some(piece) = units.next(&mut buffer).unwrap() {
        assert!(!piece.is_hole && piece.offset == read.len() as u64);
        read.extend_from_slice(&buffer[..piece.bytes as usize]);
    }
    assert!(read == content);
}
