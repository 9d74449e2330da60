//! Reads back a split: its outputs in any order, and its source at any offset.
//!
//! ```text
//! output (two pages + log) --> log (own or striped) --> batches (index, or frame by frame)
//!                                                   --> unit: blocks checked, healed, decoded
//! ```
//!
//! The format of the bytes is in [`crate::format`]; the reasons for it are in
//! doc/decisions/0018-split.md.
//!
//! Not in this module: threads, and the writing of outputs (pipeline/split); what a loss means for
//! a verb.

pub mod batch;
mod indexes;
pub mod log;
mod output;
mod reader;
pub mod resume;
mod scan;
pub(crate) mod tree_hash;
pub mod unit;
mod window;

pub(crate) use output::no_remote;
pub use output::{RemoteOutputs, SplitOutput, beside_path};
pub use reader::{Located, Reader};
pub(crate) use tree_hash::{TreeHash, UnitHash};
