//! The calls of the verbs to their seams, counted: a change that makes more of them is seen here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pinstripe::Store;
use pinstripe_base::monitor::Counter;
use pinstripe_io::fault::{Operation, Plan};
use pinstripe_member::{FaultMember, SharedMember};
use pinstripe_testing::skipped;

use pinstripe_sim::stamps;
use pinstripe_sim::{Ledger, Site, backup, check, noise, restore, small_tree};

type Counted = Arc<FaultMember<SharedMember>>;

/// Puts a counter before every member.
fn count(mut store: Store) -> (Store, Vec<Counted>) {
    let mut counted = Vec::new();
    for slot in &mut store.member_slots {
        let member = slot.member.take().unwrap();
        let counting = Arc::new(FaultMember::new(member, Plan::default()));
        slot.member = Some(Arc::clone(&counting) as SharedMember);
        counted.push(counting);
    }
    (store, counted)
}

fn calls(counted: &[Counted], operation: Operation) -> Vec<u64> {
    counted.iter().map(|member| member.statistics().counts(operation).calls).collect()
}

/// A snapshot's entries for the directories above the source. Other tests make and remove theirs
/// there.
fn above(site: &Site) -> Vec<(i64, i64, u64)> {
    let look = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap();
        (stat.ctime(), stat.ctime_nsec(), stat.nlink())
    };
    site.source().ancestors().skip(1).map(look).collect()
}

/// Backs up, does `work`, backs up again; once more from the beginning when another process
/// changed a directory above the source meanwhile.
fn second_backup(test: &str, work: impl Fn(&Site)) -> Option<(Site, Vec<Counted>, Ledger)> {
    for _ in 0..TRIES {
        let site = Site::new(3, 1);
        small_tree(&site.source(), 1);
        let before = above(&site);
        site.save();
        work(&site);
        let (store, counted) = count(site.store());
        let ledger = Ledger::new();
        backup(&store, &site.source(), &ledger).unwrap();
        ledger.assert_clean();
        if above(&site) == before {
            return Some((site, counted, ledger));
        }
    }
    skipped(test, "the directory for temporary files never rests");
    None
}

const TRIES: usize = 100;

#[test]
fn an_unchanged_second_backup_reads_no_content_and_writes_two_objects() {
    let test = "an_unchanged_second_backup_reads_no_content_and_writes_two_objects";
    let Some((site, counted, ledger)) = second_backup(test, |_| {}) else { return };
    assert_eq!(ledger.get(Counter::ReadBytes), 0);
    assert_eq!(ledger.get(Counter::NewChunks), 0);
    let files = stamps(&site.source()).len() as u64;
    assert_eq!(ledger.get(Counter::UnchangedFiles), files);
    // A session, which goes when it is done, and a snapshot.
    assert_eq!(calls(&counted, Operation::Put), [2, 2, 2]);
    assert_eq!(calls(&counted, Operation::Delete), [1, 1, 1]);
    for operation in [Operation::Append, Operation::Seal, Operation::Sync] {
        assert_eq!(calls(&counted, operation), [0, 0, 0], "{operation:?}");
    }
}

#[test]
fn one_new_file_costs_one_pack_of_each_kind_and_one_run() {
    let test = "one_new_file_costs_one_pack_of_each_kind_and_one_run";
    let add = |site: &Site| fs::write(site.source().join("new"), noise(8, 3000)).unwrap();
    let Some((_, counted, ledger)) = second_backup(test, add) else { return };
    assert_eq!(ledger.get(Counter::ReadBytes), 3000);
    assert_eq!(ledger.get(Counter::NewFiles), 1);
    // A pack with the content, a pack with the changed page, an index run.
    assert_eq!(calls(&counted, Operation::Seal), [3, 3, 3]);
    assert_eq!(calls(&counted, Operation::Put), [2, 2, 2]);
}

#[test]
fn reading_verbs_write_nothing() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let before = site.image();
    let (store, counted) = count(site.store());
    check(&store, true, &Ledger::new());
    restore(&store, "latest", &site.source(), &site.target(), &Ledger::new()).unwrap();
    pinstripe::snapshots::run(&store, &Ledger::new().monitor).unwrap();
    let mut entries = 0;
    let show = &mut |_: &_| {
        entries += 1;
        Ok(())
    };
    pinstripe::ls::run(&store, "latest", b"", &Ledger::new().monitor, show).unwrap();
    assert!(entries > 8);
    assert_eq!(pinstripe::members::run(&store).unwrap().len(), 3);
    for operation in [Operation::Create, Operation::Put, Operation::Delete, Operation::Sync] {
        assert_eq!(calls(&counted, operation), [0, 0, 0], "{operation:?}");
    }
    assert!(site.image() == before);
}

/// Content is fetched about once, not once for each file or chunk that it is made of.
#[test]
fn a_restore_fetches_each_record_once() {
    let site = Site::new(3, 1);
    for number in 0..300_u64 {
        fs::write(site.source().join(format!("{number}")), noise(number, 2000)).unwrap();
    }
    site.save();
    let (store, counted) = count(site.store());
    let ledger = Ledger::new();
    restore(&store, "latest", &site.source(), &site.target(), &ledger).unwrap();
    ledger.assert_no_losses();
    assert_eq!(ledger.get(Counter::RebuiltStrips), 0);
    let bytes: u64 = counted.iter().map(|m| m.statistics().counts(Operation::Read).bytes).sum();
    assert!(bytes < 2 * ledger.get(Counter::RestoredBytes), "{bytes}");
}

/// The index is asked in its own order: chunk by chunk, in the order of a file, most questions
/// would read another of its pages.
#[test]
fn a_check_reads_each_page_of_the_index_once() {
    let site = Site::new(3, 1);
    // More pages than the index keeps in memory.
    fs::write(site.source().join("file"), noise(1, 80 << 20)).unwrap();
    let ledger = Ledger::new();
    backup(&site.store(), &site.source(), &ledger).unwrap();
    let chunks = ledger.get(Counter::NewChunks);
    assert!(chunks > 16_000, "{chunks}");
    let (store, counted) = count(site.store());
    check(&store, false, &Ledger::new());
    let reads: u64 = calls(&counted, Operation::Read).iter().sum();
    assert!(reads < chunks / 20, "{reads} reads for {chunks} chunks");
}
