//! `pinstripe array wait`.

use pinstripe_array::ops::open::{Reached, server};
use pinstripe_base::error::Result;

use super::register::register;
use super::{status, work};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// Wait until nothing is being rebuilt, checked or grown
///
/// An array that nobody serves is not waited for: nothing goes on there.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array wait pool && echo whole again")]
pub struct ArrayWaitArgs {
    /// Which
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
            run.screen.say("nobody serves the array: nothing goes on");
            return Ok(Ending::done(Event::default()));
        };
        let stop = signals::catch()?;
        let detail = work::follow(run, &mut Reached::There(client), &stop)?;
        Ok(status::ending(run, &detail))
    }
}
