//! The only module that prints: rows, summaries and events on standard output, messages and the
//! progress bar on standard error.
//!
//! Invariants: with `--json`, standard output has only events; every line is printed as a unit and
//! above the bar, whichever thread prints it; a closed standard output does not panic, but is
//! reported at the end.

use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock};

use indicatif::ProgressBar;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{EntryAct, Observer, Problem, Severity};
use pinstripe_base::sync::lock;

use crate::args::Common;
use crate::escape;
use crate::event::Event;
use crate::journal::Journal;
use crate::message::message;
use crate::system;
use crate::time;

/// How urgent a message is: the priorities of syslog(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// Standard output and standard error of one run.
pub struct Screen {
    json: bool,
    quiet: bool,
    verbose: bool,
    time_stamps: bool,
    /// Standard error is the journal of systemd.
    is_journal: bool,
    log: OnceLock<Journal>,
    /// The progress bar, which is hidden until a ticker shows it.
    pub bar: ProgressBar,
    /// Messages that wait while something else covers the terminal; `None` if nothing does.
    held: Mutex<Option<Vec<(Priority, String)>>>,
    out: Mutex<Out>,
}

struct Out {
    writer: BufWriter<Stdout>,
    failure: Option<io::Error>,
}

impl Screen {
    /// A screen according to the options.
    pub fn new(common: &Common) -> Self {
        let out = Out { writer: BufWriter::with_capacity(128 << 10, io::stdout()), failure: None };
        Screen {
            json: common.json,
            quiet: common.quiet,
            verbose: common.verbose,
            time_stamps: common.time_stamps,
            is_journal: system::is_journal(io::stderr().as_fd()),
            log: OnceLock::new(),
            bar: ProgressBar::hidden(),
            held: Mutex::new(None),
            out: Mutex::new(out),
        }
    }

    /// Appends all messages to this file from now on.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn open_log(&self, path: &Path) -> Result<()> {
        let log = Journal::open(path, "--log-file")?;
        let _ = self.log.set(log);
        Ok(())
    }

    fn log(&self, text: &str) {
        if let Some(log) = self.log.get() {
            log.write_text(text);
        }
    }

    /// Whether events are printed.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a line of requested output, such as a row of a table or an entry.
    ///
    /// # Errors
    /// Fails when standard output cannot be written.
    pub fn row(&self, line: &str) -> Result<()> {
        if self.json { Ok(()) } else { self.put(line.as_bytes()) }
    }

    /// Writes content unchanged, for verbs whose standard output is only content.
    ///
    /// # Errors
    /// Fails when standard output cannot be written.
    pub fn content(&self, bytes: &[u8]) -> Result<()> {
        let mut out = self.lock();
        if out.failure.is_none() {
            out.failure = out.writer.write_all(bytes).err();
        }
        match &out.failure {
            None => Ok(()),
            Some(_) => Err(no_more()),
        }
    }

    /// Prints an event.
    ///
    /// # Errors
    /// Fails when standard output cannot be written.
    pub fn event(&self, event: &Event) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::to_vec(event).expect("an event has only strings for keys");
        self.put(&line)
    }

    /// Prints a line for people about what was done.
    pub fn say(&self, line: &str) {
        self.log(line);
        if !self.json && !self.quiet {
            // A failure is remembered and reported at the end.
            let _ = self.put(line.as_bytes());
        }
    }

    /// Prints the same on standard error, for verbs whose standard output is data.
    pub fn remark(&self, line: &str) {
        match self.json || self.quiet {
            true => self.log(line),
            false => self.complain(Priority::Info, line),
        }
    }

    /// Prints the error that ended the run.
    pub fn error(&self, error: &Error) {
        self.complain(Priority::Error, &message("error", None, error));
        let _ = self.event(&Event::error(error));
    }

    /// Holds messages back while something else covers the terminal, or prints those that were held
    /// back.
    pub fn hold_messages(&self, is_held: bool) {
        let kept = std::mem::replace(&mut *lock(&self.held), is_held.then(Vec::new));
        kept.into_iter().flatten().for_each(|(priority, text)| self.print(priority, &text));
    }

    /// Prints a message.
    pub fn complain(&self, priority: Priority, text: &str) {
        self.log(text);
        if let Some(held) = &mut *lock(&self.held) {
            return held.push((priority, text.to_owned()));
        }
        self.print(priority, text);
    }

    fn print(&self, priority: Priority, text: &str) {
        self.flush();
        let text = match (self.is_journal, self.time_stamps) {
            // The journal reads a priority at the beginning of each line: sd-daemon(3).
            (true, _) => {
                let lines = text.lines().map(|line| format!("<{}>{line}", priority as u8));
                lines.collect::<Vec<_>>().join("\n")
            }
            (false, true) => format!("{} {text}", time::date(clock::now().0)),
            (false, false) => text.to_owned(),
        };
        // A closed standard error is not an error: the reader does not want the text.
        self.bar.suspend(|| drop(writeln!(io::stderr().lock(), "{text}")));
    }

    /// Reports whether the log file has every line.
    pub fn close_log(&self) {
        if let Some(Err(error)) = self.log.get().map(Journal::sync) {
            self.print(Priority::Error, &message("error", None, &error));
        }
    }

    /// Prints everything that is still buffered.
    pub fn flush(&self) {
        let mut out = self.lock();
        if out.failure.is_none() {
            out.failure = out.writer.flush().err();
        }
    }

    /// The error of standard output, if writing to it failed.
    pub fn failure(&self) -> Option<io::Error> {
        self.flush();
        self.lock().failure.take()
    }

    fn put(&self, line: &[u8]) -> Result<()> {
        let mut out = self.lock();
        if out.failure.is_none() {
            let is_bar_hidden = self.bar.is_hidden();
            let written = self.bar.suspend(|| {
                out.writer.write_all(line)?;
                out.writer.write_all(b"\n")?;
                // Lines that are held back under a bar would be printed into the middle of it.
                if is_bar_hidden { Ok(()) } else { out.writer.flush() }
            });
            out.failure = written.err();
        }
        match &out.failure {
            None => Ok(()),
            Some(_) => Err(no_more()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        lock(&self.out)
    }
}

fn no_more() -> Error {
    Error::new(Kind::Io, "cannot write to standard output")
}

/// Shows the problems that the ledger reports, when they occur.
pub struct Reporter(pub std::sync::Arc<Screen>);

impl Observer for Reporter {
    fn problem(&self, problem: &Problem) {
        let (level, priority) = match problem.severity {
            Severity::Warning | Severity::Changed | Severity::Degraded => {
                ("warning", Priority::Warning)
            }
            Severity::Loss => ("error", Priority::Error),
        };
        self.0.complain(priority, &message(level, Some(&problem.place), &problem.error));
        let _ = self.0.event(&Event::problem(problem));
    }

    fn note(&self, text: &str) {
        let line = format!("pinstripe: note: {}", escape::text(text));
        match self.0.quiet {
            true => self.0.log(&line),
            false => self.0.complain(Priority::Info, &line),
        }
        let _ = self.0.event(&Event::new("note").with("text", text));
    }

    fn wants_entries(&self) -> bool {
        self.0.verbose
    }

    fn entry(&self, act: EntryAct, path: &Path) {
        let line = format!("{:<9} {}", act.name(), escape::path(path));
        self.0.log(&line);
        let event = Event::new("entry_done").with("act", act.name());
        let path = path.as_os_str().as_bytes();
        // A failure is remembered and reported at the end.
        let _ = self.0.row(&line).and_then(|()| self.0.event(&event.with_name("path", path)));
    }
}
