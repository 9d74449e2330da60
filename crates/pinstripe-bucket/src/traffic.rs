//! What goes over the wire: every request counted, every answer bounded, every refusal read.
//!
//! It stands between the S3 client and HTTP. Answers that the client has to tell apart (there is
//! no such object, one exists already) pass; all other errors become a [`Refusal`] here. So does
//! 409, which the client would take for "exists already" though nothing landed.

use std::fmt;
use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use crate::fault::Refusal;

/// Longest answer that is not an object: a page of a listing has at most 1000 keys of 1 KiB.
const ANSWER_MAX_BYTES: usize = 8 << 20;
/// The first tag of an answer stands so near its beginning.
const TAG_WITHIN_BYTES: usize = 1 << 10;
/// As much of an error is read.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// Requests so far, by the classes that providers charge for, and bytes of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// PUT and POST.
    pub puts: u64,
    /// GET and HEAD of objects.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
    /// DELETE.
    pub deletes: u64,
    /// Requests that were sent again after a failure.
    pub retries: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
}

impl Sum for Requests {
    fn sum<I: Iterator<Item = Requests>>(all: I) -> Requests {
        all.fold(Requests::default(), |a, b| Requests {
            puts: a.puts + b.puts,
            gets: a.gets + b.gets,
            lists: a.lists + b.lists,
            deletes: a.deletes + b.deletes,
            retries: a.retries + b.retries,
            sent_bytes: a.sent_bytes + b.sent_bytes,
            received_bytes: a.received_bytes + b.received_bytes,
        })
    }
}

/// The counters behind [`Requests`].
#[derive(Debug, Default)]
pub struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    retries: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counters {
    /// The counts so far.
    pub fn read(&self) -> Requests {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: get(&self.puts),
            gets: get(&self.gets),
            lists: get(&self.lists),
            deletes: get(&self.deletes),
            retries: get(&self.retries),
            sent_bytes: get(&self.sent_bytes),
            received_bytes: get(&self.received_bytes),
        }
    }

    /// A request is sent again.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of an object arrived.
    pub fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count(&self, request: &HttpRequest) {
        let counter = match request.method().as_str() {
            "PUT" | "POST" => &self.puts,
            "DELETE" => &self.deletes,
            _ if is_listing(request) => &self.lists,
            _ => &self.gets,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(request.body().content_length() as u64, Ordering::Relaxed);
    }
}

fn is_listing(request: &HttpRequest) -> bool {
    request.uri().query().is_some_and(|query| query.contains("list-type="))
}

/// Makes clients whose requests are counted.
#[derive(Debug)]
pub struct CountingConnector(pub Arc<Counters>);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted { inner, counters: Arc::clone(&self.0) }))
    }
}

struct Counted {
    inner: HttpClient,
    counters: Arc<Counters>,
}

impl fmt::Debug for Counted {
    /// Says nothing of requests: their headers are signed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.count(&request);
        let is_listing = is_listing(&request);
        let is_object = request.method() == "GET" && !is_listing;
        let has_body = request.method() != "HEAD";
        let (parts, body) = self.inner.execute(request).await?.into_parts();
        let status = parts.status.as_u16();
        if parts.status.is_success() && is_object {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if parts.status.is_success() {
            let whole = bounded(body, ANSWER_MAX_BYTES).await?;
            self.counters.received(whole.len() as u64);
            if is_listing && !has_tag(&whole, b"<ListBucketResult") {
                return Err(odd("an answer that is no listing"));
            }
            return Ok(HttpResponse::from_parts(parts, whole.into()));
        }
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let id = header("x-amz-request-id");
        // In seconds; the other form, a date, is of a clock that is not this host's.
        let retry_after = header("retry-after").and_then(|it| it.parse().ok()).unwrap_or(0);
        let said = if has_body { refusal_body(body).await } else { Bytes::new() };
        let retry_after = Duration::from_secs(retry_after);
        let refusal = Refusal::read(status, id.unwrap_or_default(), retry_after, &said);
        // Missing buckets are 404, too; a HEAD has no body that could tell.
        let is_missing = status == 404 && refusal.code != "NoSuchBucket";
        if is_missing || matches!(status, 304 | 412) {
            return Ok(HttpResponse::from_parts(parts, said.into()));
        }
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// The error for an answer that is none of S3's. A page of a login portal must not be taken for an
/// empty listing: what is not listed may be deleted.
fn odd(what: &str) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other(what.to_owned()))
}

fn has_tag(body: &[u8], tag: &[u8]) -> bool {
    body.windows(tag.len()).take(TAG_WITHIN_BYTES).any(|window| window == tag)
}

/// The beginning of a body that describes an error.
async fn refusal_body(body: HttpResponseBody) -> Bytes {
    let mut stream = body.bytes_stream();
    let mut whole = BytesMut::new();
    while let Some(Ok(part)) = stream.next().await {
        whole.extend_from_slice(&part[..part.len().min(REFUSAL_MAX_BYTES - whole.len())]);
        if whole.len() == REFUSAL_MAX_BYTES {
            break;
        }
    }
    whole.freeze()
}

/// A whole body that may not be longer.
async fn bounded(body: HttpResponseBody, most_bytes: usize) -> Result<Bytes, HttpError> {
    let mut stream = body.bytes_stream();
    let mut whole = BytesMut::new();
    while let Some(part) = stream.next().await {
        let part = part?;
        if whole.len() + part.len() > most_bytes {
            return Err(odd("an answer that is longer than any of S3"));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}
