//! Makes the frozen stores of the present format version:
//! `cargo run -p pinstripe --example freeze -- testdata`.
//!
//! Only for a version that has not been released: what a released version wrote is never made
//! anew. `testdata/README.md` says more.

#[path = "../tests/frozen/manifest.rs"]
mod manifest;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use pinstripe::error::Result;
use pinstripe::fault::Plan;
use pinstripe::monitor::{Counter, Monitor};
use pinstripe::ops::{backup, init};
use pinstripe::pipeline::limits::{Limits, MEMORY_DEFAULT_BYTES};
use pinstripe::store::Store;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// How one store is made.
struct Recipe {
    name: &'static str,
    members: usize,
    parity: u8,
    chunking: &'static str,
    codec: &'static str,
    /// Many entries and a file of many chunks: nodes above the pages, and a content in lists.
    is_high: bool,
}

const RECIPES: [Recipe; 5] = [
    recipe("store-v1-raw", 3, 1, "4K", "raw"),
    Recipe { is_high: true, ..recipe("store-v1-zstd", 3, 1, "fixed:4K", "zstd:3") },
    recipe("store-v1-lz4", 4, 2, "4K", "lz4"),
    recipe("store-v1-snappy", 3, 1, "fixed:4K", "snappy"),
    recipe("store-v1-lzo", 3, 1, "4K", "lzo"),
];

const fn recipe(
    name: &'static str,
    members: usize,
    parity: u8,
    chunking: &'static str,
    codec: &'static str,
) -> Recipe {
    Recipe { name, members, parity, chunking, codec, is_high: false }
}

/// A time of the past for everything in the trees.
const MTIME_SECONDS: i64 = 1_600_000_000;
/// Bytes of the file of many chunks: long enough that the list of its chunks is in lists.
const LONG_BYTES: usize = (32 << 20) + 5;

fn main() -> Result<()> {
    let Some(to) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: freeze DIR: makes the frozen stores of this version in DIR");
        std::process::exit(2);
    };
    // Paths are part of a snapshot, so they are the same wherever this runs.
    let work = Path::new("/tmp/freeze");
    fs::create_dir(work).expect("this folder is for us and must not be there");
    for recipe in RECIPES {
        freeze(&recipe, work, &to.join(recipe.name))?;
        println!("{}", recipe.name);
    }
    fs::remove_dir_all(work).expect("the work is done");
    Ok(())
}

fn freeze(recipe: &Recipe, work: &Path, to: &Path) -> Result<()> {
    let (tree, store) = (work.join("tree"), work.join(recipe.name));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&store).unwrap();
    let members: Vec<_> = (0..recipe.members).map(|n| store.join(format!("m{n}"))).collect();
    init::run(&init::Options {
        members: members.clone(),
        parity: recipe.parity,
        strip_bytes: 4096,
        chunking: recipe.chunking.parse()?,
        codec: recipe.codec.parse()?,
        seal: init::Seal::none(),
        same_disk: true,
        now_seconds: MTIME_SECONDS,
    })?;
    plant(&tree, recipe.is_high);
    back_up(&members[0], &tree, recipe, &store.join("first.manifest"))?;
    change(&tree);
    back_up(&members[0], &tree, recipe, &store.join("second.manifest"))?;

    let _ = fs::remove_dir_all(to);
    copy(&store, to);
    fs::write(to.with_extension("hashes"), manifest::hashes(to).join("\n") + "\n").unwrap();
    fs::remove_dir_all(&tree).unwrap();
    Ok(())
}

fn back_up(member: &Path, tree: &Path, recipe: &Recipe, manifest: &Path) -> Result<()> {
    set_times(tree);
    fs::write(manifest, manifest::describe(tree).join("\n") + "\n").unwrap();
    let monitor = Monitor::default();
    let limits = Limits::new(2, recipe.members, MEMORY_DEFAULT_BYTES);
    let options = backup::Options::new(vec![tree.to_path_buf()], b"frozen", limits);
    let snapshot = backup::run(&Store::open(member, &Plan::default())?, options, &monitor)?;
    assert_eq!(monitor.get(Counter::Losses), 0, "the file system of {tree:?} lacks something");
    assert_eq!(snapshot.root.height > 0, recipe.is_high, "page ends lie elsewhere now");
    Ok(())
}

/// Every kind of entry that anyone may make.
fn plant(tree: &Path, is_high: bool) {
    let text: String = (0..1500).map(|line| format!("line {line} of a text\n")).collect();
    fs::create_dir_all(tree.join("dir/deep/deeper")).unwrap();
    fs::create_dir(tree.join("dir/none")).unwrap();
    fs::write(tree.join("text"), &text).unwrap();
    fs::hard_link(tree.join("text"), tree.join("dir/text again")).unwrap();
    fs::write(tree.join("dir/deep/deeper/copy"), &text).unwrap();
    fs::write(tree.join("dir/deep/small"), b"a few bytes\n").unwrap();
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"not \xff utf-8\n")), b"odd\n").unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    fs::write(tree.join("noise"), noise(6000)).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(&noise(300).repeat(10), 256 << 10).unwrap();
    sparse.set_len(1 << 20).unwrap();
    fs::File::create(tree.join("hole")).unwrap().set_len(64 << 10).unwrap();
    symlink("dir/deep/small", tree.join("link")).unwrap();
    symlink("/nowhere at all", tree.join("dir/dangling")).unwrap();
    rustix::fs::mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    rustix::fs::setxattr(tree.join("noise"), manifest::XATTR, b"kept\0", XattrFlags::empty())
        .unwrap();
    for (path, mode) in [(".", 0o755), ("dir", 0o1777), ("dir/deep", 0o550), ("noise", 0o640)] {
        rustix::fs::chmod(tree.join(path), Mode::from_raw_mode(mode)).unwrap();
    }
    if is_high {
        fs::create_dir(tree.join("many")).unwrap();
        (0..300).for_each(|n| fs::write(tree.join(format!("many/{n}")), b"").unwrap());
        fs::write(tree.join("long"), vec![b'a'; LONG_BYTES]).unwrap();
    }
}

/// What happened between the two snapshots.
fn change(tree: &Path) {
    let text = fs::read_to_string(tree.join("text")).unwrap();
    fs::write(tree.join("text"), text.replacen("line 700", "another line", 1)).unwrap();
    fs::remove_file(tree.join("empty")).unwrap();
    fs::write(tree.join("new"), b"new\n").unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    fs::create_dir(tree.join("link")).unwrap();
}

/// Bytes that no codec makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

/// Gives everything a time of the past, each entry its own.
fn set_times(tree: &Path) {
    let mut paths = vec![tree.to_path_buf()];
    let mut at = 0;
    while at < paths.len() {
        if fs::symlink_metadata(&paths[at]).unwrap().is_dir() {
            paths.extend(fs::read_dir(&paths[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    paths.sort();
    for (number, path) in paths.iter().enumerate() {
        let number = number as i64;
        let time = Timespec { tv_sec: MTIME_SECONDS + number, tv_nsec: 1_000_003 * number };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
    // Git keeps no empty folder, so none may matter: what was `tmp/` stays behind.
    let _ = fs::remove_dir(to);
}
