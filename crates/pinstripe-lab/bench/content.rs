//! Content to back up: that of real files, and made-up content that is the same on every machine.
//!
//! Everything is a function of a seed, so each tool, round and day reads the same bytes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub use pinstripe_base::random::Noise;

use crate::{Result, trees};

/// The content of many files as one endless stream; empty when they all are.
pub struct Files {
    paths: Vec<PathBuf>,
    next: usize,
    current: Option<File>,
}

impl Files {
    /// The regular files below `root` that are not empty, in path order.
    pub fn below(root: &Path) -> Result<Files> {
        let mut paths = Vec::new();
        trees::visit(root, &mut |path, metadata| {
            if metadata.is_file() && metadata.len() > 0 {
                paths.push(path.to_path_buf());
            }
            Ok(())
        })?;
        Ok(Files { paths, next: 0, current: None })
    }
}

impl Read for Files {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Twice over the list without a byte: there is none.
        for _ in 0..2 * self.paths.len() {
            if let Some(file) = &mut self.current {
                match file.read(buffer)? {
                    0 => self.current = None,
                    read => return Ok(read),
                }
            }
            // A file that cannot be opened or has gone is passed over.
            self.current = File::open(&self.paths[self.next]).ok();
            self.next = (self.next + 1) % self.paths.len();
        }
        Ok(0)
    }
}

/// Appends `bytes` bytes of made-up words, few of them often: a codec makes them about three times
/// smaller.
fn add_words(text: &mut Vec<u8>, bytes: usize, random: &mut Noise) {
    const LETTERS: &[u8; 32] = b"etaoinshrdlucmfwypvbgkjqxzetaoin";
    const WORDS: u64 = 1 << 14;
    let end = text.len() + bytes;
    while text.len() < end {
        let draw = random.next();
        // The product of two even draws: low numbers come often.
        let number = ((draw & (WORDS - 1)) * ((draw >> 16) & (WORDS - 1))) / WORDS;
        let mut word = Noise(number).next();
        for _ in 0..3 + number % 7 {
            text.push(LETTERS[(word & 31) as usize]);
            word >>= 5;
        }
        text.push(if draw >> 60 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(end);
}

/// The parameters of a made-up tree.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// Trees of other seeds have nothing in common but what is shared.
    pub seed: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// This many of eight files are the same in every tree of this size.
    pub shared_eighths: u64,
}

/// Makes a tree below `work`, unless it is there in full, and returns where: files of 4 KiB to
/// 2 MiB, of four bytes three words and one noise, at most 64 files in a directory.
pub fn make_tree(work: &Path, recipe: Recipe) -> Result<PathBuf> {
    let Recipe { seed, bytes, shared_eighths } = recipe;
    let root = &work.join(format!("tree-{seed}-{bytes}-{shared_eighths}"));
    let mark = root.with_extension("complete");
    if mark.exists() {
        return Ok(root.clone());
    }
    trees::remove(root)?;
    let told = |error: io::Error| format!("cannot make {}: {error}", root.display());
    let (mut left, mut number) = (bytes, 0);
    let mut content = Vec::new();
    while left > 0 {
        let is_shared = number % 8 < shared_eighths;
        // Sizes are those of all trees, so that shared files are alike in length as well.
        let draw = Noise(number).next();
        let bytes = ((4096 << (draw % 10)) + (draw >> 32) % 4096).min(left);
        let seed = if is_shared { 0 } else { seed + 1 };
        let mut random = Noise((seed << 32) ^ number.wrapping_mul(0x9e37_79b9));
        content.clear();
        add_words(&mut content, (bytes / 4 * 3) as usize, &mut random);
        random.take(bytes - content.len() as u64).read_to_end(&mut content).map_err(told)?;
        let folder = root.join(format!("d{:04}", number / 64));
        fs::create_dir_all(&folder).map_err(told)?;
        fs::write(folder.join(format!("f{number:06}")), &content).map_err(told)?;
        left -= bytes;
        number += 1;
    }
    fs::write(mark, "").map_err(told)?;
    Ok(root.clone())
}

/// Makes `files` different files of `bytes` bytes each below `work`, in directories of a thousand,
/// unless they exist. Returns their directory.
pub fn make_small_files(work: &Path, files: u64, bytes: usize) -> Result<PathBuf> {
    const FOLDER: u64 = 1000;
    let root = &work.join(format!("small-{files}-{bytes}"));
    let mark = root.with_extension("complete");
    if mark.exists() {
        return Ok(root.clone());
    }
    trees::remove(root)?;
    let told = |error: io::Error| format!("cannot make {}: {error}", root.display());
    for first in (0..files).step_by(FOLDER as usize) {
        let folder = root.join(format!("d{:05}", first / FOLDER));
        fs::create_dir_all(&folder).map_err(told)?;
        for number in first..files.min(first + FOLDER) {
            let mut content = Vec::with_capacity(bytes);
            add_words(&mut content, bytes, &mut Noise(number << 20));
            let mut file = File::create_new(folder.join(format!("f{number:08}"))).map_err(told)?;
            file.write_all(&content).map_err(told)?;
        }
    }
    fs::write(mark, "").map_err(told)?;
    Ok(root.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(root: &Path) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        trees::visit(root, &mut |path, metadata| {
            if metadata.is_file() {
                found.push(fs::read(path)?);
            }
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn trees_share_what_they_are_to_share_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let make = |seed| {
            let recipe = Recipe { seed, bytes: 8 << 20, shared_eighths: 2 };
            let root = make_tree(place.path(), recipe).unwrap();
            let found = contents(&root);
            trees::remove(&root).unwrap();
            fs::remove_file(root.with_extension("complete")).unwrap();
            found
        };
        let (one, two, again) = (make(1), make(2), make(1));
        assert_eq!(one, again);
        assert_eq!(one.iter().map(Vec::len).sum::<usize>(), 8 << 20);
        assert_eq!(one.len(), two.len());
        for (number, (one, two)) in one.iter().zip(&two).enumerate() {
            assert_eq!(one == two, number % 8 < 2, "{number}");
        }
    }

    #[test]
    fn small_files_are_all_different_and_made_once() {
        let place = tempfile::tempdir().unwrap();
        let root = make_small_files(place.path(), 2500, 100).unwrap();
        let mut found = contents(&root);
        assert!(found.iter().all(|content| content.len() == 100));
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 2500);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 3);
        fs::remove_file(root.join("d00000/f00000000")).unwrap();
        make_small_files(place.path(), 2500, 100).unwrap();
        assert_eq!(contents(&root).len(), 2499);
    }

    #[test]
    fn words_and_noise_are_what_they_say() {
        let mut words = Vec::new();
        add_words(&mut words, 1 << 20, &mut Noise(7));
        assert_eq!(words.len(), 1 << 20);
        let mut encoder = pinstripe_stripe::Encoder::new("zstd:3".parse().unwrap()).unwrap();
        let mut out = Vec::new();
        encoder.encode(&words, &mut out).unwrap();
        let times = words.len() as f64 / out.len() as f64;
        assert!((2.0..4.5).contains(&times), "words become {times:.2} times smaller");
    }
}
