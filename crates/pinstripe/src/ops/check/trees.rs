//! Checks that every snapshot finds all of its chunks.

use std::collections::HashSet;

use super::CheckOutcome;
use super::survey::Survey;
use crate::store::Store;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, missing_chunk};
use crate::store::tree::lost_page;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::wire::Reader;
use pinstripe_io::beneath::shown;
use pinstripe_member::entry::{Content, Entry, decode_page, read_chunks};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::tree::{Child, decode_node};

/// Follows snapshots down to their chunks; subtrees that were found intact are not visited again.
pub(super) struct Trees<'a> {
    chunks: ChunkReader<'a>,
    index: &'a Index<'a>,
    lost: HashSet<ChunkId>,
    survey: Survey,
    sound: HashSet<ChunkId>,
}

/// The number of paths listed for each damaged snapshot; further paths are only counted.
const PATHS_NAMED: usize = 20;

/// The damage in one snapshot.
#[derive(Default)]
struct Hurt {
    /// The number of entries that cannot be restored completely.
    entries: u64,
    /// The number of problems: with single entries, and with pages that hold any number of entries.
    problems: u64,
    named: Vec<(Vec<u8>, Error)>,
}

impl Hurt {
    fn note(&mut self, path: &[u8], entries: u64, error: Error) {
        self.entries = self.entries.saturating_add(entries);
        self.problems += 1;
        if self.named.len() < PATHS_NAMED {
            self.named.push((path.to_vec(), error));
        }
    }
}

impl<'a> Trees<'a> {
    pub(super) fn new(
        chunks: ChunkReader<'a>,
        index: &'a Index<'a>,
        lost: HashSet<ChunkId>,
        survey: Survey,
    ) -> Self {
        Trees { chunks, index, lost, survey, sound: HashSet::new() }
    }

    /// Checks one snapshot and reports its losses.
    ///
    /// # Errors
    /// [`Kind::Busy`](pinstripe_base::error::Kind) when it lacks something and all members that this
    /// process knows have left the store: what it lacks is on others.
    pub(super) fn check(
        &mut self,
        store: &Store,
        snapshot: &Snapshot,
        monitor: &Monitor,
        outcome: &mut CheckOutcome,
    ) -> Result<()> {
        let mut hurt = Hurt::default();
        let TreeRoot { id, height, entries } = snapshot.root;
        self.node(&Child { first_path: Vec::new(), id, entries }, height, &mut hurt);
        if hurt.problems == 0 {
            return Ok(());
        }
        store.confirm_labels()?;
        outcome.hurt_snapshots += 1;
        outcome.hurt_paths += hurt.entries;
        let short = snapshot.id.short();
        let unnamed = hurt.problems - hurt.named.len() as u64;
        for (path, error) in hurt.named {
            let path = shown(&path).display().to_string();
            monitor.loss(format!("snapshot {short}: /{path}"), error);
        }
        if unnamed > 0 {
            let more = pinstripe_base::units::counted(
                unnamed,
                "more path or page is",
                "more paths or pages are",
            );
            let what = format!("{more} damaged");
            let error = Error::new(Kind::TooManyLosses, what);
            monitor.loss(format!("snapshot {short}"), error);
        }
        Ok(())
    }

    fn node(&mut self, child: &Child, height: u8, hurt: &mut Hurt) {
        if self.sound.contains(&child.id) {
            return;
        }
        let before = hurt.problems;
        if let Err(error) = self.enter(&child.id, height, hurt) {
            hurt.note(&child.first_path, child.entries, lost_page(child, error));
        }
        if hurt.problems == before {
            self.sound.insert(child.id);
        }
    }

    fn enter(&mut self, id: &ChunkId, height: u8, hurt: &mut Hurt) -> Result<()> {
        self.present(id)?;
        let bytes = self.chunks.read(id)?;
        if height > 0 {
            for child in decode_node(&bytes)? {
                self.node(&child, height - 1, hurt);
            }
            return Ok(());
        }
        for entry in decode_page(&bytes)? {
            if let Err(error) = self.content(&entry) {
                hurt.note(&entry.path, 1, error);
            }
        }
        Ok(())
    }

    fn content(&mut self, entry: &Entry) -> Result<()> {
        match &entry.content {
            Content::Chunks(rows) => rows.iter().try_for_each(|row| self.present(&row.id)),
            Content::Lists(lists) => lists.iter().try_for_each(|list| {
                self.present(&list.id)?;
                let bytes = self.chunks.read(&list.id)?;
                let rows = read_chunks(&mut Reader::new(&bytes, "content list"))?;
                rows.iter().try_for_each(|row| self.present(&row.id))
            }),
        }
    }

    fn present(&self, id: &ChunkId) -> Result<()> {
        if self.lost.contains(id) {
            return Err(Error::new(Kind::TooManyLosses, format!("chunk {} is lost", id.short())));
        }
        let is_there = match self.survey.is_whole {
            true => !self.survey.missing.contains(id),
            // Below a page that could not be read then, chunks were not asked for.
            false => self.index.find(id)?.is_some(),
        };
        if is_there { Ok(()) } else { Err(missing_chunk(id)) }
    }
}
