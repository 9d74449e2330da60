//! Whole splits with outputs damaged, cut off or left out. What is read is what was split, or is
//! named as lost; within parity nothing is. Where the damage is made to look sound, nothing panics
//! and what comes is as long as it says.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Device, Engine, MemoryDevice, Policy, SharedDevice};
use pinstripe_member::stripe_set::checksum;
use pinstripe_split::{
    ByteSource, CodecChoice, FRAME_BYTES, Fake, Frame, LayoutChoice, Reader, SplitLayout,
    SplitOptions, UnitReader, split,
};
use pinstripe_stripe::Codec;

/// A split as it was made.
struct Made {
    parity: usize,
    outputs: Vec<Vec<u8>>,
}

const SOURCE: &str = "fake:100001,block=4K,zero=30%,entropy=0.3";

static MADE: LazyLock<[Made; 3]> = LazyLock::new(|| {
    [(LayoutChoice::Queue, 1, 0), (LayoutChoice::Stripes, 3, 1), (LayoutChoice::Stripes, 4, 2)]
        .map(|(spread, outputs, parity)| made(spread, outputs, parity))
});

fn fake() -> Fake {
    Fake::new(SOURCE.parse().expect("it is a recipe")).expect("it can be made")
}

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0; fake().spec().bytes as usize];
    fake().fill(0, &mut bytes);
    bytes
});

fn made(spread: LayoutChoice, outputs: usize, parity: u8) -> Made {
    let dir = tempfile::tempdir().expect("there is some room");
    let paths: Vec<_> = (0..outputs).map(|it| dir.path().join(it.to_string())).collect();
    let options = SplitOptions {
        outputs: paths.clone(),
        spread: Some(spread),
        parity,
        block_bytes: 4096,
        strip_bytes: 4096,
        codec: CodecChoice::Fixed(Codec::Lzo),
        policy: Policy::Buffered,
        engine: Engine::Threads,
        depth: 1,
        workers: 1,
        memory_bytes: 64 << 20,
        force: false,
        resume: false,
        now_seconds: 0,
        faults: None,
        remote: None,
    };
    split(&|| Ok(Box::new(fake()) as Box<dyn ByteSource>), &options, &Monitor::default())
        .expect("it can be split");
    let outputs = paths.iter().map(|it| std::fs::read(it).expect("it is there")).collect();
    Made { parity: parity.into(), outputs }
}

/// Makes the checksums of pages and of heads of frames right.
fn seal(output: &mut [u8]) {
    for page in output.chunks_exact_mut(4096).take(2) {
        let sum = blake3::hash(&page[..4064]);
        page[4064..].copy_from_slice(sum.as_bytes());
    }
    let mut at = 0;
    while let Some(found) = output.get(at..).and_then(Frame::find) {
        at += found;
        let Some(head) = output[at..].first_chunk_mut::<FRAME_BYTES>() else { return };
        let sum = checksum(&head[..56]);
        head[56..].copy_from_slice(&sum[..8]);
        at += FRAME_BYTES;
    }
}

fuzz_target!(|input: (u8, u8, Vec<(u8, u16, u8)>, Option<(u8, u16)>)| {
    let (which, how, flips, cut) = input;
    let made = &MADE[usize::from(which) % MADE.len()];
    let is_sealed = how % 4 == 0;
    let mut outputs = made.outputs.clone();
    let mut hurt = vec![false; outputs.len()];
    for (number, at, flip) in flips {
        let number = usize::from(number) % outputs.len();
        if let Some(byte) = outputs[number].get_mut(usize::from(at)).filter(|_| flip > 0) {
            *byte ^= flip;
            hurt[number] = true;
        }
    }
    if let Some((number, len)) = cut {
        let number = usize::from(number) % outputs.len();
        hurt[number] |= usize::from(len) < outputs[number].len();
        outputs[number].truncate(len.into());
    }
    if is_sealed {
        outputs.iter_mut().for_each(|output| seal(output));
    }
    let device = |bytes: &Vec<u8>| {
        let device = MemoryDevice::new("output");
        device.write_at(0, bytes).expect("there is some memory");
        (Arc::new(device) as SharedDevice, None)
    };
    let opened = Reader::open(outputs.iter().map(device).collect());
    let hurt = hurt.iter().filter(|it| **it).count();
    let within_parity = hurt <= made.parity && !is_sealed;
    assert!(!within_parity || opened.is_ok());
    let Ok(reader) = opened else { return };
    if within_parity {
        assert!(reader.manifest().is_some() && reader.absent().is_empty());
        assert_eq!(reader.head().layout == SplitLayout::Stripes, made.outputs.len() > 1);
    }
    let (mut units, mut raw) = (UnitReader::default(), reader.buffer());
    for located in reader.batches() {
        let Ok(unit) = reader.read(located, &mut units, &mut raw) else { continue };
        assert!(raw.is_empty() || raw.len() as u64 == located.place.raw_bytes);
        if is_sealed {
            continue;
        }
        assert!(!within_parity || unit.lost.is_empty());
        let range = located.place.offset as usize..;
        let mut expected = BYTES[range][..located.place.raw_bytes as usize].to_vec();
        for lost in &unit.lost {
            let start = (lost.start - located.place.offset) as usize;
            expected[start..start + (lost.end - lost.start) as usize].fill(0);
        }
        raw.resize(expected.len());
        assert!(raw[..] == expected, "other bytes than were split");
    }
});
