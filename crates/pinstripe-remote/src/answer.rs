//! What a server answered, and whether the request is worth sending again.

use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::protocol::error_from;

/// The longest pause that a server may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A complete answer.
pub(crate) struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Why a request has no answer that counts.
pub(crate) enum RequestFault {
    /// The request was not answered: it may or may not have been carried out.
    Silent(Error),
    /// The server asks to send the request again, after this time.
    Later(Error, Duration),
    /// The answer is final.
    Final(Error),
}

/// An error, and whether an attempt that was not answered may have been carried out.
pub(crate) struct Unsure {
    pub error: Error,
    pub is_unsure: bool,
}

impl From<Unsure> for Error {
    fn from(unsure: Unsure) -> Error {
        unsure.error
    }
}

impl RequestFault {
    /// The error of a request that is not sent again.
    pub fn into_error(self) -> Error {
        match self {
            RequestFault::Silent(error)
            | RequestFault::Later(error, _)
            | RequestFault::Final(error) => error,
        }
    }
}

impl HttpAnswer {
    /// Sorts an answer: success, or the fault that its status says.
    pub fn sort(self) -> Result<HttpAnswer, RequestFault> {
        if self.status.is_success() {
            return Ok(self);
        }
        let pause = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let pause = pause.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let error = self.error();
        Err(match self.status.as_u16() {
            429 | 502..=504 => RequestFault::Later(error, pause.unwrap_or_default().min(PAUSE_MAX)),
            _ => RequestFault::Final(error),
        })
    }

    fn error(&self) -> Error {
        // Without a body, as after HEAD, the status says the kind.
        let kind = match self.status.as_u16() {
            400 | 416 => Kind::Corrupt,
            401 | 403 => Kind::NotAllowed,
            404 => Kind::NotFound,
            409 | 412 => Kind::Exists,
            421 => Kind::WrongMember,
            507 => Kind::NoSpace,
            _ => Kind::Io,
        };
        match self.body.is_empty() {
            true => Error::new(kind, format!("the server answered {}", self.status)),
            false => error_from(&self.body),
        }
    }
}
