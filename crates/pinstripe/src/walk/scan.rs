//! The tasks of the walk: enters and lists a directory, and reads the metadata of a slice of its
//! names.
//!
//! A task results in finished runs and further tasks, in path order. This module has no threads or
//! queues. The metadata of a name is read only when its slice is processed, so a directory with a
//! million names initially costs its names and not a million calls of stat.

use std::ffi::{CStr, CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::batch::{ENTRY_BYTES, Entries, Run};
use super::directory::{Directory, FdBudget, Names, Refusal, read_stat};
use super::exclude::Exclude;
use super::frontier;
use super::ignore::{IgnoreFault, IgnoreRules};
use super::named::{Lead, Named};
use pinstripe_base::error::{self, Error};
use pinstripe_member::meta::{FileKind, Stat};

/// A slice has as many names as give about this many bytes of entries, within the limits below.
const SLICE_BYTES: usize = 256 * 1024;
const SLICE_NAMES_MAX: usize = 512;

pub(super) type Step = frontier::Step<Run, Task>;

/// A piece of work that any thread can do.
pub(super) enum Task {
    /// Enter this directory, which was listed in its parent but is not open yet.
    Enter(Directory),
    /// Read the metadata of these names of a directory.
    Look(Arc<Listing>, Range<usize>),
}

/// The names of a directory that is too large for one task.
pub(super) struct Listing {
    directory: Arc<Directory>,
    names: Names,
    slice_names: usize,
}

impl Task {
    /// Reduces the task to one slice and returns the rest as another task.
    pub(crate) fn split_off_rest(&mut self) -> Option<Task> {
        let Task::Look(listing, range) = self else { return None };
        let middle = range.start + listing.slice_names;
        if middle >= range.end {
            return None;
        }
        let rest = middle..range.end;
        range.end = middle;
        Some(Task::Look(listing.clone(), rest))
    }
}

/// The values that all tasks of one walk share.
pub(super) struct Plan {
    pub one_file_system: bool,
    pub exclude: Exclude,
    /// The root's absolute path without a trailing slash, used only for patterns and messages.
    pub prefix: Vec<u8>,
    pub named: Named,
    pub budget: FdBudget,
    pub stopped: AtomicBool,
}

/// What one thread needs for its tasks: the plan, and buffers that are reused.
pub(super) struct Scanner {
    plan: Arc<Plan>,
    names: Names,
    /// The absolute path of the current entry.
    path: Vec<u8>,
    entries: Entries,
    /// The tasks found, each with the number of entries that precede it.
    tasks: Vec<(usize, Task)>,
    steps: Vec<Step>,
}

impl Scanner {
    pub fn new(plan: Arc<Plan>) -> Self {
        Scanner {
            plan,
            names: Names::default(),
            path: Vec::new(),
            entries: Entries::default(),
            tasks: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Does one task; the caller drains the results, in path order, from the return value.
    pub fn perform(&mut self, task: Task) -> std::vec::Drain<'_, Step> {
        match task {
            Task::Enter(directory) => self.enter(directory),
            Task::Look(listing, range) => self.look_again(&listing, range),
        }
        let entries = Arc::new(self.entries.take_exact());
        let mut begin = 0;
        let mut push_run = |steps: &mut Vec<Step>, end| {
            if begin < end {
                steps.push(Step::Ready(Run::new(entries.clone(), begin..end)));
                begin = end;
            }
        };
        for (at, task) in self.tasks.drain(..) {
            push_run(&mut self.steps, at);
            self.steps.push(Step::Work(task));
        }
        push_run(&mut self.steps, entries.len());
        self.steps.drain(..)
    }

    fn enter(&mut self, mut directory: Directory) {
        self.set_path(&directory);
        let fd = match self.open(&mut directory) {
            Ok(fd) => fd,
            Err(refusal) => return self.refused(refusal),
        };
        let mut names = std::mem::take(&mut self.names);
        self.list(&mut directory, fd.as_fd(), &mut names);
        let fd = directory.keep(fd, &self.plan.budget);
        let directory = Arc::new(directory);
        let at = directory.kept().or(fd.as_ref().map(AsFd::as_fd));
        let at = at.expect("a descriptor that was not kept was handed back");
        let slice_names = slice_names(self.path.len());
        let slice = names.len().min(slice_names);
        self.look_at(&directory, at, &names, 0..slice);
        if slice == names.len() {
            self.names = names;
        } else {
            let rest = slice..names.len();
            let listing = Arc::new(Listing { directory, names, slice_names });
            self.push_task(Task::Look(listing, rest));
        }
    }

    /// Opens a directory. A directory that may not be listed is only passed through on the way to
    /// named paths below it.
    fn open(&mut self, directory: &mut Directory) -> Result<OwnedFd, Refusal> {
        match directory.open() {
            Err(Refusal::System(errno)) if !directory.named.is_empty() && !directory.is_passage => {
                self.refused(Refusal::System(errno));
                directory.is_passage = true;
                directory.open()
            }
            answer => answer,
        }
    }

    /// Lists the names to examine in a directory: all names, or only those that lead to named
    /// paths.
    fn list(&mut self, directory: &mut Directory, fd: BorrowedFd<'_>, names: &mut Names) {
        let mut leading = self.plan.named.children(&directory.named, &self.path);
        if directory.is_passage {
            return names.set(&leading);
        }
        let go_on = || !self.plan.stopped.load(Ordering::Relaxed);
        if let Err(errno) = names.list(fd, go_on) {
            self.denied("cannot list the complete directory", errno);
        }
        let tags: Vec<_> = self.tags(directory, fd, names).collect();
        if tags.is_empty() {
            self.read_ignore_files(directory, fd, names);
            names.add_missing(&leading);
        } else {
            directory.is_passage = true;
            leading.extend(tags);
            names.set(&leading);
        }
    }

    /// The tag files of a directory. If there are any, only these are taken. A directory that the user
    /// named has none.
    fn tags(
        &self,
        directory: &Directory,
        at: BorrowedFd<'_>,
        names: &Names,
    ) -> impl Iterator<Item = CString> {
        let tags = self.plan.exclude.tags().filter(|_| !directory.was_named);
        let found = tags.filter(move |tag| names.find(tag.name()).is_some() && tag.marks(at));
        found.map(|tag| tag.name().to_owned())
    }

    /// Reads the ignore files of a directory, which the path is set to.
    fn read_ignore_files(&mut self, directory: &mut Directory, at: BorrowedFd<'_>, names: &Names) {
        let plan = self.plan.clone();
        for file in plan.exclude.ignore_files().filter(|it| names.find(it.name()).is_some()) {
            let (above, mut faults) = (directory.ignore.take(), Vec::new());
            directory.ignore =
                IgnoreRules::read(file, at, &self.path, above, &mut |fault| faults.push(fault));
            let directory_bytes = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(file.name().to_bytes());
            for fault in faults {
                match fault {
                    IgnoreFault::System(errno) => {
                        self.denied("cannot read the rules in this ignore file", errno);
                    }
                    IgnoreFault::Text(error) => self.trouble(error),
                }
            }
            self.path.truncate(directory_bytes);
        }
    }

    fn look_again(&mut self, listing: &Listing, range: Range<usize>) {
        let Listing { directory, names, .. } = listing;
        self.set_path(directory);
        if let Some(at) = directory.kept() {
            return self.look_at(directory, at, names, range);
        }
        match directory.open() {
            Ok(fd) => self.look_at(directory, fd.as_fd(), names, range),
            Err(refusal) => self.refused(refusal),
        }
    }

    fn look_at(
        &mut self,
        directory: &Arc<Directory>,
        at: BorrowedFd<'_>,
        names: &Names,
        range: Range<usize>,
    ) {
        let dir_len = self.path.len();
        for index in range {
            let name = names.get(index);
            self.path.truncate(dir_len);
            self.path.push(b'/');
            self.path.extend_from_slice(name.to_bytes());
            let lead = self.plan.named.lead(&directory.named, &self.path);
            let verdict = self.plan.exclude.judge(&self.path, directory.ignore.as_deref());
            if verdict.excludes_all() && lead.is_none() {
                self.plan.exclude.note(&self.path, true);
                continue;
            }
            let seen = match read_stat(at, name) {
                Ok(seen) => seen,
                Err(errno) => {
                    self.denied("cannot stat", errno);
                    continue;
                }
            };
            let Some(stat) = seen.stat else {
                self.trouble(Error::new(
                    error::Kind::Unsupported,
                    "the type of this file is unknown",
                ));
                continue;
            };
            let is_directory = stat.kind == FileKind::Directory;
            if verdict.is_met {
                self.plan.exclude.note(&self.path, is_directory);
            }
            let is_excluded =
                verdict.excludes(is_directory) || self.plan.exclude.excess(&stat).is_some();
            if !is_excluded || !lead.is_none() {
                let is_mount_point = seen.is_mount_point;
                self.take(directory, name, stat, &lead, is_excluded, is_mount_point);
            }
        }
        self.path.truncate(dir_len);
    }

    /// Takes an entry and, if it is a directory that is to be entered, enters it.
    fn take(
        &mut self,
        parent: &Arc<Directory>,
        name: &CStr,
        mut stat: Stat,
        lead: &Lead,
        is_excluded: bool,
        is_mount_point: bool,
    ) {
        let is_directory = stat.kind == FileKind::Directory;
        let stops = is_directory && self.stops_at(parent, &stat, is_mount_point);
        let is_left_out = parent.is_passage || is_excluded || stops;
        if let Some(number) = lead.named
            && !is_left_out
        {
            self.plan.named.set_covered(number);
        }
        let is_entered = is_directory && (lead.named.is_some() || !is_left_out);
        if is_directory {
            // Some file systems report 0 for every directory.
            stat.links = if is_entered { stat.links.max(1) } else { 0 };
        }
        self.record(stat);
        if is_entered || (is_directory && !lead.below.is_empty()) {
            self.descend(parent, name.to_owned(), &stat, lead, !is_entered);
        } else if !lead.below.is_empty() {
            let what = "this path is no longer a directory, so the paths below it that should be \
                        backed up do not exist";
            self.trouble(Error::new(error::Kind::Changed, what));
        }
    }

    fn stops_at(&self, parent: &Directory, stat: &Stat, is_mount_point: bool) -> bool {
        self.plan.one_file_system && (is_mount_point || stat.device != parent.device())
    }

    fn descend(
        &mut self,
        parent: &Arc<Directory>,
        name: CString,
        stat: &Stat,
        lead: &Lead,
        is_passage: bool,
    ) {
        let contains_itself = parent.is_within(stat.identity());
        if contains_itself && lead.named.is_none() {
            let what =
                "this directory contains itself through a mount, so its content is not backed up";
            let error = Error::new(error::Kind::Refused, what);
            self.trouble(error.advice("exclude this directory, or use --one-file-system"));
            if lead.below.is_empty() {
                return;
            }
        }
        let mut child = Directory::below(parent.clone(), name, stat.identity());
        child.named = lead.below.clone();
        child.was_named = lead.named.is_some();
        child.is_passage = is_passage || (contains_itself && lead.named.is_none());
        self.push_task(Task::Enter(child));
    }

    fn set_path(&mut self, directory: &Directory) {
        self.path.clear();
        self.path.extend_from_slice(&self.plan.prefix);
        directory.append_path(&mut self.path);
    }

    fn record(&mut self, stat: Stat) {
        self.entries.push(relative(&self.plan, &self.path), Ok(stat));
    }

    fn trouble(&mut self, error: Error) {
        let error = error.at(place(&self.path));
        self.entries.push(relative(&self.plan, &self.path), Err(error));
    }

    /// Reports that the system refused an operation; an entry that vanished is a change, not a
    /// fault.
    fn denied(&mut self, what: &str, errno: Errno) {
        self.trouble(match errno {
            Errno::NOENT => Error::new(
                error::Kind::Changed,
                "this path was removed while the backup listed its directory",
            ),
            _ => Error::io(what, place(&self.path), errno),
        });
    }

    fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Replaced | Refusal::System(Errno::NOTDIR | Errno::LOOP) => {
                let what = "this directory was replaced while the backup listed its parent \
                            directory, so its content is not backed up";
                self.trouble(Error::new(error::Kind::Changed, what));
            }
            Refusal::System(errno) => self.denied("cannot open the directory", errno),
        }
    }

    fn push_task(&mut self, task: Task) {
        self.tasks.push((self.entries.len(), task));
    }
}

/// Returns the path below the root, which is empty for the root itself.
fn relative<'a>(plan: &Plan, path: &'a [u8]) -> &'a [u8] {
    path.get(plan.prefix.len() + 1..).unwrap_or_default()
}

/// Returns a path for messages, which is `/` if the path is empty.
pub(super) fn place(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(if path.is_empty() { b"/" } else { path }))
}

/// Returns the number of names in a slice, given the length of the directory's path.
fn slice_names(path_bytes: usize) -> usize {
    (SLICE_BYTES / (ENTRY_BYTES + path_bytes)).clamp(1, SLICE_NAMES_MAX)
}
