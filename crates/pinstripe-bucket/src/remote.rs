//! Opens members in buckets, with one runtime and one window for each endpoint.

#![allow(clippy::disallowed_methods, reason = "the runtime has threads of its own")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, RetryConfig};
use pinstripe::member::{RemoteMembers, SharedMember};
use pinstripe::split::RemoteOutputs;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::device::SharedDevice;
use tokio::runtime::{Builder, Runtime};

use crate::bandwidth::Bandwidth;
use crate::blocks::Blocks;
use crate::endpoint::Endpoint;
use crate::member::BucketMember;
use crate::output::BucketOutput;
use crate::place::{BucketPlace, EndpointDefaults};
use crate::probe::{self, ProbeReport};
use crate::session::{BucketClient, Session};
use crate::source::BucketSource;
use crate::traffic::{CountingConnector, Requests};

const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);

/// What an endpoint is used with. It has no `Debug`: it holds secrets.
#[derive(Default)]
pub struct Access {
    /// The region that requests are signed for.
    pub region: String,
    /// Options of `object_store` that say where credentials come from, by their names, as in
    /// `aws_access_key_id`.
    pub credentials: Vec<(String, String)>,
}

/// Finds what an endpoint is used with.
type AccessOf = dyn Fn(&BucketPlace) -> Result<Access> + Send + Sync;

/// Makes what sends requests to the bucket of a place.
type ClientOf = dyn Fn(&BucketPlace) -> Arc<dyn BucketClient> + Send + Sync;

/// Opens members in buckets.
pub struct Buckets {
    defaults: EndpointDefaults,
    access: Box<AccessOf>,
    /// In place of a connection to the endpoint.
    client: Option<Box<ClientOf>>,
    runtime: OnceLock<Arc<Runtime>>,
    blocks: Arc<Blocks>,
    /// The members opened so far, with their connections.
    members: Mutex<HashMap<BucketPlace, BucketMember>>,
    bandwidth: Bandwidth,
    endpoints: Mutex<BTreeMap<String, Arc<Endpoint>>>,
}

impl Buckets {
    /// Members at endpoints that `access` has credentials for. Nothing is started before the first
    /// is opened.
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
            members: Mutex::default(),
            endpoints: Mutex::default(),
        }
    }

    /// The same over any object store that has no need of a network, as one in memory. Its requests
    /// are not counted.
    #[must_use]
    pub fn over(
        client: impl Fn(&BucketPlace) -> Arc<dyn BucketClient> + Send + Sync + 'static,
    ) -> Self {
        let buckets = Buckets::new(EndpointDefaults::default(), |_| Ok(Access::default()));
        Buckets { client: Some(Box::new(client)), ..buckets }
    }

    /// The same with so many bytes per second to and from each endpoint, at most.
    #[must_use]
    pub fn with_bandwidth(self, bandwidth: Bandwidth) -> Self {
        Buckets { bandwidth, ..self }
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

    /// The one form of a place in a bucket.
    ///
    /// # Errors
    /// [`Kind::Usage`] when it is none.
    pub fn canonical(&self, place: &Path) -> Result<PathBuf> {
        Ok(BucketPlace::parse(place, &self.defaults)?.path())
    }

    /// The requests so far, to all endpoints.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests_by_endpoint().into_iter().map(|(_, requests)| requests).sum()
    }

    /// The requests so far to each endpoint, named by its URL.
    #[must_use]
    pub fn requests_by_endpoint(&self) -> Vec<(String, Requests)> {
        let endpoints = lock(&self.endpoints);
        endpoints.iter().map(|(url, endpoint)| (url.clone(), endpoint.counters.read())).collect()
    }

    /// The URL of the endpoint that a place is at.
    ///
    /// # Errors
    /// [`Kind::Usage`] when it is no place in a bucket.
    pub fn endpoint_of(&self, place: &Path) -> Result<String> {
        Ok(BucketPlace::parse(place, &self.defaults)?.endpoint())
    }

    /// Tries what an endpoint can, with objects below this place that are removed again.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub fn probe(&self, place: &Path) -> Result<ProbeReport> {
        probe::run(self.member(place)?.inner())
    }

    /// What is below any prefix, to be shown read-only as files of this owner.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when nothing is there; those of the endpoint.
    pub fn source(&self, place: &Path, owner: (u32, u32)) -> Result<BucketSource> {
        let place = BucketPlace::parse(place, &self.defaults)?;
        let session = Arc::new(self.session(&place)?);
        BucketSource::open(session, self.runtime()?, place, owner)
    }

    fn session(&self, place: &BucketPlace) -> Result<Session> {
        let (access, endpoint) = ((self.access)(place)?, self.endpoint(place));
        let region = access.region.clone();
        let client = match &self.client {
            Some(client) => client(place),
            None => Arc::new(client(place, access, &endpoint)?),
        };
        Ok(Session { url: place.endpoint(), region, client, endpoint })
    }

    /// The member at a place; one that was opened before is the same, with its connections.
    fn member(&self, place: &Path) -> Result<BucketMember> {
        let place = BucketPlace::parse(place, &self.defaults)?;
        let mut members = lock(&self.members);
        if let Some(member) = members.get(&place) {
            return Ok(member.clone());
        }
        let session = self.session(&place)?;
        let blocks = (Arc::clone(&self.blocks), members.len() as u64);
        let member = BucketMember::new(session, self.runtime()?, place.clone(), blocks);
        members.insert(place, member.clone());
        Ok(member)
    }

    fn endpoint(&self, place: &BucketPlace) -> Arc<Endpoint> {
        let mut endpoints = lock(&self.endpoints);
        let new = || Arc::new(Endpoint::new(self.bandwidth));
        Arc::clone(endpoints.entry(place.endpoint()).or_insert_with(new))
    }
}

fn client(place: &BucketPlace, access: Access, endpoint: &Endpoint) -> Result<AmazonS3> {
    // Retries and deadlines are the session's, which knows what a lost answer means.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_pool_idle_timeout(IDLE)
        .with_http1_only()
        .with_allow_http(!place.is_secure());
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(place.bucket())
        .with_region(access.region)
        .with_virtual_hosted_style_request(false)
        // Over TLS no byte changes on the way; without, the signature is over the body.
        .with_unsigned_payload(place.is_secure())
        .with_retry(retry)
        .with_disable_bulk_delete(true)
        .with_client_options(options)
        .with_http_connector(CountingConnector(Arc::clone(&endpoint.counters)))
        .with_endpoint(place.endpoint());
    for (name, value) in access.credentials {
        let key = AmazonS3ConfigKey::from_str(&name).map_err(|_| {
            Error::new(Kind::Usage, format!("this is no option of credentials: {name}"))
        })?;
        builder = builder.with_config(key, value);
    }
    builder.build().map_err(|error| {
        Error::new(Kind::Usage, format!("cannot use this endpoint: {error}"))
            .at(place.path())
            .advice("check the endpoint's URL and the credentials")
    })
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

    fn create(&self, place: &Path) -> Result<SharedMember> {
        let member = self.member(place)?;
        member.require_empty()?;
        probe::require_one_winner(member.inner())?;
        Ok(Arc::new(member))
    }

    fn fate(&self, place: &Path) -> Result<String> {
        Ok(BucketPlace::parse(place, &self.defaults)?.endpoint())
    }
}
