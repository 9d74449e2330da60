//! A coordinator's connection to one agent: a thread that reads, one that sends a heartbeat every
//! second, and the facts known about the machine.

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
    /// An agent has said this; when it came.
    AgentReply(usize, AgentReply, Instant),
    /// An agent is gone.
    Gone(usize, Error),
    /// The user wants it to end.
    Interrupted,
}

/// One agent.
pub struct Remote {
    /// As it was named.
    pub address: String,
    /// None once it was lost.
    link: Option<Arc<Link>>,
    /// The plan.
    pub planned: Option<Planned>,
    /// The clock at first, which is what results keep.
    pub first_clock: Option<ClockOffset>,
    /// The clock as it was compared last.
    pub clock: Option<ClockOffset>,
    /// Why it was lost.
    pub lost: Option<String>,
    /// Bytes and things that it has said to have moved.
    pub moved: (u64, u64),
    /// When it last moved anything, or was asked.
    pub moved_at: Instant,
    /// When it last reported that it is alive, without having moved more data.
    pub idle_at: Option<Instant>,
    threads: Vec<JoinHandle<()>>,
}

impl Remote {
    /// An agent with a connection; its messages are delivered with its number. `over` ends the
    /// heartbeat.
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

    /// Whether it is still there.
    pub fn is_there(&self) -> bool {
        self.link.is_some()
    }

    /// Asks it for something.
    ///
    /// # Errors
    /// [`Kind::Io`] when it is gone.
    pub fn ask(&mut self, ask: &AgentRequest) -> Result<()> {
        let gone = || Error::new(Kind::Io, "is gone");
        let link = self.link.as_ref().ok_or_else(gone)?;
        self.moved_at = Instant::now();
        self.idle_at = None;
        link.send(&message::encode(ask)?)
    }

    /// Gives it up. What it does then it ends by itself, as its coordinator is gone.
    pub fn lose(&mut self, why: &Error) {
        if let Some(link) = self.link.take() {
            link.close();
            self.lost = Some(why.to_string());
        }
    }

    /// Ends the connection in order.
    pub fn leave(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }

    /// Waits for its threads, whose connection was closed and whose beat was ended.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // They pass on messages and nothing more: a panic would be no reason to fail.
            let _ = thread.join();
        }
    }

    /// The host as results record it; `None` before it has planned.
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
