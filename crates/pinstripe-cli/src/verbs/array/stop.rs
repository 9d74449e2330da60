//! `pinstripe array stop`.

use pinstripe_array::{Register, Reply, Request, next_reply, send_request, server_of};
use pinstripe_base::error::Result;

use super::register::register;
use super::scan;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Stop the process that serves an array
///
/// The process writes all data, closes the array, and disconnects its NBD clients. The command
/// returns when the array is closed. Without --force, the command is refused while a program or a
/// loop device has the file of the array ('serve --fuse') open.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array stop pool
  pinstripe array stop --scan")]
pub struct ArrayStopArgs {
    /// Name of the array
    #[arg(value_name = "NAME", required_unless_present = "scan")]
    name: Option<String>,

    /// Stop all arrays that are being served
    #[arg(long, short, conflicts_with = "name")]
    scan: bool,

    /// Stop the array even if a program has its file open; all later reads and writes of the file
    /// fail
    #[arg(long)]
    force: bool,
}

impl ArrayStopArgs {
    /// Stops the array, and waits until it has stopped.
    ///
    /// # Errors
    /// Fails with the reason why the array could not be closed cleanly.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let Some(name) = &self.name else {
            return scan::each(run, &register.names()?, |name| self.stop(run, name, &register));
        };
        let was_served = self.stop(run, name, &register)?;
        if !was_served {
            run.screen.say("the array is not served, so there is nothing to stop");
        }
        Ok(Ending::done(Event::default().with("was_served", was_served)))
    }

    /// Stops one array; returns whether a process served it.
    fn stop(&self, run: &Run, name: &str, register: &Register) -> Result<bool> {
        let Some(mut client) = server_of(name, register)? else { return Ok(false) };
        send_request(&mut client, &Request::Stop { force: self.force })?;
        if let Reply::Done { said } = next_reply(&mut client)? {
            run.screen.say(&said);
        }
        Ok(true)
    }
}
