//! The clients of `object_store`, one for each provider, set up so that this crate itself handles
//! retries, deadlines, counting and the decoding of refusals.
//!
//! Credentials are not found here.

use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::HttpConnector;
use object_store::{ClientOptions, RetryConfig};
use pinstripe_base::error::{Error, Kind, Result};
use reqwest::Certificate;

use crate::endpoint::Endpoint;
use crate::place::{BucketPlace, Provider};
use crate::renewed::{Renewal, RenewedCredentials};
use crate::session::BucketClient;
use crate::signed::Signed;
use crate::traffic::CountingConnector;

/// The access to an endpoint: region, credentials, certificate authorities. `Access` has no
/// `Debug`, because it holds secrets.
#[derive(Default)]
pub struct Access {
    /// The region for which requests are signed.
    pub region: String,
    /// Options of `object_store` with the credentials, by option name, such as `aws_access_key_id`.
    /// Without credentials, requests to an endpoint with Google's protocol are not signed.
    pub credentials: Vec<(String, String)>,
    /// Returns newer credentials, if another program may renew them during a run. Only for S3.
    pub renewal: Option<Renewal>,
    /// The proxy that the environment names for the endpoint, for messages ([`crate::proxy_of`]).
    pub proxy: Option<String>,
    /// Certificates of additional authorities that are trusted besides the system's, as PEM; may be
    /// empty.
    pub authorities: Vec<u8>,
}

/// A client and, for S3, the sender of signed requests for which the client has no methods.
type OpenedClient = (Arc<dyn BucketClient>, Option<Signed>);

/// Opens the client of a place.
///
/// # Errors
/// Fails with [`Kind::Usage`] for invalid credentials; with [`Kind::Unsupported`] for a provider
/// that this program was built without.
pub fn open(place: &BucketPlace, access: Access, endpoint: &Endpoint) -> Result<OpenedClient> {
    match place.provider() {
        Provider::S3 => s3(place, access, endpoint),
        Provider::Google => google(place, access, endpoint),
        Provider::Azure => azure(place, access, endpoint),
    }
}

/// Disables the client's retries and time limits: the session does both, because it knows what a
/// lost answer means.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn options(place: &BucketPlace) -> ClientOptions {
    ClientOptions::new().with_allow_http(!place.is_secure())
}

/// The connector that [`crate::connection`] sets up.
fn connector(
    place: &BucketPlace,
    authorities: &[u8],
    endpoint: &Endpoint,
) -> Result<CountingConnector> {
    let counters = Arc::clone(&endpoint.counters);
    if authorities.is_empty() {
        return Ok(CountingConnector { counters, authorities: Vec::new() });
    }
    let known = Certificate::from_pem_bundle(authorities).ok().filter(|known| !known.is_empty());
    let authorities = known.ok_or_else(|| {
        Error::new(Kind::Usage, "the CA bundle contains no certificate")
            .at(place.path())
            .expected("certificates in the PEM format", "something else")
            .advice("check the file named by AWS_CA_BUNDLE or by ca_bundle in the profile")
    })?;
    Ok(CountingConnector { counters, authorities })
}

fn unusable(place: &BucketPlace, error: &object_store::Error) -> Error {
    Error::new(Kind::Usage, format!("this endpoint cannot be used: {error}"))
        .at(place.path())
        .advice("check the endpoint's URL and the credentials")
}

/// Parses the name of a credential option.
fn option<K: FromStr>(name: &str) -> Result<K> {
    K::from_str(name).map_err(|_| {
        Error::new(Kind::Usage, format!("this is not a known option for credentials: {name}"))
    })
}

/// Verifies that this program supports the protocol of a place.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] when the program was built without that protocol.
pub(crate) fn require_built(place: &BucketPlace) -> Result<()> {
    let (feature, is_built) = match place.provider() {
        Provider::S3 => return Ok(()),
        Provider::Google => ("gs", cfg!(feature = "gcp")),
        Provider::Azure => ("az", cfg!(feature = "azure")),
    };
    if is_built {
        return Ok(());
    }
    let what = format!("this program was built without the feature '{feature}'");
    Err(Error::new(Kind::Unsupported, what).at(place.path()).advice(format!(
        "to build pinstripe with this feature, run 'cargo build --release -p pinstripe-cli \
         --features {feature}'"
    )))
}

#[cfg(feature = "gcp")]
fn google(place: &BucketPlace, access: Access, endpoint: &Endpoint) -> Result<OpenedClient> {
    let mut builder = object_store::gcp::GoogleCloudStorageBuilder::new()
        .with_bucket_name(place.bucket())
        .with_base_url(&place.endpoint())
        .with_retry(retries())
        .with_client_options(options(place))
        .with_http_connector(connector(place, &access.authorities, endpoint)?);
    if access.credentials.is_empty() {
        // Without a token of any kind the client would ask the machine for one, also unsigned.
        builder = builder.with_bearer_token("").with_skip_signature(true);
    }
    for (name, value) in access.credentials {
        builder = builder.with_config(option(&name)?, value);
    }
    let client = builder.build().map_err(|error| unusable(place, &error))?;
    Ok((Arc::new(client), None))
}

#[cfg(not(feature = "gcp"))]
fn google(place: &BucketPlace, _: Access, _: &Endpoint) -> Result<OpenedClient> {
    Err(without(place))
}

#[cfg(feature = "azure")]
fn azure(place: &BucketPlace, access: Access, endpoint: &Endpoint) -> Result<OpenedClient> {
    let mut builder = object_store::azure::MicrosoftAzureBuilder::new()
        .with_account(place.account().unwrap_or_default())
        .with_container_name(place.bucket())
        .with_endpoint(place.account_url())
        .with_retry(retries())
        .with_client_options(options(place))
        .with_http_connector(connector(place, &access.authorities, endpoint)?);
    for (name, value) in access.credentials {
        builder = builder.with_config(option(&name)?, value);
    }
    let client = builder.build().map_err(|error| unusable(place, &error))?;
    Ok((Arc::new(client), None))
}

#[cfg(not(feature = "azure"))]
fn azure(place: &BucketPlace, _: Access, _: &Endpoint) -> Result<OpenedClient> {
    Err(without(place))
}

#[cfg(not(all(feature = "gcp", feature = "azure")))]
fn without(place: &BucketPlace) -> Error {
    Error::new(Kind::Unsupported, "this program does not support this protocol").at(place.path())
}

fn s3(place: &BucketPlace, access: Access, endpoint: &Endpoint) -> Result<OpenedClient> {
    let options = options(place);
    let connector = connector(place, &access.authorities, endpoint)?;
    let http = connector.connect(&options).map_err(|error| unusable(place, &error))?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(place.bucket())
        .with_region(&access.region)
        .with_virtual_hosted_style_request(false)
        // Over TLS no byte changes on the way; without, the signature is over the body.
        .with_unsigned_payload(place.is_secure())
        .with_retry(retries())
        .with_disable_bulk_delete(true)
        .with_client_options(options)
        .with_http_connector(connector)
        .with_endpoint(place.endpoint());
    if let Some(renewal) = access.renewal {
        let renewed = RenewedCredentials::new(renewal, &access.credentials);
        builder = builder.with_credentials(Arc::new(renewed));
    } else {
        for (name, value) in access.credentials {
            let key: AmazonS3ConfigKey = option(&name)?;
            builder = builder.with_config(key, value);
        }
    }
    let client = builder.build().map_err(|error| unusable(place, &error))?;
    let signed = Signed {
        http,
        credentials: Arc::clone(client.credentials()),
        region: access.region,
        bucket_url: format!("{}/{}", place.endpoint(), place.bucket()),
        signs_body: !place.is_secure(),
    };
    Ok((Arc::new(client), Some(signed)))
}
