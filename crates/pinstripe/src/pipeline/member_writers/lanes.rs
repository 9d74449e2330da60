//! The lanes of a remote member: its extents are sealed in parallel, since sealing is mostly
//! waiting.
//!
//! Invariants: each lane has at most one extent in progress; later commands wait
//! ([`Lanes::finish`]); if a lane fails, its member counts as failed.

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
pub(super) struct Lanes {
    extents: Sender<(ExtentName, Box<dyn ExtentWriter>)>,
    sealed: Receiver<()>,
    lanes: usize,
    on_the_way: usize,
}

impl Lanes {
    /// Starts `lanes` threads, which end when the [`Lanes`] is dropped.
    pub(super) fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        lanes: usize,
        number: usize,
        member: &SharedMember,
        shared: &WritersShared<'a>,
    ) -> Self {
        let (extents, taken) = bounded::<(ExtentName, Box<dyn ExtentWriter>)>(lanes);
        let (done, sealed) = bounded(lanes);
        for _ in 0..lanes {
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
        Lanes { extents, sealed, lanes, on_the_way: 0 }
    }

    /// Passes an extent to a lane that seals it, once a lane is free.
    pub(super) fn seal(&mut self, name: ExtentName, extent: Box<dyn ExtentWriter>) {
        if self.on_the_way == self.lanes {
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
            // A lane that panicked; the scope passes that on.
            Err(_) => self.on_the_way = 0,
        }
    }
}
