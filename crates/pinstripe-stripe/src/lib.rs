//! The stages through which bytes pass between a source and the members.
//!
//! `chunk` cuts a stream, `dedup` decides which chunks are new, `codec` compresses them, `seal`
//! encrypts them, and `stripe` distributes them over the members with parity. `retention` selects
//! the snapshots that retention rules keep. The stages only compute; `abort` ends a run in which
//! stages have threads.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod abort;
mod chunk;
mod codec;
mod dedup;
mod retention;
mod seal;
mod stripe;

pub use abort::Abort;
pub use chunk::{Candidates, Chunking, Cutter, Resolver};
pub use codec::lzo::{
    Dictionary as LzoDictionary, compress as lzo_compress, decompress as lzo_decompress,
    max_stored_bytes as lzo_max_stored_bytes,
};
pub use codec::{
    Codec, Decoder, Encoded, Encoder, EncoderSet, Governor, Look, looks_incompressible,
};
pub use dedup::Claims;
pub use dedup::distinct::{Count, Distinct, key_of as distinct_key};
pub use dedup::filter::{Filter, Shape};
pub use retention::group::{GroupBy, GroupKey, groups as retention_groups};
pub use retention::{Candidate, KeepReason, Policy, judge as keep_reasons};
pub use seal::{
    Credential, NewSlot, OpenedRecord, Opener, RootKey, Sealer, Voucher, keys_changed,
    locked as locked_error, padded_bytes, succeeds, unwrap_key,
};
pub use stripe::geometry::Permutation;
pub use stripe::{
    ExtentDamage, ExtentPart, Geometry, ReadReport, RunSink, SetLayout, SetReader, SetWriter,
    StripSink, Verification, WINDOW_BYTES, distance, sound_end,
};
