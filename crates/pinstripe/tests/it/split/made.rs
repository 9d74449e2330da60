//! A split in a directory, how it was made, and what it must give back.

use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Device, Engine, MemoryDevice, Policy, SharedDevice};
use pinstripe_io::fault::Plan;
use pinstripe_io::write_queue::QueueDevice;
use pinstripe_split::{
    ByteSource, CodecChoice, FRAME_BYTES, Fake, JoinOptions, JoinTarget, Joined, LayoutChoice,
    Reader, SET_ROWS, SplitLayout, SplitOptions, join, open_outputs, split, unit_bytes,
    verify_outputs,
};
use proptest::prelude::*;
use proptest::sample::select;
use tempfile::TempDir;

/// The settings of a split.
#[derive(Debug, Clone)]
pub struct Shape {
    pub layout: SplitLayout,
    pub outputs: usize,
    pub parity: u8,
    pub block_bytes: u32,
    pub strip_bytes: u32,
    pub codec: &'static str,
    pub source: String,
}

impl Shape {
    /// Outputs with a log each, in whose order the batches came.
    pub fn of_logs(outputs: usize, source: &str) -> Self {
        let (parity, block_bytes, strip_bytes, codec) = (0, 4 << 10, 4096, "lz4");
        let (layout, source) = (SplitLayout::Queue, source.to_owned());
        Shape { layout, outputs, parity, block_bytes, strip_bytes, codec, source }
    }
}

/// More is not needed to have several units, rows and sets.
const SOURCE_BYTES_MAX: u64 = 10 << 20;

/// Sizes next to where something ends: a block, a unit, a strip, a row, a set, in the source or,
/// with the frames' heads in front of raw blocks, in the log.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    edge: usize,
    times: u64,
    in_log: bool,
    beside: i64,
}

impl Size {
    pub fn of(self, block: u64, strip: u64, data: u64) -> u64 {
        let row = strip * data;
        let unit = u64::from(unit_bytes(block as u32));
        let edge = [0, 1, block, unit, strip, row, SET_ROWS * row][self.edge] * self.times;
        let frames = edge.div_ceil(unit) * (FRAME_BYTES as u64 + 48)
            + edge.div_ceil(block) * FRAME_BYTES as u64;
        let edge = edge.saturating_sub(if self.in_log { frames } else { 0 });
        edge.saturating_add_signed(self.beside).min(SOURCE_BYTES_MAX)
    }
}

pub fn sizes() -> impl Strategy<Value = Size> {
    (0usize..7, 1u64..4, any::<bool>(), -1i64..=1).prop_map(|(edge, times, in_log, beside)| Size {
        edge,
        times,
        in_log,
        beside,
    })
}

/// The layout of outputs, their number, and how many of them are parity.
pub type Laid = (SplitLayout, usize, u8);

pub fn striped(parity: Range<u8>) -> impl Strategy<Value = Laid> + Clone {
    (1usize..=5, parity).prop_map(|(data, parity)| {
        (SplitLayout::Stripes, (data + usize::from(parity)).min(6), parity)
    })
}

pub fn own() -> impl Strategy<Value = Laid> + Clone {
    let layouts = &[SplitLayout::Queue, SplitLayout::Ranges, SplitLayout::Plain][..];
    (select(layouts), 1usize..=6).prop_map(|(layout, outputs)| (layout, outputs, 0))
}

pub fn shapes(laid: impl Strategy<Value = Laid>) -> impl Strategy<Value = Shape> {
    const CODECS: [&str; 6] = ["auto", "raw", "lzo", "snappy", "lz4", "zstd:1"];
    const CONTENTS: [&str; 4] = ["", ",zero=40%,entropy=0.5", ",zero=95%", ",entropy=0"];
    (
        laid,
        sizes(),
        select(&[4 << 10, 64 << 10, 1 << 20, 8 << 20][..]),
        select(&[4096, 16_384][..]),
        select(&CODECS[..]),
        (select(&CONTENTS[..]), 0u8..9),
    )
        .prop_map(|((layout, outputs, parity), size, block, strip, codec, (content, seed))| {
            let data = (outputs - usize::from(parity)) as u64;
            let bytes = size.of(block.into(), strip.into(), data);
            Shape {
                layout,
                outputs,
                parity,
                block_bytes: block,
                strip_bytes: strip,
                codec: match layout {
                    SplitLayout::Plain => "raw",
                    // Raw ranges are plain.
                    SplitLayout::Ranges if codec == "raw" => "lz4",
                    _ => codec,
                },
                source: format!("fake:{bytes},block=4K,seed={seed}{content}"),
            }
        })
}

/// A split in a directory, and what went into it.
pub struct Made {
    pub dir: TempDir,
    pub shape: Shape,
    pub source: Vec<u8>,
}

impl Made {
    pub fn new(shape: &Shape) -> Made {
        let fake = || Fake::new(shape.source.parse().unwrap()).unwrap();
        let mut source = vec![0; fake().spec().bytes as usize];
        fake().fill(0, &mut source);
        // In memory where there is such a place: a split waits for the disk otherwise.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let made = Made { dir, shape: shape.clone(), source };
        let open = || Ok(Box::new(fake()) as Box<dyn ByteSource>);
        split(&open, &made.options(), &Monitor::default()).unwrap();
        made
    }

    pub fn options(&self) -> SplitOptions {
        let shape = &self.shape;
        SplitOptions {
            outputs: self.paths(),
            spread: Some(match shape.layout {
                SplitLayout::Stripes => LayoutChoice::Stripes,
                SplitLayout::Queue => LayoutChoice::Queue,
                SplitLayout::Ranges | SplitLayout::Plain => LayoutChoice::Ranges,
            }),
            parity: shape.parity,
            block_bytes: shape.block_bytes,
            strip_bytes: shape.strip_bytes,
            codec: match shape.codec {
                "auto" => CodecChoice::Auto,
                codec => CodecChoice::Fixed(codec.parse().unwrap()),
            },
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
        }
    }

    pub fn path(&self, number: usize) -> PathBuf {
        self.dir.path().join(number.to_string())
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        (0..self.shape.outputs).map(|number| self.path(number)).collect()
    }

    /// The file with an output's log: the output, unless the log stands beside it.
    pub fn log_path(&self, number: usize) -> PathBuf {
        match self.shape.layout {
            SplitLayout::Plain => pinstripe_split::beside_path(&self.path(number)),
            _ => self.path(number),
        }
    }

    pub fn reader(&self) -> Result<Reader> {
        // In another order than they were written in.
        let paths: Vec<_> = self.paths().into_iter().rev().collect();
        open_outputs(&paths, None, &Plan::default(), &Monitor::default())
    }

    /// Joins into a device that is blank, into one that is not, or into a stream: all are alike.
    pub fn join(&self, best_effort: bool) -> Result<(Joined, Vec<u8>)> {
        let reader = self.reader()?;
        let options = JoinOptions { range: None, best_effort, workers: 2 };
        let run = |target: JoinTarget<'_>| join(&reader, &options, target, &Monitor::default());
        let mut stream = Vec::new();
        let joined = run(JoinTarget::Stream(&mut |bytes| {
            stream.extend_from_slice(bytes);
            Ok(())
        }))?;
        for is_blank in [true, false] {
            let device = Arc::new(MemoryDevice::new("joined"));
            let old = if is_blank { 0 } else { 0xee };
            device.write_at(0, &vec![old; stream.len()])?;
            let target = QueueDevice::Other(Arc::clone(&device) as SharedDevice);
            let again = run(JoinTarget::Device { device: target, is_blank })?;
            assert!(joined == again && stream == device.to_vec(), "targets differ");
        }
        Ok((joined, stream))
    }

    pub fn assert_whole(&self) {
        let (joined, bytes) = self.join(false).unwrap();
        assert!(bytes == self.source, "other bytes");
        assert_eq!(joined.lost, []);
        assert_eq!(joined.blake3, Some(*blake3::hash(&self.source).as_bytes()));
    }

    /// What is lost is this and nothing else; the rest is right. Whether that much is refused
    /// without being asked for.
    pub fn assert_lost(&self, expected: &[Range<u64>]) {
        let (joined, bytes) = self.join(true).unwrap();
        assert_eq!(joined.lost, expected);
        let mut rest = self.source.clone();
        expected.iter().for_each(|it| rest[it.start as usize..it.end as usize].fill(0));
        assert!(bytes == rest, "other bytes than {expected:?} are lost");
        if !expected.is_empty() {
            let error = self.join(false).map(|_| "nothing lost").unwrap_err();
            // One output alone has the only manifest.
            let is_known = [Kind::TooManyLosses, Kind::Refused].contains(&error.kind());
            assert!(is_known, "{error}");
        }
    }

    /// Whether verifying finds anything, and that it loses what joining loses.
    pub fn verify_finds(&self, lost: &[Range<u64>]) -> bool {
        let found = verify_outputs(&self.reader().unwrap(), 2, &Monitor::default()).unwrap();
        assert_eq!(found.joined.lost, lost);
        assert_eq!(found.joined.changed, []);
        found.repairable + found.lost_parts > 0 || !lost.is_empty()
    }
}

/// Ranges in order, those that touch as one.
pub fn merged(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.into_iter().filter(|it| !it.is_empty()).collect();
    sorted.sort_by_key(|it| it.start);
    sorted.dedup_by(|later, one| {
        let touches = later.start <= one.end;
        one.end = if touches { one.end.max(later.end) } else { one.end };
        touches
    });
    sorted
}

pub fn change(path: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    how(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// A place within `len`, by a draw.
pub fn scale(draw: u64, len: usize) -> Option<usize> {
    Some((draw % NonZero::new(len as u64)?) as usize)
}
