//! Copies a snapshot from another half of the same store: content that the snapshot needs and this
//! half lacks is stored here, then the snapshot is put under its own name.
//!
//! One thread follows the tree and passes content on; workers look up each chunk, and read,
//! compress and seal those that are new. Every chunk is verified against its id, which is made with
//! the keys that both halves share, so a chunk always has the content that its id names.
//!
//! Invariants: the complete tree is followed, even below pages that this half has, since a page may
//! exist here without everything below it; the snapshot is put when everything that was copied is
//! durable and in an index run. Content that cannot be read in the other half is a loss in the
//! ledger, and the rest is copied.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::record::RecordBuilder;
use super::shared::Writing;
use super::write_session::write_session;
use super::{background, joined, packer, stage};
use crate::pipeline::limits::Limits;
use crate::pipeline::pack::{Laying, ToPacker};
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::{Follow, follow};
use crate::store::{Store, redundancy};
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::ExtentName;
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_stripe::Abort;

/// The two halves between which snapshots are copied.
pub(crate) struct Bringing<'a> {
    /// The half that has the snapshot, and its index.
    pub from: (&'a Store, &'a Index<'a>),
    /// The half that gets the snapshot, and its index.
    pub to: (&'a Store, &'a Index<'a>),
    /// Threads and queues.
    pub limits: Limits,
}

/// The content of a file, or of a part of one: its path and its chunks.
type FileRows = (Vec<u8>, Vec<ChunkRow>);

/// Copies a snapshot. `acknowledger` answers condemnations for the session that was begun for the
/// copy.
///
/// # Errors
/// Fails with the errors that end any backup: a member is full, or more members are lost than
/// parity replaces.
pub fn bring(
    plan: &Bringing<'_>,
    snapshot: &Snapshot,
    acknowledger: &mut Acknowledger,
    monitor: &Monitor,
) -> Result<()> {
    let (store, index) = plan.to;
    // The commit checks for newer keys itself.
    let unheeded = Abort::default();
    std::thread::scope(|scope| {
        let (_end, end) = bounded(0);
        scope.spawn(|| background::watch(store, index, acknowledger, &unheeded, &{ end }));
        write_session(store, index, plan.limits, monitor, |shared, publisher| {
            std::thread::scope(|stages| {
                let queued = plan.limits.records_queued;
                let packer = |laying| packer(stages, shared, publisher, queued, laying);
                let (data, data_packer) = packer(Laying::Striped);
                let (tree, tree_packer) = packer(Laying::of_pages(store.config.parity));
                let (content, queue) = bounded::<FileRows>(plan.limits.jobs_queued);
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
                let walked = hand_out(plan, shared, &snapshot.root, tree, content);
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
            publisher.writers.commit(store, ExtentName::snapshot(snapshot.id), &object, None)?;
            publisher.writers.barrier()?;
            redundancy::state(store, index, &publisher.writers.failed(), monitor);
            Ok(())
        })
    })
}

/// Copies content until the queue closes.
fn work(
    plan: &Bringing<'_>,
    shared: &Writing<'_>,
    queue: &Receiver<FileRows>,
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

/// Follows the tree, copies its pages, and passes the content on.
fn hand_out(
    plan: &Bringing<'_>,
    shared: &Writing<'_>,
    root: &TreeRoot,
    tree: Sender<ToPacker>,
    content: Sender<FileRows>,
) -> Result<()> {
    let packs = PackReader::new(plan.from.0, shared.monitor);
    let there = ChunkReader::new(&packs, plan.from.1);
    let pages = RecordBuilder::of_kind(shared, RecordKind::Tree, tree)?;
    let mut follower = Follower { shared, there, pages, content };
    follow(root, &mut follower)?;
    follower.pages.flush()
}

struct Follower<'w> {
    shared: &'w Writing<'w>,
    there: ChunkReader<'w>,
    pages: RecordBuilder<'w>,
    content: Sender<FileRows>,
}

impl Follow for Follower<'_> {
    /// Stores a page, if it is new in this half. A page that cannot be read is a loss.
    fn page(&mut self, id: &ChunkId, path: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared.abort.check()?;
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

    fn content(&mut self, path: &[u8], rows: Vec<ChunkRow>) -> Result<()> {
        // Workers that stopped have reported why.
        let _ = if rows.is_empty() { Ok(()) } else { self.content.send((path.to_vec(), rows)) };
        Ok(())
    }

    fn entry_done(&mut self) {
        self.shared.monitor.add(Counter::WalkedEntries, 1);
    }
}
