//! Encrypted stores: what they hide, who opens them, and what works without a key.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pinstripe::index::SealedPack;
use pinstripe::{OpenOptions, Store, UnlockLimits, index, init, key, member, scrub, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, hex};
use pinstripe_member::key_ring::{KdfCosts, KeySlot, SlotWay};
use pinstripe_member::label::{Chunker, Encryption, Label, Padding};
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps};
use pinstripe_stripe::{Credential, NewSlot, Sealer, StripSink, padded_bytes};

use pinstripe_sim::look;
use pinstripe_sim::{
    Image, Ledger, Meanwhile, NoWait, Site, assert_whole, backup, check, credential, limits,
    new_slot, noise, repair, restore, small_tree,
};

const CHEAP: KdfCosts = KdfCosts { memory_kib: 64, passes: 1, lanes: 1 };

fn password(text: &str) -> Credential {
    Credential::password(text).unwrap()
}

fn slot(credential: Credential, label: &str) -> NewSlot {
    NewSlot { credential, costs: CHEAP, label: label.to_owned(), now_seconds: 7 }
}

/// The store through its first member, opened with this.
fn open(site: &Site, with: &Credential) -> Result<Store> {
    let mut store = site.locked_store();
    store.unlock(with).map(|_| store)
}

fn kind<T>(result: Result<T>) -> Kind {
    result.err().expect("this must fail").kind()
}

fn files_of_packs(image: &Image) -> BTreeSet<PathBuf> {
    let is_pack = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == "packs");
    image.0.keys().filter(is_pack).cloned().collect()
}

#[test]
fn names_and_content_are_nowhere_in_an_encrypted_store() {
    let content = noise(5, 30_000);
    let found = |site: &Site| {
        fs::write(site.source().join("file"), &content).unwrap();
        site.save();
        let source = site.source();
        let name = source.to_str().unwrap().trim_start_matches('/').as_bytes().to_vec();
        let image = site.image();
        let holds = |needle: &[u8]| {
            image.0.values().any(|bytes| bytes.windows(needle.len()).any(|part| part == needle))
        };
        [holds(&name), holds(&content[500..540]), holds(b"written_bytes")]
    };
    assert_eq!(found(&Site::new(2, 1)), [false; 3]);
    assert_eq!(found(&Site::clear(2, 1)), [true; 3]);
}

#[test]
fn without_a_key_nothing_is_given_and_everything_is_checked() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (snapshot, wanted) = (site.save(), look(&site.source()));
    let before = site.image();
    let mut store = site.locked_store();
    assert!(store.is_locked());
    let monitor = Ledger::new().monitor;
    assert_eq!(kind(snapshots::run(&store, &monitor)), Kind::Locked);
    assert_eq!(kind(backup(&store, &site.source(), &Ledger::new())), Kind::Locked);
    let (name, to) = (snapshot.id.to_string(), site.target());
    assert_eq!(kind(restore(&store, &name, &site.source(), &to, &Ledger::new())), Kind::Locked);
    let error = store.keys().unwrap_err();
    assert!(error.advice_text().unwrap().contains("--password-file"), "{error:?}");

    let ledger = Ledger::new();
    let outcome = check(&store, true, &ledger);
    ledger.assert_clean();
    assert!(outcome.without_key && outcome.packs > 0 && outcome.snapshots == 1);
    // Damage is found, reported and repaired with the disks alone, without a key.
    for (number, path) in before.0.keys().enumerate() {
        if !path.starts_with(&site.members[1]) {
            continue;
        }
        let mut bytes = before.0[path].clone();
        let at = (number * 7919) % bytes.len();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    store = site.locked_store();
    assert!(check(&store, true, &Ledger::new()).repairable > 3);
    let outcome = repair(&mut store, &Ledger::new());
    assert!(outcome.without_key && outcome.repaired_extents > 0 && outcome.repaired_objects > 0);
    // A label carries a MAC, which takes the key to make.
    let label = site.members[1].join(ExtentName::Label.path());
    let mut after = site.image();
    after.0.insert(label.clone(), before.0[&label].clone());
    assert!(after == before, "not as it was");
    assert!(site.image() != before, "a label was made without the key");
    assert_eq!(repair(&mut site.store(), &Ledger::new()).repaired_objects, 1);
    assert!(site.image() == before, "not as it was");
    site.assert_restores(&site.store(), &snapshot, &wanted);
}

/// Strips that are as written, and a record in them that is not: no parity tells, a checksum does.
#[test]
fn a_check_without_a_key_walks_from_record_to_record() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    site.save();
    let store = site.locked_store();
    let sets: Vec<_> = index::sets_in(&store, ExtentKind::Packs).unwrap().into_keys().collect();
    assert!(!sets.is_empty());
    for set in sets {
        assert!(index::unsound_records(&store, set).is_empty());
    }
}

#[test]
fn only_what_a_slot_knows_opens_the_store() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    site.save();
    let store = site.store();
    let added = key::add(&store, &slot(password("hunter2"), "laptop")).unwrap();
    assert_eq!((added.way, added.memory_kib), ("password", Some(64)));
    assert_whole(&open(&site, &password("hunter2")).unwrap());
    assert_whole(&open(&site, &credential()).unwrap());
    let error = open(&site, &password("hunter3")).err().unwrap();
    assert_eq!(error.kind(), Kind::WrongKey);
    let told = format!("{error} {:?}", error.advice_text());
    assert!(!told.contains("laptop") && !told.contains("hunter"), "{told}");
    assert_eq!(kind(open(&site, &Credential::generate().unwrap())), Kind::WrongKey);

    let listed = key::list(&site.locked_store(), &Ledger::new().monitor).unwrap();
    let labels: Vec<_> = listed.iter().map(|slot| (slot.label.as_str(), slot.way)).collect();
    assert_eq!(labels, [("test", "key file"), ("laptop", "password")]);
    key::remove(&store, "test").unwrap();
    assert_eq!(kind(open(&site, &credential())), Kind::WrongKey);
    let error = key::remove(&store, "laptop").unwrap_err();
    assert_eq!(error.kind(), Kind::Refused, "the last slot stays");
    assert_eq!(kind(key::remove(&store, "nobody")), Kind::NotFound);
    assert_whole(&open(&site, &password("hunter2")).unwrap());
    assert_whole_keys(&site);
}

/// Every member has the same key objects.
fn assert_whole_keys(site: &Site) {
    let store = site.locked_store();
    let names: BTreeSet<_> = store.key_names().unwrap().into_iter().collect();
    for (_, member) in store.present() {
        let held = member.list(ExtentKind::Keys).unwrap();
        let held: BTreeSet<_> =
            held.iter().map(|(id, _)| ExtentName::In(ExtentKind::Keys, *id)).collect();
        assert_eq!(held, names);
    }
}

#[test]
fn a_damaged_slot_is_told_and_the_others_still_open() {
    let site = Site::new(2, 1);
    let store = site.store();
    let added = key::add(&store, &slot(password("second"), "second")).unwrap();
    let file = |member: usize| site.members[member].join("keys").join(&added.slot);
    let hurt = |member: usize| {
        let mut bytes = fs::read(file(member)).unwrap();
        bytes[30] ^= 1;
        fs::write(file(member), bytes).unwrap();
    };
    hurt(0);
    // One sound copy is enough.
    assert!(open(&site, &password("second")).is_ok());
    hurt(1);
    let damaged = site.locked_store().unlock(&credential()).unwrap();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].kind(), Kind::Corrupt);
    assert!(damaged[0].place().unwrap().ends_with(&added.slot));
    let error = open(&site, &password("second")).err().unwrap();
    assert_eq!(error.kind(), Kind::WrongKey);
    assert!(error.advice_text().unwrap().contains("damaged"), "{error:?}");
    let ledger = Ledger::new();
    assert_eq!(key::list(&site.locked_store(), &ledger.monitor).unwrap().len(), 1);
    assert_eq!(ledger.warnings().len(), 1);
    assert!(ledger.warnings()[0].text.contains("key slot"), "{:?}", ledger.warnings());
    // Nothing can mend it: check says so until it is removed.
    let ledger = Ledger::new();
    let found = check(&site.store(), false, &ledger);
    assert_eq!((found.repairable, found.lost, ledger.losses().len()), (0, 1, 1));
    assert!(ledger.losses()[0].text.contains("the checksum does not match"), "{:?}", ledger.seen());
    let (removed, sound) = key::remove(&site.store(), &added.slot[..8]).unwrap();
    assert_eq!((removed, sound), (added.slot, None));
    assert_whole(&site.store());
    let ring = fs::read_dir(site.members[0].join("keys")).unwrap().map(|it| it.unwrap().path());
    let ring = ring.filter(|it| fs::read(it).unwrap()[8] == 2).collect::<Vec<_>>();
    let ring = ring[0].file_name().unwrap().to_str().unwrap();
    let refused = key::remove(&site.store(), ring).unwrap_err();
    assert_eq!(refused.kind(), Kind::NotFound, "a ring is no slot");
}

#[test]
fn without_any_sound_slot_it_is_said_why_nothing_opens() {
    let site = Site::new(2, 1);
    for member in &site.members {
        for file in fs::read_dir(member.join("keys")).unwrap().map(|it| it.unwrap().path()) {
            let mut bytes = fs::read(&file).unwrap();
            if bytes[8] == 4 {
                bytes[60] ^= 1;
                fs::write(file, bytes).unwrap();
            }
        }
    }
    for credential in [credential(), password("any")] {
        let error = site.locked_store().unlock(&credential).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("the checksum does not match"), "{error}");
        assert!(error.advice_text().unwrap().contains("restore a copy"), "{error:?}");
    }
}

#[test]
fn a_rotation_changes_keys_and_no_data() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (first, first_tree) = (site.save(), look(&site.source()));
    let packs = files_of_packs(&site.image());
    let aside = site.image();
    let mut store = site.store();
    key::add(&store, &slot(password("old"), "old")).unwrap();
    let before_rotation = site.store();
    let (_, gone) = key::rotate(&mut store, &slot(password("new"), "new")).unwrap();
    assert_eq!(gone, 2);
    assert_eq!(files_of_packs(&site.image()), packs);
    for old in [credential(), password("old")] {
        assert_eq!(kind(open(&site, &old)), Kind::WrongKey);
    }
    assert_whole_keys(&site);

    // A process that opened the store before reads what was sealed before.
    site.assert_restores(&before_rotation, &first, &first_tree);
    // The store that rotated, and one opened anew, write under the new keys and read all.
    fs::write(site.source().join("new file"), noise(9, 5000)).unwrap();
    let second_tree = look(&site.source());
    let ledger = Ledger::new();
    let second = backup(&store, &site.source(), &ledger).unwrap();
    ledger.assert_clean();
    assert_eq!(second.parent, Some(first.id));
    let store = open(&site, &password("new")).unwrap();
    assert_whole(&store);
    site.assert_restores(&store, &first, &first_tree);
    site.assert_restores(&store, &second, &second_tree);
    // A process that opened the store before is told what it cannot read.
    let error = pinstripe::read_snapshot(&before_rotation, second.id).unwrap_err();
    assert_eq!(error.kind(), Kind::KeysChanged, "{error}");
    assert_eq!(kind(key::add(&before_rotation, &new_slot())), Kind::KeysChanged);
    let mut late = before_rotation;
    assert_eq!(kind(key::rotate(&mut late, &new_slot())), Kind::KeysChanged);

    // A member that was away brings its old slots back: they open nothing.
    for (path, bytes) in aside.0.iter().filter(|(path, _)| path.starts_with(&site.members[2])) {
        if path.components().any(|part| part.as_os_str() == "keys") {
            fs::write(path, bytes).unwrap();
        }
    }
    assert_eq!(kind(open(&site, &credential())), Kind::WrongKey);
    let mut store = open(&site, &password("new")).unwrap();
    repair(&mut store, &Ledger::new());
    key::add(&store, &slot(password("third"), "third")).unwrap();
    assert_whole_keys(&site);
}

#[test]
fn of_two_rotations_one_wins() {
    let site = Site::new(2, 1);
    let mut stores = [site.store(), site.store()];
    let [left, right] = &mut stores;
    key::rotate(left, &slot(password("left"), "left")).unwrap();
    let second = key::rotate(right, &slot(password("right"), "right"));
    assert_eq!(kind(second), Kind::KeysChanged);
    assert!(open(&site, &password("left")).is_ok());
    assert_eq!(kind(open(&site, &password("right"))), Kind::WrongKey);
}

#[test]
fn keys_are_not_changed_while_a_member_is_away() {
    let site = Site::new(2, 1);
    key::add(&site.store(), &slot(password("second"), "second")).unwrap();
    fs::rename(&site.members[1], site.path("away")).unwrap();
    let mut store = site.store();
    assert_eq!(kind(key::remove(&store, "second")), Kind::Refused);
    assert_eq!(kind(key::rotate(&mut store, &new_slot())), Kind::Refused);
    // Adding is harmless: the member gets it when it is back, before anything is sealed.
    key::add(&store, &slot(password("third"), "third")).unwrap();
    fs::rename(site.path("away"), &site.members[1]).unwrap();
    small_tree(&site.source(), 1);
    site.save();
    assert_whole_keys(&site);
}

/// `repair` copied a removed slot back from a member that had not heard of the removal.
#[test]
fn a_removed_slot_opens_nothing_wherever_it_turns_up_again() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    key::add(&site.store(), &slot(password("gone"), "gone")).unwrap();
    let before = site.image();
    key::remove(&site.store(), "gone").unwrap();
    assert_whole_keys(&site);
    let come_back = |member: usize| {
        let keys = site.members[member].join("keys");
        fs::remove_dir_all(&keys).unwrap();
        fs::create_dir(&keys).unwrap();
        for (path, bytes) in before.0.iter().filter(|(path, _)| path.starts_with(&keys)) {
            fs::write(path, bytes).unwrap();
        }
    };
    let away = site.path("away");
    for member in 0..3 {
        come_back(member);
        let other = site.members[(member + 1) % 3].clone();
        fs::rename(&other, &away).unwrap();
        let mut store = site.store_through(member);
        assert_eq!(kind(store.unlock(&password("gone"))), Kind::WrongKey);
        repair(&mut store, &Ledger::new());
        fs::rename(&away, &other).unwrap();
        assert_eq!(kind(open(&site, &password("gone"))), Kind::WrongKey);
        assert_whole_keys(&site);
        // Scrub does not bring it back either, and nor does it stay where it is.
        come_back(member);
        scrub_all(&site.locked_store());
        assert_eq!(kind(open(&site, &password("gone"))), Kind::WrongKey);
        key::add(&site.store(), &slot(password("more"), &format!("more{member}"))).unwrap();
        assert_whole_keys(&site);
    }
    // A rotation makes an end of slots and of what says that they were removed.
    key::rotate(&mut site.store(), &new_slot()).unwrap();
    assert_eq!(site.locked_store().key_names().unwrap().len(), 2);
    assert_whole_keys(&site);
}

fn scrub_all(store: &Store) {
    let options = scrub::ScrubOptions {
        budget: scrub::Budget::default(),
        rate: None,
        save_bytes: u64::MAX,
        limits: pinstripe_sim::limits(),
    };
    scrub::run(store, &options, &Ledger::new().monitor, &|_| {}).unwrap();
}

#[test]
fn a_removal_cut_off_at_any_step_happened_or_not() {
    let site = Site::new(3, 1);
    key::add(&site.store(), &slot(password("gone"), "gone")).unwrap();
    let image = site.image();
    let remove = |steps: Arc<dyn Steps>| key::remove(&site.open(0, "", steps)?, "gone");
    let counter = Arc::new(PowerCut::new(u64::MAX));
    remove(Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
    assert!(counter.steps_done() > 10);
    for cut in 0..=counter.steps_done() {
        site.put_image(&image);
        let power = Arc::new(PowerCut::new(cut));
        let done = remove(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 7919).unwrap();
        let opens = open(&site, &password("gone")).is_ok();
        assert!(done.is_err() || !opens, "cut {cut}");
        repair(&mut site.store(), &Ledger::new());
        assert_eq!(open(&site, &password("gone")).is_ok(), opens, "cut {cut}");
        assert_whole_keys(&site);
    }
}

/// Two that each saw another slot left could take both away.
#[test]
fn of_two_removals_at_once_one_is_first_and_the_last_slot_stays() {
    let site = Site::new(2, 1);
    key::add(&site.store(), &slot(password("second"), "second")).unwrap();
    let other = site.store();
    let meanwhile = Meanwhile::new("keys", move || drop(key::remove(&other, "second").unwrap()));
    let store = site.open(0, "", meanwhile).unwrap();
    assert_eq!(kind(key::remove(&store, "test")), Kind::Busy);
    assert_eq!(kind(open(&site, &password("second"))), Kind::WrongKey);
    assert_eq!(kind(key::remove(&store, "test")), Kind::Refused);
    assert_whole(&site.store());
}

/// Changes the labels of these members as an attacker could, who has right checksums to give.
fn change_labels(site: &Site, members: &[usize], change: impl Fn(&mut Label)) {
    for &member in members {
        let path = site.members[member].join(ExtentName::Label.path());
        let mut label = Label::decode(&fs::read(&path).unwrap()).unwrap();
        change(&mut label);
        fs::write(&path, label.encode()).unwrap();
    }
}

/// Puts keys in the clear on these members, where a store without encryption has them.
fn put_plain_keys(site: &Site, members: &[usize]) {
    let store = Label::decode(&fs::read(site.members[0].join(ExtentName::Label.path())).unwrap());
    let store = store.unwrap().config.store;
    let keys = pinstripe_member::keys::Keys::generate(store).unwrap().encode();
    for &member in members {
        fs::write(site.members[member].join("keys").join(store.to_string()), &keys).unwrap();
    }
}

fn remove_sealed_keys(site: &Site, members: &[usize]) {
    for &member in members {
        for file in fs::read_dir(site.members[member].join("keys")).unwrap() {
            let file = file.unwrap().path();
            let bytes = fs::read(&file).unwrap();
            if pinstripe_member::keys::Keys::decode(&bytes).is_err() {
                fs::remove_file(file).unwrap();
            }
        }
    }
}

/// Opens the store through a member, as it is or as its label says.
fn open_through(site: &Site, member: usize, accept_plain: bool) -> Result<Store> {
    let steps: Option<Arc<dyn Steps>> = Some(Arc::new(NoWait));
    let options = OpenOptions { steps, accept_plain, ..OpenOptions::default() };
    Store::open_with(&site.members[member], options)
}

/// An attacker who can write to the members must not be able to make the next backup readable.
#[test]
fn a_label_that_turns_encryption_off_opens_nothing() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    site.save();
    let image = site.image();
    change_labels(&site, &[0, 1], |label| label.config.padding = Padding::Padme);
    assert_eq!(kind(open(&site, &credential())), Kind::Corrupt);
    site.put_image(&image);
    // The label alone; then with keys in the clear where they belong, so that it could open.
    change_labels(&site, &[0, 1], |label| label.config.encryption = Encryption::None);
    assert_eq!(kind(open_through(&site, 0, false)), Kind::NotEncrypted);
    put_plain_keys(&site, &[0, 1]);
    for member in 0..2 {
        let error = open_through(&site, member, false).err().unwrap();
        assert_eq!(error.kind(), Kind::NotEncrypted, "{error}");
        assert!(error.advice_text().unwrap().contains("--i-know-it-is-plain"), "{error:?}");
    }
    assert!(!open_through(&site, 0, true).unwrap().is_locked(), "what was asked for");
    // A single slot on a single member is enough to tell.
    remove_sealed_keys(&site, &[0]);
    assert_eq!(kind(open_through(&site, 0, false)), Kind::NotEncrypted);
}

/// One hostile member of any number, named first or not: the others say what the store is.
#[test]
fn one_member_cannot_turn_encryption_off() {
    for (members, parity) in [(2, 1), (4, 1), (4, 2)] {
        let site = Site::new(members, parity);
        small_tree(&site.source(), 1);
        let (snapshot, tree) = (site.save(), look(&site.source()));
        change_labels(&site, &[0], |label| label.config.encryption = Encryption::None);
        put_plain_keys(&site, &[0]);
        remove_sealed_keys(&site, &[0]);
        // Of two members each says something else; of four three outvote the one that is named.
        let first = if members == 2 { 1 } else { 0 };
        if members == 2 {
            let error = open_through(&site, 0, false).err().unwrap();
            assert_eq!(error.kind(), Kind::NotEncrypted, "{members} members: {error}");
        }
        for through in first..members {
            let mut store = open_through(&site, through, false).unwrap();
            assert!(store.is_locked(), "{members} members, through {through}");
            store.unlock(&credential()).unwrap();
            site.assert_restores(&store, &snapshot, &tree);
        }
    }
}

/// Keys in the clear beside a ring: strays on as few members as may be wrong, refused on more.
#[test]
fn a_store_with_sealed_keys_and_keys_in_the_clear_is_refused() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    put_plain_keys(&site, &[1]);
    assert!(open(&site, &credential()).is_ok(), "one member cannot shut the others");
    put_plain_keys(&site, &[1, 2]);
    for member in 0..3 {
        assert_eq!(kind(open_through(&site, member, false)), Kind::NotEncrypted);
    }
    assert!(open_through(&site, 0, true).unwrap().is_locked(), "it is what its label says");
}

/// Puts slots of these costs on members as an attacker could, who reads which ring they must name.
/// Made up without the keys, on every member: an index run that says what packs hold.
#[test]
fn a_record_that_is_not_sealed_is_not_believed_in_an_encrypted_store() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let store = site.store();
    let (real, _) = index::sets_in(&store, ExtentKind::Packs).unwrap().pop_first().unwrap();
    let mut claimed = index::read_pack_index(&store, real).unwrap();
    claimed.set = SetId([9; 16]);
    let geometry = store.geometry().unwrap();
    for sealer in [store.sealer().unwrap(), Sealer::none()] {
        let packs = [SealedPack { index: claimed.clone(), geometry }];
        let lay = |set, _, sink: &mut dyn StripSink| {
            index::lay_run(&store, set, geometry, &packs, &sealer, sink)
        };
        let (run, _) = index::write_run(&store, lay).unwrap();
        let ledger = Ledger::new();
        let store = site.store();
        let loaded = index::Index::load(&store, &ledger.monitor).unwrap();
        let is_believed = loaded.packs().find(&claimed.set).is_some();
        assert_eq!(is_believed, sealer.encryption() != Encryption::None, "{:#?}", ledger.seen());
        store.delete_all(ExtentName::index(run)).unwrap();
    }
}

fn forge_slots(site: &Site, members: &[usize], count: usize, costs: KdfCosts) {
    let store = site.locked_store();
    let stored = store.stored_keys().unwrap();
    let honest = (*stored.current().unwrap().1[0]).clone();
    for number in 0..count {
        let forged = KeySlot {
            id: pinstripe_base::id::random().unwrap(),
            created_seconds: 0,
            way: SlotWay::Password(costs),
            label: "password".to_owned(),
            commitment: [number as u8; 32],
            ..honest.clone()
        };
        for &member in members {
            let keys = site.members[member].join("keys");
            fs::write(keys.join(hex(&forged.id)), forged.encode()).unwrap();
        }
    }
}

/// Fifty slots of 4 GiB and a hundred passes each: an opening took hours and all memory.
#[test]
fn forged_slots_do_not_decide_how_long_an_opening_takes() {
    let bomb = KdfCosts { memory_kib: 4 << 20, passes: 100, lanes: 4 };
    for members in [&[2][..], &[0, 1, 2, 3]] {
        let site = Site::new(4, 1);
        let honest = NewSlot { costs: KdfCosts::DEFAULT, ..slot(password("honest"), "password") };
        let added = key::add(&site.store(), &honest).unwrap().slot;
        forge_slots(&site, members, 50, bomb);
        let mut told = Vec::new();
        let mut opened = |limits: &UnlockLimits, with: &Credential| {
            told.clear();
            let mut store = site.locked_store();
            let opened = store.unlock_within(with, limits, &mut |error| told.push(error));
            (opened.map(|it| it.unwrap()), told.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (right, told) = opened(&UnlockLimits::default(), &password("honest"));
        let right = right.unwrap();
        assert_eq!((hex(&right.slot), right.tries), (added.clone(), 1));
        // They are named, and not one by one for ever.
        assert_eq!(told.len(), 9, "{told:?}");
        assert!(told[0].contains("keys/") && told[0].contains("not tried"), "{told:?}");
        assert!(told[8].contains("42 more"), "{told:?}");
        // A password that opens none is refused as soon, and what was left out is said.
        let error = opened(&UnlockLimits::default(), &password("wrong")).0.unwrap_err();
        assert_eq!(error.kind(), Kind::WrongKey);
        assert!(
            error.advice_text().unwrap().contains("not tried (see the warnings above): 50"),
            "{error:?}"
        );
        let (file, told) = opened(&UnlockLimits::default(), &credential());
        assert_eq!((file.unwrap().tries, told.len()), (1, 0), "a key file costs nothing to try");
        // More than the machine has is not asked for, also of a slot that is named.
        let named = UnlockLimits { only: Some("password".into()), ..UnlockLimits::default() };
        let small = UnlockLimits { memory_bytes: 64 << 20, ..named };
        let (right, told) = opened(&small, &password("honest"));
        assert_eq!((right.unwrap().tries, told.len()), (1, 9));
        assert!(told[0].contains("4.0 GiB of memory, but only 64.0"), "{told:?}");
    }
}

/// Cheap ones, more than all tries together may cost: what is known or stands everywhere is first.
#[test]
fn an_honest_slot_is_tried_before_forged_ones() {
    let cheaper = KdfCosts { memory_kib: 64, passes: 1, lanes: 1 };
    let costs = KdfCosts { memory_kib: 128, ..cheaper };
    let site = Site::new(3, 1);
    let honest = NewSlot { costs, ..slot(password("honest"), "mine") };
    let added = key::add(&site.store(), &honest).unwrap().slot;
    let tries = |limits: &UnlockLimits| {
        let opened = site.locked_store().unlock_within(&password("honest"), limits, &mut drop);
        opened.map(|it| it.unwrap().tries).map_err(|error| error.kind())
    };
    let limits = UnlockLimits { cost_kib: 640, ..UnlockLimits::default() };
    forge_slots(&site, &[1], 10, cheaper);
    assert_eq!(tries(&limits), Ok(1), "one member's slots come after those of all");
    forge_slots(&site, &[0, 1, 2], 10, cheaper);
    assert_eq!(tries(&UnlockLimits::default()), Ok(11), "the cheapest first");
    assert_eq!(tries(&limits), Err(Kind::WrongKey), "bounded together");
    let id = pinstripe_base::id::SnapshotId::from_hex(&added).unwrap().0;
    assert_eq!(tries(&UnlockLimits { known: Some(id), ..limits.clone() }), Ok(1));
    for name in [&added[..8], "mine"] {
        let only = UnlockLimits { only: Some(name.to_owned()), cost_kib: 1, ..limits.clone() };
        assert_eq!(tries(&only), Ok(1));
    }
}

#[test]
fn a_rotation_cut_off_at_any_step_leaves_the_old_or_the_new_key_working() {
    let site = Site::new(2, 1);
    small_tree(&site.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    let image = site.image();
    let rotate = |steps: Arc<dyn Steps>| -> Result<()> {
        let mut store = site.open_doomed(0, "", steps)?;
        key::rotate(&mut store, &slot(password("new"), "new")).map(drop)
    };
    let counter = Arc::new(PowerCut::new(u64::MAX));
    rotate(Arc::clone(&counter) as Arc<dyn Steps>).unwrap();
    let steps = counter.steps_done();
    assert!(steps > 15, "{steps}");
    let (old_works, new_works) = (AtomicU64::new(0), AtomicU64::new(0));
    for cut in 0..=steps {
        site.put_image(&image);
        let power = Arc::new(PowerCut::new(cut));
        let done = rotate(Arc::clone(&power) as Arc<dyn Steps>);
        power.after_power_cut(cut * 7919).unwrap();
        let (old, new) = (open(&site, &credential()), open(&site, &password("new")));
        assert!(old.is_ok() != new.is_ok(), "cut {cut}: exactly one of both opens it");
        assert!(done.is_err() || new.is_ok(), "cut {cut}: reported as done, and gone");
        let (works, store) = match old {
            Ok(store) => (&old_works, store),
            Err(_) => (&new_works, new.unwrap()),
        };
        works.fetch_add(1, Ordering::Relaxed);
        site.assert_restores(&store, &snapshot, &tree);
        // The next one ends it, whatever was left.
        let mut store = store;
        key::rotate(&mut store, &new_slot()).unwrap();
        assert_whole_keys(&site);
        assert_whole(&site.store());
    }
    assert!(old_works.into_inner() > 5 && new_works.into_inner() > 3);
}

/// The first member may be the only one that a rotation reached before it was cut off.
#[test]
fn keys_that_one_member_alone_has_do_not_leave_with_it() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    let image = site.image();
    for cut in 0..=40 {
        site.put_image(&image);
        let power = Arc::new(PowerCut::new(cut));
        let mut store = site.open_doomed(0, "", Arc::clone(&power) as Arc<dyn Steps>).unwrap();
        let _ = key::rotate(&mut store, &slot(password("new"), "new"));
        drop(store);
        power.after_power_cut(cut * 7919).unwrap();
        let keys = [credential(), password("new")];
        let works = keys.iter().find(|key| open(&site, key).is_ok()).expect("one opens it");
        let mut store = open(&site, works).unwrap();
        member::remove(&mut store, 0, &limits(), &Ledger::new().monitor).unwrap();
        let options = OpenOptions { steps: Some(Arc::new(NoWait)), ..OpenOptions::default() };
        let mut store = Store::open_with(&site.members[1], options).unwrap();
        store.unlock(works).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        site.assert_restores(&store, &snapshot, &tree);
    }
}

/// The settings that a store is made with, seen in what it writes.
fn made_with(change: impl FnOnce(&mut init::Seal)) -> Site {
    let site = Site::bare(1);
    init(&site, init::Seal::with(new_slot()), change).unwrap();
    site
}

/// Makes a store whose seal `change` has changed.
fn init(site: &Site, mut seal: init::Seal, change: impl FnOnce(&mut init::Seal)) -> Result<()> {
    change(&mut seal);
    site.init_sealed(0, "4K", seal, Arc::new(NoWait))
}

fn records_of(site: &Site) -> Vec<pinstripe_member::pack_index::IndexedRecord> {
    fs::write(site.source().join("noise"), noise(3, 300_000)).unwrap();
    site.save();
    let store = site.store();
    let sets = index::sets_in(&store, ExtentKind::Packs).unwrap().into_keys();
    sets.flat_map(|set| index::read_pack_index(&store, set).unwrap().records).collect()
}

#[test]
fn every_cipher_padding_and_chunker_is_kept_and_works() {
    let cuts = |site: &Site| -> Vec<u32> {
        let records = records_of(site).into_iter();
        let data = records.filter(|record| record.raw_bytes > 100_000);
        data.flat_map(|record| record.chunks).map(|chunk| chunk.raw_bytes).collect()
    };
    let ciphers = [Encryption::Aes256Gcm, Encryption::ChaCha20Poly1305];
    for encryption in ciphers {
        let site = made_with(|seal| seal.encryption = encryption);
        small_tree(&site.source(), 1);
        let (snapshot, wanted) = (site.save(), look(&site.source()));
        assert_eq!(site.locked_store().config.encryption, encryption);
        site.assert_restores(&site.store(), &snapshot, &wanted);
        assert_whole(&site.store());
    }
    let plain = [0; 2].map(|_| cuts(&made_with(|seal| seal.chunker = Chunker::Plain)));
    assert!(plain[0].len() > 20);
    assert_eq!(plain[0], plain[1], "plain stores cut alike");
    let keyed = [0; 2].map(|_| cuts(&made_with(|_| {})));
    assert_ne!(keyed[0], keyed[1], "no two keyed stores cut alike");

    let site = made_with(|seal| seal.padding = Padding::Padme);
    for record in records_of(&site) {
        let plain = record.bytes as usize - 64 - 28 - 16;
        assert_eq!(padded_bytes(Padding::Padme, plain), plain, "a length that was not rounded");
    }
    assert_whole(&site.store());
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refused = |change: &dyn Fn(&mut init::Seal)| -> Error {
        let site = Site::bare(1);
        let error = init(&site, init::Seal::none(), change).unwrap_err();
        assert!(!site.members[0].exists());
        error
    };
    for error in [
        refused(&|seal| seal.padding = Padding::Padme),
        refused(&|seal| seal.slot = Some(new_slot())),
        refused(&|seal| seal.encryption = Encryption::Aes256Gcm),
        refused(&|seal| {
            let costs = KdfCosts { memory_kib: 1, ..CHEAP };
            *seal = init::Seal::with(NewSlot { costs, ..slot(password("x"), "x") });
        }),
    ] {
        assert_eq!(error.kind(), Kind::Usage, "{error}");
    }
    let clear = Site::clear(1, 0);
    let mut store = clear.store();
    assert!(!store.is_locked());
    assert_eq!(kind(key::add(&store, &new_slot())), Kind::Usage);
    assert_eq!(kind(key::rotate(&mut store, &new_slot())), Kind::Usage);
}
