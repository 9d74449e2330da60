//! Runs independent tasks, possibly in parallel: above all reads and writes of several members.

use pinstripe_base::each;

/// Kinds of tasks. An executor measures the time of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskKind {
    /// Reads of data.
    Read = 0,
    /// A record of the log on each member, made durable.
    Log = 1,
    /// Writes of data.
    Write = 2,
    /// Tables, superblocks and syncs.
    Tables = 3,
    /// Chunks that are computed from others, and written.
    Fill = 4,
    /// Rows that are read and compared.
    Scrub = 5,
}

/// Carries out tasks, in any order, at the same time or one after the other.
pub trait Executor: Send + Sync {
    /// Calls `task` once with each number below `count`. All calls have ended when this returns.
    fn each(&self, load: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync));

    /// Whether such tasks were slow lately, so that it is better to have few.
    fn is_slow(&self, load: TaskKind) -> bool;
}

/// The results of `task` for each number below `count`, in order, run by an executor.
pub fn each_of<T: Send>(
    executor: &dyn Executor,
    load: TaskKind,
    count: usize,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    each::each_of(count, |task| executor.each(load, count, task), task)
}

/// One after the other, in order, in the thread that asks.
pub(crate) struct SerialExecutor;

impl Executor for SerialExecutor {
    fn each(&self, _: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }

    fn is_slow(&self, _: TaskKind) -> bool {
        false
    }
}
