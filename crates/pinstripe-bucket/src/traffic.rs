//! HTTP traffic: counts every request, limits every answer, decodes every error answer.
//!
//! This layer is between the S3 client and HTTP. Answers that the client must distinguish (no such
//! object, or an object exists already) are passed on; all other errors become a [`Refusal`] here.
//! The status 409 also becomes a refusal, because the client would take it for "exists already"
//! although nothing was stored.

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
    HttpResponseBody, HttpService,
};
use reqwest::header::HeaderMap;

use crate::connection;
use crate::refusal::{self, Refusal};

/// The most bytes of an answer that is not an object: a page of a listing has at most 1000 keys of
/// 1 KiB.
const ANSWER_MAX_BYTES: usize = 8 << 20;
/// The first tag of an answer is within this many bytes.
const TAG_WITHIN_BYTES: usize = 1 << 10;
/// The most bytes of an error answer that are read.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// The codes with status 404 for a missing object, or for missing metadata of an object. The answer
/// to a HEAD has no code.
const NO_OBJECT: [&str; 9] = [
    "",
    "NoSuchKey",
    "NoSuchVersion",
    "NoSuchUpload",
    "NoSuchObject",
    "BlobNotFound",
    "ResourceNotFound",
    "NoSuchObjectLockConfiguration",
    "ObjectLockConfigurationNotFoundError",
];

/// The requests so far, by the classes for which providers charge, and the bytes of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// PUT and POST.
    pub puts: u64,
    /// The number of GET and HEAD requests for objects.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
    /// DELETE.
    pub deletes: u64,
    /// The number of deletions that hid an object and left its bytes, as in a bucket that keeps
    /// versions.
    pub hidden: u64,
    /// The number of requests that were sent again after a failure.
    pub retries: u64,
    /// The number of body bytes that were sent.
    pub sent_bytes: u64,
    /// The number of body bytes that were received.
    pub received_bytes: u64,
}

impl Sum for Requests {
    fn sum<I: Iterator<Item = Requests>>(all: I) -> Requests {
        all.fold(Requests::default(), |a, b| Requests {
            puts: a.puts + b.puts,
            gets: a.gets + b.gets,
            lists: a.lists + b.lists,
            deletes: a.deletes + b.deletes,
            hidden: a.hidden + b.hidden,
            retries: a.retries + b.retries,
            sent_bytes: a.sent_bytes + b.sent_bytes,
            received_bytes: a.received_bytes + b.received_bytes,
        })
    }
}

/// The counters for [`Requests`].
#[derive(Debug, Default)]
pub struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    hidden: AtomicU64,
    retries: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counters {
    /// The counts of requests so far.
    pub fn read(&self) -> Requests {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: get(&self.puts),
            gets: get(&self.gets),
            lists: get(&self.lists),
            deletes: get(&self.deletes),
            hidden: get(&self.hidden),
            retries: get(&self.retries),
            sent_bytes: get(&self.sent_bytes),
            received_bytes: get(&self.received_bytes),
        }
    }

    /// Counts a retry.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts received bytes of an object.
    pub fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count(&self, request: &HttpRequest) {
        let counter = match request.method().as_str() {
            "POST" if is_batch(request) => &self.deletes,
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
    let query = request.uri().query().unwrap_or_default();
    query.contains("list-type=") || has_part(query, "versions") || query.contains("comp=list")
}

/// Whether a request is Azure's batch of several requests, which the client uses for deletions.
fn is_batch(request: &HttpRequest) -> bool {
    request.uri().query().unwrap_or_default().contains("comp=batch")
}

/// Whether a request is for the metadata of a bucket or an object.
fn is_about(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    ["versioning", "object-lock", "retention"].iter().any(|name| has_part(query, name))
}

fn has_part(query: &str, name: &str) -> bool {
    query.split('&').any(|part| part.split('=').next() == Some(name))
}

/// Creates clients that count requests and also trust these authorities.
#[derive(Debug)]
pub(crate) struct CountingConnector {
    pub counters: Arc<Counters>,
    pub authorities: Vec<reqwest::Certificate>,
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = HttpClient::new(connection::client(options, &self.authorities)?);
        Ok(HttpClient::new(CountedService { inner, counters: Arc::clone(&self.counters) }))
    }
}

struct CountedService {
    inner: HttpClient,
    counters: Arc<Counters>,
}

impl fmt::Debug for CountedService {
    /// Prints nothing about the requests, because their headers are signed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for CountedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.count(&request);
        let is_listing = is_listing(&request);
        let is_object = request.method() == "GET" && !is_listing && !is_about(&request);
        let (has_body, is_delete) = (request.method() != "HEAD", request.method() == "DELETE");
        let right = right(&request);
        let (parts, body) = self.inner.execute(request).await?.into_parts();
        if parts.status.is_success()
            && is_page(&parts.headers)
            && !is_empty(parts.status.as_u16(), &parts.headers)
        {
            return Err(odd("the server answered with a web page"));
        }
        if parts.status.is_success() && is_object {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if parts.headers.get("x-amz-delete-marker").is_some_and(|value| value == "true")
            && is_delete
        {
            self.counters.hidden.fetch_add(1, Ordering::Relaxed);
        }
        if parts.status.is_success() {
            let whole = bounded(body, ANSWER_MAX_BYTES).await?;
            self.counters.received(whole.len() as u64);
            let tags: [&[u8]; 3] =
                [b"<ListBucketResult", b"<ListVersionsResult", b"<EnumerationResults"];
            if is_listing && !tags.iter().any(|tag| has_tag(&whole, tag)) {
                return Err(odd("the server's answer is not a listing"));
            }
            return Ok(HttpResponse::from_parts(parts, whole.into()));
        }
        let said = if has_body { refusal_body(body).await } else { Bytes::new() };
        let refusal = Refusal { right, ..refusal(parts.status.as_u16(), &parts.headers, &said) };
        // Missing buckets are 404, too; only Azure's answer to a HEAD distinguishes them.
        if is_about_object(&refusal) {
            return Ok(HttpResponse::from_parts(parts, said.into()));
        }
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// Decodes an error answer.
fn refusal(status: u16, headers: &HeaderMap, said: &[u8]) -> Refusal {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let id = ["x-amz-request-id", "x-goog-request-id", "x-ms-request-id", "x-guploader-uploadid"];
    let id = id.into_iter().find_map(header);
    // In seconds; the other form, a date, depends on a clock that is not this host's.
    let retry_after = header("retry-after").and_then(|it| it.parse().ok()).unwrap_or(0);
    let retry_after = Duration::from_secs(retry_after);
    let mut refusal = Refusal::read(status, id.unwrap_or_default(), retry_after, said);
    if let Some(code) = header("x-ms-error-code").filter(|_| refusal.code.is_empty()) {
        refusal.code = refusal::printable(code);
    }
    if let Some(region) = header("x-amz-bucket-region").filter(|_| refusal.region.is_empty()) {
        refusal.region = refusal::printable(region);
    }
    let sent_to = header("location").and_then(|url| url.split_once("://")?.1.split('/').next());
    refusal.sent_to = sent_to.map(refusal::printable).unwrap_or_default();
    refusal
}

/// The permission that a request needs, in S3's words; empty for requests for metadata.
fn right(request: &HttpRequest) -> &'static str {
    match request.method().as_str() {
        _ if is_about(request) => "",
        "DELETE" => "DeleteObject",
        "POST" if is_batch(request) => "DeleteObject",
        "PUT" | "POST" => "PutObject",
        _ if is_listing(request) => "ListBucket",
        _ => "GetObject",
    }
}

/// Whether an answer has no body, as that to a deletion, which some servers label as a page.
fn is_empty(status: u16, headers: &HeaderMap) -> bool {
    status == 204 || headers.get("content-length").is_some_and(|length| length == "0")
}

/// Whether an answer is an HTML page for people instead of an object; if an object is itself a
/// page, the endpoint sends its entity tag.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok());
    !headers.contains_key("etag") && kind.is_some_and(|kind| kind.starts_with("text/html"))
}

/// Whether the client must distinguish a refusal: no such object, or an object with this name
/// exists already. A missing bucket or user is neither of these.
fn is_about_object(refusal: &Refusal) -> bool {
    match refusal.status {
        304 | 412 => true,
        404 => NO_OBJECT.contains(&&*refusal.code) && !refusal.is_page,
        // Azure's form of 412; S3's own 409 means "try again".
        409 => refusal.code == "BlobAlreadyExists",
        _ => false,
    }
}

/// The error for an answer that is not S3. A page of a login portal must not be taken for an empty
/// listing: objects missing from a listing may be deleted.
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
    debug_assert!(whole.len() <= REFUSAL_MAX_BYTES, "each answer has a largest size");
    whole.freeze()
}

/// The complete body of an answer; fails if it is longer than `most_bytes`.
async fn bounded(body: HttpResponseBody, most_bytes: usize) -> Result<Bytes, HttpError> {
    let mut stream = body.bytes_stream();
    let mut whole = BytesMut::new();
    while let Some(part) = stream.next().await {
        let part = part?;
        if whole.len() + part.len() > most_bytes {
            return Err(odd("the server's answer is longer than any answer of S3 can be"));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_tells_apart_is_passed_on() {
        for (status, code, passes) in [
            (404, "NoSuchKey", true),
            (404, "", true),
            (404, "XAdminUserNotFound", false),
            (404, "NoSuchAccount", false),
            (404, "NoSuchBucket", false),
            (404, "ContainerNotFound", false),
            (412, "", true),
            (409, "BlobAlreadyExists", true),
            (409, "ConditionalRequestConflict", false),
            (409, "", false),
            (403, "AccessDenied", false),
        ] {
            let refusal = Refusal { status, code: code.to_owned(), ..Refusal::default() };
            assert_eq!(is_about_object(&refusal), passes, "{status} {code}");
        }
        let page = Refusal { status: 404, is_page: true, ..Refusal::default() };
        assert!(!is_about_object(&page));
    }
}
