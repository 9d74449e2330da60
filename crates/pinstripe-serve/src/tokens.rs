//! Tokens: one file, which the server and the verbs `token` read and replace.
//!
//! Invariants: a secret is stored only as a hash and is compared in constant time; the file is
//! replaced under a lock, so that two verbs do not lose each other's change; a running server reads
//! the file again when it changed, before it accepts the next request.

#![allow(clippy::disallowed_methods, reason = "the file of tokens and its lock")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{StoreId, hex, random};
use pinstripe_base::sync::lock;
use pinstripe_member::SecretBytes;
use pinstripe_remote::TokenId;
use serde::{Deserialize, Serialize};

use crate::role::TokenRole;
use crate::state_file;

const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";
const VERSION: u32 = 1;
const HASH_CONTEXT: &str = "pinstripe 2026 secret of a server's token";

/// A token as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostToken {
    /// The public name, in hex.
    pub id: String,
    /// The host that the token was made for.
    pub host: String,
    /// What the token may do.
    pub role: TokenRole,
    /// The volume that it is for, in hex.
    pub volume: String,
    /// The hash of the secret, in hex.
    secret_hash: String,
    /// The hash of the secret before the last rotation, until the new one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former_hash: Option<String>,
    /// The most bytes of packs and index that the host may store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// The longest time between two backups after which the host is overdue, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_seconds: Option<u64>,
    /// The most requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Whether the token sees the snapshots of all hosts.
    #[serde(default)]
    pub all_hosts: bool,
    /// When the token was made, in seconds since 1970.
    pub created_seconds: i64,
    /// When the token expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<i64>,
    /// When the token was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_seconds: Option<i64>,
}

/// The choices for a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The host.
    pub host: String,
    /// What the token may do.
    pub role: TokenRole,
    /// The volume.
    pub volume: StoreId,
    /// The quota in bytes.
    pub quota_bytes: Option<u64>,
    /// The expected interval of backups, in seconds.
    pub expect_seconds: Option<u64>,
    /// The most requests per second.
    pub rate: Option<u32>,
    /// Whether it sees the snapshots of all hosts.
    pub all_hosts: bool,
    /// When it expires, in seconds since 1970.
    pub expires_seconds: Option<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TokenFile {
    version: u32,
    tokens: Vec<HostToken>,
}

/// What identifies the content of the file without reading it.
type Stamp = (u64, u64, i64, i64);

/// The tokens of a server's state directory.
pub struct TokenStore {
    dir: PathBuf,
    cached: Mutex<Option<(Stamp, Arc<Vec<HostToken>>)>>,
}

impl HostToken {
    /// Whether the token can be used now.
    pub fn is_valid(&self, now_seconds: i64) -> bool {
        self.revoked_seconds.is_none() && self.expires_seconds.is_none_or(|it| it > now_seconds)
    }

    fn has(&self, secret: &[u8]) -> bool {
        let hash = blake3::Hash::from_bytes(blake3::derive_key(HASH_CONTEXT, secret));
        // The comparison of two hashes takes constant time.
        let is = |stored: &str| blake3::Hash::from_hex(stored).is_ok_and(|stored| stored == hash);
        is(&self.secret_hash) | self.former_hash.as_deref().is_some_and(is)
    }
}

fn hash_of(secret: &[u8]) -> String {
    hex(&blake3::derive_key(HASH_CONTEXT, secret))
}

impl TokenStore {
    /// The tokens in a server's state directory.
    pub fn new(dir: &Path) -> Self {
        TokenStore { dir: dir.to_path_buf(), cached: Mutex::new(None) }
    }

    /// All tokens, in the order in which they were made.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a damaged file.
    pub fn all(&self) -> Result<Arc<Vec<HostToken>>> {
        let stamp = self.stamp();
        let mut cached = lock(&self.cached);
        if let Some((known, tokens)) = &*cached
            && Some(*known) == stamp
        {
            return Ok(Arc::clone(tokens));
        }
        let tokens = Arc::new(self.read()?.tokens);
        if let Some(stamp) = stamp {
            *cached = Some((stamp, Arc::clone(&tokens)));
        }
        Ok(tokens)
    }

    fn stamp(&self) -> Option<Stamp> {
        let stat = std::fs::metadata(self.dir.join(FILE)).ok()?;
        Some((stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec()))
    }

    fn read(&self) -> Result<TokenFile> {
        let path = self.dir.join(FILE);
        let file: TokenFile = state_file::read_json(&path)?
            .unwrap_or(TokenFile { version: VERSION, tokens: Vec::new() });
        if file.version != VERSION {
            return Err(Error::new(Kind::Unsupported, "a newer version wrote this file")
                .at(path)
                .expected(VERSION, file.version));
        }
        Ok(file)
    }

    /// The token that a request presents, if its secret is right and it is valid.
    ///
    /// # Errors
    /// Fails with [`Kind::NotAllowed`]; the message does not say which of both was wrong.
    pub fn verify(&self, id: TokenId, secret: &[u8], now_seconds: i64) -> Result<HostToken> {
        let id = id.to_string();
        let tokens = self.all()?;
        let token = tokens.iter().find(|token| token.id == id && token.has(secret));
        match token {
            Some(token) if token.is_valid(now_seconds) => Ok(token.clone()),
            Some(token) if token.revoked_seconds.is_some() => Err(refused("was revoked")),
            Some(_) => Err(refused("has expired")),
            None => Err(refused("is not known here")),
        }
    }

    /// Makes a token. Returns it with its secret, which is stored nowhere.
    ///
    /// # Errors
    /// Fails with [`Kind::Exists`] if the host has a valid token for the volume.
    pub fn add(&self, new: &NewToken, now_seconds: i64) -> Result<(HostToken, SecretBytes)> {
        let mut secret: [u8; 32] = random()?;
        let token = HostToken {
            id: TokenId(random()?).to_string(),
            host: new.host.clone(),
            role: new.role,
            volume: new.volume.to_string(),
            secret_hash: hash_of(&secret),
            former_hash: None,
            quota_bytes: new.quota_bytes,
            expect_seconds: new.expect_seconds,
            rate: new.rate,
            all_hosts: new.all_hosts,
            created_seconds: now_seconds,
            expires_seconds: new.expires_seconds,
            revoked_seconds: None,
        };
        self.change(|tokens| {
            let is_same = |it: &&HostToken| {
                it.host == token.host && it.volume == token.volume && it.is_valid(now_seconds)
            };
            if let Some(old) = tokens.iter().find(is_same) {
                return Err(Error::new(
                    Kind::Exists,
                    format!("host '{}' already has the token {}", token.host, old.id),
                )
                .advice(format!(
                    "print a new join string for it with 'pinstripe token rotate {0}', or revoke \
                     it with 'pinstripe token revoke {0}'",
                    token.host
                )));
            }
            tokens.push(token.clone());
            Ok(())
        })?;
        Ok((token, SecretBytes::take(&mut secret)))
    }

    /// Revokes the valid tokens with this host or id. Returns how many.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if there is none.
    pub fn revoke(&self, which: &str, now_seconds: i64) -> Result<usize> {
        self.change(|tokens| {
            let valid = tokens.iter_mut().filter(|it| is_named(it, which));
            let valid = valid.filter(|it| it.is_valid(now_seconds));
            let count = valid.map(|it| it.revoked_seconds = Some(now_seconds)).count();
            if count == 0 { Err(none(which)) } else { Ok(count) }
        })
    }

    /// Gives the valid token with this host or id a new secret. The former secret stays valid until
    /// the new one is used or the token is rotated again.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if there is no such token.
    pub fn rotate(&self, which: &str, now_seconds: i64) -> Result<(HostToken, SecretBytes)> {
        let mut secret: [u8; 32] = random()?;
        let token = self.change(|tokens| {
            let mut valid = tokens.iter_mut().filter(|it| is_named(it, which));
            let token = valid.find(|it| it.is_valid(now_seconds)).ok_or_else(|| none(which))?;
            token.former_hash = Some(std::mem::replace(&mut token.secret_hash, hash_of(&secret)));
            Ok(token.clone())
        })?;
        Ok((token, SecretBytes::take(&mut secret)))
    }

    /// Ends the former secret of a token, because its new one was used.
    pub(crate) fn drop_former(&self, token: &HostToken, secret: &[u8]) -> Result<()> {
        if token.former_hash.is_none() || token.secret_hash != hash_of(secret) {
            return Ok(());
        }
        self.change(|tokens| {
            let found = tokens.iter_mut().filter(|it| it.id == token.id);
            found.for_each(|it| it.former_hash = None);
            Ok(())
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<HostToken>) -> Result<T>) -> Result<T> {
        state_file::make_directory(&self.dir)?;
        let _lock = self.lock()?;
        let mut file = self.read()?;
        let done = change(&mut file.tokens)?;
        state_file::replace_json(&self.dir.join(FILE), &file)?;
        Ok(done)
    }

    fn lock(&self) -> Result<File> {
        let path = self.dir.join(LOCK);
        let mut file = OpenOptions::new();
        let file = file.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|error| Error::io("cannot open", &path, error))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| Error::io("cannot lock", &path, error))?;
        Ok(file)
    }
}

fn is_named(token: &HostToken, which: &str) -> bool {
    token.host == which || token.id == which
}

fn none(which: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no valid token '{which}'"))
        .advice("'pinstripe token list' lists the tokens")
}

fn refused(why: &str) -> Error {
    Error::new(Kind::NotAllowed, format!("the server refuses this token: it {why}"))
        .advice("on the server, run 'pinstripe token list' and 'pinstripe token add HOST'")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn new(host: &str) -> NewToken {
        NewToken {
            host: host.to_owned(),
            role: TokenRole::Append,
            volume: StoreId([7; 16]),
            quota_bytes: None,
            expect_seconds: None,
            rate: None,
            all_hosts: false,
            expires_seconds: None,
        }
    }

    fn id(token: &HostToken) -> TokenId {
        TokenId::from_hex(&token.id).unwrap()
    }

    fn kind<T>(result: Result<T>) -> Option<Kind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn a_token_is_valid_until_it_is_revoked_or_expires() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        let (token, secret) = tokens.add(&new("ant"), NOW).unwrap();
        assert_eq!(tokens.verify(id(&token), &secret, NOW).unwrap().host, "ant");
        assert_eq!(kind(tokens.verify(id(&token), &[0; 32], NOW)), Some(Kind::NotAllowed));
        assert_eq!(kind(tokens.verify(TokenId([0; 8]), &secret, NOW)), Some(Kind::NotAllowed));
        assert_eq!(kind(tokens.add(&new("ant"), NOW)), Some(Kind::Exists));
        assert_eq!(tokens.revoke("ant", NOW).unwrap(), 1);
        assert_eq!(kind(tokens.verify(id(&token), &secret, NOW)), Some(Kind::NotAllowed));
        assert_eq!(kind(tokens.revoke("ant", NOW)), Some(Kind::NotFound));
        let short = NewToken { expires_seconds: Some(NOW + 10), ..new("ant") };
        let (token, secret) = tokens.add(&short, NOW).unwrap();
        assert!(tokens.verify(id(&token), &secret, NOW + 9).is_ok());
        assert_eq!(kind(tokens.verify(id(&token), &secret, NOW + 10)), Some(Kind::NotAllowed));
    }

    #[test]
    fn a_former_secret_ends_when_the_new_one_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        let (_, former) = tokens.add(&new("ant"), NOW).unwrap();
        let (token, secret) = tokens.rotate("ant", NOW).unwrap();
        assert!(tokens.verify(id(&token), &former, NOW).is_ok());
        let used = tokens.verify(id(&token), &secret, NOW).unwrap();
        tokens.drop_former(&used, &secret).unwrap();
        assert_eq!(kind(tokens.verify(id(&token), &former, NOW)), Some(Kind::NotAllowed));
        assert!(tokens.verify(id(&token), &secret, NOW).is_ok());
    }

    #[test]
    fn no_secret_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        let (_, secret) = tokens.add(&new("ant"), NOW).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!text.contains(&hex(&secret)));
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn another_process_sees_a_change_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (server, verb) = (TokenStore::new(dir.path()), TokenStore::new(dir.path()));
        let (token, secret) = verb.add(&new("ant"), NOW).unwrap();
        assert!(server.verify(id(&token), &secret, NOW).is_ok());
        verb.revoke(&token.id, NOW).unwrap();
        assert_eq!(kind(server.verify(id(&token), &secret, NOW)), Some(Kind::NotAllowed));
    }
}
