//! Where a bucket member is: `s3+https://HOST[:PORT]/BUCKET[/PREFIX]`, `gs://BUCKET[/PREFIX]`, or
//! `az://ACCOUNT/CONTAINER[/PREFIX]`.
//!
//! This one form is what labels and hosts keep. Users may also write `s3://BUCKET/PREFIX`, to
//! which the endpoint of the run is added. Credentials are no part of a place.

use std::fmt;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

/// Longest host, bucket and prefix together; S3 has keys of at most 1024 bytes.
const PLACE_MAX_BYTES: usize = 700;
const AWS: &str = "amazonaws.com";

const GOOGLE: &str = "storage.googleapis.com";
const AZURE: &str = "blob.core.windows.net";

/// Whose protocol an endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// S3, of AWS or anyone.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// A prefix in a bucket at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketPlace {
    provider: Provider,
    is_secure: bool,
    host: String,
    bucket: String,
    prefix: String,
}

/// What completes a place that names no endpoint.
#[derive(Debug, Clone, Default)]
pub struct EndpointDefaults {
    /// As in `https://s3.example.org:9000`; without it AWS is meant.
    pub endpoint: Option<String>,
    /// The region that AWS's endpoint is chosen by.
    pub region: Option<String>,
}

impl BucketPlace {
    /// Reads a place; `defaults` complete one that begins with `s3://`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when it is of another form.
    pub fn parse(place: &Path, defaults: &EndpointDefaults) -> Result<Self> {
        let odd = |what: &str| Err(wrong(place, what));
        let Some(text) = place.to_str() else { return odd("a place in a bucket is text") };
        if text.len() > PLACE_MAX_BYTES {
            return odd("this place is too long");
        }
        let Some((scheme, rest)) = text.split_once("://") else { return odd("this is no URL") };
        let mut provider = Provider::S3;
        let (is_secure, host, rest) = match scheme {
            "gs" => {
                provider = Provider::Google;
                (true, GOOGLE.to_owned(), rest)
            }
            "az" => {
                provider = Provider::Azure;
                let (account, rest) = rest.split_once('/').unwrap_or((rest, ""));
                let is_account =
                    account.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
                if !is_account || !(3..=24).contains(&account.len()) {
                    return odd("this is no storage account");
                }
                (true, format!("{account}.{AZURE}"), rest)
            }
            "s3" => {
                let (is_secure, host) = defaults.host(place)?;
                (is_secure, host, rest)
            }
            "s3+https" | "s3+http" => {
                let (host, rest) = rest.split_once('/').unwrap_or((rest, ""));
                (scheme == "s3+https", host.to_ascii_lowercase(), rest)
            }
            _ => return odd("this scheme is not known"),
        };
        if !is_host(&host) {
            return odd("this is no host of an endpoint");
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_word(bucket) || bucket.len() < 3 {
            return odd("the bucket has no valid name");
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_word) {
            return odd("the prefix has a part that is empty, '.', '..' or of other characters");
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(BucketPlace { provider, is_secure, host, bucket, prefix })
    }

    /// The form that is kept.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// The endpoint as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}://{}", if self.is_secure { "https" } else { "http" }, self.host)
    }

    /// The region that the endpoint's name says, where it is one of AWS.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.host.strip_prefix("s3.")?.strip_suffix(AWS)?.strip_suffix('.')
    }

    /// Whether the endpoint is one of AWS.
    #[must_use]
    pub fn is_aws(&self) -> bool {
        self.host.ends_with(AWS)
    }

    /// Whose protocol it speaks.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The storage account of Azure.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        let account = self.host.strip_suffix(AZURE)?.strip_suffix('.');
        account.filter(|_| self.provider == Provider::Azure)
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The bucket.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// What all keys of the member begin with, without the slash behind it; may be empty.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provider {
            Provider::S3 => write!(f, "s3+{}/{}", self.endpoint(), self.bucket)?,
            Provider::Google => write!(f, "gs://{}", self.bucket)?,
            Provider::Azure => {
                write!(f, "az://{}/{}", self.account().unwrap_or_default(), self.bucket)?;
            }
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl EndpointDefaults {
    fn host(&self, place: &Path) -> Result<(bool, String)> {
        let Some(endpoint) = &self.endpoint else {
            let region = self.region.as_deref().unwrap_or("us-east-1");
            return Ok((true, format!("s3.{region}.{AWS}")));
        };
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("", endpoint));
        let is_secure = match scheme {
            "https" => true,
            "http" => false,
            _ => {
                return Err(Error::new(Kind::Usage, "an endpoint begins with https:// or http://")
                    .at(place)
                    .expected("a URL as https://s3.example.org", endpoint));
            }
        };
        Ok((is_secure, host.trim_end_matches('/').to_ascii_lowercase()))
    }
}

fn wrong(place: &Path, what: &str) -> Error {
    Error::new(Kind::Usage, what).at(place).advice(
        "write s3://BUCKET/PREFIX with --endpoint URL, s3+https://HOST/BUCKET/PREFIX, \
             gs://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX",
    )
}

/// A name or address, with a port or without.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_of_name);
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_address = inner.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    (is_name || is_address) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// A part of a key that means the same in every URL.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._=-".contains(c);
    !text.is_empty() && text != "." && text != ".." && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, endpoint: Option<&str>, region: Option<&str>) -> Result<String> {
        let defaults = EndpointDefaults {
            endpoint: endpoint.map(str::to_owned),
            region: region.map(str::to_owned),
        };
        BucketPlace::parse(Path::new(text), &defaults).map(|place| place.to_string())
    }

    #[test]
    fn every_form_becomes_one() {
        let one = "s3+https://s3.example.org/bucket/a/b";
        assert_eq!(parsed(one, None, None).unwrap(), one);
        let given = Some("https://S3.example.org/");
        assert_eq!(parsed("s3://bucket/a/b/", given, None).unwrap(), one);
        let aws = parsed("s3://bucket", None, Some("eu-west-1")).unwrap();
        assert_eq!(aws, "s3+https://s3.eu-west-1.amazonaws.com/bucket");
        let place = BucketPlace::parse(Path::new(&aws), &EndpointDefaults::default()).unwrap();
        assert_eq!((place.region(), place.is_aws()), (Some("eu-west-1"), true));
        let local = "s3+http://127.0.0.1:9000/bucket/p";
        assert_eq!(parsed(local, None, None).unwrap(), local);
        assert!(parsed("s3+http://[::1]:9000/bucket", None, None).is_ok());
    }

    #[test]
    fn other_providers_have_forms_of_their_own() {
        let defaults = EndpointDefaults { endpoint: Some("http://elsewhere".into()), region: None };
        let place = |text: &str| BucketPlace::parse(Path::new(text), &defaults).unwrap();
        let google = place("gs://bucket/a/b/");
        assert_eq!(google.to_string(), "gs://bucket/a/b");
        assert_eq!((google.provider(), google.account()), (Provider::Google, None));
        assert_eq!(google.endpoint(), "https://storage.googleapis.com");
        let azure = place("az://account1/container/p");
        assert_eq!(azure.to_string(), "az://account1/container/p");
        assert_eq!((azure.provider(), azure.account()), (Provider::Azure, Some("account1")));
        assert_eq!(azure.endpoint(), "https://account1.blob.core.windows.net");
        assert_eq!((azure.bucket(), azure.prefix(), azure.is_secure()), ("container", "p", true));
        for place in [google, azure] {
            assert_eq!(BucketPlace::parse(&place.path(), &defaults).unwrap(), place);
            assert!(!place.is_aws());
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for odd in [
            "s3://",
            "s3://b",
            "s3://bucket/../x",
            "s3://bucket//x",
            "s3://bucket/a?b",
            "s3://user@bucket",
            "gs://b",
            "gs://",
            "gs://bucket/../x",
            "az://container",
            "az://UPPER/container",
            "az://ac/container",
            "az://account/",
            "az://account/container//x",
            "swift://bucket",
            "s3+https://user:pw@host/bucket",
            "s3+http:///bucket",
            "s3+https://host:99999/bucket",
            "s3://bu cket",
            "/bucket",
            "s3+https://host",
        ] {
            assert_eq!(parsed(odd, None, None).unwrap_err().kind(), Kind::Usage, "{odd}");
        }
        assert!(parsed("s3://bucket", Some("ftp://x"), None).is_err());
        assert!(parsed("s3://bucket", Some("x"), None).is_err());
        let long = format!("s3://bucket/{}", "a".repeat(1000));
        assert!(parsed(&long, None, None).is_err());
    }
}
