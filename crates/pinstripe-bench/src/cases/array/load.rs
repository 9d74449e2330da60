//! What is done to an array, and what it cost.

use std::time::{Duration, Instant};

use pinstripe::array::traffic::{MemberTraffic, Part};
use pinstripe::device::Device;
use pinstripe::pipeline::array::{Counters, Volume};
use rustix::time::{ClockId, clock_gettime};

use super::places::text;
use crate::Result;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub name: &'static str,
    pub bytes: usize,
    pub is_write: bool,
    pub is_random: bool,
}

const fn load(name: &'static str, bytes: usize, is_write: bool, is_random: bool) -> Load {
    Load { name, bytes, is_write, is_random }
}

pub const RANDOM_WRITE: usize = 0;
pub const LONG_WRITE: usize = 2;
pub const LOADS: [Load; 5] = [
    load("4 KiB random writes", 4 << 10, true, true),
    load("64 KiB writes", 64 << 10, true, false),
    load("1 MiB writes", 1 << 20, true, false),
    load("4 KiB random reads", 4 << 10, false, true),
    load("1 MiB reads", 1 << 20, false, false),
];

/// What a run cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    pub count: f64,
    pub bytes: f64,
    pub wall_s: f64,
    pub cpu_s: f64,
    /// Bytes of all members: data read, data written, log written.
    pub read: f64,
    pub written: f64,
    pub log: f64,
}

impl Run {
    pub fn rate(&self) -> f64 {
        self.bytes / self.wall_s / 1e6
    }

    pub fn cpu_us(&self) -> f64 {
        self.cpu_s / self.count * 1e6
    }
}

/// Random bytes.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    (0..bytes / 8).flat_map(|_| dice.next().to_le_bytes()).collect()
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Does `count` reads or writes; writes are durable at the end.
pub fn run(volume: &Volume, load: Load, count: usize, seed: u64) -> Result<Run> {
    let capacity = volume.len().map_err(text)?;
    let places = capacity / load.bytes as u64;
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut buf = noise(load.bytes);
    let before = volume.counters();
    let (start, cpu) = (Instant::now(), cpu());
    for number in 0..count as u64 {
        let place = if load.is_random { dice.next() >> 11 } else { number } % places;
        let at = place * load.bytes as u64;
        if load.is_write {
            buf[..8].copy_from_slice(&dice.next().to_le_bytes());
            volume.write_at(at, &buf).map_err(text)?;
        } else {
            volume.read_at(at, &mut buf).map_err(text)?;
        }
    }
    if load.is_write {
        volume.sync().map_err(text)?;
    }
    let (wall, cpu) = (start.elapsed(), self::cpu() - cpu);
    let after = volume.counters();
    let diff = |of: fn(&MemberTraffic) -> u64| (sum(&after, of) - sum(&before, of)) as f64;
    Ok(Run {
        count: count as f64,
        bytes: (count * load.bytes) as f64,
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        read: diff(|it| it.read_bytes[Part::Data as usize]),
        written: diff(|it| it.written_bytes[Part::Data as usize]),
        log: diff(|it| it.written_bytes[Part::Log as usize]),
    })
}

fn sum(counters: &Counters, of: fn(&MemberTraffic) -> u64) -> u64 {
    counters.members.iter().flatten().map(of).sum()
}

/// Processor time of this process, all threads.
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bytes per second that one thread copies from memory to memory, 64 MiB at a time.
pub fn memory_bandwidth() -> f64 {
    let from = noise(64 << 20);
    let mut to = from.clone();
    let copies = (0..5).map(|_| {
        let start = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        from.len() as f64 / start.elapsed().as_secs_f64()
    });
    copies.fold(0.0, f64::max)
}
