//! The on-disk formats of members and the structs that they encode, with one source file per kind
//! of object.
//!
//! Every number is little-endian, every object begins with a magic and a version, and an unknown
//! feature flag is refused, never skipped. Decoding never panics and checks every length against
//! the available bytes before it allocates.

pub mod acl;
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
