//! A thread pool for tasks on several members; slow tasks run in parallel.
//!
//! Starting threads costs less than waiting for a disk, and more than copying from memory. So each
//! kind of task is measured: while its tasks are quick, they all run in the calling thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::executor::{Executor, TaskKind};
use crate::limits::THREADS;
use pinstripe_base::clock;
use pinstripe_io::pool::side_by_side;

/// A task that takes at most this long is not worth a thread.
const QUICK: Duration = Duration::from_micros(500);
/// Kinds of tasks.
const TASK_KINDS: usize = 6;

/// Runs tasks on as many threads as pay off.
#[derive(Default)]
pub(super) struct MeasuredThreads {
    /// By kind of task, whether the last tasks were slow.
    are_slow: [AtomicBool; TASK_KINDS],
}

impl Executor for MeasuredThreads {
    fn each(&self, load: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let is_slow = &self.are_slow[load as usize];
        let mut next = 0;
        let mut before = clock::monotonic();
        while next < count && !is_slow.load(Ordering::Relaxed) {
            task(next);
            next += 1;
            let after = clock::monotonic();
            is_slow.store(after - before > QUICK, Ordering::Relaxed);
            before = after;
        }
        if next < count {
            let threads = side_by_side(THREADS, next..count, task);
            // The time of one task, if the threads did not delay each other.
            let each = (clock::monotonic() - before) * threads as u32 / (count - next) as u32;
            is_slow.store(each > QUICK, Ordering::Relaxed);
        }
    }

    fn is_slow(&self, load: TaskKind) -> bool {
        self.are_slow[load as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn every_task_is_carried_out_once_quick_or_slow() {
        let pool = MeasuredThreads::default();
        for (round, count) in [0, 1, 5, 40, 3].into_iter().enumerate() {
            let done = Mutex::new(Vec::new());
            pool.each(TaskKind::Read, count, &|number| {
                if round == 2 && number == 2 {
                    std::thread::sleep(2 * QUICK);
                }
                done.lock().unwrap().push(number);
            });
            let mut done = done.into_inner().unwrap();
            done.sort_unstable();
            assert!(done.into_iter().eq(0..count));
        }
    }

    /// Each of them waits for the others: one after the other they would never end.
    #[test]
    fn slow_tasks_go_side_by_side() {
        let pool = MeasuredThreads::default();
        pool.are_slow[TaskKind::Log as usize].store(true, Ordering::Relaxed);
        let all = Barrier::new(4);
        pool.each(TaskKind::Log, 4, &|_| _ = all.wait());
    }
}
