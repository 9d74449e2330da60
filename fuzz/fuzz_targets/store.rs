//! A whole store with one extent of one member damaged. What parity or another copy covers comes
//! back whole, is found by check and mended by repair; where the damage is made to look sound,
//! what is restored is still right or missing, never wrong.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pinstripe::{Limits, MEMORY_DEFAULT_BYTES, Store, check, repair, restore};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::fault::Plan;
use pinstripe_member::stripe_set::{CHECKSUM_BYTES, FOOTER_BYTES, HEADER_BYTES, checksum};
use pinstripe_stripe::Credential;
use tempfile::TempDir;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A store as it was frozen, and what its latest snapshot holds.
struct Frozen {
    /// Every file of its members by its path.
    files: Files,
    content: Files,
}

/// One in the clear with index runs of the first form, and one that is encrypted.
static FROZEN: LazyLock<[Frozen; 2]> =
    LazyLock::new(|| ["store-v1-lzo", "store-v2-aes"].map(Frozen::new));

impl Frozen {
    fn new(name: &str) -> Frozen {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
        let mut files = files_below(&testdata.join(name));
        // A session may be missing: it is temporary. Files beside the members are not the store's.
        let is_kept =
            |path: &Path| path.iter().count() > 1 && !path.iter().any(|part| part == "sessions");
        files.retain(|path, _| is_kept(path));
        let around = scratch();
        lay_out(&files, around.path());
        let content = restored(around.path(), &Monitor::default()).expect("the store is sound");
        Frozen { files, content }
    }
}

/// Every regular file below a directory, by its path from there.
fn files_below(root: &Path) -> Files {
    let mut files = Files::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap();
                files.insert(path.strip_prefix(root).unwrap().into(), bytes);
            }
        }
    }
    files
}

fn lay_out(files: &Files, to: &Path) {
    for (path, bytes) in files {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The key of the encrypted one; a store in the clear asks for nothing.
static KEY: LazyLock<Credential> = LazyLock::new(|| {
    let key = include_bytes!("../../testdata/store-v2-aes/key");
    Credential::of_key_file(key).expect("it is a key file")
});

fn limits() -> Limits {
    Limits::new(1, 3, MEMORY_DEFAULT_BYTES)
}

/// A folder in memory where there is such a thing: repair waits for the disk otherwise.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("there is some room")
}

/// Opens the store by whichever member lets us, and restores its latest snapshot.
fn restored(around: &Path, monitor: &Monitor) -> pinstripe_base::error::Result<Files> {
    let to = around.join("restored");
    let plain = restore::RestoreOptions::new("latest", b"", &to, limits());
    let options = restore::RestoreOptions { verify: true, ..plain };
    restore::run(&open(around)?, &options, monitor)?;
    Ok(files_below(&to))
}

fn open(around: &Path) -> pinstripe_base::error::Result<Store> {
    let open = |member: &str| {
        let mut store = Store::open(&around.join(member), &Plan::default())?;
        store.unlock(&KEY).map(|_| store)
    };
    open("m0").or_else(|_| open("m1"))
}

/// The number of faults found.
fn troubles(store: &Store) -> pinstripe_base::error::Result<u64> {
    let options = check::CheckOptions { read_data: true, limits: limits() };
    let found = check::run(store, &options, &Monitor::default())?;
    Ok(found.repairable + found.lost)
}

/// Makes checksums right that guard the damaged bytes.
fn seal(path: &Path, bytes: &mut [u8]) {
    let len = bytes.len();
    if path.iter().any(|part| part == "packs" || part == "index") {
        if len < HEADER_BYTES + FOOTER_BYTES {
            return;
        }
        let header_sum = HEADER_BYTES - CHECKSUM_BYTES;
        let sum = checksum(&bytes[..header_sum]);
        bytes[header_sum..HEADER_BYTES].copy_from_slice(&sum);
        let footer = len - FOOTER_BYTES;
        let trailer_bytes = bytes[footer + 16..footer + 24].try_into().expect("eight bytes");
        if let Some(at) = (footer as u64).checked_sub(u64::from_le_bytes(trailer_bytes)) {
            let sum = checksum(&bytes[at as usize..footer]);
            bytes[footer + 24..footer + 40].copy_from_slice(&sum);
            let prefix: [u8; 8] =
                *bytes[at as usize..].get(32..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; 8]);
            bytes[footer + 40..footer + 48].copy_from_slice(&prefix);
        }
        let sum = checksum(&bytes[footer..len - CHECKSUM_BYTES]);
        bytes[len - CHECKSUM_BYTES..].copy_from_slice(&sum);
    } else if let Some(body_bytes) = len.checked_sub(52) {
        bytes[16..20].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        let sum = blake3::hash(&bytes[..len - 32]);
        bytes[len - 32..].copy_from_slice(sum.as_bytes());
    }
}

fuzz_target!(|input: (u8, u8, u16, u8, Vec<(u16, u8)>)| {
    let (which, how, at, flip, more) = input;
    let (is_gone, is_resized, is_sealed) = (how % 8 == 0, how % 8 == 1, how % 8 > 5);
    let Frozen { files, content } = &FROZEN[usize::from(how / 8 % 2)];
    let (path, old) = files.iter().nth(usize::from(which) % files.len()).expect("it has files");
    let mut bytes = old.clone();
    if is_resized {
        bytes.resize(usize::from(at) % (2 * old.len()), flip);
    }
    for (at, flip) in std::iter::once((at, flip ^ 1)).chain(more) {
        // Small numbers reach both ends, where the structures are.
        let (at, from_end) = (usize::from(at / 2), at % 2 == 1);
        let at = if from_end { bytes.len().wrapping_sub(at + 1) } else { at };
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= flip;
        }
    }
    if is_sealed {
        seal(path, &mut bytes);
    }
    let is_damaged = is_gone || bytes != *old;
    let around = scratch();
    let mut files = files.clone();
    files.insert(path.clone(), bytes);
    if is_gone {
        files.remove(path);
    }
    lay_out(&files, around.path());

    let monitor = Monitor::default();
    let found = restored(around.path(), &monitor);
    for (path, bytes) in found.iter().flatten() {
        assert!(content.get(path) == Some(bytes), "{} is wrong", path.display());
    }
    if !is_sealed {
        assert_eq!(found.expect("one damaged extent is survived"), *content);
        assert_eq!(monitor.get(Counter::Losses), 0);
    }
    let Ok(mut store) = open(around.path()) else { return };
    let troubles = troubles(&store);
    let options = repair::RepairOptions { replace: None, limits: limits(), same_disk: true };
    let repaired = repair::run(&mut store, &options, &Monitor::default());
    if is_sealed {
        return;
    }
    assert_eq!(troubles.expect("the store can be checked") > 0, is_damaged);
    repaired.expect("the store can be repaired");
    let store = open(around.path()).expect("the store opens");
    assert_eq!(self::troubles(&store).expect("it can be checked again"), 0);
});
