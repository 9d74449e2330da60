//! Steps that a caller announces to all members before it carries them out.

use crate::{ExtentName, PrefetchHint};

/// A step that a caller carries out next on several members: see
/// [`BatchedMember::plan`](crate::BatchedMember::plan).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedStep {
    /// A put of a small object: on the first member, and on the others when the first has it.
    Put(ExtentName, Vec<u8>),
    /// The removal of an object from all members.
    Delete(ExtentName),
    /// Listings of all members, which a call of [`prefetch`](crate::BatchedMember::prefetch)
    /// announces again when it is time for them. A plan that consists of this step only says that
    /// what was prefetched since this process last changed the members is new enough.
    Look(Vec<PrefetchHint>),
}
