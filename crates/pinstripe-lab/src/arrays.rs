//! Loads on a pinstripe array, and what they cost; used by the case `stripe` and by other
//! measurements of arrays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_array::{
    Consistency, CreateOptions, Layout, Level, MemberArea, MemberTraffic, Volume, VolumeCounters,
    VolumeSettings, create_on_members,
};
use pinstripe_base::error::Result;
use pinstripe_base::random::{self, Noise};
use pinstripe_base::units::{KIB, MIB};
use pinstripe_io::device::{Device, SharedDevice};
use rustix::time::{ClockId, clock_gettime};

use crate::histogram::Histogram;
use crate::io::at_once;
use crate::run::Live;

/// The size of an array chunk in bytes.
pub const CHUNK_BYTES: u64 = 64 * KIB;
/// The size of each member's log.
pub const LOG_BYTES: u64 = 64 * MIB;
/// The bytes on each member in addition to data and log: superblocks and tables.
pub const TABLE_BYTES: u64 = 8 * MIB;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// For people.
    pub name: &'static str,
    /// Bytes of each read or write.
    pub bytes: usize,
    /// Whether it writes.
    pub is_write: bool,
    /// Whether the requests go to random offsets; otherwise they are sequential.
    pub is_random: bool,
}

const fn load(name: &'static str, bytes: usize, is_write: bool, is_random: bool) -> Load {
    Load { name, bytes, is_write, is_random }
}

/// Every workload.
pub const LOADS: [Load; 5] = [
    load("4 KiB random writes", 4 << 10, true, true),
    load("64 KiB writes", 64 << 10, true, false),
    load("1 MiB writes", 1 << 20, true, false),
    load("4 KiB random reads", 4 << 10, false, true),
    load("1 MiB reads", 1 << 20, false, false),
];

/// The requests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// All of them.
    pub count: u64,
    /// The number of concurrent requests. Each request in flight needs its own thread, because
    /// calls of an array are synchronous.
    pub at_once: usize,
    /// The seed of the requests' offsets and content: the same seed gives the same requests.
    pub seed: u64,
}

/// The cost of a run.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// Reads or writes.
    pub count: f64,
    /// The bytes.
    pub bytes: f64,
    /// The time until everything was durable.
    pub wall_s: f64,
    /// Processor time of this process.
    pub cpu_s: f64,
    /// Data bytes that all members read.
    pub read: f64,
    /// Data bytes that all members wrote.
    pub written: f64,
    /// Log bytes that all members wrote.
    pub log: f64,
    /// Times of single reads or writes.
    pub times: Histogram,
}

impl Cost {
    /// MB/s.
    pub fn rate(&self) -> f64 {
        self.bytes / self.wall_s / 1e6
    }

    /// Processor time of one read or write, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_s / self.count * 1e6
    }
}

/// Returns pseudorandom bytes, which are the same on each call.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    (0..bytes / 8).flat_map(|_| noise.next().to_le_bytes()).collect()
}

/// The default options for creating the measured arrays.
pub fn making(level: Level) -> CreateOptions {
    CreateOptions {
        name: "lab".to_owned(),
        level,
        layout: Layout::default_of(level),
        chunk_bytes: CHUNK_BYTES,
        log_bytes: LOG_BYTES,
        consistency: Consistency::Log,
        now_seconds: 0,
    }
}

/// Creates and starts an array on devices, in this order, and writes all of it once.
///
/// # Errors
/// Errors of the array and its members; an interrupt.
pub fn start(devices: Vec<SharedDevice>, making: &CreateOptions, live: &Live) -> Result<Volume> {
    let volume = Volume::start(create_on_members(making, devices)?, VolumeSettings::default())?;
    let noise = noise(1 << 20);
    let capacity = volume.len()?;
    let mut at = 0;
    while at < capacity {
        live.check()?;
        let bytes = (capacity - at).min(noise.len() as u64) as usize;
        volume.write_at(at, &noise[..bytes])?;
        live.moved(bytes as u64);
        at += bytes as u64;
    }
    volume.sync()?;
    Ok(volume)
}

/// Runs the reads or writes of a load; writes are durable at the end.
///
/// # Errors
/// The errors of the array; an interrupt.
pub fn run(volume: &Volume, load: Load, requests: Requests, live: &Live) -> Result<Cost> {
    let (next, before) = (AtomicU64::new(0), volume.counters());
    let (start, cpu) = (Instant::now(), cpu());
    let parts = at_once(requests.at_once, |_| one_by_one(volume, load, requests, &next, live));
    let mut times = Histogram::default();
    for part in parts {
        times.merge(&part?);
    }
    if load.is_write {
        volume.sync()?;
    }
    let (wall, cpu) = (start.elapsed(), self::cpu() - cpu);
    let after = volume.counters();
    let diff = |of: fn(&MemberTraffic) -> u64| (sum(&after, of) - sum(&before, of)) as f64;
    Ok(Cost {
        count: requests.count as f64,
        bytes: (requests.count * load.bytes as u64) as f64,
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        read: diff(|it| it.read_bytes[MemberArea::Data as usize]),
        written: diff(|it| it.written_bytes[MemberArea::Data as usize]),
        log: diff(|it| it.written_bytes[MemberArea::Log as usize]),
        times,
    })
}

/// Carries out the requests of one thread until none is left; returns their times.
fn one_by_one(
    volume: &Volume,
    load: Load,
    requests: Requests,
    next: &AtomicU64,
    live: &Live,
) -> Result<Histogram> {
    let places = (volume.len()? / load.bytes as u64).max(1);
    let (mut buf, mut times) = (noise(load.bytes), Histogram::default());
    let mut last = Instant::now();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= requests.count {
            return Ok(times);
        }
        live.check()?;
        let mut dice = Noise(random::of_run(requests.seed, number + 1));
        let place = if load.is_random { dice.below(places) } else { number % places };
        let at = place * load.bytes as u64;
        if load.is_write {
            buf[..8].copy_from_slice(&dice.next().to_le_bytes());
            volume.write_at(at, &buf)?;
        } else {
            volume.read_at(at, &mut buf)?;
        }
        let now = Instant::now();
        times.record(now - last);
        last = now;
        live.moved(load.bytes as u64);
    }
}

fn sum(counters: &VolumeCounters, of: fn(&MemberTraffic) -> u64) -> u64 {
    counters.members.iter().flatten().map(of).sum()
}

/// Processor time that all threads of this process have used.
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
