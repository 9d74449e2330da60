//! The server's key and certificate, and the key that it will use next.
//!
//! Clients pin the public key, not the certificate: a certificate of the same key can be replaced
//! at any time. The next key exists before it is used, so that clients learn its pin from `hello`
//! and the change needs no new join strings.

use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_remote::{KeyPin, pin_of_certificate, read_certificates, read_private_key};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::state_file;

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const NEXT_KEY: &str = "next-key.pem";
const NEXT_CERTIFICATE: &str = "next-certificate.pem";

/// A server's key with its certificate chain, and the pins to announce.
pub struct ServerKey {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// The pin of the key.
    pub pin: KeyPin,
    /// The pin of the next key, if there is one.
    pub next_pin: Option<KeyPin>,
}

impl ServerKey {
    /// Reads the key in a state directory; on the first start, makes it and the next one.
    ///
    /// # Errors
    /// Fails with the errors of the file system, or with [`Kind::Corrupt`] for other files.
    pub fn open(state: &Path) -> Result<ServerKey> {
        state_file::make_directory(state)?;
        for (key, certificate) in [(KEY, CERTIFICATE), (NEXT_KEY, NEXT_CERTIFICATE)] {
            if state_file::read(&state.join(certificate))?.is_none() {
                make(&state.join(key), &state.join(certificate))?;
            }
        }
        let next = read_certificates(&state.join(NEXT_CERTIFICATE))?;
        let next_pin = Some(pin_of_certificate(&next[0])?);
        Ok(ServerKey { next_pin, ..Self::from_files(&state.join(CERTIFICATE), &state.join(KEY))? })
    }

    /// Reads an administrator's own certificate chain and key, in PEM files.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for files of another kind.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<ServerKey> {
        let (chain, private) = (read_certificates(certificate)?, read_private_key(key)?);
        let pin = pin_of_certificate(&chain[0]).map_err(|error| error.at(certificate))?;
        Ok(ServerKey { chain, key: private, pin, next_pin: None })
    }

    /// Starts to use the next key, and makes another next one.
    ///
    /// # Errors
    /// Fails with the errors of the file system. The change is complete when this returns; if it
    /// is interrupted, one of both keys is in use.
    pub fn advance(state: &Path) -> Result<ServerKey> {
        let (key, certificate) =
            (required(&state.join(NEXT_KEY))?, required(&state.join(NEXT_CERTIFICATE))?);
        // Between the two writes key and certificate do not match: `open` would fail, and
        // `advance` again completes the change.
        state_file::replace(&state.join(KEY), &key)?;
        state_file::replace(&state.join(CERTIFICATE), &certificate)?;
        make(&state.join(NEXT_KEY), &state.join(NEXT_CERTIFICATE))?;
        Self::open(state)
    }
}

fn make(key: &Path, certificate: &Path) -> Result<()> {
    let failed = |error: rcgen::Error| {
        Error::new(Kind::Io, format!("cannot make the server's key: {error}")).at(key)
    };
    let pair = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(vec!["pinstripe".to_owned()]).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "pinstripe serve");
    let made = params.self_signed(&pair).map_err(failed)?;
    // The key first: a certificate without its key would be taken for complete.
    state_file::replace(key, pair.serialize_pem().as_bytes())?;
    state_file::replace(certificate, made.pem().as_bytes())
}

fn required(path: &Path) -> Result<Vec<u8>> {
    state_file::read(path)?
        .ok_or_else(|| Error::new(Kind::NotFound, "this file is missing").at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_known_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let first = ServerKey::open(dir.path()).unwrap();
        assert_eq!(ServerKey::open(dir.path()).unwrap().pin, first.pin);
        let second = ServerKey::advance(dir.path()).unwrap();
        assert_eq!(Some(second.pin), first.next_pin);
        assert_ne!(second.next_pin, first.next_pin);
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        ServerKey::open(dir.path()).unwrap();
        let (key, certificate) = (dir.path().join(KEY), dir.path().join(CERTIFICATE));
        let swapped = ServerKey::from_files(&key, &certificate);
        assert_eq!(swapped.err().map(|error| error.kind()), Some(Kind::Corrupt));
        let missing = ServerKey::from_files(&dir.path().join("none"), &key);
        assert_eq!(missing.err().map(|error| error.kind()), Some(Kind::NotFound));
    }
}
