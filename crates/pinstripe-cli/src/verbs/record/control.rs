//! The control sockets of a recorder: `take.ctl` in each directory of a take.
//!
//! A client sends one line and gets one line of JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;
use pinstripe_io::control::{Answer, Client, Control, Lines, Peer};
use pinstripe_record::{RunningTake, TakeOrder, TakePhase};
use serde_json::{Value, json};

use super::tell::clock;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// The name of the socket in the directory of a take.
pub const CONTROL: &str = "take.ctl";
/// The most bytes of a request's text.
const TEXT_BYTES: usize = 2048;
/// The time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const PEER: Peer = Peer {
    name: "the recorder",
    advice: "'pinstripe record ctl status' shows whether the recorder still runs",
    silence: Kind::Unanswered,
};

/// A socket, which is served until this object is dropped.
pub struct ControlSocket {
    over: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Serves the control socket of a take in one of the take's directories.
    ///
    /// # Errors
    /// Fails when the socket cannot be created; the take continues without it.
    pub fn start(take: &Arc<RunningTake>, directory: &Path, name: &str) -> Result<Self> {
        let control = Control::bind(&directory.join(name).join(CONTROL))?;
        let over = Arc::new(Stop::new()?);
        let (take, ended) = (Arc::clone(take), Arc::clone(&over));
        // It answers and nothing more: its end would be no reason to fail.
        let serve = move || drop(control.serve(&ended, &|line, lines| answer(line, lines, &take)));
        Ok(ControlSocket { over, thread: Some(std::thread::spawn(serve)) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.over.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(line: &str, lines: &Lines<'_>, take: &RunningTake) -> Answer {
    let done = line.parse().and_then(|it: TakeOrder| take.obey(&it));
    // A client that is gone does not need it.
    let _ = lines.send(&answer_json(take, &done).to_string());
    Answer::Sent
}

/// The status of the take, and whether the request succeeded.
fn answer_json(take: &RunningTake, done: &Result<()>) -> Value {
    let status = take.status();
    let disarmed = status.by_stream.iter().filter(|it| !it.is_armed);
    let disarmed: Vec<&str> = disarmed.map(|it| it.name.as_str()).collect();
    let mut told = serde_json::to_value(&status).unwrap_or(Value::Null);
    told["disarmed"] = json!(disarmed);
    told["is_recording"] = json!(status.phase == TakePhase::Recording);
    told["ok"] = json!(done.is_ok());
    if let Err(error) = done {
        told["error"] = json!(error.to_string());
        told["kind"] = json!(error.kind().name());
    }
    told
}

/// Query or control a running recorder
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe record ctl status /mnt/a/gig --json
  pinstripe record ctl disarm /mnt/a/gig 5-8
  pinstripe record ctl start /mnt/a/gig                    # for a take that was begun with --armed
  pinstripe record ctl mark /mnt/a/gig 'second movement'
  pinstripe record ctl arm /mnt/a/gig 'room mic'           # record this stream from now on
  pinstripe record ctl split /mnt/a/gig
  pinstripe record ctl stop /mnt/a/gig")]
pub struct CtlArgs {
    /// The command to the recorder: status, start, stop, split (begin new files now), mark, arm or
    /// disarm
    #[arg(value_name = "WHAT",
          value_parser = ["status", "start", "stop", "split", "mark", "arm", "disarm"])]
    what: String,

    /// Directory of the take
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// For 'mark': the text of the mark. For 'arm' and 'disarm': the streams, as a name, as numbers
    /// (for example 1,4-8) or as the word all
    #[arg(value_name = "TEXT", default_value = "")]
    text: String,
}

impl CtlArgs {
    /// Sends the request, and prints the answer.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when nothing is being recorded there; with
    /// [`Kind::Unanswered`] without an answer.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if self.text.contains('\n') || self.text.len() > TEXT_BYTES {
            return Err(Error::new(
                Kind::Usage,
                format!("the text must be a single line of at most {TEXT_BYTES} bytes"),
            ));
        }
        let line = format!("{} {}", self.what, self.text);
        line.parse::<TakeOrder>()?;
        let path = self.directory.join(CONTROL);
        let answer = ask(&path, &line)?;
        run.screen.event(&Event::new("recording").with_fields(&answer))?;
        if answer["ok"] != json!(true) {
            let what =
                answer["error"].as_str().unwrap_or("the recorder refused the command").to_owned();
            let is_missing = answer["kind"] == json!(Kind::NotFound.name());
            let kind = if is_missing { Kind::NotFound } else { Kind::Refused };
            return Err(Error::new(kind, what).at(&path));
        }
        run.screen.row(&line_of(&answer))?;
        Ok(Ending::done(Event::default()))
    }
}

/// Formats a line such as `recording 'gig': 62 of 64 streams, 0:01:05 with 0:00:10 of pre-roll,
/// disk space for 2:11:00, highest ring fill 23 %, durable lag 1.1 s, 0 overruns`.
fn line_of(answer: &Value) -> String {
    let number = |key: &str| answer[key].as_f64().unwrap_or(0.0);
    let pre_roll = match number("pre_roll_seconds") {
        none if none < 1.0 => String::new(),
        some => format!(" with {} of pre-roll", clock(some)),
    };
    let left = answer["left_seconds"].as_f64();
    format!(
        "{} '{}': {} of {}, {}{pre_roll}, {}, highest ring fill {:.0} %, durable lag {:.1} s, {}",
        escape::text(answer["phase"].as_str().unwrap_or("")),
        escape::text(answer["take"].as_str().unwrap_or("")),
        number("armed_streams"),
        counted(number("streams") as u64, "stream"),
        clock(number("elapsed_seconds")),
        left.map_or("disk space unknown".to_owned(), |it| format!("disk space for {}", clock(it))),
        number("ring_worst_percent"),
        number("durable_lag_ms") / 1e3,
        counted(number("overruns") as u64, "overrun"),
    )
}

fn ask(path: &Path, line: &str) -> Result<Value> {
    let mut client = Client::connect(path, PEER)?.ok_or_else(|| {
        Error::new(Kind::NotFound, "no take is being recorded in this directory").at(path).advice(
            "give the directory of a take that is being recorded, which is below any directory \
             that was given with --to",
        )
    })?;
    client.set_timeout(Some(TIMEOUT))?;
    client.ask(line)?;
    serde_json::from_str(&client.line()?)
        .map_err(|_| Error::new(Kind::Corrupt, "the recorder sent an unknown answer").at(path))
}
