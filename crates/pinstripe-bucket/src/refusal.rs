//! The error answers of endpoints, and advice about them.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// An error answer of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// S3's error code, such as `NoSuchBucket`; empty if the answer is not S3's.
    pub code: String,
    pub message: String,
    /// The request id that the endpoint returned.
    pub request: String,
    /// The region of the bucket, as the endpoint reports it.
    pub region: String,
    /// How long to wait, as the endpoint demands.
    pub retry_after: Duration,
    /// The host to which the endpoint redirects the request.
    pub sent_to: String,
    /// The permission that the request needs, in S3's words; empty if it is not a known one.
    pub right: &'static str,
    /// Whether the body is an HTML page for people, such as from a proxy or a login portal.
    pub is_page: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        for part in [&self.code, &self.message].into_iter().filter(|part| !part.is_empty()) {
            write!(f, ", {part}")?;
        }
        if self.is_page {
            f.write_str(", and the answer is a web page")?;
        }
        if !self.sent_to.is_empty() {
            write!(f, ", with a redirect to {}", self.sent_to)?;
        }
        if !self.request.is_empty() {
            write!(f, " (request {})", self.request)?;
        }
        Ok(())
    }
}

impl StdError for Refusal {}

impl Refusal {
    /// Decodes the body of an answer, which may contain anything.
    pub fn read(status: u16, request: &str, retry_after: Duration, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let [code, message, region] = ["Code", "Message", "Region"].map(|tag| said(&text, tag));
        let (request, is_page) = (printable(request), is_page(body));
        Refusal {
            status,
            code,
            message,
            request,
            region,
            retry_after,
            is_page,
            ..Refusal::default()
        }
    }

    /// Whether the same request may succeed shortly afterwards.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504)
    }

    /// Whether the session token has expired: the owner of the profile may have a new one already.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(&*self.code, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired")
    }

    /// Whether the endpoint does not support a header, such as that of a condition.
    pub(crate) fn is_not_implemented(&self) -> bool {
        self.status == 501 || self.code == "NotImplemented"
    }

    /// Whether the storage is full.
    pub fn is_full(&self) -> bool {
        self.status == 507 || self.code.contains("QuotaExceeded")
    }

    /// Whether the endpoint throttles requests.
    pub(crate) fn is_throttle(&self) -> bool {
        matches!(self.status, 429 | 503)
    }

    /// The advice for the user.
    pub fn advice(&self, region: &str, place: &Path) -> String {
        let text = match &*self.code {
            _ if self.is_full() => {
                "the endpoint, or the quota of these credentials, is full: free space there, or \
                 have the quota raised"
            }
            "NoSuchBucket" => "create the bucket first, or check its name and --endpoint",
            "ContainerNotFound" => "create the container first, or check its name and the account",
            "AuthenticationFailed" | "InvalidAuthenticationInfo" => {
                "check AZURE_STORAGE_ACCOUNT_KEY, or the other variables with credentials, for \
                 this account; also check the clock of this host"
            }
            "InvalidAccessKeyId"
            | "XAdminUserNotFound"
            | "SignatureDoesNotMatch"
            | "AuthorizationQueryParametersError" => {
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile, for this \
                 endpoint"
            }
            _ if self.is_expired() => "the session token has expired: get new credentials",
            "RequestTimeTooSkewed" | "RequestExpired" => {
                "the clock of this host differs too much from the clock of the endpoint: correct \
                 the clock of this host"
            }
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "IllegalLocationConstraint"
            | "IncorrectEndpoint" => return self.other_region(region),
            _ if matches!(self.status, 301 | 302 | 303 | 307 | 308) => {
                return self.other_region(region);
            }
            _ if self.is_page => strange(place),
            _ if matches!(self.status, 401 | 403) => return self.rights(place),
            _ if self.is_throttle() => {
                "the endpoint limits requests or is temporarily unavailable: run the command again \
                 later; --bandwidth-up and --bandwidth-down reduce the load"
            }
            _ if self.code.is_empty() => strange(place),
            _ => "see the provider's documentation of this error code",
        };
        text.to_owned()
    }

    fn other_region(&self, region: &str) -> String {
        let name_it =
            "give the region with --region, or the endpoint of the region with --endpoint";
        if self.region.is_empty() && !self.sent_to.is_empty() {
            let host = &self.sent_to;
            return format!(
                "pinstripe does not follow redirects to another host: if {host} is the endpoint of \
                 the bucket in another region, {name_it}; otherwise check whether a login page or \
                 a proxy is between this host and the endpoint"
            );
        }
        let found = if self.region.is_empty() { "another one" } else { &self.region };
        format!(
            "the request was signed for region {region}, but the bucket is in {found}: {name_it}"
        )
    }

    /// The missing permissions, in the words of the provider.
    fn rights(&self, place: &Path) -> String {
        let needed = match scheme(place) {
            "gs" => {
                "the credentials need the permissions storage.objects.get, storage.objects.create, \
                 storage.objects.list and storage.objects.delete on this bucket"
            }
            "az" => {
                "the credentials need the permissions to read, write, list and delete blobs of \
                 this container; the role Storage Blob Data Contributor has these permissions"
            }
            _ => {
                "the access key needs the permissions GetObject, PutObject and ListBucket on this \
                 prefix; 'pinstripe gc', 'forget' and 'member remove' also need DeleteObject"
            }
        };
        match self.right {
            "" => format!("these credentials are not permitted to do this: {needed}"),
            right => format!(
                "these credentials are not permitted to do this ({right} was refused): {needed}"
            ),
        }
    }
}

/// The advice about answers that do not follow the protocol.
pub fn strange(place: &Path) -> &'static str {
    match scheme(place) {
        "gs" | "az" => {
            "the answers of this server do not follow the provider's protocol: check the endpoint, \
             and any proxies between this host and the endpoint"
        }
        _ => {
            "the answers of this server do not follow the S3 protocol: check --endpoint, and any \
             proxies between this host and the endpoint"
        }
    }
}

/// The beginning of a place: the scheme that determines the protocol of its endpoint.
fn scheme(place: &Path) -> &str {
    let text = place.to_str().unwrap_or_default();
    text.split([':', '+']).next().unwrap_or_default()
}

/// Whether a body is an HTML page for people.
fn is_page(body: &[u8]) -> bool {
    let begins = |tag: &str| {
        let start = body.trim_ascii_start().get(..tag.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()))
    };
    begins("<!doctype html") || begins("<html")
}

/// The text between the first pair of tags with a name.
fn said(text: &str, tag: &str) -> String {
    let inner = text
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("", |(inner, _)| inner);
    printable(inner)
}

/// Text from an endpoint, made printable and cut to a length that fits in a message.
pub fn printable(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    text.chars().filter(|c| !c.is_control()).take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

    use super::*;
    use crate::fault::Fault;

    #[test]
    fn what_an_endpoint_says_is_read_and_bounded() {
        let body = b"<Error><Code>NoSuchBucket</Code><Message>not \x1b[31mthere</Message></Error>";
        let refusal = Refusal::read(404, "4442587FB7D0A2F9", Duration::ZERO, body);
        assert_eq!(refusal.code, "NoSuchBucket");
        let text = refusal.to_string();
        assert_eq!(text, "HTTP 404, NoSuchBucket, not [31mthere (request 4442587FB7D0A2F9)");
        let html = Refusal::read(502, "", Duration::ZERO, b"<html>\xff\xfe<h1>Bad Gateway</h1>");
        assert_eq!((&*html.code, html.is_transient(), html.is_page), ("", true, true));
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
            (403, "RequestTimeTooSkewed", "the clock of this host"),
            (403, "AccessDenied", "GetObject"),
            (301, "", "--region"),
            (400, "AuthorizationHeaderMalformed", "eu-west-1"),
            (200, "", "check --endpoint"),
            (404, "XAdminUserNotFound", "AWS_ACCESS_KEY_ID"),
            (403, "QuotaExceeded", "or the quota of"),
            (503, "SlowDown", "later"),
        ] {
            let region = "eu-west-1".to_owned();
            let refusal = Refusal { status, code: code.to_owned(), region, ..Refusal::default() };
            let error =
                Fault::Refused(Box::new(refusal)).error("read", place, "http://h", "us-east-1");
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
            let error =
                Fault::Refused(Box::new(refusal)).error("read", Path::new(place), "http://h", "");
            assert!(error.advice_text().unwrap().contains(advice), "{place} {code}");
        }
        let page = Refusal { status: 403, is_page: true, ..Refusal::default() };
        assert!(page.advice("us-east-1", place).contains("proxies between"));
        let right = Refusal { status: 403, right: "DeleteObject", ..Refusal::default() };
        assert!(right.advice("us-east-1", place).contains("DeleteObject was refused"));
        let sent_to = "login.example".to_owned();
        let on = Refusal { status: 307, sent_to, ..Refusal::default() };
        assert!(on.advice("us-east-1", place).contains("login.example"));
        assert_eq!(on.to_string(), "HTTP 307, with a redirect to login.example");
        let full = Refusal { status: 507, ..Refusal::default() };
        let error = Fault::Refused(Box::new(full)).error("write", place, "http://h", "us-east-1");
        assert_eq!(error.kind(), Kind::NoSpace);
    }
}
