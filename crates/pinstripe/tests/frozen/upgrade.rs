//! Stores of version 1 brought to version 2: whole, cut off at every step, and taken back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe::upgrade::Direction;
use pinstripe::{OpenOptions, Quorum, Store, sessions, upgrade};
use pinstripe_base::error::Kind;
use pinstripe_member::label::{Format, Label};
use pinstripe_member::session::{Process, Session, Work};
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps, envelope};

use super::{FROZEN, Frozen, copy, credentials, open, read, testdata};

/// A copy of a frozen store that no writer of another machine holds up any more.
fn thawed(name: &str) -> (tempfile::TempDir, PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let place = around.path().join(name);
    copy(&testdata().join(name), &place);
    let store = open(&place, 0);
    for session in sessions::load(&store, Quorum::Deletion).unwrap() {
        sessions::fence(&store, &session).unwrap();
    }
    // Labels that say where the members are now.
    store.write_labels().unwrap();
    (around, place)
}

/// As a process that all others take for dead, as it is once it was cut off.
fn open_with(place: &Path, steps: Arc<dyn Steps>) -> pinstripe_base::error::Result<Store> {
    let own = pinstripe_member::own_process();
    let process = Some(Process { started_ticks: own.started_ticks + 1, ..own });
    let options = OpenOptions { steps: Some(steps), process, ..OpenOptions::default() };
    let mut store = Store::open_with(&place.join("m0"), options)?;
    if let Some(credential) = credentials(place).first() {
        store.unlock(credential)?;
    }
    Ok(store)
}

/// Every file of the members, but for those under `tmp`.
fn files(place: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut open) = (BTreeMap::new(), vec![place.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.ends_with("tmp") {
                open.push(entry);
            } else if entry.is_file() {
                files.insert(entry.clone(), fs::read(entry).unwrap());
            }
        }
    }
    files
}

fn put_back(place: &Path, image: &BTreeMap<PathBuf, Vec<u8>>) {
    files(place).keys().for_each(|path| fs::remove_file(path).unwrap());
    for (path, bytes) in image {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Nothing that decides stands without a MAC, and the labels say the new version.
fn assert_vouched(store: &Store) {
    for (_, member) in store.present() {
        let label = fs::read(member.place().join(ExtentName::Label.path())).unwrap();
        assert_eq!(Label::decode(&label).unwrap().format, Format::V2);
        if !store.has_macs() {
            continue;
        }
        assert!(envelope::vouched(&label).is_some());
        for kind in [ExtentKind::Keys, ExtentKind::Forgotten, ExtentKind::Gc] {
            for (id, _) in member.list(kind).unwrap() {
                let path = member.place().join(ExtentName::In(kind, id).path());
                assert!(envelope::vouched(&fs::read(&path).unwrap()).is_some(), "{path:?}");
            }
        }
    }
}

#[test]
fn every_frozen_store_is_upgraded_and_reads_the_same() {
    for Frozen { name, .. } in FROZEN.iter().filter(|it| it.format == Format::V1) {
        let (_around, place) = thawed(name);
        let mut store = open(&place, 1);
        assert_eq!(store.format, Format::V1, "{name}");
        let outcome = upgrade::run(&mut store, Direction::Forward).unwrap();
        assert_eq!(outcome.format, 2, "{name}");
        assert_vouched(&store);
        let mut store = open(&place, 0);
        assert_eq!(store.format, Format::V2, "{name}");
        assert_eq!(store.has_macs(), !credentials(&place).is_empty(), "{name}");
        read(&place, 1, 0);
        let again = upgrade::run(&mut store, Direction::Forward).unwrap();
        assert_eq!((again.labels, again.objects), (0, 0), "{name}: there was nothing left to do");
        let back = upgrade::run(&mut store, Direction::Back).unwrap_err();
        assert_eq!(back.kind(), Kind::Refused, "{name}");
    }
}

#[test]
fn an_upgrade_cut_off_at_any_step_goes_on_or_is_taken_back() {
    for name in ["store-v2-aes", "store-v1-raw"] {
        let (_around, place) = thawed(name);
        let image = files(&place);
        let upgrade = |steps: Arc<dyn Steps>| {
            let mut store = open_with(&place, steps)?;
            upgrade::run(&mut store, Direction::Forward)
        };
        let counter = Arc::new(PowerCut::new(u64::MAX));
        upgrade(Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
        let (mut old, mut new) = (0, 0);
        for cut in 0..counter.steps_done() {
            put_back(&place, &image);
            let power = Arc::new(PowerCut::new(cut));
            let done = upgrade(Arc::clone(&power) as Arc<dyn Steps>);
            power.after_power_cut(cut * 7919).unwrap();
            let mut store = open(&place, (cut % 3) as usize);
            assert_eq!(store.absent().count(), 0, "{name}, cut {cut}");
            let is_new = store.format == Format::V2;
            assert!(done.is_err() || is_new, "{name}, cut {cut}: reported as done, and gone");
            if is_new {
                new += 1
            } else {
                old += 1
            }
            if !is_new && cut % 2 == 0 {
                upgrade::run(&mut store, Direction::Back).unwrap();
                drop(store);
                assert!(files(&place) == image, "{name}, cut {cut}: not as it was");
                continue;
            }
            upgrade::run(&mut store, Direction::Forward).unwrap();
            assert_vouched(&open(&place, 0));
            if cut % 7 == 0 {
                read(&place, 0, 0);
            }
        }
        assert!(old > 10 && new > 3, "{name}: {old} before the last step, {new} after it");
    }
}

#[test]
fn an_upgrade_waits_for_writers_and_for_members() {
    let (_around, place) = thawed("store-v2-aes");
    let mut store = open(&place, 0);
    let other = open(&place, 1);
    let work = Work::Backup;
    let session = Session {
        store: store.config.store,
        id: pinstripe_base::id::SessionId([1; 16]),
        work,
        commit: [2; 16],
        parents: Vec::new(),
        process: Process { machine: [1; 16], ..pinstripe_member::own_process() },
    };
    let name = sessions::name_of(session.id);
    other.put_all(name, &session.encode(), Quorum::Backup).unwrap();
    let busy = upgrade::run(&mut store, Direction::Forward).unwrap_err();
    assert_eq!(busy.kind(), Kind::Busy);
    // The labels are written first, so no writer of version 1 begins beside it.
    let late = open(&place, 1);
    let begun = sessions::begin(&late, work, [3; 16], Vec::new());
    assert_eq!(begun.err().unwrap().kind(), Kind::Busy);
    other.delete_all(name).unwrap();
    upgrade::run(&mut open(&place, 0), Direction::Back).unwrap();
    sessions::begin(&open(&place, 1), work, [3; 16], Vec::new()).unwrap().end().unwrap();
    fs::rename(place.join("m2"), place.join("aside")).unwrap();
    let absent = upgrade::run(&mut open(&place, 0), Direction::Forward).unwrap_err();
    assert_eq!(absent.kind(), Kind::Refused);
}
