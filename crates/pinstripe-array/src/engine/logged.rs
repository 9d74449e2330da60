//! An array with its log, which together make writes in place durable.

use std::sync::{Arc, Mutex};

use super::Array;
use super::log::Log;
use crate::executor::{Executor, SerialExecutor, TaskKind};
use crate::format::log::PayloadCheck;
use crate::format::superblock::Superblock;
use crate::member::ArrayMember;
use crate::set::MemberSet;
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;

/// An array, its log, and the executor for both. The flusher has the only one.
pub(super) struct LoggedArray {
    pub array: Arc<Array>,
    pub log: Log,
    pub executor: Arc<dyn Executor>,
    /// Whether all writes in place are durable, or their data is in a durable record: a record
    /// makes everything durable that was written before it.
    pub is_covered: bool,
}

impl LoggedArray {
    /// An array whose log continues where its superblock says.
    pub fn new(array: Arc<Array>) -> Self {
        let log = Log::from_superblock(&array.superblock());
        LoggedArray { array, log, executor: Arc::new(SerialExecutor), is_covered: false }
    }

    /// Sets the executor for independent tasks.
    pub(crate) fn set_executor(&mut self, executor: Arc<dyn Executor>) {
        self.array.members.set_executor(Arc::clone(&executor));
        self.executor = executor;
    }

    /// Makes the tables of all members as new as their checksums in memory, durably except for
    /// versions (see [`ArrayMember::write_tables`]).
    pub(crate) fn write_tables(&self) -> Result<()> {
        self.each_member(TaskKind::Tables, &|_, member| member.write_tables())?;
        self.array.drop_failed_replacement()
    }

    /// Makes all writes to the members durable.
    pub(crate) fn sync_members(&mut self) -> Result<()> {
        self.each_member(TaskKind::Tables, &|_, member| member.sync())?;
        self.is_covered = true;
        self.array.drop_failed_replacement()
    }

    /// Writes a record without pieces, which says that everything before it is durable. The record
    /// is not synced: if it is lost, the only effect is that replay may mistake damage of the last
    /// written blocks for torn writes.
    pub fn mark_durable(&mut self) -> Result<()> {
        if self.log.used_bytes == 0 || self.log.is_marked {
            return Ok(());
        }
        let members = self.array.members().len();
        let (head, is_full) =
            self.log.next(vec![PayloadCheck::from_payload(&[]); members], Vec::new());
        if is_full {
            return Ok(());
        }
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        self.each_member(TaskKind::Log, &|_, member| member.write_log(head.position, &bytes))?;
        self.log.passed(&head);
        self.log.is_marked = true;
        self.array.drop_failed_replacement()
    }

    /// Calls a function for each present member, in parallel, and marks a member as failed if the
    /// function fails for it.
    pub(crate) fn each_member(
        &self,
        kind: TaskKind,
        act: &(dyn Fn(usize, &ArrayMember) -> Result<()> + Sync),
    ) -> Result<()> {
        let members = self.array.members();
        let failed = Mutex::new(MemberSet::EMPTY);
        self.executor.each(kind, members.len(), &|slot| {
            if members[slot].as_ref().is_some_and(|member| act(slot, member).is_err()) {
                let mut failed = lock(&failed);
                *failed = failed.with(slot);
            }
        });
        let failed = *lock(&failed);
        failed.iter().try_for_each(|slot| self.array.fail(slot))
    }

    /// Makes the members' tables as new as their data: the log up to here is not needed any more.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when too many
    /// members failed.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.checkpoint_with(|_| {})
    }

    /// Makes a checkpoint whose superblock carries a further change.
    ///
    /// # Errors
    /// Fails with the errors of [`checkpoint`](Self::checkpoint).
    pub(crate) fn checkpoint_with(&mut self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        // Data before tables, tables before the superblock: a checksum on disk never describes data
        // that is not, and the old records are only dropped when nothing needs them.
        self.sync_members()?;
        self.array.members().iter().flatten().for_each(|member| member.unmark());
        self.write_tables()?;
        let log = (self.log.position, self.log.sequence);
        self.array.update_superblocks(|superblock| {
            superblock.log = log;
            change(superblock);
        })?;
        self.log.used_bytes = 0;
        self.log.is_marked = false;
        Ok(())
    }
}
