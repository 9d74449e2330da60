//! Whole splits in memory: what goes in comes out, whatever the layout, size, codec and damage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;
use crate::format::{FRAME_BYTES, UNIT_BYTES};
use crate::outputs::Reader;
use crate::outputs::unit::UnitReader;
use crate::pipeline::join;
use crate::source::{ByteSource, Fake};
use pinstripe_base::id::SplitId;
use pinstripe_io::device::{Engine, MemoryDevice, SharedDevice};

const BLOCK: u32 = 64 << 10;

struct Made {
    outputs: Vec<SharedDevice>,
    plain: Vec<SharedDevice>,
    source: Vec<u8>,
    outcome: WrittenOutputs,
}

fn fake(spec: &str) -> Fake {
    Fake::new(spec.parse().unwrap()).unwrap()
}

fn head(layout: SplitLayout, outputs: usize, parity: u8, bytes: u64) -> Head {
    Head {
        split: SplitId([7; 16]),
        layout,
        output: 0,
        outputs: outputs as u8,
        parity,
        strip_bytes: if layout == SplitLayout::Stripes { 4096 } else { 0 },
        block_bytes: BLOCK,
        source_bytes: Some(bytes),
        first_byte: 0,
        made_seconds: 0,
        identity: None,
        codec: "test".to_owned(),
        source: "test".to_owned(),
    }
}

fn device() -> SharedDevice {
    Arc::new(MemoryDevice::new("memory"))
}

fn make(layout: SplitLayout, outputs: usize, parity: u8, spec: &str, codec: &str) -> Made {
    let bytes = fake(spec).length().unwrap();
    let mut source = vec![0; bytes as usize];
    fake(spec).read_at(0, &mut source).unwrap();
    let unit = u64::from(UNIT_BYTES);
    let per = bytes.div_ceil(unit).div_ceil(outputs as u64) * unit;
    let has_ranges = matches!(layout, SplitLayout::Ranges | SplitLayout::Plain);
    let range = |n: usize| (n as u64 * per).min(bytes)..((n as u64 + 1) * per).min(bytes);
    let units: Vec<Units> = match has_ranges {
        false => vec![Units::new(Box::new(fake(spec)), unit, Vec::new()).unwrap()],
        true => (0..outputs)
            .map(|n| {
                let all = [0..range(n).start, range(n).end..bytes];
                let others = all.into_iter().filter(|it| !it.is_empty()).collect();
                Units::new(Box::new(fake(spec)), unit, others).unwrap()
            })
            .collect(),
    };
    let heads: Vec<Head> = (0..outputs)
        .map(|n| Head {
            output: n as u8,
            first_byte: if has_ranges { range(n).start } else { 0 },
            ..head(layout, outputs, parity, bytes)
        })
        .collect();
    let devices: Vec<_> = (0..outputs).map(|_| device()).collect();
    let plain: Vec<_> =
        (0..if layout == SplitLayout::Plain { outputs } else { 0 }).map(|_| device()).collect();
    for (device, head) in devices.iter().zip(&heads) {
        device.write_at(0, &head.encode()).unwrap();
        device.write_at(4096, &[0; 4096]).unwrap();
    }
    let settings = WriteQueueSettings { engine: Engine::Threads, depth: 2, queued: 2 };
    let output = |n: usize| OutputJob {
        head: heads[n].clone(),
        begun: LogProgress::default(),
        name: n.to_string(),
        log: devices[n].clone().into(),
        plain: plain.get(n).map(|it| it.clone().into()),
    };
    let job = SplitJob {
        units: &units,
        outputs: (0..outputs).map(output).collect(),
        settings,
        parts: Vec::new(),
        done_bytes: 0,
        codec: CodecChoice::Fixed(codec.parse().unwrap()),
        workers: 3,
        buffers: 4,
    };
    let outcome = job.run(&Monitor::default()).unwrap();
    for (n, device) in plain.iter().enumerate() {
        device.set_len(range(n).end - range(n).start).unwrap();
    }
    Made { outputs: devices, plain, source, outcome }
}

impl Made {
    fn pairs(&self) -> Vec<(SharedDevice, Option<SharedDevice>)> {
        let plain = |n: usize| self.plain.get(n).cloned();
        self.outputs.iter().enumerate().map(|(n, it)| (it.clone(), plain(n))).collect()
    }

    /// Reads all of it, batch by batch, and some of it at will.
    #[track_caller]
    fn assert_reads(&self, devices: Vec<(SharedDevice, Option<SharedDevice>)>) {
        let reader = Reader::open(devices).unwrap();
        assert_eq!(reader.source_bytes(), self.source.len() as u64);
        assert_eq!(reader.manifest(), Some(&self.outcome.manifest));
        assert!(reader.absent().is_empty(), "{:?}", reader.absent());
        let (mut units, mut raw) = (UnitReader::default(), reader.buffer());
        for located in reader.batches() {
            let unit = reader.read(located, &mut units, &mut raw).unwrap();
            assert!(unit.lost.is_empty(), "{unit:?}");
            let range = located.place.offset as usize..;
            let wanted = &self.source[range][..located.place.raw_bytes as usize];
            match raw.is_empty() {
                true => assert!(wanted.iter().all(|byte| *byte == 0)),
                false => assert!(*raw == *wanted),
            }
        }
        let len = self.source.len() as u64;
        for (start, end) in [(0, len), (len / 3, len / 2), (len.saturating_sub(1), len)] {
            let mut read = vec![1; (end - start) as usize];
            reader.read_at(start, &mut read).unwrap();
            assert!(read == self.source[start as usize..end as usize]);
        }
        assert_eq!(reader.read_at(len, &mut [0]).unwrap_err().kind(), Kind::Usage);
    }
}

#[test]
fn every_layout_gives_back_what_it_took() {
    for spec in ["fake:0", "fake:1", "fake:65536", "fake:65537", "fake:4M", "fake:9000001"] {
        let spec = format!("{spec},zero=40%,entropy=0.5");
        for (layout, outputs, parity) in [
            (SplitLayout::Queue, 1, 0),
            (SplitLayout::Queue, 3, 0),
            (SplitLayout::Ranges, 3, 0),
            (SplitLayout::Plain, 2, 0),
            (SplitLayout::Stripes, 3, 0),
            (SplitLayout::Stripes, 2, 1),
            (SplitLayout::Stripes, 5, 2),
        ] {
            for codec in ["raw", "lz4"] {
                let codec = if layout == SplitLayout::Plain { "raw" } else { codec };
                let made = make(layout, outputs, parity, &spec, codec);
                let hash = *blake3::hash(&made.source).as_bytes();
                assert_eq!(made.outcome.manifest.blake3, hash);
                let mut pairs = made.pairs();
                pairs.reverse();
                made.assert_reads(pairs);
            }
        }
    }
}

#[test]
fn plain_outputs_are_the_source_one_after_the_other() {
    let made = make(SplitLayout::Plain, 3, 0, "fake:9000001,zero=30%", "raw");
    let mut all = Vec::new();
    for device in &made.plain {
        let start = all.len();
        all.resize(start + device.len().unwrap() as usize, 0);
        device.read_at(0, &mut all[start..]).unwrap();
    }
    assert!(all == made.source);
}

#[test]
fn outputs_may_be_missing_or_damaged_as_far_as_parity_goes() {
    let made = make(SplitLayout::Stripes, 5, 2, "fake:9000001,entropy=0.9", "zstd:1");
    for first in 0..5 {
        for second in 0..first {
            let mut pairs = made.pairs();
            pairs.remove(first);
            pairs.remove(second);
            made.assert_reads(pairs);
        }
        // A page of one, and strips of another.
        let (head, strips) = (&made.outputs[first], &made.outputs[(first + 1) % 5]);
        let mut old = vec![0; 100_000];
        strips.read_at(20_000, &mut old).unwrap();
        let mut page = vec![0; 4096];
        head.read_at(0, &mut page).unwrap();
        head.write_at(0, &[9; 4096]).unwrap();
        strips.write_at(20_000, &vec![9; 100_000]).unwrap();
        made.assert_reads(made.pairs());
        head.write_at(0, &page).unwrap();
        strips.write_at(20_000, &old).unwrap();
    }
    let mut pairs = made.pairs();
    pairs.truncate(2);
    let error = Reader::open(pairs).unwrap().require_enough().unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses, "{error}");
}

#[test]
fn of_a_queue_without_an_output_what_is_lost_is_named_and_the_rest_is_there() {
    let made = make(SplitLayout::Queue, 3, 0, "fake:30M", "raw");
    let mut pairs = made.pairs();
    pairs.remove(1);
    let reader = Reader::open(pairs).unwrap();
    assert_eq!((reader.missing(), reader.source_bytes()), (vec![1], 30 << 20));
    let absent: u64 = reader.absent().iter().map(|it| it.end - it.start).sum();
    let there: u64 = reader.batches().iter().map(|it| it.place.raw_bytes).sum();
    assert_eq!(absent + there, 30 << 20);
    if let Some(lost) = reader.absent().first() {
        let error = reader.read_at(lost.start, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), Kind::TooManyLosses);
    }
}

#[test]
fn a_flipped_bit_costs_a_block() {
    let made = make(SplitLayout::Queue, 1, 0, "fake:9000001", "raw");
    let at = 8192 + 5 * (u64::from(BLOCK) + FRAME_BYTES as u64);
    let mut byte = [0];
    made.outputs[0].read_at(at + 3000, &mut byte).unwrap();
    made.outputs[0].write_at(at + 3000, &[byte[0] ^ 4]).unwrap();
    let reader = Reader::open(made.pairs()).unwrap();
    let (mut units, mut raw) = (UnitReader::default(), reader.buffer());
    let first = reader.batches().iter().find(|it| it.place.position == 0).unwrap();
    let start = first.place.offset;
    let unit = reader.read(first, &mut units, &mut raw).unwrap();
    assert_eq!(unit.lost.len(), 1, "{unit:?}");
    assert_eq!(unit.lost[0].end - unit.lost[0].start, u64::from(BLOCK));
    let lost = (unit.lost[0].start - start) as usize..(unit.lost[0].end - start) as usize;
    let source = &made.source[start as usize..][..raw.len()];
    assert!(raw[..lost.start] == source[..lost.start] && raw[lost.end..] == source[lost.end..]);
    // In a frame's head: the block is lost, the next one is found.
    made.outputs[0].write_at(at + 3000, &byte).unwrap();
    made.outputs[0].write_at(8192 + 112 + 40, &[0xff; 8]).unwrap();
    let unit = reader.read(first, &mut units, &mut raw).unwrap();
    assert_eq!(unit.lost.first(), Some(&(start..start + u64::from(BLOCK))));
    assert_eq!(unit.lost.len(), 1);
}

#[test]
fn without_an_end_it_is_read_as_far_as_it_got() {
    for (layout, outputs, parity) in
        [(SplitLayout::Queue, 2, 0), (SplitLayout::Stripes, 3, 1), (SplitLayout::Stripes, 2, 0)]
    {
        let made = make(layout, outputs, parity, "fake:40M,entropy=0.7", "lz4");
        for device in &made.outputs {
            device.write_at(4096, &[0; 4096]).unwrap();
            let bytes = device.len().unwrap();
            device.set_len(bytes / 2).unwrap();
        }
        for missing in 0..=usize::from(parity) {
            let mut pairs = made.pairs();
            pairs.truncate(outputs - missing);
            let reader = Reader::open(pairs).unwrap();
            assert!(reader.manifest().is_none());
            assert_eq!(reader.source_bytes(), 40 << 20);
            let there: u64 = reader.batches().iter().map(|it| it.place.raw_bytes).sum();
            assert!((12 << 20..28 << 20).contains(&there), "{layout:?}: {there}");
            let (mut units, mut raw) = (UnitReader::default(), reader.buffer());
            for located in reader.batches() {
                let unit = reader.read(located, &mut units, &mut raw).unwrap();
                assert!(unit.lost.is_empty(), "{layout:?} {located:?} {unit:?}");
                let wanted = &made.source[located.place.offset as usize..][..raw.len()];
                assert!(*raw == *wanted);
            }
        }
    }
}

#[test]
fn a_stream_that_fails_or_panics_ends_those_who_wait_for_their_turn() {
    let made = make(SplitLayout::Queue, 1, 0, "fake:24M,zero=100%", "raw");
    let reader = Reader::open(made.pairs()).unwrap();
    let job = join::JoinJob { reader: &reader, range: 0..24 << 20, best_effort: false, workers: 6 };
    for (after, panics) in (0..6).flat_map(|after| [(after, false), (after, true)]) {
        let mut room = after * UNIT_BYTES as usize;
        let mut full = |bytes: &[u8]| match room.checked_sub(bytes.len()) {
            None if panics => panic!("on purpose"),
            None => Err(Error::new(Kind::NoSpace, "full")),
            Some(left) => {
                room = left;
                Ok(())
            }
        };
        let run = || job.run(join::Target::Stream(&mut full), &Monitor::default());
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(joined) => assert_eq!(joined.unwrap_err().kind(), Kind::NoSpace),
            Err(_) => assert!(panics),
        }
    }
}
