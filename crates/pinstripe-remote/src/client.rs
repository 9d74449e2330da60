//! Sends requests to one server, again where that is safe, within a deadline.

#![allow(clippy::disallowed_methods, reason = "waits before a request is sent again")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_base::units::MIB;
use pinstripe_member::{
    ExtentName, FetchedPart, RunPart, RunToLay, SecretBytes, SetServer, goes_on,
};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use tokio::runtime::Runtime;

use crate::answer::{HttpAnswer, RequestFault, Unsure};
use crate::batches::{Batches, too_long};
use crate::catalog_messages::CATALOG_HEADER;
use crate::client_certificate::{ClientCertificate, alert_in, refused};
use crate::ends::Ends;
use crate::join_string::{JoinString, KeyPin, TokenId};
use crate::look_messages::{LOOK_MAX_BYTES, LookRequest, MemberLook};
use crate::looks::Looks;
use crate::objects::{ObjectsAnswer, ObjectsRequest};
use crate::place::ServedPlace;
use crate::protocol::{ANSWER_MAX_BYTES, Hello, SUM_HEADER, sum_of};
use crate::sets::{SET_HEADER, SetHead, decode_fetched, decode_laid, encode_parts};
use crate::tls;

const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
/// The first pause before a request is sent again; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The least rate at which a server must move the bytes of a request.
const BYTES_PER_SECOND: u64 = MIB;

/// A request that moves more bytes is a long one.
const SHORT_BYTES: u64 = MIB;
/// The interval at which a client checks that a server lives, while it waits for a long request.
const PING: Duration = Duration::from_secs(10);
/// The longest wait for a long request of a server that lives.
const LONG_WAIT: Duration = Duration::from_secs(900);
const IS_RUNNING: &str = "is 'pinstripe serve' running at this address?";

/// The bytes of a request and its answer: those for which it has time, and the most.
struct BodyLimits {
    usual: u64,
    most: u64,
}

/// The time for the longest look is not added: a client would wait that long for a server that is
/// down.
const LOOK_LIMITS: BodyLimits = BodyLimits { usual: MIB, most: LOOK_MAX_BYTES as u64 + MIB };

/// What a host needs to use a volume behind a server: the saved form of a join string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The server's address, as HOST:PORT.
    pub address: String,
    /// The keys that the server may have: the present one and the announced next one.
    pub pins: Vec<KeyPin>,
    /// The token.
    pub token: TokenId,
    /// The token's secret.
    pub secret: SecretBytes,
    /// The volume.
    pub volume: StoreId,
    /// The certificate for a server that requires one.
    pub certificate: Option<ClientCertificate>,
}

impl From<JoinString> for Connection {
    fn from(join: JoinString) -> Self {
        let JoinString { pin, token, secret, volume, address } = join;
        Connection { address, pins: vec![pin], token, secret, volume, certificate: None }
    }
}

impl Connection {
    /// Whether another connection leads to the same volume of the same server.
    pub fn is_to_same_volume(&self, other: &Connection) -> bool {
        self.address == other.address && self.volume == other.volume
    }

    /// The join string that leads to this connection.
    pub fn join_string(&self) -> JoinString {
        JoinString {
            pin: self.pins.first().copied().unwrap_or(KeyPin([0; 32])),
            token: self.token,
            secret: self.secret.clone(),
            volume: self.volume,
            address: self.address.clone(),
        }
    }
}

/// A client of one server with one token.
pub struct RemoteClient {
    pub(crate) connection: Connection,
    pub(crate) looks: Looks,
    pub(crate) batches: Batches,
    pub(crate) ends: Ends,
    http: Client,
    pub(crate) runtime: Arc<Runtime>,
    /// Whether an answer said that the server has a catalog of this volume.
    has_catalog: AtomicBool,
    /// Whether the last server that was reached had a key that is not pinned.
    is_other: Arc<AtomicBool>,
    patience: Duration,
}

impl RemoteClient {
    /// A client that sends a request again until `patience` has elapsed. Nothing is sent yet.
    ///
    /// # Errors
    /// Fails if TLS or the threads cannot be set up, or the certificate cannot be read.
    pub fn new(
        connection: Connection,
        runtime: Arc<Runtime>,
        patience: Duration,
    ) -> Result<RemoteClient> {
        let is_other = Arc::new(AtomicBool::new(false));
        let config = tls::config(
            connection.pins.clone(),
            Arc::clone(&is_other),
            connection.certificate.as_ref(),
        )?;
        let mut bearer: HeaderValue = format!("Bearer {}", connection.join_string().reveal())
            .try_into()
            .map_err(|_| Error::new(Kind::Usage, "the join string cannot be sent"))?;
        bearer.set_sensitive(true);
        let http = Client::builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .user_agent(concat!("pinstripe/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(config)
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            // A server with many hosts may read a long body late. Requests have limits of their own,
            // and the default of 30 s would end a connection whose window is full.
            .tcp_user_timeout(LONG_WAIT)
            .no_proxy()
            .http1_only()
            .https_only(true)
            .build()
            .map_err(|error| Error::new(Kind::Io, format!("cannot set up HTTPS: {error}")))?;
        let (looks, batches, ends) = <(Looks, Batches, Ends)>::default();
        let has_catalog = AtomicBool::new(false);
        Ok(RemoteClient {
            connection,
            looks,
            batches,
            ends,
            http,
            runtime,
            has_catalog,
            is_other,
            patience,
        })
    }

    /// The server's address, its volumes, and what the token may do.
    ///
    /// # Errors
    /// Fails with [`Kind::WrongServer`] for a server with another key, with [`Kind::NotAllowed`]
    /// when it refuses the token, or with [`Kind::Unanswered`].
    pub fn hello(&self) -> Result<Hello> {
        let answer = self.send(Method::GET, "hello", 0, |request| request)?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            Error::new(Kind::Unsupported, format!("the server's greeting is not valid: {error}"))
                .at(&self.connection.address)
                .advice("is this address a pinstripe server, of this version or an older one?")
        })
    }

    /// Requests listings of several members.
    pub(crate) fn look(&self, request: &LookRequest) -> Result<Vec<MemberLook>> {
        let (path, body) = (format!("{}/look", self.connection.volume), request.encode());
        let with = |request: RequestBuilder| request.body(body.clone());
        let (answer, _) = self.send_limited(Method::POST, &path, LOOK_LIMITS, with)?;
        MemberLook::decode_all(&answer.body).map_err(|error| error.at(&self.connection.address))
    }

    /// Puts and removes objects on several members; also returns whether an earlier attempt was not
    /// answered.
    pub(crate) fn objects(
        &self,
        request: &ObjectsRequest,
    ) -> Result<(ObjectsAnswer, bool), Unsure> {
        let body = request.encode().ok_or_else(too_long)?;
        let (path, sum) = (format!("{}/objects", self.connection.volume), sum_of(&body));
        let (answer, is_unsure) = self.send_limited(Method::POST, &path, LOOK_LIMITS, |it| {
            it.header(SUM_HEADER, &sum).body(body.clone())
        })?;
        let (steps, members) = (request.steps.len(), request.members.len());
        let answer = ObjectsAnswer::decode(&answer.body, steps, members).map_err(|error| {
            Unsure { error: error.at(&self.connection.address), is_unsure: true }
        })?;
        Ok((answer, is_unsure))
    }

    /// The path of a member, for messages.
    fn member_place(&self, member: u16) -> PathBuf {
        let Connection { address, volume, .. } = &self.connection;
        ServedPlace { address: address.clone(), volume: *volume, member }.path()
    }

    /// Sends a request, and again while that can help. `bytes` is the number of body bytes in both
    /// directions.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        bytes: u64,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<HttpAnswer> {
        let (answer, _) = self.send_counted(method, path, bytes, with)?;
        Ok(answer)
    }

    /// Like [`send`](Self::send); also returns whether an earlier attempt was not answered, so that
    /// it may have been carried out. The second part of an error says the same.
    pub(crate) fn send_counted(
        &self,
        method: Method,
        path: &str,
        bytes: u64,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<(HttpAnswer, bool), Unsure> {
        let limits = BodyLimits { usual: bytes, most: ANSWER_MAX_BYTES as u64 + bytes };
        self.send_limited(method, path, limits, with)
    }

    fn send_limited(
        &self,
        method: Method,
        path: &str,
        BodyLimits { usual, most }: BodyLimits,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<(HttpAnswer, bool), Unsure> {
        let limit = self.patience + Duration::from_secs(usual / BYTES_PER_SECOND);
        let is_long = usual > SHORT_BYTES;
        let (mut pause, mut is_unsure, mut alive) = (PAUSE, false, clock::monotonic());
        loop {
            let left = limit.saturating_sub(clock::since(alive));
            let request = with(self.request(method.clone(), path));
            let sent = self.runtime.block_on(async {
                match is_long {
                    true => {
                        let sent = self.once(request.timeout(LONG_WAIT), most);
                        self.while_alive(sent, limit, &mut alive).await
                    }
                    false => self.once(request.timeout(left), most).await,
                }
            });
            let (error, wait) = match sent {
                Ok(answer) => return Ok((answer, is_unsure)),
                Err(RequestFault::Final(error)) => return Err(Unsure { error, is_unsure }),
                Err(RequestFault::Silent(error)) => {
                    is_unsure = true;
                    (error, pause)
                }
                Err(RequestFault::Later(error, wait)) => (error, wait.max(pause)),
            };
            if clock::since(alive) + wait >= limit {
                return Err(Unsure { error, is_unsure });
            }
            std::thread::sleep(wait);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether an answer said that the server has a catalog of this volume.
    pub(crate) fn offers_catalog(&self) -> bool {
        self.has_catalog.load(Ordering::Relaxed)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let Connection { address, .. } = &self.connection;
        self.http.request(method, format!("https://{address}/v1/{path}"))
    }

    /// Waits for a long request as long as the server answers short ones: it may have many other
    /// hosts to serve. `alive` is the time of the last answer.
    async fn while_alive(
        &self,
        sent: impl Future<Output = Result<HttpAnswer, RequestFault>>,
        limit: Duration,
        alive: &mut Instant,
    ) -> Result<HttpAnswer, RequestFault> {
        let mut sent = std::pin::pin!(sent);
        let every = (limit / 4).min(PING);
        loop {
            if let Ok(done) = tokio::time::timeout(every, &mut sent).await {
                return done;
            }
            let address = &self.connection.address;
            let ping = self.http.get(format!("https://{address}/healthz")).timeout(every);
            if ping.send().await.is_ok() {
                *alive = clock::monotonic();
                goes_on();
            } else if clock::since(*alive) >= limit {
                let what = "the server did not answer in time";
                let error = Error::new(Kind::Unanswered, what).at(address);
                return Err(RequestFault::Silent(error.advice(IS_RUNNING)));
            }
        }
    }

    /// Sends a request once, and returns its answer if the status says success.
    pub(crate) async fn begin(&self, request: RequestBuilder) -> Result<Response, RequestFault> {
        let response = request.send().await.map_err(|error| self.silent(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let answer = self.whole(response, ANSWER_MAX_BYTES as u64).await?;
        answer.sort().and(Err(RequestFault::Final(Error::new(Kind::Io, "no answer"))))
    }

    /// Sends a request once.
    pub(crate) async fn once(
        &self,
        request: RequestBuilder,
        most: u64,
    ) -> Result<HttpAnswer, RequestFault> {
        let response = request.send().await.map_err(|error| self.silent(&error))?;
        self.whole(response, most).await?.sort()
    }

    async fn whole(&self, mut response: Response, most: u64) -> Result<HttpAnswer, RequestFault> {
        let silent = |error: reqwest::Error| self.silent(&error);
        let (status, headers) = (response.status(), response.headers().clone());
        if headers.contains_key(CATALOG_HEADER) {
            self.has_catalog.store(true, Ordering::Relaxed);
        }
        let too_long = || {
            let what = "the server's answer is longer than the answer to this request can be";
            RequestFault::Final(Error::new(Kind::Corrupt, what).at(&self.connection.address))
        };
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(silent)? {
            if (body.len() + part.len()) as u64 > most {
                return Err(too_long());
            }
            body.extend_from_slice(&part);
            goes_on();
        }
        Ok(HttpAnswer { status, headers, body })
    }

    /// The fault of a request that was not answered.
    fn silent(&self, error: &reqwest::Error) -> RequestFault {
        let address = &self.connection.address;
        if error.is_connect() && self.is_other.load(Ordering::Relaxed) {
            let what = "the server has another key than the one that the join string names";
            return RequestFault::Final(Error::new(Kind::WrongServer, what).at(address).advice(
                "this may be another server, or an attacker on the way to it: ask its administrator; if the \
                 server was set up again, 'pinstripe token add' prints a new join string for \
                 'pinstripe connect'",
            ));
        }
        let certificate = self.connection.certificate.as_ref();
        if let Some(error) = alert_in(error).and_then(|alert| refused(alert, certificate)) {
            return RequestFault::Final(error.at(address));
        }
        let what = match error {
            it if it.is_connect() => "cannot connect to the server",
            it if it.is_timeout() => "the server did not answer in time",
            _ => "the connection to the server broke",
        };
        let error = Error::new(Kind::Unanswered, format!("{what}: {}", innermost(error)));
        RequestFault::Silent(error.at(address).advice(IS_RUNNING))
    }
}

impl SetServer for RemoteClient {
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn lay(&self, run: &Arc<RunToLay>) -> Result<Vec<Result<()>>> {
        let ExtentName::In(kind, id) = run.name else {
            return Err(Error::new(Kind::Usage, "a label is not a stripe set"));
        };
        let _ = self.looks.discard();
        run.members.iter().for_each(|member| self.ends.forget(*member, run.name));
        let path = format!("{}/pack/{}/{}", self.connection.volume, kind.dir(), SetId(id));
        let (sum, head) = (sum_of(&run.bytes), SetHead::of(run).encode());
        let body = Bytes::from_owner(RunBody(Arc::clone(run)));
        let length = body.len() as u64;
        let sent = self.send(Method::POST, &path, length, |request| {
            let request = request.header(SUM_HEADER, &sum).header(SET_HEADER, &head);
            request.header(CONTENT_LENGTH, length).body(body.clone())
        });
        // A listing that was requested meanwhile may lack the extents.
        let _ = self.looks.discard();
        let laid = decode_laid(&sent?.body, run.members.len())
            .map_err(|error| error.at(&self.connection.address))?;
        let at = |(result, member): (Result<()>, &u16)| {
            let place = || self.member_place(*member).join(run.name.path());
            result.map_err(|error| error.at_instead(place()))
        };
        Ok(laid.into_iter().zip(&run.members).map(at).collect())
    }

    fn fetch(&self, part: RunPart) -> Result<FetchedPart> {
        let (path, parts) = (format!("{}/fetch", self.connection.volume), [part]);
        let body = encode_parts(&parts);
        let bytes = body.len() as u64 + u64::from(part.bytes);
        let answer = self.send(Method::POST, &path, bytes, |request| request.body(body.clone()))?;
        let fetched = decode_fetched(&answer.body, &parts)
            .map_err(|error| error.at(&self.connection.address))?;
        let none = || Error::corrupt("the answer has no part", &self.connection.address);
        fetched.into_iter().next().ok_or_else(none)?
    }
}

/// The body of a request that sends a run.
struct RunBody(Arc<RunToLay>);

impl AsRef<[u8]> for RunBody {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// The text of the innermost cause, which names what the operating system said.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
