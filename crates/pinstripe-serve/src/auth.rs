//! Verifies the token of each request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_remote::JoinString;

use crate::tokens::{HostToken, TokenStore};

/// The longest join string.
const BEARER_MAX_BYTES: usize = 1024;

/// Verifies tokens, and limits their rates.
pub(crate) struct Gate {
    pub tokens: TokenStore,
    rates: Mutex<HashMap<String, Bucket>>,
}

/// The requests that a token may still send.
struct Bucket {
    left: f64,
    when: Instant,
}

impl Gate {
    pub fn new(tokens: TokenStore) -> Self {
        Gate { tokens, rates: Mutex::default() }
    }

    /// The token of a request.
    ///
    /// # Errors
    /// Fails with [`Kind::NotAllowed`] without a valid token, with [`Kind::Busy`] over its rate.
    pub fn admit(&self, headers: &HeaderMap) -> Result<HostToken> {
        let (token, join) = self.token(headers)?;
        // If the disk of the state is full, hosts still restore, and the next request tries again.
        let _ = self.tokens.drop_former(&token, &join.secret);
        self.count(&token)?;
        Ok(token)
    }

    /// The token of a request, which is not counted.
    ///
    /// # Errors
    /// Fails with [`Kind::NotAllowed`] without a valid token.
    pub fn token(&self, headers: &HeaderMap) -> Result<(HostToken, JoinString)> {
        let missing = || Error::new(Kind::NotAllowed, "this request needs a token");
        let text = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = text.and_then(|text| text.strip_prefix("Bearer ")).ok_or_else(missing)?;
        if bearer.len() > BEARER_MAX_BYTES {
            return Err(missing());
        }
        let join: JoinString = bearer
            .parse()
            .map_err(|error: Error| Error::new(Kind::NotAllowed, error.what().to_owned()))?;
        let token = self.tokens.verify(join.token, &join.secret, clock::now().0)?;
        if token.volume != join.volume.to_string() {
            return Err(Error::new(Kind::NotAllowed, "this token is for another store"));
        }
        Ok((token, join))
    }

    fn count(&self, token: &HostToken) -> Result<()> {
        let Some(rate) = token.rate else { return Ok(()) };
        let rate = f64::from(rate.max(1));
        let mut rates = lock(&self.rates);
        let now = clock::monotonic();
        let bucket = rates.entry(token.id.clone()).or_insert(Bucket { left: rate, when: now });
        let gained = clock::since(bucket.when).as_secs_f64() * rate;
        bucket.left = (bucket.left + gained).min(rate);
        bucket.when = now;
        if bucket.left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - bucket.left) / rate);
            return Err(Error::new(
                Kind::Busy,
                format!("this token sends too many requests: try again in {wait:.0?}"),
            ));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}
