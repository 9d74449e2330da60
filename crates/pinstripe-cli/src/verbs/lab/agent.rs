//! `pinstripe lab agent`: lets coordinators on other machines measure on this one.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_lab::{Agent, AgentReport, Permits, PermittedDevice, Token};

use super::carry;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;

/// Run measurements on this machine for 'lab run --agents' on another machine
///
/// The agent runs until it is interrupted, and serves one coordinator (a 'lab run --agents') at a
/// time. Cases create files only in the directories given by --dir. If the coordinator disconnects,
/// or sends no message for 15 seconds, the agent ends the case and removes the files of the case.
/// Agent and coordinator prove to each other that they know the token, without sending the token.
/// Every message between agent and coordinator is authenticated, but not encrypted.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab agent --listen 0.0.0.0:7411 --token-file token --dir /mnt/ssd
  pinstripe lab agent --listen '[::1]:7411' --token-file token --dir /mnt/a --dir /mnt/b
  pinstripe lab run fileio --agents hosta:7411,hostb:7411 --token-file token

To create a token for all machines, run: openssl rand -hex 32 > token && chmod 600 token")]
pub struct LabAgentArgs {
    /// Address and port on which the agent listens; port 0 means any free port
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,

    /// The file that contains the token (at least 32 bytes); only the owner of the file may have
    /// access to it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: PathBuf,

    /// Directory in which cases may work; may be given more than once, and the first directory is
    /// the default
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    dir: Vec<PathBuf>,

    /// Device that cases may overwrite, with its serial number; may be given more than once
    ///
    /// Before each case, the agent examines the device in the same way as 'lab run --device': the
    /// device must be unused and blank. The serial number of a loop device is the path of the file
    /// behind it.
    #[arg(long, value_name = "DEV=SERIAL", value_parser = device)]
    allow_device: Vec<PermittedDevice>,

    /// Ceph pool to which cases may write objects; may be given more than once
    #[arg(long, value_name = "POOL")]
    allow_ceph: Vec<String>,
}

fn device(text: &str) -> std::result::Result<PermittedDevice, String> {
    match text.split_once('=') {
        Some((path, serial)) if !path.is_empty() && !serial.is_empty() => {
            Ok(PermittedDevice { path: path.into(), serial: serial.to_owned() })
        }
        _ => Err("write a device and its serial number, for example /dev/sdb=S3Z9NB0K".to_owned()),
    }
}

impl LabAgentArgs {
    /// Serves coordinators until an interrupt.
    ///
    /// # Errors
    /// Fails with the errors of the token, of the directories and of [`Agent::bind`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let token = Token::read(&self.token_file)?;
        let permits = Permits::new(&self.dir, self.allow_device.clone(), self.allow_ceph.clone())?;
        let dirs: Vec<String> = permits.dirs().iter().map(|dir| escape::path(dir)).collect();
        let stop = signals::catch()?;
        let agent = Agent::bind(&self.listen, token, permits, &carry::program())?;
        let address = agent.address()?.to_string();
        run.screen
            .say(&format!("listening at {address}; working directories: {}", dirs.join(", ")));
        run.screen.event(&event("listening").with("address", address))?;
        run.screen.flush();
        agent.serve(stop, &|told| report(run, &told))?;
        run.screen.say("stopped");
        Ok(Ending::done(Event::default()))
    }
}

fn event(state: &str) -> Event {
    Event::new("lab_agent").with("state", state)
}

/// Reports an event. Prints a report of the agent; text from peers is escaped, because it may
/// contain anything.
fn report(run: &Run, told: &AgentReport) {
    let (line, event) = match told {
        AgentReport::Began { peer, case } => {
            let event = event("began").with("peer", peer.as_str()).with("case", case.as_str());
            (format!("{peer} started the case {case}"), event)
        }
        AgentReport::Ended { peer, why } => {
            let event = event("ended").with("peer", peer.as_str());
            let because = why.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            (format!("{peer} has disconnected{because}"), event.with_some("why", why.clone()))
        }
        AgentReport::Refused { peer, why } => {
            let event = event("refused").with("peer", peer.as_str()).with("why", why.as_str());
            (format!("refused a request of {peer}: {why}"), event)
        }
    };
    run.screen.say(&escape::text(&line));
    // A reader that went away is noticed at the end.
    let _ = run.screen.event(&event);
    run.screen.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_serial_number() {
        let found = device("/dev/loop0=/srv/a=b").unwrap();
        assert_eq!(
            (found.path.as_path(), found.serial.as_str()),
            ("/dev/loop0".as_ref(), "/srv/a=b")
        );
        for text in ["/dev/sdb", "/dev/sdb=", "=S3", ""] {
            assert!(device(text).is_err(), "{text}");
        }
    }
}
