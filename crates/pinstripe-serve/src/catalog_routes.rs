//! The requests to the shared catalog: what a token may ask and change.
//!
//! Invariants: a host changes only the series of its own snapshots, by the ledger; without
//! `--all-hosts` it sees only these. A load whose stream is cut, too slow or wrong leaves no trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use futures_util::StreamExt;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::ExtentName;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{CatalogQuestion, SnapshotSync};
use pinstripe_remote::{
    CATALOG_REQUEST_MAX_BYTES, CatalogRequest, FrameReader, RowsFrame, SentChange, encode_count,
    encode_head, encode_size, encode_sync,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::answer::{answer, bytes};
use crate::app::App;
use crate::body::{PIECES, Pieces, from_pieces};
use crate::catalog::{AnswerSender, Owners, SharedTables};
use crate::extent::length_of;
use crate::role::TokenRole;
use crate::tokens::HostToken;

/// The longest wait for the next piece of rows.
const PIECE_WAIT: Duration = Duration::from_secs(60);
/// Rows must arrive at least at this rate, measured over the waits for them.
const BYTES_PER_SECOND: u64 = 16 << 10;
/// The waits that are not measured.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bytes of rows that are read before a loader is taken: a slow host keeps none.
const READ_AHEAD_BYTES: u64 = 512 << 10;

/// The routes of the catalog.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/{volume}/catalog", post(ask))
        .route("/v1/{volume}/catalog/rows", post(load))
}

/// A request that was admitted, with the catalog.
struct Asked {
    app: Arc<App>,
    token: HostToken,
    served: usize,
    tables: Arc<SharedTables>,
}

impl Asked {
    fn admit(app: &Arc<App>, request: &Request, volume: &str) -> Result<Self> {
        let (token, served) = app.admit_to_volume(request.headers(), volume)?;
        let missing = || Error::new(Kind::NotFound, "this server has no shared catalog");
        let tables = app.catalog_of(served).ok_or_else(missing)?;
        Ok(Asked { app: Arc::clone(app), token, served, tables: Arc::clone(tables) })
    }

    fn is_admin(&self) -> bool {
        self.token.role == TokenRole::Admin
    }

    /// The host that stored a snapshot through this server; empty if none did.
    fn owner(&self, id: SnapshotId) -> String {
        let owned = self.app.volumes[self.served].ledger.owner(ExtentName::snapshot(id));
        owned.map_or_else(String::new, |it| it.host)
    }

    /// Whether the token may change rows of this owner.
    fn may_change(&self, owner: &str) -> bool {
        self.is_admin() || self.token.role.appends() && owner == self.token.host
    }

    /// Refuses changes of the rows of another host.
    fn require_change(&self, owner: &str) -> Result<()> {
        if self.may_change(owner) {
            return Ok(());
        }
        let what = "a token may change only what its own host stored in the shared catalog";
        Err(Error::new(Kind::NotAllowed, what)
            .advice("use a token of the role admin, or of the host that made the snapshot"))
    }

    /// The owner to which an answer is limited.
    fn limited_to(&self, all_hosts: bool) -> Result<Option<&str>> {
        let sees_all =
            self.is_admin() || self.token.all_hosts && self.token.role != TokenRole::Append;
        match (all_hosts, sees_all) {
            (false, _) => Ok(Some(&self.token.host)),
            (true, true) => Ok(None),
            (true, false) => {
                let what = "this token may not see the snapshots of other hosts";
                Err(Error::new(Kind::NotAllowed, what).advice(
                    "omit --all-hosts, or use a token that 'pinstripe token add --all-hosts' made",
                ))
            }
        }
    }

    fn compare(&self, known: &Owners, listed: &[SnapshotId], all_hosts: bool) -> SnapshotSync {
        let mut sync = SnapshotSync::default();
        let is_meant = |owner: &str| all_hosts || owner == self.token.host;
        for id in listed.iter().filter(|id| !known.contains_key(id)) {
            let owner = self.owner(*id);
            match self.may_change(&owner) {
                true if is_meant(&owner) => sync.missing.push(*id),
                false if all_hosts => sync.of_others.push(*id),
                _ => {}
            }
        }
        let listed: std::collections::HashSet<_> = listed.iter().collect();
        let gone = known.iter().filter(|(id, owner)| {
            !listed.contains(id) && is_meant(owner) && self.may_change(owner)
        });
        sync.gone = gone.map(|(id, _)| *id).collect();
        sync.gone.sort_unstable();
        sync
    }

    async fn head(&self, id: SnapshotId, host: &[u8], sources: &[Vec<u8>]) -> Result<Vec<u8>> {
        let owner = self.owner(id);
        self.require_change(&owner)?;
        Ok(encode_head(self.tables.head(&owner, host, sources).await?.as_ref()))
    }

    async fn let_go(&self, gone: &[SnapshotId]) -> Result<u64> {
        let known = self.tables.owners().await?;
        for owner in gone.iter().filter_map(|id| known.get(id)) {
            self.require_change(owner)?;
        }
        self.tables.let_go(gone).await
    }

    async fn clear(&self) -> Result<u64> {
        if self.is_admin() {
            return self.tables.clear().await;
        }
        self.require_change(&self.token.host)?;
        let known = self.tables.owners().await?;
        let own = known.into_iter().filter(|(_, owner)| *owner == self.token.host);
        let own: Vec<_> = own.map(|(id, _)| id).collect();
        self.tables.let_go(&own).await
    }

    /// Answers a question with a stream of frames.
    fn stream(self, question: CatalogQuestion, all_hosts: bool) -> Result<Response> {
        let owner = self.limited_to(all_hosts)?.map(str::to_owned);
        let (sender, pieces) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            let mut out = AnswerSender::new(sender);
            let answered = self.tables.answer(&question, owner.as_deref(), &mut out).await;
            out.end(answered).await;
        });
        let mut response = bytes(Vec::new());
        *response.body_mut() = from_pieces(pieces);
        Ok(response)
    }
}

/// Answers a request of one piece.
async fn ask(
    State(app): State<Arc<App>>,
    Path(volume): Path<String>,
    request: Request,
) -> Response {
    let done = async {
        let asked = Asked::admit(&app, &request, &volume)?;
        let (parts, body) = request.into_parts();
        let length = length_of(&parts.headers, CATALOG_REQUEST_MAX_BYTES as u64)?;
        let body = Pieces::new(body, length).whole().await?;
        let request = CatalogRequest::decode(&body).map_err(of_request)?;
        let tables = &asked.tables;
        Ok(bytes(match request {
            CatalogRequest::Compare { listed, all_hosts } => {
                asked.limited_to(all_hosts)?;
                encode_sync(&asked.compare(&tables.owners().await?, &listed, all_hosts))
            }
            CatalogRequest::Head { id, host, sources } => asked.head(id, &host, &sources).await?,
            CatalogRequest::LetGo(gone) => encode_count(asked.let_go(&gone).await?),
            CatalogRequest::Clear => encode_count(asked.clear().await?),
            CatalogRequest::Size => {
                asked.limited_to(true)?;
                encode_size(&tables.size().await?)
            }
            CatalogRequest::Ask { question, all_hosts } => {
                return asked.stream(question, all_hosts);
            }
        }))
    };
    answered(done.await)
}

/// The answer; while the database is gone, its status is 503.
fn answered(result: Result<Response>) -> Response {
    let status = match result.as_ref().map_err(Error::kind) {
        Err(Kind::Unanswered) => Some(StatusCode::SERVICE_UNAVAILABLE),
        Err(Kind::Changed) => Some(StatusCode::CONFLICT),
        Err(Kind::Unsupported) => Some(StatusCode::PAYLOAD_TOO_LARGE),
        _ => None,
    };
    let mut response = answer(result);
    if let Some(status) = status {
        *response.status_mut() = status;
    }
    response
}

/// Bytes that cannot be decoded are the host's mistake, not damage of the store.
fn of_request(error: Error) -> Error {
    match error.kind() {
        Kind::Corrupt => Error::new(Kind::Usage, error.what().to_owned()),
        _ => error,
    }
}

/// Loads the rows of a snapshot.
async fn load(
    State(app): State<Arc<App>>,
    Path(volume): Path<String>,
    request: Request,
) -> Response {
    let done = async {
        let asked = Asked::admit(&app, &request, &volume)?;
        let mut rows = RowsStream::new(&asked, request.into_body());
        let (snapshot, base) = rows.head().await?;
        let owner = asked.owner(snapshot.id);
        asked.require_change(&owner)?;
        // A snapshot is stored before its rows are sent.
        if owner.is_empty() && !asked.is_admin() {
            return Err(Error::new(Kind::NotFound, "no host stored this snapshot"));
        }
        let mut first = Vec::new();
        while rows.bytes < READ_AHEAD_BYTES {
            let Some(changes) = rows.changes().await? else { break };
            first.push(changes);
        }
        let turn = asked.tables.loader().await?;
        let mut load = turn.begin(&owner, snapshot, base).await?;
        for changes in first {
            load.write(&changes).await?;
        }
        while let Some(changes) = rows.changes().await? {
            load.write(&changes).await?;
        }
        Ok(bytes(encode_count(load.finish().await?)))
    };
    answered(done.await.map_err(of_request))
}

/// The frames of the rows of a snapshot.
struct RowsStream {
    store: pinstripe_base::id::StoreId,
    stream: BodyDataStream,
    frames: FrameReader,
    bytes: u64,
    waited: Duration,
    last: Option<Vec<u8>>,
    count: u64,
    has_ended: bool,
}

impl RowsStream {
    fn new(asked: &Asked, body: Body) -> Self {
        RowsStream {
            store: asked.tables.store,
            stream: body.into_data_stream(),
            frames: FrameReader::default(),
            bytes: 0,
            waited: Duration::ZERO,
            last: None,
            count: 0,
            has_ended: false,
        }
    }

    async fn frame(&mut self) -> Result<RowsFrame> {
        loop {
            if let Some((kind, content)) = self.frames.next_frame()? {
                return RowsFrame::decode(self.store, kind, content, self.last.as_deref());
            }
            let slow = || Error::new(Kind::Busy, "the rows arrive too slowly");
            let cut = || Error::new(Kind::Usage, "the stream of rows is cut");
            let began: Instant = clock::monotonic();
            let piece = timeout(PIECE_WAIT, self.stream.next()).await.map_err(|_| slow())?;
            self.waited += clock::since(began);
            let piece = piece.ok_or_else(cut)?.map_err(|_| cut())?;
            self.bytes += piece.len() as u64;
            let is_slow = self.bytes / self.waited.as_secs().max(1) < BYTES_PER_SECOND;
            if self.waited > PATIENCE && is_slow {
                return Err(slow());
            }
            self.frames.push(&piece);
        }
    }

    async fn head(&mut self) -> Result<(Snapshot, Option<SnapshotId>)> {
        match self.frame().await? {
            RowsFrame::Head(snapshot, base) => Ok((*snapshot, base)),
            _ => Err(Error::new(Kind::Usage, "the rows do not begin with a snapshot")),
        }
    }

    /// The next changes; `None` after the last ones.
    async fn changes(&mut self) -> Result<Option<Vec<SentChange>>> {
        if self.has_ended {
            return Ok(None);
        }
        match self.frame().await? {
            RowsFrame::Changes(changes) => {
                self.count += changes.len() as u64;
                self.last = changes.last().map(|it| it.path.clone()).or(self.last.take());
                Ok(Some(changes))
            }
            RowsFrame::End(count) if count == self.count && self.frames.is_empty() => {
                self.has_ended = true;
                Ok(None)
            }
            _ => Err(Error::new(Kind::Usage, "the rows have another number than announced")),
        }
    }
}
