//! The certificate with which a host identifies itself to a server that requires one.
//!
//! The files are read again by each command, so that a renewed certificate needs no new `connect`.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind};
use rustls::AlertDescription;

/// A certificate chain and its private key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The file with the chain.
    pub chain: PathBuf,
    /// The file with the key; it may be the same file.
    pub key: PathBuf,
}

/// The alert with which a server ended a connection, if `error` is about one.
pub(crate) fn alert_in(error: &(dyn StdError + 'static)) -> Option<AlertDescription> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // The source of an error of the standard library is that of the error inside.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = match inside {
            Some(inside) => inside.downcast_ref::<rustls::Error>(),
            None => error.downcast_ref(),
        };
        if let Some(rustls::Error::AlertReceived(alert)) = tls {
            return Some(*alert);
        }
        cause = error.source();
    }
    None
}

/// The error of a server that ended a connection because of the client's certificate, or because
/// there was none; `None` for another alert.
pub(crate) fn refused(
    alert: AlertDescription,
    certificate: Option<&ClientCertificate>,
) -> Option<Error> {
    let Some(ClientCertificate { chain, .. }) = certificate else {
        // TLS 1.2 has no alert of its own for a certificate that is missing.
        let is_missing =
            [AlertDescription::CertificateRequired, AlertDescription::HandshakeFailure]
                .contains(&alert);
        return is_missing.then(|| {
            Error::new(Kind::NotAllowed, "the server requires a client certificate").advice(
                "name its files with 'pinstripe connect STRING --client-certificate FILE \
                 --client-key FILE', or in PINSTRIPE_CLIENT_CERTIFICATE and PINSTRIPE_CLIENT_KEY",
            )
        });
    };
    let chain = chain.display();
    let (why, advice) = match alert {
        AlertDescription::CertificateExpired => {
            ("it has expired, or is not valid yet", "renew this certificate; is the clock right?")
        }
        // The second, if an authority of the server has the same name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => (
            "no certificate authority of the server has signed it",
            "use a certificate that was signed for this server",
        ),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRequired
        | AlertDescription::AccessDenied => (
            "it is not a valid certificate of a client",
            "use a certificate for the authentication of clients, signed for this server",
        ),
        _ => return None,
    };
    let what = format!("the server refuses the client certificate {chain}: {why}");
    Some(Error::new(Kind::NotAllowed, what).advice(advice))
}
