//! Which host put which object: one file for each volume, to which records are only appended.
//!
//! Invariants: a record is written before the object that it describes, and durably for sessions
//! and snapshots; an object without a record belongs to no host; a name belongs to the first host
//! that put it. A record at the end that was torn by a power cut is cut off.

#![allow(clippy::disallowed_methods, reason = "the file of the ledger")]

mod record;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::id::hex;
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentKind, ExtentName};

pub(crate) use self::record::Owned;
use self::record::{decode, encode};
use crate::state_file;

/// The ledger of a volume.
pub(crate) struct Ledger {
    path: PathBuf,
    state: Mutex<LedgerState>,
}

struct LedgerState {
    file: File,
    /// The bytes of the file that are whole records.
    whole: u64,
    /// Whether more bytes may follow them: a write failed, and they could not be cut off.
    is_torn: bool,
    owned: HashMap<ExtentName, Owned>,
    /// The objects in `owned` that were deleted.
    gone: HashSet<ExtentName>,
    hosts: HashMap<String, HostFacts>,
    /// The sessions that were put and not deleted. Those from before the server started are missing
    /// until the first listing.
    sessions: HashMap<ExtentName, SessionFacts>,
    /// The sessions that announced each object, including those that have ended.
    announced: HashMap<[u8; 16], Vec<SessionFacts>>,
    /// What the hosts of snapshots that are being put had before.
    pending: HashMap<ExtentName, HostFacts>,
    /// The objects that sessions announced which the administrator ended.
    fenced: BTreeSet<StoredFence>,
}

/// What a host has put so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// The bytes of packs and index.
    pub used_bytes: u64,
    pub snapshots: u64,
    /// When the last snapshot was accepted.
    pub last_snapshot_seconds: Option<i64>,
    /// The bytes of packs and index that came between the last two snapshots.
    pub last_new_bytes: u64,
    /// The time between the begin of the last session that ended with a snapshot, and the snapshot.
    pub last_duration_seconds: Option<i64>,
    /// The seconds that the last backups took, the newest last.
    pub durations: VecDeque<u64>,
    new_bytes: u64,
}

/// The number of backups of a host whose durations are kept.
const DURATIONS: usize = 20;

/// A session of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionFacts {
    pub id: [u8; 16],
    pub host: String,
    pub began_seconds: i64,
}

impl SessionFacts {
    fn new(id: [u8; 16], owned: &Owned) -> Self {
        SessionFacts { id, host: owned.host.clone(), began_seconds: owned.seconds }
    }
}

/// The object of a fenced session, in hex.
type StoredFence = String;

impl Ledger {
    /// Opens the ledger in a file, which is made if it is missing.
    pub fn open(path: &Path) -> Result<Ledger> {
        let failed = |error| Error::io("cannot open", path, error);
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path).map_err(failed)?;
        let bytes = std::fs::read(path).map_err(failed)?;
        let mut in_order = Vec::new();
        let mut whole = 0;
        while let Some((name, record, length)) = decode(&bytes[whole..]) {
            in_order.push((name, record));
            whole += length;
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let mut state = LedgerState {
            file,
            whole: whole as u64,
            is_torn: false,
            owned: HashMap::new(),
            gone: HashSet::new(),
            hosts: HashMap::new(),
            sessions: HashMap::new(),
            announced: HashMap::new(),
            pending: HashMap::new(),
            fenced: state_file::read_json(&fences_of(path))?.unwrap_or_default(),
        };
        for (name, record) in in_order {
            if !state.owned.contains_key(&name) {
                state.count(name, &record);
                state.owned.insert(name, record);
            }
        }
        state.sessions.clear();
        Ok(Ledger { path: path.to_path_buf(), state: Mutex::new(state) })
    }

    /// The owner of an object, if a host put it through this server.
    pub fn owner(&self, name: ExtentName) -> Option<Owned> {
        lock(&self.state).owned.get(&name).cloned()
    }

    /// Whether a host put an object.
    pub fn is_of(&self, name: ExtentName, host: &str) -> bool {
        lock(&self.state).owned.get(&name).is_some_and(|owned| owned.host == host)
    }

    /// Whether an object counts as stored by a host: a host put it, and it is not known to be gone.
    pub(crate) fn is_counted(&self, name: ExtentName) -> bool {
        let state = lock(&self.state);
        state.owned.contains_key(&name) && !state.gone.contains(&name)
    }

    /// Counts an object that was put although it was taken for gone: another request for the same
    /// object had failed meanwhile.
    pub(crate) fn confirm(&self, name: ExtentName) {
        let mut state = lock(&self.state);
        state.pending.remove(&name);
        if state.gone.remove(&name)
            && let Some(owned) = state.owned.get(&name).cloned()
        {
            state.count(name, &owned);
        }
    }

    /// What a host has put so far.
    pub fn host(&self, host: &str) -> HostFacts {
        lock(&self.state).hosts.get(host).cloned().unwrap_or_default()
    }

    /// The bytes of packs and index that a host has put.
    pub fn used_bytes(&self, host: &str) -> u64 {
        lock(&self.state).hosts.get(host).map_or(0, |host| host.used_bytes)
    }

    /// The sessions that run.
    pub fn sessions(&self) -> Vec<SessionFacts> {
        let mut all: Vec<_> = lock(&self.state).sessions.values().cloned().collect();
        all.sort_by(|a, b| (a.began_seconds, &a.host).cmp(&(b.began_seconds, &b.host)));
        all
    }

    /// Ends a running session for the server: its snapshot is refused from now on, also after a
    /// restart. Returns the session's host; `None` if no such session runs.
    pub fn fence(&self, session: [u8; 16]) -> Result<Option<String>> {
        let mut state = lock(&self.state);
        let name = ExtentName::In(ExtentKind::Sessions, session);
        if !state.sessions.contains_key(&name) {
            return Ok(None);
        }
        let Some(Owned { host, commit, .. }) = state.owned.get(&name).cloned() else {
            return Ok(None);
        };
        let mut fenced = state.fenced.clone();
        fenced.insert(hex(&commit));
        state_file::replace_json(&fences_of(&self.path), &fenced)?;
        state.fenced = fenced;
        Ok(Some(host))
    }

    /// Whether an object was announced by a session that the administrator ended.
    pub fn is_fenced(&self, commit: [u8; 16]) -> bool {
        lock(&self.state).fenced.contains(&hex(&commit))
    }

    /// Whether one of a host's sessions will end with this object.
    pub fn commits(&self, host: &str, commit: [u8; 16]) -> bool {
        lock(&self.state).announced(commit).any(|it| it.host == host)
    }

    /// Whether a session of another host will end with this object.
    pub(crate) fn is_promised_to_other(&self, host: &str, commit: [u8; 16]) -> bool {
        lock(&self.state).announced(commit).any(|it| it.host != host)
    }

    /// Records that a host puts an object. Returns whether the object is the host's: it is not if
    /// another host put it before.
    pub fn record(&self, name: ExtentName, owned: Owned) -> Result<bool> {
        let ExtentName::In(kind, _) = name else { return Ok(false) };
        let mut state = lock(&self.state);
        if let Some(known) = state.owned.get(&name) {
            let is_own = known.host == owned.host;
            if is_own && state.gone.remove(&name) {
                state.keep_before(name, &owned.host);
                state.count(name, &owned);
                state.owned.insert(name, owned);
            }
            return Ok(is_own);
        }
        let bytes = encode(name, &owned);
        let failed = |error| Error::io("cannot write", &self.path, error);
        state.append(&bytes).map_err(failed)?;
        if matches!(kind, ExtentKind::Sessions | ExtentKind::Snapshots) {
            state.file.sync_data().map_err(failed)?;
        }
        state.keep_before(name, &owned.host);
        state.count(name, &owned);
        state.owned.insert(name, owned);
        Ok(true)
    }

    /// Takes back that a host puts an object: no member has it.
    pub(crate) fn withdraw(&self, name: ExtentName) {
        let mut state = lock(&self.state);
        state.forget(name);
        let (Some(before), Some(owned)) = (state.pending.remove(&name), state.owned.get(&name))
        else {
            return;
        };
        let host = owned.host.clone();
        let facts = state.hosts.entry(host).or_default();
        facts.last_snapshot_seconds = before.last_snapshot_seconds;
        facts.last_new_bytes = before.last_new_bytes;
        facts.last_duration_seconds = before.last_duration_seconds;
        facts.durations = before.durations;
        facts.new_bytes += before.new_bytes;
    }

    /// Forgets an object that was deleted. Its record stays in the file, so that the host's own
    /// repeated deletion is still allowed after a restart.
    pub fn forget(&self, name: ExtentName) {
        lock(&self.state).forget(name);
    }

    /// Forgets the objects of a kind that no member has, because another process deleted them or
    /// they were never stored. Objects that were recorded at `since_seconds` or later may not exist
    /// yet. Sessions that exist are found again after a restart of the server; list them before
    /// snapshots.
    pub(crate) fn settle(&self, kind: ExtentKind, there: &HashSet<[u8; 16]>, since_seconds: i64) {
        let mut state = lock(&self.state);
        if kind == ExtentKind::Sessions {
            state.find_sessions(there);
        }
        let is_missing = |(name, owned): (&ExtentName, &Owned)| match name {
            ExtentName::In(of, id) if *of == kind && !there.contains(id) => {
                (owned.seconds < since_seconds).then_some(*name)
            }
            _ => None,
        };
        let missing: Vec<_> = state.owned.iter().filter_map(is_missing).collect();
        for name in missing {
            if state.is_unfinished(name) {
                state.take_back_success(name);
            }
            state.forget(name);
        }
    }
}

impl LedgerState {
    /// Appends a record, or nothing: what follows a part of a record is not found after a restart.
    fn append(&mut self, record: &[u8]) -> std::io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.whole)?;
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(record) {
            self.is_torn = self.file.set_len(self.whole).is_err();
            return Err(error);
        }
        self.whole += record.len() as u64;
        Ok(())
    }

    /// Keeps what a host had before a snapshot that it puts now.
    fn keep_before(&mut self, name: ExtentName, host: &str) {
        if matches!(name, ExtentName::In(ExtentKind::Snapshots, _)) {
            let before = self.hosts.get(host).cloned().unwrap_or_default();
            self.pending.insert(name, before);
        }
    }

    /// Subtracts a deleted object from what its host has, once.
    fn forget(&mut self, name: ExtentName) {
        self.sessions.remove(&name);
        let Some(owned) = self.owned.get(&name).filter(|_| !self.gone.contains(&name)) else {
            return;
        };
        let host = self.hosts.entry(owned.host.clone()).or_default();
        host.used_bytes = host.used_bytes.saturating_sub(owned.bytes);
        if matches!(name, ExtentName::In(ExtentKind::Snapshots, _)) {
            host.snapshots = host.snapshots.saturating_sub(1);
        }
        self.gone.insert(name);
    }

    /// Adds the sessions with these ids that hosts put through this server.
    fn find_sessions(&mut self, there: &HashSet<[u8; 16]>) {
        for id in there {
            let name = ExtentName::In(ExtentKind::Sessions, *id);
            if let (Some(owned), false) = (self.owned.get(&name), self.gone.contains(&name)) {
                self.sessions.entry(name).or_insert_with(|| SessionFacts::new(*id, owned));
            }
        }
    }

    /// Whether an object is a snapshot whose session still exists: a host deletes its session when
    /// the snapshot is stored.
    fn is_unfinished(&self, name: ExtentName) -> bool {
        let ExtentName::In(ExtentKind::Snapshots, id) = name else { return false };
        let runs = |it: &SessionFacts| {
            self.sessions.contains_key(&ExtentName::In(ExtentKind::Sessions, it.id))
        };
        !self.gone.contains(&name) && self.announced(id).any(runs)
    }

    /// Makes the newest other snapshot of a host its last success. The server ended after it had
    /// recorded this snapshot and before it stored it.
    fn take_back_success(&mut self, name: ExtentName) {
        let Some(Owned { host, seconds, .. }) = self.owned.get(&name).cloned() else { return };
        let of_host = |(other, it): (&ExtentName, &Owned)| {
            let is_snapshot = matches!(other, ExtentName::In(ExtentKind::Snapshots, _));
            (is_snapshot && *other != name && it.host == host).then_some(it.seconds)
        };
        let newest = self.owned.iter().filter_map(of_host).max();
        let facts = self.hosts.entry(host.clone()).or_default();
        if facts.last_snapshot_seconds == Some(seconds) {
            facts.last_snapshot_seconds = newest;
            facts.last_duration_seconds = None;
            facts.durations.pop_back();
        }
    }

    /// The sessions that announced an object.
    fn announced(&self, commit: [u8; 16]) -> impl Iterator<Item = &SessionFacts> {
        self.announced.get(&commit).into_iter().flatten()
    }

    /// Counts a new object of a host.
    fn count(&mut self, name: ExtentName, owned: &Owned) {
        let ExtentName::In(kind, id) = name else { return };
        let host = self.hosts.entry(owned.host.clone()).or_default();
        match kind {
            ExtentKind::Packs | ExtentKind::Index => {
                host.used_bytes += owned.bytes;
                host.new_bytes += owned.bytes;
            }
            ExtentKind::Sessions => {
                let session = SessionFacts::new(id, owned);
                self.announced.entry(owned.commit).or_default().push(session.clone());
                self.sessions.insert(name, session);
            }
            ExtentKind::Snapshots => {
                host.snapshots += 1;
                host.last_snapshot_seconds = Some(owned.seconds);
                host.last_new_bytes = std::mem::take(&mut host.new_bytes);
                let session = self.announced.get(&id).and_then(|sessions| sessions.first());
                host.last_duration_seconds = session.map(|it| owned.seconds - it.began_seconds);
                let took = host.last_duration_seconds.and_then(|it| u64::try_from(it).ok());
                host.durations.extend(took);
                if host.durations.len() > DURATIONS {
                    host.durations.pop_front();
                }
            }
            _ => {}
        }
    }
}

fn fences_of(ledger: &Path) -> PathBuf {
    ledger.with_extension("fenced")
}

#[cfg(test)]
mod tests;
