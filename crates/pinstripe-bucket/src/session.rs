//! One endpoint with its credentials: requests sent until they are answered or their time is over.
//!
//! Invariants: a request waits for the window of its endpoint; what failed for a moment is sent
//! again, with a growing pause that chance makes different on each host; an endpoint that was
//! silent for a whole call is not waited for again for a while, so that a dead one costs one
//! deadline and not one per call.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use pinstripe::member::goes_on;
use pinstripe_base::clock;
use pinstripe_base::error::Error;

use crate::endpoint::{Endpoint, Load};
use crate::fault::Fault;

/// One attempt of a request may take so long, and a second more for each MiB that it moves.
const ATTEMPT: Duration = Duration::from_secs(8);
/// A call with all its attempts may take so long, with the same addition.
const CALL: Duration = Duration::from_secs(20);
/// A call to an endpoint that has not answered yet, and one that it refuses to connect.
const FIRST_CALL: Duration = Duration::from_secs(9);
const FIRST_CONNECT: Duration = Duration::from_secs(2);
/// The first pause before a request is sent again; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Answers that are none of S3's until a call gives up: what answers so may not be S3.
const ODD_MAX: usize = 3;
/// Who waits for tasks of the runtime says so at this interval.
const BANDWIDTH_LOOK: Duration = Duration::from_millis(250);
/// Keys in a page of a listing.
pub const PAGE: usize = 1000;
/// How often a listing that broke off in its middle is begun.
const LIST_STARTS: usize = 6;
/// More keys than any room has: an endpoint that lists without end is given up there.
pub const LIST_MAX: usize = 1 << 26;

/// What sends requests to a bucket, each once: retries and deadlines are the session's.
pub trait BucketClient: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> BucketClient for T {}

/// A bucket at an endpoint, opened with credentials.
pub struct Session {
    pub client: Arc<dyn BucketClient>,
    /// The endpoint's URL.
    pub url: String,
    pub region: String,
    pub endpoint: Arc<Endpoint>,
}

/// An object, as far as it was asked for.
pub struct Fetched {
    /// The length of the whole object.
    pub object_bytes: u64,
    /// What tells its content from another's.
    pub mark: ObjectMark,
    /// Its first bytes, where they were asked for beside others.
    pub head: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// What an endpoint says of the content of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectMark {
    pub e_tag: String,
    /// Seconds since 1970.
    pub modified: i64,
}

impl ObjectMark {
    pub fn of(meta: &ObjectMeta) -> Self {
        let e_tag = meta.e_tag.clone().unwrap_or_default();
        ObjectMark { e_tag, modified: meta.last_modified.timestamp() }
    }
}

impl Session {
    /// The error of a call that was to do `act` on `place`.
    pub fn error(&self, fault: &Fault, act: &str, place: impl AsRef<Path>) -> Error {
        fault.error(act, place.as_ref(), &self.url, &self.region)
    }

    /// Sends a request that moves so many bytes until it is answered; `send` makes it anew.
    pub async fn send<T, F>(&self, load: Load, send: impl Fn() -> F) -> Result<T, Fault>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let endpoint = &*self.endpoint;
        let mut turns = self.turns(load.time())?;
        loop {
            turns.wait(endpoint, load).await;
            let permit = endpoint.window.enter().await;
            let halved = permit.halved;
            let time = (ATTEMPT + load.time()).min(turns.left());
            let answer = tokio::time::timeout(time, send()).await;
            drop(permit);
            let fault = match answer {
                Ok(Ok(done)) => {
                    self.good_answer();
                    return Ok(done);
                }
                Ok(Err(error)) => Fault::of(&error),
                Err(_) => Fault::Late,
            };
            turns.next(endpoint, fault, halved).await?;
        }
    }

    /// Waits for what tasks of the runtime do. Their requests have deadlines; that they wait for
    /// bandwidth is no silence of the member.
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

    /// The turns of a call; none while the endpoint is left alone.
    fn turns(&self, data: Duration) -> Result<Turns, Fault> {
        let (has_answered, rests) = self.endpoint.health.look();
        match rests {
            Some(fault) => Err(fault),
            None => {
                let call = if has_answered { CALL } else { FIRST_CALL } + data;
                Ok(Turns { began: clock::monotonic(), call, has_answered, pause: PAUSE, odd: 0 })
            }
        }
    }

    fn good_answer(&self) {
        self.endpoint.window.widen();
        self.endpoint.health.answered();
    }

    /// Writes an object over any that has the key.
    pub async fn put(&self, key: &Key, payload: &PutPayload) -> Result<(), Fault> {
        self.send(Load::up(payload.content_length() as u64), || async {
            self.client.put(key, payload.clone()).await.map(drop)
        })
        .await
    }

    /// Writes an object if none has the key. "Exists already" is believed when the object there
    /// was read and is another one: an answer to an earlier attempt may have been lost.
    pub async fn create(&self, key: &Key, payload: &PutPayload) -> Result<(), Fault> {
        let bytes = payload.content_length() as u64;
        let began = clock::monotonic();
        loop {
            let sent = self.send(Load::up(bytes), || async {
                let options = PutOptions::from(PutMode::Create);
                self.client.put_opts(key, payload.clone(), options).await.map(drop)
            });
            match sent.await {
                Err(Fault::Exists) => {}
                done => return done,
            }
            match self.get(key, None, bytes).await {
                Ok(there) if is_same(&there, payload) => return Ok(()),
                Ok(_) => return Err(Fault::Exists),
                // Gone again, or never there.
                Err(Fault::Missing) if since(began) < CALL => self.endpoint.counters.retried(),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Reads a range of an object, or all of it if it is not longer than `most_bytes`.
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
        self.send(load, || async {
            let options = GetOptions { range: range.clone(), ..GetOptions::default() };
            let got = self.client.get_opts(key, options).await?;
            let (object_bytes, mark) = (got.meta.size, ObjectMark::of(&got.meta));
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

    /// The bytes of a body that is to have so many.
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
        let source = format!("a body of {} bytes instead of {wanted}", bytes.len()).into();
        Err(object_store::Error::Generic { store: "S3", source })
    }

    /// The length of an object.
    pub async fn len(&self, key: &Key) -> Result<u64, Fault> {
        Ok(self.look(key).await?.size)
    }

    /// What is said of an object.
    pub async fn look(&self, key: &Key) -> Result<ObjectMeta, Fault> {
        self.send(Load::default(), || self.client.head(key)).await
    }

    /// A page of what stands directly below a prefix, which ends with a slash or is empty: objects,
    /// and prefixes of others. `token` is that of the page before.
    pub async fn list_below(
        &self,
        prefix: &str,
        token: Option<String>,
        most: usize,
    ) -> Result<PaginatedListResult, Fault> {
        self.send(Load::default(), || async {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(most),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let prefix = (!prefix.is_empty()).then_some(prefix);
            self.client.list_paginated(prefix, options).await
        })
        .await
    }

    /// Removes an object, which may be gone.
    pub async fn delete(&self, key: &Key) -> Result<(), Fault> {
        let deleted = self.send(Load::default(), || async { self.client.delete(key).await });
        match deleted.await {
            Err(Fault::Missing) => Ok(()),
            done => done,
        }
    }

    /// What `keep` makes of every key below a prefix, in any order. With `most` it may end after
    /// so many keys. What failed midway is asked anew from the start: only the endpoint knows an
    /// order.
    pub async fn list<T>(
        &self,
        prefix: &Key,
        most: usize,
        keep: impl Fn(&ObjectMeta) -> Option<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut turns = self.turns(Duration::ZERO)?;
        let mut broken_off = 0;
        loop {
            let (mut kept, mut seen) = (Vec::new(), 0_usize);
            let prefix = (!prefix.as_ref().is_empty()).then_some(prefix);
            let mut pages = self.client.list(prefix).ready_chunks(PAGE);
            let (fault, halved) = loop {
                let permit = self.endpoint.window.enter().await;
                let halved = permit.halved;
                let page = tokio::time::timeout(ATTEMPT, pages.next()).await;
                drop(permit);
                let page = match page {
                    Err(_) => break (Fault::Late, halved),
                    Ok(None) => {
                        self.good_answer();
                        return Ok(kept);
                    }
                    Ok(Some(page)) => page.into_iter().collect::<object_store::Result<Vec<_>>>(),
                };
                let page = match page {
                    Ok(page) => page,
                    Err(error) => break (Fault::of(&error), halved),
                };
                // A long listing is one call that makes progress.
                goes_on();
                turns.began = clock::monotonic();
                seen += page.len();
                kept.extend(page.iter().filter_map(&keep));
                if seen >= most {
                    return Ok(kept);
                }
            };
            broken_off += usize::from(seen > 0);
            if broken_off == LIST_STARTS {
                return Err(fault);
            }
            turns.next(&self.endpoint, fault, halved).await?;
        }
    }
}

/// The attempts of one call.
struct Turns {
    began: Instant,
    call: Duration,
    has_answered: bool,
    pause: Duration,
    /// Answers that were none of S3's.
    odd: usize,
}

impl Turns {
    fn left(&self) -> Duration {
        self.call.saturating_sub(since(self.began))
    }

    /// Waits until so many bytes may go; that is not the endpoint's time.
    async fn wait(&mut self, endpoint: &Endpoint, load: Load) {
        if endpoint.up.is_limited() || endpoint.down.is_limited() {
            let began = clock::monotonic();
            endpoint.up.wait(load.up).await;
            endpoint.down.wait(load.down).await;
            self.began += since(began);
        }
    }

    /// Waits until the request may be sent again. It went out when the window had been halved so
    /// often.
    ///
    /// # Errors
    /// The fault, when sending again is of no use or the time is over.
    async fn next(&mut self, endpoint: &Endpoint, fault: Fault, halved: u64) -> Result<(), Fault> {
        if !fault.is_silence() {
            endpoint.health.answered();
        }
        let mut asked_for = Duration::ZERO;
        if let Fault::Refused(refusal) = &fault
            && refusal.is_throttle()
        {
            endpoint.window.halve(halved);
            asked_for = refusal.retry_after.min(PAUSE_MAX);
        }
        self.odd += usize::from(matches!(fault, Fault::Odd(_)));
        if !fault.is_transient() || self.odd == ODD_MAX {
            return Err(fault);
        }
        let is_refused = matches!(fault, Fault::Cut(_)) && !self.has_answered;
        let is_over = is_refused && since(self.began) >= FIRST_CONNECT;
        if is_over || self.left() <= self.pause {
            if fault.is_silence() {
                endpoint.health.was_silent(&fault);
            }
            return Err(fault);
        }
        tokio::time::sleep(asked_for + jittered(self.pause)).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        endpoint.counters.retried();
        Ok(())
    }
}

fn is_same(there: &Fetched, payload: &PutPayload) -> bool {
    let ours = payload.iter().flat_map(|part| part.iter());
    there.object_bytes == payload.content_length() as u64 && there.bytes.iter().eq(ours)
}

fn since(began: Instant) -> Duration {
    clock::since(began)
}

/// A pause of half to one and a half of this length.
fn jittered(pause: Duration) -> Duration {
    let chance = pinstripe_base::id::random::<1>().map_or(128, |[byte]| u32::from(byte));
    pause / 2 + pause * chance / 256
}
