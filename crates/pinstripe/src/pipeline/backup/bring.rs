//! Bringing a snapshot over from another half of the same store: what it needs and this half lacks
//! is stored here, then the snapshot is put under its own name.
//!
//! One thread follows the tree and hands content on; workers ask for each chunk whether it is new,
//! and read, compress and seal those that are. Every chunk is held against its id, which the keys
//! that both halves share make; so nothing is brought over that is not what it is called.
//!
//! Invariants: the whole tree is followed, also below pages that this half has, since what has a
//! page need not have all below it; the snapshot is put when all that was brought is durable and in
//! an index run. What cannot be read there is a loss in the ledger, and the rest is brought over.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::lay::lay;
use super::record::RecordBuilder;
use super::shared::Ingest;
use super::{beside, joined, packer, stage};
use crate::beneath::shown_from_root;
use crate::error::Result;
use crate::format::entry::{Content, decode_page, read_chunks};
use crate::format::record::{ChunkRow, RecordKind};
use crate::format::snapshot::{Snapshot, TreeRoot};
use crate::format::tree::decode_node;
use crate::format::wire::Reader;
use crate::id::ChunkId;
use crate::member::ExtentName;
use crate::monitor::{Counter, Monitor};
use crate::pipeline::limits::Limits;
use crate::pipeline::pack::{Laying, ToPacker};
use crate::store::Store;
use crate::store::deletion::answer::Answers;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};

/// Where a snapshot is brought from and to.
pub struct Bringing<'a> {
    /// The half that has it, and its chunks.
    pub from: (&'a Store, &'a Index<'a>),
    /// The half that is to have it, and its chunks.
    pub to: (&'a Store, &'a Index<'a>),
    /// Threads and queues.
    pub limits: Limits,
}

/// Content of one file, or of a part of one: its path, and its chunks.
type Wanted = (Vec<u8>, Vec<ChunkRow>);

/// Brings a snapshot over. `answers` speaks for the session that was begun for it.
///
/// # Errors
/// Whatever ends a backup: a full member, more members lost than parity replaces.
pub fn bring(
    plan: &Bringing<'_>,
    snapshot: &Snapshot,
    answers: &mut Answers,
    monitor: &Monitor,
) -> Result<()> {
    let (store, index) = plan.to;
    std::thread::scope(|scope| {
        let (_end, end) = bounded(0);
        scope.spawn(move || beside::watch(store, index, answers, &end));
        lay(store, index, plan.limits, monitor, |shared, publisher| {
            std::thread::scope(|stages| {
                let queued = plan.limits.records_queued;
                let packer = |laying| packer(stages, shared, publisher, queued, laying);
                let (data, data_packer) = packer(Laying::Striped);
                let (tree, tree_packer) = packer(Laying::of_pages(store.config.parity));
                let (content, queue) = bounded::<Wanted>(plan.limits.jobs_queued);
                for _ in 0..plan.limits.workers {
                    let (data, queue) = (data.clone(), queue.clone());
                    stage(stages, shared.abort, move || {
                        if let Err(error) = work(plan, shared, &queue, data) {
                            shared.abort.raise(error);
                        }
                        // A worker that stops early must not stop what feeds it.
                        queue.iter().for_each(drop);
                    });
                }
                drop(data);
                let walked = follow(plan, shared, &snapshot.root, tree, content);
                if let Err(error) = walked {
                    shared.abort.raise(error);
                }
                joined(data_packer);
                joined(tree_packer);
                shared.abort.check()
            })?;
            publisher.publish()?;
            store.confirm_takers()?;
            let object = shared.sealer.snapshot(snapshot)?;
            publisher.fleet.commit(store, ExtentName::snapshot(snapshot.id), &object)?;
            publisher.fleet.barrier()
        })
    })
}

/// Brings content over, until there is no more.
fn work(
    plan: &Bringing<'_>,
    shared: &Ingest<'_>,
    queue: &Receiver<Wanted>,
    data: Sender<ToPacker>,
) -> Result<()> {
    let packs = PackReader::new(plan.from.0, shared.monitor);
    let mut there = ChunkReader::new(&packs, plan.from.1);
    let mut records = RecordBuilder::of_kind(shared, RecordKind::Data, data)?;
    for (path, rows) in queue {
        shared.abort.check()?;
        for row in rows {
            if !shared.claim(&row.id)? {
                shared.monitor.add(Counter::KnownChunks, 1);
            } else {
                match there.read(&row.id) {
                    Ok(chunk) => {
                        shared.monitor.add(Counter::NewChunks, 1);
                        shared.monitor.add(Counter::DedupedBytes, row.raw_bytes.into());
                        records.add_claimed(&chunk, vec![row])?;
                    }
                    Err(error) => {
                        shared.claims.release(&row.id);
                        shared.monitor.loss(shown_from_root(&path), error);
                    }
                }
            }
            shared.monitor.add(Counter::ReadBytes, row.raw_bytes.into());
        }
    }
    records.flush()
}

/// Follows the tree, brings its pages over, and hands the content on.
fn follow(
    plan: &Bringing<'_>,
    shared: &Ingest<'_>,
    root: &TreeRoot,
    tree: Sender<ToPacker>,
    content: Sender<Wanted>,
) -> Result<()> {
    let packs = PackReader::new(plan.from.0, shared.monitor);
    let there = ChunkReader::new(&packs, plan.from.1);
    let pages = RecordBuilder::of_kind(shared, RecordKind::Tree, tree)?;
    let mut follow = Follow { shared, there, pages, content };
    follow.node(&root.id, root.height, b"")?;
    follow.pages.flush()
}

struct Follow<'w> {
    shared: &'w Ingest<'w>,
    there: ChunkReader<'w>,
    pages: RecordBuilder<'w>,
    content: Sender<Wanted>,
}

impl Follow<'_> {
    /// A node of the tree and all below it. `first` is the path that it begins with.
    fn node(&mut self, id: &ChunkId, height: u8, first: &[u8]) -> Result<()> {
        self.shared.abort.check()?;
        let Some(bytes) = self.page(id, first)? else { return Ok(()) };
        if height > 0 {
            let children = decode_node(&bytes)?;
            return (children.iter())
                .try_for_each(|child| self.node(&child.id, height - 1, &child.first_path));
        }
        for entry in decode_page(&bytes)? {
            match entry.content {
                Content::Chunks(rows) => self.hand_on(entry.path, rows),
                Content::Lists(lists) => {
                    for list in lists {
                        let Some(bytes) = self.page(&list.id, &entry.path)? else { continue };
                        let rows = read_chunks(&mut Reader::new(&bytes, "content list"))?;
                        self.hand_on(entry.path.clone(), rows);
                    }
                }
            }
            self.shared.monitor.add(Counter::WalkedEntries, 1);
        }
        Ok(())
    }

    /// Reads a page and stores it, if it is new here.
    fn page(&mut self, id: &ChunkId, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let page = match self.there.read(id) {
            Ok(page) => page,
            Err(error) => {
                self.shared.monitor.loss(shown_from_root(path), error);
                return Ok(None);
            }
        };
        if self.shared.claim(id)? {
            let row = ChunkRow { id: *id, raw_bytes: page.len() as u32 };
            self.pages.add_claimed(&page, vec![row])?;
        }
        Ok(Some(page))
    }

    fn hand_on(&self, path: Vec<u8>, rows: Vec<ChunkRow>) {
        // Workers that stopped have said why.
        let _ = if rows.is_empty() { Ok(()) } else { self.content.send((path, rows)) };
    }
}
