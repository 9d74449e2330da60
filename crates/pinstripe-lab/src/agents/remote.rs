//! A coordinator's connection to one agent: a thread that reads, a thread that sends a heartbeat
//! every second, and the known facts about the machine.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;

use super::clocks::ClockOffset;
use super::link::Link;
use super::message::{self, AgentReply, AgentRequest, Planned};
use super::session::BEAT;
use crate::result::Host;

/// Messages of the connection threads to the coordinator.
#[derive(Debug)]
pub enum Heard {
    /// An agent has sent this answer at this time.
    AgentReply(usize, AgentReply, Instant),
    /// The connection to an agent has ended.
    Gone(usize, Error),
    /// The user has interrupted the measurement.
    Interrupted,
}

/// One agent.
pub struct Remote {
    /// The address of the agent, as the user named it.
    pub address: String,
    /// The connection; `None` after the agent was lost.
    link: Option<Arc<Link>>,
    /// The plan.
    pub planned: Option<Planned>,
    /// The difference of the agent's clock at the beginning; results contain this one.
    pub first_clock: Option<ClockOffset>,
    /// The difference of the agent's clock at the latest comparison.
    pub clock: Option<ClockOffset>,
    /// Why the agent was lost.
    pub lost: Option<String>,
    /// Bytes and items that the agent has reported as moved.
    pub moved: (u64, u64),
    /// When the agent last moved anything, or was asked for something.
    pub moved_at: Instant,
    /// When the agent last reported that it is alive without having moved more data.
    pub idle_at: Option<Instant>,
    threads: Vec<JoinHandle<()>>,
}

impl Remote {
    /// An agent with a connection; its messages are delivered together with its number. Setting
    /// `over` ends the heartbeat.
    pub fn new(
        number: usize,
        address: &str,
        link: Link,
        silence: Duration,
        heard: &SyncSender<Heard>,
        over: &Arc<Stop>,
    ) -> Remote {
        let link = Arc::new(link);
        let reading = {
            let (link, heard) = (Arc::clone(&link), heard.clone());
            thread::spawn(move || {
                loop {
                    let answer = link.receive(silence);
                    let answer = answer.and_then(|(it, at)| Ok((message::decode_answer(&it)?, at)));
                    let (told, is_end) = match answer {
                        Ok((answer, at)) => (Heard::AgentReply(number, answer, at), false),
                        Err(error) => (Heard::Gone(number, error), true),
                    };
                    if heard.send(told).is_err() || is_end {
                        return;
                    }
                }
            })
        };
        let beating = {
            let (link, over) = (Arc::clone(&link), Arc::clone(over));
            thread::spawn(move || {
                while !over.wait(BEAT) {
                    let told = message::encode(&AgentRequest::Alive).and_then(|it| link.send(&it));
                    // The reader notices a connection that is gone.
                    if told.is_err() {
                        return;
                    }
                }
            })
        };
        Remote {
            address: address.to_owned(),
            link: Some(link),
            planned: None,
            first_clock: None,
            clock: None,
            lost: None,
            moved: (0, 0),
            moved_at: Instant::now(),
            idle_at: None,
            threads: vec![reading, beating],
        }
    }

    /// Whether the agent is still connected.
    pub fn is_there(&self) -> bool {
        self.link.is_some()
    }

    /// Sends a request to the agent.
    ///
    /// # Errors
    /// [`Kind::Io`] if the agent has disconnected.
    pub fn ask(&mut self, ask: &AgentRequest) -> Result<()> {
        let gone = || Error::new(Kind::Io, "is gone");
        let link = self.link.as_ref().ok_or_else(gone)?;
        self.moved_at = Instant::now();
        self.idle_at = None;
        link.send(&message::encode(ask)?)
    }

    /// Gives it up. The agent then ends its current work by itself, because its coordinator has
    /// disconnected.
    pub fn lose(&mut self, why: &Error) {
        if let Some(link) = self.link.take() {
            link.close();
            self.lost = Some(why.to_string());
        }
    }

    /// Closes the connection in the regular way.
    pub fn leave(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }

    /// Waits for the threads of the agent, after its connection was closed and its heartbeat was
    /// ended.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // They pass on messages and nothing more: a panic would be no reason to fail.
            let _ = thread.join();
        }
    }

    /// The machine as results record it; `None` before the agent has planned.
    pub fn host(&self) -> Option<Host> {
        let planned = self.planned.as_ref()?;
        Some(Host {
            address: self.address.clone(),
            name: planned.name.clone(),
            clock: self.first_clock.map(|it| it.kept()),
            fingerprint: planned.fingerprint.clone(),
            lost: self.lost.clone(),
        })
    }
}
