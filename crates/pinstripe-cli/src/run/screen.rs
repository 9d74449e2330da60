//! The only module that prints: rows, summaries and events on standard output, messages and the
//! progress bar on standard error.
//!
//! Invariants: with `--json`, standard output has only events; every line is printed as a unit and
//! above the bar, whichever thread prints it; a closed standard output does not panic, but is
//! reported at the end.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Mutex, MutexGuard};

use indicatif::ProgressBar;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Observer, Problem, Severity};
use pinstripe_base::sync::lock;

use crate::args::Common;
use crate::escape;
use crate::event::Event;
use crate::message::message;

/// Standard output and standard error of one run.
pub struct Screen {
    json: bool,
    quiet: bool,
    /// The progress bar, which is hidden until a ticker shows it.
    pub bar: ProgressBar,
    /// Messages that wait while something else covers the terminal; `None` if nothing does.
    held: Mutex<Option<Vec<String>>>,
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
            bar: ProgressBar::hidden(),
            held: Mutex::new(None),
            out: Mutex::new(out),
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
        if !self.json && !self.quiet {
            // A failure is remembered and reported at the end.
            let _ = self.put(line.as_bytes());
        }
    }

    /// Prints the same on standard error, for verbs whose standard output is data.
    pub fn remark(&self, line: &str) {
        if !self.json && !self.quiet {
            self.complain(line);
        }
    }

    /// Prints the error that ended the run.
    pub fn error(&self, error: &Error) {
        self.complain(&message("error", None, error));
        let _ = self.event(&Event::error(error));
    }

    /// Holds messages back while something else covers the terminal, or prints those that were held
    /// back.
    pub fn hold_messages(&self, is_held: bool) {
        let kept = std::mem::replace(&mut *lock(&self.held), is_held.then(Vec::new));
        kept.into_iter().flatten().for_each(|text| self.complain(&text));
    }

    /// Prints a message unchanged.
    pub fn complain(&self, text: &str) {
        if let Some(held) = &mut *lock(&self.held) {
            return held.push(text.to_owned());
        }
        self.flush();
        // A closed standard error is not an error: the reader does not want the text.
        self.bar.suspend(|| drop(writeln!(io::stderr().lock(), "{text}")));
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
        let level = match problem.severity {
            Severity::Warning | Severity::Changed | Severity::Degraded => "warning",
            Severity::Loss => "error",
        };
        self.0.complain(&message(level, Some(&problem.place), &problem.error));
        let _ = self.0.event(&Event::problem(problem));
    }

    fn note(&self, text: &str) {
        if !self.0.quiet {
            self.0.complain(&format!("pinstripe: note: {}", escape::text(text)));
        }
        let _ = self.0.event(&Event::new("note").with("text", text));
    }
}
