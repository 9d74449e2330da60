//! One machine on which a plan is run: its guards, the probes of its disks, and single runs between
//! two readings of the kernel's counters.
//!
//! This module does not decide which variant comes next, or how many runs are enough.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::error::Result;
use pinstripe_io::mounts;

use super::mood::MoodProbe;
use super::sampler::Sampler;
use super::{Effort, Live, Outcome, Plan, VariantNo, VariantSpec};
use crate::fingerprint::disk_number_of;
use crate::guard::{Disturbance, Guard, OwnUsage};
use crate::result::{Note, Results, Run};

/// The time for which a machine that was quiet is assumed to stay quiet.
const LOOK_HOLDS: Duration = Duration::from_secs(2);

/// The guards and probes of one machine.
pub(crate) struct Station {
    /// By variant.
    guards: Vec<Guard>,
    /// The index of the place of each variant.
    on: Vec<usize>,
    /// Whether the files are in memory, by place.
    in_memory: Vec<bool>,
    /// The disk probe of each place; `None` if the measured values are not times.
    moods: Vec<Option<MoodProbe>>,
    patience: Duration,
    accepts_noise: bool,
    is_exact: bool,
    began: Instant,
    /// When the machine was seen to be quiet.
    quiet_at: Option<Instant>,
}

/// A variant that is ready to run, and the state of the machine just before the run.
pub(crate) struct Readied {
    disturbances: Vec<Disturbance>,
    mood_us: Option<f64>,
}

impl Station {
    /// Creates a station for the variants of a plan.
    pub fn new(plan: &dyn Plan, effort: &Effort) -> Self {
        let (places, specs) = (plan.places(), plan.variants());
        let guard = |spec: &VariantSpec| {
            let device = places.get(spec.place.0).and_then(|place| disk_number_of(place));
            Guard::new(device, effort.limits)
        };
        Station {
            guards: specs.iter().map(guard).collect(),
            on: specs.iter().map(|spec| spec.place.0).collect(),
            in_memory: places.iter().map(|place| is_in_memory(place)).collect(),
            moods: Vec::new(),
            patience: effort.patience,
            accepts_noise: effort.accepts_noise,
            is_exact: plan.is_exact(),
            began: Instant::now(),
            quiet_at: None,
        }
    }

    /// Creates the probes of the disks, after the plan has been prepared.
    pub fn settle(&mut self, plan: &dyn Plan) {
        if !self.is_exact {
            self.moods = plan.places().iter().map(|place| MoodProbe::make(place)).collect();
        }
    }

    /// Prepares a variant, and waits until the machine is quiet.
    ///
    /// # Errors
    /// The errors of [`Plan::ready`].
    pub fn ready(
        &mut self,
        plan: &mut dyn Plan,
        variant: VariantNo,
        live: &Live,
    ) -> Result<Readied> {
        plan.ready(variant, live)?;
        let disturbances = if self.is_exact { Vec::new() } else { self.check(variant) };
        Ok(Readied { disturbances, mood_us: self.mood(variant) })
    }

    /// Runs a variant once. `start` returns at the moment at which the run is to begin; the time
    /// before that is not measured.
    ///
    /// # Errors
    /// The errors of [`Plan::run`] and of `start`.
    pub fn run(
        &mut self,
        plan: &mut dyn Plan,
        variant: VariantNo,
        order: u64,
        readied: Readied,
        live: &Arc<Live>,
        start: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Run> {
        let mut disturbances = readied.disturbances;
        let guard = &self.guards[variant.0];
        let (before, cpu_before_s) = (guard.read(), cpu_seconds());
        start()?;
        let at_s = self.began.elapsed().as_secs_f64();
        let began = Instant::now();
        let sampler = Sampler::start(guard, live);
        let outcome = plan.run(variant, order, live);
        let seconds = began.elapsed().as_secs_f64();
        let samples = sampler.stop();
        let (outcome, cpu_s) = (outcome?, cpu_seconds() - cpu_before_s);
        let cpu_s = cpu_s + outcome.other_cpu_s;
        let after = guard.read();
        if !self.is_exact {
            disturbances.extend(guard.judge(&before, &after, own(&outcome, cpu_s)));
        }
        let mood_after = self.mood(variant);
        let moved = after.transfer_since(&before);
        let mut notes = notes(&outcome, moved.map(|it| it.read_bytes));
        if self.in_memory.get(self.on[variant.0]) == Some(&true) {
            notes.push(Note::Memory);
        }
        let mut measured = outcome.measured;
        measured.figures.extend(before.load.map(|load| ("load_before".to_owned(), load)));
        let mood_before = readied.mood_us;
        measured.figures.extend(mood_before.map(|it| (Results::PROBED_BEFORE.to_owned(), it)));
        measured.figures.extend(mood_after.map(|it| (Results::PROBED_AFTER.to_owned(), it)));
        let mut run = Run {
            order,
            round: None,
            at_s,
            seconds,
            measured,
            cpu_s,
            device_read_bytes: moved.map(|it| it.read_bytes),
            device_written_bytes: moved.map(|it| it.written_bytes),
            samples,
            notes,
            disturbances,
            parts: Vec::new(),
        };
        if self.accepts_noise {
            run.accept_noise();
        }
        Ok(run)
    }

    /// The time of the probe of a variant's disk; `None` without a probe.
    fn mood(&mut self, variant: VariantNo) -> Option<f64> {
        self.moods.get_mut(self.on[variant.0])?.as_mut()?.time()
    }

    /// The disturbances that remain after waiting for a quiet machine; not every one of many short
    /// runs checks this.
    fn check(&mut self, variant: VariantNo) -> Vec<Disturbance> {
        if self.quiet_at.is_some_and(|it| it.elapsed() < LOOK_HOLDS) {
            return Vec::new();
        }
        let found = self.guards[variant.0].wait_for_quiet(self.patience);
        self.quiet_at = found.is_empty().then(Instant::now);
        found
    }
}

/// The work that belongs to the run itself.
fn own(outcome: &Outcome, cpu_s: f64) -> OwnUsage {
    OwnUsage {
        cpu_s,
        read_bytes: outcome.measured.read_bytes + outcome.beside_read_bytes,
        written_bytes: outcome.measured.written_bytes + outcome.beside_written_bytes,
        syncs: outcome.syncs,
    }
}

/// The notes on a run. `from_disk` is the number of bytes that the disk read: if this is less than
/// half of the expected bytes, most bytes came from the page cache.
pub(super) fn notes(outcome: &Outcome, from_disk: Option<u64>) -> Vec<Note> {
    let stored = outcome.measured.read_bytes as f64 * outcome.stored_share.unwrap_or(1.0);
    let wanted = stored as u64;
    let mut notes = outcome.notes.clone();
    if wanted > 0 && from_disk.is_some_and(|it| it < wanted / 2) {
        notes.push(Note::PageCache);
    }
    notes
}

/// Whether a directory is in memory, or comes from another process: tmpfs and its like, FUSE, and an
/// overlay that writes to one of them.
fn is_in_memory(place: &Path) -> bool {
    let Some(mount) = mounts::of_path(place).filter(|_| place.is_dir()) else { return false };
    match &*mount.kind {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" | "fuse" => true,
        "overlay" => {
            let mut options = mount.super_options.split(',');
            let upper = options.find_map(|it| it.strip_prefix("upperdir="));
            upper.is_some_and(|upper| is_in_memory(Path::new(upper)))
        }
        kind => kind.starts_with("fuse."),
    }
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}
