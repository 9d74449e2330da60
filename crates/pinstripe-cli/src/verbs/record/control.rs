//! The control socket of a recorder: `take.ctl` in the directory of its take.
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
use pinstripe_record::recorder::RunningTake;
use serde_json::{Value, json};

use crate::event::Event;
use crate::run::{Ending, Run};

const NAME: &str = "take.ctl";
/// The longest line of a request.
const LINE_BYTES: u64 = 4096;
/// The longest line of an answer.
const ANSWER_BYTES: u64 = 1 << 20;
/// The time in which a client has to say what it wants, and a recorder has to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// A socket that is served until it is dropped.
pub struct Control {
    path: PathBuf,
    over: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Serves a take in the first of its directories.
    ///
    /// # Errors
    /// When the socket cannot be made; a take can do without.
    pub fn start(take: &Arc<RunningTake>, directory: &Path, name: &str) -> Result<Self> {
        let path = directory.join(name).join(NAME);
        let cannot = |error| Error::io("cannot make the control socket", &path, error);
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let over = Arc::new(Stop::new()?);
        let (take, ended) = (Arc::clone(take), Arc::clone(&over));
        let thread = Some(std::thread::spawn(move || serve(&listener, &take, &ended)));
        Ok(Control { path, over, thread })
    }
}

impl Drop for Control {
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
    let line = line.trim_end_matches('\n');
    let (verb, text) = line.split_once(' ').unwrap_or((line, ""));
    let done = match verb {
        "status" => Ok(()),
        "stop" => {
            take.stop.set();
            Ok(())
        }
        "split" => {
            take.split();
            Ok(())
        }
        "mark" if take.mark(text) => Ok(()),
        "mark" => Err("there are too many marks"),
        _ => Err("status, stop, split and mark are understood"),
    };
    let mut status = serde_json::to_value(take.status()).unwrap_or(Value::Null);
    status["ok"] = json!(done.is_ok());
    status["is_recording"] = json!(!take.stop.is_set());
    if let Err(error) = done {
        status["error"] = json!(error);
    }
    let mut client = client;
    client.write_all(format!("{status}\n").as_bytes())
}

/// Ask or tell a running recorder something
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe record ctl status /mnt/a/gig
  pinstripe record ctl mark /mnt/a/gig 'second movement'
  pinstripe record ctl split /mnt/a/gig
  pinstripe record ctl stop /mnt/a/gig")]
pub struct CtlArgs {
    /// status, stop, split (begin new files now) or mark
    #[arg(value_name = "WHAT", value_parser = ["status", "stop", "split", "mark"])]
    what: String,

    /// Directory of the take
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// Text of a mark
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
            return Err(Error::new(Kind::Usage, "a mark is one short line"));
        }
        let path = self.directory.join(NAME);
        let answer = ask(&path, &format!("{} {}", self.what, self.text))?;
        if answer["ok"] != json!(true) {
            let what = answer["error"].as_str().unwrap_or("the recorder refused").to_owned();
            return Err(Error::new(Kind::Refused, what).at(&path));
        }
        run.screen.event(&Event::new("recording").with_fields(&answer))?;
        let number = |key: &str| answer[key].as_f64().unwrap_or(0.0);
        run.screen.row(&format!(
            "{} '{}': {:.0} s, ring worst {:.0} %, durable lag {:.1} s, {} overruns{}",
            if answer["is_recording"] == json!(true) { "recording" } else { "stopping" },
            crate::escape::text(answer["take"].as_str().unwrap_or("")),
            number("elapsed_seconds"),
            number("ring_worst_percent"),
            number("durable_lag_ms") / 1e3,
            number("overruns"),
            answer["left_seconds"]
                .as_f64()
                .map_or(String::new(), |it| format!(", {:.0} min left", it / 60.0)),
        ))?;
        Ok(Ending::done(Event::default()))
    }
}

fn ask(path: &Path, line: &str) -> Result<Value> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::new(Kind::NotFound, "nothing is being recorded there")
                .at(path)
                .advice("name the directory of a take that is being recorded, of its first DIR")
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
