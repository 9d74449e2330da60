//! Members of a store behind a pinstripe server: the protocol, the string with which a host joins,
//! and a member whose calls are HTTP requests.
//!
//! The server is `pinstripe-serve`; both sides use the module `protocol`.
//!
//! Invariants:
//!
//! * A request with a secret is sent only over a connection whose server proved that it has one of
//!   the pinned keys.
//! * A call that changes a member has succeeded only when the server answered so. If a connection
//!   breaks before the answer, the request is sent again, and the server's answer that the name
//!   exists counts as success only if the object there has exactly the bytes that were sent.
//! * Every wait has a deadline.

mod answer;
mod batches;
mod catalog;
mod catalog_frames;
mod catalog_messages;
mod client;
mod client_certificate;
mod ends;
mod join_string;
mod look_messages;
mod looks;
mod member;
mod objects;
mod pem;
mod place;
mod protocol;
mod sets;
mod tls;
mod volumes;

pub use catalog::RemoteCatalog;
pub use catalog_frames::{
    AnswerFrame, AnswerWriter, ChangeKind, FrameReader, RowsFrame, SentChange, encode_changes,
    encode_rows_end, encode_rows_head,
};
pub use catalog_messages::{
    CATALOG_HEADER, CATALOG_REQUEST_MAX_BYTES, CatalogRequest, decode_head, decode_sync,
    encode_count, encode_head, encode_size, encode_sync,
};
pub use client::{Connection, RemoteClient};
pub use client_certificate::ClientCertificate;
pub use join_string::{JoinString, KeyPin, TokenId, looks_like_join_string};
pub use look_messages::{
    KindLook, LOOK_END_BYTES, LOOK_ENDS, LOOK_EXTENT_BYTES, LOOK_EXTENTS, LOOK_HEAD_BYTES,
    LOOK_MAX_BYTES, LOOK_NAMES, LookRequest, MemberLook, OpenedExtent, WantedKind,
};
pub use objects::{OBJECTS_MAX_BYTES, ObjectStep, ObjectsAnswer, ObjectsRequest, StepResult};
pub use pem::{read_certificates, read_private_key};
pub use place::{ServedPlace, is_served};
pub use protocol::{
    EXTENT_MAX_BYTES, Hello, LAST_HEADER, MemberProperties, PAGE_NAMES, PROTOCOL, RANGES_MAX,
    RANGES_MAX_BYTES, SUM_HEADER, SentError, VolumeFacts, WantedRange, decode_page, decode_ranges,
    decode_results, encode_page, encode_result, kind_from, sum_of,
};
pub use sets::{
    PARTS_MAX_BYTES, RUN_MAX_BYTES, SET_HEADER, SetHead, decode_parts, encode_laid, encode_part,
};
pub use tls::pin_of_certificate;
pub use volumes::ServedVolumes;
