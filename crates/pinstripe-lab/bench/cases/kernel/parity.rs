//! The parity kernels, compared with memcpy.
//!
//! Three working sets: blocks of 4 KiB (first-level cache), of 64 KiB (second level) and of 32 MiB
//! (memory). Blocks do not all begin at the same place within their page, as they would not in use.

use std::hint::black_box;

use pinstripe_kernel::parity::{encode_at, levels, rebuild_at, xor_into};

use super::Bench;

const WORKING_SETS: [(&str, usize); 3] = [("L1", 4 << 10), ("L2", 64 << 10), ("DRAM", 32 << 20)];
const DATA_COUNTS: [usize; 2] = [4, 8];
/// Between the starts of two blocks, beyond their length: a multiple of a line, not of a page.
const SKEW_BYTES: usize = 1792;

/// Blocks in one allocation, each skewed against the one before.
struct Blocks {
    bytes: Vec<u8>,
    block_bytes: usize,
}

impl Blocks {
    fn new(count: usize, block_bytes: usize) -> Blocks {
        let len = count * (block_bytes + SKEW_BYTES) + 64;
        // No kernel is faster with one content than with another.
        Blocks { bytes: vec![0x5a; len], block_bytes }
    }

    fn slices(&mut self) -> Vec<&mut [u8]> {
        let aligned = self.bytes.as_ptr().align_offset(64);
        let blocks = self.bytes[aligned..].chunks_exact_mut(self.block_bytes + SKEW_BYTES);
        blocks.map(|block| &mut block[..self.block_bytes]).collect()
    }
}

/// One size of blocks, and how many hold data.
struct Size {
    working_set: &'static str,
    block_bytes: usize,
    data_count: usize,
}

impl Size {
    fn name(&self, kernel: &str, version: &str) -> String {
        format!("{}/{kernel}/k={}/{version}", self.working_set, self.data_count)
    }

    fn data_bytes(&self) -> usize {
        self.data_count * self.block_bytes
    }
}

pub fn measure(bench: &mut Bench) {
    for (working_set, block_bytes) in WORKING_SETS {
        for data_count in DATA_COUNTS {
            let size = Size { working_set, block_bytes, data_count };
            let mut blocks = Blocks::new(data_count + 4, block_bytes);
            for (kernel, parity_count) in [("xor", 1), ("pq", 2), ("k+4", 4)] {
                encoding(bench, &size, kernel, &mut blocks, parity_count);
            }
            rebuilding(bench, &size, &mut blocks);
            beside(bench, &size, &mut blocks);
        }
    }
}

fn encoding(
    bench: &mut Bench,
    size: &Size,
    kernel: &str,
    blocks: &mut Blocks,
    parity_count: usize,
) {
    for level in levels() {
        let mut slices = blocks.slices();
        let (data, parity) = slices.split_at_mut(size.data_count);
        let data: Vec<&[u8]> = data.iter().map(|block| &**block).collect();
        bench.measure(&size.name(kernel, &level.to_string()), size.data_bytes(), || {
            encode_at(level, black_box(&data), &mut parity[..parity_count]);
        });
    }
}

fn rebuilding(bench: &mut Bench, size: &Size, blocks: &mut Blocks) {
    for level in levels() {
        let mut slices = blocks.slices();
        let (sources, outs) = slices.split_at_mut(size.data_count + 2);
        let mut present: Vec<Option<&[u8]>> = sources.iter().map(|block| Some(&**block)).collect();
        (present[0], present[2]) = (None, None);
        let [first, second] = outs else { unreachable!("four blocks beside the data") };
        let mut wanted = [(0, &mut **first), (2, &mut **second)];
        let name = size.name("rebuild 2 data of pq", &level.to_string());
        bench.measure(&name, size.data_bytes(), || {
            rebuild_at(level, size.data_count, black_box(&present), &mut wanted)
                .expect("parity is enough for two");
        });
    }
}

/// The cost of any pass over the same data.
fn beside(bench: &mut Bench, size: &Size, blocks: &mut Blocks) {
    let mut copies = Blocks::new(size.data_count, size.block_bytes);
    let (sources, mut copies) = (blocks.slices(), copies.slices());
    bench.measure(&size.name("beside", "memcpy"), size.data_bytes(), || {
        for (from, to) in sources.iter().zip(&mut copies) {
            to.copy_from_slice(black_box(from));
        }
    });
    let target = &mut *copies[0];
    bench.measure(&size.name("beside", "xor_into"), size.data_bytes(), || {
        sources[..size.data_count].iter().for_each(|from| xor_into(target, black_box(from)));
    });
}
