//! The source trees, and how they change. Contents are drawn from a small stock, so that content
//! that only one snapshot had reappears in later snapshots, in the other source, or under another
//! name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::operation::Dice;
use crate::support::noise;

/// The base of all modification times, in seconds.
pub const STAMP_SECONDS: i64 = 1_500_000_000;
/// The number of different contents.
const STOCK: usize = 12;
/// File lengths around the limits that matter for chunks of 4K.
const LENGTHS: &[usize] = &[0, 1, 700, 1024, 4095, 4096, 9_000, 16_385, 40_000];
const NAMES: &[&str] = &["a", "b", "c", "d/a", "d/b", "d/e/a", "f/a", "f/b"];

/// A first tree.
pub fn make_source(at: &Path, seed: u64, stamps: &mut Stamps) {
    fs::create_dir_all(at).unwrap();
    change_source(at, seed, stamps);
    change_source(at, seed + 1, stamps);
}

/// Makes one to four changes.
pub fn change_source(at: &Path, seed: u64, stamps: &mut Stamps) {
    let mut dice = Dice::new(seed);
    for _ in 0..=dice.below(4) {
        change_once(at, &mut dice);
    }
    stamps.stamp(at);
}

/// Modification times, all different, so that a change is visible however fast a story runs.
#[derive(Default)]
pub struct Stamps(i64);

impl Stamps {
    /// Sets the time of every file that was created or changed since the last call.
    fn stamp(&mut self, at: &Path) {
        let found = fs::symlink_metadata(at).unwrap();
        if found.is_dir() {
            let entries = fs::read_dir(at).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            names.sort();
            names.iter().for_each(|name| self.stamp(name));
        }
        if found.mtime() == STAMP_SECONDS {
            return;
        }
        self.0 += 1;
        let time = Timespec { tv_sec: STAMP_SECONDS, tv_nsec: self.0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn change_once(at: &Path, dice: &mut Dice) {
    let path = at.join(dice.pick(NAMES));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match dice.below(10) {
        0..6 => {
            // A fresh file: other names of the old one keep what they have.
            let _ = fs::remove_file(&path);
            fs::write(&path, content(dice)).unwrap();
        }
        6 => {
            // In place, and of all its names.
            let mut bytes = fs::read(&path).unwrap_or_default();
            bytes.extend(content(dice));
            bytes.truncate(60_000);
            fs::write(&path, bytes).unwrap();
        }
        7 => {
            let _ = fs::remove_file(&path);
        }
        8 => {
            let to = at.join(dice.pick(NAMES));
            if path.exists() && path != to {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::rename(&path, to).unwrap();
            }
        }
        _ => link(at, &path, dice),
    }
}

fn content(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=dice.below(3) {
        let (seed, len) = (dice.below(STOCK) as u64 + 1, *dice.pick(LENGTHS));
        bytes.extend(noise(seed, len));
    }
    bytes
}

fn link(at: &Path, path: &Path, dice: &mut Dice) {
    let name: PathBuf = at.join(format!("link{}", dice.below(3)));
    let _ = fs::remove_file(&name);
    if path.exists() && dice.below(2) == 0 {
        fs::hard_link(path, name).unwrap();
    } else {
        std::os::unix::fs::symlink("d/a", name).unwrap();
    }
}
