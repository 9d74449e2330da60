//! Connections to endpoints. Connections lead only to the host in the place.
//!
//! No redirect is followed: the next host would get the headers of the request, including the
//! session token, and its answer would be taken for the endpoint's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::client::ClientConfigKey;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};

const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
/// The connection timeout when the machine is asked for its role: a machine without a role does not
/// answer at all.
const CONNECT_ROLE: Duration = Duration::from_secs(1);

/// The HTTP client for an endpoint or for the machine's own role, in the form that `object_store`
/// needs. The given authorities are trusted in addition to the system's.
pub fn client(
    options: &ClientOptions,
    authorities: &[Certificate],
) -> object_store::Result<Client> {
    let value = |key| options.get_config_value(&key).unwrap_or_default();
    let is_role = value(ClientConfigKey::ConnectTimeout) == "1s";
    let client = Client::builder()
        .user_agent(concat!("pinstripe/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .connect_timeout(if is_role { CONNECT_ROLE } else { CONNECT })
        .pool_idle_timeout(IDLE)
        .http1_only()
        .https_only(value(ClientConfigKey::AllowHttp) != "true")
        .tls_certs_merge(authorities.iter().cloned())
        // The length of a body must equal that in its header.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .dns_resolver(Arc::new(Shuffled))
        .build();
    client.map_err(|source| object_store::Error::Generic { store: "HTTP", source: source.into() })
}

/// Tries the addresses of a host in order, starting at a random one, so that the addresses share
/// the load.
#[derive(Debug)]
struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut found: Vec<SocketAddr> = found.collect();
            let [chance] = pinstripe_base::id::random::<1>().unwrap_or_default();
            let first = usize::from(chance) % found.len().max(1);
            found.rotate_left(first);
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
