//! Which snapshot a user means: by its name, and by host, path and tag.
//!
//! A name is `latest`, `latest~N` (the one N before the latest), or the beginning of an id. `latest`
//! is the latest of the snapshots that a choice leaves; an id is searched in all snapshots, and is
//! refused if the choice excludes its snapshot.

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::find_by_name;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::snapshot::Snapshot;

use super::snapshots::{latest, warn_of_clocks};

/// The snapshots that a command may mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotChoice {
    /// Snapshots of one of these hosts; of every host if empty.
    pub hosts: Vec<Vec<u8>>,
    /// Snapshots that were made of each of these paths.
    pub paths: Vec<Vec<u8>>,
    /// Snapshots with one of these tags; with any tags or none if empty.
    pub tags: Vec<String>,
    /// The names of this host, whose snapshots `latest` means if `hosts` is empty; empty: those of
    /// every host.
    pub own_hosts: Vec<Vec<u8>>,
}

/// The name of a snapshot, and the snapshots that it may mean.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotName<'a> {
    /// The name.
    pub name: &'a str,
    /// The snapshots.
    pub choice: &'a SnapshotChoice,
}

/// A name that may mean every snapshot.
impl<'a> From<&'a str> for SnapshotName<'a> {
    fn from(name: &'a str) -> Self {
        SnapshotName { name, choice: SnapshotChoice::any() }
    }
}

/// A name that may mean every snapshot.
impl<'a> From<&'a String> for SnapshotName<'a> {
    fn from(name: &'a String) -> Self {
        SnapshotName::from(name.as_str())
    }
}

impl SnapshotChoice {
    /// Every snapshot.
    pub fn any() -> &'static SnapshotChoice {
        static ANY: SnapshotChoice = SnapshotChoice {
            hosts: Vec::new(),
            paths: Vec::new(),
            tags: Vec::new(),
            own_hosts: Vec::new(),
        };
        &ANY
    }

    /// Whether the hosts, paths and tags leave this snapshot.
    pub fn has(&self, snapshot: &Snapshot) -> bool {
        (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && self
                .paths
                .iter()
                .all(|path| snapshot.sources.iter().any(|it| trimmed(it) == trimmed(path)))
            && (self.tags.is_empty() || self.tags.iter().any(|tag| snapshot.tags.contains(tag)))
    }

    /// The snapshots that the hosts, paths and tags leave.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when there are conditions, and no snapshot matches them.
    pub fn require<'s>(
        &self,
        snapshots: impl Iterator<Item = &'s Snapshot> + Clone,
    ) -> Result<Vec<&'s Snapshot>> {
        let left: Vec<_> = snapshots.clone().filter(|it| self.has(it)).collect();
        match left.is_empty() && self.is_limited() {
            true => Err(none_matches(self, snapshots)),
            false => Ok(left),
        }
    }

    /// Whether there are conditions.
    pub fn is_limited(&self) -> bool {
        !(self.hosts.is_empty() && self.paths.is_empty() && self.tags.is_empty())
    }

    /// The host, if one host is the only condition.
    pub fn only_host(&self) -> Option<&[u8]> {
        let [host] = &self.hosts[..] else { return None };
        (self.paths.is_empty() && self.tags.is_empty()).then_some(host)
    }

    /// Whether `latest` may mean this snapshot.
    fn may_be_latest(&self, snapshot: &Snapshot) -> bool {
        let is_own = self.own_hosts.is_empty() || self.own_hosts.contains(&snapshot.host);
        self.has(snapshot) && (is_own || !self.hosts.is_empty())
    }
}

/// A path without slashes at its ends.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}

impl SnapshotName<'_> {
    /// The number of later snapshots, if the name is `latest` or `latest~N`.
    pub(crate) fn before_latest(&self) -> Option<usize> {
        match self.name.strip_prefix("latest")? {
            "" => Some(0),
            rest => rest.strip_prefix('~')?.parse().ok(),
        }
    }

    /// The snapshots that `latest` may mean, the latest first.
    pub(crate) fn latest_first<'s>(
        &self,
        snapshots: &'s [Snapshot],
    ) -> impl Iterator<Item = &'s Snapshot> + use<'s> {
        let choice = self.choice;
        let mut left: Vec<_> = snapshots.iter().filter(|it| choice.may_be_latest(it)).collect();
        std::iter::from_fn(move || {
            let next = latest(left.iter().copied(), clock::now())?;
            left.retain(|it| it.id != next.id);
            Some(next)
        })
    }
}

/// Finds the snapshot that a name means. Warns of wrong clocks if the name begins with `latest`.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no snapshot matches; with [`Kind::Usage`] when several ids
/// begin with this text, or when the choice excludes the snapshot with this id.
pub fn find<'a, 'n>(
    snapshots: &'a [Snapshot],
    name: impl Into<SnapshotName<'n>>,
    monitor: &Monitor,
) -> Result<&'a Snapshot> {
    let name = name.into();
    if let Some(before) = name.before_latest() {
        warn_of_clocks(snapshots, monitor);
        let found = name.latest_first(snapshots).nth(before);
        return found.ok_or_else(|| none_so_late(snapshots, name));
    }
    if name.name.starts_with("latest") {
        return Err(Error::new(Kind::Usage, format!("'{}' does not name a snapshot", name.name))
            .expected("'latest', or 'latest~N' with the number of later snapshots", name.name));
    }
    let snapshot = find_by_name(snapshots, |snapshot| snapshot.id, name.name, "snapshot")
        .map_err(|error| error.advice("'pinstripe snapshots' lists the snapshots"))?;
    match name.choice.has(snapshot) {
        true => Ok(snapshot),
        false => {
            let what =
                format!("snapshot {} does not match --host, --path and --tag", snapshot.id.short());
            Err(Error::new(Kind::Usage, what).advice(
                "an id needs no --host, --path or --tag: these options choose what 'latest' means",
            ))
        }
    }
}

fn none_so_late(snapshots: &[Snapshot], name: SnapshotName<'_>) -> Error {
    let choice = name.choice;
    if snapshots.is_empty() {
        return Error::new(Kind::NotFound, "the store has no snapshot yet")
            .advice("make a snapshot with 'pinstripe backup PATH'");
    }
    let count = name.latest_first(snapshots).count();
    if count > 0 {
        let what = match count {
            1 => format!("there is no snapshot '{}': only 1 snapshot matches", name.name),
            _ => format!("there is no snapshot '{}': only {count} snapshots match", name.name),
        };
        return Error::new(Kind::NotFound, what)
            .advice("'pinstripe snapshots' lists the snapshots");
    }
    match choice.own_hosts.first() {
        Some(own) if !choice.is_limited() => {
            let own = String::from_utf8_lossy(own);
            let what = format!("the store has no snapshot of this host ({own})");
            Error::new(Kind::NotFound, what).advice(format!(
                "'latest' means the latest snapshot of this host; the store has snapshots of {}: \
                 add --host NAME or --all-hosts, or give the id of a snapshot",
                hosts_of(snapshots)
            ))
        }
        _ => none_matches(choice, snapshots.iter()),
    }
}

/// The error for a choice that leaves none of these snapshots.
fn none_matches<'s>(
    choice: &SnapshotChoice,
    snapshots: impl Iterator<Item = &'s Snapshot> + Clone,
) -> Error {
    let is_known = |host: &&Vec<u8>| snapshots.clone().any(|it| it.host == **host);
    let what = match choice.hosts.iter().find(|host| !is_known(host)) {
        Some(host) => format!("the host '{}' has no snapshot", String::from_utf8_lossy(host)),
        None => "no snapshot matches --host, --path and --tag".to_owned(),
    };
    Error::new(Kind::NotFound, what)
        .advice("'pinstripe snapshots' lists the snapshots with their hosts, paths and tags")
}

/// The hosts of some snapshots, for a message; only a few if there are many.
fn hosts_of(snapshots: &[Snapshot]) -> String {
    const SHOWN: usize = 5;
    let hosts: std::collections::BTreeSet<_> = snapshots.iter().map(|it| &it.host).collect();
    let named = hosts.iter().take(SHOWN).map(|host| String::from_utf8_lossy(host).into_owned());
    let named = named.collect::<Vec<_>>().join(", ");
    match hosts.len().saturating_sub(SHOWN) {
        0 => named,
        more => format!("{named} and {more} other hosts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
    use pinstripe_member::snapshot::TreeRoot;

    fn snapshot(number: u8, host: &str, path: &str, tags: &[&str]) -> Snapshot {
        Snapshot {
            store: StoreId([0; 16]),
            id: SnapshotId([number; 16]),
            created_seconds: 1_700_000_000 + i64::from(number),
            created_nanos: 0,
            host: host.as_bytes().to_vec(),
            program: String::new(),
            sources: vec![path.as_bytes().to_vec()],
            parent: None,
            root: TreeRoot { id: ChunkId([0; ChunkId::LEN]), height: 0, entries: 0 },
            counts: Vec::new(),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            comment: String::new(),
        }
    }

    /// The number of the snapshot, or the kind of the error.
    fn found(name: &str, choice: &SnapshotChoice) -> std::result::Result<u8, Kind> {
        let all = [
            snapshot(1, "ant", "etc", &["old"]),
            snapshot(2, "bee", "etc", &[]),
            snapshot(3, "ant", "home", &["new"]),
            snapshot(4, "bee", "home", &["new", "old"]),
        ];
        let found = find(&all, SnapshotName { name, choice }, &Monitor::default());
        found.map(|it| it.id.0[0]).map_err(|error| error.kind())
    }

    #[test]
    fn latest_is_the_latest_of_what_the_choice_leaves() {
        let any = SnapshotChoice::default();
        let own = SnapshotChoice { own_hosts: vec![b"ant".to_vec()], ..any.clone() };
        let host = SnapshotChoice { hosts: vec![b"bee".to_vec()], ..own.clone() };
        let path = SnapshotChoice { paths: vec![b"etc".to_vec()], ..any.clone() };
        let tags = SnapshotChoice { tags: vec!["old".to_owned(), "x".to_owned()], ..any.clone() };
        for (choice, latest) in [
            (&any, vec![4, 3, 2, 1]),
            (&own, vec![3, 1]),
            (&host, vec![4, 2]),
            (&path, vec![2, 1]),
            (&tags, vec![4, 1]),
        ] {
            for (before, number) in latest.iter().enumerate() {
                assert_eq!(found(&format!("latest~{before}"), choice), Ok(*number), "{choice:?}");
            }
            assert_eq!(found("latest", choice), Ok(latest[0]));
            assert_eq!(found(&format!("latest~{}", latest.len()), choice), Err(Kind::NotFound));
        }
        for wrong in ["latest~", "latest~x", "latest~-1", "latest1"] {
            assert!(found(wrong, &any).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_is_found_on_every_host_unless_the_choice_excludes_it() {
        let any = SnapshotChoice::default();
        let own = SnapshotChoice { own_hosts: vec![b"ant".to_vec()], ..any.clone() };
        let host = SnapshotChoice { hosts: vec![b"ant".to_vec()], ..any.clone() };
        for choice in [&any, &own] {
            assert_eq!(found("04040404", choice), Ok(4));
        }
        assert_eq!(found("04040404", &host), Err(Kind::Usage));
        assert_eq!(found("05050505", &host), Err(Kind::NotFound));
        let none = SnapshotChoice { own_hosts: vec![b"cat".to_vec()], ..any };
        assert_eq!(found("latest", &none), Err(Kind::NotFound));
    }
}
