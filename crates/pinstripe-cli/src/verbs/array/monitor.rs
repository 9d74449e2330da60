//! `pinstripe array monitor`: watches arrays and reports their events.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_array::{ArrayEvent, Register, Sight, Watcher, sight_of, test_event};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};

use super::events;
use super::notify::{Message, Notifier};
use super::register::register;
use crate::args::{Time, duration, seconds_or_duration};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// How long a process that serves an array may take to describe it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name under which problems of the register are reported. The name has a blank, so it is never
/// the name of an array.
const REGISTER: &str = "the register";

/// Watch arrays, and run a program, send mail or call a URL at each event
///
/// The monitor runs until it is interrupted, even if the processes that serve the arrays end and
/// start again. Event names follow those of mdadm --monitor: Fail, FailSpare, DegradedArray,
/// FailedArray, RebuildStarted, Rebuild20, RebuildFinished, SpareActive, NewSpare, NewArray,
/// DeviceDisappeared, MismatchFound, BlocksHealed. The event NobodyServes reports that no process
/// serves an array any more; ServedAgain reports that a process serves the array again. Arrays that
/// are degraded or not served when the monitor starts are reported immediately.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array monitor --mail root@localhost
  pinstripe array monitor pool --program /usr/local/bin/on-event --delay 5s
  pinstripe array monitor --webhook http://127.0.0.1:8080/arrays --test --oneshot")]
pub struct ArrayMonitorArgs {
    /// Names of the arrays to watch [default: all registered arrays, including arrays that are
    /// registered later]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Watch all registered arrays, which is also the default
    #[arg(long, short, conflicts_with = "names")]
    scan: bool,

    /// Run this program at every event, without a shell; its arguments are the event, the array
    /// and, if the event has one, the device
    #[arg(long, short, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandName)]
    program: Option<PathBuf>,

    /// Send a mail to this address at Fail, FailSpare, DegradedArray, FailedArray,
    /// DeviceDisappeared, NobodyServes and TestMessage
    #[arg(long, short, value_name = "ADDRESS")]
    mail: Option<String>,

    /// The program that sends mail; it gets the argument -t, and the complete mail on standard
    /// input
    #[arg(long, value_name = "PROGRAM", default_value = "sendmail",
          value_hint = clap::ValueHint::CommandName)]
    mail_command: PathBuf,

    /// Send every event as JSON to this URL, by a POST request of the program 'curl'
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,

    /// Time limit for each call of the program, the mail command or the webhook; a call that takes
    /// longer is killed
    #[arg(long, value_name = "TIME", value_parser = duration,
          default_value_t = Time(Duration::from_secs(30)))]
    deadline: Time,

    /// Time between two checks of the arrays. For an array that no process serves, a check reads
    /// the superblocks, which wakes sleeping disks
    #[arg(long, short, value_name = "TIME", value_parser = seconds_or_duration,
          default_value_t = Time(Duration::from_secs(10)))]
    delay: Time,

    /// Check all arrays once, report the event NewArray and any problem of each array, and exit
    #[arg(long, short = '1')]
    oneshot: bool,

    /// Report the event TestMessage for each array at the start
    #[arg(long, short)]
    test: bool,
}

impl ArrayMonitorArgs {
    /// Watches the arrays until an interrupt.
    ///
    /// # Errors
    /// Fails when the register cannot be read at the beginning, for an unknown name, and when
    /// writing to standard output fails. Problems with an array or a notification are reported and
    /// do not end the monitor.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        self.names.iter().try_for_each(|name| register.read(name).map(drop))?;
        let notifier = Notifier {
            program: self.program.clone(),
            mail: self.mail.clone().map(|to| (self.mail_command.clone(), to)),
            webhook: self.webhook.clone(),
            deadline: self.deadline.0,
        };
        let stop = signals::catch()?;
        let mut watcher = Watcher::new(self.oneshot);
        let names = self.watched(&register)?;
        run.screen.event(&Event::new("monitoring").with("arrays", names.clone()))?;
        let mut told = 0;
        if self.test {
            let messages = names.into_iter().map(|name| (name, test_event())).collect();
            told += report(run, &notifier, self.oneshot, messages)?;
        }
        let mut troubles = Troubles::default();
        while !stop.is_set() {
            // A register that cannot be read now may be readable at the next look.
            match self.watched(&register) {
                Ok(names) => {
                    let sights = troubles.looked(run, names, &register);
                    told += report(run, &notifier, self.oneshot, watcher.take(sights))?;
                }
                Err(error) => troubles.report_error(run, REGISTER, error),
            }
            run.screen.flush();
            if self.oneshot || stop.wait(self.delay.0) {
                break;
            }
        }
        Ok(Ending::done(Event::default().with("events", told)))
    }

    fn watched(&self, register: &Register) -> Result<Vec<String>> {
        if self.names.is_empty() { register.names() } else { Ok(self.names.clone()) }
    }
}

/// Arrays that could not be checked. Each unreachable array is reported once, until it can be
/// checked again.
#[derive(Default)]
struct Troubles(Vec<String>);

impl Troubles {
    fn looked(
        &mut self,
        run: &Run,
        names: Vec<String>,
        register: &Register,
    ) -> Vec<(String, Sight)> {
        self.0.retain(|known| known != REGISTER);
        let mut look = |name: String| match sight_of(&name, register, PATIENCE) {
            Err(error) => {
                self.report_error(run, &name, error);
                (name, Sight::Unknown)
            }
            Ok(sight_of) => {
                self.0.retain(|known| *known != name);
                (name, sight_of)
            }
        };
        names.into_iter().map(&mut look).collect()
    }

    fn report_error(&mut self, run: &Run, name: &str, error: Error) {
        if !self.0.iter().any(|known| known == name) {
            self.0.push(name.to_owned());
            run.monitor.warning(name, error);
        }
    }
}

/// Reports events on the screen and to program, mail and webhook; returns the number of events.
fn report(
    run: &Run,
    notifier: &Notifier,
    is_once: bool,
    events: Vec<(String, ArrayEvent)>,
) -> Result<u64> {
    let count = events.len() as u64;
    for (name, event) in events {
        let (seconds, nanos) = clock::now();
        let shown = events::shown(&name, &event, (seconds, nanos));
        run.screen.event(&shown)?;
        run.screen.row(&events::line(&name, &event, seconds))?;
        run.screen.flush();
        let message = Message {
            array: &name,
            event: &event,
            json: serde_json::to_string(&shown).expect("an event has only strings for keys"),
        };
        for (place, error) in notifier.send(&message) {
            match is_once {
                // A script that asks once is to learn that nothing was sent.
                true => run.monitor.loss(place, error),
                false => run.monitor.warning(place, error),
            }
        }
    }
    Ok(count)
}
