//! The directories of the mount itself, which are in no snapshot.
//!
//! ```text
//! hosts/HOST/TIME/   a snapshot        hosts/HOST/latest   a link to the newest of the host
//! ids/ID             a link to it      latest              a link to the newest of all
//! tags/TAG/TIME      a link to it          versions            every version of every file
//! ```
//!
//! Each snapshot is a directory at one place only and links elsewhere, so that every file has
//! exactly one parent directory. A directory keeps its inode number during the mount.

use std::collections::{BTreeMap, HashMap};

use super::inode::{Inode, ORDINALS};
use pinstripe_base::id::SnapshotId;
use pinstripe_io::file_tree::ROOT;
use pinstripe_member::snapshot::Snapshot;

/// Makes the name of a snapshot from the second at which its backup began.
pub(crate) type NameOfTime = fn(i64) -> String;

/// The object that has a certain name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Child {
    Directory(u64),
    Snapshot(u64),
    Link(u64),
    /// The directory of all versions.
    Versions,
}

/// One directory or link of the mount itself.
#[derive(Debug, Clone, Default)]
struct Own {
    children: BTreeMap<Vec<u8>, Child>,
    /// The target of a link.
    target: Vec<u8>,
    seconds: i64,
}

/// The directories.
pub(super) struct Top {
    name_of_time: NameOfTime,
    /// Directories and links, indexed by number minus 1.
    own: Vec<Own>,
    /// The inode numbers of all entries that were ever shown, by path.
    numbers: HashMap<Vec<u8>, u64>,
    /// All snapshots that were ever shown, indexed by ordinal minus 1.
    shown: Vec<Snapshot>,
    ordinals: HashMap<SnapshotId, u64>,
    /// The number of changes so far: each change has a time of its own.
    changes: u32,
    has_versions: bool,
}

impl Top {
    pub(super) fn new(name_of_time: NameOfTime, has_versions: bool) -> Self {
        let mut top = Top {
            name_of_time,
            has_versions,
            own: Vec::new(),
            numbers: HashMap::new(),
            shown: Vec::new(),
            ordinals: HashMap::new(),
            changes: 0,
        };
        top.number(b"");
        top
    }

    /// The number of snapshots that are shown now.
    pub(super) fn snapshots(&self) -> usize {
        self.ordinals_now().count()
    }

    /// The ordinals of the snapshots that are shown now.
    fn ordinals_now(&self) -> impl Iterator<Item = u64> {
        let children = self.own.iter().flat_map(|own| own.children.values());
        children.filter_map(|child| match child {
            Child::Snapshot(ordinal) => Some(*ordinal),
            _ => None,
        })
    }

    /// The snapshots that are shown now.
    pub(super) fn shown_now(&self) -> impl Iterator<Item = &Snapshot> {
        self.ordinals_now().filter_map(|ordinal| self.snapshot(ordinal))
    }

    /// The ordinals of the snapshots that are shown now, by id.
    pub(super) fn ordinals_by_id(&self) -> HashMap<SnapshotId, u64> {
        let ordinals = self.ordinals_now();
        ordinals.filter_map(|ordinal| Some((self.snapshot(ordinal)?.id, ordinal))).collect()
    }

    /// A number that changes whenever the set of shown snapshots changes.
    pub(super) fn changes(&self) -> u32 {
        self.changes
    }

    /// Shows these snapshots, oldest first, and no others. A snapshot that is shown already keeps
    /// its name and number.
    pub(super) fn show(&mut self, snapshots: &[Snapshot]) {
        self.changes = (self.changes + 1) % 1_000_000_000;
        let names = self.names(snapshots);
        for own in &mut self.own {
            own.children.clear();
        }
        for directory in [&b"hosts"[..], b"ids", b"tags"] {
            self.directory(directory);
        }
        if self.has_versions {
            self.put(b"", b"versions", Child::Versions, 0);
        }
        for (snapshot, name) in snapshots.iter().zip(names) {
            let Some(ordinal) = self.ordinal(snapshot) else { continue };
            let seconds = snapshot.created_seconds;
            let host = [b"hosts/", &safe(&snapshot.host)[..]].concat();
            self.put(&host, &name, Child::Snapshot(ordinal), seconds);
            self.link(&host, b"latest", &name, seconds);
            let place = [&host[..], b"/", &name].concat();
            self.link(b"ids", snapshot.id.to_string().as_bytes(), &up(1, &place), seconds);
            for tag in &snapshot.tags {
                let tag = [b"tags/", &safe(tag.as_bytes())[..]].concat();
                self.link(&tag, &name, &up(2, &place), seconds);
            }
            self.link(b"", b"latest", &place, seconds);
        }
    }

    /// Names of snapshots: their times; if a host has two snapshots in one second, the names also
    /// have their ids.
    fn names(&self, snapshots: &[Snapshot]) -> Vec<Vec<u8>> {
        let mut taken: HashMap<(&[u8], i64), SnapshotId> = HashMap::new();
        for snapshot in self.shown.iter().chain(snapshots) {
            taken.entry((&snapshot.host, snapshot.created_seconds)).or_insert(snapshot.id);
        }
        let name = |snapshot: &Snapshot| {
            let time = (self.name_of_time)(snapshot.created_seconds);
            match taken[&(&snapshot.host[..], snapshot.created_seconds)] == snapshot.id {
                true => time.into_bytes(),
                false => format!("{time}_{}", snapshot.id.short()).into_bytes(),
            }
        };
        snapshots.iter().map(name).collect()
    }

    fn ordinal(&mut self, snapshot: &Snapshot) -> Option<u64> {
        if let Some(&known) = self.ordinals.get(&snapshot.id) {
            return Some(known);
        }
        let ordinal = self.shown.len() as u64 + 1;
        (ordinal < ORDINALS).then(|| {
            self.shown.push(snapshot.clone());
            self.ordinals.insert(snapshot.id, ordinal);
            ordinal
        })
    }

    /// Returns the snapshot with an ordinal.
    pub(super) fn snapshot(&self, ordinal: u64) -> Option<&Snapshot> {
        self.shown.get(usize::try_from(ordinal).ok()?.checked_sub(1)?)
    }

    /// Returns the children of a directory; `None` if it is not a directory.
    pub(super) fn children(&self, number: u64) -> Option<&BTreeMap<Vec<u8>, Child>> {
        let own = self.own(number)?;
        own.target.is_empty().then_some(&own.children)
    }

    /// Returns the target of a link; `None` if it is not a link.
    pub(super) fn target(&self, number: u64) -> Option<&[u8]> {
        let own = self.own(number)?;
        (!own.target.is_empty()).then_some(&own.target[..])
    }

    /// Returns when the newest snapshot in a directory began; the nanoseconds distinguish changes.
    pub(super) fn time(&self, number: u64) -> (i64, u32) {
        (self.own(number).map_or(0, |own| own.seconds), self.changes)
    }

    fn own(&self, number: u64) -> Option<&Own> {
        self.own.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Returns the number of a path of the mount, which is new if the path was never shown.
    fn number(&mut self, path: &[u8]) -> u64 {
        if let Some(&number) = self.numbers.get(path) {
            return number;
        }
        self.own.push(Own::default());
        let number = self.own.len() as u64;
        debug_assert_eq!(Inode::of(number), Inode::Own(number));
        debug_assert!(!path.is_empty() || number == ROOT);
        self.numbers.insert(path.to_vec(), number);
        number
    }

    /// Returns the number of a directory, and creates its parents as needed.
    fn directory(&mut self, path: &[u8]) -> u64 {
        let number = self.number(path);
        let (parent, name) = split(path);
        if !path.is_empty() {
            let parent = self.directory(parent) as usize;
            self.own[parent - 1].children.insert(name.to_vec(), Child::Directory(number));
        }
        number
    }

    fn put(&mut self, directory: &[u8], name: &[u8], child: Child, seconds: i64) {
        let number = self.directory(directory) as usize;
        self.own[number - 1].children.insert(name.to_vec(), child);
        let mut path = directory;
        loop {
            let number = self.number(path) as usize;
            let newest = &mut self.own[number - 1].seconds;
            *newest = seconds.max(*newest);
            if path.is_empty() {
                return;
            }
            path = split(path).0;
        }
    }

    fn link(&mut self, directory: &[u8], name: &[u8], target: &[u8], seconds: i64) {
        let number = self.number(&[directory, b"/", name].concat());
        let own = &mut self.own[number as usize - 1];
        (own.target, own.seconds) = (target.to_vec(), seconds);
        self.put(directory, name, Child::Link(number), seconds);
    }
}

/// Returns a relative path that goes up `levels` directories and then to `place`.
fn up(levels: usize, place: &[u8]) -> Vec<u8> {
    [&b"../".repeat(levels)[..], place].concat()
}

/// The parent of a path and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Returns a word that users chose, in a form that can be the name of a directory.
fn safe(word: &[u8]) -> Vec<u8> {
    match word {
        b"" => b"_".to_vec(),
        b"." | b".." | b"latest" => [word, b"_"].concat(),
        _ => word.iter().map(|&byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).collect(),
    }
}
