//! A minimal rewrite of the program to be replaced: a thread for each output, each with a
//! contiguous range, 4 KiB at a time through a codec and a 4 KiB stream, an fsync at the end.
//!
//! Every block is 24 bytes of description followed by its bytes, packed if that is shorter, as in
//! the memory dumps that are split in this way. Zero blocks are descriptions only.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pinstripe_split::{ByteSource, Fake};
use pinstripe_stripe::{LzoDictionary, lzo_compress, lzo_max_stored_bytes};

use super::Run;
use crate::Result;
use crate::child::Cost;

const BLOCK_BYTES: usize = 4096;
const DESCRIPTION_BYTES: usize = 24;

/// Codecs that it has.
pub const CODECS: [&str; 3] = ["raw", "lzo", "snappy"];

/// Splits a made-up source over new files in `folders`.
pub fn split(source: &Fake, folders: &[PathBuf], codec: &str) -> Result<Run> {
    rustix::fs::sync();
    let bytes = source.spec().bytes;
    let each = bytes.div_ceil(folders.len() as u64).next_multiple_of(BLOCK_BYTES as u64);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(folders)
            .map(|(number, folder)| {
                let range = (number * each).min(bytes)..((number + 1) * each).min(bytes);
                scope.spawn(move || one(source, range, &folder.join("part"), codec))
            })
            .collect();
        threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })?;
    let wall_s = start.elapsed().as_secs_f64();
    let cost = Cost { wall_s, cpu_s: cpu_seconds() - cpu, memory_bytes: 0 };
    eprintln!("post-{}-{codec}: {wall_s:.2} s, {:.2} s CPU", folders.len(), cost.cpu_s);
    Ok(Run { bytes: bytes as f64, cost })
}

/// Writes one range.
fn one(source: &Fake, range: std::ops::Range<u64>, path: &Path, codec: &str) -> Result<()> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut out = BufWriter::with_capacity(BLOCK_BYTES, File::create(path).map_err(told)?);
    let mut packer = Packer::new(codec);
    let mut block = [0; BLOCK_BYTES];
    for offset in range.clone().step_by(BLOCK_BYTES) {
        let block = &mut block[..BLOCK_BYTES.min((range.end - offset) as usize)];
        source.read_at(offset, block).map_err(|error| error.to_string())?;
        let stored: &[u8] = match block.iter().all(|byte| *byte == 0) {
            true => &[],
            false => packer.pack(block).unwrap_or(block),
        };
        let mut description = [0; DESCRIPTION_BYTES];
        description[..8].copy_from_slice(&offset.to_le_bytes());
        description[8..12].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        out.write_all(&description).and_then(|()| out.write_all(stored)).map_err(told)?;
    }
    let file = out.into_inner().map_err(|error| told(error.into_error()))?;
    file.sync_all().map_err(told)
}

enum Packer {
    Raw,
    Lzo(LzoDictionary, Vec<u8>),
    Snappy(Box<snap::raw::Encoder>, Vec<u8>),
}

impl Packer {
    fn new(codec: &str) -> Packer {
        match codec {
            "lzo" => {
                Packer::Lzo(LzoDictionary::default(), vec![0; lzo_max_stored_bytes(BLOCK_BYTES)])
            }
            "snappy" => {
                let room = vec![0; snap::raw::max_compress_len(BLOCK_BYTES)];
                Packer::Snappy(Box::new(snap::raw::Encoder::new()), room)
            }
            _ => Packer::Raw,
        }
    }

    /// The packed bytes, where these are fewer.
    fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        let (bytes, room) = match self {
            Packer::Raw => return None,
            Packer::Lzo(dictionary, room) => (lzo_compress(block, dictionary, room), room),
            Packer::Snappy(encoder, room) => (encoder.compress(block, room).ok()?, room),
        };
        (bytes < block.len()).then(|| &room[..bytes])
    }
}

/// CPU time of all our threads so far.
fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live, writable rusage; zeroed is a valid one (integers only), so
    // it may be read whatever the call did, and with these arguments it cannot fail (getrusage(2)).
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_and_zeros_take_no_room() {
        let work = tempfile::tempdir().unwrap();
        let folders = ["0", "1"].map(|name| work.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let len = |folder: &PathBuf| std::fs::metadata(folder.join("part")).unwrap().len();
        for (source, each) in [("fake:64K", 8 * 4120), ("fake:64K,zero=100%", 8 * 24)] {
            let source = Fake::new(source.parse().unwrap()).unwrap();
            for codec in CODECS {
                let run = split(&source, &folders, codec).unwrap();
                assert_eq!(run.bytes, 65536.0);
                assert_eq!(folders.each_ref().map(len), [each; 2], "{codec}");
            }
        }
    }
}
