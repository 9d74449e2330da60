//! Carries out a plan: runs its variants in interleaved order, repeatedly, each run under the
//! guard, until the answer is narrow enough or the time has elapsed.
//!
//! Invariants: the results so far are passed on after every run (every second if runs are shorter)
//! and always at the end, so that an interrupt loses nothing; a disturbed run is kept and repeated,
//! as long as there is time. This module does not print or save results, and does not know what a
//! case does.

mod effort;
mod live;
mod mood;
mod plan;
mod runner;
mod sampler;
mod station;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Kind, Result};

use crate::fingerprint::Fingerprint;
use crate::result::{self, FORMAT, Results, Run, VERSION, Variant};

pub use effort::{Effort, Until};
pub use live::{CountedUnit, Live, Remaining, RunStage};
pub use plan::{Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use runner::Here;
pub use runner::Runner;
pub(crate) use station::{Readied, Station};

/// The shortest interval between two rounds of judging and saving, which could otherwise take
/// longer than the runs.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// A budget beyond this counts as unlimited.
const UNLIMITED: Duration = Duration::from_secs(365 * 86_400);

/// The program and the settings from which results come.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The program and its version.
    pub program: String,
    /// The command line.
    pub command: Vec<String>,
    /// The case's name.
    pub case: String,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Carries out a plan. `each` receives the results so far after every run (every second if runs are
/// shorter), and once more at the end, however the plan ends.
///
/// An interrupt (see [`Live`]) is not an error: the results say that they are incomplete.
///
/// # Errors
/// The errors of the plan and of `each`.
pub fn measure(
    plan: &mut dyn Plan,
    effort: &Effort,
    origin: &Origin,
    live: &Arc<Live>,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    measure_by(&mut Here::new(plan, effort), effort, origin, live, each)
}

/// Does the same as [`measure`], with a runner that carries out the runs on this machine or on
/// others.
///
/// # Errors
/// The errors of [`measure`].
pub fn measure_by(
    runner: &mut dyn Runner,
    effort: &Effort,
    origin: &Origin,
    live: &Arc<Live>,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    carried_out(runner, effort, origin, live, PUBLISH_EVERY, each)
}

/// Does the same as [`measure_by`], but passes on results at most once in `publish_every`.
fn carried_out(
    runner: &mut dyn Runner,
    effort: &Effort,
    origin: &Origin,
    live: &Arc<Live>,
    publish_every: Duration,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    let (warm_up, patience, budget) = (0, Duration::ZERO, Duration::MAX);
    let exact = Effort { warm_up, patience, budget, ..effort.exactly(1) };
    let effort = if runner.is_exact() { &exact } else { effort };
    let mut execution = Execution {
        effort,
        live,
        began: Instant::now(),
        prepared: Instant::now(),
        warmed: 0,
        order: 0,
        published: None,
        publish_every,
        results: begin(runner, origin),
    };
    live.enter(RunStage { label: "preparing".to_owned(), ..RunStage::default() });
    let measured = runner.prepare(live).and_then(|()| {
        execution.results.notes = runner.notes();
        execution.rounds(runner, each)
    });
    // Cleaned up after an error too; the first error is the one that is returned.
    let cleaned = runner.clean();
    let (found, was_stopped) = match measured {
        Err(error) if error.kind() == Kind::Interrupted => (cleaned, true),
        other => (other.and(cleaned), live.is_stopped() || runner.has_ended()),
    };
    execution.results.is_complete = found.is_ok() && !was_stopped;
    execution.results.hosts = runner.hosts();
    let is_worth_keeping = found.is_ok() || execution.order > 0;
    let published = if is_worth_keeping { execution.publish(each) } else { Ok(()) };
    found.and(published).map(|()| execution.results)
}

fn begin(runner: &dyn Runner, origin: &Origin) -> Results {
    Results {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: origin.program.clone(),
        case: origin.case.clone(),
        command: result::without_serial(&origin.command),
        parameters: runner.parameters(),
        seed: origin.seed,
        started_seconds: pinstripe_base::clock::now().0,
        elapsed_s: 0.0,
        is_complete: false,
        fingerprint: Fingerprint::take(&runner.places()),
        hosts: runner.hosts(),
        variants: runner.variants().into_iter().map(Variant::from).collect(),
        verdicts: Vec::new(),
        notes: runner.notes(),
    }
}

/// The state of the execution of a plan.
struct Execution<'a> {
    effort: &'a Effort,
    live: &'a Arc<Live>,
    began: Instant,
    /// When the first run could begin.
    prepared: Instant,
    /// The number of warm-up runs so far, which are not kept.
    warmed: usize,
    order: u64,
    published: Option<Instant>,
    /// The shortest interval between two calls that pass on results.
    publish_every: Duration,
    results: Results,
}

impl Execution<'_> {
    fn rounds(
        &mut self,
        runner: &mut dyn Runner,
        each: &mut dyn FnMut(&Results) -> Result<()>,
    ) -> Result<()> {
        self.prepared = Instant::now();
        let all: Vec<VariantNo> = (0..self.results.variants.len()).map(VariantNo).collect();
        for _ in 0..self.effort.warm_up {
            for &variant in &all {
                self.announce("warming up", variant, &all);
                self.live.check()?;
                runner.warm_up(variant, self.live)?;
                if runner.has_ended() {
                    return Ok(());
                }
                self.warmed += 1;
            }
        }
        let (mut open, mut look) = (Vec::new(), 0);
        for round in 0_u64.. {
            if round == look {
                open = self.effort.next_round(&self.results);
                look = self.effort.next_look(round);
            }
            open.retain(|at| self.effort.can_run(&self.results.variants[at.0]));
            if open.is_empty() {
                return Ok(());
            }
            // There and back (ABBA), so that a drift over time favours no variant.
            let in_turn =
                |at: usize| if round % 2 == 1 { open[open.len() - 1 - at] } else { open[at] };
            for variant in (0..open.len()).map(in_turn) {
                self.live.check()?;
                if round > 0 && self.began.elapsed() >= self.effort.budget {
                    return Ok(());
                }
                self.announce("measuring", variant, &open);
                let run = runner.run_once(variant, self.order, self.live)?;
                self.order += 1;
                let run = Run { round: Some(round), ..run };
                self.results.variants[variant.0].runs.push(run);
                if runner.has_ended() {
                    return Ok(());
                }
                if self.published.is_none_or(|it| it.elapsed() >= self.publish_every) {
                    self.publish(each)?;
                }
            }
        }
        Ok(())
    }

    /// Announces the next run, and the estimated remaining time if only the variants in `open`
    /// continue.
    fn announce(&self, label: &str, variant: VariantNo, open: &[VariantNo]) {
        let (effort, variants) = (self.effort, &self.results.variants);
        let cold = (effort.warm_up * variants.len()).saturating_sub(self.warmed);
        let made: usize = variants.iter().map(|it| it.runs.len()).sum();
        let missing =
            |at: &VariantNo| effort.min_runs.saturating_sub(variants[at.0].values().len());
        let missing: usize = open.iter().map(missing).sum();
        let next = &variants[variant.0];
        let unit = &next.metric.unit;
        self.live.enter(RunStage {
            label: label.to_owned(),
            variant: next.name.clone(),
            unit: if unit.ends_with("/s") { unit.clone() } else { String::new() },
            runs: (self.warmed + made) as u64,
            runs_at_least: (self.warmed + cold + made + missing) as u64,
            remaining: self.remaining(self.warmed + made, cold + missing),
        });
    }

    /// The time that the remaining runs take, estimated from the runs so far. It is at most the
    /// budget, which is the only estimate before the first run.
    fn remaining(&self, made: usize, missing: usize) -> Remaining {
        let by_budget = self.effort.budget.saturating_sub(self.began.elapsed());
        let by_runs = self.prepared.elapsed().checked_div(made as u32);
        let least = match by_runs.map(|one| one.saturating_mul(missing as u32)) {
            Some(by_runs) if missing > 0 => by_runs.min(by_budget),
            _ => by_budget,
        };
        // Without a budget there is no time left to report.
        let known = |left: Duration| (left < UNLIMITED && !left.is_zero()).then_some(left);
        let is_open = self.effort.max_runs > self.effort.min_runs;
        let at_most = known(by_budget).filter(|most| is_open && *most > least);
        Remaining { at_least: known(least), at_most }
    }

    fn publish(&mut self, each: &mut dyn FnMut(&Results) -> Result<()>) -> Result<()> {
        self.results.elapsed_s = self.began.elapsed().as_secs_f64();
        self.results.judge();
        each(&self.results)?;
        self.published = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
