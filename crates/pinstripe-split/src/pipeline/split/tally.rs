//! Counts of how blocks were stored, and the time that each stage took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::format::{LogEnd, Manifest, Use};
use pinstripe_base::clock;
use pinstripe_base::monitor::{Along, Flow, Monitor};
use pinstripe_stripe::Codec;

/// Counts blocks by the way they were stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockTally {
    source_bytes: u64,
    zero_bytes: u64,
    hole_bytes: u64,
    uses: BTreeMap<(u8, i8), Use>,
}

impl BlockTally {
    /// Returns the counts for a split that already contains this many bytes of the source; only new
    /// blocks are counted by the way they were stored.
    pub fn after(done_bytes: u64) -> Self {
        BlockTally { source_bytes: done_bytes, ..BlockTally::default() }
    }

    /// Counts a hole.
    pub fn hole(&mut self, bytes: u64) {
        self.source_bytes += bytes;
        self.hole_bytes += bytes;
    }

    /// Counts a block of zeros.
    pub fn zeros(&mut self, bytes: u64) {
        self.source_bytes += bytes;
        self.zero_bytes += bytes;
    }

    /// Counts a block that was stored with this codec.
    pub fn block(&mut self, codec: Codec, raw_bytes: u64, stored_bytes: u64) {
        let level = match codec {
            Codec::Zstd { level } => level as i8,
            _ => 0,
        };
        let key = (codec.id(), level);
        let used = self.uses.entry(key).or_insert(Use { codec: key.0, level, ..Use::default() });
        used.blocks += 1;
        used.raw_bytes += raw_bytes;
        used.stored_bytes += stored_bytes;
        self.source_bytes += raw_bytes;
    }

    /// Adds another one.
    pub fn add(&mut self, other: BlockTally) {
        self.source_bytes += other.source_bytes;
        self.zero_bytes += other.zero_bytes;
        self.hole_bytes += other.hole_bytes;
        for (key, other) in other.uses {
            let used = self.uses.entry(key).or_insert(Use {
                codec: key.0,
                level: key.1,
                ..Use::default()
            });
            used.blocks += other.blocks;
            used.raw_bytes += other.raw_bytes;
            used.stored_bytes += other.stored_bytes;
        }
    }

    /// Makes the manifest with these counts.
    pub fn manifest(self, blake3: [u8; 32], logs: Vec<LogEnd>) -> Manifest {
        Manifest {
            source_bytes: self.source_bytes,
            blake3,
            zero_bytes: self.zero_bytes,
            hole_bytes: self.hole_bytes,
            logs,
            uses: self.uses.into_values().collect(),
        }
    }
}

/// The stages of a worker's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reads the source.
    Read,
    /// Hashes it.
    Hash,
    /// Detects zeros, compresses blocks, builds frames.
    Code,
    /// Waits for an output to accept a batch.
    Wait,
}

/// The time of all workers, by stage.
#[derive(Debug)]
pub(crate) struct Stages([Arc<Flow>; 4]);

/// The time of all workers by stage, as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Reading the source.
    pub read: Duration,
    /// Hashing.
    pub hash: Duration,
    /// Codecs and frames.
    pub code: Duration,
    /// Waiting for outputs.
    pub wait: Duration,
}

impl Stages {
    /// Makes the stages and registers them with a monitor, which displays them.
    pub fn new(monitor: &Monitor) -> Self {
        let names = ["the source", "hashing", "compressing", "the outputs"];
        Stages(names.map(|name| monitor.flow(Along::Stage, name)))
    }

    /// Does `work` and adds its time to a stage.
    pub fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = clock::monotonic();
        let done = work();
        self.0[stage as usize].pass(0, began.elapsed());
        done
    }

    /// Returns the times so far.
    pub fn spent(&self) -> Spent {
        let of = |stage: Stage| self.0[stage as usize].time();
        let (read, hash) = (of(Stage::Read), of(Stage::Hash));
        Spent { read, hash, code: of(Stage::Code), wait: of(Stage::Wait) }
    }
}
