//! File systems that are really full: what is on other members is kept, and what is forgotten makes
//! room.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_member::{DirectoryMember, ExtentKind, ExtentName, Member};
use pinstripe_testing::{in_own_mounts, mount, skipped, unmount};

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, NoWait, Site, assert_whole, backup, check, noise, repair, small_tree};

fn fill_a_real_file_system(site: &Site) {
    site.init(1, "4K", Arc::new(NoWait)).unwrap();
    small_tree(&site.source(), 1);
    let (first, tree) = (site.save(), look(&site.source()));
    // Content that fits on every member, for gc to delete. Whether anything of the huge file gets
    // onto the small member depends on how the workers divide it among packs.
    fs::write(site.source().join("fits"), noise(4, 100_000)).unwrap();
    let fitting = site.save();
    fs::remove_file(site.source().join("fits")).unwrap();
    fs::write(site.source().join("huge"), noise(3, 6 << 20)).unwrap();
    let ledger = Ledger::new();
    let store = site.store();
    let second = backup(&store, &site.source(), &ledger).unwrap();
    drop(store);
    ledger.assert_no_losses();
    let degraded = ledger.degraded();
    assert_eq!(degraded.len(), 1, "{:#?}", ledger.seen());
    assert!(degraded[0].place.ends_with("m1") && degraded[0].kind == Kind::NoSpace);
    let after = site.image();
    let half_done =
        |path: &std::path::PathBuf| site.members.iter().any(|m| path.starts_with(m.join("tmp")));
    assert!(!after.0.keys().any(half_done), "a half object");
    let huge = look(&site.source());
    let store = site.store();
    site.assert_restores(&store, &first, &tree);
    site.assert_restores(&store, &second, &huge);
    let ledger = Ledger::new();
    check(&store, true, &ledger);
    ledger.assert_no_losses();
    drop(store);

    // To the last byte: forgetting and deleting work all the same.
    fs::remove_file(site.source().join("huge")).unwrap();
    // What was laid on the small member has taken its room: it is passed over by now.
    let third = backup(&site.store(), &site.source(), &Ledger::new()).unwrap();
    let tree = look(&site.source());
    fill(&site.members[1].join("filler"));
    let full = DirectoryMember::open(&site.members[1]).unwrap();
    let name = ExtentName::In(ExtentKind::Checkpoints, [7; 16]);
    assert_eq!(full.put(name, &[7; 9000]).unwrap_err().kind(), Kind::NoSpace);
    let before = bytes(site);
    for snapshot in [&first, &fitting, &second] {
        crate::gc::forget_one(&site.store(), snapshot);
    }
    let outcome = crate::gc::collect_with(&site.store());
    assert_eq!(outcome.deleted_snapshots, 3, "{outcome:?}");
    assert!(bytes(site) < before, "{} of {before}", bytes(site));
    site.assert_restores(&site.store(), &third, &tree);
    // A member that is full is passed over from the start.
    fill(&site.members[1].join("filler"));
    fs::write(site.source().join("later"), noise(8, 20_000)).unwrap();
    let ledger = Ledger::new();
    let last = backup(&site.store(), &site.source(), &ledger).unwrap();
    assert_eq!(ledger.degraded().len(), 1, "{:#?}", ledger.seen());
    assert_eq!(ledger.get(Counter::Losses), 0);
    site.assert_restores(&site.store(), &last, &look(&site.source()));
    // With room again it is written to as before.
    fs::remove_file(site.members[1].join("filler")).unwrap();
    repair(&mut site.store(), &Ledger::new());
    fs::write(site.source().join("later"), noise(9, 20_000)).unwrap();
    site.save();
    assert_whole(&site.store());
}

/// Bytes of packs on the member that is full.
fn bytes(site: &Site) -> u64 {
    let full = DirectoryMember::open(&site.members[1]).unwrap();
    full.list(ExtentKind::Packs).unwrap().into_iter().map(|(_, bytes)| bytes).sum()
}

/// Takes all room of a file system.
fn fill(path: &Path) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for step in [64 << 10, 4096, 1] {
        while std::io::Write::write(&mut file, &vec![1; step]).is_ok_and(|it| it > 0) {}
    }
}

#[test]
fn a_member_on_a_full_tmpfs_is_told_and_nothing_is_lost() {
    let test = "a_member_on_a_full_tmpfs_is_told_and_nothing_is_lost";
    in_own_mounts(test, || {
        let site = Site::bare(3);
        fs::create_dir(&site.members[1]).unwrap();
        if !mount("tmpfs", "size=1m", Path::new("tmpfs"), &site.members[1]) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        fill_a_real_file_system(&site);
        unmount(&site.members[1]);
    });
}

#[test]
fn a_member_on_a_full_ext4_is_told_and_nothing_is_lost() {
    let test = "a_member_on_a_full_ext4_is_told_and_nothing_is_lost";
    in_own_mounts(test, || {
        let site = Site::bare(3);
        let disk = site.path("disk");
        fs::File::create(&disk).unwrap().set_len(2 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal"]).arg(&disk).status();
        if !made.is_ok_and(|status| status.success()) {
            return pinstripe_testing::not_installed(test, "mkfs.ext4");
        }
        fs::create_dir(&site.members[1]).unwrap();
        if !mount("ext4", "loop", &disk, &site.members[1]) {
            return skipped(test, "no image can be mounted here");
        }
        fill_a_real_file_system(&site);
        unmount(&site.members[1]);
    });
}

/// The file system of a store without parity had no free inode: nothing could be forgotten or deleted.
#[test]
fn a_store_without_a_free_inode_forgets_and_deletes() {
    let test = "a_store_without_a_free_inode_forgets_and_deletes";
    in_own_mounts(test, || {
        let site = Site::bare(1);
        fs::create_dir(&site.members[0]).unwrap();
        let options = "size=60m,nr_inodes=200";
        if !mount("tmpfs", options, Path::new("tmpfs"), &site.members[0]) {
            return skipped(test, "no tmpfs can be mounted here");
        }
        site.init(0, "4K", Arc::new(NoWait)).unwrap();
        let snapshots: Vec<_> = (0..4)
            .map(|seed| {
                small_tree(&site.source(), seed);
                site.save()
            })
            .collect();
        let others = (0..).map(|number| site.members[0].join(format!("other-{number}")));
        let made = others.take_while(|other| fs::File::create(other).is_ok()).count();
        assert!(made < 200, "the inodes have an end");
        for snapshot in &snapshots[..3] {
            crate::gc::forget_one(&site.store(), snapshot);
        }
        let outcome = crate::gc::collect_with(&site.store());
        assert_eq!(outcome.deleted_snapshots, 3, "{outcome:?}");
        let ledger = Ledger::new();
        check(&site.store(), true, &ledger);
        ledger.assert_no_losses();
        unmount(&site.members[0]);
    });
}
