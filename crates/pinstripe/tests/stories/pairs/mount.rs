//! What `mount` does: a tree of all snapshots that stays open, and files that are read in it.

use pinstripe::Store;
use pinstripe::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::file_tree::{FileKind, FileTree, Node, ROOT};

/// Entries that are looked at.
const ENTRIES: usize = 40;

/// Opens the tree, and reads files at its places, twice: between the two it is brought up to date.
pub fn read(store: Store) -> Result<()> {
    let options = SnapshotTreeOptions {
        budget: 4 << 20,
        threads: 1,
        owner: (0, 0),
        name_of_time: |seconds| seconds.to_string(),
        catalog: None,
    };
    // As in the command, the tree stays until the process ends.
    let monitor: &'static Monitor = Box::leak(Box::default());
    let tree = SnapshotTree::new(Box::leak(Box::new(store)), monitor, options)?;
    let mut left = ENTRIES;
    walk(&tree, ROOT, &mut left)?;
    tree.refresh()?;
    left = ENTRIES;
    walk(&tree, ROOT, &mut left)
}

fn walk(tree: &SnapshotTree, directory: u64, left: &mut usize) -> Result<()> {
    let mut found: Vec<Node> = Vec::new();
    tree.list(directory, 0, &mut |_, _, node| {
        found.push(node.clone());
        true
    })?;
    for node in found {
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        match node.kind {
            FileKind::Directory => walk(tree, node.inode, left)?,
            FileKind::File => tree.read(node.inode, 0..node.size, &mut Vec::new())?,
            _ => {}
        }
    }
    Ok(())
}
