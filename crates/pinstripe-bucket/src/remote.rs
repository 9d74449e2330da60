//! Opens members in buckets, with a shared runtime and one window for each endpoint.

#![allow(
    clippy::disallowed_methods,
    reason = "this module starts the runtime, which has its own threads"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;
use pinstripe_member::label::{MemberAbility, MemberFacts, Retention};
use pinstripe_member::{Member, NewMember, RemoteMembers, SealedCache, SharedMember};
use pinstripe_split::RemoteOutputs;
use tokio::runtime::{Builder, Runtime};

use crate::bandwidth::Bandwidth;
use crate::blocks::Blocks;
use crate::clients::{self, Access};
use crate::endpoint::Endpoint;
use crate::kept::Kept;
use crate::locks::{BucketLock, RankedMutex};
use crate::member::BucketMember;
use crate::output::BucketOutput;
use crate::past::Past;
use crate::place::{BucketPlace, EndpointDefaults};
use crate::probe::{self, ProbeReport};
use crate::session::{BucketClient, Session};
use crate::source::BucketSource;
use crate::traffic::Requests;
use crate::versions::Versions;

/// Finds the credentials for an endpoint.
type AccessOf = dyn Fn(&BucketPlace) -> Result<Access> + Send + Sync;

/// Creates the client for the bucket of a place.
type ClientOf = dyn Fn(&BucketPlace) -> Arc<dyn BucketClient> + Send + Sync;

/// Opens members in buckets.
pub struct Buckets {
    defaults: EndpointDefaults,
    access: Box<AccessOf>,
    /// The function that replaces the connection to the endpoint, if one is set.
    client: Option<Box<ClientOf>>,
    runtime: OnceLock<Arc<Runtime>>,
    blocks: Arc<Blocks>,
    /// The members that were opened so far, with their connections.
    members: RankedMutex<HashMap<BucketPlace, BucketMember>>,
    bandwidth: Bandwidth,
    kept: Kept,
    retention: Option<Retention>,
    allows_one_writer: bool,
    past: Option<i64>,
    endpoints: RankedMutex<BTreeMap<String, Arc<Endpoint>>>,
}

impl Buckets {
    /// A new object for members at endpoints; `access` returns the credentials. Nothing is started
    /// before the first member is opened.
    pub fn new(
        defaults: EndpointDefaults,
        access: impl Fn(&BucketPlace) -> Result<Access> + Send + Sync + 'static,
    ) -> Self {
        Buckets {
            defaults,
            access: Box::new(access),
            client: None,
            runtime: OnceLock::new(),
            bandwidth: Bandwidth::default(),
            blocks: Arc::default(),
            members: RankedMutex::new(BucketLock::Members, HashMap::new()),
            kept: Kept::default(),
            retention: None,
            allows_one_writer: false,
            past: None,
            endpoints: RankedMutex::new(BucketLock::Endpoints, BTreeMap::new()),
        }
    }

    /// Like [`new`](Self::new), with any object store without a network, such as one in memory.
    /// Requests to an object store that is given in this way are not counted.
    #[must_use]
    pub fn over(
        client: impl Fn(&BucketPlace) -> Arc<dyn BucketClient> + Send + Sync + 'static,
    ) -> Self {
        let buckets = Buckets::new(EndpointDefaults::default(), |_| Ok(Access::default()));
        Buckets { client: Some(Box::new(client)), ..buckets }
    }

    /// Sets a limit on the bytes per second to and from each endpoint.
    #[must_use]
    pub fn with_bandwidth(self, bandwidth: Bandwidth) -> Self {
        Buckets { bandwidth, ..self }
    }

    /// Sets a retention: objects on new members cannot be deleted for this time.
    #[must_use]
    pub fn with_retention(self, retention: Option<Retention>) -> Self {
        Buckets { retention, ..self }
    }

    /// If `allows` is set, members can also be created at endpoints without create-if-absent.
    #[must_use]
    pub fn with_one_writer(self, allows: bool) -> Self {
        Buckets { allows_one_writer: allows, ..self }
    }

    /// Shows members as they were at this time, in seconds since 1970. A past state needs buckets
    /// that keep versions; nothing can be changed.
    #[must_use]
    pub fn with_past(self, at: Option<i64>) -> Self {
        Buckets { past: at, ..self }
    }

    /// From now on, looks in this cache before it asks the endpoints. The cache must belong to the
    /// store whose members are opened.
    pub fn keep_in(&self, cache: Arc<SealedCache>) {
        self.kept.use_cache(cache);
    }

    fn runtime(&self) -> Result<Arc<Runtime>> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(Arc::clone(runtime));
        }
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("buckets").enable_time();
        if self.client.is_none() {
            builder.enable_io();
        }
        let runtime = builder
            .build()
            .map_err(|error| Error::io("cannot start threads for", "buckets", error))?;
        Ok(Arc::clone(self.runtime.get_or_init(|| Arc::new(runtime))))
    }

    /// The canonical form of a place in a bucket.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the path is not a place in a bucket.
    pub fn canonical(&self, place: &Path) -> Result<PathBuf> {
        Ok(BucketPlace::parse(place, &self.defaults)?.path())
    }

    /// The requests so far, summed over all endpoints.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests_by_endpoint().into_iter().map(|(_, requests)| requests).sum()
    }

    /// The requests so far, by the URL of their endpoint.
    #[must_use]
    pub fn requests_by_endpoint(&self) -> Vec<(String, Requests)> {
        let endpoints = self.endpoints.lock();
        endpoints.iter().map(|(url, endpoint)| (url.clone(), endpoint.counters.read())).collect()
    }

    /// The URL of a place's endpoint.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the path is not a place in a bucket.
    pub fn endpoint_of(&self, place: &Path) -> Result<String> {
        Ok(BucketPlace::parse(place, &self.defaults)?.endpoint())
    }

    /// Tests an endpoint with objects below this place, which are removed afterwards.
    ///
    /// # Errors
    /// Fails with the errors of the endpoint.
    pub fn probe(&self, place: &Path) -> Result<ProbeReport> {
        probe::run(self.member(place)?.inner())
    }

    /// The objects below any prefix, as read-only files of this owner.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no object is there; with the errors of the endpoint.
    pub fn source(&self, place: &Path, owner: (u32, u32)) -> Result<BucketSource> {
        let place = BucketPlace::parse(place, &self.defaults)?;
        let session = Arc::new(self.session(&place)?);
        BucketSource::open(session, self.runtime()?, place, owner)
    }

    fn session(&self, place: &BucketPlace) -> Result<Session> {
        clients::require_built(place)?;
        let (access, endpoint) = ((self.access)(place)?, self.endpoint(place));
        let (region, proxy) = (access.region.clone(), access.proxy.clone());
        let (client, signed) = match &self.client {
            Some(client) => (client(place), None),
            None => clients::open(place, access, &endpoint)?,
        };
        if self.past.is_some() && signed.is_none() {
            let what = "--at works only with buckets that use the S3 protocol";
            return Err(Error::new(Kind::Unsupported, what).at(place.path()));
        }
        let past = self.past.map(|at| Past::new(at, place.prefix()));
        let (versions, url) = (Versions::default(), place.endpoint());
        let has_one_writer = AtomicBool::new(false);
        Ok(Session { client, signed, past, versions, has_one_writer, url, region, proxy, endpoint })
    }

    /// The member at a place; it is opened once, and then shared together with its connections.
    fn member(&self, place: &Path) -> Result<BucketMember> {
        let place = BucketPlace::parse(place, &self.defaults)?;
        let mut members = self.members.lock();
        if let Some(member) = members.get(&place) {
            return Ok(member.clone());
        }
        let session = self.session(&place)?;
        let blocks = (Arc::clone(&self.blocks), members.len() as u64);
        let member =
            BucketMember::new(session, self.runtime()?, place.clone(), blocks, self.kept.clone());
        members.insert(place, member.clone());
        Ok(member)
    }

    fn endpoint(&self, place: &BucketPlace) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        let new = || Arc::new(Endpoint::new(self.bandwidth));
        Arc::clone(endpoints.entry(place.endpoint()).or_insert_with(new))
    }
}

fn no_object_lock(place: &Path) -> Error {
    Error::new(
        Kind::Unsupported,
        "objects in this bucket cannot be retained, because the bucket has no object lock",
    )
    .at(place)
    .advice(
        "create the bucket with object lock ('aws s3api create-bucket \
         --object-lock-enabled-for-bucket') if the provider supports it, or leave out --retain",
    )
}

impl RemoteOutputs for Buckets {
    fn output(&self, place: &Path) -> Result<SharedDevice> {
        let place = BucketPlace::parse(place, &self.defaults)?;
        Ok(Arc::new(BucketOutput::open(self.session(&place)?, self.runtime()?, place)?))
    }
}

impl RemoteMembers for Buckets {
    fn open(&self, place: &Path) -> Result<SharedMember> {
        Ok(Arc::new(self.member(place)?))
    }

    fn create(&self, place: &Path) -> Result<NewMember> {
        let member = self.member(place)?;
        member.require_empty()?;
        let mut facts = probe::survey(member.inner(), self.allows_one_writer)?;
        if self.retention.is_some() {
            if facts.knows(MemberAbility::ObjectLock) != Some(true) {
                return Err(no_object_lock(member.place()));
            }
            facts.retention = self.retention;
        }
        member.inner().agree(&facts);
        member.inner().runtime.block_on(member.inner().fill_reserve(&[]));
        Ok(NewMember { member: Arc::new(member), facts })
    }

    fn agree(&self, place: &Path, facts: &MemberFacts) {
        // A member that cannot be opened is reported when it is used.
        if let Ok(member) = self.member(place) {
            member.inner().agree(facts);
        }
    }

    fn fate(&self, place: &Path) -> Result<String> {
        Ok(BucketPlace::parse(place, &self.defaults)?.endpoint())
    }

    fn label_mark(&self, place: &Path) -> Result<Option<String>> {
        self.member(place)?.label_mark().map(Some)
    }
}
