//! The entries of a snapshot that a restore selects, with their owners mapped.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::mounts::LinkMounts;
use crate::store::tree::TreeReader;
use crate::walk::{Exclude, RuleOrigin, WrittenRule};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::acl;
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::meta::{FileKind, Metadata};
use pinstripe_member::record::ChunkRow;
use pinstripe_member::tree::is_at_or_below;

/// Which owners restored entries get.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// Pairs of user ids, in the snapshot and in the target; the first matching pair counts.
    pub users: Vec<(u32, u32)>,
    /// Pairs of group ids, in the same way.
    pub groups: Vec<(u32, u32)>,
    /// Do not set owners: restored files belong to the user of this process.
    pub leave: bool,
}

impl Owners {
    fn apply(&self, meta: &mut Metadata) {
        let mapped = |map: &[(u32, u32)], number: u32| {
            map.iter().find(|(from, _)| *from == number).map_or(number, |(_, to)| *to)
        };
        meta.uid = mapped(&self.users, meta.uid);
        meta.gid = mapped(&self.groups, meta.gid);
        for (_, list) in meta.xattrs.iter_mut().filter(|(name, _)| acl::is_acl(name)) {
            acl::map(list, |user| mapped(&self.users, user), |group| mapped(&self.groups, group));
        }
        if self.leave {
            leave_acl(meta);
        }
        if self.leave && meta.kind != FileKind::Directory {
            // These bits lend the owner's rights, which must not become those of the user who
            // restores.
            meta.mode &= !0o6000;
        }
    }
}

/// Takes the access control lists off: the users and groups that they name are others here. What
/// the owning group may do stays the same.
fn leave_acl(meta: &mut Metadata) {
    let list = meta.xattrs.iter().find(|(name, _)| name == acl::ACCESS);
    if let Some(group) = list.and_then(|(_, list)| acl::group_permissions(list)) {
        meta.mode = meta.mode & !0o070 | group << 3;
    }
    meta.xattrs.retain(|(name, _)| !acl::is_acl(name));
}

/// Which entries are restored, by their absolute paths in the snapshot.
#[derive(Debug, Clone, Default)]
pub struct PathFilter {
    /// Only matching entries, with everything below them and the directories above them.
    pub include: Option<Exclude>,
    /// Everything but matching entries and what is below them.
    pub exclude: Option<Exclude>,
}

impl PathFilter {
    fn note(&self, path: &[u8], is_directory: bool) {
        let given = self.include.iter().chain(&self.exclude);
        given.for_each(|patterns| patterns.note(path, is_directory));
    }

    /// Reports the patterns that matched nothing, once all entries were read.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no pattern of `include` matched; if only some matched,
    /// the others are losses.
    pub(crate) fn report_unmet(&self, monitor: &Monitor) -> Result<()> {
        let excluded = self.exclude.iter().flat_map(Exclude::unmet);
        // The patterns of a list may be meant for other snapshots.
        for rule in excluded.filter(|it| matches!(it.origin, RuleOrigin::Option(_))) {
            let shown = shown(rule);
            monitor.note(&format!(
                "no path of the restored part matches --exclude {}",
                shown.display()
            ));
        }
        self.refuse_without_match()?;
        for rule in self.include.iter().flat_map(Exclude::unmet) {
            monitor.loss(shown(rule), no_match(rule));
        }
        Ok(())
    }

    /// Fails if there are patterns of `include` and no entry that was read matched any of them.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] and the first pattern.
    pub(crate) fn refuse_without_match(&self) -> Result<()> {
        let include = self.include.iter().filter(|include| include.is_wholly_unmet());
        match include.flat_map(Exclude::unmet).next() {
            Some(first) => Err(no_match(first).at(shown(first))),
            None => Ok(()),
        }
    }
}

fn shown(rule: &WrittenRule) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&rule.text))
}

fn no_match(rule: &WrittenRule) -> Error {
    let which = match &rule.origin {
        RuleOrigin::List(..) => format!("pattern in {}", rule.origin),
        _ => "--include".to_owned(),
    };
    let what = format!("no path of the restored part matches this {which}");
    Error::new(Kind::NotFound, what).advice(
        "a pattern must match a complete name or path of the snapshot, for example '*.jpg' or \
         '/home/*/mail'; 'pinstripe ls SNAPSHOT' lists the paths",
    )
}

/// A [`TreeReader`] that skips entries that are not selected. An unselected directory is returned
/// before the first selected entry below it.
pub(crate) struct ChosenReader<'a> {
    tree: TreeReader<'a>,
    filter: &'a PathFilter,
    owners: &'a Owners,
    /// Directories above the present position that no selected entry has needed yet.
    above: Vec<Entry>,
    ready: VecDeque<Entry>,
    /// The excluded or included directory that was found last.
    out: Option<Vec<u8>>,
    inside: Option<Vec<u8>>,
    mounts: Option<LinkMounts<'a>>,
}

impl<'a> ChosenReader<'a> {
    /// Makes a reader that selects from the entries of `tree`, and splits files whose names are on
    /// several of the `mounts` of the target.
    pub fn new(
        tree: TreeReader<'a>,
        filter: &'a PathFilter,
        owners: &'a Owners,
        mounts: Option<LinkMounts<'a>>,
    ) -> Self {
        let (above, ready) = (Vec::new(), VecDeque::new());
        ChosenReader { tree, filter, owners, above, ready, out: None, inside: None, mounts }
    }

    /// Returns the next selected entry, or `None` at the end.
    ///
    /// # Errors
    /// Fails with the errors of [`TreeReader::next_entry`].
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        while self.ready.is_empty() {
            let Some(mut entry) = self.tree.next_entry()? else { return Ok(None) };
            self.owners.apply(&mut entry.meta);
            self.judge(entry);
        }
        let mut entry = self.ready.pop_front();
        if let (Some(mounts), Some(entry)) = (&mut self.mounts, &mut entry)
            && entry.is_hard_linked()
        {
            mounts.split(entry);
        }
        Ok(entry)
    }

    /// Like [`TreeReader::lost_entries`].
    pub fn lost_entries(&self) -> u64 {
        self.tree.lost_entries()
    }

    fn judge(&mut self, entry: Entry) {
        let is_below = |top: &Option<Vec<u8>>| {
            top.as_ref().is_some_and(|top| is_at_or_below(&entry.path, top))
        };
        let is_directory = entry.meta.kind == FileKind::Directory;
        let absolute = [b"/", &entry.path[..]].concat();
        self.filter.note(&absolute, is_directory);
        if is_below(&self.out) {
            return;
        }
        let leaves_out = |exclude: &Exclude| exclude.leaves_out(&absolute, is_directory);
        if self.filter.exclude.as_ref().is_some_and(leaves_out) {
            self.out = is_directory.then(|| entry.path.clone());
            return;
        }
        let is_inside = is_below(&self.inside);
        if is_inside || self.filter.include.as_ref().is_none_or(leaves_out) {
            if is_directory && !is_inside {
                self.inside = Some(entry.path.clone());
            }
            while let Some(directory) = self.above.first()
                && is_at_or_below(&entry.path, &directory.path)
            {
                self.ready.push_back(self.above.remove(0));
            }
            self.above.clear();
            self.ready.push_back(entry);
        } else if is_directory {
            self.above.retain(|directory| is_at_or_below(&entry.path, &directory.path));
            self.above.push(entry);
        }
    }

    /// Like [`TreeReader::content`].
    ///
    /// # Errors
    /// Fails with the errors of it.
    pub fn content(&mut self, content: &Content) -> Result<Vec<ChunkRow>> {
        self.tree.content(content)
    }

    /// Like [`TreeReader::list`].
    ///
    /// # Errors
    /// Fails with the errors of it.
    pub fn list(&mut self, id: &ChunkId) -> Result<Vec<ChunkRow>> {
        self.tree.list(id)
    }
}
