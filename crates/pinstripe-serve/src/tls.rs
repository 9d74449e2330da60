//! TLS of the server: its own certificate, and the certificates that it may require of clients.

#![allow(clippy::disallowed_methods, reason = "waits for the end of a refused connection")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_remote::read_certificates;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use crate::identity::ServerKey;

/// The deadline of a TLS handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a refused client may take to read why it is refused, and the most bytes that it may
/// send meanwhile.
const REFUSED: Duration = Duration::from_secs(2);
const REFUSED_MAX_BYTES: u64 = 1 << 20;

/// The certificate authorities that sign the certificates of clients.
#[derive(Debug, Clone)]
pub struct ClientAuthority(Arc<RootCertStore>);

impl ClientAuthority {
    /// Reads the certificates of the authorities, in a PEM file.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a file of another kind.
    pub fn from_file(path: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|error| {
                let what = "this is not the certificate of an authority";
                Error::corrupt(format!("{what}: {error}"), path)
            })?;
        }
        Ok(ClientAuthority(Arc::new(roots)))
    }
}

/// The configuration of new connections.
///
/// # Errors
/// Fails with [`Kind::Usage`] if key and certificate do not match.
pub(crate) fn server_config(
    identity: ServerKey,
    authority: Option<&ClientAuthority>,
) -> Result<Arc<ServerConfig>> {
    let failed = |error: rustls::Error| {
        Error::new(Kind::Usage, format!("the server's key cannot be used: {error}"))
            .advice("do the certificate and the key belong together?")
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let config = match authority {
        None => config.with_no_client_auth(),
        Some(ClientAuthority(roots)) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider).build();
            let verifier = verifier.map_err(|error| {
                let what = "the authorities of clients cannot be used";
                Error::new(Kind::Usage, format!("{what}: {error}"))
            })?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(identity.chain, identity.key).map_err(failed)?;
    if authority.is_some() {
        // A session that is resumed would not verify the certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts a connection, within a deadline.
pub(crate) async fn accept(
    stream: TcpStream,
    acceptor: TlsAcceptor,
) -> Option<TlsStream<TcpStream>> {
    match timeout(HANDSHAKE, acceptor.accept(stream).into_fallible()).await.ok()? {
        Ok(stream) => Some(stream),
        Err((_, stream)) => {
            let _ = timeout(REFUSED, drain(stream)).await;
            None
        }
    }
}

/// Reads what a refused client still sends. If the socket were closed before, the client would see
/// a broken connection instead of the alert.
async fn drain(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(REFUSED_MAX_BYTES);
    let mut part = [0; 4096];
    while let Ok(1..) = rest.read(&mut part).await {}
}

/// The DNS names in the certificate of a client.
#[derive(Debug, Clone)]
pub(crate) struct PeerNames(Arc<[String]>);

impl PeerNames {
    /// The names in a connection's certificate; `None` if the server requires none.
    pub fn of_connection(stream: &TlsStream<TcpStream>) -> Option<PeerNames> {
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        Some(PeerNames::of_certificate(certificate))
    }

    fn of_certificate(certificate: &CertificateDer<'_>) -> PeerNames {
        let names = match EndEntityCert::try_from(certificate) {
            Ok(parsed) => parsed.valid_dns_names().map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        PeerNames(names.into())
    }

    /// Refuses a host that the certificate does not name. A wildcard names no host.
    ///
    /// # Errors
    /// Fails with [`Kind::NotAllowed`].
    pub fn require(&self, host: &str) -> Result<()> {
        if self.0.iter().any(|name| name.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let names = match self.0.is_empty() {
            true => "a certificate without a DNS name".to_owned(),
            false => format!("a certificate for {}", self.0.join(", ")),
        };
        let what = "the client certificate does not name the host of the token";
        let wanted = format!("a certificate with the DNS name {host}");
        Err(Error::new(Kind::NotAllowed, what).expected(wanted, names).advice(
            "use the certificate of the host for which 'pinstripe token add' made the token",
        ))
    }
}
