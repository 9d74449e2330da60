//! Opens members in pools, with one connection for each user of a cluster.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_member::label::MemberFacts;
use pinstripe_member::{NewMember, RemoteMembers, SharedMember};

use crate::cluster::Cluster;
use crate::member::RadosMember;

/// The prefix of places in pools.
pub(crate) const SCHEME: &str = "rados://";
/// The Ceph user if a place names none.
const USER: &str = "client.admin";
/// How much longer a request may take than its caller waits. The caller decides when a member does
/// not respond, and its abandoned requests end soon after.
const LONGER: Duration = Duration::from_secs(5);

/// Opens members in pools of the Ceph cluster that a configuration file names.
pub struct Pools {
    conf: PathBuf,
    deadline: Duration,
    clusters: Mutex<HashMap<String, Arc<Cluster>>>,
}

/// The parts of a place.
#[derive(Debug, PartialEq, Eq)]
struct PoolPlace<'p> {
    user: &'p str,
    pool: &'p str,
    namespace: &'p str,
}

/// Whether a place is in a pool.
#[must_use]
pub fn is_pool(place: &Path) -> bool {
    place.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
}

impl<'p> PoolPlace<'p> {
    fn parse(place: &'p Path) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Usage, "this is not a valid URL of a namespace in a Ceph pool")
                .at(place)
                .advice("write rados://POOL/NAMESPACE or rados://USER@POOL/NAMESPACE")
        };
        let text = place.to_str().and_then(|text| text.strip_prefix(SCHEME)).ok_or_else(wrong)?;
        let (pool, namespace) = text.split_once('/').ok_or_else(wrong)?;
        let (user, pool) = pool.split_once('@').unwrap_or((USER, pool));
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.len() <= 128 && name.bytes().all(is_part)
        };
        match [user, pool, namespace].into_iter().all(is_name) {
            true => Ok(PoolPlace { user, pool, namespace }),
            false => Err(wrong()),
        }
    }
}

impl Pools {
    /// Members in the cluster of a configuration file; `patience` is the time that callers wait for
    /// an answer. Nothing is connected before the first member is opened.
    pub fn new(conf: PathBuf, patience: Duration) -> Self {
        Pools { conf, deadline: patience.saturating_add(LONGER), clusters: Mutex::default() }
    }

    fn cluster(&self, user: &str) -> Result<Arc<Cluster>> {
        let mut clusters = lock(&self.clusters);
        if let Some(cluster) = clusters.get(user) {
            return Ok(Arc::clone(cluster));
        }
        let cluster = Cluster::connect(&self.conf, user, self.deadline)?;
        clusters.insert(user.to_owned(), Arc::clone(&cluster));
        Ok(cluster)
    }

    fn member(&self, place: &Path) -> Result<RadosMember> {
        let PoolPlace { user, pool, namespace } = PoolPlace::parse(place)?;
        RadosMember::open(&self.cluster(user)?, pool, namespace, place)
    }
}

impl RemoteMembers for Pools {
    fn open(&self, place: &Path) -> Result<SharedMember> {
        Ok(Arc::new(self.member(place)?))
    }

    fn create(&self, place: &Path) -> Result<NewMember> {
        let member = self.member(place)?;
        member.require_empty()?;
        Ok(NewMember { member: Arc::new(member), facts: MemberFacts::default() })
    }

    fn fate(&self, place: &Path) -> Result<String> {
        let PoolPlace { user, .. } = PoolPlace::parse(place)?;
        self.cluster(user)?.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_apart_and_others_refused() {
        let parse = |text: &'static str| PoolPlace::parse(Path::new(text));
        let place = PoolPlace { user: "client.admin", pool: "data", namespace: "lab" };
        assert_eq!(parse("rados://data/lab").unwrap(), place);
        let place = PoolPlace { user: "client.backup", ..place };
        assert_eq!(parse("rados://client.backup@data/lab").unwrap(), place);
        for odd in [
            "rados://data",
            "rados://data/",
            "rados:///lab",
            "rados://@data/lab",
            "rados://data/a/b",
            "rados://da ta/lab",
            "s3://data/lab",
        ] {
            assert_eq!(parse(odd).unwrap_err().kind(), Kind::Usage, "{odd}");
        }
        assert!(is_pool(Path::new("rados://data/lab")) && !is_pool(Path::new("/rados://a/b")));
    }
}
