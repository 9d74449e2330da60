//! Trees that no backup would write, of any shape: pages with any names and numbers, and nodes with
//! any references, shown by a mount. The test requires that nothing leads outside the tree, that
//! every listing ends, and that nothing panics. A fuzz target generates more such trees
//! (`fuzz/fuzz_targets/mount.rs`).

use std::sync::{Mutex, PoisonError};

use pinstripe::Store;
use pinstripe::init::{InitOptions, Seal, run_with};
use pinstripe::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::fault::Plan;
use pinstripe_io::file_tree::{FileKind as ShownKind, FileTree, ROOT};
use pinstripe_member::Places;
use pinstripe_member::entry::{Content, Entry, PageWriter};
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::{Child, compare_paths, encode_node};
use tempfile::TempDir;

use crate::hostile::{Forge, entry};

/// The number of snapshots in one store before a new store is created.
const SNAPSHOTS: usize = 64;
/// The most entries of one snapshot that are examined.
const LOOKS: usize = 4000;

/// The path, kind, size, extents, links and target of an entry.
pub type MadeUpEntry = (Vec<u8>, u8, u64, Vec<(u32, u32)>, u64, Vec<u8>);
/// The entries of a page, or its raw bytes.
pub type MadeUpPage = (Vec<MadeUpEntry>, Option<Vec<u8>>);
/// The first path of a child, the index of its object in the level below, and the number of entries
/// that it is said to have.
pub type MadeUpChild = (Vec<u8>, u8, u64);

/// A store to which each input adds a snapshot.
struct Stand {
    _dir: TempDir,
    store: &'static Store,
    tree: SnapshotTree,
    snapshots: usize,
}

static STAND: Mutex<Option<Stand>> = Mutex::new(None);

impl Stand {
    fn new() -> Stand {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let options = InitOptions {
            members: vec![dir.path().join("m0")],
            parity: 0,
            strip_bytes: 4096,
            chunking: "4K".parse().unwrap(),
            codec: "raw".parse().unwrap(),
            seal: Seal::none(),
            same_disk: true,
            now_seconds: 0,
        };
        run_with(&options, &Places::default()).unwrap();
        let open = || Store::open(&dir.path().join("m0"), &Plan::default()).unwrap();
        let options = SnapshotTreeOptions {
            budget: 4 << 20,
            threads: 1,
            owner: (0, 0),
            name_of_time: |seconds| seconds.to_string(),
            catalog: None,
        };
        let monitor: &'static Monitor = Box::leak(Box::default());
        let tree = SnapshotTree::new(Box::leak(Box::new(open())), monitor, options).unwrap();
        Stand { store: Box::leak(Box::new(open())), tree, snapshots: 0, _dir: dir }
    }

    /// Commits a tree of these objects; each level refers to the level below.
    fn commit(
        &mut self,
        pages: &[MadeUpPage],
        levels: &[Vec<MadeUpChild>],
        entries: u64,
    ) -> SnapshotId {
        let mut forge = Forge::new(self.store);
        let mut below: Vec<ChunkId> =
            pages.iter().map(|page| forge.tree_chunk(&encoded(page))).collect();
        if below.is_empty() {
            below.push(forge.tree_chunk(b"P\0"));
        }
        // No chunk has this id.
        below.push(ChunkId([7; 32]));
        let mut root = TreeRoot { id: below[0], height: 0, entries };
        for level in levels {
            let mut children: Vec<Child> = (level.iter())
                .map(|(path, which, entries)| Child {
                    first_path: path.clone(),
                    id: below[usize::from(*which) % below.len()],
                    entries: *entries,
                })
                .collect();
            children.sort_by(|left, right| compare_paths(&left.first_path, &right.first_path));
            children.dedup_by(|left, right| left.first_path == right.first_path);
            let id = forge.tree_chunk(&encode_node(&children));
            below.push(id);
            root = TreeRoot { id, height: root.height.saturating_add(1), entries };
        }
        self.snapshots += 1;
        forge.commit_root(root).id
    }
}

fn encoded((entries, raw): &MadeUpPage) -> Vec<u8> {
    if let Some(raw) = raw {
        return [b"P", &raw[..]].concat();
    }
    let kinds = [
        FileKind::File,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::CharDevice,
    ];
    let mut made: Vec<Entry> = (entries.iter())
        .map(|(path, kind, size, extents, links, target)| {
            let mut at = 0_u64;
            let extents = extents.iter().map(|(gap, length)| {
                let start = at + u64::from(*gap) + 1;
                at = start + u64::from(*length) + 1;
                start..at
            });
            let row = ChunkRow { id: ChunkId([9; 32]), raw_bytes: *size as u32 };
            Entry {
                size: *size,
                extents: extents.collect(),
                links: *links,
                target: target.clone(),
                content: Content::Chunks(if *size > 0 { vec![row] } else { Vec::new() }),
                ..entry(path, kinds[usize::from(*kind) % kinds.len()])
            }
        })
        .collect();
    made.sort_by(|left, right| compare_paths(&left.path, &right.path));
    made.dedup_by(|left, right| left.path == right.path);
    let mut page = PageWriter::default();
    made.iter().for_each(|entry| page.push(entry));
    page.take().0
}

/// Makes all requests that the kernel can make for everything below a directory.
fn look(tree: &SnapshotTree, directory: u64, looks: &mut usize) {
    let mut from = 0;
    loop {
        let mut listed = Vec::new();
        let result = tree.list(directory, from, &mut |place, name, node| {
            assert!(place > from, "a listing goes on");
            from = place;
            listed.push((name.to_vec(), node.clone()));
            listed.len() < 5
        });
        for (name, node) in &listed {
            assert!(!matches!(&name[..], b"" | b"." | b".."), "{name:?}");
            assert!(!name.contains(&b'/') && !name.contains(&0), "{name:?}");
            *looks += 1;
            if *looks > LOOKS {
                return;
            }
            let _ = tree.lookup(directory, name);
            let _ = (tree.node(node.inode), tree.xattrs(node.inode), tree.target(node.inode));
            for range in tree.data(node.inode).unwrap_or_default() {
                assert!(range.start <= range.end);
            }
            for start in [0, 4095, node.size.saturating_sub(1), 1 << 63, u64::MAX - 1] {
                let mut out = Vec::new();
                let read = tree.read(node.inode, start..start.saturating_add(4096), &mut out);
                assert!(read.is_err() || out.len() <= 4096);
            }
            if node.kind == ShownKind::Directory {
                look(tree, node.inode, looks);
            }
        }
        if listed.is_empty() || result.is_err() {
            return;
        }
    }
}

/// A complete tree: pages, nodes of each level, and the number of entries that the root is said to
/// have.
pub type MadeUpTree = (Vec<MadeUpPage>, Vec<Vec<MadeUpChild>>, u64);

/// Writes a tree to a store and examines all of it through a mount.
///
/// # Panics
/// Panics if the mount shows something outside of the tree, or does not end.
pub fn show_tree((pages, levels, entries): &MadeUpTree) {
    let mut stand = STAND.lock().unwrap_or_else(PoisonError::into_inner);
    if stand.as_ref().is_none_or(|stand| stand.snapshots >= SNAPSHOTS) {
        *stand = Some(Stand::new());
    }
    let stand = stand.as_mut().expect("there is one");
    let id = stand.commit(pages, &levels[..levels.len().min(9)], *entries);
    stand.tree.refresh().unwrap();
    let ids = stand.tree.lookup(ROOT, b"ids").unwrap();
    let link = stand.tree.lookup(ids.inode, id.to_string().as_bytes()).unwrap();
    let target = stand.tree.target(link.inode).unwrap();
    let mut directory = ROOT;
    for name in target.split(|&byte| byte == b'/').skip(1) {
        directory = stand.tree.lookup(directory, name).unwrap().inode;
    }
    look(&stand.tree, directory, &mut 0);
}
