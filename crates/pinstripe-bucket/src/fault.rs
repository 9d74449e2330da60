//! What an endpoint answered instead of what it was asked for, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use pinstripe_base::error::{Error, Kind};

/// An answer that is an error, as the endpoint said it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// S3's word, as `NoSuchBucket`; empty where the answer is not S3's.
    pub code: String,
    pub message: String,
    /// The endpoint's name for the request.
    pub request: String,
    /// The region that the endpoint says the bucket is in.
    pub region: String,
    /// How long the endpoint wants to be left alone.
    pub retry_after: Duration,
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object.
    Missing,
    /// An object has the name, says the endpoint.
    Exists,
    /// An object has the name and may not be replaced, and there is none to be read, says the endpoint.
    Contradicts,
    Refused(Refusal),
    /// No connection, or it ended before the answer.
    Cut(String),
    /// The endpoint's certificate is not one that this host trusts.
    Untrusted(String),
    /// No answer in time.
    Late,
    /// An answer that is none of S3's.
    Odd(String),
    /// The bucket is shown as it was at a time: nothing is changed.
    ReadOnly,
    /// What is asked for is S3's, and the endpoint speaks something else.
    Unknown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        for part in [&self.code, &self.message].into_iter().filter(|part| !part.is_empty()) {
            write!(f, ", {part}")?;
        }
        if !self.request.is_empty() {
            write!(f, " (request {})", self.request)?;
        }
        Ok(())
    }
}

impl StdError for Refusal {}

impl Refusal {
    /// Reads the body of an answer, which may be anything.
    pub fn read(status: u16, request: &str, retry_after: Duration, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let [code, message, region] = ["Code", "Message", "Region"].map(|tag| said(&text, tag));
        let request = printable(request);
        Refusal { status, code, message, request, region, retry_after }
    }

    /// Whether the same request may be answered in a moment.
    fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504)
    }

    /// Whether the endpoint does not know a header, as that of a condition.
    pub fn is_not_implemented(&self) -> bool {
        self.status == 501 || self.code == "NotImplemented"
    }

    /// Whether the endpoint says that it is asked too much.
    pub fn is_throttle(&self) -> bool {
        matches!(self.status, 429 | 503)
    }

    /// What a user can do.
    fn advice(&self, region: &str, place: &Path) -> String {
        let text = match &*self.code {
            "NoSuchBucket" => "create the bucket first, or check its name and --endpoint",
            "ContainerNotFound" => "create the container first, or check its name and the account",
            "AuthenticationFailed" | "InvalidAuthenticationInfo" => {
                "check AZURE_STORAGE_ACCOUNT_KEY, or the other variables, for this account, and \
                 this host's clock"
            }
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "AuthorizationQueryParametersError" => {
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile, for this \
                 endpoint"
            }
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
                "the session token has expired: get new credentials"
            }
            "RequestTimeTooSkewed" | "RequestExpired" => {
                "this host's clock differs too much from the endpoint's: correct this host's clock"
            }
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "IllegalLocationConstraint"
            | "IncorrectEndpoint" => return self.other_region(region),
            _ if matches!(self.status, 301 | 302 | 307 | 308) => return self.other_region(region),
            _ if matches!(self.status, 401 | 403) => rights(place),
            _ if self.status == 507 => "there is no room left at the endpoint",
            _ if self.code.is_empty() => strange(place),
            _ => "see what the provider says of this code",
        };
        text.to_owned()
    }

    fn other_region(&self, region: &str) -> String {
        let found = if self.region.is_empty() { "another one" } else { &self.region };
        format!(
            "the request was signed for region {region}, and the bucket is in {found}: name it \
             with --region, or its endpoint with --endpoint"
        )
    }
}

impl Fault {
    /// What an error of the client means.
    pub fn of(error: &object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => return Fault::Missing,
            object_store::Error::AlreadyExists { .. }
            | object_store::Error::Precondition { .. } => return Fault::Exists,
            object_store::Error::NotSupported { .. } => return Fault::Unknown,
            _ => {}
        }
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        let mut last = error.to_string();
        while let Some(cause) = next {
            if let Some(refusal) = cause.downcast_ref::<Refusal>() {
                return Fault::Refused(refusal.clone());
            }
            if let Some(http) = cause.downcast_ref::<HttpError>() {
                let deepest = deepest(http);
                match http.kind() {
                    HttpErrorKind::Timeout => return Fault::Late,
                    HttpErrorKind::Decode => return Fault::Odd(deepest),
                    // A refusal that stands behind it says more.
                    _ if find_refusal(http).is_none() => return Fault::of_connection(deepest),
                    _ => {}
                }
            }
            last = cause.to_string();
            next = cause.source();
        }
        Fault::Odd(printable(&last))
    }

    /// What ended a connection, by its deepest cause: the library's words for certificates are all that
    /// tells these apart.
    fn of_connection(why: String) -> Self {
        match why.contains("certificate") {
            true => Fault::Untrusted(why),
            false => Fault::Cut(why),
        }
    }

    /// Whether the same request may succeed in a moment. An answer that is none of S3's may be
    /// that of a proxy whose server starts again.
    pub fn is_transient(&self) -> bool {
        match self {
            Fault::Missing
            | Fault::Exists
            | Fault::Contradicts
            | Fault::Untrusted(_)
            | Fault::ReadOnly
            | Fault::Unknown => false,
            Fault::Refused(refusal) => refusal.is_transient(),
            Fault::Cut(_) | Fault::Late | Fault::Odd(_) => true,
        }
    }

    /// Whether nothing at all was heard.
    pub fn is_silence(&self) -> bool {
        matches!(self, Fault::Cut(_) | Fault::Late)
    }

    /// The error of a call that was to do `act` on `place`.
    pub fn error(&self, act: &str, place: &Path, endpoint: &str, region: &str) -> Error {
        let failed = |kind, why: &str| {
            Error::new(kind, format!("cannot {act} at {endpoint}: {why}")).at(place)
        };
        match self {
            Fault::Missing => Error::new(Kind::NotFound, "no such extent").at(place),
            Fault::Exists => Error::new(Kind::Exists, "exists already").at(place),
            Fault::Contradicts => failed(
                Kind::Io,
                "the endpoint refuses to create this key as one that exists, and says that there is \
                 none when it is read",
            )
            .advice(
                "a server that was killed while it wrote may leave this: have it repaired, or, while \
                 no program uses the store, write an empty object of this key with the provider's \
                 own tool and remove it; what is stored is not affected",
            ),
            Fault::Refused(refusal) => {
                let is_full = refusal.status == 507 || refusal.code.contains("QuotaExceeded");
                let kind = if is_full { Kind::NoSpace } else { Kind::Io };
                failed(kind, &refusal.to_string()).advice(refusal.advice(region, place))
            }
            Fault::Cut(why) => failed(Kind::Io, why)
                .advice("check the endpoint and the network; tried several times"),
            Fault::Untrusted(why) => failed(Kind::Io, why).advice(
                "name the file with the authority's certificate by AWS_CA_BUNDLE, or by ca_bundle of \
                 the profile; check also the endpoint's host name and this host's clock",
            ),
            Fault::Late => failed(Kind::Unanswered, "no answer in time")
                .advice("check the endpoint and the network; tried several times"),
            Fault::ReadOnly => {
                failed(Kind::Refused, "the store is shown as it was").advice("leave out --at")
            }
            Fault::Unknown => failed(Kind::Unsupported, "the endpoint does not speak S3"),
            Fault::Odd(why) => failed(Kind::Io, why).advice(strange(place)),
        }
    }
}

/// What who may not do something lacks, in the words of the provider.
fn rights(place: &Path) -> &'static str {
    match scheme(place) {
        "gs" => {
            "these credentials may not do this: they need storage.objects.get, create, list and \
             delete on this bucket"
        }
        "az" => {
            "these credentials may not do this: they need to read, write, list and delete blobs of \
             this container, as a Storage Blob Data Contributor may"
        }
        _ => {
            "these credentials may not do this: the key needs GetObject, PutObject and \
             ListBucket on this prefix, and DeleteObject for gc, forget and member remove"
        }
    }
}

/// What to look at where the answers are none of the protocol.
fn strange(place: &Path) -> &'static str {
    match scheme(place) {
        "gs" | "az" => {
            "this does not answer as the provider does: check the endpoint, and proxies in between"
        }
        _ => "this does not answer as S3 does: check --endpoint, and proxies in between",
    }
}

/// What a place begins with, up to the protocol of its endpoint.
fn scheme(place: &Path) -> &str {
    let text = place.to_str().unwrap_or_default();
    text.split([':', '+']).next().unwrap_or_default()
}

fn find_refusal<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Refusal> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(refusal) = cause.downcast_ref() {
            return Some(refusal);
        }
        next = cause.source();
    }
    None
}

/// The cause that all others stand on, as text.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    printable(&last.to_string())
}

/// The text between the first pair of tags of a name.
fn said(text: &str, tag: &str) -> String {
    let inner = text
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("", |(inner, _)| inner);
    printable(inner)
}

/// Words of an endpoint, cut to what fits in a message.
pub fn printable(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    text.chars().filter(|c| !c.is_control()).take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_endpoint_says_is_read_and_bounded() {
        let body = b"<Error><Code>NoSuchBucket</Code><Message>not \x1b[31mthere</Message></Error>";
        let refusal = Refusal::read(404, "4442587FB7D0A2F9", Duration::ZERO, body);
        assert_eq!(refusal.code, "NoSuchBucket");
        let text = refusal.to_string();
        assert_eq!(text, "HTTP 404, NoSuchBucket, not [31mthere (request 4442587FB7D0A2F9)");
        let html = Refusal::read(502, "", Duration::ZERO, b"<html>\xff\xfe<h1>Bad Gateway</h1>");
        assert_eq!((&*html.code, html.is_transient()), ("", true));
        let long = format!("<Code>{}</Code>", "x".repeat(10_000));
        assert_eq!(Refusal::read(400, "", Duration::ZERO, long.as_bytes()).code.len(), 200);
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let place = Path::new("s3+http://h/bucket/p");
        for (status, code, advice) in [
            (404, "NoSuchBucket", "create the bucket"),
            (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
            (400, "ExpiredToken", "new credentials"),
            (403, "RequestTimeTooSkewed", "this host's clock"),
            (403, "AccessDenied", "GetObject"),
            (301, "", "--region"),
            (400, "AuthorizationHeaderMalformed", "eu-west-1"),
            (200, "", "check --endpoint"),
        ] {
            let region = "eu-west-1".to_owned();
            let refusal = Refusal { status, code: code.to_owned(), region, ..Refusal::default() };
            let error = Fault::Refused(refusal).error("read", place, "http://h", "us-east-1");
            assert!(error.advice_text().unwrap().contains(advice), "{status} {code}");
            assert!(error.to_string().contains("http://h"), "{error}");
        }
        for (place, status, code, advice) in [
            ("az://account/container/p", 404, "ContainerNotFound", "create the container"),
            ("az://account/container/p", 403, "AuthenticationFailed", "AZURE_STORAGE_ACCOUNT_KEY"),
            ("az+http://h/account/container", 403, "AuthorizationFailure", "Contributor"),
            ("gs://bucket/p", 403, "AccessDenied", "storage.objects.get"),
            ("gs+http://h/bucket", 200, "", "check the endpoint"),
        ] {
            let refusal = Refusal { status, code: code.to_owned(), ..Refusal::default() };
            let error = Fault::Refused(refusal).error("read", Path::new(place), "http://h", "");
            assert!(error.advice_text().unwrap().contains(advice), "{place} {code}");
        }
        let full = Refusal { status: 507, ..Refusal::default() };
        let error = Fault::Refused(full).error("write", place, "http://h", "us-east-1");
        assert_eq!(error.kind(), Kind::NoSpace);
    }
}
