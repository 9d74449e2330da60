//! Bytes to try codecs on, and blocks of them as they stand in what `split` writes.

use std::fs;
use std::os::fd::AsFd;

use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Engine, Policy};
use pinstripe_split::{
    CodecChoice, FRAME_BYTES, Frame, FrameKind, OutputHead, PAGE_BYTES, PAGES_BYTES, SplitOptions,
    open_source, split,
};
use pinstripe_stripe::Codec;

/// Bytes without any pattern.
pub fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut out = vec![0; bytes];
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut out);
    out
}

/// Letters with far more repetition than chance.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(bytes + 64);
    for die in random(seed, 2 * bytes + 2).chunks_exact(2) {
        if out.len() >= bytes {
            break;
        }
        let back = usize::from(die[0]) * usize::from(die[1]) + 1;
        match (die[0] % 3, out.len().checked_sub(back)) {
            (0, Some(from)) => {
                let end = out.len().min(from + 3 + usize::from(die[1] % 40));
                out.extend_from_within(from..end);
            }
            _ => out.push(b'a' + die[1] % 26),
        }
    }
    out.truncate(bytes);
    out
}

/// Pages as a machine's memory has them: zeros, pointers, text, random bytes.
pub fn memory_like(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 4096);
    for (page, die) in random(seed, bytes / 4096 + 1).into_iter().enumerate() {
        let page_seed = seed ^ (page as u64) << 32;
        match die {
            0..115 => out.resize(out.len() + 4096, 0),
            115..175 => {
                for low in random(page_seed, 512) {
                    let word = 0xffff_8880_0000_0000 | u64::from(die) << 20 | u64::from(low) << 6;
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
            175..230 => out.extend(text(page_seed, 4096)),
            _ => out.extend(random(page_seed, 4096)),
        }
    }
    out.truncate(bytes);
    out
}

/// Splits such bytes into blocks of this length with one codec, and hands the stored and the raw
/// bytes of each that the codec made smaller to `check`. There are many of these.
pub fn each_of_a_split(codec: Codec, block_bytes: u32, mut check: impl FnMut(&[u8], &[u8])) {
    let source = memory_like(1, 9_000_001);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source");
    fs::write(&path, &source).unwrap();
    let options = SplitOptions {
        outputs: vec![dir.path().join("out")],
        spread: None,
        parity: 0,
        block_bytes,
        strip_bytes: 4096,
        codec: CodecChoice::Fixed(codec),
        policy: Policy::Buffered,
        engine: Engine::Threads,
        depth: 2,
        workers: 2,
        memory_bytes: 64 << 20,
        force: false,
        resume: false,
        now_seconds: 0,
        faults: None,
        remote: None,
    };
    let open = || open_source(path.as_os_str(), std::io::stdin().as_fd());
    split(&open, &options, &Monitor::default()).unwrap();

    let out = fs::read(dir.path().join("out")).unwrap();
    let tag = OutputHead::decode(&out[..PAGE_BYTES]).unwrap().tag();
    let (mut log, mut checked, mut raw_blocks) = (&out[PAGES_BYTES as usize..], 0, 0);
    while let Some(head) = log.first_chunk() {
        let frame = Frame::decode(head, tag).unwrap();
        let (whole, rest) = log.split_at(frame.log_bytes() as usize);
        log = rest;
        if frame.kind != FrameKind::Data {
            continue;
        }
        if frame.codec == codec.id() {
            let raw = &source[frame.offset as usize..][..frame.raw_bytes as usize];
            check(&whole[FRAME_BYTES..], raw);
            checked += 1;
        } else {
            raw_blocks += 1;
        }
    }
    assert!(checked > 2 * raw_blocks, "{checked} of {codec}, {raw_blocks} raw");
}
