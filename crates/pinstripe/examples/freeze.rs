//! Makes frozen stores of the present format version, all or those that are named:
//! `cargo run -p pinstripe --example freeze -- testdata [STORE]...`.
//!
//! Only for a version that has not been released: what a released version wrote is never made
//! anew. `testdata/README.md` says more.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use pinstripe::{
    Limits, MEMORY_DEFAULT_BYTES, Store, backup, forget, init, key, sessions, snapshots,
};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::fault::Plan;
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_member::label::{Chunker, Encryption, Padding};
use pinstripe_member::session::Work;
use pinstripe_sim::{XATTR, describe_tree, file_hashes};
use pinstripe_stripe::{Credential, NewSlot};
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
    /// How it is encrypted, if it is.
    seal: Option<(Encryption, Chunker, Padding)>,
}

const RECIPES: [Recipe; 9] = [
    recipe("store-v1-raw", 3, 1, "4K", "raw"),
    Recipe { is_high: true, ..recipe("store-v1-zstd", 3, 1, "fixed:4K", "zstd:3") },
    recipe("store-v1-lz4", 4, 2, "4K", "lz4"),
    recipe("store-v1-snappy", 3, 1, "fixed:4K", "snappy"),
    recipe("store-v1-lzo", 3, 1, "4K", "lzo"),
    Recipe {
        seal: Some((Encryption::Aes256Gcm, Chunker::Keyed, Padding::None)),
        ..recipe("store-v2-aes", 3, 1, "4K", "zstd:3")
    },
    Recipe {
        seal: Some((Encryption::ChaCha20Poly1305, Chunker::Plain, Padding::Padme)),
        ..recipe("store-v2-chacha", 4, 2, "4K", "lz4")
    },
    Recipe {
        seal: Some((Encryption::Aes256Gcm, Chunker::Keyed, Padding::None)),
        ..recipe("store-v3-aes", 3, 1, "4K", "zstd:3")
    },
    recipe("store-v3-plain", 4, 1, "4K", "lz4"),
];

const fn recipe(
    name: &'static str,
    members: usize,
    parity: u8,
    chunking: &'static str,
    codec: &'static str,
) -> Recipe {
    Recipe { name, members, parity, chunking, codec, is_high: false, seal: None }
}

/// A time of the past for everything in the trees.
const MTIME_SECONDS: i64 = 1_600_000_000;
/// Bytes of the file of many chunks: long enough that the list of its chunks is in lists.
const LONG_BYTES: usize = (32 << 20) + 5;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let Some((to, named)) = args.split_first().map(|(to, named)| (PathBuf::from(to), named)) else {
        eprintln!("usage: freeze DIR [STORE]...: makes the frozen stores of this version in DIR");
        std::process::exit(2);
    };
    // Paths are part of a snapshot, so they are the same wherever this runs.
    let work = Path::new("/tmp/freeze");
    fs::create_dir(work).expect("this folder is for us and must not be there");
    let is_asked = |recipe: &Recipe| named.is_empty() || named.iter().any(|it| it == recipe.name);
    for recipe in RECIPES.into_iter().filter(is_asked) {
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
    init::run(&init::InitOptions {
        members: members.clone(),
        parity: recipe.parity,
        strip_bytes: 4096,
        chunking: recipe.chunking.parse()?,
        codec: recipe.codec.parse()?,
        seal: recipe.seal.map_or(init::Seal::none(), |(encryption, chunker, padding)| init::Seal {
            encryption,
            chunker,
            padding,
            slot: Some(slot(key_file(), "the key file")),
            store: None,
        }),
        same_disk: true,
        now_seconds: MTIME_SECONDS,
    })?;
    plant(&tree, recipe.is_high);
    back_up(&members[0], &tree, recipe, &store.join("first.manifest"))?;
    if recipe.seal.is_some() {
        fs::write(store.join("key"), key_file().key_file_text().unwrap().as_bytes()).unwrap();
        fs::write(store.join("password"), format!("{PASSWORD}\n")).unwrap();
        // The first snapshot is sealed under an earlier generation of keys than the second.
        let mut open = open(&members[0], recipe)?;
        key::rotate(&mut open, &slot(key_file(), "the key file"))?;
        key::add(&open, &slot(Credential::password(PASSWORD)?, "the password"))?;
    }
    change(&tree);
    back_up(&members[0], &tree, recipe, &store.join("second.manifest"))?;
    if recipe.seal.is_some() {
        leave_traces(&members[0], &tree, recipe)?;
    }

    let _ = fs::remove_dir_all(to);
    copy(&store, to);
    fs::write(to.with_extension("hashes"), file_hashes(to).join("\n") + "\n").unwrap();
    fs::remove_dir_all(&tree).unwrap();
    Ok(())
}

/// Made up, and no secret: it opens nothing but frozen stores.
fn key_file() -> Credential {
    Credential::of_key_file(&b"0123456789abcdef".repeat(4)).unwrap()
}

/// The same.
const PASSWORD: &str = "correct horse";

fn slot(credential: Credential, label: &str) -> NewSlot {
    // So cheap that tests may try it often.
    let costs = KdfCosts { memory_kib: 64, passes: 1, lanes: 1 };
    NewSlot { credential, costs, label: label.to_owned(), now_seconds: MTIME_SECONDS }
}

fn open(member: &Path, recipe: &Recipe) -> Result<Store> {
    let mut store = Store::open(member, &Plan::default())?;
    if recipe.seal.is_some() {
        store.unlock(&key_file())?;
    }
    Ok(store)
}

/// What a store in use has besides: a snapshot that is forgotten, one that was forgotten and is
/// not any more, and the session of a writer that came to no end.
fn leave_traces(member: &Path, tree: &Path, recipe: &Recipe) -> Result<()> {
    let store = open(member, recipe)?;
    let monitor = Monitor::default();
    let forget = |name: String| {
        let choice = forget::ForgetChoice::Named(&[name]);
        let options = forget::ForgetOptions::new(choice);
        forget::run(&store, &options, &monitor).map(drop)
    };
    let second = snapshots::run(&store, &monitor)?.pop().expect("there are two").id.to_string();
    forget(second.clone())?;
    forget::undelete(&store, &second, &monitor)?;
    fs::write(tree.join("regretted"), b"to be forgotten\n").unwrap();
    let limits = Limits::new(2, recipe.members, MEMORY_DEFAULT_BYTES);
    let options = backup::BackupOptions::new(vec![tree.to_path_buf()], b"frozen", limits);
    forget(backup::run(&store, options, &monitor)?.id.to_string())?;
    std::mem::forget(sessions::begin(&store, Work::Backup, [0x5e; 16], Vec::new())?);
    assert_eq!(monitor.get(Counter::Losses), 0);
    Ok(())
}

fn back_up(member: &Path, tree: &Path, recipe: &Recipe, manifest: &Path) -> Result<()> {
    set_times(tree);
    fs::write(manifest, describe_tree(tree).join("\n") + "\n").unwrap();
    let monitor = Monitor::default();
    let limits = Limits::new(2, recipe.members, MEMORY_DEFAULT_BYTES);
    let options = backup::BackupOptions::new(vec![tree.to_path_buf()], b"frozen", limits);
    let snapshot = backup::run(&open(member, recipe)?, options, &monitor)?;
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
    rustix::fs::setxattr(tree.join("noise"), XATTR, b"kept\0", XattrFlags::empty()).unwrap();
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
