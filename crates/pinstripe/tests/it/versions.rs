//! `versions` of the tree that `mount` shows: every version of every file once, under one name, with
//! one inode; as the snapshots have them, whatever happens to the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;

use pinstripe::mount::SnapshotTree;
use pinstripe::{CATALOG_FILE, forget, ls, rebuild_catalog};
use pinstripe_base::error::Kind;
use pinstripe_base::sync::wait_readable;
use pinstripe_io::file_tree::{FileKind as ShownKind, FileTree, Node, ROOT};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::Snapshot;

use crate::shown::{list, shown, shown_with};
use pinstripe_sim::{Forge, entry};
use pinstripe_sim::{Ledger, Site, noise};

static NEVER: AtomicBool = AtomicBool::new(false);

/// The tree of a store, with a catalog that is filled when it is asked for.
fn with_versions(site: &Site) -> SnapshotTree {
    let tree = shown_with(site.store(), Some(site.path("cache").join(CATALOG_FILE)));
    fill(&tree);
    tree
}

/// Looks into `versions`, as a program does, and fills the catalog, as the mount does then.
fn fill(tree: &SnapshotTree) -> Vec<(Vec<u8>, Node)> {
    let versions = tree.lookup(ROOT, b"versions").unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| list(tree, versions.inode, 100));
        loop {
            tree.work(&NEVER);
            if looking.is_finished() {
                return looking.join().unwrap();
            }
            wait_readable(&[tree.wake().as_fd()], Some(SOON)).unwrap();
            tree.wake().take();
        }
    })
}

/// A turn of the thread that fills the catalog, when nobody wakes it.
const SOON: std::time::Duration = std::time::Duration::from_millis(20);

/// All that is below `versions`, by path.
fn all_versions(tree: &SnapshotTree) -> BTreeMap<Vec<u8>, Node> {
    let mut all = BTreeMap::new();
    let mut open = vec![(Vec::new(), tree.lookup(ROOT, b"versions").unwrap())];
    while let Some((path, directory)) = open.pop() {
        for (name, node) in list(tree, directory.inode, 7) {
            let path = [&path[..], if path.is_empty() { b"" } else { b"/" }, &name].concat();
            let found = tree.lookup(directory.inode, &name).unwrap();
            assert_eq!((found.inode, &found), (node.inode, &node), "{path:?}");
            match node.kind {
                ShownKind::Directory => open.push((path.clone(), node.clone())),
                _ => assert_eq!(tree.node(node.inode).unwrap().size, node.size),
            }
            assert!(all.insert(path, node).is_none(), "a name stands once");
        }
    }
    all
}

fn entries(site: &Site, snapshot: &Snapshot) -> Vec<Entry> {
    let (mut all, id) = (Vec::new(), snapshot.id.to_string());
    ls::run(&site.store(), &id, b"", &Ledger::new().monitor, &mut |entry| {
        all.push(entry.clone());
        Ok(())
    })
    .unwrap();
    all
}

/// What must stand below `versions`: directories, and versions with their entry's size.
fn wanted(site: &Site, snapshots: &[Snapshot]) -> BTreeMap<Vec<u8>, Option<u64>> {
    let mut wanted = BTreeMap::new();
    let mut versions: BTreeMap<Vec<u8>, Vec<(Entry, &Snapshot)>> = BTreeMap::new();
    let mut snapshots: Vec<&Snapshot> = snapshots.iter().collect();
    snapshots.sort_by_key(|it| (it.created_seconds, it.created_nanos, it.id));
    for snapshot in snapshots {
        for entry in entries(site, snapshot) {
            let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            wanted.extend(slashes.map(|(at, _)| (entry.path[..at].to_vec(), None)));
            if entry.meta.kind == FileKind::Directory {
                wanted.insert(entry.path, None);
                continue;
            }
            let known = versions.entry(entry.path.clone()).or_default();
            let alike = |other: &Entry| {
                let same = |entry: &Entry| {
                    (entry.meta.clone(), entry.size, entry.target.clone(), entry.content.clone())
                };
                same(other) == same(&entry)
            };
            if !known.iter().any(|(other, _)| alike(other)) {
                known.push((entry, snapshot));
            }
        }
    }
    for (path, versions) in versions {
        let mut times = BTreeSet::new();
        for (entry, snapshot) in versions {
            let mut name = format!("@{}", snapshot.created_seconds);
            if !times.insert(name.clone()) {
                name += &format!("_{}", snapshot.id.short());
            }
            wanted.insert([&path[..], name.as_bytes()].concat(), Some(entry.size));
        }
    }
    wanted
}

#[track_caller]
fn assert_shows(tree: &SnapshotTree, site: &Site, snapshots: &[Snapshot]) {
    let sizes = |node: &Node| (node.kind != ShownKind::Directory).then_some(node.size);
    let shown: BTreeMap<_, _> =
        all_versions(tree).iter().map(|(path, node)| (path.clone(), sizes(node))).collect();
    let told = |all: &BTreeMap<Vec<u8>, Option<u64>>| -> Vec<_> {
        all.iter().map(|(path, size)| (String::from_utf8_lossy(path).into_owned(), *size)).collect()
    };
    assert_eq!(told(&shown), told(&wanted(site, snapshots)));
}

/// Backups of a tree that changes in every way: content, times, modes, kinds, names.
fn changing(site: &Site) -> Vec<Snapshot> {
    let at = site.source();
    let mut snapshots = Vec::new();
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::write(at.join("d/kept"), noise(1, 9000)).unwrap();
    fs::write(at.join("d/report@home"), noise(2, 100)).unwrap();
    fs::write(at.join("d/e/turns"), b"a file").unwrap();
    std::os::unix::fs::symlink("d/kept", at.join("link")).unwrap();
    snapshots.push(site.save());
    fs::write(at.join("d/report@home"), noise(3, 200)).unwrap();
    fs::set_permissions(at.join("d/kept"), Permissions::from_mode(0o600)).unwrap();
    fs::write(at.join("d/new"), b"new").unwrap();
    snapshots.push(site.save());
    fs::remove_file(at.join("d/e/turns")).unwrap();
    fs::create_dir(at.join("d/e/turns")).unwrap();
    fs::write(at.join("d/e/turns/in it"), b"below").unwrap();
    fs::remove_file(at.join("d/new")).unwrap();
    let kept = fs::metadata(at.join("d/kept")).unwrap().modified().unwrap();
    fs::remove_file(at.join("d/kept")).unwrap();
    fs::remove_file(at.join("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", at.join("link")).unwrap();
    snapshots.push(site.save());
    // It comes back as it was: no version of its own.
    fs::write(at.join("d/kept"), noise(1, 9000)).unwrap();
    fs::set_permissions(at.join("d/kept"), Permissions::from_mode(0o600)).unwrap();
    fs::File::options().write(true).open(at.join("d/kept")).unwrap().set_modified(kept).unwrap();
    fs::write(at.join("d/report@home"), noise(4, 300)).unwrap();
    snapshots.push(site.save());
    snapshots
}

fn forget(site: &Site, snapshot: &Snapshot) {
    let name = snapshot.id.to_string();
    let choice = forget::ForgetChoice::Named(std::slice::from_ref(&name));
    let options = forget::ForgetOptions::new(choice);
    forget::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
}

#[test]
fn every_version_of_every_file_is_shown_once() {
    let site = Site::new(3, 1);
    let snapshots = changing(&site);
    let tree = with_versions(&site);
    assert_shows(&tree, &site, &snapshots);
    // A version is the file itself: its content, and the inode that it has below `hosts`.
    let all = all_versions(&tree);
    let of = |name: &str| {
        let is_it = |path: &&Vec<u8>| path.windows(name.len()).any(|it| it == name.as_bytes());
        all.keys().filter(is_it).cloned().collect::<Vec<_>>()
    };
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for path in of("report@home@") {
        let (mut bytes, node) = (Vec::new(), &all[&path]);
        tree.read(node.inode, 0..1 << 20, &mut bytes).unwrap();
        contents.push(bytes);
    }
    contents.sort_by_key(Vec::len);
    assert_eq!(contents, [noise(2, 100), noise(3, 200), noise(4, 300)]);
    assert_eq!(of("d/kept@").len(), 2);
    let targets: BTreeSet<_> =
        of("link@").iter().map(|path| tree.target(all[path].inode).unwrap()).collect();
    assert_eq!(targets, BTreeSet::from([b"d/kept".to_vec(), b"elsewhere".to_vec()]));
    assert!(all.values().all(|node| !node.is_lasting), "all may leave");
}

#[test]
fn versions_come_and_leave_with_their_snapshots() {
    let site = Site::new(3, 1);
    let mut snapshots = changing(&site);
    let tree = with_versions(&site);
    let (before, directories) = (all_versions(&tree), |all: &BTreeMap<Vec<u8>, Node>| {
        let directories = all.iter().filter(|(_, node)| node.kind == ShownKind::Directory);
        directories.map(|(path, node)| (path.clone(), node.inode)).collect::<BTreeMap<_, _>>()
    });
    fs::write(site.source().join("d/later"), b"later").unwrap();
    snapshots.push(site.save());
    forget(&site, &snapshots.remove(0));
    let root = tree.lookup(ROOT, b"versions").unwrap();
    assert!(tree.refresh().unwrap());
    tree.work(&NEVER);
    assert_shows(&tree, &site, &snapshots);
    let after = all_versions(&tree);
    assert_eq!(directories(&before), directories(&after), "directories keep their numbers");
    // The kernel lists anew what has another time.
    let again = tree.lookup(ROOT, b"versions").unwrap();
    assert!(again.inode == root.inode && again.mtime != root.mtime, "{:?}", again.mtime);
    // What a program still has of the forgotten one is what it was.
    let gone: Vec<_> = before.iter().filter(|(path, _)| !after.contains_key(*path)).collect();
    assert!(!gone.is_empty());
    for (_, node) in gone.iter().filter(|(_, node)| node.kind == ShownKind::File) {
        let mut bytes = Vec::new();
        tree.read(node.inode, 0..1 << 20, &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, node.size);
    }
    // A tree without a catalog has no such directory.
    assert_eq!(shown(site.store()).lookup(ROOT, b"versions").unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_catalog_that_is_damaged_or_lost_is_made_anew() {
    let site = Site::new(3, 1);
    let snapshots = changing(&site);
    let file = site.path("cache").join(CATALOG_FILE);
    let tree = with_versions(&site);
    // Lost and made by another process: series may have other numbers.
    fs::remove_file(&file).unwrap();
    rebuild_catalog(&site.store(), &file, &Ledger::new().monitor).unwrap();
    tree.work(&NEVER);
    assert_shows(&tree, &site, &snapshots);
    fs::remove_file(&file).unwrap();
    tree.work(&NEVER);
    assert_shows(&tree, &site, &snapshots);
    // Damaged behind its first pages: the look that meets it fails, and the next one succeeds.
    let tree = with_versions(&site);
    let mut bytes = fs::read(&file).unwrap();
    bytes[3 * 8192..].fill(0xa5);
    // As if it had been written by SQLite (its file format, 1.3.7), so that no page is kept.
    for counter in [24, 92] {
        bytes[counter + 3] ^= 1;
    }
    fs::write(&file, &bytes).unwrap();
    let versions = tree.lookup(ROOT, b"versions").unwrap();
    let met = tree.list(versions.inode, 0, &mut |_, _, _| true);
    assert_eq!(met.unwrap_err().kind(), Kind::Corrupt);
    fill(&tree);
    assert_shows(&tree, &site, &snapshots);
    // A filling that is stopped is no catalog, and says so.
    fs::remove_file(&file).unwrap();
    let tree = shown_with(site.store(), Some(file.clone()));
    let versions = tree.lookup(ROOT, b"versions").unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| tree.list(versions.inode, 0, &mut |_, _, _| true));
        wait_readable(&[tree.wake().as_fd()], None).unwrap();
        tree.work(&AtomicBool::new(true));
        assert_eq!(looking.join().unwrap().unwrap_err().kind(), Kind::Interrupted);
    });
    tree.work(&NEVER);
    assert_shows(&tree, &site, &snapshots);
}

#[test]
fn names_that_are_odd_are_found_as_they_are_listed() {
    let site = Site::new(3, 1);
    let store = site.store();
    let long = |last: &str| [&[b'n'; 240][..], last.as_bytes()].concat();
    let in_d = |name: &[u8]| [b"d/", name].concat();
    for round in 0..3_u8 {
        let mut forge = Forge::new(&store);
        let mut entries = vec![entry(b"d", FileKind::Directory), entry(b"..", FileKind::Directory)];
        for name in [&long("1")[..], &long("2"), b"@", b"a@b@c", b"\xff\n", b"plain"] {
            entries.push(forge.file(&in_d(name), &[round; 9]));
        }
        // A directory with the name that a version would have.
        entries.push(entry(b"d/plain@1700000000", FileKind::Directory));
        entries.push(forge.file(b"../out", b"bad"));
        entries.push(forge.file(b"d/./out", b"bad"));
        forge.commit(entries);
    }
    let tree = with_versions(&site);
    let all = all_versions(&tree);
    assert!(all.values().filter(|node| node.kind == ShownKind::File).count() == 3 * 6, "{all:?}");
    assert_eq!(all[&b"d/plain@1700000000"[..]].kind, ShownKind::Directory);
    let is_plain = |path: &&Vec<u8>| path.starts_with(b"d/plain@1700000000_");
    assert_eq!(all.keys().filter(is_plain).count(), 3);
    assert!(all.keys().all(|path| path.len() <= 255 + 2));
    let mut contents = BTreeMap::new();
    for (path, node) in all.iter().filter(|(_, node)| node.kind == ShownKind::File) {
        let mut bytes = Vec::new();
        tree.read(node.inode, 0..9, &mut bytes).unwrap();
        let base = path[..path.iter().rposition(|&byte| byte == b'@').unwrap()].to_vec();
        assert!(contents.entry(base).or_insert_with(BTreeSet::new).insert(bytes), "{path:?}");
    }
    let directory = tree.lookup(tree.lookup(ROOT, b"versions").unwrap().inode, b"d").unwrap();
    for name in [&b"plain"[..], b"plain@", b"plain@1", b"@", b"@@", b"..", b"none@1700000000"] {
        let found = tree.lookup(directory.inode, name);
        assert_eq!(found.unwrap_err().kind(), Kind::NotFound, "{name:?}");
    }
}

#[test]
fn versions_of_a_large_directory_are_listed_from_any_place() {
    let names = pinstripe_testing::count(60_000, 300_000);
    let site = Site::new(3, 1);
    let store = site.store();
    let name = |number: usize| format!("name {number:06}");
    let forge = Forge::new(&store);
    let path = |number: usize| format!("many/{}", name(number)).into_bytes();
    let mut entries = vec![entry(b"many", FileKind::Directory)];
    entries.extend((0..names).map(|number| entry(&path(number), FileKind::File)));
    forge.commit(entries);
    let tree = with_versions(&site);
    let many = tree.lookup(tree.lookup(ROOT, b"versions").unwrap().inode, b"many").unwrap();
    let all = list(&tree, many.inode, 700);
    assert_eq!(all.len(), names);
    let shown = |number: usize| format!("{}@1700000000", name(number)).into_bytes();
    assert!(all.iter().enumerate().all(|(number, (found, _))| *found == shown(number)));
    // From any place, also one that no listing stopped at.
    for place in [0, 1, 2, 1001, names / 2, names / 2 + 7, names - 1] {
        let mut found = None;
        tree.list(many.inode, place as u64, &mut |_, name, _| {
            found = Some(name.to_vec());
            false
        })
        .unwrap();
        assert_eq!(found.as_ref(), Some(&all[place].0), "{place}");
    }
}
