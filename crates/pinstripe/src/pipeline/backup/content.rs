//! The content of a large file, as its parts arrive: rows of chunks, or lists of rows that are
//! stored in chunks.
//!
//! Memory holds one list, and one row for each list, for a file of any length.

use super::record::RecordBuilder;
use pinstripe_base::error::Result;
use pinstripe_base::wire::Writer;
use pinstripe_member::entry::{Content, ListRow, write_chunks};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::tree::{LIST_MAX_ROWS, ends_list};

/// The rows of one file, in order.
#[derive(Default)]
pub(crate) struct LongContent {
    /// All rows as long as they fit in an entry; after that, those of the list being filled.
    rows: Vec<ChunkRow>,
    lists: Vec<ListRow>,
    is_long: bool,
}

impl LongContent {
    /// Adds the next rows.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn add(&mut self, rows: Vec<ChunkRow>, record: &mut RecordBuilder<'_>) -> Result<()> {
        for row in rows {
            self.add_row(row, record)?;
            if !self.is_long && self.rows.len() > LIST_MAX_ROWS {
                // Too many for an entry: the rows so far are cut into lists from the beginning.
                self.is_long = true;
                for row in std::mem::take(&mut self.rows) {
                    self.add_row(row, record)?;
                }
            }
        }
        Ok(())
    }

    fn add_row(&mut self, row: ChunkRow, record: &mut RecordBuilder<'_>) -> Result<()> {
        self.rows.push(row);
        let is_full = self.rows.len() >= LIST_MAX_ROWS
            || (self.rows.len() > LIST_MAX_ROWS / 8 && ends_list(&row.id));
        if self.is_long && is_full {
            self.close_list(record)?;
        }
        Ok(())
    }

    fn close_list(&mut self, record: &mut RecordBuilder<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        write_chunks(&mut Writer::new(&mut bytes), &self.rows);
        let content_bytes = self.rows.iter().map(|row| u64::from(row.raw_bytes)).sum();
        self.lists.push(ListRow { id: record.add(&bytes)?.id, content_bytes });
        self.rows.clear();
        Ok(())
    }

    /// Returns the complete content; if the list does not fit in its page, it is stored in chunks
    /// itself.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn finish(mut self, record: &mut RecordBuilder<'_>) -> Result<Content> {
        if !self.is_long {
            return Ok(Content::Chunks(self.rows));
        }
        if !self.rows.is_empty() {
            self.close_list(record)?;
        }
        Ok(Content::Lists(self.lists))
    }
}
