//! Stores of every format version that there was, frozen in `testdata/`, are read for ever.
//!
//! `testdata/README.md` says how they were made. A store that does not read any more is a broken
//! promise, never a reason to make it anew.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod upgrade;

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe::{
    Glob, Limits, MEMORY_DEFAULT_BYTES, Query, Store, check, find, load_snapshot, restore,
};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::fault::Plan;
use pinstripe_member::label::Format;
use pinstripe_sim::{XATTR, describe_tree, file_hashes};
use pinstripe_stripe::Credential;

/// A frozen store, and its members: of the last ones as many may be missing as it has parity.
struct Frozen {
    name: &'static str,
    members: usize,
    parity: usize,
    format: Format,
}

/// Every folder of `testdata/`.
const FROZEN: [Frozen; 9] = [
    Frozen { name: "store-v1-lz4", members: 4, parity: 2, format: Format::V1 },
    Frozen { name: "store-v1-lzo", members: 3, parity: 1, format: Format::V1 },
    Frozen { name: "store-v1-raw", members: 3, parity: 1, format: Format::V1 },
    Frozen { name: "store-v1-snappy", members: 3, parity: 1, format: Format::V1 },
    Frozen { name: "store-v1-zstd", members: 3, parity: 1, format: Format::V1 },
    Frozen { name: "store-v2-aes", members: 3, parity: 1, format: Format::V1 },
    Frozen { name: "store-v2-chacha", members: 4, parity: 2, format: Format::V1 },
    Frozen { name: "store-v3-aes", members: 3, parity: 1, format: Format::V2 },
    Frozen { name: "store-v3-plain", members: 4, parity: 1, format: Format::V2 },
];

/// The manifests beside the members, by the age of the snapshots that they describe.
const MANIFESTS: [&str; 2] = ["first.manifest", "second.manifest"];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Whether files here may have the attribute that the trees have.
fn has_xattrs(directory: &Path) -> bool {
    let probe = directory.join("probe");
    fs::write(&probe, b"").unwrap();
    let set = rustix::fs::setxattr(&probe, XATTR, b"1", rustix::fs::XattrFlags::empty());
    fs::remove_file(probe).unwrap();
    set.is_ok()
}

/// The files beside the members of an encrypted store: a key file and the text of a password.
fn credentials(place: &Path) -> Vec<Credential> {
    let key = fs::read(place.join("key")).ok().map(|text| Credential::of_key_file(&text));
    let password = fs::read_to_string(place.join("password")).ok();
    let password = password.map(|text| Credential::password(text.trim_end()));
    key.into_iter().chain(password).map(Result::unwrap).collect()
}

fn open(place: &Path, through: usize) -> Store {
    let mut store = Store::open(&place.join(format!("m{through}")), &Plan::default()).unwrap();
    let credentials = credentials(place);
    if !credentials.is_empty() {
        let unlocked = store.unlock(&credentials[through % credentials.len()]);
        unlocked.unwrap();
    }
    store
}

/// Checks and restores the store at `place` through member `through` with `absent` members gone;
/// returns how many strips had to be rebuilt.
fn read(place: &Path, through: usize, absent: usize) -> u64 {
    let limits = Limits::new(2, 4, MEMORY_DEFAULT_BYTES);
    let store = open(place, through);
    assert_eq!(store.absent().count(), absent);
    let monitor = Monitor::default();
    let options = check::CheckOptions { read_data: true, limits };
    let outcome = check::run(&store, &options, &monitor).unwrap();
    assert_eq!((outcome.snapshots, outcome.lost, outcome.hurt_paths), (2, 0, 0), "{outcome:?}");
    assert_eq!(outcome.repairable, absent as u64, "{outcome:?}");
    assert!(outcome.packs > 0);

    let monitor = Monitor::default();
    let around = tempfile::tempdir().unwrap();
    let has_xattrs = has_xattrs(around.path());
    let known = load_snapshot(&store, &monitor).unwrap();
    for (snapshot, name) in known.iter().zip(MANIFESTS) {
        let to = around.path().join(name);
        let id = snapshot.id.to_string();
        let plain = restore::RestoreOptions::new(&id, &snapshot.sources[0], &to, limits);
        let options = restore::RestoreOptions { verify: true, ..plain };
        restore::run(&store, &options, &monitor).unwrap();
        let bare = |line: &str| match line.rsplit_once(' ') {
            Some((line, _)) if !has_xattrs => line.to_owned(),
            _ => line.to_owned(),
        };
        let wanted = fs::read_to_string(place.join(name)).unwrap();
        let wanted: Vec<_> = wanted.lines().map(bare).collect();
        let found: Vec<_> = describe_tree(&to).iter().map(|line| bare(line)).collect();
        assert_eq!(found, wanted, "{name} through member {through}");
    }
    let mut found = Vec::new();
    let file = around.path().join("catalog");
    let query = Query::new(Glob::new(b"dir/deep/small").unwrap());
    find::run(&store, &file, &query, &monitor, &mut |version| {
        found.push(version.snapshots.iter().map(|it| it.id).collect::<Vec<_>>());
        Ok(())
    })
    .unwrap();
    assert_eq!(found.concat(), known.iter().map(|it| it.id).collect::<Vec<_>>());
    let losses = if has_xattrs { 0 } else { known.len() as u64 };
    assert_eq!(monitor.get(Counter::Losses), losses);
    monitor.get(Counter::RebuiltStrips)
}

fn read_whole_and_degraded(frozen: &Frozen) {
    let &Frozen { name, members, parity, .. } = frozen;
    let around = tempfile::tempdir().unwrap();
    let place = around.path().join(name);
    copy(&testdata().join(name), &place);
    assert_eq!(read(&place, 0, 0), 0);
    let mut rebuilt = 0;
    for first in 0..members {
        let absent: Vec<_> = (first..first + parity).map(|member| member % members).collect();
        let aside = |member: &usize| (place.join(format!("m{member}")), place.join("aside"));
        fs::create_dir(place.join("aside")).unwrap();
        for (there, aside) in absent.iter().map(aside) {
            fs::rename(&there, aside.join(there.file_name().unwrap())).unwrap();
        }
        rebuilt += read(&place, (first + parity) % members, parity);
        for (there, aside) in absent.iter().map(aside) {
            fs::rename(aside.join(there.file_name().unwrap()), &there).unwrap();
        }
        fs::remove_dir(place.join("aside")).unwrap();
    }
    assert!(rebuilt > 0, "no member held anything that was needed");
}

#[test]
fn raw_of_version_1() {
    read_whole_and_degraded(&FROZEN[2]);
}

#[test]
fn zstd_of_version_1() {
    read_whole_and_degraded(&FROZEN[4]);
}

#[test]
fn lz4_with_two_parity_strips_of_version_1() {
    read_whole_and_degraded(&FROZEN[0]);
}

#[test]
fn snappy_of_version_1() {
    read_whole_and_degraded(&FROZEN[3]);
}

#[test]
fn lzo_of_version_1() {
    read_whole_and_degraded(&FROZEN[1]);
}

#[test]
fn sealed_with_aes_of_version_2() {
    read_whole_and_degraded(&FROZEN[5]);
}

#[test]
fn sealed_with_chacha_of_version_2() {
    read_whole_and_degraded(&FROZEN[6]);
}

#[test]
fn sealed_with_macs_of_version_3() {
    read_whole_and_degraded(&FROZEN[7]);
}

#[test]
fn plain_of_version_3() {
    read_whole_and_degraded(&FROZEN[8]);
}

#[test]
fn nothing_else_opens_what_is_sealed() {
    for Frozen { name, .. } in &FROZEN[5..8] {
        let place = testdata().join(name);
        assert_eq!(credentials(&place).len(), 2);
        let mut store = Store::open(&place.join("m0"), &Plan::default()).unwrap();
        let locked = load_snapshot(&store, &Monitor::default()).unwrap_err();
        assert_eq!(locked.kind(), Kind::Locked);
        for wrong in [Credential::password("correct house"), Credential::generate()] {
            let refused = store.unlock(&wrong.unwrap()).unwrap_err();
            assert_eq!(refused.kind(), Kind::WrongKey);
        }
    }
}

#[test]
fn every_folder_is_read_here() {
    let mut folders: Vec<_> = fs::read_dir(testdata())
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders, FROZEN.map(|frozen| frozen.name));
}

#[test]
fn nothing_was_changed() {
    for Frozen { name, .. } in FROZEN {
        let listed = fs::read_to_string(testdata().join(name).with_extension("hashes")).unwrap();
        let found = file_hashes(&testdata().join(name));
        assert_eq!(found, listed.lines().collect::<Vec<_>>(), "{name}");
    }
}
