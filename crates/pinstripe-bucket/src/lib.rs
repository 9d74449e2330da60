//! Members in buckets: implements the members of a store with an S3 endpoint.
//!
//! The interface of members is synchronous, and so is this crate for its callers: requests run on a
//! small runtime of this crate, and a caller waits for its own requests. Floors: `remote` opens
//! members, and any prefix as the `source` of an overlay, and `output`s of a split; `member`,
//! `writer` and `probe` carry calls out, with `tails`, `blocks` and `prefetch`, which finds in
//! `kept` what earlier runs read; `session` sends one request until it is answered, as `window` and
//! `bandwidth` of its `endpoint` allow; `traffic` counts and bounds what goes over the wire of a
//! `connection`; `place`, `key`, `fault` and `refusal` are values.
//!
//! Invariants:
//! - `put` has one winner: an endpoint's "exists already" is believed only after the object was
//!   read, and equal bytes count as written by this call, since an answer may have been lost;
//! - every request has a time limit, every retry an end, and every answer a largest size;
//! - credentials come from the caller and are used only for signatures; no request follows a
//!   redirect to another host.
//!
//! Not in this crate: the environment, files, and the meaning of the bytes (except whether they are
//! intact).

mod attempts;
mod bandwidth;
mod blocks;
mod clients;
mod connection;
mod endpoint;
mod fault;
mod inner;
mod kept;
mod key;
mod listing;
mod lock;
mod locks;
mod member;
mod one_winner;
mod output;
mod own_pages;
mod past;
mod past_look;
mod place;
mod prefetch;
mod probe;
mod proxy;
mod refusal;
mod remote;
mod renewed;
mod reserve;
mod retention;
mod session;
mod signed;
mod source;
mod tails;
mod traffic;
mod utc;
mod versions;
mod window;
mod writer;

pub use bandwidth::Bandwidth;
pub use clients::Access;
pub use place::{BucketPlace, EndpointDefaults, Provider};
pub use probe::{Ability, ProbeReport};
pub use proxy::proxy_of;
pub use remote::Buckets;
pub use renewed::Renewal;
pub use session::BucketClient;
pub use source::BucketSource;
pub use traffic::Requests;
