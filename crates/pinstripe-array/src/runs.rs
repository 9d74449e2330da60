//! Bytes at offsets of a chunk, kept in as few contiguous runs as possible.

use std::ops::{Deref, DerefMut, Range};

/// Bytes that were written at offsets of a chunk.
///
/// Invariant: runs are in order, no run is empty, and no two runs touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs(Vec<BlockRun>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRun {
    start: u32,
    bytes: RunBytes,
}

/// The bytes of a run. A long run begins in memory at the same offset in a page as in the chunk, so
/// that whole blocks can be written to a disk without a copy.
#[derive(Debug, Default)]
pub(crate) struct RunBytes {
    memory: Vec<u8>,
    /// Bytes of the memory before the first byte of the run.
    pad: usize,
}

/// Runs of at least this length are aligned for a disk when they are created.
const LAID_OUT_BYTES: usize = 32 << 10;
const PAGE: usize = 4096;

impl RunBytes {
    /// The size of the memory for a run of this many bytes.
    pub fn room(bytes: usize) -> usize {
        if bytes < LAID_OUT_BYTES { bytes } else { bytes + PAGE }
    }

    /// A run of the bytes that are written at `start`, stored in `memory`, which is empty.
    pub fn from_bytes(start: u32, bytes: &[u8], mut memory: Vec<u8>) -> Self {
        memory.reserve(Self::room(bytes.len()));
        let pad = match bytes.len() < LAID_OUT_BYTES {
            true => 0,
            false => (start as usize).wrapping_sub(memory.as_ptr() as usize) % PAGE,
        };
        memory.resize(pad, 0);
        memory.extend_from_slice(bytes);
        RunBytes { memory, pad }
    }

    /// The memory, emptied.
    pub(crate) fn into_memory(mut self) -> Vec<u8> {
        self.memory.clear();
        self.memory
    }
}

impl Clone for RunBytes {
    fn clone(&self) -> Self {
        RunBytes { memory: self.to_vec(), pad: 0 }
    }
}

impl PartialEq for RunBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for RunBytes {}

impl Deref for RunBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.pad..]
    }
}

impl DerefMut for RunBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.pad..]
    }
}

impl BlockRun {
    fn end(&self) -> u32 {
        self.start + self.bytes.len() as u32
    }
}

impl Runs {
    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes `bytes` at `start`, and overwrites existing ones. Returns the number of added bytes,
    /// without those that were overwritten.
    pub fn write(&mut self, start: u32, bytes: &[u8]) -> u64 {
        self.write_into(start, bytes, Vec::new)
    }

    /// Like [`write`](Self::write); `memory` returns empty memory for a new run.
    pub(crate) fn write_into(
        &mut self,
        start: u32,
        bytes: &[u8],
        memory: impl FnOnce() -> Vec<u8>,
    ) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let end = start + bytes.len() as u32;
        let first = self.0.partition_point(|run| run.end() < start);
        let behind = self.0.partition_point(|run| run.start <= end);
        if first == behind {
            self.0.insert(
                first,
                BlockRun { start, bytes: RunBytes::from_bytes(start, bytes, memory()) },
            );
            return bytes.len() as u64;
        }
        let touched = &mut self.0[first..behind];
        let before: usize = touched.iter().map(|run| run.bytes.len()).sum();
        // Only the last of them can reach further than what is written, and only the first begin
        // earlier.
        let (low, last) = touched.split_at_mut(touched.len() - 1);
        let tail_at = (end.max(last[0].start) - last[0].start) as usize;
        let (all, tail): (&mut BlockRun, &[u8]) = match low.first_mut() {
            Some(first) => (first, last[0].bytes.get(tail_at..).unwrap_or_default()),
            None => (&mut last[0], &[]),
        };
        if start < all.start {
            let kept = all.bytes.get((end.max(all.start) - all.start) as usize..);
            let memory = Vec::with_capacity(RunBytes::room(bytes.len() + all.bytes.len()));
            let mut joined = RunBytes::from_bytes(start, bytes, memory);
            joined.memory.extend_from_slice(kept.unwrap_or_default());
            *all = BlockRun { start, bytes: joined };
        } else {
            let at = (start - all.start) as usize;
            let over = bytes.len().min(all.bytes.len() - at);
            all.bytes[at..at + over].copy_from_slice(&bytes[..over]);
            all.bytes.memory.extend_from_slice(&bytes[over..]);
        }
        if all.end() <= end {
            all.bytes.memory.extend_from_slice(tail);
        }
        self.0.drain(first + 1..behind);
        (self.0[first].bytes.len() - before) as u64
    }

    /// Takes over bytes that touch no existing run. Returns the bytes if they touch an existing
    /// run.
    ///
    /// # Errors
    /// The bytes.
    pub fn take(&mut self, start: u32, bytes: RunBytes) -> Result<u64, RunBytes> {
        let end = start + bytes.len() as u32;
        let first = self.0.partition_point(|run| run.end() < start);
        if bytes.is_empty() || self.0.get(first).is_some_and(|run| run.start <= end) {
            return Err(bytes);
        }
        let added = bytes.len() as u64;
        self.0.insert(first, BlockRun { start, bytes });
        Ok(added)
    }

    /// Takes the memory of all runs, for reuse.
    pub(crate) fn into_memory(self) -> impl Iterator<Item = Vec<u8>> {
        self.0.into_iter().map(|run| run.bytes.into_memory())
    }

    /// Calls `take` with the offset and the bytes of each run, in order.
    pub fn each(&self, mut take: impl FnMut(u32, &[u8])) {
        self.0.iter().for_each(|run| take(run.start, &run.bytes));
    }

    /// Calls `take` with the offset and the bytes of the part of each run that is within a column,
    /// in order.
    pub(crate) fn each_within(&self, column: &Range<u32>, mut take: impl FnMut(u32, &[u8])) {
        let first = self.0.partition_point(|run| run.end() <= column.start);
        for run in self.0[first..].iter().take_while(|run| run.start < column.end) {
            let (from, to) = (run.start.max(column.start), run.end().min(column.end));
            take(from, &run.bytes[(from - run.start) as usize..(to - run.start) as usize]);
        }
    }

    /// Copies all bytes that exist from `start` on into `buf`. Returns the number of bytes copied.
    pub fn read(&self, start: u32, buf: &mut [u8]) -> u64 {
        let mut there = 0;
        self.each_within(&(start..start + buf.len() as u32), |at, bytes| {
            buf[(at - start) as usize..][..bytes.len()].copy_from_slice(bytes);
            there += bytes.len() as u64;
        });
        there
    }

    /// The bytes of a column, if one run has all of them.
    pub fn slice(&self, column: &Range<u32>) -> Option<&[u8]> {
        let run = self.0.get(self.0.partition_point(|run| run.end() <= column.start))?;
        let is_there = run.start <= column.start && column.end <= run.end();
        let from = column.start.checked_sub(run.start)? as usize;
        is_there.then(|| &run.bytes[from..from + column.len()])
    }

    /// The part of these runs that is within a column.
    pub fn within(&self, column: &Range<u32>) -> Runs {
        let mut within = Runs::default();
        self.each_within(column, |start, bytes| {
            let bytes = RunBytes { memory: bytes.to_vec(), pad: 0 };
            within.0.push(BlockRun { start, bytes });
        });
        within
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_hold_what_was_written(writes in prop::collection::vec((0..40u32, 0..20usize), 0..30)) {
            let (mut runs, mut model) = (Runs::default(), vec![None; 64]);
            for (number, (start, len)) in writes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|n| (number * 31 + n) as u8).collect();
                let before = model.iter().flatten().count();
                model[start as usize..start as usize + len]
                    .copy_from_slice(&bytes.iter().map(|byte| Some(*byte)).collect::<Vec<_>>());
                let more = model.iter().flatten().count() - before;
                // Taken over where they touch nothing, else written.
                let added = match runs.take(start, RunBytes::from_bytes(start, &bytes, Vec::new())) {
                    Ok(added) => added,
                    Err(bytes) => runs.write(start, &bytes),
                };
                assert_eq!(added, more as u64);
                let mut found = vec![None; 64];
                let mut next = 0;
                runs.each(|start, bytes| {
                    assert!(!bytes.is_empty() && (start > next || next == 0), "runs touch");
                    next = start + bytes.len() as u32;
                    for (n, byte) in bytes.iter().enumerate() {
                        found[start as usize + n] = Some(*byte);
                    }
                });
                assert_eq!(found, model);
            }
            for column in [0..64, 5..9, 7..8, 13..50] {
                let mut buf = vec![0; column.len()];
                let there = runs.read(column.start, &mut buf);
                let part = &model[column.start as usize..column.end as usize];
                assert_eq!(there, part.iter().flatten().count() as u64);
                assert!(buf.iter().zip(part).all(|(is, wanted)| *is == wanted.unwrap_or(0)));
                let whole = part.iter().all(Option::is_some);
                assert_eq!(runs.slice(&column).is_some(), whole);
                assert!(runs.slice(&column).is_none_or(|slice| slice == buf));
                let within = runs.within(&column);
                let mut again = vec![0; column.len()];
                assert_eq!((within.read(column.start, &mut again), again), (there, buf));
                assert_eq!(within.is_empty(), there == 0);
            }
        }
    }

    /// So that a disk takes whole blocks of a long run as they are, wherever it begins.
    #[test]
    fn long_runs_begin_where_a_page_has_them() {
        for start in [0, 1, 512, 4095, 4096, 70_000] {
            for memory in [Vec::new(), Vec::with_capacity(200_000)] {
                let bytes: Vec<u8> = (0..LAID_OUT_BYTES).map(|byte| byte as u8).collect();
                let mut runs = Runs::default();
                runs.write_into(start, &bytes, || memory);
                let block = start.next_multiple_of(PAGE as u32);
                let found = runs.slice(&(block..block + PAGE as u32)).unwrap();
                assert!((found.as_ptr() as usize).is_multiple_of(PAGE), "{start}");
                assert_eq!(*found, bytes[(block - start) as usize..][..PAGE]);
                assert_eq!(runs.clone(), runs);
            }
        }
    }
}
