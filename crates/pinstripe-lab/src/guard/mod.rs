//! The noise guard: finds out whether a run had the machine and the disk to itself.
//!
//! The kernel's counters are read before and after a run. They are also read during a short wait
//! before the run, in which the machine should be idle. A run that other processes disturbed is
//! marked with the finding and the [limit](Limits) that it exceeds. This module does not drop runs,
//! and never calls a disturbed run valid.

mod kernel;
mod reading;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pinstripe_base::units::format_size;
use serde::{Deserialize, Serialize};

pub(crate) use kernel::KernelThreads;
pub use reading::Reading;

/// Limits; a run that exceeds one of them is disturbed.
///
/// Shares are fractions of 1: 0.2 is 20 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor time of other processes, as a share of all processors' time. A fifth of the time
    /// changes results by some percent on few processors, and less on many. Processes that are
    /// niced or in the idle class count only for a quarter of their time.
    pub others_cpu: f64,
    /// Processor time that the hypervisor gave to other machines.
    pub steal: f64,
    /// Time in which any process waited for memory.
    pub memory_pressure: f64,
    /// The share of the time before a run in which any process waited for a disk.
    pub idle_io_pressure: f64,
    /// The share of processor time that other processes used before a run.
    pub idle_cpu: f64,
    /// The share of the time before a run in which any process waited for a processor.
    pub idle_cpu_pressure: f64,
    /// Bytes that other processes moved on the disk, as a share of the run's own bytes.
    pub others_io: f64,
    /// Bytes per second on the disk that are not attributed to other processes: the file system's
    /// own writes, and occasional logs.
    pub free_io: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            others_cpu: 0.2,
            steal: 0.02,
            memory_pressure: 0.1,
            idle_io_pressure: 0.2,
            idle_cpu: 0.25,
            idle_cpu_pressure: 0.25,
            others_io: 0.15,
            free_io: 4 << 20,
        }
    }
}

/// A disturbance of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The name of the exceeded limit; disturbances are counted under this name.
    pub kind: String,
    /// The finding, for people.
    pub what: String,
}

/// A run's own work, so that it is not counted as the work of other processes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct OwnUsage {
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// Bytes that the run requested for reading.
    pub read_bytes: u64,
    /// Bytes that the run wrote.
    pub written_bytes: u64,
    /// The number of waits until bytes were durable; at each wait the file system may write its
    /// journal.
    pub syncs: u64,
}

/// The bytes of journal and metadata that a sync may write.
const SYNC_BYTES: u64 = 64 << 10;
/// A shorter run is judged as if it had this length, because a single write of metadata proves
/// nothing.
const LEAST_SECONDS: f64 = 0.25;
/// The time for which the machine is observed before it counts as quiet.
const WINDOW: Duration = Duration::from_millis(150);

/// Watches one machine and one disk.
#[derive(Debug, Clone)]
pub struct Guard {
    root: PathBuf,
    device: Option<(u32, u32)>,
    limits: Limits,
}

impl Guard {
    /// A guard for this machine, and for the device with these numbers if a device is measured.
    pub fn new(device: Option<(u32, u32)>, limits: Limits) -> Self {
        Guard { root: PathBuf::from("/"), device, limits }
    }

    /// The counters now.
    pub fn read(&self) -> Reading {
        Reading::take(&self.root, self.device)
    }

    /// Reads the counters now, without reading every task.
    pub fn glance(&self) -> Reading {
        Reading::glance(&self.root, self.device)
    }

    /// Waits until the machine is quiet, but at most `patience`; returns the disturbances that
    /// remain.
    pub(crate) fn wait_for_quiet(&self, patience: Duration) -> Vec<Disturbance> {
        let began = Instant::now();
        loop {
            let before = self.read();
            std::thread::sleep(WINDOW);
            let found = self.judge_idle(&before, &self.read());
            if found.is_empty() || began.elapsed() >= patience {
                return found;
            }
        }
    }

    /// The disturbances between two readings in which the machine should have been idle.
    fn judge_idle(&self, before: &Reading, after: &Reading) -> Vec<Disturbance> {
        let mut found = GuardFindings::default();
        let limits = &self.limits;
        found.share(limits.idle_cpu, after.busy_since(before), "busy", |it| {
            format!("before the run, other programs used {it} of the CPU time")
        });
        let cpu = after.pressure_since(before, |now| now.cpu_pressure);
        found.share(limits.idle_cpu_pressure, cpu, "cpu_busy", |it| {
            format!("before the run, tasks waited for a CPU during {it} of the time")
        });
        let disk = after.pressure_since(before, |now| now.io_pressure);
        found.share(limits.idle_io_pressure, disk, "disk_busy", |it| {
            format!("before the run, tasks waited for a disk during {it} of the time")
        });
        found.0
    }

    /// The disturbances of a run between two readings. `own` is the share that the run itself
    /// caused.
    pub fn judge(&self, before: &Reading, after: &Reading, own: OwnUsage) -> Vec<Disturbance> {
        let mut found = GuardFindings::default();
        let limits = &self.limits;
        let all_s = after.cpu_seconds_since(before);
        let others = after.busy_since(before).zip(all_s).map(|(busy, all)| busy - own.cpu_s / all);
        found.share(limits.others_cpu, others, "others_cpu", |it| {
            format!("other programs used {it} of the CPU time")
        });
        found.share(limits.steal, after.steal_since(before), "steal", |it| {
            format!("the hypervisor took {it} of the CPU time (steal)")
        });
        let memory = after.pressure_since(before, |now| now.memory_pressure);
        found.share(limits.memory_pressure, memory, "memory", |it| {
            format!("tasks waited for memory during {it} of the time")
        });
        if after.throttled_since(before) > 0 {
            let times =
                pinstripe_base::units::counted(after.throttled_since(before), "time", "times");
            let what = format!("CPUs were throttled {times}");
            found.add("throttled", what);
        }
        self.judge_disk(before, after, own, &mut found);
        found.0
    }

    fn judge_disk(
        &self,
        before: &Reading,
        after: &Reading,
        own: OwnUsage,
        found: &mut GuardFindings,
    ) {
        let Some(moved) = after.transfer_since(before) else { return };
        let seconds = after.seconds_since(before).max(LEAST_SECONDS);
        let free = (self.limits.free_io as f64 * seconds) as u64;
        let share = |bytes: u64| (bytes as f64 * (1.0 + self.limits.others_io)) as u64;
        let written = share(own.written_bytes) + own.syncs * SYNC_BYTES + free;
        let read = share(own.read_bytes) + free;
        for (bytes, most, kind, act) in [
            (moved.written_bytes, written, "others_wrote", "wrote"),
            (moved.read_bytes, read, "others_read", "read"),
        ] {
            if bytes > most {
                let own = if act == "wrote" { own.written_bytes } else { own.read_bytes };
                let others = format_size(bytes.saturating_sub(own));
                found.add(kind, format!("other programs {act} {others} on this disk"));
            }
        }
    }
}

#[derive(Default)]
struct GuardFindings(Vec<Disturbance>);

impl GuardFindings {
    fn share(
        &mut self,
        limit: f64,
        found: Option<f64>,
        kind: &str,
        say: impl FnOnce(String) -> String,
    ) {
        if let Some(found) = found.filter(|found| *found > limit) {
            self.add(kind, say(format!("{:.0} %", found * 100.0)));
        }
    }

    fn add(&mut self, kind: &str, what: String) {
        self.0.push(Disturbance { kind: kind.to_owned(), what });
    }
}

#[cfg(test)]
mod tests;
