//! Stripe sets that a server lays and reads where its members are, so that a host sends and receives
//! each byte of a set once, without parity.

use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::Result;

use crate::ExtentName;
use crate::stripe_set::Geometry;

/// A complete stripe set for which a server computes the strips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunToLay {
    /// The name of the set's extents.
    pub name: ExtentName,
    /// The geometry of the set.
    pub geometry: Geometry,
    /// The numbers of the members that get the extents, by slot.
    pub members: Vec<u16>,
    /// The range of the record index in the run; empty if there is none.
    pub index: Range<u64>,
    /// The logical run.
    pub bytes: Vec<u8>,
}

/// A part of the logical run of a stripe set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPart {
    /// The name of the set's extents.
    pub name: ExtentName,
    /// The offset in the logical run.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u32,
}

/// The bytes of a part of a logical run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchedPart {
    /// The bytes, which the caller verifies.
    pub bytes: Vec<u8>,
    /// The number of strips that were rebuilt from parity for it.
    pub rebuilt: u64,
}

/// A server with several members of one store.
pub trait SetServer: Send + Sync {
    /// A number that only the members behind this server have in common, in this process.
    fn id(&self) -> usize;

    /// Lays the strips and parity of a set on its members. Returns the result of each slot: its
    /// extent is durable, or the error of its member. An extent that exists already with the same
    /// content counts as written.
    ///
    /// # Errors
    /// Fails if the server does not answer, or refuses the set.
    fn lay(&self, run: &Arc<RunToLay>) -> Result<Vec<Result<()>>>;

    /// Reads a part of a set, and rebuilds what cannot be read.
    ///
    /// # Errors
    /// Fails if the server does not answer, or cannot read the part.
    fn fetch(&self, part: RunPart) -> Result<FetchedPart>;
}

/// A member's server, and the member's number there.
#[derive(Clone)]
pub struct ServerOfMember {
    /// The server.
    pub server: Arc<dyn SetServer>,
    /// The number of the member.
    pub member: u16,
}

/// Returns the server that has all of these members, with their numbers; `None` if there is no such
/// server, or only one member.
pub fn server_of<'m>(
    members: impl Iterator<Item = &'m dyn crate::Member>,
) -> Option<(Arc<dyn SetServer>, Vec<u16>)> {
    let served: Vec<ServerOfMember> =
        members.map(|member| member.served()).collect::<Option<_>>()?;
    let first = Arc::clone(&served.first()?.server);
    let is_one = served.len() > 1 && served.iter().all(|it| it.server.id() == first.id());
    is_one.then(|| (first, served.iter().map(|it| it.member).collect()))
}
