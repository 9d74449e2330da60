//! The join string: all that a host needs to use a store behind a server, in one word to paste.
//!
//! ```text
//! "pst1_" + base64url of
//!   pin of the server's public key   32   SHA-256 of its SubjectPublicKeyInfo
//!   token id                          8
//!   secret                           32
//!   volume                           16   the store's id, or that of an exported directory
//!   address length, address               as HOST:PORT
//!   checksum                          4   BLAKE3 of all before
//! ```
//!
//! The checksum distinguishes a string that was cut or mistyped from one that the server refuses.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{StoreId, hex, unhex};
use pinstripe_base::wire::{Reader, Writer};
use pinstripe_member::SecretBytes;

const PREFIX: &str = "pst1_";
const SUM_BYTES: usize = 4;
/// The longest address: a host name has at most 253 characters, and a port at most 5 digits.
const ADDRESS_MAX_BYTES: usize = 260;

/// The SHA-256 of a server's public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPin(pub [u8; 32]);

impl KeyPin {
    /// Reads a pin in hex.
    pub fn from_hex(text: &str) -> Option<KeyPin> {
        unhex(text).map(KeyPin)
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The public name of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub [u8; 8]);

impl TokenId {
    /// Reads an id in hex.
    pub fn from_hex(text: &str) -> Option<TokenId> {
        unhex(text).map(TokenId)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The content of a join string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinString {
    /// The pin of the server's key.
    pub pin: KeyPin,
    /// The token.
    pub token: TokenId,
    /// The token's secret, of 32 bytes.
    pub secret: SecretBytes,
    /// The store or exported directory for which the token is valid.
    pub volume: StoreId,
    /// The server's address, as HOST:PORT.
    pub address: String,
}

/// Whether a text is meant to be a join string.
#[must_use]
pub fn looks_like_join_string(text: &str) -> bool {
    text.starts_with(PREFIX)
}

impl JoinString {
    /// The text to paste. It contains the secret.
    pub fn reveal(&self) -> String {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes)
            .raw(&self.pin.0)
            .raw(&self.token.0)
            .raw(&self.secret)
            .raw(&self.volume.0)
            .bytes(self.address.as_bytes());
        let sum = blake3::hash(&bytes);
        bytes.extend_from_slice(&sum.as_bytes()[..SUM_BYTES]);
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for JoinString {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::new(Kind::Usage, format!("this join string {what}"))
                .advice("copy the complete line that 'pinstripe token add' printed")
        };
        let coded = text
            .trim()
            .strip_prefix(PREFIX)
            .ok_or_else(|| wrong("does not begin with pst1_; a newer server may have made it"))?;
        let bytes = URL_SAFE_NO_PAD
            .decode(coded)
            .map_err(|_| wrong("has characters that no join string has"))?;
        let split = bytes.len().checked_sub(SUM_BYTES).ok_or_else(|| wrong("is incomplete"))?;
        let (body, sum) = bytes.split_at(split);
        if blake3::hash(body).as_bytes()[..SUM_BYTES] != *sum {
            return Err(wrong("is incomplete, or was changed"));
        }
        let mut reader = Reader::new(body, "join string");
        let (pin, token) = (KeyPin(reader.array()?), TokenId(reader.array()?));
        let mut secret: [u8; 32] = reader.array()?;
        let secret = SecretBytes::take(&mut secret);
        let volume = StoreId(reader.array()?);
        let address = reader.bytes()?;
        let address = std::str::from_utf8(address).ok().filter(|it| is_address(it));
        let address = address.ok_or_else(|| wrong("has no valid address"))?.to_owned();
        reader.finish()?;
        Ok(JoinString { pin, token, secret, volume, address })
    }
}

/// Whether a text is HOST:PORT; an IPv6 address is in brackets.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = |host: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_part),
        }
    };
    text.len() <= ADDRESS_MAX_BYTES && is_host(host) && port.parse::<u16>().is_ok_and(|it| it > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join() -> JoinString {
        JoinString {
            pin: KeyPin([1; 32]),
            token: TokenId([2; 8]),
            secret: SecretBytes::take(&mut [3; 32]),
            volume: StoreId([4; 16]),
            address: "backup.example.org:7473".to_owned(),
        }
    }

    #[test]
    fn a_string_says_what_it_was_made_of() {
        let text = join().reveal();
        assert!(looks_like_join_string(&text));
        assert_eq!(text.parse::<JoinString>().unwrap(), join());
        assert_eq!(format!(" {text}\n").parse::<JoinString>().unwrap(), join());
    }

    #[test]
    fn a_string_that_was_cut_or_changed_is_refused() {
        let text = join().reveal();
        for cut in 0..text.len() {
            let error = text[..cut].parse::<JoinString>().unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{cut}");
        }
        for at in PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last character may differ in bits that belong to no byte: that is refused too.
            assert!(changed.parse::<JoinString>().is_err(), "{at}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for right in ["a:1", "127.0.0.1:80", "[::1]:443", "host-1.example.org:65535"] {
            assert!(is_address(right), "{right}");
        }
        for wrong in ["", "a", "a:", ":1", "a:0", "a:65536", "[::g]:1", "a b:1", "a/b:1", "::1:80"]
        {
            assert!(!is_address(wrong), "{wrong}");
        }
    }
}
