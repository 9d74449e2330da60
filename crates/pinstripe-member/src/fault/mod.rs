//! Deliberate faults of members: wrappers that make a good member behave like a bad disk.
//!
//! [`FaultMember`] wraps any member and follows a [`Plan`](pinstripe_io::fault::Plan); it also
//! counts calls and bytes. [`PowerCut`] works below a directory member: it stops it at any single
//! step and leaves the disk as a power cut could. [`Quota`] limits the room
//! of members. All are deterministic in a seed, so every finding can be reproduced. None does anything that its plan does not say.

mod member;
mod powercut;
mod quota;

pub use member::FaultMember;
pub use powercut::PowerCut;
pub use quota::Quota;
