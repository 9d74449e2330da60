//! The browsers that are logged in.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::id::{hex, random};
use pinstripe_base::sync::lock;

/// How long a browser stays logged in.
pub(crate) const LOGIN: Duration = Duration::from_secs(12 * 3600);
/// The most logins at once; the oldest one ends.
const LOGINS_MAX: usize = 64;
/// The name of the cookie.
pub(crate) const COOKIE_NAME: &str = "pinstripe";

/// The browsers that are logged in, by the hash of their cookie, and the token that each used.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<[u8; 32], (Instant, String)>>);

impl Logins {
    /// Logs a browser in with a token; returns the value of its cookie.
    pub fn add(&self, token: &str) -> Result<String> {
        let cookie: [u8; 32] = random()?;
        let mut logins = lock(&self.0);
        logins.retain(|_, (when, _)| clock::since(*when) < LOGIN);
        if logins.len() >= LOGINS_MAX
            && let Some(oldest) = logins.iter().min_by_key(|(_, (when, _))| *when)
        {
            let oldest = *oldest.0;
            logins.remove(&oldest);
        }
        let hash = blake3::hash(hex(&cookie).as_bytes());
        logins.insert(*hash.as_bytes(), (clock::monotonic(), token.to_owned()));
        Ok(hex(&cookie))
    }

    /// The id of the token that a browser logged in with.
    pub fn find(&self, headers: &HeaderMap) -> Option<String> {
        let hash = blake3::hash(cookie(headers)?.as_bytes());
        let logins = lock(&self.0);
        let (when, token) = logins.get(hash.as_bytes())?;
        (clock::since(*when) < LOGIN).then(|| token.clone())
    }

    /// Logs a browser out.
    pub fn remove(&self, headers: &HeaderMap) {
        if let Some(cookie) = cookie(headers) {
            lock(&self.0).remove(blake3::hash(cookie.as_bytes()).as_bytes());
        }
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|all| all.split(';')).filter_map(|one| one.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}
