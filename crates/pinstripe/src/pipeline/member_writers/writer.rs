//! The writer thread of one member: carries out its commands in order.

use std::collections::HashMap;

use crossbeam_channel::Receiver;

use super::free_space::FreeSpace;
use super::seal_threads::SealThreads;
use super::{MemberStanding, WriterCommand, WritersShared};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::{ExtentName, ExtentWriter, Replace, SharedMember, seal_own};

/// An extent that is open on this member.
struct OpenExtent {
    writer: Box<dyn ExtentWriter>,
    /// The bytes that are still reserved for the extent.
    set_aside_bytes: u64,
}

/// The writer thread of one member.
pub(super) struct Writer<'a> {
    number: usize,
    pub(super) member: SharedMember,
    room: FreeSpace,
    shared: WritersShared<'a>,
    open: HashMap<ExtentName, OpenExtent>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        number: usize,
        member: SharedMember,
        room: FreeSpace,
        shared: WritersShared<'a>,
    ) -> Self {
        Writer { number, member, room, shared, open: HashMap::new() }
    }

    /// Carries out commands until the queue closes.
    pub(super) fn run(
        mut self,
        commands: &Receiver<WriterCommand>,
        mut seal_threads: Option<SealThreads>,
    ) {
        for command in commands {
            if let (Some(seal_threads), false) = (&mut seal_threads, command.is_of_extent()) {
                seal_threads.finish();
            }
            if let WriterCommand::Barrier(done) = command {
                drop(done);
                continue;
            }
            if self.shared.abort.is_raised() || self.is_given_up(&command) {
                self.pass_over(command);
                continue;
            }
            let sealed = match &command {
                WriterCommand::Seal(name) => Some(*name),
                _ => None,
            };
            let is_of_extent = command.is_of_extent();
            if let Err(error) = self.carry_out(command, seal_threads.as_mut()) {
                sealed.into_iter().for_each(|name| self.shared.note_short(name));
                self.give_up_extents();
                let to = match error.kind() {
                    Kind::NoSpace if is_of_extent => MemberStanding::CutShort,
                    _ => MemberStanding::Failed,
                };
                self.shared.fail(self.number, &self.member, error, to);
            }
        }
    }

    /// A member that ran out of space still gets small objects.
    fn is_given_up(&self, command: &WriterCommand) -> bool {
        match command.is_of_extent() {
            true => self.shared.has_lost_extents(self.number),
            false => self.shared.is(self.number, MemberStanding::Failed),
        }
    }

    fn pass_over(&mut self, command: WriterCommand) {
        self.give_up_extents();
        match command {
            WriterCommand::Begin(_, bytes) => self.room.release(bytes),
            WriterCommand::Seal(name) => self.shared.note_short(name),
            _ => {}
        }
    }

    /// Drops the open extents of the member. The set of each dropped extent becomes short when the
    /// set is sealed.
    fn give_up_extents(&mut self) {
        for (_, extent) in self.open.drain() {
            self.room.release(extent.set_aside_bytes);
        }
    }

    fn carry_out(
        &mut self,
        command: WriterCommand,
        seal_threads: Option<&mut SealThreads>,
    ) -> Result<()> {
        match command {
            WriterCommand::Begin(name, bytes) => {
                let created = self.member.create(name, Replace::Never);
                let writer = created.inspect_err(|_| self.room.release(bytes))?;
                self.open.insert(name, OpenExtent { writer, set_aside_bytes: bytes });
            }
            WriterCommand::Append(name, bytes) => {
                if let Some(extent) = self.open.get_mut(&name) {
                    extent.writer.append(&bytes)?;
                    let written = extent.set_aside_bytes.min(bytes.len() as u64);
                    extent.set_aside_bytes -= written;
                    self.room.release(written);
                    self.shared.monitor.add(Counter::WrittenBytes, bytes.len() as u64);
                }
                self.shared.strips.give(bytes);
            }
            WriterCommand::Seal(name) => {
                if let Some(OpenExtent { writer, set_aside_bytes }) = self.open.remove(&name) {
                    self.room.release(set_aside_bytes);
                    match seal_threads {
                        Some(seal_threads) => seal_threads.seal(name, writer),
                        None => seal_own(writer)?,
                    }
                }
            }
            WriterCommand::Put(name, bytes) => {
                self.member.put(name, &bytes)?;
                self.shared.monitor.add(Counter::WrittenBytes, bytes.len() as u64);
            }
            WriterCommand::Delete(name) => {
                if let Err(error) = self.member.delete(name) {
                    self.shared.monitor.warning(self.member.place().join(name.path()), error);
                }
            }
            WriterCommand::Barrier(_) => unreachable!("run answers barriers itself"),
        }
        Ok(())
    }
}
