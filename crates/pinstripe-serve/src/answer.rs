//! The answers of the server: bytes, JSON, or an error with its facts.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::Response;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_remote::SentError;

/// The answer to a request: that of its handler, or the error.
pub(crate) fn answer(result: Result<Response>) -> Response {
    result.unwrap_or_else(|error| refusal(&error))
}

/// The answer that sends an error.
pub(crate) fn refusal(error: &Error) -> Response {
    let status = match error.kind() {
        Kind::NotAllowed => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Exists => StatusCode::PRECONDITION_FAILED,
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::Corrupt => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Kind::WrongMember => StatusCode::MISDIRECTED_REQUEST,
        Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unanswered => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = serde_json::to_vec(&SentError::from_error(error)).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, "application/json".parse().expect("a header value"));
    if error.kind() == Kind::Busy {
        headers.insert(RETRY_AFTER, "1".parse().expect("a header value"));
    }
    response
}

/// An answer with a body of bytes.
pub(crate) fn bytes(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    let kind = "application/octet-stream".parse().expect("a header value");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

pub(crate) fn json(content: &impl serde::Serialize) -> Response {
    let mut response = bytes(serde_json::to_vec(content).unwrap_or_default());
    let kind = "application/json".parse().expect("a header value");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
