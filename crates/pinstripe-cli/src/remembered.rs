//! The memory of this host of the stores that it has opened: one small file for each store, in the
//! state directory.
//!
//! Invariants: a file is replaced whole and durably; one that is missing or damaged is as if the
//! store was new, and that is said once; a place belongs to one store, the one that was found
//! there last; without a state directory nothing is remembered and everything works. No secrets
//! are here, but places of members are: the files are for their owner alone.

mod file;

use std::path::{Path, PathBuf};

use pinstripe::format::label::Encryption;
use pinstripe::ops::seen::SeenSnapshot;
use pinstripe::store::Store;
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId, hex};
use pinstripe_base::monitor::Monitor;
use serde::{Deserialize, Serialize};

use crate::place;

/// Most names of a store that are kept: the ones used last.
const NAMES_MAX: usize = 16;
/// A store that is opened again within this time and has nothing new is not written again.
const OPENED_EVERY_SECONDS: i64 = 24 * 3600;

/// The record of one store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Whether this host has opened it with a key, or made it encrypted.
    pub encrypted: bool,
    /// Whether a user of this host said that it is meant to be readable.
    pub accepted_plain: bool,
    /// Absolute paths that it was named by, the last one first.
    pub named: Vec<Place>,
    /// The places of its members.
    pub members: Vec<MemberPlace>,
    /// The places of members that have left, the last one first: they may come back as another
    /// half.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Place>,
    /// The key slot that opened it last, as hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The highest generation of its table of members that was seen.
    #[serde(default)]
    pub table_generation: u64,
    /// The newest snapshot that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Newest>,
    /// Since when the store is known to be older than what was seen of it, until it is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_since_seconds: Option<i64>,
    /// When it was opened last, seconds since 1970, to a day.
    pub opened_seconds: i64,
    /// The store, as the file's name has it.
    #[serde(skip)]
    pub id: String,
}

/// The newest snapshot that was seen, as a file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    snapshot: String,
    created_seconds: i64,
    created_nanos: u32,
    group: String,
    has_parent: bool,
}

impl Newest {
    /// The stored form of a snapshot.
    pub fn of(seen: &SeenSnapshot) -> Self {
        Newest {
            snapshot: seen.id.to_string(),
            created_seconds: seen.created.0,
            created_nanos: seen.created.1,
            group: hex(&seen.group),
            has_parent: seen.has_parent,
        }
    }

    /// The snapshot that was stored; `None` when the stored form makes no sense.
    pub fn seen(&self) -> Option<SeenSnapshot> {
        Some(SeenSnapshot {
            id: SnapshotId::from_hex(&self.snapshot)?,
            created: (self.created_seconds, self.created_nanos),
            // Both are 32 bytes.
            group: ChunkId::from_hex(&self.group)?.0,
            has_parent: self.has_parent,
        })
    }
}

/// A member and where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPlace {
    /// Its number.
    pub member: usize,
    /// The directory, without symlinks.
    pub place: Place,
}

/// A path: text, or its bytes where it is no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// UTF-8.
    Text(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl Place {
    fn of(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        match path.to_str() {
            Some(text) => Place::Text(text.to_owned()),
            None => Place::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    /// The path.
    pub fn path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        match self {
            Place::Text(text) => PathBuf::from(text),
            Place::Bytes(bytes) => PathBuf::from(std::ffi::OsString::from_vec(bytes.clone())),
        }
    }
}

impl Remembered {
    /// Whether the store was named by this path, or had a member there.
    fn is_at(&self, path: &Path) -> bool {
        self.named.iter().any(|name| name.path() == path) || self.member_at(path).is_some()
    }

    /// The key slot that opened it last.
    pub fn slot(&self) -> Option<[u8; 16]> {
        // Its id is written as that of a snapshot is.
        self.slot.as_deref().and_then(SnapshotId::from_hex).map(|id| id.0)
    }

    /// The number of the member that was there.
    pub fn member_at(&self, path: &Path) -> Option<usize> {
        self.members.iter().find(|it| it.place.path() == path).map(|it| it.member)
    }

    /// The first digits of the store's id, for people.
    pub fn short(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }

    /// Takes over what an open store says of itself, and the paths that led to it.
    fn take(&mut self, store: &Store, names: &[PathBuf]) {
        let member_slots = store
            .member_slots
            .iter()
            .enumerate()
            .filter(|(_, member_slot)| member_slot.row.is_some());
        let members: Vec<_> = member_slots
            .map(|(member, member_slot)| MemberPlace {
                member,
                place: Place::of(&member_slot.place),
            })
            .collect();
        let is_in_use = |place: &Place| members.iter().any(|it| it.place == *place);
        let left = self.members.drain(..).map(|it| it.place).chain(self.left.drain(..));
        self.left = left.filter(|place| !is_in_use(place)).take(NAMES_MAX).collect();
        self.members = members;
        for name in names {
            self.named.retain(|known| known.path() != *name);
            self.named.insert(0, Place::of(name));
        }
        self.named.truncate(NAMES_MAX);
        if self.older_since_seconds.is_none() {
            self.table_generation = self.table_generation.max(store.table.generation);
        }
    }

    /// The places of members, and of those that have left.
    pub fn places(&self) -> Vec<PathBuf> {
        self.members.iter().map(|it| &it.place).chain(&self.left).map(Place::path).collect()
    }

    fn leave(&mut self, path: &Path) -> bool {
        let before = (self.named.len(), self.members.len());
        self.left.retain(|place| place.path() != path);
        self.named.retain(|name| name.path() != path);
        self.members.retain(|it| it.place.path() != path);
        before != (self.named.len(), self.members.len())
    }
}

/// The evidence that a place belongs to the store that was found there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// By its label alone.
    Label,
    /// A key opened it, this host made it, or a user said so.
    Sure,
}

/// All that this host remembers.
#[derive(Default)]
pub struct Memory {
    dir: Option<PathBuf>,
    stores: Vec<Remembered>,
    has_complained: bool,
}

impl Memory {
    /// Reads it all; a damaged file is put aside and named.
    pub fn load(monitor: &Monitor) -> Self {
        let Ok(state) = place::state() else { return Memory::default() };
        Self::load_from(state.join("stores"), monitor)
    }

    fn load_from(dir: PathBuf, monitor: &Monitor) -> Self {
        let stores = file::read_all(&dir, monitor);
        Memory { dir: Some(dir), stores, has_complained: false }
    }

    /// The record of a store.
    pub fn of(&self, store: StoreId) -> Option<&Remembered> {
        let id = store.to_string();
        self.stores.iter().find(|known| known.id == id)
    }

    /// The store that was at a path, whether a store is there now or not.
    pub fn at(&self, path: &Path) -> Option<&Remembered> {
        let forms = forms(path);
        self.stores.iter().find(|known| forms.iter().any(|form| known.is_at(form)))
    }

    /// Remembers where the members of an open store are and what it was named by, and whatever
    /// `change` adds.
    pub fn keep(
        &mut self,
        store: &Store,
        names: &[PathBuf],
        proof: Proof,
        monitor: &Monitor,
        change: impl FnOnce(&mut Remembered),
    ) {
        let id = store.config.store.to_string();
        let old = self.of(store.config.store).cloned();
        let mut new = old.clone().unwrap_or_default();
        new.id = id;
        let names: Vec<_> = names.iter().map(|name| absolute(name)).collect();
        new.take(store, &names);
        if proof == Proof::Sure && store.config.encryption != Encryption::None {
            new.encrypted = true;
        }
        change(&mut new);
        self.settle(&mut new, proof, monitor);
        let now = pinstripe_base::clock::now().0;
        let same = old.is_some_and(|old| {
            new.opened_seconds = old.opened_seconds;
            old == new && (0..OPENED_EVERY_SECONDS).contains(&(now - old.opened_seconds))
        });
        if !same {
            new.opened_seconds = now;
            self.put(new, monitor);
        }
    }

    /// Lets each place belong to one store. What only a label says takes no place from a store
    /// that is encrypted.
    fn settle(&mut self, new: &mut Remembered, proof: Proof, monitor: &Monitor) {
        let places = new.named.iter().chain(new.members.iter().map(|it| &it.place));
        let places: Vec<PathBuf> = places.map(Place::path).collect();
        let mut changed = Vec::new();
        let id = new.id.clone();
        for other in self.stores.iter().filter(|other| other.id != id) {
            let mut left = other.clone();
            for place in places.iter().filter(|place| other.is_at(place)) {
                match other.encrypted && proof == Proof::Label {
                    true => drop(new.leave(place)),
                    false => drop(left.leave(place)),
                }
            }
            if left != *other {
                changed.push(left);
            }
        }
        changed.into_iter().for_each(|store| self.put(store, monitor));
    }

    fn put(&mut self, store: Remembered, monitor: &Monitor) {
        let Some(dir) = &self.dir else { return };
        if let Err(error) = file::write(dir, &store)
            && !self.has_complained
        {
            self.has_complained = true;
            monitor
                .note(&format!("what this host knows of the store cannot be remembered: {error}"));
        }
        self.stores.retain(|known| known.id != store.id);
        self.stores.push(store);
    }
}

/// An absolute path without `.` and without doubled slashes; symlinks stay.
pub fn absolute(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    whole.components().collect()
}

/// The forms in which a path may be remembered: as it is named, and without symlinks.
pub fn forms(path: &Path) -> Vec<PathBuf> {
    let mut forms = vec![absolute(path)];
    forms.extend(crate::run::real_path(path).ok());
    forms
}

/// A name as the files have it.
fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// Whether a text is the id of a store.
fn is_id(text: &str) -> bool {
    StoreId::from_hex(text).is_some_and(|id| hex(&id.0) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(id: u8, encrypted: bool, place: &str) -> Remembered {
        let member = MemberPlace { member: 0, place: Place::of(Path::new(place)) };
        let id = hex(&[id; 16]);
        Remembered { id, encrypted, members: vec![member], ..Remembered::default() }
    }

    #[test]
    fn what_is_written_comes_back_and_damage_is_said_once() {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a/stores");
        let monitor = Monitor::default();
        let mut odd = store(1, true, "/a");
        odd.named.push(Place::of(Path::new(std::ffi::OsStr::from_bytes(b"/odd \xff"))));
        file::write(&dir, &odd).unwrap();
        file::write(&dir, &store(2, false, "/b")).unwrap();
        let file = dir.join(file_name(&odd.id));
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let memory = Memory::load_from(dir.clone(), &monitor);
        assert_eq!(memory.at(Path::new("/a")), Some(&odd));
        assert_eq!(memory.at(&odd.named[0].path()), Some(&odd));
        assert_eq!(memory.of(StoreId([2; 16])), Some(&store(2, false, "/b")));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "nothing else is left");
        // Cut off in the middle, empty, of another kind: as if new, and the others stay.
        for damage in [&b"{\"encrypted\":tr"[..], b"", b"[]", b"\xff"] {
            std::fs::write(&file, damage).unwrap();
            let notes = Memory::load_from(dir.clone(), &monitor);
            assert_eq!(notes.stores.len(), 1);
            assert!(!file.exists(), "it was put aside, so that it is said once");
        }
    }

    #[test]
    fn a_place_belongs_to_one_store_and_a_label_takes_none_from_an_encrypted_one() {
        let dir = tempfile::tempdir().unwrap();
        let monitor = Monitor::default();
        let mut memory = Memory::load_from(dir.path().to_path_buf(), &monitor);
        memory.put(store(1, true, "/a"), &monitor);
        memory.put(store(2, false, "/b"), &monitor);
        for (place, proof, belongs) in
            [("/a", Proof::Label, 1), ("/b", Proof::Label, 3), ("/a", Proof::Sure, 3)]
        {
            let mut new = store(3, false, place);
            memory.settle(&mut new, proof, &monitor);
            memory.put(new, &monitor);
            let at: Vec<_> = memory.stores.iter().filter(|it| it.is_at(Path::new(place))).collect();
            assert_eq!(at.len(), 1, "{place}");
            assert_eq!(at[0].id, hex(&[belongs; 16]), "{place}, {proof:?}");
        }
        assert!(memory.of(StoreId([1; 16])).unwrap().encrypted, "the store itself is remembered");
    }
}
