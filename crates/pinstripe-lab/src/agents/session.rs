//! A coordinator's session at an agent: the agent carries out its requests one after the other.
//!
//! ```text
//! reader thread --asks--> this thread: plan, prepare, ready, start, check, clean --answers-->
//!   clock: answered at once; stop, silence, end of the connection: the run is told to end
//! beat thread: every second, that the agent is there and what it has moved
//! ```
//!
//! Invariants: a session ends when its coordinator sends nothing for [`SILENCE`], or closes the
//! connection; whatever the reason, the case is stopped, and the files that it created are removed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;

use super::link::Link;
use super::message::{self, AgentError, AgentReply, AgentRequest, Assignment, Planned};
use super::permits::Permits;
use super::ticks::{nanos, wall_ahead_ns};
use crate::cases::refuse_plan_without_room;
use crate::fingerprint::Fingerprint;
use crate::result::{Run, Sample, Variant};
use crate::run::{self, Effort, Live, Plan, Readied, VariantNo};

/// The longest silence of a coordinator before its session ends.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);
/// The time between two heartbeats of the agent.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// A start that is further in the future than this is due to a mistake about clocks.
const FARTHEST_START: Duration = Duration::from_secs(60);
/// The most samples of a run that are sent.
const SAMPLES: usize = 300;
/// The most requests that wait; a coordinator waits for each answer before its next request.
const WAITING: usize = 2;

/// A session.
pub(crate) struct AgentSession<'a> {
    link: &'a Link,
    /// The actions permitted to the coordinator.
    permits: &'a Permits,
    /// The program and its version.
    program: &'a str,
    /// Ends the work in progress.
    stop: &'a Stop,
    live: Arc<Live>,
    work: Option<PlannedCase>,
}

/// The case that was planned.
struct PlannedCase {
    plan: Box<dyn Plan>,
    station: run::Station,
    is_prepared: bool,
    /// The variant that was prepared, until it is run.
    ready: Option<(VariantNo, Readied)>,
    /// The variant that was run, until it is checked.
    ran: Option<VariantNo>,
}

impl AgentSession<'_> {
    /// Serves a coordinator until it disconnects. The function `began` is called with the name of
    /// each case.
    ///
    /// # Errors
    /// Returns the reason for the end of the session, unless the coordinator closed it with no work
    /// left; fails if files could not be removed.
    pub fn serve(
        link: &Link,
        permits: &Permits,
        program: &str,
        began: &dyn Fn(&str),
    ) -> Result<()> {
        let (stop, over) = (Stop::new()?, Stop::new()?);
        let live = Arc::new(Live::new(Arc::clone(stop.as_flag())));
        let mut session = AgentSession {
            link,
            permits,
            program,
            stop: &stop,
            live: Arc::clone(&live),
            work: None,
        };
        let (asks, asked) = sync_channel(WAITING);
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(link, &stop, asks));
            scope.spawn(|| beat(link, &over, &live));
            let answered = session.answer_all(&asked, began);
            // The reader waits for the coordinator, which has no more to say where this was an error.
            if answered.is_err() {
                link.close();
            }
            let was_idle = session.work.is_none();
            let cleaned = session.clean();
            over.set();
            drop(asked);
            let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let gone = if was_idle && read.kind() == Kind::Io { Ok(()) } else { Err(read) };
            cleaned.and(answered).and(gone)
        })
    }

    /// Answers requests until no more arrive.
    fn answer_all(&mut self, asked: &Receiver<AgentRequest>, began: &dyn Fn(&str)) -> Result<()> {
        while let Ok(ask) = asked.recv() {
            let answer = self.answer(ask, began);
            let answer =
                answer.unwrap_or_else(|error| AgentReply::Failed(AgentError::from_error(&error)));
            self.link.send(&message::encode(&answer)?)?;
        }
        Ok(())
    }

    fn answer(&mut self, ask: AgentRequest, began: &dyn Fn(&str)) -> Result<AgentReply> {
        match ask {
            AgentRequest::Plan(assignment) => {
                let planned = self.plan(&assignment)?;
                began(&assignment.case);
                Ok(AgentReply::Planned(Box::new(planned)))
            }
            AgentRequest::Prepare => self.prepare(),
            AgentRequest::Ready { variant } => self.ready(VariantNo(variant)),
            AgentRequest::Start { order, at_ns, is_warm_up } => {
                self.start(order, at_ns, is_warm_up)
            }
            AgentRequest::Check => self.check(),
            AgentRequest::Clean => self.clean().map(|()| AgentReply::Done { notes: Vec::new() }),
            // The reader has answered these.
            AgentRequest::Alive | AgentRequest::Stop | AgentRequest::Clock => {
                Ok(AgentReply::Done { notes: Vec::new() })
            }
        }
    }

    fn plan(&mut self, asked: &Assignment) -> Result<Planned> {
        if self.work.is_some() {
            return Err(out_of_turn("plan a second case"));
        }
        let permitted = self.permits.check(asked)?;
        let plan = (permitted.case.plan)(&permitted.setting, &permitted.values)?;
        refuse_plan_without_room(plan.as_ref())?;
        plan.may_begin()?;
        let patience = Duration::try_from_secs_f64(asked.patience_s)
            .map_err(|_| Error::new(Kind::Usage, "the timeout is not a valid number of seconds"))?;
        let effort = Effort { patience, ..Effort::default() };
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let planned = Planned {
            program: self.program.to_owned(),
            name,
            fingerprint: Fingerprint::take(&plan.places()),
            parameters: plan.parameters(),
            variants: plan.variants().into_iter().map(Variant::from).collect(),
            is_exact: plan.is_exact(),
            intents: plan.intents(),
            notes: plan.notes(),
        };
        let station = run::Station::new(plan.as_ref(), &effort);
        self.work = Some(PlannedCase { plan, station, is_prepared: false, ready: None, ran: None });
        Ok(planned)
    }

    fn prepare(&mut self) -> Result<AgentReply> {
        let work = self.work.as_mut().filter(|it| !it.is_prepared);
        let work = work.ok_or_else(|| out_of_turn("prepare"))?;
        work.plan.prepare(&self.live)?;
        work.station.settle(work.plan.as_ref());
        work.is_prepared = true;
        Ok(AgentReply::Done { notes: work.plan.notes() })
    }

    fn ready(&mut self, variant: VariantNo) -> Result<AgentReply> {
        let work = self.work.as_mut().filter(|it| it.is_prepared && it.ran.is_none());
        let work = work.ok_or_else(|| out_of_turn("prepare a run"))?;
        if variant.0 >= work.plan.variants().len() {
            return Err(Error::new(Kind::Usage, "this variant does not exist"));
        }
        let readied = work.station.ready(work.plan.as_mut(), variant, &self.live)?;
        work.ready = Some((variant, readied));
        Ok(AgentReply::Done { notes: Vec::new() })
    }

    fn start(&mut self, order: u64, at_ns: u64, is_warm_up: bool) -> Result<AgentReply> {
        let work = self.work.as_mut().ok_or_else(|| out_of_turn("start a run"))?;
        let (variant, readied) = work.ready.take().ok_or_else(|| out_of_turn("start a run"))?;
        let mut began_ns = 0;
        let (stop, live) = (self.stop, &self.live);
        let mut start = || {
            let left = Duration::from_nanos(at_ns.saturating_sub(nanos(Instant::now())));
            if left > FARTHEST_START {
                let error = Error::new(
                    Kind::Usage,
                    "the coordinator requested a start time for the run that is too far in the \
                     future",
                );
                return Err(
                    error.expected(format!("within {FARTHEST_START:?}"), format!("{left:?}"))
                );
            }
            stop.wait(left);
            live.check()?;
            began_ns = nanos(Instant::now());
            Ok(())
        };
        let plan = work.plan.as_mut();
        let run = work.station.run(plan, variant, order, readied, live, &mut start)?;
        work.ran = Some(variant);
        let run = (!is_warm_up).then(|| Box::new(kept(run)));
        Ok(AgentReply::Ran { began_ns, run })
    }

    fn check(&mut self) -> Result<AgentReply> {
        let work = self.work.as_mut().ok_or_else(|| out_of_turn("check a run"))?;
        let variant = work.ran.take().ok_or_else(|| out_of_turn("check a run"))?;
        work.plan.check(variant, &self.live)?;
        Ok(AgentReply::Done { notes: Vec::new() })
    }

    /// Removes what the case created; afterwards the session has no case.
    fn clean(&mut self) -> Result<()> {
        self.work.take().map_or(Ok(()), |mut work| work.plan.clean())
    }
}

/// Reduces a run to what is sent.
fn kept(run: Run) -> Run {
    Run { samples: Sample::coarser(&run.samples, SAMPLES), ..run }
}

fn out_of_turn(what: &str) -> Error {
    Error::new(Kind::Usage, format!("the coordinator is not permitted to {what} now"))
}

/// Reads the coordinator's messages until the connection ends, and returns the reason for its end.
/// Before it returns, it stops the work in progress.
fn read(link: &Link, stop: &Stop, asks: SyncSender<AgentRequest>) -> Error {
    let turn = || -> Result<()> {
        let (payload, came) = link.receive(SILENCE)?;
        match message::decode_ask(&payload)? {
            AgentRequest::Alive => Ok(()),
            AgentRequest::Stop => {
                stop.set();
                Ok(())
            }
            AgentRequest::Clock => {
                let (received_ns, wall_ahead_ns) = (nanos(came), wall_ahead_ns());
                let answered_ns = nanos(Instant::now());
                let clock = AgentReply::Clock { received_ns, answered_ns, wall_ahead_ns };
                link.send(&message::encode(&clock)?)
            }
            ask => asks.try_send(ask).map_err(|_| {
                out_of_turn(
                    "send another request before the \
                                                               answer",
                )
            }),
        }
    };
    loop {
        if let Err(error) = turn() {
            stop.set();
            return error;
        }
    }
}

/// Sends a heartbeat every second, with the amount moved so far.
fn beat(link: &Link, over: &Stop, live: &Live) {
    while !over.wait(BEAT) {
        let alive = AgentReply::Alive { bytes: live.bytes(), items: live.items() };
        // The reader notices a connection that is gone.
        if message::encode(&alive).and_then(|it| link.send(&it)).is_err() {
            return;
        }
    }
}
