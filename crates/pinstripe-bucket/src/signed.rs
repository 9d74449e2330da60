//! Signed requests of S3 for which the client has no methods: settings of buckets, old versions,
//! retention.
//!
//! Signed requests use the same connections, counters and limits as all other requests, and the
//! same session retries them.

use bytes::Bytes;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpRequest, HttpResponse};
use object_store::path::Path as Key;

/// A request.
#[derive(Clone, Default)]
pub struct Ask {
    /// As in `GET`.
    pub method: &'static str,
    /// The key of the object; `None` for the bucket.
    pub key: Option<Key>,
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

/// A successful answer.
pub struct Answer {
    response: HttpResponse,
}

impl Answer {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// Fails if the connection ends before the body does.
    pub async fn text(self) -> object_store::Result<String> {
        let bytes = self.response.into_body().bytes().await.map_err(generic)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Signs and sends requests. `Signed` has no `Debug`, because it holds secrets.
pub struct Signed {
    pub http: HttpClient,
    pub credentials: AwsCredentialProvider,
    pub region: String,
    /// As in `https://s3.example.org/bucket`.
    pub bucket_url: String,
    /// Whether the signature also covers the body, which is necessary without TLS.
    pub signs_body: bool,
}

impl Signed {
    /// Sends a request once.
    ///
    /// # Errors
    /// Fails with the errors of the client's own calls.
    pub async fn call(&self, ask: Ask) -> object_store::Result<Answer> {
        let path = ask
            .key
            .as_ref()
            .map_or(String::new(), |key| format!("/{}", quoted(key.as_ref(), true)));
        let query: Vec<_> = ask
            .query
            .iter()
            .map(|(name, value)| format!("{name}={}", quoted(value, false)))
            .collect();
        let url = format!("{}{path}?{}", self.bucket_url, query.join("&"));
        let url = url.trim_end_matches('?');
        let mut request = HttpRequest::new(ask.body.into());
        *request.method_mut() = ask.method.parse().map_err(generic)?;
        *request.uri_mut() = url.parse().map_err(generic)?;
        for (name, value) in ask.headers {
            request.headers_mut().insert(name, value.parse().map_err(generic)?);
        }
        let credential = self.credentials.get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .with_sign_payload(self.signs_body)
            .try_authorize(&mut request, None)?;
        let response = self.http.execute(request).await.map_err(generic)?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(Answer { response });
        }
        let path = ask.key.map(String::from).unwrap_or_default();
        let source = format!("HTTP {status}").into();
        Err(match status {
            404 => object_store::Error::NotFound { path, source },
            412 => object_store::Error::AlreadyExists { path, source },
            _ => object_store::Error::Generic { store: "S3", source },
        })
    }
}

fn generic(source: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: Box::new(source) }
}

/// Percent-encodes text for a URL; a path keeps its slashes.
fn quoted(text: &str, is_path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into());
            }
            b'/' if is_path => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The text between the first pair of tags with a name, with XML's escapes decoded.
pub fn tagged(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(unescaped(inner))
}

/// Decodes XML's named and numeric escapes, which keys and tags may contain.
pub fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let Some((name, after)) = behind.split_once(';').filter(|(name, _)| name.len() <= 8) else {
            out.push('&');
            rest = behind;
            continue;
        };
        let number = name.strip_prefix("#x").map(|it| u32::from_str_radix(it, 16));
        let number = number.or_else(|| name.strip_prefix('#').map(str::parse));
        let character = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => number.and_then(Result::ok).and_then(char::from_u32),
        };
        match character {
            Some(character) => out.push(character),
            None => out.push_str(&format!("&{name};")),
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_xml_are_quoted_as_their_readers_expect() {
        assert_eq!(quoted("a=b/c d", true), "a%3Db/c%20d");
        assert_eq!(quoted("a/b+c", false), "a%2Fb%2Bc");
        let xml = "<A><Key>a&amp;b&#x2F;c&#47;&quot;&bogus;&</Key></A>";
        assert_eq!(tagged(xml, "Key").unwrap(), "a&b/c/\"&bogus;&");
        assert_eq!(tagged(xml, "Other"), None);
        assert_eq!(tagged("<Key>cut off", "Key"), None);
        assert_eq!(unescaped("&#xffffffff;&#;"), "&#xffffffff;&#;");
    }
}
