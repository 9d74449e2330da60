//! Finds the differences between two trees, in path order, without reading what they share.
//!
//! Invariants: a page or node that is at the same position in both trees with the same id is
//! skipped without reading, so the work grows with the differences and not with the trees; memory
//! is one page per level and tree. If a page of one tree is lost, the paths that it may have held
//! are skipped, and the comparison continues after them. Entries that differ in any field are
//! reported, even in a field that no restore sets (inode, ctime): the caller decides what counts as
//! a change.

use std::cmp::Ordering;

use super::TreeReader;
use crate::store::packs::ChunkReader;
use pinstripe_base::error::Result;
use pinstripe_member::entry::Entry;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_member::tree::{Child, compare_paths};

/// One path at which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Only the new tree has the entry.
    Added(Box<Entry>),
    /// Only the old tree has the entry.
    Removed(Box<Entry>),
    /// Both trees have the path, with different entries: the old one, then the new one.
    Changed(Box<Entry>, Box<Entry>),
}

/// What a reader would return next: an entry, or a page or node with its height.
enum DiffNext<'t> {
    Entry(&'t [u8]),
    Child(u8, &'t Child),
}

impl DiffNext<'_> {
    fn path(&self) -> &[u8] {
        match self {
            DiffNext::Entry(path) => path,
            DiffNext::Child(_, child) => &child.first_path,
        }
    }

    /// The number of levels between this item and an entry.
    fn height(&self) -> u8 {
        match self {
            DiffNext::Entry(_) => 0,
            DiffNext::Child(height, _) => height + 1,
        }
    }
}

impl TreeReader<'_> {
    /// Returns the next item without reading any of it.
    fn peek(&mut self) -> Option<DiffNext<'_>> {
        while self.pending.last().is_some_and(|(_, children)| children.is_empty()) {
            self.pending.pop();
        }
        match (self.page.front(), self.pending.last()) {
            (Some(entry), _) => Some(DiffNext::Entry(&entry.path)),
            (None, Some((height, children))) => {
                children.front().map(|it| DiffNext::Child(*height, it))
            }
            (None, None) => None,
        }
    }

    /// Skips the next child without reading it.
    fn pass_over(&mut self) {
        if let Some((_, children)) = self.pending.last_mut() {
            children.pop_front();
        }
    }

    /// Reads the next child.
    fn enter(&mut self) -> Result<()> {
        let Some((height, children)) = self.pending.last_mut() else { return Ok(()) };
        let height = *height;
        match children.pop_front() {
            Some(child) => self.descend(height, &child),
            None => Ok(()),
        }
    }

    /// Returns where the item after the next child begins, or `None` when there is none.
    fn behind_next_child(&self) -> Option<&[u8]> {
        let mut passed = 1;
        for (_, children) in self.pending.iter().rev() {
            if let Some(child) = children.get(passed) {
                return Some(&child.first_path);
            }
            passed = 0;
        }
        None
    }

    /// Skips everything before `until`, without reading where possible.
    fn pass_until(&mut self, until: &PassUntil) -> Result<()> {
        loop {
            let is_child = match self.peek() {
                Some(next) if until.is_behind(next.path()) => matches!(next, DiffNext::Child(..)),
                _ => return Ok(()),
            };
            let is_before = match self.behind_next_child() {
                Some(path) => until.is_at_or_behind(path),
                None => matches!(until, PassUntil::End),
            };
            match (is_child, is_before) {
                (false, _) => drop(self.take_entry()),
                (true, true) => self.pass_over(),
                (true, false) => self.enter()?,
            }
        }
    }

    fn take_entry(&mut self) -> Box<Entry> {
        Box::new(self.page.pop_front().expect("an entry was seen to come next"))
    }
}

/// Up to where paths are skipped.
#[derive(Clone, PartialEq, Eq)]
enum PassUntil {
    Path(Vec<u8>),
    End,
}

impl PassUntil {
    fn is_behind(&self, path: &[u8]) -> bool {
        self.compare(path) == Ordering::Greater
    }

    fn is_at_or_behind(&self, path: &[u8]) -> bool {
        self.compare(path) != Ordering::Less
    }

    fn compare(&self, path: &[u8]) -> Ordering {
        match self {
            PassUntil::Path(until) => compare_paths(until, path),
            PassUntil::End => Ordering::Greater,
        }
    }
}

/// Walks through two trees side by side.
pub(crate) struct TreeDiff<'a> {
    old: Option<TreeReader<'a>>,
    new: TreeReader<'a>,
    /// Up to where nothing can be compared, because a page of one tree is lost.
    blind: Option<PassUntil>,
    lost_entries: u64,
}

#[derive(Clone, Copy)]
enum DiffSide {
    Old,
    New,
}

enum DiffStep {
    PassBoth,
    EnterOld,
    EnterNew,
    TakeOld,
    TakeNew,
    TakeBoth,
    End,
}

impl<'a> TreeDiff<'a> {
    /// Compares `old` with `new`; without an old tree, everything in the new one is added.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for an impossible root.
    pub fn new(
        old: Option<(ChunkReader<'a>, &TreeRoot)>,
        new: (ChunkReader<'a>, &TreeRoot),
    ) -> Result<Self> {
        let old = old.map(|(chunks, root)| TreeReader::new(chunks, root, b"")).transpose()?;
        let new = TreeReader::new(new.0, new.1, b"")?;
        Ok(TreeDiff { old, new, blind: None, lost_entries: 0 })
    }

    /// Returns the next difference in path order, or `None` at the end.
    ///
    /// # Errors
    /// Fails when a page or node cannot be read. The paths that the page may have held are then
    /// skipped in both trees, and a caller that reports the loss can compare the rest:
    /// [`lost_entries`](Self::lost_entries) returns how many entries were lost.
    pub(crate) fn next_difference(&mut self) -> Result<Option<Difference>> {
        loop {
            if let Some(until) = self.blind.take() {
                self.pass(DiffSide::Old, &until)?;
                self.pass(DiffSide::New, &until)?;
            }
            let step = self.step();
            match step {
                DiffStep::EnterOld => {
                    self.read(DiffSide::Old, |reader| reader.enter())?;
                    continue;
                }
                DiffStep::EnterNew => {
                    self.read(DiffSide::New, |reader| reader.enter())?;
                    continue;
                }
                _ => {}
            }
            let Some(old) = &mut self.old else {
                return match step {
                    DiffStep::End => Ok(None),
                    _ => Ok(Some(Difference::Added(self.new.take_entry()))),
                };
            };
            match step {
                DiffStep::PassBoth => {
                    old.pass_over();
                    self.new.pass_over();
                }
                DiffStep::EnterOld | DiffStep::EnterNew => {}
                DiffStep::TakeOld => return Ok(Some(Difference::Removed(old.take_entry()))),
                DiffStep::TakeNew => return Ok(Some(Difference::Added(self.new.take_entry()))),
                DiffStep::TakeBoth => {
                    let (old, new) = (old.take_entry(), self.new.take_entry());
                    if old != new {
                        return Ok(Some(Difference::Changed(old, new)));
                    }
                }
                DiffStep::End => return Ok(None),
            }
        }
    }

    /// The number of entries below the page or node for which the comparison last failed.
    pub fn lost_entries(&self) -> u64 {
        self.lost_entries
    }

    fn pass(&mut self, side: DiffSide, until: &PassUntil) -> Result<()> {
        let passed = self.read(side, |reader| reader.pass_until(until));
        if passed.is_err() && self.blind.as_ref().is_none_or(|blind| is_before(blind, until)) {
            // Both sides continue where the farther of the two losses ends.
            self.blind = Some(until.clone());
        }
        passed
    }

    /// Reads from one of the two trees. Paths that cannot be read in this tree are skipped in the
    /// other one.
    fn read(
        &mut self,
        side: DiffSide,
        read: impl FnOnce(&mut TreeReader<'_>) -> Result<()>,
    ) -> Result<()> {
        let reader = match (side, &mut self.old) {
            (DiffSide::New, _) => &mut self.new,
            (DiffSide::Old, Some(old)) => old,
            (DiffSide::Old, None) => return Ok(()),
        };
        read(reader).inspect_err(|_| {
            self.lost_entries = reader.lost_entries();
            let next = reader.peek().map(|next| PassUntil::Path(next.path().to_vec()));
            self.blind = Some(next.unwrap_or(PassUntil::End));
        })
    }

    /// Decides the next step: the item that begins first is processed first; of two that begin at
    /// the same path, the higher one is entered, until both have the same height and can be
    /// compared.
    fn step(&mut self) -> DiffStep {
        let old = self.old.as_mut().and_then(TreeReader::peek);
        let new = self.new.peek();
        let enter = |next: &DiffNext<'_>, child, entry| match next {
            DiffNext::Child(..) => child,
            DiffNext::Entry(_) => entry,
        };
        let (old, new) = match (old, new) {
            (None, None) => return DiffStep::End,
            (Some(old), None) => return enter(&old, DiffStep::EnterOld, DiffStep::TakeOld),
            (None, Some(new)) => return enter(&new, DiffStep::EnterNew, DiffStep::TakeNew),
            (Some(old), Some(new)) => (old, new),
        };
        let order =
            compare_paths(old.path(), new.path()).then_with(|| new.height().cmp(&old.height()));
        match (order, &old, &new) {
            (Ordering::Less, old, _) => enter(old, DiffStep::EnterOld, DiffStep::TakeOld),
            (Ordering::Greater, _, new) => enter(new, DiffStep::EnterNew, DiffStep::TakeNew),
            (Ordering::Equal, DiffNext::Child(_, old), DiffNext::Child(_, new))
                if old.id == new.id =>
            {
                DiffStep::PassBoth
            }
            (Ordering::Equal, DiffNext::Child(..), _) => DiffStep::EnterOld,
            (Ordering::Equal, DiffNext::Entry(_), _) => DiffStep::TakeBoth,
        }
    }
}

/// Whether one limit comes before another.
fn is_before(one: &PassUntil, other: &PassUntil) -> bool {
    match one {
        PassUntil::Path(path) => other.is_behind(path),
        PassUntil::End => false,
    }
}
