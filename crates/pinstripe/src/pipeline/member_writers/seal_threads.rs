//! The threads of a remote member: its extents are sealed in parallel, since sealing is mostly
//! waiting.
//!
//! Invariants: each thread has at most one extent in progress; later commands wait
//! ([`SealThreads::finish`]); if a thread fails, its member counts as failed.

use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{MemberStanding, WriterCommand, WritersShared};
use pinstripe_base::error::Kind;
use pinstripe_member::{ExtentName, ExtentWriter, SharedMember, seal_own};

impl WriterCommand {
    /// Whether the command concerns only an extent that is not sealed yet.
    pub(super) fn is_of_extent(&self) -> bool {
        matches!(
            self,
            WriterCommand::Begin(..) | WriterCommand::Append(..) | WriterCommand::Seal(_)
        )
    }
}

/// The threads that seal extents of one member.
pub(super) struct SealThreads {
    extents: Sender<(ExtentName, Box<dyn ExtentWriter>)>,
    sealed: Receiver<()>,
    threads: usize,
    on_the_way: usize,
}

impl SealThreads {
    /// Starts `threads` threads, which end when the [`SealThreads`] is dropped.
    pub(super) fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        number: usize,
        member: &SharedMember,
        shared: &WritersShared<'a>,
    ) -> Self {
        let (extents, taken) = bounded::<(ExtentName, Box<dyn ExtentWriter>)>(threads);
        let (done, sealed) = bounded(threads);
        for _ in 0..threads {
            let (taken, done) = (taken.clone(), done.clone());
            let (member, shared) = (member.clone(), shared.clone());
            scope.spawn(move || {
                for (name, extent) in taken {
                    if shared.abort.is_raised() || shared.has_lost_extents(number) {
                        shared.note_short(name);
                    } else if let Err(error) = seal_own(extent) {
                        shared.note_short(name);
                        let to = match error.kind() {
                            Kind::NoSpace => MemberStanding::CutShort,
                            _ => MemberStanding::Failed,
                        };
                        shared.fail(number, &member, error, to);
                    }
                    // The writer has ended when the run has ended.
                    let _ = done.send(());
                }
            });
        }
        SealThreads { extents, sealed, threads, on_the_way: 0 }
    }

    /// Passes an extent to a thread that seals it, once a thread is free.
    pub(super) fn seal(&mut self, name: ExtentName, extent: Box<dyn ExtentWriter>) {
        if self.on_the_way == self.threads {
            self.wait_for_one();
        }
        self.on_the_way += usize::from(self.extents.send((name, extent)).is_ok());
    }

    /// Waits until every extent is sealed or the member has failed.
    pub(super) fn finish(&mut self) {
        while self.on_the_way > 0 {
            self.wait_for_one();
        }
    }

    fn wait_for_one(&mut self) {
        match self.sealed.recv() {
            Ok(()) => self.on_the_way -= 1,
            // A thread that panicked; the scope passes that on.
            Err(_) => self.on_the_way = 0,
        }
    }
}
