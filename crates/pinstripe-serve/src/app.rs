//! The requests of the protocol, and who may send them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get, post};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};
use pinstripe_remote::protocol::{
    Hello, LAST_HEADER, MemberProperties, PAGE_NAMES, PROTOCOL, SentError, encode_page, kind_from,
};
use tokio::sync::Semaphore;

use crate::auth::Gate;
use crate::extent;
use crate::ledger::Ledger;
use crate::role::{Deed, Role, Whose};
use crate::tokens::Token;
use crate::volume::Volume;

/// The most requests whose calls to members run at once; others wait.
const CALLS_MAX: usize = 128;
/// The most listings that are kept for the requests of their next pages.
const LISTINGS_MAX: usize = 32;
/// How long a listing is kept.
const LISTING_AGE: std::time::Duration = std::time::Duration::from_secs(60);

/// What all requests share.
pub(crate) struct App {
    pub gate: Gate,
    pub volumes: Vec<ServedVolume>,
    pub pins: Vec<String>,
    pub calls: Arc<Semaphore>,
    listings: Mutex<HashMap<ListingKey, Listing>>,
}

/// A volume with its ledger.
pub(crate) struct ServedVolume {
    pub volume: Volume,
    pub ledger: Ledger,
}

type ListingKey = (String, StoreId, u16, ExtentKind);

struct Listing {
    names: Arc<Vec<([u8; 16], u64)>>,
    made: Instant,
}

/// A request that was admitted: its token, and the member that it names.
pub(crate) struct Admitted {
    pub token: Token,
    pub served: usize,
    pub number: u16,
    pub member: SharedMember,
}

impl App {
    pub fn new(gate: Gate, volumes: Vec<ServedVolume>, pins: Vec<String>) -> Arc<App> {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        Arc::new(App { gate, volumes, pins, calls, listings: Mutex::default() })
    }

    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/hello", get(hello))
            .route("/v1/{volume}/{member}/properties", get(properties))
            .route("/v1/{volume}/{member}/list/{kind}", get(list))
            .route("/v1/{volume}/{member}/extent/{kind}", any(label))
            .route("/v1/{volume}/{member}/extent/{kind}/{name}", any(extent))
            .route("/v1/{volume}/{member}/read", post(read))
            .route("/v1/{volume}/{member}/sync", post(sync))
            .route("/v1/{volume}/{member}/sweep", post(sweep))
            .with_state(Arc::clone(self))
    }

    /// Admits a request for a member.
    fn admit(&self, headers: &HeaderMap, volume: &str, member: &str) -> Result<Admitted> {
        let token = self.gate.admit(headers)?;
        let unknown = || Error::new(Kind::NotFound, "this server has no such volume or member");
        let is_it = |it: &ServedVolume| it.volume.id.to_string() == volume;
        let served = self.volumes.iter().position(is_it).ok_or_else(unknown)?;
        if token.volume != volume {
            return Err(Error::new(Kind::NotAllowed, "this token is for another store"));
        }
        let number: u16 = member.parse().map_err(|_| unknown())?;
        let member = self.volumes[served].volume.members.get(&number).ok_or_else(unknown)?;
        Ok(Admitted { token, served, number, member: Arc::clone(member) })
    }

    /// Runs a call of a member on a thread that may block.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let ended = || Error::new(Kind::Io, "the server is ending");
        let permit = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| ended())?;
        let worked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        worked.await.map_err(|_| Error::new(Kind::Io, "the server failed to carry this out"))?
    }

    /// Refuses what the token's role does not allow.
    pub fn require(&self, admitted: &Admitted, deed: Deed, name: ExtentName) -> Result<()> {
        let Admitted { token, served, .. } = admitted;
        let whose = self.volumes[*served].whose(name, &token.host);
        if token.role.may(deed, name, whose, token.all_hosts) {
            return Ok(());
        }
        let deed = match deed {
            Deed::Read => "read",
            Deed::Create => "create",
            Deed::Replace => "replace",
            Deed::Delete => "delete",
        };
        let kind = match name {
            ExtentName::Label => "the label",
            ExtentName::In(kind, _) => kind.dir(),
        };
        let what = format!("a token with the role {} may not {deed} this in {kind}", token.role);
        Err(Error::new(Kind::NotAllowed, what)
            .advice("use a token with another role, which the server's administrator can add"))
    }
}

impl ServedVolume {
    pub fn whose(&self, name: ExtentName, host: &str) -> Whose {
        if self.ledger.is_of(name, host) { Whose::Own } else { Whose::Other }
    }
}

type Shared = State<Arc<App>>;
type MemberPath = Path<(String, String)>;

/// The name in a path.
fn name_from(kind: &str, name: &str) -> Result<ExtentName> {
    let unknown = || Error::new(Kind::NotFound, "this path names no extent");
    let kind = kind_from(kind).ok_or_else(unknown)?;
    Ok(ExtentName::In(kind, SetId::from_hex(name).ok_or_else(unknown)?.0))
}

/// The answer to a request: that of its handler, or the error.
pub(crate) fn answer(result: Result<Response>) -> Response {
    result.unwrap_or_else(|error| refusal(&error))
}

/// The answer that sends an error.
fn refusal(error: &Error) -> Response {
    let status = match error.kind() {
        Kind::NotAllowed => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Exists => StatusCode::PRECONDITION_FAILED,
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::Corrupt => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unanswered => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = serde_json::to_vec(&SentError::from_error(error)).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, "application/json".parse().expect("a header value"));
    if error.kind() == Kind::Busy {
        headers.insert(RETRY_AFTER, "1".parse().expect("a header value"));
    }
    response
}

/// An answer with a body of bytes.
pub(crate) fn bytes(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    let kind = "application/octet-stream".parse().expect("a header value");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn json(content: &impl serde::Serialize) -> Response {
    let mut response = bytes(serde_json::to_vec(content).unwrap_or_default());
    let kind = "application/json".parse().expect("a header value");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn hello(State(app): Shared, headers: HeaderMap) -> Response {
    answer(app.gate.admit(&headers).map(|token| {
        let volumes = app.volumes.iter().map(|it| it.volume.facts());
        json(&Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pins: app.pins.clone(),
            host: token.host.clone(),
            role: token.role.to_string(),
            volumes: volumes.filter(|it| it.id == token.volume).collect(),
            now_seconds: clock::now().0,
        })
    }))
}

async fn properties(
    State(app): Shared,
    Path((volume, member)): MemberPath,
    headers: HeaderMap,
) -> Response {
    let find = async {
        let admitted = app.admit(&headers, &volume, &member)?;
        let member = admitted.member;
        let caps = app.call(move || Ok(member.caps())).await?;
        Ok(json(&MemberProperties { free_bytes: caps.free_bytes, is_full: caps.is_full }))
    };
    answer(find.await)
}

async fn list(
    State(app): Shared,
    Path((volume, member, kind)): Path<(String, String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let find = async {
        let admitted = app.admit(&headers, &volume, &member)?;
        let unknown = || Error::new(Kind::NotFound, "this path names no kind of extents");
        let kind = kind_from(&kind).ok_or_else(unknown)?;
        let after = match uri.query() {
            None => None,
            Some(query) => {
                let id = query.strip_prefix("after=").and_then(SetId::from_hex);
                Some(id.ok_or_else(|| Error::new(Kind::Usage, "the query names no extent"))?.0)
            }
        };
        let names = app.listing(&admitted, kind, after.is_some()).await?;
        let first = after.map_or(0, |after| names.partition_point(|(id, _)| *id <= after));
        let last = (first + PAGE_NAMES).min(names.len());
        let mut response = bytes(encode_page(&names[first..last]));
        if last == names.len() {
            response.headers_mut().insert(LAST_HEADER, "1".parse().expect("a header value"));
        }
        Ok(response)
    };
    answer(find.await)
}

impl App {
    /// The names that the token may see. The pages after the first are of the same listing.
    async fn listing(
        &self,
        admitted: &Admitted,
        kind: ExtentKind,
        continues: bool,
    ) -> Result<Arc<Vec<([u8; 16], u64)>>> {
        let Admitted { token, served, number, member } = admitted;
        let served = &self.volumes[*served];
        let key = (token.id.clone(), served.volume.id, *number, kind);
        if continues && let Some(known) = lock(&self.listings).get(&key) {
            return Ok(Arc::clone(&known.names));
        }
        let member = Arc::clone(member);
        let mut names = self.call(move || member.list(kind)).await?;
        if matches!(kind, ExtentKind::Snapshots | ExtentKind::Checkpoints) {
            names.retain(|(id, _)| {
                let name = ExtentName::In(kind, *id);
                let whose = served.whose(name, &token.host);
                token.role.may(Deed::Read, name, whose, token.all_hosts)
            });
        }
        let names = Arc::new(names);
        if names.len() > PAGE_NAMES {
            let mut listings = lock(&self.listings);
            listings.retain(|_, it| clock::since(it.made) < LISTING_AGE);
            if listings.len() < LISTINGS_MAX {
                let made = clock::monotonic();
                listings.insert(key, Listing { names: Arc::clone(&names), made });
            }
        }
        Ok(names)
    }
}

async fn label(
    State(app): Shared,
    Path((volume, member, kind)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let done = async {
        if kind != "label" {
            return Err(Error::new(Kind::NotFound, "this path names no extent"));
        }
        let admitted = app.admit(request.headers(), &volume, &member)?;
        on_extent(&app, admitted, ExtentName::Label, request).await
    };
    answer(done.await)
}

async fn extent(
    State(app): Shared,
    Path((volume, member, kind, name)): Path<(String, String, String, String)>,
    request: Request,
) -> Response {
    let done = async {
        let admitted = app.admit(request.headers(), &volume, &member)?;
        on_extent(&app, admitted, name_from(&kind, &name)?, request).await
    };
    answer(done.await)
}

async fn on_extent(
    app: &Arc<App>,
    admitted: Admitted,
    name: ExtentName,
    request: Request,
) -> Result<Response> {
    match *request.method() {
        Method::GET => {
            app.require(&admitted, Deed::Read, name)?;
            let (parts, _) = request.into_parts();
            extent::get(app, &admitted, name, &parts.headers).await
        }
        Method::HEAD => {
            app.require(&admitted, Deed::Read, name)?;
            let member = Arc::clone(&admitted.member);
            let length = app.call(move || member.len(name)).await?;
            let mut response = bytes(Vec::new());
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            Ok(response)
        }
        Method::PUT => extent::put(app, &admitted, name, request).await,
        Method::DELETE => {
            app.require(&admitted, Deed::Delete, name)?;
            let member = Arc::clone(&admitted.member);
            app.call(move || member.delete(name)).await?;
            app.volumes[admitted.served].ledger.forget(name);
            Ok(bytes(Vec::new()))
        }
        _ => Err(Error::new(Kind::Usage, "an extent has no such method")),
    }
}

async fn read(
    State(app): Shared,
    Path((volume, member)): MemberPath,
    request: Request,
) -> Response {
    let done = async {
        let admitted = app.admit(request.headers(), &volume, &member)?;
        extent::read_many(&app, &admitted, request).await
    };
    answer(done.await)
}

async fn sync(
    State(app): Shared,
    Path((volume, member)): MemberPath,
    headers: HeaderMap,
) -> Response {
    let done = async {
        let member = app.admit(&headers, &volume, &member)?.member;
        app.call(move || member.sync()).await.map(|()| bytes(Vec::new()))
    };
    answer(done.await)
}

async fn sweep(
    State(app): Shared,
    Path((volume, member)): MemberPath,
    headers: HeaderMap,
) -> Response {
    let done = async {
        let Admitted { token, member, .. } = app.admit(&headers, &volume, &member)?;
        // Unsealed data here belongs to the server, whose own writers are not disturbed.
        let count = match token.role {
            Role::Admin => app.call(move || member.sweep()).await?,
            _ => 0,
        };
        Ok(bytes(count.to_string().into_bytes()))
    };
    answer(done.await)
}
