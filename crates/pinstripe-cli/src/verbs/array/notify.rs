//! Notifications of events: by a program, a mail, a webhook. Each notification is sent by an
//! external program with a time limit, so that a hanging program delays the monitor and does not
//! stop it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pinstripe_array::{ArrayEvent, is_grave};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::process::{self, ProgramLimits};

use crate::escape;

/// The number of bytes of a failed program's messages that are shown.
const SHOWN_BYTES: usize = 400;

/// Where notifications go, and how.
pub struct Notifier {
    /// The program, which gets event, array and device as arguments.
    pub program: Option<PathBuf>,
    /// The command that sends mail, and the address.
    pub mail: Option<(PathBuf, String)>,
    /// The URL to which the event is sent.
    pub webhook: Option<String>,
    /// How long each notification may take.
    pub deadline: Duration,
}

/// An event to send.
pub struct Message<'a> {
    /// The array.
    pub array: &'a str,
    /// What happened.
    pub event: &'a ArrayEvent,
    /// The event in the form of `--json`.
    pub json: String,
}

impl Notifier {
    /// Sends all notifications at the same time; returns the failures with the names of the
    /// programs.
    pub fn send(&self, message: &Message<'_>) -> Vec<(PathBuf, Error)> {
        let commands = [self.by_program(message), self.by_mail(message), self.by_webhook(message)];
        let deadline = self.deadline;
        std::thread::scope(|scope| {
            let started: Vec<_> = commands
                .into_iter()
                .flatten()
                .map(|(mut command, input)| {
                    let name = PathBuf::from(command.get_program());
                    let ran = std::thread::Builder::new()
                        .spawn_scoped(scope, move || run(&mut command, &input, deadline));
                    (name, ran)
                })
                .collect();
            let failed = started.into_iter().filter_map(|(name, ran)| {
                let ran = match ran {
                    Ok(ran) => ran.join().expect("it does not panic"),
                    Err(error) => Err(Error::io("cannot start a thread", "/", error)),
                };
                ran.err().map(|error| (name, error))
            });
            failed.collect()
        })
    }

    fn by_program(&self, message: &Message<'_>) -> Option<(Command, String)> {
        let mut command = Command::new(self.program.as_ref()?);
        command.arg(&message.event.what).arg(message.array);
        if let Some(device) = &message.event.device {
            command.arg(device);
        }
        Some((command, String::new()))
    }

    fn by_mail(&self, message: &Message<'_>) -> Option<(Command, String)> {
        let (program, to) = self.mail.as_ref().filter(|_| is_grave(message.event))?;
        let mut command = Command::new(program);
        command.arg("-t");
        Some((command, mail(to, message)))
    }

    fn by_webhook(&self, message: &Message<'_>) -> Option<(Command, String)> {
        let url = self.webhook.as_ref()?;
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--output", "/dev/null"]);
        command.args(["--header", "Content-Type: application/json", "--data-binary", "@-"]);
        command.arg("--url").arg(url);
        Some((command, message.json.clone()))
    }
}

/// The complete mail, headers first. Names of arrays have no special characters; a path cannot
/// begin a new header line.
fn mail(to: &str, message: &Message<'_>) -> String {
    let (what, array) = (&message.event.what, message.array);
    let device = message.event.device.as_deref().map(escape::path);
    let device = device.map(|it| format!("Device: {it}\n")).unwrap_or_default();
    let reason = message.event.reason.as_deref().map(escape::text);
    let reason = reason.map(|it| format!("Reason: {it}\n")).unwrap_or_default();
    format!(
        "To: {to}\nSubject: {what} event on array {array}\n\nThis message was sent by 'pinstripe \
         array monitor'.\n\nEvent: {what}\nArray: {array}\n{device}{reason}\nTo see the present \
         state, run: pinstripe array detail {array}\n\n{}\n",
        message.json
    )
}

/// Runs a program with `input` on its standard input. If the program has not ended after
/// `deadline`, kills it and all processes that it started. The program's standard output is shown
/// as messages, because that of this process may be JSON.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if the program does not exist; with [`Kind::Io`] if the program
/// failed or was killed.
fn run(command: &mut Command, input: &str, deadline: Duration) -> Result<()> {
    let name = PathBuf::from(command.get_program());
    let limits = ProgramLimits { deadline: Some(deadline), ..ProgramLimits::default() };
    let ran = process::run(command, input.as_bytes(), &limits).map_err(|it| match it.kind() {
        Kind::NotFound => it.advice("install the program, or give its full path"),
        _ => it,
    })?;
    match ran.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let said = shown(&(ran.out + &ran.err));
            Err(Error::new(Kind::Io, format!("failed ({status}){said}")).at(&name))
        }
        None => {
            let what = format!(
                "the program did not end within {} s and was killed",
                deadline.as_secs_f64()
            );
            Err(Error::new(Kind::Io, what).at(&name).advice(
                "find out why the program hangs, or give it more time with --deadline; the program \
                 is not run again for this event",
            ))
        }
    }
}

/// The last part of a program's output.
fn shown(said: &str) -> String {
    let from = said.len().saturating_sub(SHOWN_BYTES);
    match String::from_utf8_lossy(&said.as_bytes()[from..]).trim() {
        "" => String::new(),
        text => format!(": {}", escape::text(text)),
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_testing::shell;

    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let error =
            run(&mut shell("sleep 1000 & wait"), "", Duration::from_millis(50)).unwrap_err();
        assert!(error.what().contains("killed"), "{error}");
        assert!(error.advice_text().is_some());
    }

    #[test]
    fn a_program_that_fails_is_shown_with_what_it_said() {
        let minute = Duration::from_secs(60);
        run(&mut shell("read word; test $word = in"), "in\n", minute).unwrap();
        let error = run(&mut shell("echo why >&2; exit 3"), "", minute).unwrap_err();
        assert!(error.what().contains("3") && error.what().ends_with(": why"), "{error}");
        let error = run(&mut Command::new("/no/such/program"), "", minute).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn a_mail_has_headers_and_the_event() {
        let device = PathBuf::from("/dev/b\nBcc: x");
        let mut event: ArrayEvent =
            serde_json::from_str(r#"{"what":"Fail","device":null,"slot":1,"count":null}"#).unwrap();
        event.device = Some(device);
        let text = mail("root", &Message { array: "pool", event: &event, json: "{}".into() });
        assert!(text.starts_with("To: root\nSubject: Fail event on array pool\n\n"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("Bcc")), "{text}");
    }
}
