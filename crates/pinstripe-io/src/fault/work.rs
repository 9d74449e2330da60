//! A running plan: the calls that it strikes, their outcomes, and their number.

#![allow(clippy::disallowed_methods, reason = "this module makes calls wait")]

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Dice;
use super::plan::{Effect, Fault, Operation, Plan, Target};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;

/// The calls so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    counts: [CallCounts; Operation::ALL.len()],
}

/// Calls of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// The number of calls.
    pub calls: u64,
    /// The bytes that they were asked to move.
    pub bytes: u64,
    /// The number of calls that a fault struck.
    pub struck: u64,
}

impl Statistics {
    /// The calls of one operation.
    pub fn counts(&self, operation: Operation) -> CallCounts {
        self.counts[operation as usize]
    }
}

/// The running plan.
pub struct Faults {
    /// What they are put before, for messages.
    pub place: PathBuf,
    armed: Vec<Armed>,
    counters: [FaultCounters; Operation::ALL.len()],
}

#[derive(Default)]
struct FaultCounters {
    calls: AtomicU64,
    bytes: AtomicU64,
    struck: AtomicU64,
}

/// A fault and how far it has come.
struct Armed {
    fault: Fault,
    state: Mutex<FaultProgress>,
}

struct FaultProgress {
    matched: u64,
    struck: u64,
    dice: Dice,
    /// Until when a limited rate is used up.
    busy_until: Option<Instant>,
}

/// The effect of the faults on one call.
#[derive(Default)]
pub struct Verdict {
    error: Option<i32>,
    wait: Duration,
    /// The number of bytes that arrive, if not all do.
    keep: Option<u64>,
    lost: bool,
    hangs: bool,
    /// The bits of the buffer that are flipped.
    flips: Vec<u64>,
}

impl Armed {
    fn new(fault: Fault) -> Self {
        let dice = Dice::new(fault.seed);
        Armed {
            fault,
            state: Mutex::new(FaultProgress { matched: 0, struck: 0, dice, busy_until: None }),
        }
    }

    /// Adds this fault's part to a call's verdict; says whether it struck.
    fn judge(&self, bytes: u64, verdict: &mut Verdict) -> bool {
        let mut state = lock(&self.state);
        state.matched += 1;
        let due = state.matched > self.fault.after_calls
            && self.fault.times.is_none_or(|times| state.struck < times);
        if !due || !state.dice.happens(self.fault.chance) {
            return false;
        }
        state.struck += 1;
        match self.fault.effect {
            Effect::Error(number) => verdict.error = verdict.error.or(Some(number)),
            Effect::Delay(delay) => verdict.wait += delay,
            Effect::Rate(rate) => verdict.wait += state.occupy(bytes, rate),
            Effect::Torn(kept) | Effect::Short(kept) => {
                verdict.keep = Some(verdict.keep.map_or(kept, |it| it.min(kept)));
            }
            Effect::Lost => verdict.lost = true,
            Effect::Hang => verdict.hangs = true,
            Effect::Flip(bits) => {
                let bits = u64::from(bits).min(8 * bytes);
                let bits = (0..bits).map(|_| state.dice.below(8 * bytes));
                verdict.flips.extend(bits);
            }
        }
        true
    }
}

impl FaultProgress {
    /// Books time on a device that moves `rate` bytes per second; returns how long until done.
    fn occupy(&mut self, bytes: u64, rate: u64) -> Duration {
        let now = clock::monotonic();
        let free = self.busy_until.map_or(now, |until| until.max(now));
        let done = free + Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.busy_until = Some(done);
        done - now
    }
}

impl Faults {
    /// Arms a plan before something at `place`.
    pub fn new(place: &Path, plan: Plan) -> Self {
        let armed = plan.faults.into_iter().map(Armed::new).collect();
        Faults { place: place.to_path_buf(), armed, counters: Default::default() }
    }

    /// Whether there is no fault, so that calls are only counted.
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }

    /// The calls so far.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        for (count, counters) in statistics.counts.iter_mut().zip(&self.counters) {
            *count = CallCounts {
                calls: counters.calls.load(Ordering::Relaxed),
                bytes: counters.bytes.load(Ordering::Relaxed),
                struck: counters.struck.load(Ordering::Relaxed),
            };
        }
        statistics
    }

    /// Counts a call, waits if it is to be slow, and returns the rest of its fate.
    pub fn enter(
        &self,
        operation: Operation,
        target: Option<Target>,
        place: &dyn Fn() -> PathBuf,
        bytes: usize,
    ) -> Result<Verdict> {
        let counters = &self.counters[operation as usize];
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut verdict = Verdict::default();
        let mut struck = false;
        for armed in self.armed.iter().filter(|it| it.fault.matches(operation, target)) {
            struck |= armed.judge(bytes as u64, &mut verdict);
        }
        if struck {
            counters.struck.fetch_add(1, Ordering::Relaxed);
        }
        if !verdict.wait.is_zero() {
            std::thread::sleep(verdict.wait);
        }
        if verdict.hangs {
            loop {
                std::thread::park();
            }
        }
        match verdict.error {
            Some(number) => {
                let error = io::Error::from_raw_os_error(number);
                Err(Error::io("simulated fault", place(), error))
            }
            None => Ok(verdict),
        }
    }
}

impl Verdict {
    /// The bytes that reach the member; `None` when not even the call does.
    pub fn arriving<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.lost {
            return None;
        }
        let mut bytes = Cow::Borrowed(bytes);
        if !self.flips.is_empty() {
            self.flip(bytes.to_mut());
        }
        match (self.kept(bytes.len()), bytes) {
            (Some(kept), Cow::Borrowed(bytes)) => Some(Cow::Borrowed(&bytes[..kept])),
            (Some(kept), Cow::Owned(mut bytes)) => {
                bytes.truncate(kept);
                Some(Cow::Owned(bytes))
            }
            (None, bytes) => Some(bytes),
        }
    }

    /// The number of bytes out of `len` that arrive, when it is less than all.
    pub fn kept(&self, len: usize) -> Option<usize> {
        let kept = usize::try_from(self.keep?).unwrap_or(usize::MAX);
        (kept < len).then_some(kept)
    }

    /// Flips the bits that a fault has chosen.
    pub fn flip(&self, bytes: &mut [u8]) {
        for bit in &self.flips {
            let at = (bit / 8) as usize;
            bytes[at] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shared_by_all_calls() {
        let mut progress =
            FaultProgress { matched: 0, struck: 0, dice: Dice::new(0), busy_until: None };
        let day = Duration::from_secs(24 * 3600);
        // A byte per second, so that the time this test takes does not matter.
        assert_eq!(progress.occupy(24 * 3600, 1), day);
        // The second waits for the first.
        let second = progress.occupy(24 * 3600, 1);
        assert!(second > day && second <= 2 * day, "{second:?}");
    }
}
