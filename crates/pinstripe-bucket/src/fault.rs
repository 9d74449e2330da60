//! The reasons why a request fails, and the errors for them.

use std::error::Error as StdError;
use std::path::Path;

use object_store::client::{HttpError, HttpErrorKind};
use pinstripe_base::error::{Error, Kind};

use crate::refusal::{Refusal, printable, strange};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The object does not exist.
    Missing,
    /// The endpoint reports that an object with this name exists.
    Exists,
    /// The endpoint reports that an object with this name exists and may not be replaced, but also
    /// that none can be read.
    Contradicts,
    Refused(Box<Refusal>),
    /// No connection was made, or it ended before the answer.
    Cut(String),
    /// This host does not trust the endpoint's certificate.
    Untrusted(String),
    /// No answer came in time.
    Late,
    /// The answer is not S3.
    Odd(String),
    /// A listing contains a key that cannot be a path.
    NoPath(String),
    /// The bucket is shown in a past state, so it cannot be changed.
    ReadOnly,
    /// The request exists only in S3, but the endpoint has another protocol.
    Unknown,
}

impl Fault {
    /// The fault for an error of the client.
    pub fn from_error(error: &object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => return Fault::Missing,
            object_store::Error::AlreadyExists { .. }
            | object_store::Error::Precondition { .. } => return Fault::Exists,
            object_store::Error::NotSupported { .. } => return Fault::Unknown,
            object_store::Error::InvalidPath { source } => {
                return Fault::NoPath(printable(&source.to_string()));
            }
            _ => {}
        }
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        let mut last = error.to_string();
        while let Some(cause) = next {
            if let Some(refusal) = cause.downcast_ref::<Refusal>() {
                return Fault::Refused(Box::new(refusal.clone()));
            }
            if let Some(http) = cause.downcast_ref::<HttpError>() {
                let deepest = deepest(http);
                match http.kind() {
                    HttpErrorKind::Timeout => return Fault::Late,
                    HttpErrorKind::Decode => return Fault::Odd(deepest),
                    // A refusal among the causes has more detail.
                    _ if find_refusal(http).is_none() => return Fault::of_connection(deepest),
                    _ => {}
                }
            }
            last = cause.to_string();
            next = cause.source();
        }
        Fault::Odd(printable(&last))
    }

    /// The fault for a lost connection, by its deepest cause: certificate errors can only be
    /// recognised by the library's text.
    fn of_connection(why: String) -> Self {
        match why.contains("certificate") {
            true => Fault::Untrusted(why),
            false => Fault::Cut(why),
        }
    }

    /// Whether the same request may succeed shortly afterwards. An answer that is not S3 may come
    /// from a proxy whose server is restarting.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Fault::Missing
            | Fault::Exists
            | Fault::Contradicts
            | Fault::Untrusted(_)
            | Fault::NoPath(_)
            | Fault::ReadOnly
            | Fault::Unknown => false,
            Fault::Refused(refusal) => refusal.is_transient(),
            Fault::Cut(_) | Fault::Late | Fault::Odd(_) => true,
        }
    }

    /// Whether the endpoint did not answer at all.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Fault::Cut(_) | Fault::Late)
    }

    /// The error of a call that tried to do `act` on `place`.
    pub fn error(&self, act: &str, place: &Path, endpoint: &str, region: &str) -> Error {
        let failed = |kind, why: &str| {
            Error::new(kind, format!("cannot {act} at {endpoint}: {why}")).at(place)
        };
        match self {
            Fault::Missing => Error::new(Kind::NotFound, "this extent does not exist").at(place),
            Fault::Exists => Error::new(Kind::Exists, "exists already").at(place),
            Fault::Contradicts => failed(
                Kind::Io,
                "the endpoint refuses to create this key because it exists, but a read reports that \
                 it does not exist",
            )
            .advice(
                "a server that was killed during a write may leave a key in this state: ask the \
                 provider to repair the key; or, while no program uses the store, write an empty \
                 object under this key with the provider's own tool, and then delete that object; \
                 stored data is not affected",
            ),
            Fault::Refused(refusal) => {
                let kind = if refusal.is_full() { Kind::NoSpace } else { Kind::Io };
                failed(kind, &refusal.to_string()).advice(refusal.advice(region, place))
            }
            Fault::Cut(why) => failed(Kind::Io, why)
                .advice("check the endpoint and the network; the request was tried several times"),
            Fault::Untrusted(why) => failed(Kind::Io, why).advice(
                "set AWS_CA_BUNDLE, or ca_bundle in the profile, to a file with the CA \
                 certificate; also check the endpoint's host name and the clock of this host",
            ),
            Fault::Late => failed(Kind::Unanswered, "the endpoint did not answer in time")
                .advice("check the endpoint and the network; the request was tried several times"),
            Fault::NoPath(why) => failed(Kind::Io, why).advice(
                "an object under this prefix has a key that is not a valid path, so it does not \
                 belong to a store: rename or delete it with the provider's own tool",
            ),
            Fault::ReadOnly => {
                failed(Kind::Refused, "with --at, the store is read-only").advice("leave out --at")
            }
            Fault::Unknown => failed(
                Kind::Unsupported,
                "the endpoint does not support the S3 \
                                                         protocol",
            ),
            Fault::Odd(why) => failed(Kind::Io, why).advice(strange(place)),
        }
    }
}

fn find_refusal<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Refusal> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(refusal) = cause.downcast_ref() {
            return Some(refusal);
        }
        next = cause.source();
    }
    None
}

/// The last error in the chain of causes, as text.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    printable(&last.to_string())
}
