//! Splits one huge source over many outputs, with parity, and joins it again.
//!
//! ```text
//! ops/split: source --> pipeline/split: blocks, codec, frames --> logs --> outputs
//! ops/join:  outputs --> logs, indexes --> pipeline/join: blocks checked, healed, decoded --> target
//! ```
//!
//! This crate does not use a store: each output describes itself (doc/decisions/0018-split.md).

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod format;
mod ops;
mod outputs;
mod pipeline;
mod source;

pub use format::{
    ALIGN_BYTES, BatchExtent, End as OutputEnd, FRAME_BYTES, Frame, FrameKind, Head as OutputHead,
    Identity, LogIndex, Manifest, PAGE_BYTES, PAGES_BYTES, SET_ROWS, SplitLayout, Tag, Use,
    unit_bytes,
};
pub use ops::join::{
    JoinOptions, Joined, inspect as look_at_output, open as open_outputs, require_complete,
    run as join, verify as verify_outputs,
};
pub use ops::split::{
    LayoutChoice, SplitOptions, SplitOutcome, Written as WrittenOutput, run as split,
};
pub use outputs::log::{Log, Sets as LogSets};
pub use outputs::unit::UnitReader;
pub use outputs::{Located, Reader, RemoteOutputs, beside_path};
pub use pipeline::join::Target as JoinTarget;
pub use pipeline::split::{CodecChoice, geometry as set_geometry};
pub use source::{
    ByteSource, Extent, Fake, FakeSpec, Millionths, SourceDevice, Units, open as open_source,
};
