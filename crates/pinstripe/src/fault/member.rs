//! A member that follows a plan of faults, and counts.
//!
//! Invariant: with an empty plan it is the inner member, call for call. A fault never changes
//! what was sealed before.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Dice;
use super::plan::{Effect, Fault, Operation, Plan, Target};
use crate::clock;
use crate::error::{Error, Result};
use crate::member::{Caps, ExtentName, ExtentWriter, Member, Replace, Room};

/// A member with faults.
pub struct FaultMember<M> {
    inner: M,
    faults: Arc<Faults>,
}

/// What was called so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    counts: [Count; Operation::ALL.len()],
}

/// Calls of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many calls.
    pub calls: u64,
    /// The bytes that they were asked to move.
    pub bytes: u64,
    /// How many of them a fault struck.
    pub struck: u64,
}

impl Statistics {
    /// The calls of one operation.
    pub fn of(&self, operation: Operation) -> Count {
        self.counts[operation as usize]
    }
}

/// The plan at work, shared with the writers.
struct Faults {
    place: PathBuf,
    armed: Vec<Armed>,
    counters: [Counters; Operation::ALL.len()],
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    bytes: AtomicU64,
    struck: AtomicU64,
}

/// A fault and how far it has come.
struct Armed {
    fault: Fault,
    state: Mutex<Progress>,
}

struct Progress {
    matched: u64,
    struck: u64,
    dice: Dice,
    /// Until when a limited rate is used up.
    busy_until: Option<Instant>,
}

/// What the faults make of one call.
#[derive(Default)]
struct Verdict {
    error: Option<i32>,
    wait: Duration,
    /// How many bytes arrive, if not all do.
    keep: Option<u64>,
    lost: bool,
    /// Which bits of the buffer are turned over.
    flips: Vec<u64>,
}

impl<M: Member> FaultMember<M> {
    /// Puts a plan before a member. The `member` keys of the plan are not looked at: see
    /// [`Plan::for_member`].
    pub fn new(inner: M, plan: Plan) -> Self {
        let place = inner.place().to_path_buf();
        let armed = plan.faults.into_iter().map(Armed::new).collect();
        FaultMember {
            inner,
            faults: Arc::new(Faults { place, armed, counters: Default::default() }),
        }
    }

    /// The member behind the faults.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// What was called so far, writers included.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        for (count, counters) in statistics.counts.iter_mut().zip(&self.faults.counters) {
            *count = Count {
                calls: counters.calls.load(Ordering::Relaxed),
                bytes: counters.bytes.load(Ordering::Relaxed),
                struck: counters.struck.load(Ordering::Relaxed),
            };
        }
        statistics
    }
}

impl Armed {
    fn new(fault: Fault) -> Self {
        let dice = Dice::new(fault.seed);
        Armed {
            fault,
            state: Mutex::new(Progress { matched: 0, struck: 0, dice, busy_until: None }),
        }
    }

    /// Adds this fault's part to a call's verdict; says whether it struck.
    fn judge(&self, bytes: u64, verdict: &mut Verdict) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
            Effect::Flip(bits) => {
                let bits = u64::from(bits).min(8 * bytes);
                let bits = (0..bits).map(|_| state.dice.below(8 * bytes));
                verdict.flips.extend(bits);
            }
        }
        true
    }
}

impl Progress {
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
    /// Counts a call, waits if it is to be slow, and returns the rest of its fate.
    fn enter(
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
        match verdict.error {
            Some(number) => {
                let error = io::Error::from_raw_os_error(number);
                Err(Error::io("a planned fault", place(), error))
            }
            None => Ok(verdict),
        }
    }

    fn on_extent(&self, operation: Operation, name: ExtentName, bytes: usize) -> Result<Verdict> {
        let place = || self.place.join(name.path());
        self.enter(operation, Some(Target::of(name)), &place, bytes)
    }
}

impl Verdict {
    /// The bytes that reach the member; `None` when not even the call does.
    fn arriving<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
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

    /// How many of `len` bytes arrive, when that is less than all.
    fn kept(&self, len: usize) -> Option<usize> {
        let kept = usize::try_from(self.keep?).unwrap_or(usize::MAX);
        (kept < len).then_some(kept)
    }

    fn flip(&self, bytes: &mut [u8]) {
        for bit in &self.flips {
            let at = (bit / 8) as usize;
            bytes[at] ^= 1 << (bit % 8);
        }
    }
}

impl<M: Member> Member for FaultMember<M> {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        self.faults.on_extent(Operation::Create, name, 0)?;
        let inner = self.inner.create(name, replace)?;
        Ok(Box::new(FaultWriter { inner, name, faults: self.faults.clone() }))
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let verdict = self.faults.on_extent(Operation::Put, name, bytes.len())?;
        match verdict.arriving(bytes) {
            Some(bytes) => self.inner.put(name, &bytes),
            None => Ok(()),
        }
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let verdict = self.faults.on_extent(Operation::Read, name, buf.len())?;
        if let Some(kept) = verdict.kept(buf.len()) {
            self.inner.read_at(name, offset, &mut buf[..kept])?;
            let place = self.place().join(name.path());
            return Err(Error::corrupt("a planned fault: the extent ends early", place)
                .expected(format!("{} bytes", buf.len()), kept));
        }
        self.inner.read_at(name, offset, buf)?;
        verdict.flip(buf);
        Ok(())
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        self.faults.on_extent(Operation::Len, name, 0)?;
        self.inner.len(name)
    }

    fn list(&self, room: Room) -> Result<Vec<([u8; 16], u64)>> {
        let place = || self.place().join(room.dir());
        self.faults.enter(Operation::List, Some(Target::Room(room)), &place, 0)?;
        self.inner.list(room)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        self.faults.on_extent(Operation::Delete, name, 0)?;
        self.inner.delete(name)
    }

    fn sync(&self) -> Result<()> {
        self.faults.enter(Operation::Sync, None, &|| self.place().to_path_buf(), 0)?;
        self.inner.sync()
    }

    fn sweep(&self) -> Result<u64> {
        self.inner.sweep()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        &self.faults.place
    }
}

struct FaultWriter {
    inner: Box<dyn ExtentWriter>,
    name: ExtentName,
    faults: Arc<Faults>,
}

impl ExtentWriter for FaultWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let verdict = self.faults.on_extent(Operation::Append, self.name, bytes.len())?;
        match verdict.arriving(bytes) {
            Some(bytes) => self.inner.append(&bytes),
            None => Ok(()),
        }
    }

    fn seal(self: Box<Self>) -> Result<()> {
        self.faults.on_extent(Operation::Seal, self.name, 0)?;
        self.inner.seal()
    }
}

#[cfg(test)]
mod tests;
