//! A member that follows a plan of faults, and counts.
//!
//! Invariant: with an empty plan it is the inner member, call for call. A fault never changes
//! what was sealed before.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Result};
use pinstripe_io::fault::{Faults, Operation, Plan, Statistics, Target, Verdict};

use crate::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, KeptLonger, Member, PlannedStep,
    PrefetchHint, Replace, ServerOfMember, batched_of,
};

/// A member with faults.
pub struct FaultMember<M> {
    inner: M,
    faults: Arc<Faults>,
}

impl<M: Member> FaultMember<M> {
    /// Wraps a member with a plan of faults. The `member` keys of the plan are ignored: see
    /// [`Plan::for_member`].
    pub fn new(inner: M, plan: Plan) -> Self {
        let faults = Arc::new(Faults::new(inner.place(), plan));
        FaultMember { inner, faults }
    }

    /// The member behind the faults.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// What a fault does to bytes that were read.
    fn strike(&self, name: ExtentName, verdict: &Verdict, read: &mut [u8]) -> Result<()> {
        match verdict.kept(read.len()) {
            Some(kept) => Err(self.ends_early(name, read.len(), kept)),
            None => {
                verdict.flip(read);
                Ok(())
            }
        }
    }

    fn ends_early(&self, name: ExtentName, wanted: usize, kept: usize) -> Error {
        let place = self.place().join(name.path());
        Error::corrupt("simulated fault: the extent ends early", place)
            .expected(format!("{wanted} bytes"), kept)
    }

    /// The calls so far, including those of writers.
    pub fn statistics(&self) -> Statistics {
        self.faults.statistics()
    }
}

/// The fate of a call on an extent.
fn on_extent(
    faults: &Faults,
    operation: Operation,
    name: ExtentName,
    bytes: usize,
) -> Result<Verdict> {
    let place = || faults.place.join(name.path());
    let target = match name {
        ExtentName::Label => Some(Target::Label),
        ExtentName::In(kind, _) => target(kind),
    };
    faults.enter(operation, target, &place, bytes)
}

/// The fate of a listing.
fn on_room(faults: &Faults, kind: ExtentKind) -> Result<Verdict> {
    let place = || faults.place.join(kind.dir());
    faults.enter(Operation::List, target(kind), &place, 0)
}

/// A plan names the kinds whose loss hurts; what strikes any kind strikes the others as well.
fn target(kind: ExtentKind) -> Option<Target> {
    match kind {
        ExtentKind::Packs => Some(Target::Packs),
        ExtentKind::Index => Some(Target::Index),
        ExtentKind::Snapshots => Some(Target::Snapshots),
        ExtentKind::Keys => Some(Target::Keys),
        _ => None,
    }
}

impl<M: Member> Member for FaultMember<M> {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        on_extent(&self.faults, Operation::Create, name, 0)?;
        let inner = self.inner.create(name, replace)?;
        Ok(Box::new(FaultWriter { inner, name, faults: self.faults.clone() }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let verdict = on_extent(&self.faults, Operation::Put, name, bytes.len())?;
        match verdict.arriving(bytes) {
            Some(bytes) => self.inner.put(name, &bytes),
            None => Ok(()),
        }
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let verdict = on_extent(&self.faults, Operation::Read, name, buf.len())?;
        if let Some(kept) = verdict.kept(buf.len()) {
            self.inner.read_at(name, offset, &mut buf[..kept])?;
            return Err(self.ends_early(name, buf.len(), kept));
        }
        self.inner.read_at(name, offset, buf)?;
        verdict.flip(buf);
        Ok(())
    }

    /// Only with an empty plan: faults strike calls that are made.
    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        self.faults.is_empty()
            && self.inner.read_at_hand(name, offset, buf)
            && on_extent(&self.faults, Operation::Read, name, buf.len()).is_ok()
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        on_extent(&self.faults, Operation::Len, name, 0)?;
        self.inner.len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        on_room(&self.faults, kind)?;
        self.inner.list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        on_extent(&self.faults, Operation::Delete, name, 0)?;
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.faults.enter(Operation::Sync, None, &|| self.place().to_path_buf(), 0)?;
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        &self.faults.place
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.inner.batched().map(|_| self as &dyn BatchedMember)
    }
}

impl<M: Member> BatchedMember for FaultMember<M> {
    /// Only with an empty plan: the put itself is sent then, and meets its fault.
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        if self.faults.is_empty() {
            batched_of(&self.inner).put_ahead(name, bytes);
        }
    }

    /// Only with an empty plan of faults: each step meets its own fault.
    fn plan(&self, steps: &[PlannedStep], members: usize) {
        if self.faults.is_empty() {
            batched_of(&self.inner).plan(steps, members);
        }
    }

    fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        batched_of(&self.inner).list_next(wanted, with_content);
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let verdict = on_extent(&self.faults, Operation::Read, name, bytes)?;
        let mut span = batched_of(&self.inner).read_span(name, offset, bytes)?;
        self.strike(name, &verdict, &mut span)?;
        Ok(span)
    }

    /// One request. To the plan, each extent is a call of [`len`](Member::len) and one of
    /// [`read_at`](Member::read_at).
    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let read = batched_of(&self.inner).read_whole(names, most_bytes);
        let strike = |(name, whole): (&ExtentName, Result<Vec<u8>>)| {
            on_extent(&self.faults, Operation::Len, *name, 0)?;
            let mut whole = whole?;
            let verdict = on_extent(&self.faults, Operation::Read, *name, whole.len())?;
            self.strike(*name, &verdict, &mut whole)?;
            Ok(whole)
        };
        names.iter().zip(read).map(strike).collect()
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        on_room(&self.faults, kind)?;
        batched_of(&self.inner).names(kind)
    }

    fn prefetch(&self, wanted: &[PrefetchHint]) {
        batched_of(&self.inner).prefetch(wanted);
    }

    fn open_ahead(&self, names: &[ExtentName]) {
        batched_of(&self.inner).open_ahead(names);
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        batched_of(&self.inner).keep_longer(names)
    }

    fn latency(&self) -> Option<Duration> {
        batched_of(&self.inner).latency()
    }

    /// Only with an empty plan of faults: the extents of a set are calls of this member otherwise.
    fn served(&self) -> Option<ServerOfMember> {
        self.faults.is_empty().then(|| batched_of(&self.inner).served())?
    }
}

struct FaultWriter {
    inner: Box<dyn ExtentWriter>,
    name: ExtentName,
    faults: Arc<Faults>,
}

impl ExtentWriter for FaultWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let verdict = on_extent(&self.faults, Operation::Append, self.name, bytes.len())?;
        match verdict.arriving(bytes) {
            Some(bytes) => self.inner.append(&bytes),
            None => Ok(()),
        }
    }

    fn seal(self: Box<Self>) -> Result<()> {
        on_extent(&self.faults, Operation::Seal, self.name, 0)?;
        self.inner.seal()
    }
}

#[cfg(test)]
mod tests;
