//! What differs between two trees, in path order, without reading what they share.
//!
//! Invariants: a page or node that stands at the same place in both trees under the same id is
//! passed over unread, so the work grows with what differs and not with the trees; memory is one
//! page per level and tree. Entries that differ in anything come out, also where only what no
//! restore gives back (inode, ctime) did: what counts as a change is the caller's to say.

use std::cmp::Ordering;

use super::TreeReader;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::snapshot::TreeRoot;
use crate::format::tree::{Child, compare_paths};
use crate::store::packs::ChunkReader;

/// One path at which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The new tree alone has it.
    Added(Box<Entry>),
    /// The old tree alone has it.
    Removed(Box<Entry>),
    /// Both have it, the old and the new.
    Changed(Box<Entry>, Box<Entry>),
}

/// What a reader would give next: an entry, or a page or node with its height.
enum Next<'t> {
    Entry(&'t [u8]),
    Child(u8, &'t Child),
}

impl Next<'_> {
    fn path(&self) -> &[u8] {
        match self {
            Next::Entry(path) => path,
            Next::Child(_, child) => &child.first_path,
        }
    }

    /// How many levels stand between it and an entry.
    fn height(&self) -> u8 {
        match self {
            Next::Entry(_) => 0,
            Next::Child(height, _) => height + 1,
        }
    }
}

impl TreeReader<'_> {
    /// What comes next, nothing of it read yet.
    fn peek(&mut self) -> Option<Next<'_>> {
        while self.pending.last().is_some_and(|(_, children)| children.is_empty()) {
            self.pending.pop();
        }
        match (self.page.front(), self.pending.last()) {
            (Some(entry), _) => Some(Next::Entry(&entry.path)),
            (None, Some((height, children))) => children.front().map(|it| Next::Child(*height, it)),
            (None, None) => None,
        }
    }

    /// Takes the child that comes next without reading it.
    fn pass_over(&mut self) {
        if let Some((_, children)) = self.pending.last_mut() {
            children.pop_front();
        }
    }

    /// Reads the child that comes next.
    fn enter(&mut self) -> Result<()> {
        let Some((height, children)) = self.pending.last_mut() else { return Ok(()) };
        let height = *height;
        match children.pop_front() {
            Some(child) => self.descend(height, &child),
            None => Ok(()),
        }
    }

    fn take_entry(&mut self) -> Box<Entry> {
        Box::new(self.page.pop_front().expect("an entry was seen to come next"))
    }
}

/// Goes through two trees side by side.
pub struct TreeDiff<'a> {
    old: Option<TreeReader<'a>>,
    new: TreeReader<'a>,
}

enum Step {
    PassBoth,
    EnterOld,
    EnterNew,
    TakeOld,
    TakeNew,
    TakeBoth,
    End,
}

impl<'a> TreeDiff<'a> {
    /// From `old` to `new`; without an old tree all of the new one is added.
    ///
    /// # Errors
    /// [`Kind::Corrupt`](crate::error::Kind::Corrupt) for an impossible root.
    pub fn new(
        old: Option<(ChunkReader<'a>, &TreeRoot)>,
        new: (ChunkReader<'a>, &TreeRoot),
    ) -> Result<Self> {
        let old = old.map(|(chunks, root)| TreeReader::new(chunks, root, b"")).transpose()?;
        Ok(TreeDiff { old, new: TreeReader::new(new.0, new.1, b"")? })
    }

    /// The next difference in path order, `None` at the end.
    ///
    /// # Errors
    /// When a page or node cannot be read. What is below it is then missing from one side, so
    /// nothing that follows is to be believed.
    pub fn next_difference(&mut self) -> Result<Option<Difference>> {
        loop {
            let step = self.step();
            let Some(old) = &mut self.old else {
                match step {
                    Step::EnterNew => self.new.enter()?,
                    Step::End => return Ok(None),
                    _ => return Ok(Some(Difference::Added(self.new.take_entry()))),
                }
                continue;
            };
            match step {
                Step::PassBoth => {
                    old.pass_over();
                    self.new.pass_over();
                }
                Step::EnterOld => old.enter()?,
                Step::EnterNew => self.new.enter()?,
                Step::TakeOld => return Ok(Some(Difference::Removed(old.take_entry()))),
                Step::TakeNew => return Ok(Some(Difference::Added(self.new.take_entry()))),
                Step::TakeBoth => {
                    let (old, new) = (old.take_entry(), self.new.take_entry());
                    if old != new {
                        return Ok(Some(Difference::Changed(old, new)));
                    }
                }
                Step::End => return Ok(None),
            }
        }
    }

    /// Whatever begins first is dealt with first; of two that begin alike, the higher is entered,
    /// until both are of one height and can be held against each other.
    fn step(&mut self) -> Step {
        let old = self.old.as_mut().and_then(TreeReader::peek);
        let new = self.new.peek();
        let enter = |next: &Next<'_>, child, entry| match next {
            Next::Child(..) => child,
            Next::Entry(_) => entry,
        };
        let (old, new) = match (old, new) {
            (None, None) => return Step::End,
            (Some(old), None) => return enter(&old, Step::EnterOld, Step::TakeOld),
            (None, Some(new)) => return enter(&new, Step::EnterNew, Step::TakeNew),
            (Some(old), Some(new)) => (old, new),
        };
        let order =
            compare_paths(old.path(), new.path()).then_with(|| new.height().cmp(&old.height()));
        match (order, &old, &new) {
            (Ordering::Less, old, _) => enter(old, Step::EnterOld, Step::TakeOld),
            (Ordering::Greater, _, new) => enter(new, Step::EnterNew, Step::TakeNew),
            (Ordering::Equal, Next::Child(_, old), Next::Child(_, new)) if old.id == new.id => {
                Step::PassBoth
            }
            (Ordering::Equal, Next::Child(..), _) => Step::EnterOld,
            (Ordering::Equal, Next::Entry(_), _) => Step::TakeBoth,
        }
    }
}
