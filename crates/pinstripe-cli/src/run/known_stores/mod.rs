//! The stores that this host has opened and remembers: one small file for each store, in the state
//! directory.
//!
//! Invariants: a file is replaced completely and durably; if it is missing or damaged, the store
//! counts as new, and that is reported once; a place belongs to one store, the one that was found
//! there last; without a state directory nothing is remembered and all verbs work. The files hold
//! no secrets, but the places of members: only their owner can read them.

mod file;
mod record;
mod sightings;

use std::path::{Path, PathBuf};

use pinstripe::Store;
use pinstripe_base::id::StoreId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::is_remote;
use pinstripe_member::label::Encryption;

pub use self::file::replace as replace_state;
use self::record::StoredPath;
pub use self::record::{KnownSnapshot, KnownStore, SeenState};
pub use self::sightings::KnownSightings;
use super::real_path::real_path;
use crate::xdg;

/// A store that is opened again within this time is not recorded again unless something changed.
const OPENED_EVERY_SECONDS: i64 = 24 * 3600;

/// The evidence that a place belongs to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Only the label at the place names the store.
    Label,
    /// A key opened the store, this host created it, or a user confirmed it.
    Sure,
}

/// All stores that this host remembers.
#[derive(Default)]
pub struct KnownStores {
    dir: Option<PathBuf>,
    stores: Vec<KnownStore>,
    has_complained: bool,
}

impl KnownStores {
    /// Reads all files; a damaged file is set aside and reported.
    pub fn load(monitor: &Monitor) -> Self {
        let Ok(state) = xdg::state() else { return KnownStores::default() };
        Self::load_from(state.join("stores"), monitor)
    }

    fn load_from(dir: PathBuf, monitor: &Monitor) -> Self {
        let stores = file::read_all(&dir, monitor);
        KnownStores { dir: Some(dir), stores, has_complained: false }
    }

    /// The record of a store.
    pub fn get(&self, store: StoreId) -> Option<&KnownStore> {
        let id = store.to_string();
        self.stores.iter().find(|known| known.id == id)
    }

    /// The store that was at a path, whether a store is present now or not.
    pub fn at(&self, path: &Path) -> Option<&KnownStore> {
        let forms = forms(path);
        self.stores.iter().find(|known| forms.iter().any(|form| known.is_at(form)))
    }

    /// Remembers the places of the members of an open store and the paths that named it, and
    /// applies `change` to its record.
    pub fn keep(
        &mut self,
        store: &Store,
        names: &[PathBuf],
        proof: Proof,
        monitor: &Monitor,
        change: impl FnOnce(&mut KnownStore),
    ) {
        let id = store.config.store.to_string();
        let old = self.get(store.config.store).cloned();
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

    /// Makes each place belong to only one store. If a place is proven only by a label, it is not
    /// taken from a store that is encrypted.
    fn settle(&mut self, new: &mut KnownStore, proof: Proof, monitor: &Monitor) {
        let places = new.named.iter().chain(new.members.iter().map(|it| &it.place));
        let places: Vec<PathBuf> = places.map(StoredPath::path).collect();
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

    fn put(&mut self, store: KnownStore, monitor: &Monitor) {
        let Some(dir) = &self.dir else { return };
        if let Err(error) = file::write(dir, &store)
            && !self.has_complained
        {
            self.has_complained = true;
            monitor.note(&format!(
                "the file in which this host remembers the store cannot be written: {error}"
            ));
        }
        self.stores.retain(|known| known.id != store.id);
        self.stores.push(store);
    }
}

/// An absolute path without `.` and doubled slashes; symlinks are not resolved. A remote place is
/// not changed.
pub fn absolute(path: &Path) -> PathBuf {
    if is_remote(path) {
        return path.to_path_buf();
    }
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    whole.components().collect()
}

/// The forms in which a path may be remembered: as it was named, and without symlinks.
pub fn forms(path: &Path) -> Vec<PathBuf> {
    let mut forms = vec![absolute(path)];
    if !is_remote(path) {
        forms.extend(real_path(path).ok());
    }
    forms
}

#[cfg(test)]
mod tests {
    use pinstripe_base::id::hex;

    use super::file::file_name;
    use super::record::MemberPlace;
    use super::*;

    fn store(id: u8, encrypted: bool, place: &str) -> KnownStore {
        let member = MemberPlace { member: 0, place: StoredPath::from_path(Path::new(place)) };
        let id = hex(&[id; 16]);
        KnownStore { id, encrypted, members: vec![member], ..KnownStore::default() }
    }

    #[test]
    fn what_is_written_comes_back_and_damage_is_said_once() {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a/stores");
        let monitor = Monitor::default();
        let mut odd = store(1, true, "/a");
        odd.named.push(StoredPath::from_path(Path::new(std::ffi::OsStr::from_bytes(b"/odd \xff"))));
        file::write(&dir, &odd).unwrap();
        file::write(&dir, &store(2, false, "/b")).unwrap();
        let file = dir.join(file_name(&odd.id));
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let memory = KnownStores::load_from(dir.clone(), &monitor);
        assert_eq!(memory.at(Path::new("/a")), Some(&odd));
        assert_eq!(memory.at(&odd.named[0].path()), Some(&odd));
        assert_eq!(memory.get(StoreId([2; 16])), Some(&store(2, false, "/b")));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "nothing else is left");
        // Cut off in the middle, empty, of another kind: as if new, and the others stay.
        for damage in [&b"{\"encrypted\":tr"[..], b"", b"[]", b"\xff"] {
            std::fs::write(&file, damage).unwrap();
            let notes = KnownStores::load_from(dir.clone(), &monitor);
            assert_eq!(notes.stores.len(), 1);
            assert!(!file.exists(), "it was put aside, so that it is said once");
        }
    }

    #[test]
    fn a_place_belongs_to_one_store_and_a_label_takes_none_from_an_encrypted_one() {
        let dir = tempfile::tempdir().unwrap();
        let monitor = Monitor::default();
        let mut memory = KnownStores::load_from(dir.path().to_path_buf(), &monitor);
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
        assert!(memory.get(StoreId([1; 16])).unwrap().encrypted, "the store itself is remembered");
    }
}
