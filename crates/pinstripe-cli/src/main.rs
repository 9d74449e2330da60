//! The pinstripe command: parses the arguments, runs the verb, and reports how it ended.
//!
//! Floors of modules, highest first; a module uses only those below it, and verbs use each other in
//! one direction only.
//!
//! ```text
//!   main                      begins, and reports how it ended
//!   knobs                     completes the command line by measured settings
//!   cli                       the parser's root
//!   verbs                     one file or directory for each, and the table of them
//!   exclude_args              the options that exclude entries, and their order
//!   run                       what every verb works with; its own floors stand in run/mod.rs
//!   config                    the config file
//!   args                      the options of every verb, and the types of options
//!   credential   aws   signals   rules   journal
//!   message   event   time   table   lists   snapshot_path   users   exit   together
//!   escape   xdg   system
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "this is the program itself, which uses files, the environment and the terminal"
)]

mod args;
#[cfg(feature = "s3")]
mod aws;
#[cfg(feature = "s3")]
mod bucket_args;
mod choice_args;
mod cli;
mod command_output;
mod config;
mod credential;
mod escape;
mod event;
mod exclude_args;
mod exit;
mod jobs;
mod journal;
mod knobs;
mod lists;
mod message;
mod other_tools;
mod rules;
mod run;
mod signals;
mod snapshot_path;
mod system;
mod table;
mod time;
mod users;
mod values;
mod verbs;
mod xdg;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::CommandFactory;
use pinstripe_base::error::{Error, Kind};

use crate::cli::Cli;
use crate::event::Event;
use crate::knobs::{Completed, Refused};
use crate::run::Run;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    system::forbid_dumps();
    system::raise_file_limit();
    signals::survive_size_limit();
    let words = other_tools::with_options(std::env::args_os().collect());
    if let Some(refused) = cli::empty_argument(&words) {
        return refuse(&refused);
    }
    match knobs::complete(&words) {
        Ok(completed) => run(completed),
        Err(Refused::Line(refused)) => refuse(&other_tools::explained(&words, refused)),
        Err(Refused::File(cli, error)) => {
            Run::new(cli.common).conclude(cli.verb.name(), Err(error))
        }
    }
}

fn run(Completed { cli: Cli { verb, common }, added }: Completed) -> ExitCode {
    let run = Run::new(common);
    if let Some(path) = &run.common.log_file
        && let Err(error) = run.screen.open_log(path)
    {
        return run.conclude(verb.name(), Err(error));
    }
    if let Some((options, file)) = added {
        run.screen.say(&format!(
            "these options were read from {}: {}",
            escape::path(&file),
            options.join(" ")
        ));
    }
    if let Some(zone) = time::unknown_zone() {
        let what = "the time zone in the variable TZ is unknown on this machine, so times are \
                    shown in UTC";
        let error = Error::new(Kind::Usage, what).advice(
            "set TZ to a time zone of the tz database, for example TZ=Europe/Berlin, or to a rule, \
             for example TZ=CET-1CEST,M3.5.0,M10.5.0/3",
        );
        run.monitor.warning(&zone, error);
    }
    let work = || {
        let ended = catch_unwind(AssertUnwindSafe(|| verb.run(&run, Cli::command)));
        let ended = ended.unwrap_or_else(|_| {
            Err(Error::new(Kind::Io, "the verb was stopped by a bug in pinstripe"))
        });
        run.conclude(verb.name(), ended)
    };
    // The system hands a signal to the first thread, and one that waits for a disk or a file
    // system which does not answer runs no handler: so that thread does nothing but wait here.
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
        match worker.spawn_scoped(scope, work) {
            Ok(worker) => worker.join().unwrap_or(ExitCode::from(exit::FAILED)),
            Err(error) => {
                let error = Error::io("cannot start a thread", "/", error);
                run.conclude(verb.name(), Err(error))
            }
        }
    })
}

/// The usual stack size of a process's first thread.
const STACK_BYTES: usize = 8 << 20;

/// Shows help or version, or an error in the command line.
fn refuse(refused: &clap::Error) -> ExitCode {
    let is_mistake = refused.use_stderr();
    // A closed stream is not an error: the reader does not want the text.
    let _ = refused.print();
    if !is_mistake {
        return ExitCode::from(exit::DONE);
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let kind = Kind::Usage.name();
        let events = [
            Event::new("error").with("kind", kind).with("what", reason(refused)),
            Event::new("summary").with("verb", None::<&str>).with("exit_code", exit::USAGE),
        ];
        for event in events {
            let line = serde_json::to_string(&event).expect("an event has only strings for keys");
            let _ = std::io::Write::write_all(&mut std::io::stdout(), (line + "\n").as_bytes());
        }
    }
    ExitCode::from(exit::USAGE)
}

/// The first paragraph of clap's message, on one line.
fn reason(refused: &clap::Error) -> String {
    let text = refused.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty());
    let reason = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    reason.strip_prefix("error: ").unwrap_or(&reason).to_owned()
}

/// A panic is a bug in pinstripe: prints one line that can be reported, instead of a backtrace.
fn report_bug(panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let report = format!(
        "pinstripe: error: this is a bug in pinstripe {}: {} ({place})\n  what to do: run \
         'pinstripe check', and report this message together with the command\n",
        env!("CARGO_PKG_VERSION"),
        escape::text(text),
    );
    let _ = std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes());
}
