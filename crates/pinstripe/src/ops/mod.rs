//! The verbs, with one source file each.
//!
//! Each verb takes an open store and plain options and returns a plain outcome; events during the
//! work go to the [`Monitor`](pinstripe_base::monitor::Monitor). Not in this module: command-line
//! options, terminals, exit codes.

pub mod analyze;
pub mod backup;
pub mod beside;
mod carried;
pub mod cat;
pub mod catalog;
pub mod check;
mod copies;
pub mod diff;
pub mod dump;
pub mod find;
pub mod forget;
pub mod gc;
pub mod history;
pub mod init;
mod judge;
pub mod key;
pub mod ls;
pub mod member;
pub mod members;
mod mender;
pub mod mount;
pub mod preview;
pub mod repair;
pub mod restore;
mod same_bytes;
pub mod scrub;
pub mod seen;
pub mod select;
pub mod shared;
pub mod snapshots;
mod stale;
mod standing;
pub mod stats;
mod strays;
pub mod tag;
pub mod upgrade;
