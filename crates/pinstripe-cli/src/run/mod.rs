//! One run of one verb, with everything that a verb uses.
//!
//! ```text
//!   opening                   finds a store and opens it
//!   remote   price   cache    members that are not on this machine; what they cost; what is kept
//!   unlock   rollback         its secrets; whether it is older than this host has seen it
//!   liveness                  what was seen of writers on other hosts
//!   context                   the options, ledger, screen and deadlines of the run
//!   place   progress          which store is meant; the bar
//!   known_stores   screen     what this host knows of stores; the only place that prints
//!   real_path
//! ```
//!
//! A file of this module uses only the files below it.

#[cfg(feature = "s3")]
mod cache;
mod context;
#[cfg(feature = "s3")]
mod price;
mod real_path;
mod remote;
#[cfg(feature = "serve")]
mod served;
#[cfg(feature = "serve")]
mod shared;

pub mod known_stores;
pub mod liveness;
pub mod opening;
pub mod place;
pub mod progress;
pub mod rollback;
pub mod screen;
pub mod unlock;

pub use self::context::{Ending, Run};
pub use self::remote::PackPlan;
#[cfg(feature = "serve")]
pub use self::served::certificate_at;
