//! What `stats` and `analyze` count is what a plain look at the files counts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use pinstripe::{Exclude, Limits, SURVEY_LENGTHS, Survey, analyze, stats};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_stripe::Count;

use pinstripe_sim::paths;
use pinstripe_sim::{Ledger, Site, limits, noise, small_tree};

/// Copies under the same and under other names, a file with holes, repeated blocks.
fn tree(at: &Path) {
    small_tree(at, 1);
    for copy in ["one", "two", "three"] {
        fs::create_dir_all(at.join(copy)).unwrap();
        fs::write(at.join(copy).join("same name"), noise(4, 300_000)).unwrap();
    }
    fs::write(at.join("another name"), noise(4, 300_000)).unwrap();
    fs::write(at.join("blocks"), noise(5, 65_536).repeat(5)).unwrap();
    // Shifted by one byte: only content-defined chunks find it again.
    fs::write(at.join("shifted"), [b"x", &noise(4, 300_000)[..]].concat()).unwrap();
}

fn survey(path: &Path, exclude: &[&str], limits: Limits) -> Survey {
    let ledger = Ledger::new();
    let exclude = Exclude::new(exclude).unwrap();
    let stop = &AtomicBool::new(false);
    let paths = &[path.to_path_buf()];
    let options = analyze::AnalyzeOptions { paths, exclude, one_file_system: false, limits, stop };
    let survey = analyze::run(options, &ledger.monitor).unwrap();
    ledger.assert_clean();
    survey
}

/// Items, bytes, distinct items and bytes of things with keys.
fn plain_count<K: Ord>(things: impl IntoIterator<Item = (K, u64)>) -> (u64, u64, u64, u64) {
    let mut seen = BTreeSet::new();
    let mut count = (0, 0, 0, 0);
    for (key, bytes) in things {
        count = (count.0 + 1, count.1 + bytes, count.2, count.3);
        if seen.insert(key) {
            count = (count.0, count.1, count.2 + 1, count.3 + bytes);
        }
    }
    count
}

fn told(count: Count) -> (u64, u64, u64, u64) {
    assert_eq!(count.sampled, 1);
    (count.items, count.bytes, count.distinct_items, count.distinct_bytes)
}

/// Name and content of every regular file, each inode once.
fn files(root: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut inodes = BTreeSet::new();
    let mut files = Vec::new();
    for path in paths(root) {
        let full = root.join(std::ffi::OsStr::from_bytes(&path));
        let stat = fs::symlink_metadata(&full).unwrap();
        if stat.is_file() && inodes.insert(stat.ino()) {
            let name = full.file_name().unwrap().as_bytes().to_vec();
            files.push((name, fs::read(&full).unwrap()));
        }
    }
    files
}

#[test]
fn an_analysis_that_is_stopped_says_so_and_blames_no_file() {
    let site = tempfile::tempdir().unwrap();
    tree(site.path());
    let ledger = Ledger::new();
    let options = analyze::AnalyzeOptions {
        paths: &[site.path().to_path_buf()],
        exclude: Exclude::default(),
        one_file_system: false,
        limits: limits(),
        stop: &AtomicBool::new(true),
    };
    let error = analyze::run(options, &ledger.monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    ledger.assert_clean();
}

#[test]
fn several_trees_are_one_to_an_analysis() {
    let site = tempfile::tempdir().unwrap();
    let trees = ["a", "b"].map(|name| site.path().join(name));
    for tree in &trees {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("same"), noise(1, 100_000)).unwrap();
    }
    fs::write(trees[1].join("own"), noise(2, 50_000)).unwrap();
    // One inode below both: it counts once.
    fs::hard_link(trees[1].join("own"), trees[0].join("own")).unwrap();
    let of = |paths: &[PathBuf]| {
        let ledger = Ledger::new();
        let options = analyze::AnalyzeOptions {
            paths,
            exclude: Exclude::default(),
            one_file_system: false,
            limits: limits(),
            stop: &AtomicBool::new(false),
        };
        let found = analyze::run(options, &ledger.monitor).unwrap().by_content;
        ledger.assert_clean();
        (found.items, found.distinct_items, found.bytes, found.distinct_bytes)
    };
    assert_eq!(of(&trees[..1]), (2, 2, 150_000, 150_000));
    assert_eq!(of(&trees), (3, 2, 250_000, 150_000));
}

#[test]
fn analyze_counts_what_a_plain_look_counts() {
    let site = Site::bare(1);
    tree(&site.source());
    let files = files(&site.source());
    let found = survey(&site.source(), &[], limits());
    let size = |content: &[u8]| content.len() as u64;
    let by_name = files.iter().map(|(name, content)| ((name, content), size(content)));
    assert_eq!(told(found.by_name), plain_count(by_name));
    let by_content = files.iter().map(|(_, content)| (content, size(content)));
    assert_eq!(told(found.by_content), plain_count(by_content));
    for (count, length) in found.fixed.iter().zip(SURVEY_LENGTHS) {
        let blocks = files.iter().flat_map(|(_, content)| content.chunks(length as usize));
        assert_eq!(told(*count), plain_count(blocks.map(|block| (block, size(block)))));
    }
    let all = plain_count(files.iter().map(|(_, content)| (content, size(content)))).1;
    for count in &found.defined {
        assert_eq!(count.bytes, all);
    }
    let (fixed, defined) = (found.fixed[0].distinct_bytes, found.defined[0].distinct_bytes);
    assert!(defined + 200_000 < fixed, "{defined} of {fixed}: what was shifted is found again");
    let excluded = survey(&site.source(), &["another name"], limits());
    assert_eq!(excluded.by_content.items, found.by_content.items - 1);
    let single = survey(&site.source().join("blocks"), &[], limits());
    assert_eq!(told(single.fixed[2]), (5, 5 * 65_536, 1, 65_536));
}

#[test]
fn little_memory_makes_estimates_and_says_so() {
    let site = Site::bare(1);
    fs::write(site.source().join("large"), noise(3, 12_000_000)).unwrap();
    let found = survey(&site.source(), &[], Limits::new(2, 1, 1 << 20));
    let count = found.fixed[0];
    assert!(count.sampled > 1, "{count:?}");
    assert_eq!(count.bytes, 12_000_000);
    assert!(count.distinct_bytes > 9_000_000, "{count:?}");
}

#[test]
fn stats_tell_what_snapshots_hold_and_what_the_store_keeps() {
    let site = Site::new(4, 1);
    tree(&site.source());
    site.save();
    let files = files(&site.source());
    fs::write(site.source().join("new"), noise(9, 100_000)).unwrap();
    site.save();
    let ledger = Ledger::new();
    let ask = |snapshot| stats::StatsOptions {
        choice: pinstripe::SnapshotChoice::any(),
        snapshot,
        read_data: false,
        limits: limits(),
    };
    let found = stats::run(&site.store(), &ask(None), &ledger.monitor).unwrap();
    assert!(found.survey.is_none());
    ledger.assert_clean();
    let first = &found.snapshots[0].1;
    let size = |content: &[u8]| content.len() as u64;
    let by_name = files.iter().map(|(name, content)| ((name, content), size(content)));
    assert_eq!(told(first.by_name), plain_count(by_name));
    let by_content = files.iter().map(|(_, content)| (content, size(content)));
    assert_eq!(told(first.by_content), plain_count(by_content));
    assert_eq!(first.files, files.len() as u64);
    let both = &found.all;
    assert_eq!(both.files, 2 * first.files + 1);
    assert_eq!(both.by_content.distinct_bytes, first.by_content.distinct_bytes + 100_000);
    assert_eq!(both.by_chunk.distinct_bytes, first.by_chunk.distinct_bytes + 100_000);
    assert!(both.by_chunk.distinct_bytes < both.by_content.distinct_bytes);
    let stored = found.stored;
    assert!(stored.raw_bytes > both.by_chunk.distinct_bytes, "pages are stored too");
    assert!(stored.record_bytes < stored.raw_bytes && stored.member_bytes > stored.record_bytes);
    let one = stats::run(&site.store(), &ask(Some("latest")), &ledger.monitor).unwrap();
    assert_eq!(one.snapshots.len(), 1);
    assert_eq!(one.all.files, first.files + 1);
    assert!(stats::run(&site.store(), &ask(Some("none")), &ledger.monitor).is_err());
}

#[test]
fn stats_that_read_count_what_analyze_counts() {
    let site = Site::new(4, 1);
    tree(&site.source());
    let sparse = fs::File::create(site.source().join("sparse")).unwrap();
    sparse.write_all_at(&noise(6, 50_000), 1 << 20).unwrap();
    drop(sparse);
    site.save();
    let first = survey(&site.source(), &[], limits());
    fs::write(site.source().join("new"), noise(9, 100_000)).unwrap();
    site.save();
    let second = survey(&site.source(), &[], limits());
    let ledger = Ledger::new();
    let read = |snapshot| {
        let options = stats::StatsOptions {
            choice: pinstripe::SnapshotChoice::any(),
            snapshot,
            read_data: true,
            limits: limits(),
        };
        stats::run(&site.store(), &options, &ledger.monitor).unwrap().survey.unwrap()
    };
    let one = read(Some("latest"));
    assert_eq!((&one.fixed, &one.defined), (&second.fixed, &second.defined));
    let before = ledger.get(Counter::ReadBytes);
    let both = read(None);
    // What both snapshots hold is read once and counted twice.
    assert_eq!(ledger.get(Counter::ReadBytes), 2 * before);
    let ways = |survey: &Survey| [&survey.fixed[..], &survey.defined[..]].concat();
    for ((both, first), second) in ways(&both).iter().zip(ways(&first)).zip(ways(&second)) {
        assert_eq!(
            (both.items, both.bytes),
            (first.items + second.items, first.bytes + second.bytes)
        );
        assert_eq!(
            (both.distinct_items, both.distinct_bytes),
            (second.distinct_items, second.distinct_bytes)
        );
    }
    ledger.assert_clean();
}

#[test]
fn stats_name_content_that_cannot_be_read() {
    let site = Site::new(2, 0);
    fs::write(site.source().join("a"), noise(1, 200_000)).unwrap();
    site.save();
    let options = stats::StatsOptions {
        choice: pinstripe::SnapshotChoice::any(),
        snapshot: None,
        read_data: true,
        limits: limits(),
    };
    let ledger = Ledger::new();
    let store = site.store_with_faults("op=read,room=packs,after=6,error=EIO");
    let found = stats::run(&store, &options, &ledger.monitor);
    assert!(found.is_err() || !ledger.losses().is_empty(), "{:?}", ledger.seen());
}
