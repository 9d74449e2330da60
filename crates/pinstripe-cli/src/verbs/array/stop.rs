//! `pinstripe array stop`.

use pinstripe_array::ops::open::{next, send, server};
use pinstripe_array::ops::request::{Reply, Request};
use pinstripe_base::error::Result;

use super::register::register;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Stop the process that serves an array
///
/// All data is written, the array is closed, and its clients are disconnected. Returns when that is
/// done.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array stop pool")]
pub struct ArrayStopArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,
}

impl ArrayStopArgs {
    /// Stops it, and waits for that.
    ///
    /// # Errors
    /// Why it could not be closed in order.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let was_served = match server(&self.name, &register)? {
            None => {
                run.screen.say("the array is not served: there is nothing to stop");
                false
            }
            Some(mut client) => {
                send(&mut client, &Request::Stop)?;
                if let Reply::Done { said } = next(&mut client)? {
                    run.screen.say(&said);
                }
                true
            }
        };
        Ok(Ending::done(Event::default().with("was_served", was_served)))
    }
}
