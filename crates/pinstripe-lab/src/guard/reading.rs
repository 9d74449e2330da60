//! The kernel's counters at one moment, and the activity between two readings.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::kernel::IdleTasks;

/// Time in which processes waited, in microseconds since the machine was started
/// (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pressure {
    /// Time in which at least one process waited.
    pub some_us: u64,
    /// Time in which all processes that were not idle waited.
    pub full_us: u64,
}

/// Bytes that a disk moved since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DiskTransfer {
    /// From it.
    pub read_bytes: u64,
    /// To it.
    pub written_bytes: u64,
}

/// The counters at one moment; `None` for a counter that the kernel lacks.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// Processes that run or want to run, as a mean over the last minute (the load average).
    pub load: Option<f64>,
    /// Processor time of all processors: the total, the busy time (niced tasks count less), and the
    /// stolen time, in ticks of 10 ms.
    pub ticks: Option<(u64, u64, u64)>,
    /// Time in which processes waited for a processor.
    pub cpu_pressure: Option<Pressure>,
    /// Time in which processes waited for a disk.
    pub io_pressure: Option<Pressure>,
    /// Waiting for memory.
    pub memory_pressure: Option<Pressure>,
    /// The traffic of the disk.
    pub transfer: Option<DiskTransfer>,
    /// Bytes of the page cache that wait to be written.
    pub dirty_bytes: Option<u64>,
    /// Bytes of the page cache that are being written.
    pub writeback_bytes: Option<u64>,
    /// The number of times that processors were throttled because of heat.
    pub throttles: Option<u64>,
    /// Processor time of tasks in the idle class; empty in a [glance](Reading::glance).
    pub idle_class: IdleTasks,
}

/// The factor for the processor time of niced tasks and of tasks in the idle class: they yield to a
/// run, but still take caches and memory bandwidth from it.
const NICED: f64 = 0.25;

/// Ticks per second in `/proc/stat` (USER_HZ, which is 100 on every system that Rust supports).
const TICKS_PER_SECOND: f64 = 100.0;
/// The unit of `/proc/diskstats`, independent of the disk's block size.
const SECTOR_BYTES: u64 = 512;

impl Reading {
    /// Reads the counters below `root`, with those of the device with these numbers.
    pub fn take(root: &Path, device: Option<(u32, u32)>) -> Self {
        Reading { idle_class: IdleTasks::read(root), ..Reading::glance(root, device) }
    }

    /// Reads the counters without reading every task, which would take some milliseconds.
    pub fn glance(root: &Path, device: Option<(u32, u32)>) -> Self {
        let text = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let memory = text("proc/meminfo");
        Reading {
            at: Instant::now(),
            load: text("proc/loadavg").split(' ').next().and_then(|it| it.parse().ok()),
            ticks: ticks(&text("proc/stat")),
            cpu_pressure: pressure(&text("proc/pressure/cpu")),
            io_pressure: pressure(&text("proc/pressure/io")),
            memory_pressure: pressure(&text("proc/pressure/memory")),
            transfer: device.and_then(|device| transfer(&text("proc/diskstats"), device)),
            dirty_bytes: kibibytes(&memory, "Dirty:"),
            writeback_bytes: kibibytes(&memory, "Writeback:"),
            throttles: throttles(root),
            idle_class: IdleTasks::default(),
        }
    }

    /// Time since another reading.
    pub(crate) fn seconds_since(&self, before: &Reading) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }

    /// The time of all processors together, in seconds.
    pub(super) fn cpu_seconds_since(&self, before: &Reading) -> Option<f64> {
        let (now, then) = (self.ticks?, before.ticks?);
        let ticks = now.0.checked_sub(then.0).filter(|ticks| *ticks > 0)?;
        Some(ticks as f64 / TICKS_PER_SECOND)
    }

    /// The share of all processors' time that was busy; low-priority work counts less.
    pub fn busy_since(&self, before: &Reading) -> Option<f64> {
        let busy = self.share_of_ticks(before, |it| it.1)?;
        let all = self.ticks?.0.checked_sub(before.ticks?.0).filter(|ticks| *ticks > 0)?;
        let idle_class = self.idle_class.ticks_since(&before.idle_class) as f64 / all as f64;
        Some((busy - idle_class * (1.0 - NICED)).max(0.0))
    }

    /// The share of all processors' time that was stolen by a hypervisor.
    pub(crate) fn steal_since(&self, before: &Reading) -> Option<f64> {
        self.share_of_ticks(before, |it| it.2)
    }

    fn share_of_ticks(
        &self,
        before: &Reading,
        which: impl Fn((u64, u64, u64)) -> u64,
    ) -> Option<f64> {
        let (now, then) = (self.ticks?, before.ticks?);
        let all = now.0.checked_sub(then.0).filter(|ticks| *ticks > 0)?;
        Some(which(now).saturating_sub(which(then)) as f64 / all as f64)
    }

    /// The share of the time in which at least one process waited.
    pub(crate) fn pressure_since(
        &self,
        before: &Reading,
        which: impl Fn(&Reading) -> Option<Pressure>,
    ) -> Option<f64> {
        let (now, then) = (which(self)?, which(before)?);
        let waited = now.some_us.saturating_sub(then.some_us) as f64 / 1e6;
        let seconds = self.seconds_since(before);
        (seconds > 0.0).then(|| (waited / seconds).min(1.0))
    }

    /// The traffic of the disk.
    pub(crate) fn transfer_since(&self, before: &Reading) -> Option<DiskTransfer> {
        let (now, then) = (self.transfer?, before.transfer?);
        Some(DiskTransfer {
            read_bytes: now.read_bytes.saturating_sub(then.read_bytes),
            written_bytes: now.written_bytes.saturating_sub(then.written_bytes),
        })
    }

    /// The number of times that processors were slowed down.
    pub(super) fn throttled_since(&self, before: &Reading) -> u64 {
        let counts = self.throttles.zip(before.throttles);
        counts.map_or(0, |(now, then)| now.saturating_sub(then))
    }
}

/// The fields of the first line of `/proc/stat` are user, nice, system, idle, iowait, irq, softirq,
/// steal, and the guest times, which are included in user.
fn ticks(stat: &str) -> Option<(u64, u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        line.split_whitespace().map_while(|it| it.parse().ok()).take(8).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = *fields.as_slice() else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    let weighed = busy - nice + (nice as f64 * NICED) as u64;
    Some((busy + idle + iowait + steal, weighed, steal))
}

fn pressure(text: &str) -> Option<Pressure> {
    let total = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
    };
    Some(Pressure { some_us: total("some ")?, full_us: total("full ").unwrap_or(0) })
}

/// Fields of `/proc/diskstats` (Documentation/admin-guide/iostats.rst): the third field after the
/// name is the number of sectors read, the seventh the number of sectors written.
fn transfer(diskstats: &str, (major, minor): (u32, u32)) -> Option<DiskTransfer> {
    diskstats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = *fields.first()? == major.to_string() && *fields.get(1)? == minor.to_string();
        let sectors = |at: usize| fields.get(at)?.parse::<u64>().ok().map(|it| it * SECTOR_BYTES);
        is_it.then_some(())?;
        Some(DiskTransfer { read_bytes: sectors(5)?, written_bytes: sectors(9)? })
    })
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The throttle counts of all processors together (x86).
fn throttles(root: &Path) -> Option<u64> {
    let cpus = fs::read_dir(root.join("sys/devices/system/cpu")).ok()?.flatten();
    let counts = cpus.filter_map(|cpu| {
        let file = cpu.path().join("thermal_throttle/core_throttle_count");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    let counts: Vec<u64> = counts.collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}
