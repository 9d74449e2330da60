//! The control sockets of a recorder: `take.ctl` in each directory of its take.
//!
//! A client sends one line and gets one line of JSON. Clients are served one after the other, each
//! with a deadline, so that none can hold the socket or memory.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, wait_readable};
use pinstripe_record::recorder::{RunningTake, TakeOrder, TakePhase};
use serde_json::{Value, json};

use super::tell::clock;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// The name of the socket in the directory of a take.
pub const CONTROL: &str = "take.ctl";
/// The longest line of a request.
const LINE_BYTES: u64 = 4096;
/// The longest line of an answer.
const ANSWER_BYTES: u64 = 1 << 20;
/// The time in which a client has to say what it wants, and a recorder has to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// A socket that is served until it is dropped.
pub struct ControlSocket {
    path: PathBuf,
    over: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Serves a take in one of its directories.
    ///
    /// # Errors
    /// When the socket cannot be made; a take can do without.
    pub fn start(take: &Arc<RunningTake>, directory: &Path, name: &str) -> Result<Self> {
        let path = directory.join(name).join(CONTROL);
        let cannot = |error| Error::io("cannot make the control socket", &path, error);
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let over = Arc::new(Stop::new()?);
        let (take, ended) = (Arc::clone(take), Arc::clone(&over));
        let thread = Some(std::thread::spawn(move || serve(&listener, &take, &ended)));
        Ok(ControlSocket { path, over, thread })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.over.set();
        if let Some(thread) = self.thread.take() {
            // It answers and nothing more: its panic would be no reason to fail.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, take: &RunningTake, over: &Stop) {
    while !over.is_set() {
        if wait_readable(&[listener.as_fd(), over.as_fd()], None).is_err() {
            over.wait(DEADLINE);
        }
        if let Ok((client, _)) = listener.accept() {
            // A client that goes away or says nothing is no failure of the take.
            let _ = answer(&client, take);
        }
    }
}

fn answer(client: &UnixStream, take: &RunningTake) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(DEADLINE))?;
    client.set_write_timeout(Some(DEADLINE))?;
    let mut line = String::new();
    BufReader::new(client.take(LINE_BYTES)).read_line(&mut line)?;
    let done = line.trim_end_matches('\n').parse().and_then(|it: TakeOrder| take.obey(&it));
    let mut client = client;
    client.write_all(format!("{}\n", told(take, &done)).as_bytes())
}

/// How the take goes, and whether it did as it was told.
fn told(take: &RunningTake, done: &Result<()>) -> Value {
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

/// Ask or tell a running recorder something
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe record ctl status /mnt/a/gig --json
  pinstripe record ctl disarm /mnt/a/gig 5-8
  pinstripe record ctl start /mnt/a/gig                    # of a take that was begun with --armed
  pinstripe record ctl mark /mnt/a/gig 'second movement'
  pinstripe record ctl arm /mnt/a/gig 'room mic'           # from now on
  pinstripe record ctl split /mnt/a/gig
  pinstripe record ctl stop /mnt/a/gig")]
pub struct CtlArgs {
    /// What to do: status, start, stop, split (begin new files now), mark, arm or disarm
    #[arg(value_name = "WHAT",
          value_parser = ["status", "start", "stop", "split", "mark", "arm", "disarm"])]
    what: String,

    /// Directory of the take
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// Text of a mark; of arm and disarm the streams: a name, numbers as in 1,4-8, or all
    #[arg(value_name = "TEXT", default_value = "")]
    text: String,
}

impl CtlArgs {
    /// Asks, and prints the answer.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when nothing is recorded there; [`Kind::Unanswered`] without an answer.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if self.text.contains('\n') || self.text.len() as u64 > LINE_BYTES / 2 {
            return Err(Error::new(Kind::Usage, "a text is one short line"));
        }
        let line = format!("{} {}", self.what, self.text);
        line.parse::<TakeOrder>()?;
        let path = self.directory.join(CONTROL);
        let answer = ask(&path, &line)?;
        run.screen.event(&Event::new("recording").with_fields(&answer))?;
        if answer["ok"] != json!(true) {
            let what = answer["error"].as_str().unwrap_or("the recorder refused").to_owned();
            let is_missing = answer["kind"] == json!(Kind::NotFound.name());
            let kind = if is_missing { Kind::NotFound } else { Kind::Refused };
            return Err(Error::new(kind, what).at(&path));
        }
        run.screen.row(&line_of(&answer))?;
        Ok(Ending::done(Event::default()))
    }
}

/// `recording 'gig': 62 of 64 streams, 0:01:05 with 0:00:10 of pre-roll, room for 2:11:00, ring worst 23 %,
/// durable lag 1.1 s, 0 overruns`.
fn line_of(answer: &Value) -> String {
    let number = |key: &str| answer[key].as_f64().unwrap_or(0.0);
    let pre_roll = match number("pre_roll_seconds") {
        none if none < 1.0 => String::new(),
        some => format!(" with {} of pre-roll", clock(some)),
    };
    let left = answer["left_seconds"].as_f64();
    format!(
        "{} '{}': {} of {}, {}{pre_roll}, {}, ring worst {:.0} %, durable lag {:.1} s, {}",
        escape::text(answer["phase"].as_str().unwrap_or("")),
        escape::text(answer["take"].as_str().unwrap_or("")),
        number("armed_streams"),
        counted(number("streams") as u64, "stream"),
        clock(number("elapsed_seconds")),
        left.map_or("room unknown".to_owned(), |it| format!("room for {}", clock(it))),
        number("ring_worst_percent"),
        number("durable_lag_ms") / 1e3,
        counted(number("overruns") as u64, "overrun"),
    )
}

fn ask(path: &Path, line: &str) -> Result<Value> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::new(Kind::NotFound, "nothing is being recorded there")
                .at(path)
                .advice("name the directory of a take that is being recorded, in any of its DIRs")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(Kind::Unanswered, "the recorder did not answer").at(path)
        }
        _ => Error::io("cannot ask the recorder", path, error),
    };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES)).read_line(&mut answer).map_err(failed)?;
    serde_json::from_str(&answer)
        .map_err(|_| Error::new(Kind::Corrupt, "the answer is not understood").at(path))
}
