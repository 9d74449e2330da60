//! The assembler: brings the results of workers, which arrive in any order, back into path order,
//! and builds the tree.
//!
//! Only the assembler has the snapshot's tree and the table of hard links. Memory is bounded by the
//! window of jobs between the join and the assembler, except for the table of hard links, which has
//! one row per inode with further names to come.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crossbeam_channel::{Receiver, Sender};

use super::checkpoint::Checkpoints;
use super::content::LongContent;
use super::ingest::{Assembled, IngestOutcome};
use super::record::RecordBuilder;
use super::shared::Writing;
use crate::pipeline::pack::ToPacker;
use crate::store::tree::TreeWriter;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_member::snapshot::TreeRoot;

/// The results of one job so far.
#[derive(Default)]
struct JobResults {
    entries: Option<Vec<Assembled>>,
    large: Option<(Box<Entry>, usize)>,
    /// Parts of a large file that arrived early, and the number of parts that were processed.
    parts: BTreeMap<usize, Vec<ChunkRow>>,
    taken: usize,
    content: LongContent,
}

impl JobResults {
    fn is_complete(&self) -> bool {
        self.entries.is_some() || self.large.as_ref().is_some_and(|(_, parts)| self.taken == *parts)
    }
}

/// The content of an inode that will appear under more names.
struct FirstName {
    content: Content,
    extents: Vec<Range<u64>>,
    size: u64,
    names_left: u64,
}

/// The assembler of one backup.
pub(crate) struct Assembler<'a> {
    shared: &'a Writing<'a>,
    record: RecordBuilder<'a>,
    tree: TreeWriter,
    waiting: BTreeMap<u64, JobResults>,
    next: u64,
    inodes: HashMap<(u64, u64), FirstName>,
    checkpoints: Option<Checkpoints<'a>>,
}

impl<'a> Assembler<'a> {
    /// Makes an assembler that passes tree records to `records`.
    ///
    /// # Errors
    /// Fails when the compressor cannot be set up.
    pub fn new(
        shared: &'a Writing<'a>,
        records: Sender<ToPacker>,
        checkpoints: Option<Checkpoints<'a>>,
    ) -> Result<Self> {
        Ok(Assembler {
            shared,
            record: RecordBuilder::of_kind(shared, RecordKind::Tree, records)?,
            tree: TreeWriter::new(),
            waiting: BTreeMap::new(),
            next: 0,
            inodes: HashMap::new(),
            checkpoints,
        })
    }

    /// Receives results until all senders are gone, then closes the tree. Takes one token from
    /// `window` for each job that is finished.
    ///
    /// # Errors
    /// Fails with the run's fatal error.
    pub fn run(
        mut self,
        outcomes: &Receiver<IngestOutcome>,
        window: &Receiver<()>,
    ) -> Result<TreeRoot> {
        for outcome in outcomes {
            self.note(outcome);
            if let Err(error) = self.take_parts() {
                self.shared.abort.raise(error);
            }
            while self.waiting.get(&self.next).is_some_and(JobResults::is_complete) {
                let done = self.waiting.remove(&self.next).expect("it was there just now");
                self.next += 1;
                // After a fatal error the queue is only drained: a sender must not block on it.
                if !self.shared.abort.is_raised()
                    && let Err(error) = self.append(done).and_then(|()| self.checkpoint())
                {
                    self.shared.abort.raise(error);
                }
                // The join puts the token there before it hands out the job.
                let _ = window.recv();
                if let Err(error) = self.take_parts() {
                    self.shared.abort.raise(error);
                }
            }
        }
        self.shared.abort.check()?;
        // A checkpoint now would be superseded by the snapshot itself.
        drop(self.checkpoints.take());
        let Assembler { tree, mut record, .. } = self;
        let root = tree.finish(&mut |bytes| Ok(record.add(&bytes)?.id))?;
        record.flush()?;
        Ok(root)
    }

    /// Begins a checkpoint if one is due: closes a copy of the present tree, and asks all stages
    /// that hold back chunks to pass them on. Beginning a checkpoint does not wait for any stage.
    fn checkpoint(&mut self) -> Result<()> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        if !checkpoints.is_due() {
            return Ok(());
        }
        let record = &mut self.record;
        let root = self.tree.clone().finish(&mut |bytes| Ok(record.add(&bytes)?.id))?;
        record.seal(checkpoints.begin(root))?;
        checkpoints.settle(self.shared.abort);
        Ok(())
    }

    fn note(&mut self, outcome: IngestOutcome) {
        let seq = match &outcome {
            IngestOutcome::Entries(seq, _)
            | IngestOutcome::Large(seq, ..)
            | IngestOutcome::Part(seq, ..) => *seq,
        };
        if seq < self.next {
            return; // A part of a large file that was given up.
        }
        let returned = self.waiting.entry(seq).or_default();
        match outcome {
            IngestOutcome::Entries(_, entries) => returned.entries = Some(entries),
            IngestOutcome::Large(_, entry, parts) => returned.large = Some((entry, parts)),
            IngestOutcome::Part(_, part, rows) => {
                returned.parts.insert(part, rows);
            }
        }
    }

    /// Processes the parts of the next entry, in order, if it is a large file; no other entries
    /// have parts.
    fn take_parts(&mut self) -> Result<()> {
        let Some(head) = self.waiting.get_mut(&self.next) else { return Ok(()) };
        while let Some(rows) = head.parts.remove(&head.taken) {
            head.taken += 1;
            if !self.shared.abort.is_raised() {
                head.content.add(rows, &mut self.record)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, done: JobResults) -> Result<()> {
        if let Some((mut entry, _)) = done.large
            && done.entries.is_none()
        {
            entry.content = done.content.finish(&mut self.record)?;
            return self.push(*entry);
        }
        for assembled in done.entries.unwrap_or_default() {
            match assembled {
                Assembled::Ready(entry) => self.push(entry)?,
                Assembled::SameInode(entry) => self.push_same_inode(entry)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) -> Result<()> {
        if entry.is_hard_linked() {
            let first = || FirstName {
                content: entry.content.clone(),
                extents: entry.extents.clone(),
                size: entry.size,
                names_left: entry.links,
            };
            self.inodes.entry((entry.device, entry.inode)).or_insert_with(first);
            self.forget_name(&entry);
        }
        // Programs that list a mount ask for these of every entry, unless there is none.
        self.shared.monitor.add(Counter::AclEntries, entry.meta.has_acl().into());
        self.shared.monitor.add(Counter::LabelEntries, entry.meta.has_label().into());
        let record = &mut self.record;
        self.tree.push(&entry, &mut |bytes| Ok(record.add(&bytes)?.id))
    }

    fn push_same_inode(&mut self, mut entry: Entry) -> Result<()> {
        let Some(first) = self.inodes.get(&(entry.device, entry.inode)) else {
            let error = Error::new(
                Kind::Changed,
                "this path is a hard link, and the file could not be read through its first path",
            );
            self.shared.monitor.loss(shown_from_root(&entry.path), error);
            return Ok(());
        };
        entry.content = first.content.clone();
        entry.extents.clone_from(&first.extents);
        entry.size = first.size;
        self.push(entry)
    }

    fn forget_name(&mut self, entry: &Entry) {
        let key = (entry.device, entry.inode);
        if let Some(first) = self.inodes.get_mut(&key) {
            first.names_left = first.names_left.saturating_sub(1);
            if first.names_left == 0 {
                self.inodes.remove(&key);
            }
        }
    }
}
