//! The thread of one member: carries its commands out in order.

use std::collections::HashMap;

use crossbeam_channel::Receiver;

use super::lanes::Lanes;
use super::{Command, Shared};
use crate::member::{ExtentName, ExtentWriter, Replace, SharedMember};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;

/// The thread of one member.
pub(super) struct Writer<'a> {
    number: usize,
    pub(super) member: SharedMember,
    shared: Shared<'a>,
    open: HashMap<ExtentName, Box<dyn ExtentWriter>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(number: usize, member: SharedMember, shared: Shared<'a>) -> Self {
        Writer { number, member, shared, open: HashMap::new() }
    }

    /// Carries commands out until no more can come.
    pub(super) fn run(mut self, commands: &Receiver<Command>, mut lanes: Option<Lanes>) {
        for command in commands {
            if let (Some(lanes), false) = (&mut lanes, command.is_of_extent()) {
                lanes.finish();
            }
            if let Command::Barrier(done) = command {
                drop(done);
                continue;
            }
            if self.shared.abort.is_raised() || self.shared.has_failed(self.number) {
                self.open.clear();
                continue;
            }
            let done = match (command, &mut lanes) {
                (Command::Seal(name), Some(lanes)) => {
                    if let Some(writer) = self.open.remove(&name) {
                        lanes.seal(writer);
                    }
                    Ok(())
                }
                (command, _) => self.carry_out(command),
            };
            if let Err(error) = done {
                self.open.clear();
                self.shared.fail(self.number, &self.member, error);
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Begin(name) => {
                self.open.insert(name, self.member.create(name, Replace::Never)?);
            }
            Command::Append(name, bytes) => {
                if let Some(writer) = self.open.get_mut(&name) {
                    writer.append(&bytes)?;
                    self.shared.monitor.add(Counter::WrittenBytes, bytes.len() as u64);
                }
                self.shared.strips.give(bytes);
            }
            Command::Seal(name) => {
                if let Some(writer) = self.open.remove(&name) {
                    writer.seal()?;
                }
            }
            Command::Put(name, bytes) => {
                self.member.put(name, &bytes)?;
                self.shared.monitor.add(Counter::WrittenBytes, bytes.len() as u64);
            }
            Command::Delete(name) => {
                if let Err(error) = self.member.delete(name) {
                    self.shared.monitor.warning(self.member.place().join(name.path()), error);
                }
            }
            Command::Barrier(_) => unreachable!("run answers barriers itself"),
        }
        Ok(())
    }
}
