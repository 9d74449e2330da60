//! The needs of a daily backup: lists, tags, hosts, caches, a dry run.

use std::fs;
use std::path::PathBuf;

use pinstripe::backup::{BackupOptions, Stream};
use pinstripe::{DirectoryTag, Exclude, backup};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;

use pinstripe_sim::look;
use pinstripe_sim::{Ledger, Site, limits, noise, restore, small_tree};

fn options(site: &Site, names: &[&str]) -> BackupOptions {
    let paths = names.iter().map(|name| site.source().join(name)).collect();
    BackupOptions::new(paths, b"test", limits())
}

fn would_read(site: &Site, options: &BackupOptions) -> (Vec<(PathBuf, bool)>, Ledger) {
    let (ledger, mut seen) = (Ledger::new(), Vec::new());
    backup::survey(&site.store(), options, &ledger.monitor, &mut |wanted| {
        let path = String::from_utf8(wanted.path.to_vec()).unwrap();
        let below = format!("/{path}");
        let below = std::path::Path::new(&below).strip_prefix(site.source()).unwrap();
        seen.push((below.to_owned(), wanted.is_new));
        Ok(())
    })
    .unwrap();
    (seen, ledger)
}

#[test]
fn a_dry_run_names_what_the_backup_then_reads_and_changes_nothing() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let before = site.image();
    let (seen, ledger) = would_read(&site, &options(&site, &[""]));
    ledger.assert_clean();
    let all = ["d/again", "d/e/short", "d/text", "empty"].map(|name| (name.into(), true));
    assert_eq!(seen, all, "another name of an inode is not read");
    assert!(before == site.image(), "the store is as it was");
    let counted = ledger;
    let ledger = Ledger::new();
    backup::run(&site.store(), options(&site, &[""]), &ledger.monitor).unwrap();
    for counter in [Counter::WalkedEntries, Counter::NewFiles, Counter::NewBytes] {
        assert_eq!(ledger.get(counter), counted.get(counter));
    }
    pinstripe_testing::await_tick();
    site.save();
    fs::write(site.source().join("d/e/short"), noise(9, 800)).unwrap();
    fs::write(site.source().join("newer"), b"x").unwrap();
    let (seen, ledger) = would_read(&site, &options(&site, &[""]));
    assert_eq!(seen, [("d/e/short".into(), false), ("newer".into(), true)]);
    assert_eq!(ledger.get(Counter::ReadBytes), 0);
    assert_eq!(ledger.get(Counter::UnchangedFiles), 4);
}

#[test]
fn a_list_may_name_many_files_and_some_that_are_gone() {
    let site = Site::new(3, 1);
    let source = site.source();
    small_tree(&source, 2);
    let mut paths: Vec<_> = (0..300).map(|n| source.join(format!("d/many/{n}"))).collect();
    fs::create_dir(source.join("d/many")).unwrap();
    paths.iter().for_each(|path| fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap());
    fs::write(source.join("d/many/not listed"), b"x").unwrap();
    paths.extend(["d/e", "d/e/short", "gone", "noise/below"].map(|name| source.join(name)));
    paths.reverse();
    let list = || BackupOptions {
        paths_are_a_list: true,
        ..BackupOptions::new(paths.clone(), b"test", limits())
    };
    let ledger = Ledger::new();
    let snapshot = backup::run(&site.store(), list(), &ledger.monitor).unwrap();
    let losses = ledger.losses();
    assert_eq!(losses.len(), 2, "{losses:?}");
    assert!(ledger.loss_at("gone").kind == Kind::NotFound);
    assert_eq!(ledger.get(Counter::NewFiles), 301);
    assert_eq!(snapshot.sources.len(), 301, "what lies below another path is not named twice");
    pinstripe_testing::await_tick();
    let ledger = Ledger::new();
    backup::run(&site.store(), list(), &ledger.monitor).unwrap();
    let ledger_again = Ledger::new();
    backup::run(&site.store(), list(), &ledger_again.monitor).unwrap();
    assert_eq!(ledger_again.get(Counter::UnchangedFiles), 301);

    let none = BackupOptions { paths: vec![source.join("gone")], ..list() };
    let error = backup::run(&site.store(), none, &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

/// Of paths that were named one by one a missing one ended the backup, and nothing was backed up.
#[test]
fn a_path_that_vanished_is_a_loss_and_the_others_are_backed_up() {
    let site = Site::new(3, 1);
    let source = site.source();
    small_tree(&source, 2);
    let paths = vec![source.join("d"), source.join("usb/photos"), source.join("noise")];
    let run = |paths: &[PathBuf]| {
        pinstripe_testing::await_tick();
        let (options, ledger) =
            (BackupOptions::new(paths.to_vec(), b"test", limits()), Ledger::new());
        let snapshot = backup::run(&site.store(), options, &ledger.monitor).unwrap();
        (snapshot, ledger)
    };
    fs::create_dir_all(source.join("usb/photos")).unwrap();
    fs::write(source.join("usb/photos/one"), b"1").unwrap();
    let (whole, ledger) = run(&paths);
    ledger.assert_clean();
    // The directory above it is gone as well, as with a disk that is not mounted.
    fs::rename(source.join("usb"), site.path("aside")).unwrap();
    let (short, ledger) = run(&paths);
    assert_eq!(ledger.losses().len(), 1, "{:?}", ledger.seen());
    assert_eq!(ledger.loss_at("usb/photos").kind, Kind::NotFound);
    // One of the same sources, so nothing of the others was read again.
    assert_eq!(short.sources, whole.sources);
    assert_eq!(ledger.get(Counter::ReadBytes), 0);
    assert_eq!(ledger.get(Counter::UnchangedFiles), 4);
    fs::rename(site.path("aside"), source.join("usb")).unwrap();
    let (again, ledger) = run(&paths);
    ledger.assert_clean();
    assert_eq!(again.sources, whole.sources);
    assert_eq!(ledger.get(Counter::NewFiles), 1);

    for gone in [vec!["gone"], vec!["gone", "usb/no/more"]] {
        let paths = gone.into_iter().map(|name| source.join(name)).collect();
        let options = BackupOptions::new(paths, b"test", limits());
        let error = backup::run(&site.store(), options, &Ledger::new().monitor).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
    }
}

#[test]
fn what_is_too_much_for_a_snapshot_object_is_refused_before_anything_is_written() {
    let site = Site::new(1, 0);
    let name = "n".repeat(200);
    let paths = (0..60_000).map(|n| {
        let path = site.source().join(format!("{name}{n}"));
        fs::write(&path, b"").unwrap();
        path
    });
    let options = BackupOptions::new(paths.collect(), b"test", limits());
    let before = site.image();
    let error = backup::run(&site.store(), options, &Ledger::new().monitor).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("too many paths"), "{error}");
    assert!(before == site.image());
}

#[test]
fn a_host_has_parents_of_its_own_and_tags_are_kept() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 3);
    let first = site.save();
    let ledger = Ledger::new();
    let tags = vec!["daily".to_owned(), "before-upgrade".to_owned()];
    let other =
        BackupOptions { host: b"other".to_vec(), tags: tags.clone(), ..options(&site, &[""]) };
    let snapshot = backup::run(&site.store(), other, &ledger.monitor).unwrap();
    assert_eq!((snapshot.parent, &snapshot.tags), (None, &tags));
    assert_eq!(ledger.get(Counter::NewFiles), first.count("new_files").unwrap());
    assert_eq!(ledger.get(Counter::DedupedBytes), 0);
    let found = pinstripe::snapshots::run(&site.store(), &Ledger::new().monitor).unwrap();
    let kept = found.iter().find(|it| it.id == snapshot.id).unwrap();
    assert_eq!(kept.tags, tags);
}

/// Gives its bytes in odd pieces, and fails behind them where that is wanted.
struct Odd<'a> {
    rest: &'a [u8],
    reads: usize,
    fails: bool,
}

impl<'a> Odd<'a> {
    fn new(rest: &'a [u8], fails: bool) -> Self {
        Odd { rest, reads: 0, fails }
    }
}

impl std::io::Read for Odd<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let left = self.rest;
        if left.is_empty() && self.fails {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        self.reads += 1;
        let take = left.len().min(buf.len()).min(1 + (self.reads * 7919) % 70_000);
        buf[..take].copy_from_slice(&left[..take]);
        self.rest = &left[take..];
        Ok(take)
    }
}

#[test]
fn a_stream_becomes_a_file_and_is_cut_as_that_file_would_be() {
    let site = Site::new(3, 1);
    for bytes in [0, 1, 5_000, (4 << 20) - 1, 4 << 20, 13_000_001] {
        let whole = noise(bytes as u64, bytes);
        fs::write(site.source().join("file"), &whole).unwrap();
        let ledger = Ledger::new();
        backup::run(&site.store(), options(&site, &["file"]), &ledger.monitor).unwrap();
        let ledger = Ledger::new();
        let (name, content) = (b"dump.sql".to_vec(), Box::new(Odd::new(&whole, false)));
        let stream = Stream { name, content, owner: (1, 2) };
        let snapshot =
            backup::run_stream(&site.store(), stream, &options(&site, &[]), &ledger.monitor)
                .unwrap();
        ledger.assert_clean();
        assert_eq!(snapshot.sources, [b"dump.sql"]);
        assert_eq!(snapshot.count("new_bytes"), Some(bytes as u64));
        assert_eq!(ledger.get(Counter::DedupedBytes), 0, "{bytes}: the same chunks");
        let (ledger, to) = (Ledger::new(), site.target());
        let (id, at) = (snapshot.id.to_string(), std::path::Path::new("dump.sql"));
        restore(&site.store(), &id, at, &to, &ledger).unwrap();
        assert!(fs::read(&to).unwrap_or_else(|_| fs::read(to.join("dump.sql")).unwrap()) == whole);
    }
}

#[test]
fn a_stream_that_breaks_off_makes_no_snapshot() {
    let site = Site::new(3, 1);
    let run = |name: &[u8], fails| {
        let bytes = noise(1, 9_000_000);
        let content = Box::new(Odd::new(&bytes, fails));
        let stream = Stream { name: name.to_vec(), content, owner: (0, 0) };
        let ledger = Ledger::new();
        backup::run_stream(&site.store(), stream, &options(&site, &[]), &ledger.monitor)
    };
    let error = run(b"dump", true).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.advice_text().unwrap().contains("no snapshot"), "{error}");
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        assert_eq!(run(name, false).unwrap_err().kind(), Kind::Usage);
    }
    let found = pinstripe::snapshots::run(&site.store(), &Ledger::new().monitor).unwrap();
    assert!(found.is_empty());
}

#[test]
fn caches_come_back_as_empty_caches() {
    let site = Site::new(3, 1);
    let source = site.source();
    small_tree(&source, 4);
    fs::create_dir(source.join("cache")).unwrap();
    let tag = b"Signature: 8a477f597d28d172789f06886806bc55";
    fs::write(source.join("cache/CACHEDIR.TAG"), tag).unwrap();
    let wanted = look(&source);
    fs::write(source.join("cache/big"), noise(7, 50_000)).unwrap();
    let ledger = Ledger::new();
    let exclude = Exclude::default().with_tag(DirectoryTag::of_caches());
    let without = BackupOptions { exclude, ..options(&site, &[""]) };
    let snapshot = backup::run(&site.store(), without, &ledger.monitor).unwrap();
    // The directory's own times moved when the file was made in it.
    fs::remove_file(source.join("cache/big")).unwrap();
    let time = snapshot.root.entries;
    assert_eq!(time, wanted.len() as u64 + above(&source), "all but the cache's content");
    ledger.assert_clean();
}

/// Directories above the source, which a snapshot has too.
fn above(source: &std::path::Path) -> u64 {
    source.ancestors().count() as u64 - 2
}
