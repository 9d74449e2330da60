use super::*;

fn owned(host: &str, bytes: u64) -> Owned {
    Owned { host: host.to_owned(), commit: [9; 16], bytes, seconds: 5 }
}

fn pack(byte: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [byte; 16])
}

#[test]
fn a_name_belongs_to_the_first_host_that_put_it_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let ledger = Ledger::open(&path).unwrap();
    assert!(ledger.record(pack(1), owned("ant", 10)).unwrap());
    assert!(!ledger.record(pack(1), owned("bee", 10)).unwrap());
    assert!(ledger.record(pack(1), owned("ant", 10)).unwrap());
    let session = ExtentName::In(ExtentKind::Sessions, [2; 16]);
    assert!(ledger.record(session, owned("bee", 0)).unwrap());
    drop(ledger);
    let ledger = Ledger::open(&path).unwrap();
    assert!(ledger.is_of(pack(1), "ant") && !ledger.is_of(pack(1), "bee"));
    assert!(ledger.commits("bee", [9; 16]) && !ledger.commits("ant", [9; 16]));
    assert_eq!((ledger.used_bytes("ant"), ledger.used_bytes("bee")), (10, 0));
    ledger.forget(pack(1));
    assert_eq!(ledger.used_bytes("ant"), 0);
    assert!(ledger.is_of(pack(1), "ant"));
}

#[test]
fn sessions_are_found_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let session = |byte| ExtentName::In(ExtentKind::Sessions, [byte; 16]);
    let ledger = Ledger::open(&path).unwrap();
    (1..4).for_each(|byte| assert!(ledger.record(session(byte), owned("ant", 0)).unwrap()));
    drop(ledger);
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.sessions(), []);
    // The second has ended. The last is that of a host with a member of its own.
    let there = HashSet::from([[1; 16], [3; 16], [7; 16]]);
    let ids = || ledger.sessions().iter().map(|it| it.id[0]).collect::<BTreeSet<_>>();
    ledger.settle(ExtentKind::Sessions, &there, 6);
    assert_eq!(ids(), BTreeSet::from([1, 3]));
    assert_eq!(ledger.fence([1; 16]).unwrap().as_deref(), Some("ant"));
    // Another process deletes the first.
    ledger.settle(ExtentKind::Sessions, &HashSet::from([[3; 16]]), 6);
    assert_eq!(ids(), BTreeSet::from([3]));
}

/// The server ended between the record of a snapshot and the snapshot.
#[test]
fn a_snapshot_that_was_never_stored_is_no_success_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let name = |kind, byte| ExtentName::In(kind, [byte; 16]);
    let ledger = Ledger::open(&path).unwrap();
    for (byte, seconds) in [(1, 100), (2, 200)] {
        let session = Owned { commit: [byte; 16], seconds, ..owned("ant", 0) };
        assert!(ledger.record(name(ExtentKind::Sessions, byte), session).unwrap());
        let snapshot = Owned { seconds: seconds + 7, ..owned("ant", 0) };
        assert!(ledger.record(name(ExtentKind::Snapshots, byte), snapshot).unwrap());
    }
    drop(ledger);
    for (there, sessions, last) in [
        // The second snapshot was stored and deleted: its session has ended.
        (HashSet::from([[1; 16]]), HashSet::new(), 207),
        (HashSet::from([[1; 16]]), HashSet::from([[2; 16]]), 107),
    ] {
        let ledger = Ledger::open(&path).unwrap();
        for _ in 0..2 {
            ledger.settle(ExtentKind::Sessions, &sessions, 300);
            ledger.settle(ExtentKind::Snapshots, &there, 300);
            let facts = ledger.host("ant");
            assert_eq!((facts.last_snapshot_seconds, facts.snapshots), (Some(last), 1));
        }
    }
}

#[test]
fn a_deletion_counts_once_and_also_if_another_process_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&dir.path().join("ledger")).unwrap();
    let snapshot = |byte| ExtentName::In(ExtentKind::Snapshots, [byte; 16]);
    for byte in 1..4 {
        assert!(ledger.record(snapshot(byte), owned("ant", 0)).unwrap());
        assert!(ledger.record(pack(byte), owned("ant", 10)).unwrap());
    }
    // Each member is asked to delete the snapshot.
    (0..3).for_each(|_| ledger.forget(snapshot(1)));
    assert_eq!(ledger.host("ant").snapshots, 2);
    let there = HashSet::from([[3; 16]]);
    // The objects were recorded at 5 seconds.
    ledger.settle(ExtentKind::Packs, &there, 5);
    assert_eq!(ledger.used_bytes("ant"), 30);
    (0..2).for_each(|_| ledger.settle(ExtentKind::Packs, &there, 6));
    ledger.settle(ExtentKind::Snapshots, &there, 6);
    assert_eq!((ledger.used_bytes("ant"), ledger.host("ant").snapshots), (10, 1));
}

#[test]
fn an_object_that_no_member_took_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&dir.path().join("ledger")).unwrap();
    let used = || ledger.used_bytes("ant");
    assert!(ledger.record(pack(1), owned("ant", 10)).unwrap());
    ledger.withdraw(pack(1));
    assert_eq!((used(), ledger.is_counted(pack(1))), (0, false));
    // It is the host's, which puts it again.
    assert!(ledger.is_of(pack(1), "ant"));
    assert!(!ledger.record(pack(1), owned("bee", 10)).unwrap());
    (0..2).for_each(|_| assert!(ledger.record(pack(1), owned("ant", 12)).unwrap()));
    assert_eq!((used(), ledger.is_counted(pack(1))), (12, true));
    // Of two requests for it, the one that failed ends first.
    ledger.withdraw(pack(1));
    (0..2).for_each(|_| ledger.confirm(pack(1)));
    assert_eq!(used(), 12);
    // A host whose snapshot was not stored has the one before.
    let snapshot = |byte| ExtentName::In(ExtentKind::Snapshots, [byte; 16]);
    assert!(ledger.record(snapshot(1), owned("ant", 0)).unwrap());
    ledger.confirm(snapshot(1));
    assert!(ledger.record(pack(2), owned("ant", 10)).unwrap());
    let before = ledger.host("ant");
    let later = Owned { seconds: 99, ..owned("ant", 0) };
    assert!(ledger.record(snapshot(2), later.clone()).unwrap());
    assert_eq!(ledger.host("ant").last_snapshot_seconds, Some(99));
    ledger.withdraw(snapshot(2));
    assert_eq!(ledger.host("ant"), before);
    assert!(ledger.record(snapshot(2), later).unwrap());
    assert_eq!((ledger.host("ant").snapshots, ledger.host("ant").last_new_bytes), (2, 10));
}

#[test]
fn only_a_running_session_is_fenced_and_its_snapshot_stays_refused_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let ledger = Ledger::open(&path).unwrap();
    let session = ExtentName::In(ExtentKind::Sessions, [2; 16]);
    assert!(ledger.record(session, owned("bee", 0)).unwrap());
    assert_eq!(ledger.fence([3; 16]).unwrap(), None);
    assert_eq!(ledger.fence([2; 16]).unwrap(), Some("bee".to_owned()));
    assert!(ledger.is_fenced([9; 16]) && !ledger.is_fenced([2; 16]));
    drop(ledger);
    let ledger = Ledger::open(&path).unwrap();
    assert!(ledger.is_fenced([9; 16]));
    assert_eq!(ledger.fence([2; 16]).unwrap(), None);
}

#[test]
fn a_torn_record_is_cut_off_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let ledger = Ledger::open(&path).unwrap();
    ledger.record(pack(1), owned("ant", 1)).unwrap();
    let first = std::fs::metadata(&path).unwrap().len();
    ledger.record(pack(2), owned("ant", 1)).unwrap();
    drop(ledger);
    let whole = std::fs::read(&path).unwrap();
    for cut in first as usize + 1..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let ledger = Ledger::open(&path).unwrap();
        assert!(ledger.is_of(pack(1), "ant") && !ledger.is_of(pack(2), "ant"), "{cut}");
        assert!(ledger.record(pack(3), owned("bee", 1)).unwrap());
        drop(ledger);
        let ledger = Ledger::open(&path).unwrap();
        assert!(ledger.is_of(pack(3), "bee"), "{cut}");
    }
}
