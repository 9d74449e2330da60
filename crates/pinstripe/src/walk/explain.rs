//! Explains why a walk takes or leaves out one path: the same decisions as those of `scan`, but only
//! on the way from the root to this path.
//!
//! Reads the metadata of the directories on the way, their tags and their ignore files, and nothing
//! else.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;

use super::WalkOptions;
use super::directory::{Directory, FdBudget, Refusal, open_directory, read_stat};
use super::exclude::{Excess, Exclude};
use super::ignore::{IgnoreFault, IgnoreRules};
use super::named::Named;
use super::rules::WrittenRule;
use super::scan::place;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::meta::{FileKind, Stat};

/// Whether a path is saved, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Whether a backup saves the path.
    pub is_saved: bool,
    /// What decides.
    pub reason: Reason,
    /// The absolute path to which the reason applies: the path itself or a directory above it.
    pub at: Vec<u8>,
}

/// What decides whether a path is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Nothing excludes it.
    Nothing,
    /// The user named it.
    Named,
    /// It is a directory on the way to a named path: only its entry is saved.
    OnTheWay,
    /// A rule.
    Rule(WrittenRule),
    /// Its directory has this tag, which is saved alone.
    Tag(CString),
    /// It is in another file system.
    FileSystem,
    /// The directory contains itself through a mount.
    Loop,
    /// It has more bytes than the limit.
    Larger,
    /// It was modified before the limit.
    Older,
}

impl Reason {
    /// The word for this reason in events.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Nothing => "nothing",
            Reason::Named => "named",
            Reason::OnTheWay => "on_the_way",
            Reason::Rule(_) => "rule",
            Reason::Tag(_) => "tag",
            Reason::FileSystem => "file_system",
            Reason::Loop => "loop",
            Reason::Larger => "larger",
            Reason::Older => "older",
        }
    }
}

/// Explains what a walk of `root` does with `path`, which is `root` or below it; both are absolute,
/// and `root` is empty for `/`. Faults of ignore files are passed to `report` with their paths.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if the path does not exist, or with the error of a directory on the
/// way that cannot be read.
pub fn explain(
    root: &[u8],
    path: &[u8],
    options: &WalkOptions,
    report: &mut dyn FnMut(&Path, Error),
) -> Result<Explanation> {
    read_stat(CWD, &c_string(if path.is_empty() { b"/" } else { path })?)
        .map_err(|errno| Error::of_named("cannot examine this path", place(path), errno))?;
    let named = Explanation { is_saved: true, reason: Reason::Named, at: path.to_vec() };
    let Some(below) = path.get(root.len() + 1..) else { return Ok(named) };
    let mut way = Way::begin(root, options, report)?;
    let mut names = below.split(|&byte| byte == b'/').peekable();
    let mut found = named;
    while let Some(name) = names.next() {
        let step = way.step(name)?;
        found = step.found;
        if names.peek().is_none() || !found.is_saved {
            break;
        }
        match step.below {
            Ok((directory, bar)) => way.enter(directory, bar)?,
            Err((reason, at)) => return Ok(Explanation { is_saved: false, reason, at }),
        }
    }
    Ok(found)
}

/// Why only the way to named paths is taken in a directory, and where this began.
type Bar = (Reason, Vec<u8>);

/// The decision about one entry, and the directory to enter next, or why it is not entered.
struct StepFound {
    found: Explanation,
    below: Result<(Directory, Option<Bar>), Bar>,
}

/// The directory that was reached.
struct Way<'a> {
    options: &'a WalkOptions,
    named: Named,
    budget: FdBudget,
    directory: Arc<Directory>,
    path: Vec<u8>,
    /// The tags of the directory; if there are any, the other content is left out.
    tags: Vec<CString>,
    bar: Option<Bar>,
    report: &'a mut dyn FnMut(&Path, Error),
}

impl<'a> Way<'a> {
    fn begin(
        root: &[u8],
        options: &'a WalkOptions,
        report: &'a mut dyn FnMut(&Path, Error),
    ) -> Result<Self> {
        let io = |errno| cannot(root, errno);
        let name = c_string(if root.is_empty() { b"/" } else { root })?;
        let fd = open_directory(CWD, &name).map_err(io)?;
        let stat = read_stat(fd.as_fd(), c"").map_err(io)?.stat;
        let identity = stat.ok_or_else(|| io(Errno::NOTDIR))?.identity();
        let named = Named::new(options.named.clone());
        let mut directory = Directory::root(fd, identity, named.all());
        let (tags, path) = (Vec::new(), root.to_vec());
        directory.ignore = read_ignore_files(&options.exclude, &directory, &path, report);
        let (directory, bar) = (Arc::new(directory), None);
        // Each directory on the way keeps its descriptor.
        let budget = FdBudget::new(usize::MAX);
        Ok(Way { options, named, budget, directory, path, tags, bar, report })
    }

    fn enter(&mut self, mut directory: Directory, bar: Option<Bar>) -> Result<()> {
        let fd = directory.open().map_err(|refusal| match refusal {
            Refusal::System(errno) => cannot(&self.path, errno),
            Refusal::Replaced => {
                Error::new(Kind::Changed, "this directory was just replaced").at(place(&self.path))
            }
        })?;
        directory.keep(fd, &self.budget);
        let exclude = &self.options.exclude;
        let at = kept(&directory);
        self.bar = bar;
        self.tags.clear();
        if !directory.is_passage {
            let tags = exclude.tags().filter(|_| !directory.was_named);
            let found = tags.filter(|tag| has(at, tag.name()) && tag.marks(at));
            self.tags = found.map(|tag| tag.name().to_owned()).collect();
            match self.tags.first() {
                Some(tag) => {
                    self.bar = Some((Reason::Tag(tag.clone()), self.path.clone()));
                    directory.is_passage = true;
                }
                None => {
                    directory.ignore =
                        read_ignore_files(exclude, &directory, &self.path, self.report);
                }
            }
        }
        self.directory = Arc::new(directory);
        Ok(())
    }

    /// Decides about the entry `name` of the directory.
    fn step(&mut self, name: &[u8]) -> Result<StepFound> {
        self.path.push(b'/');
        self.path.extend_from_slice(name);
        let lead = self.named.lead(&self.directory.named, &self.path);
        let name = c_string(name)?;
        let seen = read_stat(kept(&self.directory), &name).map_err(|it| cannot(&self.path, it))?;
        let stat = seen.stat.ok_or_else(|| {
            Error::new(Kind::Unsupported, "the type of this file is unknown").at(place(&self.path))
        })?;
        let here = |reason| (reason, self.path.clone());
        if let Some(bar) = &self.bar
            && lead.is_none()
            && !self.tags.contains(&name)
        {
            let (reason, at) = bar.clone();
            let found = Explanation { is_saved: false, reason, at };
            return Ok(StepFound { found, below: Err(bar.clone()) });
        }
        let (is_excluded, reason) = self.judge(&stat);
        let is_directory = stat.kind == FileKind::Directory;
        let is_other_system = is_directory
            && self.options.one_file_system
            && (seen.is_mount_point || stat.device != self.directory.device());
        let is_loop = is_directory && self.directory.is_within(stat.identity());
        // Why the directory is not entered, if it is not.
        let bar = match (&self.bar, lead.named) {
            (_, Some(_)) => None,
            (Some(bar), _) => Some(bar.clone()),
            (None, None) if is_excluded => Some(here(reason.clone())),
            (None, None) if is_other_system => Some(here(Reason::FileSystem)),
            (None, None) if is_loop => Some(here(Reason::Loop)),
            (None, None) => None,
        };
        let leads = !lead.below.is_empty();
        let (is_saved, reason) = match (lead.named, leads, &self.bar) {
            (Some(_), ..) => (true, Reason::Named),
            (None, true, Some(_)) => (true, Reason::OnTheWay),
            (None, true, None) if is_excluded => (true, Reason::OnTheWay),
            _ => (!is_excluded, reason),
        };
        let found = Explanation { is_saved, reason, at: self.path.clone() };
        let below = match bar {
            Some(bar) if !leads => Err(bar),
            bar => {
                let mut child = Directory::below(self.directory.clone(), name, stat.identity());
                child.named = lead.below.clone();
                child.was_named = lead.named.is_some();
                child.is_passage = bar.is_some();
                Ok((child, bar))
            }
        };
        Ok(StepFound { found, below })
    }

    /// Whether rules and limits exclude the entry that the path leads to, and what decides.
    fn judge(&self, stat: &Stat) -> (bool, Reason) {
        let exclude = &self.options.exclude;
        let deciders = exclude.deciders(&self.path, self.directory.ignore.as_deref());
        let is_directory = stat.kind == FileKind::Directory;
        let rule = if is_directory { deciders.directory } else { deciders.other };
        let by_rule = rule.map(|rule| (!rule.is_negated, Reason::Rule(rule.written.clone())));
        match (by_rule, exclude.excess(stat)) {
            (Some((true, reason)), _) => (true, reason),
            (_, Some(Excess::Larger)) => (true, Reason::Larger),
            (_, Some(Excess::Older)) => (true, Reason::Older),
            (Some(included), None) => included,
            (None, None) => (false, Reason::Nothing),
        }
    }
}

fn read_ignore_files(
    exclude: &Exclude,
    directory: &Directory,
    path: &[u8],
    report: &mut dyn FnMut(&Path, Error),
) -> Option<Arc<IgnoreRules>> {
    let at = kept(directory);
    let mut ignore = directory.ignore.clone();
    for file in exclude.ignore_files().filter(|file| has(at, file.name())) {
        let shown = [path, b"/", file.name().to_bytes()].concat();
        ignore = IgnoreRules::read(file, at, path, ignore, &mut |fault| {
            let error = match fault {
                IgnoreFault::Text(error) => error,
                IgnoreFault::System(errno) => cannot(&shown, errno),
            };
            report(place(&shown), error);
        });
    }
    ignore
}

fn kept(directory: &Directory) -> BorrowedFd<'_> {
    directory.kept().expect("each directory on the way keeps its descriptor")
}

fn has(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn cannot(path: &[u8], errno: Errno) -> Error {
    Error::io("cannot read", place(path), errno)
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    let what = "a path cannot contain a NUL byte";
    CString::new(bytes).map_err(|_| Error::new(Kind::Usage, what).at(place(bytes)))
}
