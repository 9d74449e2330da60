//! What a backup contains and what a restore changes, by doc/semantics.md alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::tree::{NodeKind, NodeTree, SIGNATURE, TAG, TreeNode};

/// A pattern by the rules that `backup --help` lists.
#[derive(Debug, Clone)]
pub struct ModelPattern(pub Vec<u8>);

impl ModelPattern {
    pub fn matches(&self, path: &Path, is_directory: bool) -> bool {
        let text = &self.0[..];
        let body = text.strip_suffix(b"/").unwrap_or(text);
        if body.len() < text.len() && !is_directory {
            return false;
        }
        let names: Vec<_> = path.iter().skip(1).map(|name| name.as_bytes()).collect();
        let parts = |body: &'_ [u8]| {
            body.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        match body.strip_prefix(b"/") {
            Some(body) => components(&parts(body), &names),
            None => (0..names.len()).any(|from| components(&parts(body), &names[from..])),
        }
    }
}

fn components(pattern: &[Vec<u8>], names: &[&[u8]]) -> bool {
    match pattern.split_first() {
        None => names.is_empty(),
        Some((any, [])) if any == b"**" => !names.is_empty(),
        Some((any, rest)) if any == b"**" => {
            (0..=names.len()).any(|from| components(rest, &names[from..]))
        }
        Some((part, rest)) => match names.split_first() {
            Some((name, names)) => bytes(part, name) && components(rest, names),
            None => false,
        },
    }
}

fn bytes(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|from| bytes(rest, &name[from..])),
        ([b'?', rest @ ..], [_, name @ ..]) => bytes(rest, name),
        ([b'\\', literal, rest @ ..], [byte, name @ ..]) => literal == byte && bytes(rest, name),
        ([b'[', first, second, b']', rest @ ..], [byte, name @ ..]) => {
            (first == byte || second == byte) && bytes(rest, name)
        }
        ([literal, rest @ ..], [byte, name @ ..]) => literal == byte && bytes(rest, name),
        _ => false,
    }
}

pub fn any_matches(patterns: &[ModelPattern], path: &Path, is_directory: bool) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path, is_directory))
}

/// Whether the last pattern that matches excludes the path: a negated one includes it again.
pub fn excludes(patterns: &[ModelPattern], path: &Path, is_directory: bool) -> bool {
    let positive = |pattern: &ModelPattern| match pattern.0.strip_prefix(b"!") {
        Some(text) => (false, ModelPattern(text.to_vec())),
        None => (true, pattern.clone()),
    };
    let mut last_first = patterns.iter().rev().map(positive);
    let found = last_first.find(|(_, pattern)| pattern.matches(path, is_directory));
    found.is_some_and(|(excludes, _)| excludes)
}

/// The command line of a backup, with its paths as they are resolved.
#[derive(Debug, Clone, Default)]
pub struct BackupAsked {
    pub roots: Vec<PathBuf>,
    pub missing: Vec<PathBuf>,
    pub is_list: bool,
    pub patterns: Vec<ModelPattern>,
    pub caches: bool,
    pub one_file_system: bool,
}

impl BackupAsked {
    /// Returns the sources that the snapshot records.
    pub fn sources(&self) -> Vec<PathBuf> {
        let missing = if self.is_list { &[][..] } else { &self.missing };
        // Where `..` leads from a missing directory is unknown.
        let missing = missing.iter().filter(|path| !path.iter().any(|name| name == ".."));
        let all: BTreeSet<_> = self.roots.iter().chain(missing).cloned().collect();
        let is_topmost = |path: &&PathBuf| {
            !self.is_list || !all.iter().any(|other| other != *path && path.starts_with(other))
        };
        all.iter().filter(is_topmost).cloned().collect()
    }

    /// Returns the paths that the snapshot has, and for each whether it is a directory that the
    /// backup entered. `tree` has everything below a directory that holds all roots.
    pub fn saved(&self, tree: &NodeTree, mounts: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, bool> {
        let mut saved = BTreeMap::new();
        for (path, seen) in tree {
            let reached = self.roots.iter().filter_map(|root| self.reach(tree, mounts, root, path));
            let is_above = self.roots.iter().any(|root| root.starts_with(path));
            let is_entered = match reached.max() {
                Some(is_entered) => is_entered,
                None if is_above => false,
                None => continue,
            };
            saved.insert(path.clone(), is_entered && seen.is_directory());
        }
        saved
    }

    /// Whether the walk of `root` takes `path`; and if so, whether it enters it.
    pub fn reach(
        &self,
        tree: &NodeTree,
        mounts: &BTreeSet<PathBuf>,
        root: &Path,
        path: &Path,
    ) -> Option<bool> {
        let below = path.strip_prefix(root).ok()?;
        let mut at = root.to_path_buf();
        let mut is_entered = true;
        for name in below {
            if !is_entered {
                return None;
            }
            let is_cache = self.caches && at != root && is_cache(tree, &at);
            at.push(name);
            if is_cache && name.as_bytes() != TAG.as_bytes() {
                return None;
            }
            if excludes(&self.patterns, &at, tree[&at].is_directory()) {
                return None;
            }
            is_entered = !(self.one_file_system && mounts.contains(&at));
        }
        Some(is_entered)
    }
}

fn is_cache(tree: &NodeTree, directory: &Path) -> bool {
    tree.get(&directory.join(TAG))
        .is_some_and(|tag| tag.kind == NodeKind::File && tag.content.starts_with(SIGNATURE))
}

/// A snapshot as the model has it.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    pub id: String,
    pub tree: NodeTree,
    /// The directories that the backup entered.
    pub entered: BTreeSet<PathBuf>,
    pub sources: Vec<PathBuf>,
    pub losses: usize,
}

/// The command line of a restore.
#[derive(Debug, Clone, Default)]
pub struct RestoreAsked {
    /// The PATH of SNAPSHOT:PATH.
    pub path: PathBuf,
    /// The directory that PATH becomes.
    pub to: PathBuf,
    /// Without `--to`.
    pub to_origin: bool,
    pub overwrite: bool,
    pub in_place: bool,
    pub checksum: bool,
    pub delete: bool,
    pub yes: bool,
    /// Of the real run: a dry run writes nothing that could be read again.
    pub verify: bool,
    pub include: Vec<ModelPattern>,
    pub exclude: Vec<ModelPattern>,
}

/// What is at a path after a restore.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub seen: TreeNode,
    pub inode: Inode,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Inode {
    /// The inode that was there before.
    Same((u64, u64)),
    /// A new inode, the same for all names with this first name.
    New(PathBuf),
    /// One of both: the file has names that the restore may replace first.
    Any(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    Make,
    Change,
    Remove,
}

/// What a restore does.
#[derive(Debug, Default)]
pub struct Outcome {
    pub code: i32,
    pub acts: BTreeSet<(Act, PathBuf)>,
    pub kept: u64,
    pub removed: u64,
    /// The content of removed files, each counted once.
    pub removed_bytes: u64,
    removed_files: BTreeSet<(u64, u64)>,
    pub lost: BTreeSet<PathBuf>,
    pub warned: BTreeSet<PathBuf>,
    pub after: BTreeMap<PathBuf, Wanted>,
    /// Files whose content differs from the snapshot's, which is not seen without `--verify`.
    pub differ: BTreeSet<PathBuf>,
    /// Entries that are correct already: their ctime stays.
    pub untouched: BTreeSet<PathBuf>,
    /// Directories whose times are not restored, but follow from what is restored in them.
    pub loose: BTreeSet<PathBuf>,
}

type LinkKey = ((u64, u64), Option<PathBuf>);

/// The first name of a file with several names, after the restore.
struct First {
    inode: Inode,
    seen: TreeNode,
}

/// A restore of a snapshot onto a tree.
pub struct Restore<'a> {
    pub saved: &'a Saved,
    pub asked: &'a RestoreAsked,
    pub before: &'a NodeTree,
    pub mounts: &'a BTreeSet<PathBuf>,
}

impl Restore<'_> {
    /// Returns the path in the target of an entry of the snapshot.
    fn place(&self, path: &Path) -> PathBuf {
        let RestoreAsked { path: below, to, to_origin, .. } = self.asked;
        match path.strip_prefix(below) {
            _ if *to_origin => path.to_path_buf(),
            Ok(rest) if rest.as_os_str().is_empty() => match self.saved.tree[path].kind {
                NodeKind::Directory => to.clone(),
                _ => to.join(path.file_name().unwrap()),
            },
            Ok(rest) => to.join(rest),
            Err(_) => unreachable!("only entries below PATH are restored"),
        }
    }

    /// Returns the entries that are restored.
    fn chosen(&self) -> Vec<(&PathBuf, &TreeNode)> {
        let RestoreAsked { path: below, include, exclude, .. } = self.asked;
        let matches = |patterns: &[ModelPattern], path: &Path| {
            let up = path.ancestors().take_while(|it| it.starts_with(below));
            let entries = up.filter_map(|it| Some((it, self.saved.tree.get(it)?)));
            entries.into_iter().any(|(it, seen)| any_matches(patterns, it, seen.is_directory()))
        };
        let is_chosen =
            |path: &Path| (include.is_empty() || matches(include, path)) && !matches(exclude, path);
        let all = || self.saved.tree.iter().filter(|(path, _)| path.starts_with(below));
        let chosen: Vec<_> = all().filter(|(path, _)| is_chosen(path)).collect();
        let is_above = |path: &Path| chosen.iter().any(|(it, _)| it.starts_with(path));
        all().filter(|(path, _)| is_chosen(path) || is_above(path)).collect()
    }

    /// Returns the patterns of `--include` that match nothing at and below PATH.
    fn unmet(&self) -> usize {
        let all = || self.saved.tree.iter().filter(|(path, _)| path.starts_with(&self.asked.path));
        let is_met = |pattern: &&ModelPattern| {
            all().any(|(path, seen)| pattern.matches(path, seen.is_directory()))
        };
        self.asked.include.iter().filter(|it| !is_met(it)).count()
    }

    /// The paths in the target that the user named.
    fn named(&self) -> Vec<PathBuf> {
        let below = &self.asked.path;
        let sources = self.saved.sources.iter().filter(|it| it.starts_with(below));
        let rebased = |path: &PathBuf| match path.strip_prefix(below) {
            _ if self.asked.to_origin => path.clone(),
            Ok(rest) => self.asked.to.join(rest),
            Err(_) => unreachable!(),
        };
        sources.chain([below]).map(rebased).collect()
    }

    fn refused(&self) -> Outcome {
        let same = |seen: &TreeNode| Wanted { seen: seen.clone(), inode: Inode::Same(seen.id) };
        let after = self.before.iter().map(|(path, seen)| (path.clone(), same(seen))).collect();
        let untouched = self.before.keys().cloned().collect();
        Outcome { code: 14, after, untouched, ..Outcome::default() }
    }

    /// Whether an entry above a named path is no directory.
    fn is_blocked_above(&self) -> bool {
        let target = &self.asked.to;
        self.named().iter().any(|named| {
            let above = named.ancestors().skip(1).take_while(|it| it.starts_with(target));
            above.filter_map(|it| self.before.get(it)).any(|it| !it.is_directory())
        })
    }

    /// Whether anything is mounted at or below a path.
    fn holds_mount(&self, path: &Path) -> bool {
        self.mounts.iter().any(|at| at.starts_with(path))
    }

    /// Returns the outermost mount between the named path above and this directory.
    fn mount_above(&self, directory: &Path) -> Option<&PathBuf> {
        let named = self.named();
        let base = named.iter().filter(|named| directory.starts_with(named));
        let base = base.max_by_key(|it| it.as_os_str().len())?;
        self.mounts
            .iter()
            .find(|at| *at != base && at.starts_with(base) && directory.starts_with(at))
    }

    pub fn outcome(&self) -> Outcome {
        let RestoreAsked { overwrite, in_place, delete, yes, to_origin, .. } = self.asked;
        let is_empty = self.before.len() <= 1;
        if !is_empty && !overwrite && !in_place && !to_origin
            || self.is_blocked_above()
            || *delete && !yes && self.saved.losses > 0
        {
            return self.refused();
        }
        let mut outcome = Outcome::default();
        let entries = self.chosen();
        let mut groups = HashMap::<LinkKey, Vec<PathBuf>>::new();
        for (path, seen) in &entries {
            if seen.links > 1 && !seen.is_directory() {
                let place = self.place(path);
                groups.entry(self.key(seen, &place)).or_default().push(place);
            }
        }
        let mut firsts = HashMap::new();
        for (path, seen) in &entries {
            let place = self.place(path);
            if seen.is_directory() {
                self.directory(&mut outcome, seen, &place);
            } else {
                self.other(&mut outcome, seen, &place, &groups, &mut firsts);
            }
        }
        for (path, seen) in entries.iter().filter(|(_, seen)| seen.kind == NodeKind::File) {
            let place = self.place(path);
            let after = outcome.after.get(&place);
            if after.is_some_and(|it| it.seen.content != seen.content) {
                outcome.differ.insert(place);
            }
        }
        let is_alone = self.saved.tree.get(&self.asked.path).is_some_and(|it| !it.is_directory());
        if !entries.iter().any(|(path, _)| **path == self.asked.path) {
            outcome.loose.insert(self.asked.to.clone());
        } else if is_alone || *to_origin {
            outcome.loose.extend(self.place(&self.asked.path).parent().map(Path::to_path_buf));
        }
        if *delete {
            for (path, _) in entries.iter().filter(|(_, seen)| seen.is_directory()) {
                self.extras(&mut outcome, path);
            }
            let at_least = self.saved.tree.keys().filter(|it| it.starts_with(&self.asked.path));
            if !yes && outcome.removed > at_least.count() as u64 {
                return self.refused();
            }
        }
        for (path, seen) in self.before {
            let is_gone =
                outcome.acts.iter().any(|(act, at)| *act == Act::Remove && path.starts_with(at))
                    || path
                        .ancestors()
                        .skip(1)
                        .any(|it| outcome.after.get(it).is_some_and(|it| !it.seen.is_directory()));
            if !is_gone && !outcome.after.contains_key(path) {
                let wanted = Wanted { seen: seen.clone(), inode: Inode::Same(seen.id) };
                outcome.after.insert(path.clone(), wanted);
                outcome.untouched.insert(path.clone());
            }
        }
        let unmet = self.unmet();
        outcome.code = match () {
            () if unmet > 0 && unmet == self.asked.include.len() => 11,
            () if unmet > 0 || !outcome.lost.is_empty() => 3,
            () => 0,
        };
        outcome
    }

    fn directory(&self, outcome: &mut Outcome, seen: &TreeNode, place: &Path) {
        let is_target = *place == self.asked.to && !self.asked.to_origin;
        let before = self.before.get(place);
        let there = before.filter(|it| it.is_directory());
        let facts = |it: &TreeNode| (it.mode, it.owner, it.xattrs.clone());
        let is_alike = there.is_some_and(|it| facts(it) == facts(seen));
        let can_hold = self.asked.in_place || self.asked.overwrite;
        match (before, is_alike) {
            (None, _) if is_target => {}
            _ if is_target && !can_hold => {}
            (_, true) if is_target => {}
            (None, _) => drop(outcome.acts.insert((Act::Make, place.to_path_buf()))),
            (_, true) => outcome.kept += 1,
            _ => drop(outcome.acts.insert((Act::Change, place.to_path_buf()))),
        }
        let inode = match there {
            Some(it) => Inode::Same(it.id),
            None => Inode::New(place.to_path_buf()),
        };
        outcome.after.insert(place.to_path_buf(), Wanted { seen: seen.clone(), inode });
    }

    fn other(
        &self,
        outcome: &mut Outcome,
        seen: &TreeNode,
        place: &Path,
        groups: &HashMap<LinkKey, Vec<PathBuf>>,
        firsts: &mut HashMap<LinkKey, First>,
    ) {
        let before = self.before.get(place);
        if before.is_some_and(TreeNode::is_directory) && !self.clear(outcome, place) {
            outcome.lost.insert(place.to_path_buf());
            return;
        }
        let otherwise = if before.is_some() { Act::Change } else { Act::Make };
        let act = |outcome: &mut Outcome| outcome.acts.insert((otherwise, place.to_path_buf()));
        let key = self.key(seen, place);
        let names = groups.get(&key).map(Vec::as_slice).unwrap_or_default();
        if let Some(first) = firsts.get(&key).filter(|_| seen.links > 1) {
            let there = before.map(|it| Inode::Same(it.id));
            let is_linked = there.as_ref() == Some(&first.inode) && self.asked.in_place;
            if is_linked {
                outcome.kept += 1;
            } else {
                act(outcome);
            }
            let wanted = Wanted { seen: first.seen.clone(), inode: first.inode.clone() };
            outcome.after.insert(place.to_path_buf(), wanted);
            return;
        }
        let (wanted, is_kept) = self.alone(seen, place, names);
        if is_kept {
            outcome.kept += 1;
            outcome.untouched.insert(place.to_path_buf());
        } else {
            act(outcome);
        }
        if seen.links > 1 {
            let Wanted { seen: after, inode } = wanted.clone();
            firsts.insert(key, First { inode, seen: after });
        }
        outcome.after.insert(place.to_path_buf(), wanted);
    }

    /// Returns what a file, symlink or special file becomes under its first name, and whether it is
    /// correct already.
    fn alone(&self, seen: &TreeNode, place: &Path, names: &[PathBuf]) -> (Wanted, bool) {
        let new = Wanted { seen: seen.clone(), inode: Inode::New(place.to_path_buf()) };
        let Some(there) = self.before.get(place).filter(|it| it.kind == seen.kind) else {
            return (new, false);
        };
        let id = |path: &PathBuf| self.before.get(path).map(|it| it.id);
        let facts = |it: &TreeNode| (it.mode, it.owner, it.mtime, it.xattrs.clone());
        let has_metadata = facts(there) == facts(seen);
        let same = |content: &[u8]| {
            let seen = TreeNode { content: content.to_vec(), ..seen.clone() };
            Wanted { seen, inode: Inode::Same(there.id) }
        };
        if !self.asked.in_place {
            return (new, false);
        }
        if seen.kind != NodeKind::File {
            let has_all = seen.xattrs.iter().all(|it| there.xattrs.get(it.0) == Some(it.1));
            let facts = |it: &TreeNode| (it.mode, it.owner, it.mtime, it.content.clone());
            if !has_all || facts(there) != facts(seen) {
                return (new, false);
            }
            // What only the target has is not of the kind that a restore removes.
            let seen = TreeNode { xattrs: there.xattrs.clone(), ..seen.clone() };
            return (Wanted { seen, inode: Inode::Same(there.id) }, true);
        }
        let is_trusted = !self.asked.checksum
            && (there.size, there.mtime) == (seen.size, seen.mtime)
            && names.iter().all(|name| id(name) == Some(there.id));
        if !is_trusted && there.content != seen.content {
            return (new, false);
        }
        if has_metadata {
            return (same(&there.content), true);
        }
        let own = names.iter().filter(|name| id(name) == Some(there.id)).count() as u64;
        match there.links == own.max(1) {
            true => (same(&there.content), false),
            false => {
                let seen = TreeNode { content: there.content.clone(), ..seen.clone() };
                (Wanted { seen, inode: Inode::Any(place.to_path_buf()) }, false)
            }
        }
    }

    /// A file of the snapshot, on one mount of the target: no hard link leads to another mount.
    fn key(&self, seen: &TreeNode, place: &Path) -> LinkKey {
        let mount = self.mounts.iter().rfind(|at| place.starts_with(at));
        (seen.id, mount.cloned())
    }

    /// Makes room where a directory is in the way of something else; returns whether that works.
    fn clear(&self, outcome: &mut Outcome, place: &Path) -> bool {
        let inside = || self.before.iter().filter(|(path, _)| path.starts_with(place));
        if self.holds_mount(place) {
            return false;
        }
        if !self.asked.delete {
            return inside().count() == 1;
        }
        if self.mount_above(place.parent().unwrap()).is_some() {
            return false;
        }
        for (path, _) in inside() {
            outcome.acts.insert((Act::Remove, path.clone()));
        }
        self.count_removed(outcome, place);
        true
    }

    fn count_removed(&self, outcome: &mut Outcome, place: &Path) {
        for (_, seen) in self.before.iter().filter(|(path, _)| path.starts_with(place)) {
            outcome.removed += 1;
            if !seen.is_directory() && outcome.removed_files.insert(seen.id) {
                outcome.removed_bytes += seen.size;
            }
        }
    }

    /// Removes what the target has in a directory and the snapshot lacks.
    fn extras(&self, outcome: &mut Outcome, directory: &Path) {
        let is_below_source = self.saved.sources.iter().any(|it| directory.starts_with(it));
        if !self.saved.entered.contains(directory) || !is_below_source {
            return;
        }
        let place = self.place(directory);
        let is_child = |path: &Path| path.parent() == Some(&place) && path != place;
        let wanted: BTreeSet<_> = self
            .saved
            .tree
            .keys()
            .filter(|it| it.parent() == Some(directory))
            .map(|it| self.place(it))
            .collect();
        let extra: Vec<_> =
            self.before.keys().filter(|path| is_child(path) && !wanted.contains(*path)).collect();
        if let Some(mount) = self.mount_above(&place) {
            if !extra.is_empty() {
                outcome.warned.insert(mount.clone());
            }
            return;
        }
        for path in extra {
            if self.holds_mount(path) {
                outcome.warned.insert(path.clone());
                continue;
            }
            outcome.acts.insert((Act::Remove, path.clone()));
            self.count_removed(outcome, path);
        }
    }
}
