//! Endpoints in memory, as strange as S3 allows: answers that are lost, requests that arrive long
//! after who sent them gave up, refusals of a create that had not landed, listings in no order.
//!
//! All that chance decides is decided by the dice of the story, at the moment a request arrives.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use pinstripe_sim::Dice;

/// The longest that a request is on its way, there and back.
const LATENCY_MILLIS: usize = 60;
/// A request that is late arrives so long after it was sent: later than anybody waits for one.
const LATE: Duration = Duration::from_secs(11);
/// Requests after which an endpoint counts as known.
const FIRST: u64 = 8;
/// One of so many requests meets a fault.
const FAULT_ONE_OF: usize = 9;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    ServerOfMember,
    /// It never arrives.
    Lost,
    /// It is carried out, and the answer never arrives.
    AnswerLost,
    /// It is carried out long after it was sent.
    Late,
    /// A create is refused as if the name were taken, and nothing has landed.
    Conflict,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    /// Each one that was ever put has another.
    version: u64,
}

struct State {
    objects: BTreeMap<String, Object>,
    dice: Dice,
    versions: u64,
    is_down: bool,
    is_calm: bool,
    /// A listing that knows nothing of the last so many changes.
    stale: Vec<BTreeMap<String, Object>>,
    /// Faults in a row, by key: at most two, so that a call ends well within its time.
    in_a_row: HashMap<String, u8>,
    met: BTreeMap<Fate, u64>,
}

/// One endpoint with one bucket.
pub struct Endpoint(Mutex<State>);

impl Endpoint {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Endpoint(Mutex::new(State {
            objects: BTreeMap::new(),
            dice: Dice::new(seed),
            versions: 0,
            is_down: false,
            is_calm: false,
            stale: Vec::new(),
            in_a_row: HashMap::new(),
            met: BTreeMap::new(),
        })))
    }

    /// Whether it answers nothing at all from now on.
    pub fn set_down(&self, is_down: bool) {
        lock(&self.0).is_down = is_down;
    }

    /// Whether every request is served from now on.
    pub fn set_calm(&self, is_calm: bool) {
        lock(&self.0).is_calm = is_calm;
    }

    /// Has listings say what was there before the last change.
    pub fn list_stale(&self) {
        let mut state = lock(&self.0);
        let now = state.objects.clone();
        state.stale.push(now);
    }

    /// How many requests met each fate.
    pub fn met(&self) -> BTreeMap<Fate, u64> {
        lock(&self.0).met.clone()
    }
}

impl State {
    fn fate(&mut self, key: &str, is_create: bool, is_known: bool) -> Fate {
        let in_a_row = self.in_a_row.entry(key.to_owned()).or_default();
        let fate = match (self.dice.below(FAULT_ONE_OF), *in_a_row) {
            (1.., _) | (_, 2..) => Fate::ServerOfMember,
            _ if self.is_calm => Fate::ServerOfMember,
            _ => match self.dice.below(if is_create { 5 } else { 4 }) {
                0 | 1 => Fate::AnswerLost,
                2 => Fate::Lost,
                // Late ones take so long that the call has time for one only.
                3 if *in_a_row == 0 && is_known => Fate::Late,
                3 => Fate::Lost,
                _ => Fate::Conflict,
            },
        };
        *in_a_row = match fate {
            Fate::ServerOfMember => in_a_row.saturating_sub(1),
            // Others may ask for the same meanwhile: what follows is served for a while.
            Fate::Late => 6,
            _ => *in_a_row + 1,
        };
        *self.met.entry(fate).or_default() += 1;
        fate
    }

    fn put(&mut self, key: &str, bytes: Bytes, mode: &PutMode) -> Result<()> {
        if matches!(mode, PutMode::Create) && self.objects.contains_key(key) {
            return Err(exists(key));
        }
        if let Some(stale) = self.stale.last_mut() {
            *stale = self.objects.clone();
        }
        self.versions += 1;
        self.objects.insert(key.to_owned(), Object { bytes, version: self.versions });
        Ok(())
    }
}

/// The way from a host to an endpoint: it ends when the host does.
pub struct Line(Mutex<LineState>);

struct LineState {
    /// Requests that still go out.
    left: u64,
    sent: u64,
}

impl Line {
    pub fn new() -> Arc<Self> {
        Arc::new(Line(Mutex::new(LineState { left: u64::MAX, sent: 0 })))
    }

    /// The host is gone after so many more requests.
    pub fn end_after(&self, requests: u64) {
        lock(&self.0).left = requests;
    }

    /// Whether the host is gone.
    pub fn is_over(&self) -> bool {
        lock(&self.0).left == 0
    }

    /// Whether a request goes out.
    fn sends(&self) -> bool {
        let mut line = lock(&self.0);
        if line.left == 0 {
            return false;
        }
        line.left -= 1;
        line.sent += 1;
        true
    }
}

/// What a host sends its requests with.
#[derive(Clone)]
pub struct Client {
    pub endpoint: Arc<Endpoint>,
    pub line: Arc<Line>,
    /// Requests to this endpoint so far. One that is silent from the first on is given up soon.
    pub sent: Arc<AtomicU64>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an endpoint in memory")
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "sim", source: source.into() }
}

fn cut() -> Error {
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    generic(HttpError::new(HttpErrorKind::Interrupted, broken))
}

fn exists(key: &str) -> Error {
    Error::AlreadyExists { path: key.to_owned(), source: "412".into() }
}

fn missing(key: &Key) -> Error {
    Error::NotFound { path: key.to_string(), source: "404".into() }
}

fn meta(key: &str, object: &Object) -> ObjectMeta {
    ObjectMeta {
        location: Key::from(key),
        last_modified: Default::default(),
        size: object.bytes.len() as u64,
        e_tag: Some(format!("\"{}\"", object.version)),
        version: None,
    }
}

impl Client {
    /// Sends a request. `act` is carried out at most once, when it arrives.
    async fn send<T: Send + 'static>(
        &self,
        key: &str,
        is_create: bool,
        act: impl FnOnce(&mut State) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (there, back, fate) = {
            let mut state = lock(&self.endpoint.0);
            let mut way = || Duration::from_millis(state.dice.below(LATENCY_MILLIS / 2) as u64);
            let ways = (way(), way());
            if state.is_down || !self.line.sends() {
                (ways.0, ways.1, None)
            } else {
                let is_known = self.sent.fetch_add(1, Ordering::Relaxed) >= FIRST;
                (ways.0, ways.1, Some(state.fate(key, is_create, is_known)))
            }
        };
        let endpoint = Arc::clone(&self.endpoint);
        let carry_out = move || act(&mut lock(&endpoint.0));
        match fate {
            None | Some(Fate::Lost) => {
                tokio::time::sleep(there + back).await;
                Err(cut())
            }
            Some(Fate::ServerOfMember) => {
                tokio::time::sleep(there).await;
                let done = carry_out();
                tokio::time::sleep(back).await;
                done
            }
            Some(Fate::AnswerLost) => {
                tokio::time::sleep(there).await;
                drop(carry_out());
                tokio::time::sleep(back).await;
                Err(cut())
            }
            Some(Fate::Late) => {
                // The host that sent it has given up by then, and the end of its call does not end this.
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    drop(carry_out());
                });
                tokio::time::sleep(2 * LATE).await;
                Err(cut())
            }
            Some(Fate::Conflict) => {
                tokio::time::sleep(there + back).await;
                Err(exists(key))
            }
        }
    }

    async fn listed(self, prefix: String) -> Result<Vec<ObjectMeta>> {
        let asked = prefix.clone();
        self.send(&asked, false, move |state| {
            let objects = state.stale.last().unwrap_or(&state.objects);
            let is_below = |key: &&String| key.starts_with(&prefix);
            let found = objects.iter().filter(|(key, _)| is_below(key));
            let mut found: Vec<_> = found.map(|(key, object)| meta(key, object)).collect();
            for at in (1..found.len()).rev() {
                let other = state.dice.below(at + 1);
                found.swap(at, other);
            }
            Ok(found)
        })
        .await
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(
        &self,
        key: &Key,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (name, bytes) = (key.to_string(), Bytes::from(payload));
        let is_create = matches!(opts.mode, PutMode::Create);
        let put = move |state: &mut State| state.put(&name, bytes, &opts.mode);
        self.send(key.as_ref(), is_create, put).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(
        &self,
        _: &Key,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(generic("the program never asks for this"))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        let asked = key.clone();
        let get = move |state: &mut State| {
            let object = state.objects.get(asked.as_ref()).ok_or_else(|| missing(&asked))?;
            let whole = object.bytes.len() as u64;
            let range = match &options.range {
                Some(range) => range.as_range(whole).map_err(generic)?,
                None => 0..whole,
            };
            let bytes = object.bytes.slice(range.start as usize..range.end as usize);
            let bytes = if options.head { Bytes::new() } else { bytes };
            Ok(GetResult {
                payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
                meta: meta(asked.as_ref(), object),
                range,
                attributes: Default::default(),
                extensions: Default::default(),
            })
        };
        self.send(key.as_ref(), false, get).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        let client = self.clone();
        let delete = move |key: Result<Key>| {
            let client = client.clone();
            async move {
                let key = key?;
                let name = key.to_string();
                let delete = move |state: &mut State| {
                    state.objects.remove(&name);
                    Ok(())
                };
                client.send(key.as_ref(), false, delete).await?;
                Ok(key)
            }
        };
        keys.then(delete).boxed()
    }

    fn list(&self, _: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { Err(generic("the program never asks for this")) }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Key>) -> Result<ListResult> {
        Err(generic("the program never asks for this"))
    }

    async fn copy_opts(&self, _: &Key, _: &Key, _: CopyOptions) -> Result<()> {
        Err(generic("the program never asks for this"))
    }
}

#[async_trait]
impl MultipartStore for Client {
    async fn create_multipart(&self, _: &Key) -> Result<MultipartId> {
        Err(generic("no extent of these stories is so long"))
    }

    async fn put_part(&self, _: &Key, _: &MultipartId, _: usize, _: PutPayload) -> Result<PartId> {
        Err(generic("no extent of these stories is so long"))
    }

    async fn complete_multipart(
        &self,
        _: &Key,
        _: &MultipartId,
        _: Vec<PartId>,
    ) -> Result<PutResult> {
        Err(generic("no extent of these stories is so long"))
    }

    async fn abort_multipart(&self, _: &Key, _: &MultipartId) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl PaginatedListStore for Client {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        _: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        let objects = self.clone().listed(prefix.unwrap_or_default().to_owned()).await?;
        let (common_prefixes, extensions) = Default::default();
        let result = ListResult { common_prefixes, objects, extensions };
        Ok(PaginatedListResult { result, page_token: None })
    }
}
