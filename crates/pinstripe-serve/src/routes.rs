//! The requests of the protocol (`pinstripe_remote`, module `protocol`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get, post};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentName;
use pinstripe_remote::{
    CATALOG_HEADER, Hello, LAST_HEADER, PAGE_NAMES, PROTOCOL, encode_page, kind_from,
};

use crate::answer::{answer, bytes, json};
use crate::app::{Admitted, App, VolumeState, properties_for};
use crate::catalog_routes;
use crate::extent;
use crate::metrics::MEDIA_TYPE;
use crate::page;
use crate::role::{Deed, TokenRole};
use crate::sets;

/// The routes of the protocol.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/style.css", get(page::style))
        .route("/live.js", get(page::script))
        .route("/login", post(page::login))
        .route("/logout", post(page::logout))
        .route("/fence", post(page::fence))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/v1/hello", get(hello))
        .route("/v1/{volume}/look", post(look))
        .route("/v1/{volume}/objects", post(objects))
        .route("/v1/{volume}/pack/{kind}/{name}", post(pack))
        .route("/v1/{volume}/fetch", post(fetch))
        .route("/v1/{volume}/{member}/properties", get(properties))
        .route("/v1/{volume}/{member}/list/{kind}", get(list))
        .route("/v1/{volume}/{member}/extent/{kind}", any(label))
        .route("/v1/{volume}/{member}/extent/{kind}/{name}", any(extent))
        .route("/v1/{volume}/{member}/read", post(read))
        .route("/v1/{volume}/{member}/sync", post(sync))
        .route("/v1/{volume}/{member}/sweep", post(sweep))
        .merge(catalog_routes::router())
        .with_state(Arc::clone(app))
}

type Shared = State<Arc<App>>;
type MemberPath = Path<(String, String)>;

/// The name in a path.
fn name_from(kind: &str, name: &str) -> Result<ExtentName> {
    let unknown = || Error::new(Kind::NotFound, "this path names no extent");
    let kind = kind_from(kind).ok_or_else(unknown)?;
    Ok(ExtentName::In(kind, SetId::from_hex(name).ok_or_else(unknown)?.0))
}

/// Metrics, for an admin token.
async fn metrics(State(app): Shared, headers: HeaderMap) -> Response {
    answer(app.gate.admit(&headers).and_then(|token| {
        if token.role != TokenRole::Admin {
            return Err(Error::new(Kind::NotAllowed, "metrics need a token with the role admin"));
        }
        let mut response = bytes(app.metrics.text(&app.status(), &app.jobs.status()).into_bytes());
        let kind = MEDIA_TYPE.parse().expect("a header value");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }))
}

/// Answers as long as the server answers requests at all.
async fn healthy() -> Response {
    bytes(b"ok\n".to_vec())
}

/// Whether each volume has a member that answers, as far as its members are asked.
async fn ready(State(app): Shared) -> Response {
    let is_usable = |it: &VolumeState| {
        let members = lock(&it.members);
        !members.is_empty() && members.iter().any(|member| member.answers != Some(false))
    };
    let mut response = bytes(b"ok\n".to_vec());
    if !app.volumes.iter().all(is_usable) {
        response = bytes(b"no member answers\n".to_vec());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn hello(State(app): Shared, headers: HeaderMap) -> Response {
    answer(app.gate.admit(&headers).map(|token| {
        let volumes = app.volumes.iter().map(|it| it.volume().facts());
        json(&Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pins: app.pins.clone(),
            host: token.host.clone(),
            role: token.role.to_string(),
            volumes: volumes.filter(|it| it.id == token.volume).collect(),
            now_seconds: clock::now().0,
            all_hosts: token.all_hosts && token.role != TokenRole::Append,
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
        Ok(json(&properties_for(&admitted.token, caps)))
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
            let read = extent::get(app, &admitted, name, &parts.headers).await;
            app.volumes[admitted.served].count_read(admitted.number, read)
        }
        Method::HEAD => {
            app.require(&admitted, Deed::Read, name)?;
            let member = Arc::clone(&admitted.member);
            let length = app.call(move || member.len(name)).await;
            let length = app.volumes[admitted.served].count_read(admitted.number, length)?;
            let mut response = bytes(Vec::new());
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            Ok(response)
        }
        Method::PUT => {
            let app = Arc::clone(app);
            let put = async move { extent::put(&app, &admitted, name, request).await };
            App::to_the_end(put).await
        }
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

async fn look(State(app): Shared, Path(volume): Path<String>, request: Request) -> Response {
    let done = async {
        let (token, served) = app.admit_to_volume(request.headers(), &volume)?;
        let mut response = crate::look::look(&app, &token, served, request).await?;
        if app.catalog_of(served).is_some() {
            response.headers_mut().insert(CATALOG_HEADER, "1".parse().expect("a header value"));
        }
        Ok(response)
    };
    answer(done.await)
}

async fn objects(State(app): Shared, Path(volume): Path<String>, request: Request) -> Response {
    let done = async move {
        let (token, served) = app.admit_to_volume(request.headers(), &volume)?;
        crate::objects::objects(&app, &token, served, request).await
    };
    answer(App::to_the_end(done).await)
}

async fn pack(
    State(app): Shared,
    Path((volume, kind, name)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let done = async move {
        let (token, served) = app.admit_to_volume(request.headers(), &volume)?;
        sets::pack(&app, &token, served, name_from(&kind, &name)?, request).await
    };
    answer(App::to_the_end(done).await)
}

async fn fetch(State(app): Shared, Path(volume): Path<String>, request: Request) -> Response {
    let done = async {
        let (token, served) = app.admit_to_volume(request.headers(), &volume)?;
        sets::fetch(&app, &token, served, request).await
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
        // Unsealed data here belongs to the server, ownership own writers are not disturbed.
        let count = match token.role {
            TokenRole::Admin => app.call(move || member.sweep()).await?,
            _ => 0,
        };
        Ok(bytes(count.to_string().into_bytes()))
    };
    answer(done.await)
}
