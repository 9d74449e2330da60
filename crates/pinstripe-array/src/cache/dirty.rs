//! The new bytes of one row, and the pool of their memory.

use std::ops::Range;
use std::time::Duration;

use crate::geometry::RowMap;
use crate::plan::{Class, Mark};
use crate::runs::{RunBytes, Runs};

/// The most memory, in bytes, that is kept for reuse.
const SPARE_BYTES: usize = 16 << 20;

/// The new bytes of one row.
#[derive(Debug, Clone, Default)]
pub struct Dirty {
    pub(super) shards: Vec<Runs>,
    /// The time of the first write.
    pub(super) since: Duration,
    bytes: u64,
}

impl Dirty {
    pub(super) fn new(data: usize, since: Duration) -> Self {
        Dirty { shards: vec![Runs::default(); data], since, bytes: 0 }
    }

    /// The new bytes of a data chunk.
    pub fn shard(&self, data: usize) -> &Runs {
        &self.shards[data]
    }

    /// The number of new bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether this row has new bytes for all of its data chunks.
    pub fn is_full(&self, map: &RowMap) -> bool {
        self.bytes == map.data() as u64 * u64::from(map.len())
    }

    /// The marks for the planner: blocks that are new completely or in part.
    pub fn marks(&self, block_bytes: u32) -> Vec<Mark> {
        let mut marks = Vec::new();
        self.marks_within(&(0..u32::MAX), block_bytes, &mut marks);
        marks
    }

    /// Like [`marks`](Self::marks), for a window of whole blocks; appends to `marks`.
    pub(crate) fn marks_within(
        &self,
        window: &Range<u32>,
        block_bytes: u32,
        marks: &mut Vec<Mark>,
    ) {
        for (shard, runs) in self.shards.iter().enumerate() {
            runs.each_within(window, |start, bytes| {
                mark(shard, start..start + bytes.len() as u32, block_bytes, marks);
            });
        }
    }

    pub(super) fn write(&mut self, data: usize, start: u32, bytes: &[u8], spare: &mut Spare) {
        let memory = || spare.take(RunBytes::room(bytes.len()));
        self.bytes += self.shards[data].write_into(start, bytes, memory);
    }

    pub(super) fn take(&mut self, data: usize, start: u32, bytes: RunBytes, spare: &mut Spare) {
        match self.shards[data].take(start, bytes) {
            Ok(added) => self.bytes += added,
            Err(bytes) => {
                self.write(data, start, &bytes, spare);
                spare.put(bytes.into_memory());
            }
        }
    }
}

/// Buffers of rows that are on the members: reused memory is mapped and cached already.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Empty memory for this many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::with_capacity(bytes) };
        self.bytes -= buffer.capacity();
        // A buffer that is much too long would be wasted on a short run.
        match (bytes..=4 * bytes).contains(&buffer.capacity()) {
            true => buffer,
            false => Vec::with_capacity(bytes),
        }
    }

    pub(super) fn put(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= SPARE_BYTES {
            self.bytes += buffer.capacity();
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// Marks the blocks of a run: those that it covers completely, and those at its ends that it covers
/// in part. A block in which the previous run ended is marked already.
fn mark(shard: usize, run: Range<u32>, block: u32, marks: &mut Vec<Mark>) {
    let whole = run.start.next_multiple_of(block)..run.end / block * block;
    let mut add = |class: Class, column: Range<u32>| {
        let is_known = |last: &Mark| last.shard == shard && last.column.end > column.start;
        if !column.is_empty() && !marks.last().is_some_and(is_known) {
            marks.push(Mark { shard, class, column });
        }
    };
    if run.start < whole.start {
        add(Class::Partial, whole.start - block..whole.start);
    }
    add(Class::Dirty, whole.clone());
    if run.end > whole.end && whole.end >= whole.start {
        add(Class::Partial, whole.end..whole.end + block);
    }
}
