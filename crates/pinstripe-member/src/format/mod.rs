//! Bytes on members and the structs they stand for: one file per object kind.
//!
//! Every number is little-endian, every object opens with a magic and a version, and a feature
//! flag that this version does not know is refused, never skipped. Decoding never panics and
//! never allocates by a length that it has not checked against the bytes at hand.

pub mod entry;
pub mod envelope;
pub mod forgotten;
pub mod gc;
pub mod heartbeat;
pub mod index_run;
pub mod key_ring;
pub mod keys;
pub mod label;
pub mod meta;
pub mod pack_index;
pub mod record;
pub mod removed_slot;
pub mod scrub;
pub mod session;
pub mod snapshot;
pub mod stripe_set;
pub mod tar;
pub mod tree;
