//! A session with one endpoint: each request is retried until it is answered or its time has
//! elapsed.
//!
//! Invariants: a request waits until the window of its endpoint has room. After a transient
//! failure, a request is sent again after a growing pause with a random part, so that hosts do not
//! retry at the same time. An endpoint that was silent for an entire call rests for a while, so
//! that a dead endpoint costs one time limit and not one per call.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use pinstripe_base::clock;
use pinstripe_base::error::Error;
use pinstripe_member::goes_on;

use crate::attempts::{self, Attempts};
use crate::endpoint::{Endpoint, Load};
use crate::fault::Fault;
use crate::lock::Lock;
use crate::past::Past;
use crate::signed::{Answer, Ask, Signed};
use crate::versions::Versions;

/// The time limit of one attempt, extended by a second for each MiB that it moves.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(8);
/// How long a call is retried while an endpoint alternately answers "exists" and "not found" for a
/// key.
const CONTRADICTS: Duration = Duration::from_secs(5);
/// The interval at which a wait for tasks of the runtime reports progress.
const BANDWIDTH_LOOK: Duration = Duration::from_millis(250);
/// An object of at least this length is sent again only after a check that it does not exist.
const LONG_BYTES: usize = 64 << 10;

/// The client that sends requests to a bucket, each only once: the session handles retries and time
/// limits.
pub trait BucketClient: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> BucketClient for T {}

/// A bucket at an endpoint, opened with credentials.
pub struct Session {
    pub client: Arc<dyn BucketClient>,
    /// Sends signed requests for which the client has no methods; S3 only.
    pub signed: Option<Signed>,
    /// The past state of the bucket that is shown; nothing can be written in this case.
    pub past: Option<Past>,
    pub versions: Versions,
    /// Whether the endpoint lacks create-if-absent: then only one writer at a time uses it, and
    /// [`Session::create`] checks whether the object exists.
    pub has_one_writer: AtomicBool,
    /// The endpoint's URL.
    pub url: String,
    pub region: String,
    /// The proxy between this host and the endpoint, for messages.
    pub proxy: Option<String>,
    pub endpoint: Arc<Endpoint>,
}

/// The requested part of an object.
pub(crate) struct Fetched {
    /// The length of the object.
    pub object_bytes: u64,
    /// The identity of the object's content.
    pub mark: ObjectMark,
    /// The first bytes of the object, if they were requested in addition to others.
    pub head: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// The metadata that identifies the content of an object at the endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectMark {
    pub e_tag: String,
    /// Seconds since 1970.
    pub modified: i64,
}

impl ObjectMark {
    pub(crate) fn from_meta(meta: &ObjectMeta) -> Self {
        let e_tag = tag_of(meta.e_tag.as_deref()).unwrap_or_default();
        ObjectMark { e_tag, modified: meta.last_modified.timestamp() }
    }
}

/// An entity tag without quotes: Azure's listings have no quotes, its other answers do.
pub(crate) fn tag_of(e_tag: Option<&str>) -> Option<String> {
    e_tag.map(|tag| tag.trim_matches('"').to_owned())
}

impl Session {
    /// The error of a call that tried to do `act` on `place`.
    pub fn error(&self, fault: &Fault, act: &str, place: impl AsRef<Path>) -> Error {
        let error = fault.error(act, place.as_ref(), &self.url, &self.region);
        match &self.proxy {
            Some(proxy) if fault.is_silence() => error.advice_instead(format!(
                "the request was tried several times through the proxy {proxy}: check this proxy \
                 and the endpoint, or add the endpoint's host to NO_PROXY"
            )),
            _ => error,
        }
    }

    /// Sends a request with this load until it is answered; `send` creates the request for each
    /// attempt.
    pub async fn send<T, F>(&self, load: Load, send: impl Fn() -> F) -> Result<T, Fault>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let endpoint = &*self.endpoint;
        let mut attempts = Attempts::for_endpoint(endpoint, load.time())?;
        loop {
            attempts.wait(endpoint, load).await;
            let permit = endpoint.window.enter().await;
            let halved = permit.halved;
            let time = (ATTEMPT + load.time()).min(attempts.left());
            let began = clock::monotonic();
            let answer = tokio::time::timeout(time, send()).await;
            drop(permit);
            let fault = match answer {
                Ok(Ok(done)) => {
                    endpoint.latency.saw(load, clock::since(began));
                    self.good_answer();
                    return Ok(done);
                }
                Ok(Err(error)) => Fault::from_error(&error),
                Err(_) => Fault::Late,
            };
            attempts.next(endpoint, fault, halved).await?;
        }
    }

    /// Waits for tasks of the runtime. Requests of these tasks have time limits; a wait for
    /// bandwidth does not count as silence of the member.
    pub async fn patiently<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match tokio::time::timeout(BANDWIDTH_LOOK, &mut work).await {
                Ok(done) => return done,
                Err(_) if self.endpoint.down.is_limited() => goes_on(),
                Err(_) => {}
            }
        }
    }

    pub(crate) fn good_answer(&self) {
        self.endpoint.window.widen();
        self.endpoint.health.answered();
    }

    /// Refuses changes to a bucket that is shown in a past state.
    pub(crate) fn require_present(&self) -> Result<(), Fault> {
        self.past.as_ref().map_or(Ok(()), |_| Err(Fault::ReadOnly))
    }

    /// Sends a signed request for which the client has no method.
    pub async fn signed(&self, load: Load, ask: &Ask) -> Result<Answer, Fault> {
        let Some(signed) = &self.signed else { return Err(Fault::Unknown) };
        self.send(load, || signed.call(ask.clone())).await
    }

    /// Like [`signed`](Self::signed), but returns the answer's body as text.
    pub async fn ask(&self, load: Load, ask: &Ask) -> Result<String, Fault> {
        let Some(signed) = &self.signed else { return Err(Fault::Unknown) };
        self.send(load, || async { signed.call(ask.clone()).await?.text().await }).await
    }

    /// Writes an object, and replaces one that has the same key. Returns the object's entity tag,
    /// if the endpoint sends it.
    pub async fn put(
        &self,
        key: &Key,
        payload: &PutPayload,
        lock: Option<&Lock>,
    ) -> Result<Option<String>, Fault> {
        self.require_present()?;
        self.put_with(PutMode::Overwrite, key, payload, lock).await
    }

    /// Sends an object, with a lock if one is given, until it is answered. If the answer for a long
    /// object was lost, checks whether the object exists before sending it again: an endpoint that
    /// has the object refuses the request by its head and may close the connection during the body,
    /// so that the second answer is lost, too.
    async fn put_with(
        &self,
        mode: PutMode,
        key: &Key,
        payload: &PutPayload,
        lock: Option<&Lock>,
    ) -> Result<Option<String>, Fault> {
        debug_assert!(self.past.is_none(), "nothing is written to a past state");
        let load = Load::up(payload.content_length() as u64);
        let has_sent = AtomicBool::new(false);
        let is_looked_for = mode == PutMode::Create && payload.content_length() >= LONG_BYTES;
        let is_there = || async {
            let is_again = has_sent.swap(true, Ordering::Relaxed);
            is_looked_for && is_again && self.client.head(key).await.is_ok()
        };
        if let Some(lock) = lock {
            let Some(signed) = &self.signed else { return Err(Fault::Unknown) };
            let ask = lock.ask(key, payload, mode == PutMode::Create);
            let send = || async {
                match is_there().await {
                    true => Err(exists(key)),
                    false => signed.call(ask.clone()).await.map(drop),
                }
            };
            return self.send(load, send).await.map(|()| None);
        }
        self.send(load, || async {
            if is_there().await {
                return Err(exists(key));
            }
            let options = PutOptions::from(mode.clone());
            let answer = self.client.put_opts(key, payload.clone(), options).await?;
            self.versions.saw(&answer);
            Ok(tag_of(answer.e_tag.as_deref()))
        })
        .await
    }

    /// Writes an object if no object has the key. "Exists already" is an error only if the object
    /// was read and differs: the answer to an earlier attempt may have been lost.
    pub async fn create(
        &self,
        key: &Key,
        payload: &PutPayload,
        lock: Option<&Lock>,
    ) -> Result<Option<String>, Fault> {
        self.require_present()?;
        if self.has_one_writer.load(Ordering::Relaxed) {
            return self.create_alone(key, payload, lock).await;
        }
        let (began, mut pause) = (clock::monotonic(), Duration::ZERO);
        loop {
            match self.put_with(PutMode::Create, key, payload, lock).await {
                Err(Fault::Exists) => {}
                done => return done,
            }
            match self.get(key, None, payload.content_length() as u64).await {
                Ok(there) if is_same(&there, payload) => return Ok(Some(there.mark.e_tag)),
                Ok(_) => return Err(Fault::Exists),
                // Deleted meanwhile, or never stored.
                Err(Fault::Missing) if clock::since(began) < CONTRADICTS => {
                    self.endpoint.counters.retried();
                    pause = attempts::pause(pause).await;
                }
                Err(Fault::Missing) => return Err(Fault::Contradicts),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Creates an object at an endpoint without create-if-absent. Creating an object in this way is
    /// safe only for a single writer.
    async fn create_alone(
        &self,
        key: &Key,
        payload: &PutPayload,
        lock: Option<&Lock>,
    ) -> Result<Option<String>, Fault> {
        match self.head(key).await {
            Err(Fault::Missing) => self.put_with(PutMode::Overwrite, key, payload, lock).await,
            Err(fault) => Err(fault),
            Ok(_) => match self.get(key, None, payload.content_length() as u64).await? {
                there if is_same(&there, payload) => Ok(Some(there.mark.e_tag)),
                _ => Err(Fault::Exists),
            },
        }
    }

    /// Reads a range of an object, or the entire object if it is not longer than `most_bytes`.
    pub async fn get(
        &self,
        key: &Key,
        range: Option<GetRange>,
        most_bytes: u64,
    ) -> Result<Fetched, Fault> {
        let down = match &range {
            Some(GetRange::Bounded(range)) => range.end.saturating_sub(range.start),
            Some(GetRange::Suffix(bytes)) => *bytes,
            _ => 0,
        };
        let load = Load { up: 0, down, most_down: most_bytes };
        let version = match &self.past {
            Some(past) => Some(past.version(self, key).await?.id),
            None => None,
        };
        self.send(load, || async {
            let (range, version) = (range.clone(), version.clone());
            let options = GetOptions { range, version, ..GetOptions::default() };
            let got = self.client.get_opts(key, options).await?;
            let (object_bytes, mark) = (got.meta.size, ObjectMark::from_meta(&got.meta));
            let wanted = got.range.end.saturating_sub(got.range.start);
            if wanted > most_bytes {
                return Ok(Fetched { object_bytes, mark, head: Vec::new(), bytes: Vec::new() });
            }
            let bytes = self.collect(got.into_stream(), wanted).await?;
            self.endpoint.down.spend(wanted.saturating_sub(down));
            Ok(Fetched { object_bytes, mark, head: Vec::new(), bytes })
        })
        .await
    }

    /// Reads a body with this expected length.
    async fn collect(
        &self,
        mut stream: impl Stream<Item = object_store::Result<bytes::Bytes>> + Unpin,
        wanted: u64,
    ) -> object_store::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(wanted as usize);
        while let Some(part) = stream.next().await {
            let part = part?;
            self.endpoint.counters.received(part.len() as u64);
            bytes.extend_from_slice(&part);
            if bytes.len() as u64 > wanted {
                break;
            }
        }
        if bytes.len() as u64 == wanted {
            return Ok(bytes);
        }
        let source = format!("the answer has {} bytes instead of {wanted}", bytes.len()).into();
        Err(object_store::Error::Generic { store: "S3", source })
    }

    /// The length of an object.
    pub async fn len(&self, key: &Key) -> Result<u64, Fault> {
        Ok(self.head(key).await?.size)
    }

    /// The metadata of an object.
    pub async fn head(&self, key: &Key) -> Result<ObjectMeta, Fault> {
        if let Some(past) = &self.past {
            return Ok(past.version(self, key).await?.meta(key));
        }
        self.send(Load::default(), || self.client.head(key)).await
    }

    /// Removes an object; it is not an error if the object does not exist.
    pub async fn delete(&self, key: &Key) -> Result<(), Fault> {
        self.require_present()?;
        let deleted = self.send(Load::default(), || async { self.client.delete(key).await });
        match deleted.await {
            Err(Fault::Missing) => Ok(()),
            done => done,
        }
    }
}

fn exists(key: &Key) -> object_store::Error {
    let source = "an earlier attempt or another writer created the object".into();
    object_store::Error::AlreadyExists { path: key.to_string(), source }
}

fn is_same(there: &Fetched, payload: &PutPayload) -> bool {
    let ours = payload.iter().flat_map(|part| part.iter());
    there.object_bytes == payload.content_length() as u64 && there.bytes.iter().eq(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_same_with_quotes_and_without() {
        assert_eq!(tag_of(Some("\"0x8D\"")), tag_of(Some("0x8D")));
        assert_ne!(tag_of(Some("0x8D")), tag_of(Some("0x8E")));
        assert_eq!(tag_of(None), None);
    }
}
