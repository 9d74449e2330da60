//! Cuts content by every method at once, and counts the chunks.
//!
//! A data range passes through one window, from which each cutting method takes what it can already
//! decide. Invariants: a window holds several of the longest chunks, so that every method makes
//! progress; all readers share the same counts, which are locked for the chunks of one window at a
//! time.

use std::ops::Range;
use std::sync::Mutex;

use super::{LENGTHS, Survey};
use crate::pipeline::limits::Limits;
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_stripe::{Chunking, Codec, Cutter, Distinct, Encoder, distinct_key};

/// The number of methods: every length, as blocks and as content-defined chunks.
pub const WAYS: usize = 2 * LENGTHS.len();
/// The cutting method whose chunks are compressed as a sample: the mean length of 64 KiB.
const COMPRESSED: usize = LENGTHS.len() + 2;
/// One in this many new chunks is compressed.
const COMPRESSED_ONE_IN: u64 = 16;
/// The number of bytes of a data range in memory at once: several of the longest chunks.
const WINDOW_BYTES: usize = 8 << 20;
/// The memory of one key in a count, including the map's overhead.
const KEY_BYTES: u64 = 40;

/// The counts that all readers add to.
pub struct Counts {
    by_name: Mutex<Distinct>,
    by_content: Mutex<Distinct>,
    /// Fixed, then content-defined.
    cut: Vec<Mutex<Distinct>>,
    tried: Mutex<(u64, u64)>,
    cutters: Vec<Cutter>,
}

impl Counts {
    /// Makes counts within a quarter of the budget.
    pub fn new(limits: Limits) -> Result<Self> {
        let most = (limits.ahead_bytes() / KEY_BYTES / (WAYS as u64 + 2)) as usize;
        let count = || Mutex::new(Distinct::new(most));
        let fixed = LENGTHS.iter().map(|&bytes| Chunking::fixed(bytes));
        let defined = LENGTHS.iter().map(|&avg| Chunking::content_defined(avg));
        let cutters = fixed.chain(defined).map(|chunking| Cutter::new(chunking?, 0));
        Ok(Counts {
            by_name: count(),
            by_content: count(),
            cut: (0..WAYS).map(|_| count()).collect(),
            tried: Mutex::default(),
            cutters: cutters.collect::<Result<_>>()?,
        })
    }

    /// Counts a complete file.
    pub(crate) fn add_file(&self, with_name: u64, content: u64, bytes: u64) {
        lock(&self.by_content).add(content, bytes);
        lock(&self.by_name).add(with_name, bytes);
    }

    /// Counts chunks that were cut before, for one method: `items` chunks of `bytes` bytes
    /// together.
    pub fn add_again(&self, way: usize, items: u64, bytes: u64) {
        lock(&self.cut[way]).add_again(items, bytes);
    }

    /// The results.
    pub(crate) fn into_survey(self) -> Survey {
        let cut: Vec<_> = self.cut.iter().map(|count| lock(count).count()).collect();
        let (tried_bytes, compressed_bytes) = *lock(&self.tried);
        let (fixed, defined) = cut.split_at(LENGTHS.len());
        Survey {
            by_name: lock(&self.by_name).count(),
            by_content: lock(&self.by_content).count(),
            fixed: fixed.to_vec(),
            defined: defined.to_vec(),
            tried_bytes,
            compressed_bytes,
        }
    }
}

/// One reader's window, and how far each cutting method has processed it.
pub(crate) struct Slicer<'a> {
    counts: &'a Counts,
    encoder: Encoder,
    window: Vec<u8>,
    /// The offset of the window in its file.
    base: u64,
    run: Range<u64>,
    at: [u64; WAYS],
    /// The number of chunks that were cut since [`take_items`](Self::take_items) was called.
    items: [u64; WAYS],
    out: Vec<u8>,
}

impl<'a> Slicer<'a> {
    /// Makes a slicer that adds to these counts.
    pub fn new(counts: &'a Counts) -> Result<Self> {
        Ok(Slicer {
            counts,
            encoder: Encoder::new(Codec::default())?,
            window: Vec::new(),
            base: 0,
            run: 0..0,
            at: [0; WAYS],
            items: [0; WAYS],
            out: Vec::new(),
        })
    }

    /// The counts to which this slicer adds.
    pub fn counts(&self) -> &'a Counts {
        self.counts
    }

    /// Begins a data range, given by its place in the file.
    pub fn begin(&mut self, run: Range<u64>) {
        self.window.clear();
        (self.base, self.at) = (run.start, [run.start; WAYS]);
        self.run = run;
    }

    /// Whether the complete data range was read and cut.
    pub fn is_done(&self) -> bool {
        self.base + self.window.len() as u64 == self.run.end
    }

    /// Returns the buffer for the next bytes of the data range, which must be filled before the
    /// next call.
    pub fn room(&mut self) -> &mut [u8] {
        let filled = self.window.len();
        let left = self.run.end - self.base - filled as u64;
        self.window.resize(filled + left.min((WINDOW_BYTES - filled) as u64) as usize, 0);
        &mut self.window[filled..]
    }

    /// Cuts as much of the window as possible.
    pub fn cut(&mut self) {
        let is_last = self.is_done();
        for way in 0..WAYS {
            self.cut_one_way(way, is_last);
        }
        if is_last {
            return;
        }
        let done = self.at.iter().min().map_or(0, |&at| at - self.base);
        self.window.drain(..done as usize);
        self.base += done;
    }

    /// Returns the number of chunks cut by each method since the last call.
    pub(crate) fn take_items(&mut self) -> [u64; WAYS] {
        std::mem::take(&mut self.items)
    }

    fn cut_one_way(&mut self, way: usize, is_last: bool) {
        let cutter = &self.counts.cutters[way];
        let mut at = self.at[way];
        let mut chunks = Vec::new();
        loop {
            let data = &self.window[(at - self.base) as usize..];
            if data.is_empty() || (!is_last && data.len() < cutter.max_bytes()) {
                break;
            }
            let length = cutter.next_cut(at, data, is_last);
            let key = distinct_key(blake3::hash(&data[..length]).as_bytes());
            chunks.push((key, at, length));
            at += length as u64;
        }
        self.at[way] = at;
        self.items[way] += chunks.len() as u64;
        let mut new = Vec::new();
        {
            let mut count = lock(&self.counts.cut[way]);
            for &(key, at, length) in &chunks {
                // The low bits have nothing to do with the sample of the count.
                let is_new = count.add(key, length as u64);
                if is_new && way == COMPRESSED && key % COMPRESSED_ONE_IN == 0 {
                    new.push((at, length));
                }
            }
        }
        for (at, length) in new {
            let data = &self.window[(at - self.base) as usize..][..length];
            if let Ok(encoded) = self.encoder.encode(data, &mut self.out) {
                let stored = encoded.stored(data, &self.out).len() as u64;
                let mut tried = lock(&self.counts.tried);
                *tried = (tried.0 + length as u64, tried.1 + stored);
            }
        }
    }
}
