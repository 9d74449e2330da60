//! The agents of a coordinator as one group: a request goes to all agents, all answers are awaited,
//! and agents are given up one by one.
//!
//! Invariants: every call of this module ends by a deadline, whatever agents do; a lost agent gets
//! no more requests; an interrupt ends the work of all agents, and the call waits for that end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, wait_readable};

use super::clocks::{ClockOffset, Exchange};
use super::link::Link;
use super::message::{AgentReply, AgentRequest};
use super::remote::{Heard, Remote};
use super::session::SILENCE;
use super::ticks::{nanos, wall_ahead_ns};
use super::token::Token;
use crate::run::Live;

/// The most agents of one coordinator.
pub(crate) const MOST_AGENTS: usize = 256;
/// The time limit for one exchange that compares clocks.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(5);
/// The longest wait for an agent after an interrupt.
const INTERRUPTED: Duration = Duration::from_secs(15);
/// The most messages from agents that wait to be processed. If there are more, the threads that
/// read from agents wait, and so do the agents.
const HEARD: usize = 1024;

/// The agents of a coordinator.
pub(crate) struct AgentGroup {
    /// The connections to agents, in the order in which the user named the agents.
    pub remotes: Vec<Remote>,
    heard: Receiver<Heard>,
    /// An agent that moves no data or does not answer for this time is lost.
    timeout: Duration,
    /// Ends the threads.
    over: Arc<Stop>,
    waker: Option<JoinHandle<()>>,
    is_interrupted: bool,
    /// Whether the failure of an agent only loses that agent; before this is set, such a failure
    /// ends the measurement.
    pub goes_on: bool,
}

impl AgentGroup {
    /// Connects to all agents. An interrupt sets `stop`.
    ///
    /// # Errors
    /// The errors of [`Link::connect`], with the name of the agent; [`Kind::Usage`] for too many
    /// agents, and for an agent that is named twice.
    pub fn connect(
        addresses: &[String],
        token: &Token,
        timeout: Duration,
        stop: &'static Stop,
    ) -> Result<AgentGroup> {
        check_addresses(addresses)?;
        let links = connect_all(addresses, token)?;
        let (tell, heard) = sync_channel(HEARD);
        let over = Arc::new(Stop::new()?);
        let silence = SILENCE.min(timeout);
        let remotes = addresses.iter().zip(links).enumerate();
        let remotes = remotes.map(|(number, (address, link))| {
            Remote::new(number, address, link, silence, &tell, &over)
        });
        let remotes = remotes.collect();
        let waker = {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Without memory to wait with, an interrupt is noticed before the next step.
                let _ = wait_readable(&[stop.as_fd(), over.as_fd()], None);
                if stop.is_set() {
                    let _ = tell.send(Heard::Interrupted);
                }
            })
        };
        let (waker, is_interrupted, goes_on) = (Some(waker), false, false);
        Ok(AgentGroup { remotes, heard, timeout, over, waker, is_interrupted, goes_on })
    }

    /// Whether an agent was lost.
    pub fn has_lost(&self) -> bool {
        self.remotes.iter().any(|it| it.lost.is_some())
    }

    /// Compares the clocks of all agents with the clock of this machine, by this number of
    /// exchanges with each agent.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] after an interrupt; before the first run, the error of an agent.
    pub(crate) fn compare_clocks(&mut self, exchanges: usize) -> Result<()> {
        let our_wall_ns = i128::from(wall_ahead_ns());
        for number in 0..self.remotes.len() {
            let mut found = Vec::new();
            while found.len() < exchanges && self.remotes[number].is_there() {
                match self.exchange(number) {
                    Ok(one) => found.push(one),
                    Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                    Err(error) => self.lose(number, &error)?,
                }
            }
            if !self.remotes[number].is_there() {
                continue;
            }
            match ClockOffset::from_exchanges(&found, our_wall_ns) {
                Some(difference) => self.remotes[number].clock = Some(difference),
                None => {
                    let error = Error::new(Kind::Corrupt, "the agent reported impossible times");
                    self.lose(number, &error)?;
                }
            }
        }
        Ok(())
    }

    fn exchange(&mut self, number: usize) -> Result<Exchange> {
        let sent = Instant::now();
        self.remotes[number].ask(&AgentRequest::Clock)?;
        let deadline = sent + EXCHANGE;
        loop {
            match self.hear(deadline)? {
                Some(Heard::AgentReply(
                    from,
                    AgentReply::Clock { received_ns, answered_ns, wall_ahead_ns },
                    at,
                )) if from == number => {
                    return Ok(Exchange {
                        sent_ns: nanos(sent),
                        received_ns,
                        answered_ns,
                        came_ns: nanos(at),
                        their_wall_ns: wall_ahead_ns,
                    });
                }
                Some(Heard::AgentReply(_, AgentReply::Alive { .. }, _)) => {}
                Some(Heard::AgentReply(from, answer, _)) => {
                    let error = unexpected(&answer);
                    if from == number {
                        return Err(error);
                    }
                    self.lose(from, &error)?;
                }
                Some(Heard::Gone(from, error)) if from == number => return Err(error),
                Some(Heard::Gone(from, error)) => self.lose(from, &error)?,
                Some(Heard::Interrupted) => return Err(interrupted()),
                None => {
                    return Err(Error::new(
                        Kind::Unanswered,
                        "the agent did not report its time of day",
                    ));
                }
            }
        }
    }

    /// Returns the next message that arrives before the deadline.
    fn hear(&mut self, deadline: Instant) -> Result<Option<Heard>> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.heard.recv_timeout(left) {
            Ok(Heard::Interrupted) => {
                self.is_interrupted = true;
                Ok(Some(Heard::Interrupted))
            }
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(Kind::Io, "the connections to all agents are lost"))
            }
        }
    }

    /// Gives an agent up.
    ///
    /// # Errors
    /// Before the first run, losing an agent is an error, because the run then cannot include all
    /// agents.
    fn lose(&mut self, number: usize, why: &Error) -> Result<()> {
        let was_there = self.remotes[number].is_there();
        self.remotes[number].lose(why);
        match self.goes_on || !was_there {
            true => Ok(()),
            false => Err(at(&self.remotes[number].address, why)),
        }
    }

    /// Returns the reason why an agent gave no answer, as the error that ends the measurement.
    pub(crate) fn lost_before(&self, number: usize) -> Error {
        let remote = &self.remotes[number];
        let why =
            remote.lost.clone().unwrap_or_else(|| "the agent sent an unexpected answer".to_owned());
        Error::new(Kind::Unanswered, format!("{}: {why}", remote.address))
    }

    /// Sends a request to all agents that are not lost, and waits for each answer; the answer of a
    /// lost agent is `None`.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] after an interrupt, when all agents have ended their work; before the
    /// first run, the error of an agent.
    pub fn ask_all(
        &mut self,
        ask: &dyn Fn(usize) -> AgentRequest,
        live: Option<&Live>,
    ) -> Result<Vec<Option<AgentReply>>> {
        if self.is_interrupted || live.is_some_and(Live::is_stopped) {
            return Err(interrupted());
        }
        let asked = self.send_all(ask)?;
        let answers = self.gather(asked, live)?;
        match self.is_interrupted {
            true => Err(interrupted()),
            false => Ok(answers),
        }
    }

    /// Sends a request to all agents that are not lost; returns the request sent to each.
    fn send_all(
        &mut self,
        ask: &dyn Fn(usize) -> AgentRequest,
    ) -> Result<Vec<Option<AgentRequest>>> {
        let mut asked: Vec<Option<AgentRequest>> = Vec::new();
        for number in 0..self.remotes.len() {
            let ask = self.remotes[number].is_there().then(|| ask(number));
            if let Some(error) = ask.as_ref().and_then(|it| self.remotes[number].ask(it).err()) {
                self.lose(number, &error)?;
            }
            asked.push(ask);
        }
        Ok(asked)
    }

    /// Waits for an answer from each agent that was asked and is not lost.
    fn gather(
        &mut self,
        mut open: Vec<Option<AgentRequest>>,
        live: Option<&Live>,
    ) -> Result<Vec<Option<AgentReply>>> {
        let mut answers: Vec<Option<AgentReply>> = open.iter().map(|_| None).collect();
        loop {
            let is_waited_for = |it: &usize| open[*it].is_some() && self.remotes[*it].is_there();
            let waited = (0..open.len()).filter(is_waited_for).map(|it| self.remotes[it].moved_at);
            let Some(oldest) = waited.min() else { return Ok(answers) };
            match self.hear(oldest + self.patience())? {
                Some(Heard::AgentReply(number, answer, _)) => match answer {
                    AgentReply::Alive { bytes, items } => self.moved(number, (bytes, items), live),
                    AgentReply::Failed(failure) if open[number].take().is_some() => {
                        let error = failure.error();
                        if !(self.is_interrupted && error.kind() == Kind::Interrupted) {
                            self.lose(number, &error)?;
                        }
                    }
                    answer => match open[number].take() {
                        Some(ask) if ask.is_answered_by(&answer) => answers[number] = Some(answer),
                        _ => self.lose(number, &unexpected(&answer))?,
                    },
                },
                Some(Heard::Gone(number, error)) => self.lose(number, &error)?,
                Some(Heard::Interrupted) => self.stop_all()?,
                None => self.lose_hanging(&open)?,
            }
        }
    }

    /// Records what an agent has moved since it was last asked.
    fn moved(&mut self, number: usize, (bytes, items): (u64, u64), live: Option<&Live>) {
        let remote = &mut self.remotes[number];
        let (bytes_before, items_before) = remote.moved;
        let now = Instant::now();
        if (bytes, items) == remote.moved {
            remote.idle_at = Some(now);
        } else {
            (remote.moved_at, remote.idle_at) = (now, None);
            remote.moved = (bytes, items);
        }
        if let Some(live) = live {
            live.moved(bytes.saturating_sub(bytes_before));
            live.counted(items.saturating_sub(items_before));
        }
    }

    /// The time within which an agent that was asked must move some data.
    fn patience(&self) -> Duration {
        match self.is_interrupted {
            true => self.timeout.min(INTERRUPTED),
            false => self.timeout,
        }
    }

    /// Gives up the agents that were asked and have moved nothing for too long.
    fn lose_hanging(&mut self, open: &[Option<AgentRequest>]) -> Result<()> {
        let timeout = self.patience();
        for (number, asked) in open.iter().enumerate() {
            if asked.is_some() && self.remotes[number].moved_at.elapsed() >= timeout {
                let what = match self.remotes[number].idle_at {
                    Some(_) => {
                        format!(
                            "the agent hangs: it transferred no data for {:.0} s",
                            timeout.as_secs_f64()
                        )
                    }
                    None => "the agent did not answer in time".to_owned(),
                };
                self.lose(number, &Error::new(Kind::Unanswered, what))?;
            }
        }
        Ok(())
    }

    /// Tells all agents to end their current work.
    fn stop_all(&mut self) -> Result<()> {
        self.send_all(&|_| AgentRequest::Stop).map(drop)
    }

    /// Makes all agents remove the files that they created, then disconnects. After an interrupt,
    /// which has ended the work of all agents, the files are removed as well. An agent that is lost
    /// during this call does not prevent the removal by the other agents.
    ///
    /// # Errors
    /// [`Kind::Io`] if all agents are lost.
    pub fn leave(&mut self) -> Result<()> {
        self.goes_on = true;
        let asked = self.send_all(&|_| AgentRequest::Clean);
        let cleaned = asked.and_then(|asked| self.gather(asked, None)).map(drop);
        self.over.set();
        self.remotes.iter_mut().for_each(Remote::leave);
        cleaned
    }

    /// The error that no agent is left, with the reason.
    pub(crate) fn all_lost(&self) -> Error {
        let each = self.remotes.iter().filter_map(|it| Some((&it.address, it.lost.as_ref()?)));
        let each: Vec<String> = each.map(|(address, why)| format!("{address}: {why}")).collect();
        Error::new(Kind::Unanswered, format!("all agents were lost: {}", each.join("; ")))
    }
}

impl Drop for AgentGroup {
    fn drop(&mut self) {
        self.over.set();
        self.remotes.iter_mut().for_each(Remote::leave);
        // Readers may wait to tell something.
        while self.heard.try_recv().is_ok() {}
        self.remotes.iter_mut().for_each(Remote::join);
        if let Some(waker) = self.waker.take() {
            // It passes on an interrupt and nothing more.
            let _ = waker.join();
        }
    }
}

/// Connects to all agents at the same time.
fn connect_all(addresses: &[String], token: &Token) -> Result<Vec<Link>> {
    thread::scope(|scope| {
        let connect = |address: &'_ String| {
            let address = address.clone();
            scope.spawn(move || Link::connect(&address, token).map_err(|it| at(&address, &it)))
        };
        let connecting: Vec<_> = addresses.iter().map(connect).collect();
        let joined = connecting
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

fn check_addresses(addresses: &[String]) -> Result<()> {
    let refuse = |what: String| Err(Error::new(Kind::Usage, what));
    if addresses.is_empty() || addresses.len() > MOST_AGENTS {
        return refuse(format!("a coordinator can have 1 to {MOST_AGENTS} agents"));
    }
    for (at, address) in addresses.iter().enumerate() {
        if addresses[..at].contains(address) {
            return refuse(format!("the agent {address} is given twice"));
        }
    }
    Ok(())
}

/// Adds the name of an agent to its error.
fn at(address: &str, error: &Error) -> Error {
    let what = match error.place() {
        Some(place) if place.as_os_str() == address => error.to_string(),
        _ => format!("{address}: {error}"),
    };
    let named = Error::new(error.kind(), what);
    match error.advice_text() {
        Some(advice) => named.advice(advice.to_owned()),
        None => named,
    }
}

fn unexpected(answer: &AgentReply) -> Error {
    let what = match answer {
        AgentReply::Failed(failure) => return failure.error(),
        AgentReply::Alive { .. } => "a heartbeat",
        AgentReply::Clock { .. } => "a time",
        AgentReply::Planned(_) => "a plan",
        AgentReply::Done { .. } => "a report of completed work",
        AgentReply::Ran { .. } => "the result of a run",
    };
    Error::new(Kind::Corrupt, format!("the agent sent {what}, which was not requested"))
}

fn interrupted() -> Error {
    Error::new(
        Kind::Interrupted,
        "the measurement was interrupted; its results until then are kept",
    )
}
