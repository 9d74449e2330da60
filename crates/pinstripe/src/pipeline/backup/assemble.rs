//! The assembler: puts what workers return in any order back into path order and into the tree.
//!
//! It is the one owner of the snapshot's tree and of the table of hard links. Memory is bounded
//! by the window of jobs between the join and here, except for the table, which holds one row per
//! inode whose other names are still to come.

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
    /// Parts of a large file that came before their turn, and how many were taken in.
    parts: BTreeMap<usize, Vec<ChunkRow>>,
    taken: usize,
    content: LongContent,
}

impl JobResults {
    fn is_complete(&self) -> bool {
        self.entries.is_some() || self.large.as_ref().is_some_and(|(_, parts)| self.taken == *parts)
    }
}

/// Content of an inode with more names to come.
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
    /// An assembler that hands tree records to `records`.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
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

    /// Takes outcomes until all senders are gone, then closes the tree. Takes one token from
    /// `window` for each job that is done.
    ///
    /// # Errors
    /// The run's fatal error.
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
    /// that hold chunks back to hand them over. Does not wait for any of them.
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

    /// Takes the parts of the next entry, in order, if it is a large file: only large files have
    /// parts.
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
            let error = Error::new(Kind::Changed, "another name of this file could not be read");
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
