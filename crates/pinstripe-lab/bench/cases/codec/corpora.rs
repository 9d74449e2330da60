//! The corpora of the codecs: files of this machine, pages like those of memory, noise.

use std::fs;
use std::io::Read;
use std::path::Path;

const PAGE_BYTES: usize = 4096;

/// A name and the bytes under it.
pub type Corpus = (String, Vec<u8>);

/// Text and shared libraries of this machine, memory-like pages made of both, random bytes.
pub fn built_in(bytes: usize) -> Vec<Corpus> {
    let mut text = Vec::new();
    let sources = [("/usr/include", ".h"), ("/usr/share/doc", "READ"), ("/usr/lib", ".py")];
    for (at, (path, part)) in sources.into_iter().enumerate() {
        join_files(Path::new(path), part, bytes * (at + 1) / sources.len(), &mut text);
    }
    let mut libraries = Vec::new();
    join_files(Path::new("/usr/lib"), ".so", bytes, &mut libraries);
    let mut dice = Dice(0x243f_6a88_85a3_08d3);
    let memory = memory_like(&text, &libraries, bytes, &mut dice);
    let random = (0..bytes / 8).flat_map(|_| dice.roll().to_le_bytes()).collect();
    [("text", text), ("libraries", libraries), ("memory-like", memory), ("random", random)]
        .map(|(name, data)| (name.to_string(), data))
        .into_iter()
        .filter(|(_, data)| !data.is_empty())
        .collect()
}

/// The corpora of the command line.
///
/// # Errors
/// When there is nothing to read under a path.
pub fn given(paths: &[(&str, &str)], bytes: usize) -> Result<Vec<Corpus>, String> {
    let mut corpora = Vec::new();
    for &(name, path) in paths {
        let mut data = Vec::new();
        join_files(Path::new(path), "", bytes, &mut data);
        if data.is_empty() {
            return Err(format!("{path} has no bytes to read"));
        }
        corpora.push((name.to_string(), data));
    }
    Ok(corpora)
}

/// Appends the files at and below `path` with `part` in their names, in path order, until `out` has
/// `bytes` bytes. Unreadable files are skipped: any corpus of the right kind will do.
fn join_files(path: &Path, part: &str, bytes: usize, out: &mut Vec<u8>) {
    let files = ignore::WalkBuilder::new(path)
        .standard_filters(false)
        .sort_by_file_path(Path::cmp)
        .build()
        .flatten()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .filter(|entry| entry.file_name().to_string_lossy().contains(part));
    for entry in files {
        if out.len() >= bytes {
            break;
        }
        if let Ok(file) = fs::File::open(entry.path()) {
            // A read that fails half way still leaves bytes of the right kind.
            let _ = file.take((bytes - out.len()) as u64).read_to_end(out);
        }
    }
}

/// Runs of 4 KiB pages: 45 % zero, 23 % slab-like pointers, 15 % machine code, 9 % text,
/// 8 % random.
fn memory_like(text: &[u8], code: &[u8], bytes: usize, dice: &mut Dice) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 16 * PAGE_BYTES);
    while out.len() < bytes {
        let kind = dice.below(100);
        for _ in 0..=dice.below(16) {
            match kind {
                0..45 => out.resize(out.len() + PAGE_BYTES, 0),
                45..68 => slab_page(dice, &mut out),
                68..83 if code.len() > PAGE_BYTES => piece(code, dice, &mut out),
                83..92 if text.len() > PAGE_BYTES => piece(text, dice, &mut out),
                _ => (0..PAGE_BYTES / 8).for_each(|_| out.extend(dice.roll().to_le_bytes())),
            }
        }
    }
    out.truncate(bytes);
    out
}

/// A page of pointers into one slab, small numbers and zeros.
fn slab_page(dice: &mut Dice, out: &mut Vec<u8>) {
    let base = 0xffff_8880_0000_0000 | (dice.roll() & 0xffff_f000);
    for at in 0..PAGE_BYTES / 8 {
        let word = match dice.below(8) {
            0..3 => base + dice.below(64) as u64 * 64,
            3..5 => 0,
            5 => at as u64,
            _ => dice.below(256) as u64,
        };
        out.extend(word.to_le_bytes());
    }
}

/// A page's worth from anywhere in `source`.
fn piece(source: &[u8], dice: &mut Dice, out: &mut Vec<u8>) {
    let at = dice.below(source.len() - PAGE_BYTES);
    out.extend_from_slice(&source[at..at + PAGE_BYTES]);
}

/// xorshift64*: the same numbers on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }
}
