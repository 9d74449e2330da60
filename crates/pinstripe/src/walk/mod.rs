//! A directory tree as a stream of entries in path order, which many threads find at once.
//!
//! *Path order* is the byte order of the names, component by component, depth first: a directory,
//! then everything below it, then its next sibling. (`/` sorts before every other byte: `a`, `a/z`,
//! `a.b`.) A snapshot has the same order, so the two can be merged without holding either in
//! memory.
//!
//! [`Walker`] is shared state without threads of its own: any number of threads run
//! [`Walker::work`], one thread takes [`Walker::batches`] and helps when what it needs next is not
//! ready; alone, that thread does the complete walk. The core of the walk is one list in path order
//! (`frontier`) of finished runs and tasks; `scan` does tasks; `directory` opens and lists
//! directories.
//!
//! The root need not be the only directory that the user named: others may be below it
//! ([`WalkOptions::named`]). If the walk would stop above one of them, it passes through the
//! directories that lead to it and examines nothing else in them. The entry of a directory that was
//! not entered, or only passed through, has a link count of 0.
//!
//! Invariants: symlinks are never followed, not even the root. Every name is looked up relative to
//! a directory descriptor. An entry that cannot be read becomes [`Trouble`] at its position in the
//! stream, and the walk continues. The walk limits the finished entries that wait for the consumer
//! and the open descriptors, and keeps only the names of a directory in memory. The walk never
//! reads content (except tag files and ignore files), writes or prints anything, or decides what an
//! unreadable entry means.

#![allow(clippy::disallowed_methods, reason = "lists directories")]

mod batch;
mod directory;
mod exclude;
#[cfg(test)]
mod exclude_tests;
mod explain;
mod frontier;
mod ignore;
mod named;
mod rules;
mod scan;
mod stat;
mod tagged;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::fs::CWD;

use batch::{Entries, Run};
pub use batch::{EntryBatch, WalkItem};
use directory::{Directory, FdBudget, open_directory, read_stat};
pub use exclude::{Exclude, FileLimits};
pub use explain::{Explanation, Reason, explain};
use frontier::{Frontier, Head, Key};
pub use ignore::IgnoreFile;
use named::Named;
use pinstripe_base::error::{self, Error, Result};
use pinstripe_base::sync::{lock, wait};
use pinstripe_io::descriptors;
use pinstripe_member::meta::FileKind;
pub use rules::{RuleOrigin, WrittenRule, pattern_lines};
use scan::{Plan, Scanner, Step, Task};
pub use tagged::DirectoryTag;

/// A batch ends with the run that brings it to this many items.
const BATCH_ITEMS: usize = 256;

/// Options of a walk.
#[derive(Debug, Clone)]
pub struct WalkOptions {
    /// List mount points below the root, but do not enter them.
    pub one_file_system: bool,
    /// Paths to leave out. Patterns never apply to the root itself, which the user named.
    pub exclude: Exclude,
    /// Absolute paths below the root that the user also named, in path order, without duplicates.
    /// The walk treats each of them like the root, even if it would otherwise not have reached it.
    pub named: Vec<Vec<u8>>,
    /// Bytes of finished entries that may wait for the consumer. At this limit, threads stop
    /// working ahead, each after at most one more slice of a directory.
    pub look_ahead_bytes: usize,
    /// The number of directory descriptors kept open for entries below; each thread uses up to
    /// three more.
    pub kept_directories: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions {
            one_file_system: false,
            exclude: Exclude::default(),
            named: Vec::new(),
            look_ahead_bytes: 16 << 20,
            kept_directories: descriptors::share(256, 4),
        }
    }
}

/// Returns the number of threads with which a walk is fastest: more than cores, since threads wait
/// for a disk whose data is not cached; but a single one for a rotational disk.
pub fn recommended_threads(rotational: bool, cores: usize) -> usize {
    if rotational { 1 } else { (2 * cores).max(8) }
}

/// A walk in progress.
pub struct Walker {
    plan: Arc<Plan>,
    /// The consumer's buffers; the thread that holds the lock is the only consumer.
    consumer: Mutex<Scanner>,
    look_ahead_bytes: usize,
    state: Mutex<State>,
    /// Workers wait on this for tasks, or for the consumer to catch up.
    tasks: Condvar,
    /// Consumers wait on this for the head of the list to be finished.
    head: Condvar,
}

struct State {
    frontier: Frontier<Run, Task>,
    /// Bytes of finished runs in the list.
    ahead_bytes: usize,
    /// The number of workers that wait and were not notified yet; it may be too high after a
    /// spurious wake-up, which then costs a notification without effect.
    idle_workers: usize,
    consumer_waits: bool,
    stop: Option<Stop>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Cancelled,
    Panicked,
}

impl Walker {
    /// Reads the metadata of `root` and prepares to walk everything below it. A root that is not a
    /// directory is the only entry of its walk. `prefix` is the root's absolute path as the user
    /// names it, without a trailing slash (so empty for `/`): exclude patterns are matched against
    /// it, and messages show it.
    ///
    /// # Errors
    /// Fails with [`error::Kind::NotFound`] or [`error::Kind::Io`] when the root cannot be examined
    /// or opened, or with [`error::Kind::Usage`] for a path with a NUL byte.
    pub fn new(root: &Path, prefix: Vec<u8>, options: WalkOptions) -> Result<Walker> {
        let name = CString::new(root.as_os_str().as_bytes()).map_err(|_| {
            Error::new(error::Kind::Usage, "a path cannot contain a NUL byte").at(root)
        })?;
        let seen = read_stat(CWD, &name).map_err(|errno| Error::io("cannot stat", root, errno))?;
        let stat = seen.stat.ok_or_else(|| {
            Error::new(error::Kind::Unsupported, "the type of this file is unknown").at(root)
        })?;
        let named = Named::new(options.named);
        let mut frontier = Frontier::new();
        let mut entries = Entries::default();
        entries.push(b"", Ok(stat));
        let run = Run::new(Arc::new(entries), 0..1);
        let ahead_bytes = run.bytes();
        frontier.push_back(Step::Ready(run));
        if stat.kind == FileKind::Directory {
            let fd = open_directory(CWD, &name)
                .map_err(|errno| Error::io("cannot open the directory", root, errno))?;
            let opened = read_stat(fd.as_fd(), c"").ok().and_then(|seen| seen.stat);
            if opened.map(|stat| stat.identity()) != Some(stat.identity()) {
                return Err(Error::new(
                    error::Kind::Changed,
                    "the directory was replaced while it was being opened",
                )
                .at(root));
            }
            frontier.push_back(Step::Work(Task::Enter(Directory::root(
                fd,
                stat.identity(),
                named.all(),
            ))));
        }
        let plan = Arc::new(Plan {
            one_file_system: options.one_file_system,
            exclude: options.exclude,
            prefix,
            named,
            budget: FdBudget::new(options.kept_directories),
            stopped: AtomicBool::new(false),
        });
        Ok(Walker {
            consumer: Mutex::new(Scanner::new(plan.clone())),
            plan,
            look_ahead_bytes: options.look_ahead_bytes,
            state: Mutex::new(State {
                frontier,
                ahead_bytes,
                idle_workers: 0,
                consumer_waits: false,
                stop: None,
            }),
            tasks: Condvar::new(),
            head: Condvar::new(),
        })
    }

    /// Whether there is work for [`work`](Self::work): not if the root is not a directory.
    pub fn has_work(&self) -> bool {
        !self.lock().frontier.is_exhausted()
    }

    /// Does tasks until none is left or the walk is cancelled. Any number of threads may call this
    /// function.
    pub fn work(&self) {
        let mut scanner = Scanner::new(self.plan.clone());
        let mut state = self.lock();
        loop {
            if state.stop.is_some() || state.frontier.is_exhausted() {
                return;
            }
            state = match state.claim(self.look_ahead_bytes) {
                Some((key, task)) => self.perform(state, key, task, &mut scanner),
                None => {
                    state.idle_workers += 1;
                    wait(&self.tasks, state)
                }
            };
        }
    }

    /// Returns the next items in path order, at least one, or `None` when the walk has ended or was
    /// cancelled. A thread that finds the next entry missing does the task for it itself.
    ///
    /// # Panics
    /// Panics when a thread panicked in this walk, because its part of the tree is lost.
    pub(crate) fn next_batch(&self) -> Option<EntryBatch> {
        let mut scanner = lock(&self.consumer);
        let mut batch = EntryBatch::default();
        let mut state = self.lock();
        loop {
            match state.stop {
                Some(Stop::Cancelled) => return None,
                Some(Stop::Panicked) => panic!("a thread panicked during the walk"),
                None => {}
            }
            while batch.len() < BATCH_ITEMS
                && let Some(run) = state.pop_ready()
            {
                batch.push(run);
            }
            let head = state.frontier.head();
            let is_enough = match head {
                Head::End | Head::Ready => true,
                Head::Work => batch.len() >= BATCH_ITEMS,
                Head::Claimed => !batch.is_empty(),
            };
            if is_enough {
                self.wake_workers(&mut state);
                return (!batch.is_empty()).then_some(batch);
            }
            state = match state.claim(self.look_ahead_bytes) {
                Some((key, task)) => self.perform(state, key, task, &mut scanner),
                None => {
                    state.consumer_waits = true;
                    wait(&self.head, state)
                }
            };
        }
    }

    /// Returns the complete stream, batch by batch. Dropping the stream cancels the walk, so that
    /// no worker waits for a consumer that has failed.
    pub fn batches(&self) -> Batches<'_> {
        Batches(self)
    }

    /// Returns the [named](WalkOptions::named) paths that the walk would have reached anyway.
    /// The result is complete when the walk has ended.
    pub fn covered(&self) -> impl Iterator<Item = &[u8]> {
        self.plan.named.covered()
    }

    /// Ends the walk: workers return after their current task, and the stream ends.
    pub fn cancel(&self) {
        self.stop(Stop::Cancelled);
    }

    fn stop(&self, stop: Stop) {
        self.plan.stopped.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        state.stop.get_or_insert(stop);
        let rest = std::mem::replace(&mut state.frontier, Frontier::new());
        drop(state);
        self.tasks.notify_all();
        self.head.notify_all();
        drop(rest);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does a claimed task without the lock and inserts its results at its position.
    fn perform<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        key: Key,
        task: Task,
        scanner: &mut Scanner,
    ) -> MutexGuard<'a, State> {
        // The rest of a split directory may be work for others.
        self.wake_workers(&mut state);
        drop(state);
        let alarm = PanicGuard(self);
        let steps = scanner.perform(task);
        let mut state = self.lock();
        if state.stop.is_none() {
            for step in steps {
                if let Step::Ready(run) = &step {
                    state.ahead_bytes += run.bytes();
                }
                state.frontier.insert_before(key, step);
            }
            state.frontier.finish(key);
        }
        std::mem::forget(alarm);
        if state.consumer_waits && state.frontier.head() != Head::Claimed {
            state.consumer_waits = false;
            self.head.notify_one();
        }
        self.wake_workers(&mut state);
        state
    }

    /// Wakes one idle worker if there is a task for it, which in turn wakes the next; wakes all if
    /// the work has ended. Only one worker is woken at a time, because waking costs as much as a
    /// small task.
    fn wake_workers(&self, state: &mut State) {
        if state.idle_workers == 0 {
            return;
        }
        if state.frontier.is_exhausted() {
            state.idle_workers = 0;
            self.tasks.notify_all();
        } else if state.frontier.unclaimed() > 0 && state.ahead_bytes <= self.look_ahead_bytes / 2 {
            state.idle_workers -= 1;
            self.tasks.notify_one();
        }
    }
}

impl State {
    /// Takes the most urgent task. A task too far ahead is refused, unless everything else waits
    /// for it.
    fn claim(&mut self, look_ahead_bytes: usize) -> Option<(Key, Task)> {
        if self.ahead_bytes >= look_ahead_bytes && self.frontier.head() != Head::Work {
            return None;
        }
        let (key, mut task) = self.frontier.claim()?;
        if let Some(rest) = task.split_off_rest() {
            self.frontier.insert_after(key, Step::Work(rest));
        }
        Some((key, task))
    }

    fn pop_ready(&mut self) -> Option<Run> {
        let run = self.frontier.pop_ready()?;
        self.ahead_bytes -= run.bytes();
        Some(run)
    }
}

/// Cancels the walk when the thread that holds it panics, since its task would never be finished.
struct PanicGuard<'a>(&'a Walker);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        self.0.stop(Stop::Panicked);
    }
}

/// The stream of a walk; dropping it cancels the walk. See [`Walker::batches`].
pub struct Batches<'a>(&'a Walker);

impl Iterator for Batches<'_> {
    type Item = EntryBatch;

    fn next(&mut self) -> Option<EntryBatch> {
        self.0.next_batch()
    }
}

impl Drop for Batches<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
