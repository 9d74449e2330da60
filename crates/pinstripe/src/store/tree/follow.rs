//! Follows a tree from its root down to the chunks of its files, page by page.

use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::Reader;
use pinstripe_member::entry::{Content, decode_page, read_chunks};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::decode_node;

/// Visits the chunks of a tree.
pub trait Follow {
    /// Visits a node, a page of entries or a list of chunks, with the first path in it; returns its
    /// bytes, or `None` if it must not be followed.
    ///
    /// # Errors
    /// Fails with any error that must end the traversal.
    fn page(&mut self, id: &ChunkId, path: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits chunks of the content of the entry at a path: all of them, or those of one list.
    ///
    /// # Errors
    /// Fails with any error that must end the traversal.
    fn content(&mut self, path: &[u8], rows: Vec<ChunkRow>) -> Result<()>;

    /// The content of one more entry was visited.
    fn entry_done(&mut self) {}
}

/// Passes everything that a tree needs to `to`, each page before what is below it.
///
/// # Errors
/// Fails with the errors of `to`, or with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt)
/// for a malformed page.
pub fn follow(root: &TreeRoot, to: &mut impl Follow) -> Result<()> {
    node(&root.id, root.height, b"", to)
}

fn node(id: &ChunkId, height: u8, path: &[u8], to: &mut impl Follow) -> Result<()> {
    let Some(bytes) = to.page(id, path)? else { return Ok(()) };
    if height > 0 {
        let children = decode_node(&bytes)?;
        return children
            .iter()
            .try_for_each(|child| node(&child.id, height - 1, &child.first_path, to));
    }
    for entry in decode_page(&bytes)? {
        match entry.content {
            Content::Chunks(rows) => to.content(&entry.path, rows)?,
            Content::Lists(lists) => {
                for list in lists {
                    let Some(bytes) = to.page(&list.id, &entry.path)? else { continue };
                    let rows = read_chunks(&mut Reader::new(&bytes, "content list"))?;
                    to.content(&entry.path, rows)?;
                }
            }
        }
        to.entry_done();
    }
    Ok(())
}
