//! The tree of snapshots that `mount` shows: of trees that no backup would write nothing leads
//! outside and nothing panics; of very large ones every name is there, and memory stays bounded.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pinstripe::Store;
use pinstripe::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe_base::error::Kind;
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::file_tree::{FileKind as ShownKind, FileTree, Node, ROOT};
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;

use pinstripe_sim::Site;
use pinstripe_sim::{Forge, entry, symlink};

const BUDGET: u64 = 8 << 20;

/// The tree of a store. Like that of `mount`, it stays until the process ends.
pub fn shown(store: Store) -> SnapshotTree {
    shown_with(store, None)
}

/// The same with a catalog.
pub fn shown_with(store: Store, catalog: Option<PathBuf>) -> SnapshotTree {
    shown_within(store, BUDGET, catalog)
}

fn shown_within(store: Store, budget: u64, catalog: Option<PathBuf>) -> SnapshotTree {
    let options = SnapshotTreeOptions {
        budget,
        threads: 2,
        owner: (0, 0),
        name_of_time: |seconds| seconds.to_string(),
        catalog,
    };
    let monitor: &'static Monitor = Box::leak(Box::default());
    SnapshotTree::new(Box::leak(Box::new(store)), monitor, options).unwrap()
}

/// All entries of a directory, asked for so many at a time.
pub fn list(tree: &SnapshotTree, directory: u64, at_once: usize) -> Vec<(Vec<u8>, Node)> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let mut taken = 0;
        let listed = tree.list(directory, from, &mut |place, name, node| {
            assert!(place > from, "the listing goes on");
            (from, taken) = (place, taken + 1);
            all.push((name.to_vec(), node.clone()));
            taken < at_once
        });
        if listed.is_err() || taken == 0 {
            return all;
        }
    }
}

fn latest(tree: &SnapshotTree) -> u64 {
    let hosts = tree.lookup(ROOT, b"hosts").unwrap();
    let [(_, host)] = list(tree, hosts.inode, 10).try_into().unwrap();
    let snapshots = list(tree, host.inode, 10);
    let is_snapshot = |(_, node): &&(Vec<u8>, Node)| node.kind == ShownKind::Directory;
    snapshots.iter().find(is_snapshot).unwrap().1.inode
}

/// Does with everything below a directory all that the kernel may ask for.
fn look_at_all(tree: &SnapshotTree, directory: u64, depth: usize, seen: &mut BTreeSet<Vec<u8>>) {
    assert!(depth < 40, "a tree ends");
    for (name, node) in list(tree, directory, 3) {
        let is_name = !name.is_empty() && name != b"." && name != b"..";
        assert!(is_name && !name.contains(&b'/') && !name.contains(&0), "{name:?}");
        // A file that has something below it is there twice, of which one is found.
        let _ = tree.lookup(directory, &name);
        let _ = (tree.node(node.inode), tree.xattrs(node.inode), tree.target(node.inode));
        let _ = tree.hint(node.inode, b"stride 1M 17M");
        for range in tree.data(node.inode).unwrap_or_default() {
            assert!(range.start <= range.end, "{name:?}: {range:?}");
        }
        for start in [0, 1, 4095, 1 << 31, 1 << 62, 1 << 63, u64::MAX - 1] {
            let mut out = Vec::new();
            let read = tree.read(node.inode, start..start.saturating_add(4096), &mut out);
            assert!(read.is_err() || out.len() <= 4096, "{name:?} at {start}");
        }
        if node.kind == ShownKind::Directory {
            look_at_all(tree, node.inode, depth + 1, seen);
        }
        seen.insert(name);
    }
}

#[test]
fn a_mount_shows_nothing_that_leads_outside_of_it() {
    let site = Site::new(3, 1);
    let store = site.store();
    // A snapshot for each: one page that cannot be read would hide all others.
    let commit = |make: &dyn Fn(&mut Forge<'_>) -> Vec<Entry>| {
        let mut forge = Forge::new(&store);
        let mut entries = vec![forge.file(b"good/file", b"good"), symlink(b"good/link", b"../..")];
        entries.extend(make(&mut forge));
        forge.commit(entries);
    };
    commit(&|_| Vec::new());
    for path in [
        &b"../out"[..],
        b"..",
        b".",
        b"./dot",
        b"good/../../out",
        b"good/..",
        b"good/.",
        b"good//empty",
        b"/absolute",
        b"//",
        b"trailing/",
        b"nul\0byte",
        b"good/file/below a file",
        b"good/link/below a link",
    ] {
        commit(&|forge| vec![forge.file(path, b"bad")]);
        commit(&|_| vec![entry(&[path, b"/directory"].concat(), FileKind::Directory)]);
    }
    let huge = |path: &[u8], size: u64, extents: Vec<std::ops::Range<u64>>| Entry {
        size,
        extents,
        content: Content::Chunks(vec![ChunkRow { id: ChunkId([7; 32]), raw_bytes: u32::MAX }]),
        ..entry(path, FileKind::File)
    };
    commit(&|_| vec![huge(b"sizes/2 to 63", 1 << 63, Vec::new())]);
    commit(&|_| vec![huge(b"sizes/last", u64::MAX, Vec::new())]);
    commit(&|_| {
        vec![huge(b"sizes/extent", 1 << 40, std::iter::once((1 << 63)..u64::MAX).collect())]
    });
    let many = (0..999).map(|at| 9 * at..9 * at + 1).collect::<Vec<_>>();
    commit(&|_| vec![huge(b"sizes/many extents", 1 << 40, many.clone())]);
    commit(&|_| vec![symlink(b"sizes/long link", &[b'x'; 70_000])]);
    commit(&|forge| vec![Entry { links: u64::MAX, ..forge.file(b"sizes/links", b"many") }]);
    let tree = shown(site.store());
    let mut seen = BTreeSet::new();
    look_at_all(&tree, ROOT, 0, &mut seen);
    assert!(seen.contains(&b"good"[..]) && seen.contains(&b"file"[..]), "{seen:?}");
    for name in [&b".."[..], b".", b"", b"a/b", b"nul\0byte", b"good/file"] {
        assert!(tree.lookup(latest(&tree), name).is_err(), "{name:?}");
    }
    // Numbers that the tree never gave out.
    for bit in 0..64 {
        for inode in [1u64 << bit, (1 << bit) - 1, u64::MAX >> bit, u64::MAX << bit] {
            let _ = (tree.node(inode), tree.data(inode), tree.target(inode), tree.xattrs(inode));
            let _ = tree.read(inode, 0..10, &mut Vec::new());
            let _ = tree.list(inode, u64::MAX, &mut |_, _, _| false);
            let _ = tree.lookup(inode, b"file");
        }
    }
}

/// A page that holds what its node gives to another one leads back to where a listing was.
#[test]
fn pages_that_contradict_their_node_end_a_listing() {
    let site = Site::new(3, 1);
    let store = site.store();
    Forge::new(&store).commit_node(&[
        (b"a", vec![entry(b"y", FileKind::File)]),
        (b"b", vec![entry(b"aa", FileKind::Directory)]),
    ]);
    let page = || vec![entry(b"twice", FileKind::Directory), entry(b"twice/x", FileKind::File)];
    Forge::new(&store).commit_node(&[(b"a", page()), (b"b", page()), (b"c", page())]);
    let tree = shown(site.store());
    let mut names = 0;
    for (_, host) in list(&tree, tree.lookup(ROOT, b"hosts").unwrap().inode, 10) {
        for (_, node) in list(&tree, host.inode, 10) {
            if node.kind == ShownKind::Directory {
                names += list(&tree, node.inode, 1).len();
                look_at_all(&tree, node.inode, 0, &mut BTreeSet::new());
            }
        }
    }
    assert!((2..10).contains(&names), "{names}");
}

#[test]
fn a_directory_of_300_000_names_is_listed_from_any_place() {
    const NAMES: usize = 300_000;
    let site = Site::new(3, 1);
    let store = site.store();
    let forge = Forge::new(&store);
    let name = |number: usize| format!("name {number:06}").into_bytes();
    let path = |number: usize| [b"many/", &name(number)[..]].concat();
    forge.commit((0..NAMES).map(|number| entry(&path(number), FileKind::File)).collect());
    let tree = shown(site.store());
    let many = tree.lookup(latest(&tree), b"many").unwrap();
    let all = list(&tree, many.inode, 700);
    assert_eq!(all.len(), NAMES);
    assert!(all.iter().enumerate().all(|(number, (found, _))| *found == name(number)));
    let inodes: BTreeSet<u64> = all.iter().map(|(_, node)| node.inode).collect();
    assert_eq!(inodes.len(), NAMES);
    for number in (0..NAMES).step_by(9973) {
        assert_eq!(tree.lookup(many.inode, &name(number)).unwrap().inode, all[number].1.inode);
    }
    let none = tree.lookup(many.inode, b"name 5").unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound);
}

#[test]
fn ten_thousand_files_are_read_within_the_memory() {
    let site = Site::new(3, 1);
    let store = site.store();
    let mut forge = Forge::new(&store);
    let content: Vec<u8> = (0..100_000u32).map(|at| (at * 7) as u8).collect();
    let one = forge.file(b"one", &content);
    let path = |number: usize| format!("files/{number:05}").into_bytes();
    let same = |number: usize| Entry { path: path(number), ..one.clone() };
    let mut entries: Vec<Entry> = (0..10_000).map(same).collect();
    let apart = (0..200).map(|number: u32| {
        let bytes: Vec<u8> =
            (0..100_000u32).map(|at| (at ^ number.wrapping_mul(77)) as u8).collect();
        forge.file(format!("apart/{number:03}").as_bytes(), &bytes)
    });
    entries.extend(apart.collect::<Vec<_>>());
    forge.commit(entries);
    let tree = shown(site.store());
    let top = latest(&tree);
    for (name, wanted) in [(&b"files"[..], 10_000), (b"apart", 200)] {
        let directory = tree.lookup(top, name).unwrap();
        let files = list(&tree, directory.inode, 500);
        assert_eq!(files.len(), wanted);
        for (at, (_, file)) in files.iter().enumerate() {
            let mut out = Vec::new();
            tree.read(file.inode, 50_000..54_096, &mut out).unwrap();
            let first = match wanted {
                200 => (50_000 ^ (at as u32).wrapping_mul(77)) as u8,
                _ => content[50_000],
            };
            assert!(out.len() == 4096 && out[0] == first, "{at}");
            let memory = tree.memory();
            assert!(memory.peak <= BUDGET && memory.charged <= BUDGET, "{memory:?}");
        }
    }
}

/// Two programs that copy two directories, or `diff -r`: what each reads next is there or on its way.
#[test]
fn two_walks_at_once_each_have_their_next_files_fetched() {
    const FILES: usize = 240;
    let site = Site::new(3, 1);
    let store = site.store();
    let mut forge = Forge::new(&store);
    // Each file is a record of its own: none is there because a neighbour was read.
    let bytes = |walk: u8, number: usize| vec![walk ^ number as u8; 1000 + number];
    let files =
        [b'a', b'b'].into_iter().flat_map(|walk| (0..FILES).map(move |number| (walk, number)));
    let entries: Vec<Entry> = files
        .map(|(walk, number)| {
            let path = format!("{}/{number:04}", char::from(walk)).into_bytes();
            forge.file(&path, &bytes(walk, number))
        })
        .collect();
    forge.commit(entries);
    let tree = shown_within(site.store(), 1 << 30, None);
    let walks = [b"a", b"b"].map(|name| {
        let directory = tree.lookup(latest(&tree), name).unwrap();
        list(&tree, directory.inode, 500)
    });
    let mut demanded = None;
    for number in 0..FILES {
        for (walk, files) in [b'a', b'b'].into_iter().zip(&walks) {
            let mut out = Vec::new();
            tree.read(files[number].1.inode, 0..1 << 20, &mut out).unwrap();
            assert_eq!(out, bytes(walk, number));
        }
        // From the fourth on nothing is read that was not asked for before.
        if number >= 3 {
            let now = tree.memory().demanded;
            assert_eq!(*demanded.get_or_insert(now), now, "round {number}");
        }
    }
}
