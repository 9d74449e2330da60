//! A plan carried out: variants in interleaved order, again and again, each run under the guard,
//! until the answer is narrow enough or the time is over.
//!
//! Invariants: what was measured so far is handed out after every run, or every second where runs
//! are shorter, and in any case at the end, so that an interrupt loses nothing; a disturbed run is
//! kept and made again, as long as there is time. Never here: printing, saving, and what a case
//! does.

mod effort;
mod live;
mod mood;
mod plan;
mod sampler;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Kind, Result};

use crate::fingerprint::{Fingerprint, disk_number_of};
use crate::guard::{Disturbance, Guard, OwnUsage};
use crate::result::{self, FORMAT, Note, Results, Run, VERSION, Variant};

pub use effort::{Effort, Until};
pub use live::{Live, Remaining, Stage, Tally};
use mood::MoodProbe;
pub use plan::{Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use sampler::Sampler;

/// So long it is believed that a machine that was quiet still is.
const LOOK_HOLDS: Duration = Duration::from_secs(2);
/// Judging and saving is not done more often: it would take longer than the runs.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// A budget beyond this is none.
const UNLIMITED: Duration = Duration::from_secs(365 * 86_400);

/// The origin of results.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The program and its version.
    pub program: String,
    /// The command line.
    pub command: Vec<String>,
    /// The case's name.
    pub case: String,
    /// The seed of all chance.
    pub seed: u64,
}

/// Carries out a plan. `each` gets the results so far after every run, of runs that are shorter
/// every second, and once more at the end, whatever that is.
///
/// An interrupt (see [`Live`]) is no error: the results say that they are not complete.
///
/// # Errors
/// Those of the plan and of `each`.
pub fn measure(
    plan: &mut dyn Plan,
    effort: &Effort,
    origin: &Origin,
    live: &Arc<Live>,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    measure_telling(plan, effort, origin, live, PUBLISH_EVERY, each)
}

/// [`measure`], with results so far at most once in `publish_every`.
fn measure_telling(
    plan: &mut dyn Plan,
    effort: &Effort,
    origin: &Origin,
    live: &Arc<Live>,
    publish_every: Duration,
    each: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    let (warm_up, patience, budget) = (0, Duration::ZERO, Duration::MAX);
    let exact = Effort { warm_up, patience, budget, ..effort.exactly(1) };
    let effort = if plan.is_exact() { &exact } else { effort };
    let (places, specs) = (plan.places(), plan.variants());
    let guard = |spec: &VariantSpec| {
        let device = places.get(spec.place.0).and_then(|place| disk_number_of(place));
        Guard::new(device, effort.limits)
    };
    let mut execution = Execution {
        effort,
        live,
        guards: specs.iter().map(guard).collect(),
        on: specs.iter().map(|spec| spec.place.0).collect(),
        moods: Vec::new(),
        began: Instant::now(),
        prepared: Instant::now(),
        warmed: 0,
        order: 0,
        quiet_at: None,
        published: None,
        publish_every,
        results: begin(plan, origin),
    };
    live.enter(Stage { label: "preparing".to_owned(), ..Stage::default() });
    let measured = plan.prepare(live).and_then(|()| {
        execution.results.notes = plan.notes();
        if !plan.is_exact() {
            execution.moods = places.iter().map(|place| MoodProbe::make(place)).collect();
        }
        execution.rounds(plan, each)
    });
    // Cleaned up after an error too; the first error is the one that is returned.
    let cleaned = plan.clean();
    let (found, was_stopped) = match measured {
        Err(error) if error.kind() == Kind::Interrupted => (cleaned, true),
        other => (other.and(cleaned), live.is_stopped()),
    };
    execution.results.is_complete = found.is_ok() && !was_stopped;
    let is_worth_keeping = found.is_ok() || execution.order > 0;
    let published = if is_worth_keeping { execution.publish(each) } else { Ok(()) };
    found.and(published).map(|()| execution.results)
}

fn begin(plan: &dyn Plan, origin: &Origin) -> Results {
    Results {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: origin.program.clone(),
        case: origin.case.clone(),
        command: result::without_serial(&origin.command),
        parameters: plan.parameters(),
        seed: origin.seed,
        started_seconds: pinstripe_base::clock::now().0,
        elapsed_s: 0.0,
        is_complete: false,
        fingerprint: Fingerprint::take(&plan.places()),
        variants: plan.variants().into_iter().map(Variant::from).collect(),
        verdicts: Vec::new(),
        notes: plan.notes(),
    }
}

/// The state of the execution of a plan.
struct Execution<'a> {
    effort: &'a Effort,
    live: &'a Arc<Live>,
    /// By variant.
    guards: Vec<Guard>,
    /// The number of its place, by variant.
    on: Vec<usize>,
    /// By place; none where nothing is measured by the clock.
    moods: Vec<Option<MoodProbe>>,
    began: Instant,
    /// When the first run could begin.
    prepared: Instant,
    /// Runs so far that are not kept.
    warmed: usize,
    order: u64,
    /// When the machine was seen to be quiet.
    quiet_at: Option<Instant>,
    published: Option<Instant>,
    /// The least time between two hand-outs of results.
    publish_every: Duration,
    results: Results,
}

impl Execution<'_> {
    fn rounds(
        &mut self,
        plan: &mut dyn Plan,
        each: &mut dyn FnMut(&Results) -> Result<()>,
    ) -> Result<()> {
        self.prepared = Instant::now();
        let all: Vec<VariantNo> = (0..self.results.variants.len()).map(VariantNo).collect();
        for _ in 0..self.effort.warm_up {
            for &variant in &all {
                self.announce("warming up", variant, &all);
                self.live.check()?;
                plan.ready(variant, self.live)?;
                plan.run(variant, u64::MAX, self.live)?;
                plan.check(variant, self.live)?;
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
                let run = Run { round: Some(round), ..self.run_once(plan, variant)? };
                self.results.variants[variant.0].runs.push(run);
                if self.published.is_none_or(|it| it.elapsed() >= self.publish_every) {
                    self.publish(each)?;
                }
            }
        }
        Ok(())
    }

    fn run_once(&mut self, plan: &mut dyn Plan, variant: VariantNo) -> Result<Run> {
        plan.ready(variant, self.live)?;
        let is_exact = plan.is_exact();
        let mut disturbances = if is_exact { Vec::new() } else { self.look(variant) };
        let mood_before = self.mood(variant);
        let guard = &self.guards[variant.0];
        let at_s = self.began.elapsed().as_secs_f64();
        let (before, cpu_before_s) = (guard.read(), cpu_seconds());
        let sampler = Sampler::start(guard, self.live);
        let outcome = plan.run(variant, self.order, self.live);
        let samples = sampler.stop();
        let (outcome, cpu_s) = (outcome?, cpu_seconds() - cpu_before_s);
        let cpu_s = cpu_s + outcome.other_cpu_s;
        let after = guard.read();
        if !is_exact {
            disturbances.extend(guard.judge(&before, &after, own(&outcome, cpu_s)));
        }
        let mood_after = self.mood(variant);
        let moved = after.transfer_since(&before);
        let notes = notes(&outcome, moved.map(|it| it.read_bytes));
        let mut measured = outcome.measured;
        measured.figures.extend(before.load.map(|load| ("load_before".to_owned(), load)));
        measured.figures.extend(mood_before.map(|it| (Results::PROBED_BEFORE.to_owned(), it)));
        measured.figures.extend(mood_after.map(|it| (Results::PROBED_AFTER.to_owned(), it)));
        let mut run = Run {
            order: self.order,
            round: None,
            at_s,
            seconds: after.seconds_since(&before),
            measured,
            cpu_s,
            device_read_bytes: moved.map(|it| it.read_bytes),
            device_written_bytes: moved.map(|it| it.written_bytes),
            samples,
            notes,
            disturbances,
        };
        if self.effort.accepts_noise {
            run.accept_noise();
        }
        self.order += 1;
        plan.check(variant, self.live)?;
        Ok(run)
    }

    /// Says what comes next, and how long it all still takes as far as one can tell, when these
    /// variants go on.
    fn announce(&self, label: &str, variant: VariantNo, open: &[VariantNo]) {
        let (effort, variants) = (self.effort, &self.results.variants);
        let cold = (effort.warm_up * variants.len()).saturating_sub(self.warmed);
        let made: usize = variants.iter().map(|it| it.runs.len()).sum();
        let missing =
            |at: &VariantNo| effort.min_runs.saturating_sub(variants[at.0].values().len());
        let missing: usize = open.iter().map(missing).sum();
        let next = &variants[variant.0];
        let unit = &next.metric.unit;
        self.live.enter(Stage {
            label: label.to_owned(),
            variant: next.name.clone(),
            unit: if unit.ends_with("/s") { unit.clone() } else { String::new() },
            runs: (self.warmed + made) as u64,
            runs_at_least: (self.warmed + cold + made + missing) as u64,
            remaining: self.remaining(self.warmed + made, cold + missing),
        });
    }

    /// The time that the runs still take, by the runs so far; no longer than the budget, which is
    /// all that is known at first.
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

    /// The time of the probe of a variant's disk, if there is one.
    fn mood(&mut self, variant: VariantNo) -> Option<f64> {
        self.moods.get_mut(self.on[variant.0])?.as_mut()?.time()
    }

    /// The disturbances left after waiting for quiet; many short runs do not each check it.
    fn look(&mut self, variant: VariantNo) -> Vec<Disturbance> {
        if self.quiet_at.is_some_and(|it| it.elapsed() < LOOK_HOLDS) {
            return Vec::new();
        }
        let found = self.guards[variant.0].wait_for_quiet(self.effort.patience);
        self.quiet_at = found.is_empty().then(Instant::now);
        found
    }

    fn publish(&mut self, each: &mut dyn FnMut(&Results) -> Result<()>) -> Result<()> {
        self.results.elapsed_s = self.began.elapsed().as_secs_f64();
        self.results.judge();
        each(&self.results)?;
        self.published = Some(Instant::now());
        Ok(())
    }
}

/// The run's own work.
fn own(outcome: &Outcome, cpu_s: f64) -> OwnUsage {
    OwnUsage {
        cpu_s,
        read_bytes: outcome.measured.read_bytes + outcome.beside_read_bytes,
        written_bytes: outcome.measured.written_bytes + outcome.beside_written_bytes,
        syncs: outcome.syncs,
    }
}

/// The notes on a run, of which the disk read so many bytes: where that is less than half of what
/// had to come from it, most came from the page cache.
fn notes(outcome: &Outcome, from_disk: Option<u64>) -> Vec<Note> {
    let stored = outcome.measured.read_bytes as f64 * outcome.stored_share.unwrap_or(1.0);
    let wanted = stored as u64;
    let mut notes = outcome.notes.clone();
    if wanted > 0 && from_disk.is_some_and(|it| it < wanted / 2) {
        notes.push(Note::PageCache);
    }
    notes
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests;
