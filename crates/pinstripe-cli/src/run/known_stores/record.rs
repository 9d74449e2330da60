//! The record of a store that this host has opened, as it is stored in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pinstripe::Store;
use pinstripe::seen::SeenSnapshot;
use pinstripe_base::id::{ChunkId, SnapshotId, hex};
use serde::{Deserialize, Serialize};

use super::sightings::KnownSightings;

/// The most paths that are kept as names of a store; the ones used last are kept.
const NAMES_MAX: usize = 16;

/// The record of one store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStore {
    /// Whether this host has opened the store with a key, or created it encrypted.
    pub encrypted: bool,
    /// Whether a user of this host accepted that the store is not encrypted.
    pub accepted_plain: bool,
    /// Absolute paths that named the store, the last one first.
    pub named: Vec<StoredPath>,
    /// The places of the store's members.
    pub members: Vec<MemberPlace>,
    /// The places of members that have left the store, the last one first: such a member may come
    /// back as another half of the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<StoredPath>,
    /// The key slot that last opened the store, as hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The highest generation of the table of members that this host saw.
    #[serde(default)]
    pub table_generation: u64,
    /// The state that this host saw, if it used the store without a server.
    #[serde(flatten)]
    pub seen: SeenState,
    /// The states that this host saw through servers, by token: a token may see fewer snapshots.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seen_by_token: BTreeMap<String, SeenState>,
    /// The last known heartbeats of writers on other hosts.
    #[serde(default, skip_serializing_if = "KnownSightings::is_empty")]
    pub sightings: KnownSightings,
    /// When the store was opened last, in seconds since 1970, rounded to a day.
    pub opened_seconds: i64,
    /// The id of the store, which is the name of its file.
    #[serde(skip)]
    pub id: String,
}

/// The newest state of a store that this host saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenState {
    /// The newest snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<KnownSnapshot>,
    /// The time since which the store is known to be older than this host had seen it; empty once a
    /// user accepts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_since_seconds: Option<i64>,
}

/// The newest snapshot that this host saw, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSnapshot {
    snapshot: String,
    created_seconds: i64,
    created_nanos: u32,
    group: String,
    has_parent: bool,
}

impl KnownSnapshot {
    /// The stored form of a snapshot.
    pub fn from_seen(seen: &SeenSnapshot) -> Self {
        KnownSnapshot {
            snapshot: seen.id.to_string(),
            created_seconds: seen.created.0,
            created_nanos: seen.created.1,
            group: hex(&seen.group),
            has_parent: seen.has_parent,
        }
    }

    /// The snapshot that was stored; `None` if the stored form is invalid.
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

/// A member and the place where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPlace {
    /// The number.
    pub member: usize,
    /// The directory of the member, without symlinks.
    pub place: StoredPath,
}

/// A path: stored as text, or as bytes if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredPath {
    /// UTF-8.
    Text(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl StoredPath {
    /// The stored form of a path.
    pub fn from_path(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        match path.to_str() {
            Some(text) => StoredPath::Text(text.to_owned()),
            None => StoredPath::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    /// The path.
    pub fn path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        match self {
            StoredPath::Text(text) => PathBuf::from(text),
            StoredPath::Bytes(bytes) => PathBuf::from(std::ffi::OsString::from_vec(bytes.clone())),
        }
    }
}

impl KnownStore {
    /// Whether the store was named by this path, or had a member there.
    pub fn is_at(&self, path: &Path) -> bool {
        self.named.iter().any(|name| name.path() == path) || self.member_at(path).is_some()
    }

    /// The state that this host saw with a token of a server, or without a server.
    pub fn seen(&self, token: Option<&str>) -> SeenState {
        match token {
            Some(token) => self.seen_by_token.get(token).cloned().unwrap_or_default(),
            None => self.seen.clone(),
        }
    }

    /// The same, to change it.
    pub fn seen_mut(&mut self, token: Option<&str>) -> &mut SeenState {
        match token {
            Some(token) => self.seen_by_token.entry(token.to_owned()).or_default(),
            None => &mut self.seen,
        }
    }

    /// Forgets each newest snapshot that is missing now, through whichever token it was seen: this
    /// host has removed it.
    pub fn miss_no_longer(&mut self, is_there: impl Fn(&KnownSnapshot) -> bool) {
        for state in std::iter::once(&mut self.seen).chain(self.seen_by_token.values_mut()) {
            state.newest.take_if(|newest| !is_there(newest));
        }
    }

    /// The key slot that last opened the store.
    pub fn slot(&self) -> Option<[u8; 16]> {
        // Its id is written as that of a snapshot is.
        self.slot.as_deref().and_then(SnapshotId::from_hex).map(|id| id.0)
    }

    /// The number of the member that was at this path.
    pub fn member_at(&self, path: &Path) -> Option<usize> {
        self.members.iter().find(|it| it.place.path() == path).map(|it| it.member)
    }

    /// The first digits of the store's id, for people.
    pub fn short(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }

    /// Updates the record from an open store, and adds the paths that named it.
    pub fn take(&mut self, store: &Store, names: &[PathBuf]) {
        let seats = store.member_slots.iter().enumerate().filter(|(_, seat)| seat.row.is_some());
        let members: Vec<_> = seats
            .map(|(member, seat)| MemberPlace { member, place: StoredPath::from_path(&seat.place) })
            .collect();
        let is_in_use = |place: &StoredPath| members.iter().any(|it| it.place == *place);
        let left = self.members.drain(..).map(|it| it.place).chain(self.left.drain(..));
        self.left = left.filter(|place| !is_in_use(place)).take(NAMES_MAX).collect();
        self.members = members;
        for name in names {
            self.named.retain(|known| known.path() != *name);
            self.named.insert(0, StoredPath::from_path(name));
        }
        self.named.truncate(NAMES_MAX);
        let mut states = std::iter::once(&self.seen).chain(self.seen_by_token.values());
        if states.all(|seen| seen.older_since_seconds.is_none()) {
            self.table_generation = self.table_generation.max(store.table.generation);
        }
    }

    /// The places of members, and of members that have left the store.
    pub fn places(&self) -> Vec<PathBuf> {
        self.members.iter().map(|it| &it.place).chain(&self.left).map(StoredPath::path).collect()
    }

    /// Forgets a path; returns whether the store was known by it.
    pub fn leave(&mut self, path: &Path) -> bool {
        let before = (self.named.len(), self.members.len());
        self.left.retain(|place| place.path() != path);
        self.named.retain(|name| name.path() != path);
        self.members.retain(|it| it.place.path() != path);
        before != (self.named.len(), self.members.len())
    }
}
