//! Certificates and private keys in PEM files.

#![allow(clippy::disallowed_methods, reason = "reads the files that the user named")]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A longer file has no certificate chain.
const FILE_MAX_BYTES: u64 = 4 << 20;

/// The certificates in a file: at least one.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for a file of another kind.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| not_pem("certificate", path, &error))?;
    match certificates.is_empty() {
        true => Err(Error::corrupt("this file contains no certificate", path)),
        false => Ok(certificates),
    }
}

/// The first private key in a file.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for a file of another kind.
pub fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| not_pem("private key", path, &error))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Error::of_named("cannot read", path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn not_pem(what: &str, path: &Path, error: &PemError) -> Error {
    let what = format!("this file contains no {what} in PEM form: {error}");
    Error::new(Kind::Corrupt, what).at(path)
}
