//! `pinstripe array wait`.

use pinstripe_array::{Reached, look_at_array, server_of};
use pinstripe_base::error::{Error, Kind, Result};

use super::register::register;
use super::{status, work};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// Wait until no rebuild, check or reshape of an array is running
///
/// If no process serves the array, the command returns immediately, with exit code 18 if a rebuild,
/// check or reshape is unfinished, and otherwise with exit code 0.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array wait pool && echo whole again")]
pub struct ArrayWaitArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,
}

impl ArrayWaitArgs {
    /// Waits.
    ///
    /// # Errors
    /// Fails with [`Kind::Interrupted`] after a signal; with [`Kind::Busy`] for unfinished work
    /// that no process continues; with the errors of [`work::check_finished`] and of the array.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let Some(client) = server_of(&self.name, &register)? else {
            if let Some(work) = look_at_array(&self.name, &register)?.work {
                let what = format!(
                    "the work '{}' on the array is not finished, but no process serves the array",
                    work.kind
                );
                return Err(Error::new(Kind::Busy, what).advice(format!(
                    "it continues when the array is served; to serve the array, run 'pinstripe \
                     array serve {}'",
                    self.name
                )));
            }
            run.screen
                .say("the array is not served, so no rebuild, resync, reshape or scrub is running");
            return Ok(Ending::done(Event::default()));
        };
        let stop = signals::catch()?;
        let mut reached = Reached::There(client);
        let before = work::ended(&mut reached)?;
        let detail = work::follow(run, &mut reached, stop.as_flag())?;
        work::check_finished(&detail, before)?;
        Ok(status::ending(run, &detail))
    }
}
