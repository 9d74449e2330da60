//! The place of a bucket member: `s3+https://HOST[:PORT]/BUCKET[/PREFIX]`, `gs://BUCKET[/PREFIX]`,
//! or `az://ACCOUNT/CONTAINER[/PREFIX]`; the last two in the form `gs+https://HOST[:PORT]/...` and
//! `az+https://HOST[:PORT]/...` if another host speaks the provider's protocol.
//!
//! Labels and this host's records contain only this form. Users may also write
//! `s3://BUCKET/PREFIX`: the endpoint of the run is then added, as it is to `gs://` and `az://` if
//! the run has an endpoint for them. Credentials are not part of a place.

use std::fmt;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

/// The most bytes of host, bucket and prefix together; S3 keys have at most 1024 bytes.
const PLACE_MAX_BYTES: usize = 700;
const AWS: &str = "amazonaws.com";

const GOOGLE: &str = "storage.googleapis.com";
const AZURE: &str = "blob.core.windows.net";
/// The domains that belong to Google.
const GOOGLE_DOMAINS: [&str; 1] = ["googleapis.com"];
const AZURE_DOMAINS: [&str; 4] =
    [AZURE, "blob.core.usgovcloudapi.net", "blob.core.chinacloudapi.cn", "blob.storage.azure.net"];

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// S3, of AWS or any other provider.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// The place of a member: a prefix in a bucket at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketPlace {
    provider: Provider,
    is_secure: bool,
    host: String,
    /// The storage account of Azure; empty for other providers.
    account: String,
    bucket: String,
    prefix: String,
}

/// Values that complete a place without an endpoint.
#[derive(Debug, Clone, Default)]
pub struct EndpointDefaults {
    /// The S3 endpoint, such as `https://s3.example.org:9000`; the default is AWS.
    pub endpoint: Option<String>,
    /// The region for AWS's endpoint.
    pub region: Option<String>,
    /// The endpoint that replaces Google's, such as `http://127.0.0.1:4443`.
    pub google: Option<String>,
    /// The endpoint that replaces Azure's, such as `http://127.0.0.1:10000`; the account may follow
    /// it.
    pub azure: Option<String>,
}

impl BucketPlace {
    /// Parses a place; `defaults` complete a place without an endpoint.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for any other form.
    pub fn parse(place: &Path, defaults: &EndpointDefaults) -> Result<Self> {
        let odd = |what: &str| Err(wrong(place, what));
        let Some(text) = place.to_str() else { return odd("this URL is not valid UTF-8") };
        if text.len() > PLACE_MAX_BYTES {
            return odd("this URL is too long");
        }
        let Some((scheme, rest)) = text.split_once("://") else { return odd("this is not a URL") };
        let (provider, protocol) = scheme.split_once('+').unwrap_or((scheme, ""));
        let provider = match provider {
            "s3" => Provider::S3,
            "gs" => Provider::Google,
            "az" => Provider::Azure,
            _ => return odd("the scheme of this URL is unknown"),
        };
        let (named, rest) = match protocol {
            "" if scheme.ends_with('+') => return odd("the scheme of this URL is unknown"),
            "" => (None, rest),
            "https" | "http" => {
                let (host, rest) = rest.split_once('/').unwrap_or((rest, ""));
                (Some((protocol == "https", host.to_ascii_lowercase())), rest)
            }
            _ => return odd("the scheme of this URL is unknown"),
        };
        let (account, rest) = match provider {
            Provider::Azure => rest.split_once('/').unwrap_or((rest, "")),
            _ => ("", rest),
        };
        if provider == Provider::Azure && !is_account(account) {
            return odd("this is not a valid name of a storage account");
        }
        let (is_secure, host) = match named {
            Some(named) => named,
            None => defaults.host(place, provider, account)?,
        };
        if !is_host(&host) {
            return odd("this is not a valid host name of an endpoint");
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_word(bucket) || bucket.len() < 3 {
            return odd("the bucket name is not valid");
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_word) {
            return odd("the prefix has a component that is empty, '.' or '..', or that has \
                        unsupported characters");
        }
        let [account, bucket, prefix] = [account, bucket, prefix].map(str::to_owned);
        Ok(BucketPlace { provider, is_secure, host, account, bucket, prefix })
    }

    /// The canonical form of the place, which labels contain.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// The endpoint as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}://{}", if self.is_secure { "https" } else { "http" }, self.host)
    }

    /// The region in the endpoint's name, if the endpoint is AWS's.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.host.strip_prefix("s3.")?.strip_suffix(AWS)?.strip_suffix('.')
    }

    /// Whether the endpoint is AWS's.
    #[must_use]
    pub fn is_aws(&self) -> bool {
        self.host.ends_with(AWS)
    }

    /// The protocol of the place's endpoint.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The storage account of Azure.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        (!self.account.is_empty()).then_some(&*self.account)
    }

    /// Whether the endpoint is the provider's own and the connection is encrypted: bearer tokens
    /// give full access and must not be sent elsewhere.
    #[must_use]
    pub fn is_providers_own(&self) -> bool {
        let domains: &[&str] = match self.provider {
            Provider::S3 => &[AWS],
            Provider::Google => &GOOGLE_DOMAINS,
            Provider::Azure => &AZURE_DOMAINS,
        };
        let is_within =
            |domain: &&str| self.host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
        self.is_secure && domains.iter().any(is_within)
    }

    /// The URL of the containers of an Azure account: an account has its own host, or several
    /// accounts share one, as in an emulator.
    #[cfg(feature = "azure")]
    pub(crate) fn account_url(&self) -> String {
        let is_of_host = self.host.split('.').next() == Some(&*self.account);
        let endpoint = self.endpoint();
        if is_of_host { endpoint } else { format!("{endpoint}/{}", self.account) }
    }

    /// Whether the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The bucket.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The prefix of all keys of the member, without a final slash; may be empty.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, is_secure, host, account, bucket, .. } = self;
        let endpoint = self.endpoint();
        match provider {
            Provider::S3 => write!(f, "s3+{endpoint}/{bucket}")?,
            Provider::Google if *is_secure && host == GOOGLE => write!(f, "gs://{bucket}")?,
            Provider::Google => write!(f, "gs+{endpoint}/{bucket}")?,
            Provider::Azure if *is_secure && *host == azure_host(account) => {
                write!(f, "az://{account}/{bucket}")?;
            }
            Provider::Azure => write!(f, "az+{endpoint}/{account}/{bucket}")?,
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl EndpointDefaults {
    /// The host for a place without an endpoint, and whether the connection is encrypted.
    fn host(&self, place: &Path, provider: Provider, account: &str) -> Result<(bool, String)> {
        match provider {
            Provider::S3 => self.endpoint.as_deref().map_or_else(
                || {
                    let region = self.region.as_deref().unwrap_or("us-east-1");
                    Ok((true, format!("s3.{region}.{AWS}")))
                },
                |endpoint| host_of(place, endpoint),
            ),
            Provider::Google => match self.google.as_deref() {
                None => Ok((true, GOOGLE.to_owned())),
                // In the form of Google's tools: with a scheme or without.
                Some(host) if !host.contains("://") => host_of(place, &format!("http://{host}")),
                Some(endpoint) => host_of(place, endpoint),
            },
            Provider::Azure => match self.azure.as_deref() {
                None => Ok((true, azure_host(account))),
                Some(endpoint) => {
                    let endpoint = endpoint.trim_end_matches('/');
                    let bare = endpoint.strip_suffix(account).and_then(|it| it.strip_suffix('/'));
                    let bare = bare.filter(|it| !it.ends_with('/'));
                    host_of(place, bare.unwrap_or(endpoint))
                }
            },
        }
    }
}

fn azure_host(account: &str) -> String {
    format!("{account}.{AZURE}")
}

/// The host of an endpoint, and whether the connection is encrypted.
fn host_of(place: &Path, endpoint: &str) -> Result<(bool, String)> {
    let (scheme, host) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let is_secure = match scheme {
        "https" => true,
        "http" => false,
        _ => {
            return Err(Error::new(
                Kind::Usage,
                "the URL of an endpoint must begin with https:// or http://",
            )
            .at(place)
            .expected("a URL, for example https://s3.example.org", endpoint));
        }
    };
    Ok((is_secure, host.trim_end_matches('/').to_ascii_lowercase()))
}

fn wrong(place: &Path, what: &str) -> Error {
    Error::new(Kind::Usage, what).at(place).advice(
        "write s3+https://HOST/BUCKET/PREFIX, gs://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX, \
         or write s3://BUCKET/PREFIX together with --endpoint URL",
    )
}

fn is_account(text: &str) -> bool {
    let is_of_name = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    (3..=24).contains(&text.len()) && text.bytes().all(is_of_name)
}

/// Whether a text is a name or address, with or without a port.
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

/// Whether a part of a key has the same form in every URL, without escapes.
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
            ..EndpointDefaults::default()
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
        let endpoint = Some("http://elsewhere".into());
        let defaults = EndpointDefaults { endpoint, ..EndpointDefaults::default() };
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
            assert!(!place.is_aws() && place.is_providers_own());
        }
    }

    #[test]
    fn other_providers_are_found_at_other_hosts() {
        let completed = |text: &str, google: &str, azure: &str| {
            let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let (google, azure) = (set(google), set(azure));
            let defaults = EndpointDefaults { google, azure, ..EndpointDefaults::default() };
            let place = BucketPlace::parse(Path::new(text), &defaults).unwrap();
            let none = EndpointDefaults::default();
            assert_eq!(BucketPlace::parse(&place.path(), &none).unwrap(), place, "{text}");
            assert_eq!(BucketPlace::parse(&place.path(), &defaults).unwrap(), place, "{text}");
            place
        };
        let local = "gs+http://127.0.0.1:4443/bucket/p";
        for host in ["127.0.0.1:4443", "http://127.0.0.1:4443", "http://127.0.0.1:4443/"] {
            assert_eq!(completed("gs://bucket/p", host, "").to_string(), local);
        }
        let place = completed(local, "http://elsewhere", "http://elsewhere");
        assert_eq!((place.to_string(), place.is_providers_own()), (local.to_owned(), false));
        assert_eq!(
            completed("gs+https://storage.googleapis.com/b-1", "", ""),
            place_of("gs://b-1")
        );
        assert!(
            place_of("gs+https://storage.me-central2.rep.googleapis.com/b-1").is_providers_own()
        );
        for odd in ["gs+http://storage.googleapis.com/b-1", "gs+https://xgoogleapis.com/b-1"] {
            assert!(!place_of(odd).is_providers_own(), "{odd}");
        }
        let local = "az+http://127.0.0.1:10000/account1/container/p";
        for endpoint in ["http://127.0.0.1:10000", "http://127.0.0.1:10000/account1/"] {
            assert_eq!(completed("az://account1/container/p", "", endpoint).to_string(), local);
        }
        let place = place_of(local);
        assert_eq!((place.account(), place.bucket()), (Some("account1"), "container"));
        assert_eq!(
            (place.endpoint(), place.is_providers_own()),
            ("http://127.0.0.1:10000".to_owned(), false)
        );
        let other = "az+https://account1.blob.core.usgovcloudapi.net/account1/container";
        assert_eq!(place_of(other).to_string(), other);
        assert!(place_of(other).is_providers_own());
        let own = "az+https://account1.blob.core.windows.net/account1/container";
        assert_eq!(place_of(own), place_of("az://account1/container"));
    }

    fn place_of(text: &str) -> BucketPlace {
        BucketPlace::parse(Path::new(text), &EndpointDefaults::default()).unwrap()
    }

    #[test]
    fn an_endpoint_of_another_account_is_refused() {
        for azure in ["http://127.0.0.1:10000/other", "127.0.0.1:10000", "http://account1"] {
            let azure = Some(azure.to_owned());
            let defaults = EndpointDefaults { azure, ..EndpointDefaults::default() };
            let place = BucketPlace::parse(Path::new("az://account1/container"), &defaults);
            let is_host = defaults.azure.as_deref() == Some("http://account1");
            assert_eq!(place.is_ok(), is_host, "{:?}", defaults.azure);
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
            "s3+://bucket",
            "gs+ftp://host/bucket",
            "gs+http://host",
            "az+http://host/container",
            "az+http://host/account/",
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
