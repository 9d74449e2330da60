//! Runs independent tasks, possibly in parallel; most are reads and writes of several members.

use pinstripe_base::each;

/// Kinds of tasks. The kind of a task; an executor measures the time of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskKind {
    /// Reads of data.
    Read = 0,
    /// Writing a record of the log durably to each member.
    Log = 1,
    /// Writes of data.
    Write = 2,
    /// Writing tables and superblocks, and syncs.
    Tables = 3,
    /// Computing chunks from other members and writing them.
    Fill = 4,
    /// Reading and comparing rows.
    Scrub = 5,
}

/// Carries out tasks, in any order, in parallel or one after the other.
pub trait Executor: Send + Sync {
    /// Calls `task` once for each number below `count`. All calls have ended when this returns.
    fn each(&self, load: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync));

    /// Whether tasks of this kind were slow recently, so that few large ones are better.
    fn is_slow(&self, load: TaskKind) -> bool;
}

/// Calls `task` for each number below `count` through an executor, and returns the results in
/// order.
pub fn each_of<T: Send>(
    executor: &dyn Executor,
    load: TaskKind,
    count: usize,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    each::each_of(count, |task| executor.each(load, count, task), task)
}

/// Runs the tasks one after the other, in order, in the calling thread.
pub(crate) struct SerialExecutor;

impl Executor for SerialExecutor {
    fn each(&self, _: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }

    fn is_slow(&self, _: TaskKind) -> bool {
        false
    }
}
