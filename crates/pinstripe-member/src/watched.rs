//! A member with a deadline for every operation.
//!
//! A call that the kernel does not answer cannot be ended from outside, so it is made by a thread
//! that can be abandoned: one of the member's own threads makes the call, and the caller waits for
//! the answer until its deadline. A member that misses a deadline is silent from then on: every
//! call of it, including those that are waiting, fails with [`Kind::Unanswered`] at once. A verb
//! that only reads may run for weeks, and a silent member has missed none of its writes: such a
//! verb uses the member again once an abandoned call has succeeded ([`Deadlines::of_reader`]). If an
//! abandoned call fails, the next query for the label, or for the member's place, is made and
//! abandoned in turn.
//!
//! Invariants: the arguments and buffers of a call belong to the thread that makes it, so that an
//! abandoned thread never accesses memory of its caller. A member has as many threads as calls ever
//! waited for it at once; the threads end with the member, except those that the kernel does not
//! answer, which end with the process. The deadline starts again whenever the call reports progress
//! ([`goes_on`]).
//!
//! Not in this module: what a silent member means for a verb. A verb treats a silent member like a
//! failed member.

mod calls;
mod deadlines;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use calls::MemberCalls;
pub use calls::goes_on;
pub use deadlines::Deadlines;

use super::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, FetchedPart, KeptLonger, Member,
    PlannedStep, PrefetchHint, Replace, RunPart, RunToLay, ServerOfMember, SetServer, batched_of,
};
use pinstripe_base::error::Result;

/// A member with deadlines.
pub struct WatchedMember<M> {
    inner: Arc<M>,
    calls: Arc<MemberCalls>,
}

impl<M: Member + 'static> WatchedMember<M> {
    /// Wraps a member with deadlines.
    pub fn new(inner: M, patience: Deadlines) -> Self {
        let calls = MemberCalls::new(inner.place(), patience);
        WatchedMember { inner: Arc::new(inner), calls }
    }

    fn control<T: Send + 'static>(
        &self,
        work: impl FnOnce(&M) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.calls.call(0, move || work(&inner))
    }
}

impl<M: Member + 'static> Member for WatchedMember<M> {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        let inner = self.control(move |member| member.create(name, replace))?;
        let calls = Arc::clone(&self.calls);
        Ok(Box::new(WatchedWriter { inner: Some(inner), calls, buffer: Vec::new(), bytes: 0 }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let (inner, bytes) = (Arc::clone(&self.inner), bytes.to_vec());
        self.calls.call(bytes.len() as u64, move || inner.put(name, &bytes))
    }

    /// Bytes that are in memory are read without another thread: most reads of an index and of
    /// trees find their bytes there, and switching threads costs more than such a read.
    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.read_at_hand(name, offset, buf) {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let mut own = self.calls.buffer(buf.len());
        let own = self.calls.call(buf.len() as u64, move || {
            inner.read_at(name, offset, &mut own)?;
            Ok(own)
        })?;
        buf.copy_from_slice(&own);
        self.calls.keep(own);
        Ok(())
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        !self.calls.is_silent() && self.inner.read_at_hand(name, offset, buf)
    }

    /// A query for the label can bring a silent member back.
    fn len(&self, name: ExtentName) -> Result<u64> {
        if name == ExtentName::Label {
            let inner = Arc::clone(&self.inner);
            return self.calls.query(move || inner.len(name));
        }
        self.control(move |member| member.len(name))
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        self.control(move |member| member.list(kind))
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.control(move |member| member.delete(name))
    }

    fn sync(&self) -> Result<()> {
        self.control(|member| member.sync())
    }

    fn sweep(&self) -> Result<u64> {
        self.control(|member| member.sweep())
    }

    fn caps(&self) -> Caps {
        let unknown = Caps {
            device: None,
            free_bytes: None,
            is_full: false,
            is_append_only: false,
            far: None,
        };
        self.control(|member| Ok(member.caps())).unwrap_or(unknown)
    }

    fn place(&self) -> &Path {
        self.calls.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        self.inner.batched().map(|_| self as &dyn BatchedMember)
    }
}

impl<M: Member + 'static> BatchedMember for WatchedMember<M> {
    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        if !self.calls.is_silent() {
            batched_of(&*self.inner).put_ahead(name, bytes);
        }
    }

    /// This call does not wait, so it needs no other thread.
    fn plan(&self, steps: &[PlannedStep], members: usize) {
        if !self.calls.is_silent() {
            batched_of(&*self.inner).plan(steps, members);
        }
    }

    /// This call does not wait, so it needs no other thread.
    fn list_next(&self, wanted: PrefetchHint, with_content: bool) {
        if !self.calls.is_silent() {
            batched_of(&*self.inner).list_next(wanted, with_content);
        }
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let inner = Arc::clone(&self.inner);
        self.calls.call(bytes as u64, move || batched_of(&*inner).read_span(name, offset, bytes))
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        let (inner, own) = (Arc::clone(&self.inner), names.to_vec());
        match self.calls.call(0, move || Ok(batched_of(&*inner).read_whole(&own, most_bytes))) {
            Ok(read) => read,
            Err(silence) => names.iter().map(|_| Err(silence.duplicate())).collect(),
        }
    }

    fn names(&self, kind: ExtentKind) -> Result<Vec<[u8; 16]>> {
        self.control(move |member| batched_of(member).names(kind))
    }

    /// This call does not wait, so it needs no other thread.
    fn prefetch(&self, wanted: &[PrefetchHint]) {
        if !self.calls.is_silent() {
            batched_of(&*self.inner).prefetch(wanted);
        }
    }

    /// This call does not wait, so it needs no other thread.
    fn open_ahead(&self, names: &[ExtentName]) {
        if !self.calls.is_silent() {
            batched_of(&*self.inner).open_ahead(names);
        }
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        let own = names.to_vec();
        self.control(move |member| batched_of(member).keep_longer(&own))
    }

    fn latency(&self) -> Option<Duration> {
        batched_of(&*self.inner).latency()
    }

    fn served(&self) -> Option<ServerOfMember> {
        let ServerOfMember { server, member } = batched_of(&*self.inner).served()?;
        let calls = Arc::clone(&self.calls);
        Some(ServerOfMember { server: Arc::new(WatchedServer { inner: server, calls }), member })
    }
}

/// A server whose calls have the deadlines of one of its members.
struct WatchedServer {
    inner: Arc<dyn SetServer>,
    calls: Arc<MemberCalls>,
}

impl SetServer for WatchedServer {
    fn id(&self) -> usize {
        self.inner.id()
    }

    fn lay(&self, run: &Arc<RunToLay>) -> Result<Vec<Result<()>>> {
        let (inner, own) = (Arc::clone(&self.inner), Arc::clone(run));
        self.calls.call(run.bytes.len() as u64, move || inner.lay(&own))
    }

    fn fetch(&self, part: RunPart) -> Result<FetchedPart> {
        let inner = Arc::clone(&self.inner);
        self.calls.call(part.bytes.into(), move || inner.fetch(part))
    }
}

struct WatchedWriter {
    /// `None` after a call was abandoned, because the abandoned thread then owns the writer.
    inner: Option<Box<dyn ExtentWriter>>,
    calls: Arc<MemberCalls>,
    buffer: Vec<u8>,
    bytes: u64,
}

impl ExtentWriter for WatchedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut inner) = self.inner.take() else { return Err(self.calls.silence()) };
        let mut own = std::mem::take(&mut self.buffer);
        own.clear();
        own.extend_from_slice(bytes);
        let (inner, own, appended) = self.calls.call(bytes.len() as u64, move || {
            let appended = inner.append(&own);
            Ok((inner, own, appended))
        })?;
        (self.inner, self.buffer) = (Some(inner), own);
        self.bytes += bytes.len() as u64;
        appended
    }

    fn seal(mut self: Box<Self>) -> Result<()> {
        let Some(inner) = self.inner.take() else { return Err(self.calls.silence()) };
        self.calls.call(self.bytes, move || inner.seal())
    }
}

impl Drop for WatchedWriter {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            // If the member does not answer, the sweep removes the rest.
            let _ = self.calls.call(0, move || {
                drop(inner);
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests;
