//! A coordinator: it measures the same case on several machines and starts each run on all of them
//! together.
//!
//! ```text
//! connect --> clocks compared --> plan --> prepare --> (ready, start at an agreed instant, check)* --> clean
//! ```
//!
//! Invariants: each step is requested from all agents, and all answers are awaited. An agent is
//! lost if it closes the connection, falls silent, moves no data for too long or fails in a run. A
//! lost agent is reported, and takes no further part. After an agent is lost no further run is
//! started, because a sum over fewer machines is not comparable. An agent that fails before the
//! first run ends the measurement with its error.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;

use super::clocks::ClockOffset;
use super::group::{AgentGroup, EXCHANGE};
use super::merge;
use super::message::{AgentReply, AgentRequest, Assignment, Planned};
use super::remote::Remote;
use super::ticks::nanos;
use super::token::Token;
use crate::result::{Host, Parameter, Part, Run, Variant};
use crate::run::{Live, PlaceNo, Runner, VariantNo, VariantSpec};

/// The number of exchanges that compare clocks, at the beginning and before each run.
const EXCHANGES: usize = 16;
const EXCHANGES_AGAIN: usize = 4;
/// Two clocks drift apart by less than a millisecond in this time (at 100 ppm), so a comparison of
/// clocks is valid for this long.
const COMPARED_HOLDS: Duration = Duration::from_secs(10);
/// The time between the start message and the start of the run, in addition to the transmission
/// time of the message; it is allowed for each agent.
const START_MARGIN: Duration = Duration::from_millis(20);
const START_MARGIN_EACH: Duration = Duration::from_micros(200);

/// Parameters that name the place of a variant: each machine has its own place.
const PLACES: [&str; 3] = ["dir", "device", "tree"];

/// How a coordinator treats its agents.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    /// The program and its version, which all agents must have.
    pub program: String,
    /// An agent that moves no data or does not answer for this time is lost.
    pub timeout: Duration,
    /// Whether runs that other programs disturbed count.
    pub accepts_noise: bool,
}

/// A coordinator of several agents that measure the same case.
pub struct Coordinator {
    group: AgentGroup,
    terms: CoordinatorOptions,
    compared_at: Instant,
    began: Instant,
    notes: Vec<String>,
}

impl Coordinator {
    /// Connects to all agents, compares their clocks with the clock of this machine, and lets the
    /// agents plan. An interrupt sets `stop`.
    ///
    /// # Errors
    /// The errors of [`AgentGroup::connect`] and of the case, with the name of the agent;
    /// [`Kind::Usage`] for agents that would not measure the same.
    pub fn connect(
        addresses: &[String],
        token: &Token,
        asked: &Assignment,
        terms: CoordinatorOptions,
        stop: &'static Stop,
    ) -> Result<Coordinator> {
        let mut group = AgentGroup::connect(addresses, token, terms.timeout, stop)?;
        group.compare_clocks(EXCHANGES)?;
        for remote in &mut group.remotes {
            remote.first_clock = remote.clock;
        }
        let now = Instant::now();
        let mut cluster =
            Coordinator { group, terms, compared_at: now, began: now, notes: Vec::new() };
        cluster.plan(asked)?;
        Ok(cluster)
    }

    /// Descriptions of what agents will create and overwrite, for people.
    pub fn intents(&self) -> Vec<String> {
        let of_one = |(address, planned): (&String, &Planned)| -> Vec<String> {
            planned.intents.iter().map(|it| format!("{it} (at {address})")).collect()
        };
        self.planned().into_iter().flat_map(of_one).collect()
    }

    /// What each agent planned, by its address.
    fn planned(&self) -> Vec<(&String, &Planned)> {
        let all = self.group.remotes.iter();
        all.filter_map(|it| Some((&it.address, it.planned.as_ref()?))).collect()
    }

    fn plan(&mut self, asked: &Assignment) -> Result<()> {
        let first_seed = asked.seed;
        let ask = |number: usize| {
            // Each machine has chance of its own.
            let seed = first_seed.wrapping_add(number as u64);
            AgentRequest::Plan(Assignment { seed, ..asked.clone() })
        };
        for (number, answer) in self.group.ask_all(&ask, None)?.into_iter().enumerate() {
            match answer {
                Some(AgentReply::Planned(planned)) => {
                    self.group.remotes[number].planned = Some(*planned)
                }
                _ => return Err(self.group.lost_before(number)),
            }
        }
        check_alike(&self.planned(), &self.terms.program)?;
        self.notes = notes_of_all(&self.planned());
        Ok(())
    }

    /// Prepares a variant, runs it at the same instant on all machines, and checks it.
    fn run_together(
        &mut self,
        variant: VariantNo,
        order: u64,
        is_warm_up: bool,
        live: &Live,
    ) -> Result<Vec<Part>> {
        self.group.goes_on = true;
        if self.compared_at.elapsed() >= COMPARED_HOLDS {
            self.group.compare_clocks(EXCHANGES_AGAIN)?;
            self.compared_at = Instant::now();
        }
        self.group.ask_all(&|_| AgentRequest::Ready { variant: variant.0 }, Some(live))?;
        let clocks: Vec<Option<ClockOffset>> =
            self.group.remotes.iter().map(|it| it.clock).collect();
        let farthest = clocks.iter().flatten().map(|it| it.round_trip_ns).max().unwrap_or(0);
        let way = Duration::from_nanos(farthest).min(EXCHANGE) * 4;
        let each = START_MARGIN_EACH * self.group.remotes.len() as u32;
        let start_ns = nanos(Instant::now() + START_MARGIN + way + each);
        let start = |number: usize| AgentRequest::Start {
            order,
            at_ns: clocks[number].map_or(start_ns, |it| it.theirs(start_ns)),
            is_warm_up,
        };
        let ran = self.group.ask_all(&start, Some(live))?;
        self.group.ask_all(&|_| AgentRequest::Check, Some(live))?;
        if !self.group.remotes.iter().any(Remote::is_there) {
            return Err(self.group.all_lost());
        }
        let part = |(number, answer): (usize, Option<AgentReply>)| {
            let lost = Part { host: number, began_s: 0.0, run: None };
            match (answer, clocks[number]) {
                (Some(AgentReply::Ran { began_ns, run }), Some(clock))
                    if self.group.remotes[number].is_there() =>
                {
                    let began = clock.ours(began_ns) - i128::from(start_ns);
                    Part { began_s: began as f64 / 1e9, run: run.map(|it| *it), ..lost }
                }
                _ => lost,
            }
        };
        Ok(ran.into_iter().enumerate().map(part).collect())
    }
}

impl Runner for Coordinator {
    fn parameters(&self) -> Vec<Parameter> {
        let own = self.group.remotes.first().and_then(|it| it.planned.as_ref());
        let own = own.map(|it| it.parameters.clone()).unwrap_or_default();
        let names: Vec<&str> = self.group.remotes.iter().map(|it| it.address.as_str()).collect();
        own.into_iter().chain([Parameter::new("agents", names.join(","))]).collect()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let planned = self.planned();
        let Some((_, first)) = planned.first() else { return Vec::new() };
        let is_shared = |at: usize, parameter: &Parameter| {
            planned.iter().all(|(_, own)| own.variants[at].parameters.contains(parameter))
        };
        let spec = |(at, it): (usize, &Variant)| VariantSpec {
            name: it.name.clone(),
            group: it.group.clone(),
            about: it.about.clone(),
            // The place of measurement on one machine is not a parameter of all.
            parameters: it.parameters.iter().filter(|own| is_shared(at, own)).cloned().collect(),
            metric: it.metric.clone(),
            place: PlaceNo::FIRST,
        };
        first.variants.iter().enumerate().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn is_exact(&self) -> bool {
        let planned = self.group.remotes.iter().filter_map(|it| it.planned.as_ref());
        planned.into_iter().all(|it| it.is_exact)
    }

    fn hosts(&self) -> Vec<Host> {
        self.group.remotes.iter().filter_map(Remote::host).collect()
    }

    fn has_ended(&self) -> bool {
        self.group.has_lost()
    }

    fn prepare(&mut self, live: &Arc<Live>) -> Result<()> {
        let answers = self.group.ask_all(&|_| AgentRequest::Prepare, Some(live))?;
        for (number, answer) in answers.into_iter().enumerate() {
            match (answer, &mut self.group.remotes[number].planned) {
                (Some(AgentReply::Done { notes }), Some(planned)) => planned.notes = notes,
                _ => return Err(self.group.lost_before(number)),
            }
        }
        self.notes = notes_of_all(&self.planned());
        Ok(())
    }

    fn warm_up(&mut self, variant: VariantNo, live: &Arc<Live>) -> Result<()> {
        self.run_together(variant, u64::MAX, true, live).map(drop)
    }

    fn run_once(&mut self, variant: VariantNo, order: u64, live: &Arc<Live>) -> Result<Run> {
        let at_s = self.began.elapsed().as_secs_f64();
        let parts = self.run_together(variant, order, false, live)?;
        let names: Vec<String> = self.group.remotes.iter().map(|it| it.address.clone()).collect();
        let doubts = self.group.remotes.iter().filter_map(|it| Some(it.clock?.doubt_ns()));
        let doubt_s = doubts.max().unwrap_or(0) as f64 / 1e9;
        let specs = self.variants();
        let spec = specs.get(variant.0);
        let spec = spec.ok_or_else(|| Error::new(Kind::Usage, "this variant does not exist"))?;
        let mut run = merge::merged(&spec.metric, parts, &names, doubt_s);
        (run.order, run.at_s) = (order, at_s);
        if self.terms.accepts_noise {
            run.accept_noise();
        }
        Ok(run)
    }

    fn clean(&mut self) -> Result<()> {
        self.group.leave()
    }
}

/// Fails if the agents would measure different things, or something else than this program would.
fn check_alike(planned: &[(&String, &Planned)], program: &str) -> Result<()> {
    let Some((first_address, first)) = planned.first() else { return Ok(()) };
    for (address, own) in planned {
        if own.program != program {
            let error =
                Error::new(Kind::Unsupported, "the agent runs a different version of pinstripe");
            let error = error.at(address.as_str()).expected(program, &own.program);
            return Err(error.advice("use the same version of pinstripe on all machines"));
        }
        let variants = own.variants.iter().zip(&first.variants);
        let is_same = own.is_exact == first.is_exact
            && own.variants.len() == first.variants.len()
            && variants.into_iter().all(|(own, first)| is_alike(own, first));
        if !is_same {
            let what = format!(
                "this agent and the agent {first_address} would measure different variants"
            );
            let error = Error::new(Kind::Usage, what).at(address.as_str());
            return Err(error.advice("give directories that have the same paths on all machines"));
        }
    }
    Ok(())
}

/// Whether two machines would measure the same variant, each in its own place.
fn is_alike(own: &Variant, first: &Variant) -> bool {
    let settings = |it: &Variant| -> Vec<Parameter> {
        let all = it.parameters.iter().filter(|own| !PLACES.contains(&own.name.as_str()));
        all.cloned().collect()
    };
    (&own.name, &own.group, &own.metric) == (&first.name, &first.group, &first.metric)
        && settings(own) == settings(first)
}

/// Returns the notes of all agents; a note that only some agents have names these agents.
fn notes_of_all(planned: &[(&String, &Planned)]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for (address, own) in planned {
        for note in &own.notes {
            let is_shared = planned.iter().all(|(_, it)| it.notes.contains(note));
            let line = if is_shared { note.clone() } else { format!("{address}: {note}") };
            if !notes.contains(&line) {
                notes.push(line);
            }
        }
    }
    notes
}
