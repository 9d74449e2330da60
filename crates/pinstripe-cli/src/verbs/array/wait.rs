//! `pinstripe array wait`.

use pinstripe_array::ops::open::{Reached, server};
use pinstripe_base::error::Result;

use super::register::register;
use super::{status, work};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// Wait until no rebuild, check or reshape is running
///
/// Returns at once if the array is not served: no such work is running then.
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
    /// [`Kind::Interrupted`](pinstripe_base::error::Kind::Interrupted) by a signal; those of the array.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let Some(client) = server(&self.name, &register)? else {
            run.screen.say("the array is not served: no work is running");
            return Ok(Ending::done(Event::default()));
        };
        let stop = signals::catch()?;
        let detail = work::follow(run, &mut Reached::There(client), stop.as_flag())?;
        Ok(status::ending(run, &detail))
    }
}
