//! Cutting and keeping content: one huge file like many small pieces, and no chunk twice.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pinstripe::{ChunkReader, LARGE_BYTES, PackReader, TreeReader, index};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::ExtentKind;
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::Cutter;

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, Site, assert_whole, backup, noise};

/// The rows of a file's content, and its runs of data.
fn rows(
    site: &Site,
    snapshot: &Snapshot,
    name: &str,
) -> (Vec<ChunkRow>, Vec<std::ops::Range<u64>>) {
    let (store, monitor) = (site.store(), Monitor::default());
    let index = index::Index::load(&store, &monitor).unwrap();
    let packs = PackReader::new(&store, &monitor);
    let path = site.source().join(name);
    let below = &path.as_os_str().as_encoded_bytes()[1..];
    let chunks = ChunkReader::new(&packs, &index);
    let mut tree = TreeReader::new(chunks, &snapshot.root, below).unwrap();
    let entry = tree.next_entry().unwrap().unwrap();
    assert_eq!(entry.path, below);
    (tree.content(&entry.content).unwrap(), entry.data_extents())
}

/// Cuts each run of data with the plain, sequential cutter.
fn cut(site: &Site, path: &Path, extents: &[std::ops::Range<u64>]) -> Vec<ChunkRow> {
    let store = site.store();
    let chunking = store.config.chunking.parse().unwrap();
    let cutter =
        Cutter::for_store(chunking, store.config.chunker, &store.keys().unwrap().gear).unwrap();
    let file = fs::File::open(path).unwrap();
    let mut rows = Vec::new();
    for extent in extents {
        let mut bytes = vec![0; (extent.end - extent.start) as usize];
        file.read_exact_at(&mut bytes, extent.start).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            let len = cutter.next_cut(extent.start + at as u64, &bytes[at..], true);
            let chunk = &bytes[at..at + len];
            rows.push(ChunkRow {
                id: store.keys().unwrap().chunk_id(chunk),
                raw_bytes: len as u32,
            });
            at += len;
        }
    }
    rows
}

#[track_caller]
fn assert_cut_as_by_one(site: &Site, snapshot: &Snapshot, name: &str) {
    let (found, extents) = rows(site, snapshot, name);
    let wanted = cut(site, &site.source().join(name), &extents);
    assert_eq!(found.len(), wanted.len(), "{name}");
    assert!(found == wanted, "{name} is cut in other places");
}

#[test]
#[ignore = "with --all: it takes 5 s"]
fn a_huge_file_is_cut_as_if_by_one_thread() {
    for chunking in ["16K", "1M", "fixed:64K"] {
        let site = Site::with_chunks(2, 1, chunking);
        let huge = LARGE_BYTES as usize + (9 << 20) + 4321;
        let mut bytes = noise(7, huge);
        // Long runs of nothing, which no content-defined cut divides.
        bytes[5 << 20..12 << 20].fill(0);
        fs::write(site.source().join("huge"), &bytes).unwrap();
        fs::write(site.source().join("just large"), &bytes[..LARGE_BYTES as usize]).unwrap();
        fs::write(site.source().join("not large"), &bytes[..LARGE_BYTES as usize - 1]).unwrap();
        let wanted = look(&site.source());
        let snapshot = site.save();
        for name in ["huge", "just large", "not large"] {
            assert_cut_as_by_one(&site, &snapshot, name);
        }
        site.assert_restores(&site.store(), &snapshot, &wanted);
        assert_no_chunk_twice(&site);
    }
}

#[test]
fn a_huge_sparse_file_is_cut_by_its_runs_of_data() {
    let site = Site::with_chunks(2, 1, "64K");
    let file = fs::File::create(site.source().join("sparse")).unwrap();
    // Runs that are shorter than a chunk, longer than a segment, and at odd offsets.
    for (at, len) in [(4096, 4096), (9 << 20, 9 << 20), ((1 << 28) + 4096, 100_000), (3 << 28, 1)] {
        file.write_all_at(&noise(at, len), at).unwrap();
    }
    file.set_len(1 << 30).unwrap();
    let wanted = look(&site.source());
    let ledger = Ledger::new();
    let snapshot = backup(&site.store(), &site.source(), &ledger).unwrap();
    ledger.assert_clean();
    assert!(ledger.get(Counter::ReadBytes) < 10 << 20, "holes were read");
    assert_cut_as_by_one(&site, &snapshot, "sparse");
    let (_, extents) = rows(&site, &snapshot, "sparse");
    assert_eq!(extents, wanted[&b"sparse"[..]].extents);
    site.assert_restores(&site.store(), &snapshot, &wanted);
}

#[test]
fn fixed_chunks_lie_at_multiples_of_their_length() {
    let site = Site::with_chunks(2, 1, "fixed:4K");
    let bytes = noise(3, 50_001);
    fs::write(site.source().join("database"), &bytes).unwrap();
    fs::write(site.source().join("tiny"), &bytes[..100]).unwrap();
    let first = site.save();
    let (found, _) = rows(&site, &first, "database");
    assert!(found[..found.len() - 1].iter().all(|row| row.raw_bytes == 4096));
    assert_cut_as_by_one(&site, &first, "database");
    // A page changed in place costs one chunk.
    let file = fs::OpenOptions::new().write(true).open(site.source().join("database")).unwrap();
    file.write_all_at(b"changed", 8192 + 10).unwrap();
    let (wanted, ledger) = (look(&site.source()), Ledger::new());
    let second = backup(&site.store(), &site.source(), &ledger).unwrap();
    assert_eq!(ledger.get(Counter::DedupedBytes), 4096);
    site.assert_restores(&site.store(), &second, &wanted);
}

#[track_caller]
fn assert_no_chunk_twice(site: &Site) {
    let store = site.store();
    let mut seen = HashSet::new();
    for set in index::sets_in(&store, ExtentKind::Packs).unwrap().into_keys() {
        for record in index::read_pack_index(&store, set).unwrap().records {
            for row in record.chunks {
                assert!(seen.insert(row.id), "chunk {} is stored twice", row.id);
            }
        }
    }
    assert!(!seen.is_empty());
}

#[test]
fn workers_that_meet_the_same_content_store_it_once() {
    let site = Site::new(3, 1);
    // The same content under many names, in an order that lets all workers meet it at once.
    for number in 0..400_u64 {
        let bytes = noise(number % 7, 3000 + (number % 5) as usize * 7000);
        fs::write(site.source().join(format!("{number:03}")), bytes).unwrap();
    }
    let wanted = look(&site.source());
    let ledger = Ledger::new();
    let first = backup(&site.store(), &site.source(), &ledger).unwrap();
    ledger.assert_clean();
    assert!(ledger.get(Counter::KnownChunks) > ledger.get(Counter::NewChunks));
    assert_no_chunk_twice(&site);
    // Nor by a later backup, under other names and with other neighbours.
    for number in 0..50 {
        let from = site.source().join(format!("{number:03}"));
        let bytes = [fs::read(from).unwrap(), noise(number + 99, 500)].concat();
        fs::write(site.source().join(format!("again {number}")), bytes).unwrap();
    }
    site.save();
    assert_no_chunk_twice(&site);
    site.assert_restores(&site.store(), &first, &wanted);
    assert_whole(&site.store());
}
