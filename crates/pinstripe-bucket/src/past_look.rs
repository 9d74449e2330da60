//! Finds the content of a bucket at a past time, from the endpoint's listing of versions.

use std::collections::BTreeMap;

use object_store::ObjectMeta;
use object_store::path::Path as Key;

use crate::endpoint::Load;
use crate::fault::Fault;
use crate::listing::LIST_MAX;
use crate::past::{Entry, ODD, Past, Version, entries};
use crate::session::Session;
use crate::signed::{Ask, tagged};

impl Past {
    /// The version of an object that was current at the time.
    pub async fn version(&self, session: &Session, key: &Key) -> Result<Version, Fault> {
        self.seen(session).await?.get(key).cloned().ok_or(Fault::Missing)
    }

    /// The objects below a prefix at the time.
    pub async fn list(&self, session: &Session, prefix: &str) -> Result<Vec<ObjectMeta>, Fault> {
        let below = |key: &Key| {
            let rest = key.as_ref().strip_prefix(prefix);
            rest.is_some_and(|rest| prefix.is_empty() || rest.starts_with('/'))
        };
        let seen = self.seen(session).await?.iter().filter(|(key, _)| below(key));
        Ok(seen.map(|(key, version)| version.meta(key)).collect())
    }

    async fn seen(&self, session: &Session) -> Result<&BTreeMap<Key, Version>, Fault> {
        self.seen.get_or_try_init(|| self.look(session)).await
    }

    async fn look(&self, session: &Session) -> Result<BTreeMap<Key, Version>, Fault> {
        let mut newest: BTreeMap<String, Entry> = BTreeMap::new();
        let (mut marker, mut seen) = (None::<(String, String)>, 0);
        loop {
            let mut query = vec![("prefix", self.prefix.clone()), ("versions", String::new())];
            if let Some((key, version)) = &marker {
                query.push(("key-marker", key.clone()));
                query.push(("version-id-marker", version.clone()));
            }
            let ask = Ask { method: "GET", query, ..Ask::default() };
            let page = session.ask(Load::default(), &ask).await?;
            pinstripe_member::goes_on();
            let entries = entries(&page, seen).ok_or_else(|| Fault::Odd(ODD.to_owned()))?;
            seen += entries.len();
            for entry in entries.into_iter().filter(|entry| entry.modified <= self.at) {
                debug_assert!(entry.modified <= self.at, "later versions are not seen");
                let rank = |entry: &Entry| (entry.modified, usize::MAX - entry.turn);
                match newest.get(&entry.key) {
                    Some(other) if rank(other) >= rank(&entry) => {}
                    _ => drop(newest.insert(entry.key.clone(), entry)),
                }
            }
            if tagged(&page, "IsTruncated").as_deref() != Some("true") {
                break;
            }
            let next = (
                tagged(&page, "NextKeyMarker").unwrap_or_default(),
                tagged(&page, "NextVersionIdMarker").unwrap_or_default(),
            );
            // A listing that repeats itself or does not end.
            if next.0.is_empty() || Some(&next) == marker.as_ref() || seen > LIST_MAX {
                return Err(Fault::Odd(ODD.to_owned()));
            }
            marker = Some(next);
        }
        let there = newest.into_values().filter_map(|entry| {
            let key = Key::parse(&entry.key).ok()?;
            Some((key, entry.version?))
        });
        Ok(there.collect())
    }
}
