//! The access log: one JSON object per request, without secrets.

#![allow(clippy::disallowed_methods, reason = "the file of the log")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, Uri};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;
use pinstripe_remote::JoinString;
use serde::Serialize;

/// The file of the log.
pub struct AccessLog(Mutex<File>);

/// The parts of a request that are logged. The token is the one that the request claims: with the
/// status 403 it was refused.
pub(crate) struct LoggedRequest {
    method: Method,
    path: String,
    token: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    time_seconds: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    status: u16,
    milliseconds: f64,
}

impl LoggedRequest {
    pub fn new(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let text = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let join = text.and_then(|text| text.strip_prefix("Bearer ")?.parse::<JoinString>().ok());
        LoggedRequest {
            method: method.clone(),
            path: uri.path().to_owned(),
            token: join.map(|join| join.token.to_string()),
        }
    }

    pub fn method(&self) -> &str {
        self.method.as_str()
    }
}

impl AccessLog {
    /// Appends to a file, which is made if it is missing.
    ///
    /// # Errors
    /// Fails with the errors of the file system.
    pub fn open(path: &Path) -> Result<AccessLog> {
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path);
        let file = file.map_err(|error| Error::io("cannot open the access log", path, error))?;
        Ok(AccessLog(Mutex::new(file)))
    }

    /// Writes a line. If the disk of the log is full, lines are lost, and requests are answered.
    pub(crate) fn write(&self, request: &LoggedRequest, status: u16, elapsed: Duration) {
        let line = Line {
            time_seconds: clock::now().0,
            token: request.token.as_deref(),
            method: request.method(),
            path: &request.path,
            status,
            milliseconds: (elapsed.as_secs_f64() * 1e6).round() / 1e3,
        };
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        let _ = lock(&self.0).write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(&path).unwrap();
        let join = JoinString {
            pin: pinstripe_remote::KeyPin([1; 32]),
            token: pinstripe_remote::TokenId([2; 8]),
            secret: pinstripe_member::SecretBytes::take(&mut [3; 32]),
            volume: pinstripe_base::id::StoreId([4; 16]),
            address: "a:1".to_owned(),
        };
        let mut headers = HeaderMap::new();
        let bearer = format!("Bearer {}", join.reveal());
        headers.insert(AUTHORIZATION, bearer.parse().unwrap());
        let uri = "/v1/hello?join=secret".parse().unwrap();
        let request = LoggedRequest::new(&Method::GET, &uri, &headers);
        log.write(&request, 200, Duration::from_millis(5));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"token\":\"0202020202020202\""), "{text}");
        assert!(text.contains("\"path\":\"/v1/hello\"") && !text.contains("secret"), "{text}");
        assert!(!text.contains("pst1_") && text.ends_with("}\n"), "{text}");
    }
}
