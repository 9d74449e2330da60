//! The channels of alarms: a webhook, a mail command, a command.

#![allow(clippy::disallowed_methods, reason = "starts the commands of channels")]

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::hex;
use pinstripe_io::process::{self, ProgramLimits};
use serde::Serialize;

use crate::alarms::{AlarmChange, AlarmMessage, Alarms};
use crate::events::EventLog;

/// The deadline of one attempt.
const ATTEMPT: Duration = Duration::from_secs(30);
/// The time to the next attempt after the first failure; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// How often a channel checks for messages.
const POLL: Duration = Duration::from_millis(200);

/// Where alarms are sent.
#[derive(Debug, Clone, Default)]
pub struct AlarmTargets {
    /// A URL that receives the JSON of each message by POST.
    pub webhook: Option<Webhook>,
    /// A command like `sendmail -t`, which receives a mail on standard input.
    pub mail: Option<MailCommand>,
    /// A command that receives the JSON of a message on standard input.
    pub command: Option<Vec<OsString>>,
}

/// A URL, and the secret with which its messages are signed.
#[derive(Clone)]
pub struct Webhook {
    /// The URL.
    pub url: String,
    /// The key of HMAC-SHA256; without a key, messages are not signed.
    pub secret: Option<Vec<u8>>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How mails are sent.
#[derive(Debug, Clone)]
pub struct MailCommand {
    /// The addresses.
    pub to: String,
    /// The program with its arguments.
    pub command: Vec<OsString>,
}

/// The JSON of a message, as receivers see it.
#[derive(Serialize)]
struct Sent<'a> {
    id: &'a str,
    change: AlarmChange,
    subject: &'a str,
    what: &'a str,
    since_seconds: i64,
    time_seconds: i64,
    server: &'a str,
    store: &'a str,
}

/// One channel.
pub(crate) enum Channel {
    Webhook(Webhook),
    Mail(MailCommand),
    Command(Vec<OsString>),
}

impl AlarmTargets {
    /// The number of channels.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels().len()
    }

    pub(crate) fn channels(&self) -> Vec<Channel> {
        let webhook = self.webhook.clone().map(Channel::Webhook);
        let mail = self.mail.clone().map(Channel::Mail);
        let command = self.command.clone().map(Channel::Command);
        [webhook, mail, command].into_iter().flatten().collect()
    }
}

impl Channel {
    pub fn name(&self) -> &'static str {
        match self {
            Channel::Webhook(_) => "webhook",
            Channel::Mail(_) => "mail",
            Channel::Command(_) => "command",
        }
    }

    async fn send(&self, message: &AlarmMessage, server: &str) -> Result<()> {
        let AlarmMessage { id, change, subject, what, since_seconds, time_seconds, .. } = message;
        let sent = Sent {
            id,
            change: *change,
            subject,
            what,
            since_seconds: *since_seconds,
            time_seconds: *time_seconds,
            server,
            store: &message.store,
        };
        let json = serde_json::to_vec(&sent)
            .map_err(|error| Error::new(Kind::Io, format!("cannot encode: {error}")))?;
        match self {
            Channel::Webhook(webhook) => post(webhook, json).await,
            Channel::Mail(MailCommand { to, command }) => {
                run(command, mail(to, server, message).into_bytes()).await
            }
            Channel::Command(command) => run(command, json).await,
        }
    }
}

/// The signature of a body: `sha256=` and the HMAC-SHA256 in hex.
fn signature(secret: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    format!("sha256={}", hex(tag.as_ref()))
}

async fn post(webhook: &Webhook, body: Vec<u8>) -> Result<()> {
    let failed = |error: reqwest::Error| {
        // The URL may contain a secret.
        let error = error.without_url();
        Error::new(Kind::Io, format!("the webhook did not take the message: {error}"))
    };
    let client = reqwest::Client::builder().timeout(ATTEMPT).build().map_err(failed)?;
    let mut request = client.post(&webhook.url).header("Content-Type", "application/json");
    if let Some(secret) = &webhook.secret {
        request = request.header("Pinstripe-Signature", signature(secret, &body));
    }
    let answer = request.body(body).send().await.map_err(failed)?;
    answer.error_for_status().map(drop).map_err(failed)
}

/// A mail with its header, as `sendmail -t` expects it.
fn mail(to: &str, server: &str, message: &AlarmMessage) -> String {
    let AlarmMessage { subject, what, change, .. } = message;
    let word = match change {
        AlarmChange::Raised => "ALARM",
        AlarmChange::Cleared => "cleared",
    };
    // A name with a line break must not add a header.
    let line = |text: &str| text.replace(['\r', '\n'], " ");
    format!(
        "To: {}\nSubject: pinstripe {}: {word}: {}\nContent-Type: text/plain; charset=utf-8\n\n\
         {word}: {}: {}\n\nserver: {server}\nstore: {}\nid: {}\n",
        line(to),
        line(server),
        line(subject),
        line(subject),
        line(what),
        message.store,
        message.id,
    )
}

/// Runs a command with a text on its standard input; the exit code 0 means that it took the text.
async fn run(command: &[OsString], input: Vec<u8>) -> Result<()> {
    let command = command.to_vec();
    let ran = tokio::task::spawn_blocking(move || run_to_end(&command, &input)).await;
    ran.map_err(|_| Error::new(Kind::Io, "the server is ending"))?
}

fn run_to_end(command: &[OsString], input: &[u8]) -> Result<()> {
    let mut program = Command::new(&command[0]);
    let limits = ProgramLimits { deadline: Some(ATTEMPT), ..ProgramLimits::default() };
    let ran = process::run(program.args(&command[1..]), input, &limits)?;
    match ran.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Error::new(Kind::Io, format!("the command ended with {status}"))),
        None => Err(Error::new(Kind::Io, "the command did not end in time")),
    }
}

/// Sends the messages of alarms through one channel, each until it is taken.
pub(crate) async fn deliver(
    alarms: Arc<Alarms>,
    events: Arc<EventLog>,
    channel: Channel,
    channels: Vec<&'static str>,
    server: String,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(message) = alarms.unsent(channel.name()) else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        let sent = channel.send(&message, &server).await;
        match sent.and_then(|()| alarms.taken(&message.id, channel.name(), &channels)) {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) => {
                if pause == FIRST_PAUSE {
                    let (name, subject) = (channel.name(), &message.subject);
                    events.add(true, format!("no alarm about {subject} by {name}: {error}"));
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(subject: &str) -> AlarmMessage {
        AlarmMessage {
            id: "07".to_owned(),
            change: AlarmChange::Raised,
            subject: subject.to_owned(),
            what: "is overdue".to_owned(),
            since_seconds: 5,
            time_seconds: 6,
            store: "ab".to_owned(),
            taken_by: Vec::new(),
        }
    }

    /// The second test case of RFC 4231.
    #[test]
    fn signatures_are_hmac_sha256() {
        assert_eq!(
            signature(b"Jefe", b"what do ya want for nothing?"),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_name_adds_no_header_to_a_mail() {
        let mail = mail("ops@example.org", "a:1", &message("host x\nBcc: all@example.org"));
        let (head, body) = mail.split_once("\n\n").unwrap();
        assert_eq!(head.lines().count(), 3, "{head}");
        assert!(body.starts_with("ALARM: host x Bcc: all@example.org: is overdue\n"), "{body}");
    }

    #[test]
    fn the_exit_code_of_a_command_decides() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let shell = |script: &str| ["sh", "-c", script].map(OsString::from).to_vec();
        run_to_end(&shell(&format!("cat > {}", out.display())), b"text").unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), b"text");
        run_to_end(&shell("exit 0"), b"text").unwrap();
        assert_eq!(run_to_end(&shell("exit 3"), b"text").unwrap_err().kind(), Kind::Io);
        assert!(run_to_end(&["/no/such/program".into()], b"text").is_err());
    }
}
