//! One logical byte run, striped over N slots on one member each, with D data and P parity strips
//! per row: written once, and completely readable while any P members are missing.
//!
//! [`geometry`] computes where every byte is, [`SetWriter`] makes the extents, [`SetReader`] reads
//! ranges, rebuilds lost strips, verifies, and rewrites a slot's extent. The formats of header,
//! trailer and footer are in [`pinstripe_member::stripe_set`].
//!
//! Invariants:
//!
//! * A strip that cannot be read and a strip that does not match its checksum are both *erasures*:
//!   they are rebuilt from the other strips of their row.
//! * A strip on a remote member that is not read because near strips suffice is rebuilt from the
//!   near strips; this does not count as damage.
//! * Bytes that are read with checksums are those that were written, or an error names the loss.
//! * Memory is bounded by one row, plus 16 bytes of checksum per strip.
//!
//! Not in this module: threads, retries, caches that outlive a pass over a set, and the choice of
//! members; the pipeline calls `&self` methods from any number of threads, and no lock is held
//! during I/O.

pub mod geometry;

mod holders;
mod nearness;
mod reader;
mod rebuild;
mod report;
mod row;
mod span;
mod trailer;
mod verify;
mod windows;
mod writer;

pub use geometry::{Geometry, SetLayout};
pub use nearness::distance;
pub use reader::SetReader;
pub use report::{ExtentDamage, ExtentPart, ReadReport, Verification};
pub use trailer::sound_end;
pub use windows::WINDOW_BYTES;
pub use writer::{RunSink, SetWriter, StripSink};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
