//! `pinstripe array events`: shows the events of an array when they happen.

use pinstripe_array::{ArrayEvent, Reply, Request, next_reply, send_request, server_of};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use super::register::register;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::time;

/// Print each event of a served array when it happens
///
/// Each line is one event. Event names follow those of mdadm --monitor: Fail, DegradedArray,
/// RebuildStarted, Rebuild20, RebuildFinished, SpareActive, NewSpare, MismatchFound, BlocksHealed,
/// FailedArray. The command ends when the process that serves the array ends, unlike 'pinstripe
/// array monitor', which continues to run.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array events pool
  pinstripe array events pool --json")]
pub struct ArrayEventsArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,
}

impl ArrayEventsArgs {
    /// Prints them.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when no process serves the array.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let Some(mut client) = server_of(&self.name, &register)? else {
            return Err(Error::new(
                Kind::NotFound,
                format!("the array '{}' is not served", self.name),
            )
            .advice("serve the array with 'pinstripe array serve'"));
        };
        // The next event may come at any time.
        client.set_timeout(None)?;
        send_request(&mut client, &Request::Events)?;
        let mut told = 0_u64;
        // It ends when the process that serves does.
        while let Ok(reply) = next_reply(&mut client) {
            match reply {
                Reply::Event(event) => {
                    self.report(run, &event)?;
                    told += 1;
                }
                Reply::Detail(_) => {
                    run.screen.event(&Event::new("listening").with("name", &*self.name))?;
                }
                _ => {}
            }
            run.screen.flush();
        }
        Ok(Ending::done(Event::default().with("events", told)))
    }

    fn report(&self, run: &Run, event: &ArrayEvent) -> Result<()> {
        let (seconds, nanos) = clock::now();
        run.screen.event(&shown(&self.name, event, (seconds, nanos)))?;
        run.screen.row(&line(&self.name, event, seconds))
    }
}

/// Formats an event of an array as JSON.
pub fn shown(name: &str, event: &ArrayEvent, (seconds, nanos): (i64, u32)) -> Event {
    Event::new("array_event")
        .with_some("time", time::utc(seconds, nanos))
        .with("name", name)
        .with_fields(event)
}

/// Formats an event of an array for people.
pub fn line(name: &str, event: &ArrayEvent, seconds: i64) -> String {
    let mut line = format!("{} {} {name}", time::date(seconds), event.what);
    if let Some(slot) = event.slot {
        line += &format!(" slot {slot}");
    }
    if let Some(device) = &event.device {
        line += &format!(" {}", escape::path(device));
    }
    if let Some(count) = event.count {
        line += &format!(" {count}");
    }
    if let Some(reason) = &event.reason {
        line += &format!(" ({})", escape::text(reason));
    }
    line
}
