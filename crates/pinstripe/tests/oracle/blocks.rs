//! Blocks as they stand in what `split` writes, beside what they were.

use std::fs;

use pinstripe::codec::Codec;
use pinstripe::device::{Engine, Policy};
use pinstripe::format::split::{FRAME_BYTES, Frame, FrameKind, Head, PAGE_BYTES, PAGES_BYTES};
use pinstripe::monitor::Monitor;
use pinstripe::ops::split::{Options, run};
use pinstripe::pipeline::split::Choice;
use pinstripe::source::bulk::{Bulk, Fake};

/// Splits made-up bytes into blocks of this length with one codec, and hands the stored and the raw
/// bytes of each that the codec made smaller to `check`. There are many of these.
pub fn each_of_a_split(codec: Codec, block_bytes: u32, mut check: impl FnMut(&[u8], &[u8])) {
    let fake = || Fake::new("fake:9000001,block=4K,zero=20%,entropy=0.4".parse().unwrap()).unwrap();
    let mut source = vec![0; fake().spec().bytes as usize];
    fake().fill(0, &mut source);
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        outputs: vec![dir.path().join("out")],
        spread: None,
        parity: 0,
        block_bytes,
        strip_bytes: 4096,
        codec: Choice::Fixed(codec),
        policy: Policy::Buffered,
        engine: Engine::Threads,
        depth: 2,
        workers: 2,
        memory_bytes: 64 << 20,
        force: false,
        resume: false,
        now_seconds: 0,
        faults: None,
    };
    run(&|| Ok(Box::new(fake()) as Box<dyn Bulk>), &options, &Monitor::default()).unwrap();

    let out = fs::read(dir.path().join("out")).unwrap();
    let tag = Head::decode(&out[..PAGE_BYTES]).unwrap().tag();
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
    assert!(checked > 8 * raw_blocks, "{checked} of {codec}, {raw_blocks} raw");
}
