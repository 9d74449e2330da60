//! Finds out whether two devices share hardware: an arm, a controller, a disk behind a virtual
//! device.
//!
//! Small reads at random places wait for the arm of a disk. If one device alone does `a` of them
//! per second, and the other `b`, then both at once do `a` and `b` if they are separate, and half
//! of each if they share one arm. The three measurements (first, second, both) take turns, so that
//! other load on the disks affects all three equally.

#![allow(clippy::disallowed_methods, reason = "this module measures two devices at the same time")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{AlignedBuf, Device};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct ProbeEffort {
    /// Rounds.
    pub rounds: usize,
    /// The duration of each of the three parts of a round.
    pub part: Duration,
    /// The number of bytes of one read.
    pub read_bytes: usize,
}

impl Default for ProbeEffort {
    fn default() -> Self {
        ProbeEffort { rounds: 7, part: Duration::from_millis(300), read_bytes: 4096 }
    }
}

/// One round of measurements, in reads per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Each device alone.
    pub alone: [f64; 2],
    /// Reads per second of each device while the other one is read as well.
    pub both: [f64; 2],
}

impl Round {
    /// The part of a device's rate that is left while the other device is read, on average: 1 if
    /// the devices are separate, a half if they share one arm.
    pub fn kept(&self) -> f64 {
        let share = |number: usize| self.both[number] / self.alone[number].max(1e-9);
        (share(0) + share(1)) / 2.0
    }
}

/// Measures two devices, which are only read. `stop` ends the measurement early; the completed
/// rounds are returned.
///
/// # Errors
/// Fails with the errors of the devices; with [`Kind::Usage`] for a device that is too short for
/// random reads.
pub fn measure(
    devices: [&dyn Device; 2],
    effort: ProbeEffort,
    stop: &AtomicBool,
) -> Result<Vec<Round>> {
    let mut spans = [0; 2];
    for (span, device) in spans.iter_mut().zip(devices) {
        *span = device.len()? / effort.read_bytes as u64;
        if *span < 2 {
            return Err(
                Error::new(Kind::Usage, "this device is too short to measure").at(device.place())
            );
        }
    }
    let mut rounds = Vec::with_capacity(effort.rounds);
    for number in 0..effort.rounds as u64 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let reader = |which: usize, part: u64| ProbeReader {
            device: devices[which],
            blocks: spans[which],
            effort,
            // Other places each time, since what one part read may be in a cache.
            state: (number * 8 + part * 2 + which as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        let alone = [reader(0, 0).rate()?, reader(1, 1).rate()?];
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| reader(1, 2).rate());
            let own = reader(0, 2).rate();
            let other = other.join().expect("a reader does not panic");
            Ok::<_, Error>([own?, other?])
        })?;
        rounds.push(Round { alone, both });
    }
    Ok(rounds)
}

struct ProbeReader<'a> {
    device: &'a dyn Device,
    blocks: u64,
    effort: ProbeEffort,
    state: u64,
}

impl ProbeReader<'_> {
    /// Reads at random offsets for the duration of a part; returns reads per second.
    fn rate(mut self) -> Result<f64> {
        let mut buf = AlignedBuf::new(self.effort.read_bytes);
        buf.resize(self.effort.read_bytes);
        let (began, mut reads): (Instant, u64) = (clock::monotonic(), 0);
        loop {
            let offset = self.next() % self.blocks * self.effort.read_bytes as u64;
            self.device.read_at(offset, &mut buf)?;
            reads += 1;
            let past = began.elapsed();
            if past >= self.effort.part {
                return Ok(reads as f64 / past.as_secs_f64());
            }
        }
    }

    /// The xorshift generator, which is random enough to scatter reads.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_io::device::MemoryDevice;

    #[test]
    fn as_many_rounds_are_measured_as_were_asked_for() {
        let device = MemoryDevice::new("memory");
        device.set_len(1 << 20).unwrap();
        let effort =
            ProbeEffort { rounds: 3, part: Duration::from_millis(1), ..ProbeEffort::default() };
        let (go, stop) = (AtomicBool::new(false), AtomicBool::new(true));
        let rounds = measure([&device, &device], effort, &go).unwrap();
        assert_eq!(rounds.len(), 3);
        assert!(rounds.iter().all(|round| round.kept() > 0.0));
        assert_eq!(measure([&device, &device], effort, &stop).unwrap(), []);
        let short = MemoryDevice::new("short");
        assert_eq!(measure([&device, &short], effort, &go).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn what_is_kept_is_a_half_where_two_share_one_arm() {
        assert_eq!(Round { alone: [100.0, 50.0], both: [50.0, 25.0] }.kept(), 0.5);
        assert_eq!(Round { alone: [100.0, 50.0], both: [100.0, 50.0] }.kept(), 1.0);
    }
}
