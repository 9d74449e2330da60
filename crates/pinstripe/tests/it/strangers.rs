//! Members that are not what they should be: swapped, of another store, of a newer version.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pinstripe::{check, index, repair, snapshots};
use pinstripe_base::error::Kind;
use pinstripe_member::stripe_set::{CHECKSUM_BYTES, FOOTER_BYTES, HEADER_BYTES, checksum};
use pinstripe_member::{ExtentKind, ExtentName};

use pinstripe_sim::look;
use pinstripe_sim::{
    Ledger, NoWait, Site, assert_whole, backup, check, limits, read_files, repair, replace,
    small_tree,
};

#[test]
fn members_that_changed_places_are_known_by_their_labels() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    let aside = site.path("aside");
    fs::rename(&site.members[0], &aside).unwrap();
    fs::rename(&site.members[1], &site.members[0]).unwrap();
    fs::rename(&aside, &site.members[1]).unwrap();
    for through in 0..3 {
        let store = site.store_through(through);
        assert_eq!(store.absent().count(), 0);
        assert_eq!(store.member_slots[0].place, site.members[1]);
        assert_eq!(store.moved.len(), 2);
        let ledger = site.assert_restores(&store, &snapshot, &tree);
        ledger.assert_clean();
    }
    let ledger = Ledger::new();
    backup(&site.store(), &site.source(), &ledger).unwrap();
    ledger.assert_clean();
    repair(&mut site.store(), &Ledger::new());
    assert!(site.store().moved.is_empty());
    assert_whole(&site.store());
}

#[test]
fn a_member_of_another_store_is_not_believed_and_not_touched() {
    let (site, other) = (Site::new(3, 1), Site::new(3, 1));
    small_tree(&site.source(), 1);
    small_tree(&other.source(), 2);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    other.save();
    fs::remove_dir_all(&site.members[1]).unwrap();
    copy_all(&other.members[1], &site.members[1]);
    let mut before = Default::default();
    read_files(&site.members[1], &mut before);

    let mut store = site.store();
    assert_eq!(store.absent().collect::<Vec<_>>(), [1]);
    assert_eq!(store.member_slots[1].absence.as_ref().unwrap().kind(), Kind::WrongMember);
    site.assert_restores(&store, &snapshot, &tree);
    let ledger = Ledger::new();
    assert_eq!(check(&store, true, &ledger).repairable, 1);
    ledger.assert_no_losses();
    let ledger = Ledger::new();
    backup(&store, &site.source(), &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(ledger.degraded()[0].kind, Kind::WrongMember);
    repair(&mut store, &Ledger::new());
    let refused = replace(&mut store, 1, &site.members[1], &Ledger::new()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused);
    let mut after = Default::default();
    read_files(&site.members[1], &mut after);
    assert!(before == after, "another store's member was written to");
}

#[test]
fn without_parity_a_foreign_member_keeps_the_store_shut() {
    let (site, other) = (Site::new(2, 0), Site::new(2, 0));
    fs::remove_dir_all(&site.members[1]).unwrap();
    copy_all(&other.members[1], &site.members[1]);
    let error = site.open(0, "", Arc::new(NoWait)).err().unwrap();
    assert_eq!(error.kind(), Kind::WrongMember);
    assert!(error.to_string().contains("m1") && error.advice_text().is_some(), "{error}");
}

/// Extents of another store laid into this one, under the names that it looks for.
#[test]
fn extents_of_another_store_are_not_believed() {
    let (site, other) = (Site::new(3, 1), Site::new(3, 1));
    small_tree(&site.source(), 1);
    small_tree(&other.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    other.save();
    let image = site.image();
    let names = |site: &Site| {
        let sets = index::sets_in(&site.store(), ExtentKind::Packs).unwrap().into_keys();
        sets.map(|set| ExtentName::pack(set).path()).collect::<Vec<_>>()
    };
    for (own, foreign) in names(&site).iter().zip(&names(&other)) {
        fs::copy(other.members[2].join(foreign), site.members[2].join(own)).unwrap();
    }
    site.assert_restores(&site.store(), &snapshot, &tree);
    let ledger = Ledger::new();
    assert!(check(&site.store(), false, &ledger).repairable > 0);
    ledger.assert_no_losses();
    repair(&mut site.store(), &Ledger::new());
    assert!(site.image() == image);
}

/// Two labels that claim one slot: the first is taken, the other one's slot is empty.
#[test]
fn a_copy_of_a_member_is_not_a_second_member() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let (snapshot, tree) = (site.save(), look(&site.source()));
    fs::remove_dir_all(&site.members[2]).unwrap();
    copy_all(&site.members[0], &site.members[2]);
    let store = site.store();
    assert_eq!(store.absent().collect::<Vec<_>>(), [2]);
    site.assert_restores(&store, &snapshot, &tree);
}

#[test]
fn a_directory_that_is_not_empty_does_not_become_a_member() {
    let site = Site::bare(2);
    fs::create_dir(&site.members[1]).unwrap();
    fs::write(site.members[1].join("precious"), b"photo").unwrap();
    let error = site.init(1, "4K", Arc::new(NoWait)).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("precious"), "{error}");
    assert_eq!(fs::read(site.members[1].join("precious")).unwrap(), b"photo");
    let taken = Site::new(2, 1);
    let error = taken.init(1, "4K", Arc::new(NoWait)).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    taken.save();
}

/// Makes a small object look like a newer version's: by its version, or by a feature.
fn age_object(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = 9;
    let sum_at = bytes.len() - blake3::OUT_LEN;
    let sum = blake3::hash(&bytes[..sum_at]);
    bytes[sum_at..].copy_from_slice(sum.as_bytes());
    fs::write(path, bytes).unwrap();
}

const VERSION_AT: usize = 10;
const FEATURES_AT: usize = 12;

#[test]
fn small_objects_of_a_newer_version_are_refused_and_left_alone() {
    for at in [VERSION_AT, FEATURES_AT] {
        let site = Site::new(3, 1);
        small_tree(&site.source(), 1);
        let snapshot = site.save();
        let image = site.image();
        let keys = site.store().key_names().unwrap();
        // The label of one member, the keys of all.
        let keys = keys.into_iter().map(|name| (name.path(), 0..3));
        for (name, members) in keys.chain([(ExtentName::Label.path(), 1..2)]) {
            site.put_image(&image);
            site.members[members].iter().for_each(|member| age_object(&member.join(&name), at));
            let aged = site.image();
            for through in 0..3 {
                let error = site.open(through, "", Arc::new(NoWait)).err().unwrap();
                assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
            }
            assert!(site.image() == aged);
        }
        site.put_image(&image);
        let name = ExtentName::snapshot(snapshot.id).path();
        site.members.iter().for_each(|member| age_object(&member.join(&name), at));
        let aged = site.image();
        let (mut store, monitor) = (site.store(), Ledger::new().monitor);
        let unsupported = |kind: Kind| assert_eq!(kind, Kind::Unsupported);
        unsupported(snapshots::run(&store, &monitor).unwrap_err().kind());
        unsupported(backup(&store, &site.source(), &Ledger::new()).unwrap_err().kind());
        let options = check::CheckOptions { read_data: false, limits: limits() };
        unsupported(check::run(&store, &options, &monitor).unwrap_err().kind());
        unsupported(repair::run(&mut store, limits(), &monitor).unwrap_err().kind());
        assert!(site.image() == aged, "a newer store was changed");
    }
}

/// Raises the version in an extent's header, trailer and footer, checksums and all.
fn age_extent(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let footer_at = bytes.len() - FOOTER_BYTES;
    let trailer_bytes =
        u64::from_le_bytes(bytes[footer_at + 16..footer_at + 24].try_into().unwrap());
    let trailer_at = footer_at - trailer_bytes as usize;
    let version = 9_u32.to_le_bytes();
    for part in [0, trailer_at, footer_at] {
        bytes[part + 8..part + 12].copy_from_slice(&version);
    }
    let sum_at = HEADER_BYTES - CHECKSUM_BYTES;
    let sum = checksum(&bytes[..sum_at]);
    bytes[sum_at..HEADER_BYTES].copy_from_slice(&sum);
    let sum = checksum(&bytes[trailer_at..footer_at]);
    bytes[footer_at + 24..footer_at + 40].copy_from_slice(&sum);
    let sum_at = bytes.len() - CHECKSUM_BYTES;
    let sum = checksum(&bytes[footer_at..sum_at]);
    bytes[sum_at..].copy_from_slice(&sum);
    fs::write(path, bytes).unwrap();
}

#[test]
fn stripe_sets_of_a_newer_version_are_refused_and_left_alone() {
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        let site = Site::new(3, 1);
        small_tree(&site.source(), 1);
        let snapshot = site.save();
        for member in &site.members {
            let mut files = Default::default();
            read_files(&member.join(kind.dir()), &mut files);
            files.keys().for_each(|path| age_extent(path));
        }
        let aged = site.image();
        let mut store = site.store();
        let ledger = Ledger::new();
        let outcome = check(&store, true, &ledger);
        let told = ledger.seen().iter().any(|seen| seen.kind == Kind::Unsupported);
        assert!(told && outcome.repairable + outcome.lost > 0, "{:#?}", ledger.seen());
        let refused = repair::run(&mut store, limits(), &Ledger::new().monitor).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unsupported);
        assert!(site.image() == aged, "a newer store was changed");
        let (ledger, to) = (Ledger::new(), site.target());
        let name = snapshot.id.to_string();
        let restored = pinstripe_sim::restore(&store, &name, &site.source(), &to, &ledger);
        match kind {
            // The packs say what the index would have said.
            ExtentKind::Index => {
                restored.unwrap();
                ledger.assert_no_losses();
            }
            _ => assert!(restored.is_err() || !ledger.losses().is_empty()),
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    let mut files = Default::default();
    read_files(from, &mut files);
    for (path, bytes) in files {
        let path = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
