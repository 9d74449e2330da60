//! The catalog says what the snapshots say, whatever happens to either; and diff says what two
//! listings say.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use pinstripe::diff::{Sort, Totals};
use pinstripe::{
    CATALOG_FILE, Catalog, FoundVersion, Glob, Query, catalog_status, current_catalog, diff, find,
    forget, history, is_void, ls, rebuild_catalog, sessions,
};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Counter;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::Snapshot;

use pinstripe_sim::{Ledger, Site, noise};

/// A path with what a version of it is told by.
type Row = (Vec<u8>, FileKind, u32, u64, (i64, u32));

fn file(site: &Site) -> PathBuf {
    site.path("cache").join(CATALOG_FILE)
}

fn query(pattern: &str) -> Query {
    Query::new(Glob::new(pattern.as_bytes()).unwrap())
}

fn find(site: &Site, query: &Query) -> Result<Vec<FoundVersion>> {
    let (ledger, mut found) = (Ledger::new(), Vec::new());
    find::run(&site.store(), &file(site), query, &ledger.monitor, &mut |version| {
        found.push(version);
        Ok(())
    })?;
    ledger.assert_clean();
    Ok(found)
}

fn listed(site: &Site, snapshot: &Snapshot) -> Vec<Entry> {
    let mut entries = Vec::new();
    let monitor = Ledger::new().monitor;
    ls::run(&site.store(), &snapshot.id.to_string(), b"", &monitor, &mut |entry| {
        entries.push(entry.clone());
        Ok(())
    })
    .unwrap();
    entries
}

fn row(entry: &Entry) -> Row {
    let mtime = (entry.meta.mtime.seconds, entry.meta.mtime.nanos);
    (entry.path.clone(), entry.meta.kind, entry.meta.mode, entry.size, mtime)
}

/// Each snapshot, asked for alone, has in the catalog exactly what it has in its tree.
#[track_caller]
fn assert_true(site: &Site, snapshots: &[Snapshot]) {
    let all = find(site, &query("**")).unwrap();
    let known: BTreeSet<_> = snapshots.iter().map(|snapshot| snapshot.id).collect();
    let held: BTreeSet<_> = all.iter().flat_map(|it| &it.snapshots).map(|it| it.id).collect();
    assert_eq!(held, known);
    for snapshot in snapshots {
        let mut wanted: Vec<Row> = listed(site, snapshot).iter().map(row).collect();
        let mut found: Vec<Row> = (all.iter())
            .filter(|version| version.snapshots.iter().any(|it| it.id == snapshot.id))
            .map(|it| {
                let mtime = (it.mtime.seconds, it.mtime.nanos);
                (it.path.clone(), it.kind, it.mode, it.size, mtime)
            })
            .collect();
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted);
    }
}

/// Changes a few of many files, by a generator of its own.
fn change(site: &Site, round: u64) {
    let random = noise(round + 1, 64);
    for (number, byte) in random.iter().enumerate() {
        let place = site.source().join(format!("d{}/f{}", number % 7, byte));
        match byte % 4 {
            0 => drop(fs::remove_file(&place)),
            1 => {
                drop(fs::remove_file(&place));
                symlink(format!("to {round}"), &place).unwrap();
            }
            _ => {
                drop(fs::remove_file(&place));
                fs::write(&place, noise(round * 999 + u64::from(*byte), number)).unwrap();
            }
        }
    }
    let gone = site.source().join(format!("d{}", round % 7));
    if round % 3 == 2 {
        fs::remove_dir_all(&gone).unwrap();
        fs::create_dir(gone).unwrap();
    }
}

fn many_files(site: &Site) {
    for number in 0..1500 {
        let directory = site.source().join(format!("d{}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), format!("{number}")).unwrap();
    }
}

fn vanish(site: &Site, snapshot: &Snapshot) {
    for member in &site.members {
        fs::remove_file(member.join("snapshots").join(snapshot.id.to_string())).unwrap();
    }
}

#[test]
fn every_snapshot_is_told_as_its_tree_has_it_whatever_goes() {
    let site = Site::new(3, 1);
    many_files(&site);
    let mut snapshots = Vec::new();
    for round in 0..7 {
        change(&site, round);
        snapshots.push(site.save());
        if round % 2 == 0 {
            assert_true(&site, &snapshots);
        }
    }
    // The middle, the newest, the oldest: what they alone had goes, what others have stays.
    for at in [3, 5, 0] {
        vanish(&site, &snapshots.remove(at));
        assert_true(&site, &snapshots);
    }
    change(&site, 9);
    snapshots.push(site.save());
    assert_true(&site, &snapshots);
    for snapshot in &snapshots {
        vanish(&site, snapshot);
    }
    assert!(find(&site, &query("**")).unwrap().is_empty());
    let size = Catalog::open_existing(&file(&site), site.store().config.store).unwrap();
    let size = size.size().unwrap();
    assert_eq!((size.versions, size.directories, size.series), (0, 0, 0));
}

#[test]
fn what_is_forgotten_is_not_found_until_it_comes_back() {
    let site = Site::new(3, 1);
    many_files(&site);
    let mut snapshots = Vec::new();
    for round in 0..3 {
        change(&site, round);
        snapshots.push(site.save());
    }
    assert_true(&site, &snapshots);
    let forgotten = snapshots.remove(1);
    let name = forgotten.id.to_string();
    let choice = forget::ForgetChoice::Named(std::slice::from_ref(&name));
    let options = forget::ForgetOptions::new(choice);
    forget::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
    assert_true(&site, &snapshots);
    let status = catalog_status(&site.store(), &file(&site)).unwrap();
    assert_eq!((status.missing, status.gone, status.size.snapshots), (0, 0, 2));
    forget::undelete(&site.store(), &name, &Ledger::new().monitor).unwrap();
    snapshots.push(forgotten);
    assert_true(&site, &snapshots);
}

#[test]
fn the_void_of_a_backup_that_was_ended_from_outside_is_no_hole() {
    let site = Site::new(3, 1);
    fs::write(site.source().join("a"), "a").unwrap();
    let saved = site.save();
    let store = site.store();
    let begun = sessions::begin(&store, Work::Backup, [7; 16], Vec::new()).unwrap();
    sessions::fence(&store, &begun.session).unwrap();
    drop(begun);
    assert!(is_void(&store, SnapshotId([7; 16])));
    assert_true(&site, &[saved]);
}

#[test]
fn a_snapshot_that_changed_nothing_adds_nothing() {
    let site = Site::new(2, 1);
    many_files(&site);
    let first = site.save();
    let ledger = Ledger::new();
    current_catalog(&site.store(), &file(&site), &ledger.monitor).unwrap();
    assert_eq!(ledger.get(Counter::CataloguedVersions), first.root.entries);
    site.save();
    fs::write(site.source().join("d1/file 1"), "another").unwrap();
    site.save();
    // The directories above the source are in the snapshots as well, and change as they like.
    let below = query(&format!("{}/**", site.source().display()));
    assert_eq!(find(&site, &below).unwrap().len(), 7 + 1500 + 1);
    let found = find(&site, &query("file 1")).unwrap();
    assert_eq!(found.iter().map(|it| it.snapshots.len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn whatever_is_wrong_with_the_catalog_it_is_made_anew() {
    let site = Site::new(2, 1);
    many_files(&site);
    let snapshots = vec![site.save()];
    assert_true(&site, &snapshots);
    let place = file(&site);
    assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o600);
    let sound = fs::read(&place).unwrap();
    let broken = |at: usize, len: usize| {
        let mut bytes = sound.clone();
        bytes[at..at + len].fill(0xa5);
        bytes
    };
    // No header; another magic; another version; pages of tables and of rows overwritten.
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("no database", b"something else".to_vec()),
        ("header", broken(0, 16)),
        ("version", broken(60, 4)),
        ("application", broken(68, 4)),
        ("first page", broken(100, 4000)),
        ("all other pages", broken(8192, sound.len() - 8192)),
        ("cut short", sound[..sound.len() / 2].to_vec()),
    ] {
        fs::write(&place, &bytes).unwrap();
        let ledger = Ledger::new();
        let found = find(&site, &query("file 12"));
        assert_eq!(found.unwrap().len(), 1, "{name}");
        assert_true(&site, &snapshots);
        ledger.assert_clean();
    }
    fs::remove_file(&place).unwrap();
    assert_true(&site, &snapshots);
    let other = Site::new(2, 1);
    fs::write(other.source().join("x"), "x").unwrap();
    let others = vec![other.save()];
    fs::create_dir(other.path("cache")).unwrap();
    fs::copy(&place, file(&other)).unwrap();
    assert_true(&other, &others);
}

#[test]
fn a_file_that_is_no_catalog_is_not_overwritten() {
    let site = Site::new(2, 1);
    site.save();
    let place = site.path("letter.txt");
    fs::write(&place, "dear all").unwrap();
    let error = rebuild_catalog(&site.store(), &place, &Ledger::new().monitor).err().unwrap();
    assert_eq!(error.kind(), Kind::Refused);
    assert_eq!(fs::read(&place).unwrap(), b"dear all");
}

#[test]
fn names_of_a_snapshot_that_went_are_in_the_file_no_more() {
    let site = Site::new(2, 1);
    many_files(&site);
    let kept = site.save();
    fs::write(site.source().join("d2/Xyzzy-secret"), "s").unwrap();
    let gone = site.save();
    assert_eq!(find(&site, &query("Xyzzy*")).unwrap().len(), 1);
    let has_name = || fs::read(file(&site)).unwrap().windows(6).any(|window| window == b"Xyzzy-");
    assert!(has_name());
    vanish(&site, &gone);
    assert_true(&site, &[kept]);
    assert!(!has_name());
}

#[test]
fn searches_by_kind_size_time_snapshot_and_host() {
    let site = Site::new(2, 1);
    let source = site.source();
    fs::create_dir_all(source.join("sub/deep")).unwrap();
    fs::write(source.join("sub/small.txt"), "1").unwrap();
    fs::write(source.join("sub/deep/large.txt"), noise(1, 5000)).unwrap();
    symlink("small.txt", source.join("sub/link.txt")).unwrap();
    let first = site.save();
    fs::remove_file(source.join("sub/small.txt")).unwrap();
    site.save();
    let names = |query: &Query| -> Vec<String> {
        let found = find(&site, query).unwrap();
        let name = |it: &FoundVersion| {
            String::from_utf8_lossy(&it.path).rsplit('/').next().unwrap().to_owned()
        };
        found.iter().map(name).collect()
    };
    assert_eq!(names(&query("*.txt")), ["large.txt", "link.txt", "small.txt"]);
    assert_eq!(names(&query("sub/*.txt")), ["link.txt", "small.txt"]);
    assert_eq!(names(&query("deep/")), ["deep"]);
    assert_eq!(names(&query("*.pdf")), [""; 0]);
    let absolute = format!("{}/sub/**", source.display());
    assert_eq!(names(&query(&absolute)), ["deep", "large.txt", "link.txt", "small.txt"]);
    let mut of_kind = query("*.txt");
    of_kind.kind = Some(FileKind::Symlink);
    assert_eq!(names(&of_kind), ["link.txt"]);
    let mut large = query("*.txt");
    large.size = 5000..5001;
    assert_eq!(names(&large), ["large.txt"]);
    let mut old = query("*.txt");
    old.mtime = i64::MIN..1000;
    assert_eq!(names(&old), [""; 0]);
    let mut late = query("small.txt");
    late.snapshots = Some([first.id].into());
    assert_eq!(names(&late), ["small.txt"]);
    late.snapshots = Some(Default::default());
    assert_eq!(names(&late), [""; 0]);
    let mut elsewhere = query("*.txt");
    elsewhere.host = Some(b"other".to_vec());
    assert_eq!(names(&elsewhere), [""; 0]);
}

#[test]
fn history_tells_content_metadata_absence_and_return() {
    let site = Site::new(2, 1);
    let path = site.source().join("file");
    fs::write(&path, "one").unwrap();
    site.save();
    site.save();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    site.save();
    fs::write(&path, "two").unwrap();
    site.save();
    fs::remove_file(&path).unwrap();
    site.save();
    fs::write(&path, "two").unwrap();
    site.save();
    let history = |path: &Path| {
        let path = path.as_os_str().as_bytes();
        history::run(&site.store(), &file(&site), path, &Ledger::new().monitor)
    };
    let all = history(&path).unwrap();
    let told: Vec<_> = all[0]
        .iter()
        .map(|it| (it.found.as_ref().map(|f| f.mode), it.same_content, it.snapshots.len()))
        .collect();
    let mode = |found: u32| Some(found);
    assert_eq!((all.len(), told.len()), (1, 5));
    assert_eq!(told[0].2, 2);
    assert_eq!(told[1], (mode(0o600), true, 1));
    assert_eq!(told[2], (mode(0o600), false, 1));
    assert_eq!(told[3], (None, false, 1));
    assert_eq!((told[4].1, told[4].2), (true, 1));
    let error = history(&site.source().join("never")).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

#[test]
fn diff_tells_what_two_listings_tell() {
    let site = Site::new(3, 1);
    many_files(&site);
    let mut snapshots = vec![site.save()];
    for round in 0..4 {
        change(&site, round);
        snapshots.push(site.save());
    }
    for (old, new) in [(0, 1), (1, 4), (4, 0), (2, 2)] {
        let (old, new) = (&snapshots[old], &snapshots[new]);
        let mut seen = Vec::new();
        let ledger = Ledger::new();
        let totals = diff::run(
            &site.store(),
            &old.id.to_string(),
            &new.id.to_string(),
            &ledger.monitor,
            &mut |sort, old, new| {
                seen.push((old.or(new).unwrap().path.clone(), sort));
                Ok(())
            },
        )
        .unwrap();
        let wanted = brute_force(&listed(&site, old), &listed(&site, new));
        let mut seen_sorted = seen.clone();
        seen_sorted.sort_by(|left, right| left.0.cmp(&right.0));
        assert_eq!(seen_sorted, wanted);
        assert_eq!(totals == Totals::default(), wanted.is_empty());
        assert_eq!(totals.added, seen.iter().filter(|it| it.1 == Sort::Added).count() as u64);
    }
    let ledger = Ledger::new();
    let same = snapshots[2].id.to_string();
    diff::run(&site.store(), &same, &same, &ledger.monitor, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(ledger.get(Counter::FetchedBytes), 0, "what is equal is not read");
}

fn brute_force(old: &[Entry], new: &[Entry]) -> Vec<(Vec<u8>, Sort)> {
    let of = |entries: &[Entry], path: &[u8]| entries.iter().find(|it| it.path == path).cloned();
    let paths: BTreeSet<_> = old.iter().chain(new).map(|entry| entry.path.clone()).collect();
    let sort = |path: Vec<u8>| {
        let sort = match (of(old, &path), of(new, &path)) {
            (None, _) => Sort::Added,
            (_, None) => Sort::Deleted,
            (Some(l), Some(r)) if l.meta.kind != r.meta.kind => Sort::Retyped,
            (Some(l), Some(r)) if l.content != r.content || l.target != r.target => Sort::Modified,
            (Some(l), Some(r)) if l.meta != r.meta => Sort::Metadata,
            _ => return None,
        };
        Some((path, sort))
    };
    paths.into_iter().filter_map(sort).collect()
}

#[test]
fn a_tree_that_cannot_be_read_is_said_and_the_rest_is_searched() {
    let site = Site::new(2, 0);
    fs::write(site.source().join("a"), "a").unwrap();
    let first = site.save();
    let before = site.image();
    fs::write(site.source().join("b"), noise(3, 50_000)).unwrap();
    let second = site.save();
    // The packs of the second snapshot go, with whatever stands in them.
    for path in site.image().0.keys().filter(|path| !before.0.contains_key(*path)) {
        if path.to_string_lossy().contains("/packs/") {
            fs::remove_file(path).unwrap();
        }
    }
    let (ledger, mut found) = (Ledger::new(), 0);
    find::run(&site.store(), &file(&site), &query("a"), &ledger.monitor, &mut |it| {
        found += 1;
        assert_eq!(it.snapshots.iter().map(|it| it.id).collect::<Vec<_>>(), [first.id]);
        Ok(())
    })
    .unwrap();
    assert_eq!(found, 1);
    ledger.loss_at(&format!("snapshot {} is not in the catalog", second.id.short()));
}
