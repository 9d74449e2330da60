//! Verifies a server by the pinned SHA-256 of its public key; no certificate authority is asked.
//!
//! Names and validity of the certificate are ignored: the pin came over a channel that the user
//! trusts, with the join string.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::aws_lc_rs::digest::{SHA256, digest};
use pinstripe_base::error::{Error, Kind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::client_certificate::ClientCertificate;
use crate::join_string::KeyPin;
use crate::pem::{read_certificates, read_private_key};

/// The pin of the public key in a certificate (DER).
///
/// # Errors
/// Fails with [`Kind::Usage`] for bytes that are not a certificate.
pub fn pin_of_certificate(certificate: &[u8]) -> Result<KeyPin> {
    let certificate = CertificateDer::from(certificate);
    let parsed = ParsedCertificate::try_from(&certificate)
        .map_err(|_| Error::new(Kind::Usage, "this is not a certificate"))?;
    let key = parsed.subject_public_key_info();
    let hash = digest(&SHA256, key.as_ref());
    let mut pin = [0; 32];
    pin.copy_from_slice(hash.as_ref());
    Ok(KeyPin(pin))
}

/// Accepts servers that have one of these keys. `is_other` is set when a server had another one. A
/// server that asks for a certificate gets this one.
pub(crate) fn config(
    pins: Vec<KeyPin>,
    is_other: Arc<AtomicBool>,
    certificate: Option<&ClientCertificate>,
) -> Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = PinVerifier { pins, is_other, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Kind::Io, format!("cannot set up TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(ClientCertificate { chain, key }) = certificate else {
        return Ok(config.with_no_client_auth());
    };
    let (certificates, private) = (read_certificates(chain)?, read_private_key(key)?);
    config.with_client_auth_cert(certificates, private).map_err(|error| {
        Error::new(Kind::Usage, format!("the client certificate cannot be used: {error}"))
            .at(chain)
            .advice("do the certificate and the key belong together?")
    })
}

#[derive(Debug)]
struct PinVerifier {
    pins: Vec<KeyPin>,
    is_other: Arc<AtomicBool>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pin = pin_of_certificate(end_entity)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.pins.contains(&pin) {
            self.is_other.store(false, Ordering::Relaxed);
            return Ok(ServerCertVerified::assertion());
        }
        self.is_other.store(true, Ordering::Relaxed);
        Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
