//! The directories of the mount itself, which are in no snapshot.
//!
//! ```text
//! hosts/HOST/TIME/   a snapshot        hosts/HOST/latest   a link to the newest of the host
//! ids/ID             a link to it      latest              a link to the newest of all
//! tags/TAG/TIME      a link to it          versions            every version of every file
//! ```
//!
//! Each snapshot is a directory at one place only and links elsewhere, so that every file has
//! exactly one parent directory. A directory keeps its inode number and its name during the mount.
//! Names never collide: hosts and tags are escaped so that different ones have different names, and
//! a snapshot whose time is taken in a directory has its id in its name there.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::inode::{Inode, ORDINALS};
use crate::store::snapshots::latest;
use pinstripe_base::clock;
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
    /// The name of a snapshot in a directory that has shown it, and the names that are taken.
    names: HashMap<(Vec<u8>, SnapshotId), Vec<u8>>,
    taken: HashSet<Vec<u8>>,
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
            names: HashMap::new(),
            taken: HashSet::new(),
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
        for own in &mut self.own {
            own.children.clear();
        }
        for directory in [&b"hosts"[..], b"ids", b"tags"] {
            self.directory(directory);
        }
        if self.has_versions {
            self.put(b"", b"versions", Child::Versions, 0);
        }
        for snapshot in snapshots {
            let Some(ordinal) = self.ordinal(snapshot) else { continue };
            let seconds = snapshot.created_seconds;
            let (host, name) = self.place(snapshot);
            self.put(&host, &name, Child::Snapshot(ordinal), seconds);
            let place = [&host[..], b"/", &name].concat();
            self.link(b"ids", snapshot.id.to_string().as_bytes(), &up(1, &place), seconds);
            for tag in &snapshot.tags {
                let tag = [b"tags/", &file_name(tag.as_bytes())[..]].concat();
                let name = self.name_in(&tag, snapshot);
                self.link(&tag, &name, &up(2, &place), seconds);
            }
        }
        self.show_latest(snapshots);
    }

    /// Links to the latest snapshot of each host, and of all.
    fn show_latest(&mut self, snapshots: &[Snapshot]) {
        let now = clock::now();
        let mut hosts: BTreeMap<&[u8], Vec<&Snapshot>> = BTreeMap::new();
        for snapshot in snapshots.iter().filter(|it| self.ordinals.contains_key(&it.id)) {
            hosts.entry(&snapshot.host).or_default().push(snapshot);
        }
        for of_host in hosts.values() {
            if let Some(latest) = latest(of_host.iter().copied(), now) {
                let (host, name) = self.place(latest);
                self.link(&host, b"latest", &name, latest.created_seconds);
            }
        }
        let all = snapshots.iter().filter(|it| self.ordinals.contains_key(&it.id));
        if let Some(latest) = latest(all, now).cloned() {
            let (host, name) = self.place(&latest);
            let place = [&host[..], b"/", &name].concat();
            self.link(b"", b"latest", &place, latest.created_seconds);
        }
    }

    /// The directory of a snapshot's host, and its name there.
    fn place(&mut self, snapshot: &Snapshot) -> (Vec<u8>, Vec<u8>) {
        let host = [b"hosts/", &file_name(&snapshot.host)[..]].concat();
        let name = self.name_in(&host, snapshot);
        (host, name)
    }

    /// The name of a snapshot in a directory: its time; if another one has that, also its id.
    fn name_in(&mut self, directory: &[u8], snapshot: &Snapshot) -> Vec<u8> {
        let key = (directory.to_vec(), snapshot.id);
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let time = (self.name_of_time)(snapshot.created_seconds);
        let with_id = |id: String| format!("{time}_{id}");
        let names = [time.clone(), with_id(snapshot.id.short()), with_id(snapshot.id.to_string())];
        let path = |name: &String| [directory, b"/", name.as_bytes()].concat();
        let name = names.iter().find(|name| !self.taken.contains(&path(name)));
        // Ids are unique, so the last name is free.
        let name = name.unwrap_or(&names[2]);
        self.taken.insert(path(name));
        self.names.insert(key, name.clone().into_bytes());
        name.clone().into_bytes()
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
        debug_assert_eq!(Inode::from_number(number), Inode::Own(number));
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

/// The longest name of a file.
const NAME_MAX_BYTES: usize = 255;

/// A word that users gave, as a name of a directory: the word itself, or with bytes that a name
/// cannot have as `%XX`. Different words have different names.
fn file_name(word: &[u8]) -> Vec<u8> {
    let escaped = |byte: &u8| match byte {
        b'/' | b'%' | 0 => format!("%{byte:02X}").into_bytes(),
        _ => vec![*byte],
    };
    match word {
        b"" => b"%".to_vec(),
        b"." => b"%2E".to_vec(),
        b".." => b"%2E%2E".to_vec(),
        _ => {
            let name = word.iter().flat_map(escaped).collect::<Vec<_>>();
            if name.len() <= NAME_MAX_BYTES {
                return name;
            }
            let hash = blake3::hash(word).to_hex();
            [&name[..NAME_MAX_BYTES - 1 - hash.len()], b"%", hash.as_bytes()].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::{ChunkId, StoreId};
    use pinstripe_member::snapshot::TreeRoot;

    fn snapshot(number: u8, host: &str) -> Snapshot {
        Snapshot {
            store: StoreId([0; 16]),
            // The short names of all are the same.
            id: SnapshotId([[7; 15].as_slice(), &[number]].concat().try_into().unwrap()),
            created_seconds: 1_700_000_000 + i64::from(number),
            created_nanos: 0,
            host: host.into(),
            program: String::new(),
            sources: Vec::new(),
            parent: None,
            root: TreeRoot { id: ChunkId([0; ChunkId::LEN]), height: 0, entries: 0 },
            counts: Vec::new(),
            tags: vec!["nightly".to_owned()],
            comment: String::new(),
        }
    }

    fn children<'t>(top: &'t Top, path: &[u8]) -> Vec<&'t Child> {
        top.children(top.numbers[path]).unwrap().values().collect()
    }

    /// All have the same local time, as in the hour of a change to winter time.
    #[test]
    fn snapshots_of_one_time_have_names_of_their_own() {
        let hosts = ["a/b", "a_b", "a_b", "a_b", "c"];
        let all: Vec<_> = (0..5).map(|n| snapshot(n, hosts[usize::from(n)])).collect();
        let mut top = Top::new(|_| "time".to_owned(), false);
        // Shown one after the other, none takes the name of an earlier one.
        for shown in 1..=all.len() {
            top.show(&all[..shown]);
            assert_eq!(top.snapshots(), shown);
            assert_eq!(children(&top, b"ids").len(), shown);
            assert_eq!(children(&top, b"tags/nightly").len(), shown);
        }
        assert_eq!(children(&top, b"hosts").len(), 3);
        assert_eq!(children(&top, b"hosts/a_b").len(), 3 + 1, "and latest");
        let targets: HashSet<_> = children(&top, b"ids")
            .into_iter()
            .map(|child| match child {
                Child::Link(number) => top.target(*number).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(targets.len(), all.len());
    }

    #[test]
    fn different_words_have_different_names() {
        let long = vec![b'x'; 300];
        let longer = vec![b'x'; 301];
        let words: [&[u8]; 14] = [
            b"", b".", b"..", b"/", b"%", b"_", b"%2E", b"%2F", b"a/b", b"a_b", b"a%2Fb", b"a\0b",
            &long, &longer,
        ];
        let names: HashSet<_> = words.iter().map(|word| file_name(word)).collect();
        assert_eq!(names.len(), words.len());
        for name in names {
            assert!(!name.is_empty() && name.len() <= NAME_MAX_BYTES, "{name:?}");
            assert!(!name.contains(&b'/') && name != b"." && name != b"..");
        }
        assert_eq!(
            (file_name(b"web-1"), file_name(b"a/b")),
            (b"web-1".to_vec(), b"a%2Fb".to_vec())
        );
    }
}
