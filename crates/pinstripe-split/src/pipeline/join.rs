//! Joins: many threads read batches of a split back, and write them to a device in any order or to
//! a stream in the source's order.
//!
//! ```text
//! ahead: bytes of the next batches --> workers: check, heal, decode --> hash --> queue of the device,
//!                                                                                or the stream, in turn
//! ```
//!
//! Invariants: the written bytes are those that were split, or a loss is reported. Zeros are not
//! written where the target reads as zeros anyway. The number of buffers is fixed, and buffers are
//! reused.

use std::ops::Range;
use std::sync::{Condvar, Mutex};

mod ahead;

use self::ahead::{Ahead, with_batches_ahead};
use crate::outputs::unit::{Unit, UnitReader};
use crate::outputs::{Located, Reader, TreeHash, UnitHash};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::{into_inner, lock, wait};
use pinstripe_base::units::merged;
use pinstripe_io::device::{AlignedBuf, BufferPool, Device};
use pinstripe_io::write_queue::{QueueDevice, WriteQueue, WriteQueueSettings};
use pinstripe_stripe::Abort;

/// The destination of the source's bytes.
pub enum Target<'t> {
    /// No target: the split is only verified.
    None,
    /// A device: each byte goes to its offset in the source minus the start of the range.
    Device {
        /// The device.
        device: QueueDevice,
        /// The device reads as zeros where nothing was written.
        is_blank: bool,
    },
    /// A stream: it gets all bytes in order, including zeros.
    Stream(&'t mut (dyn FnMut(&[u8]) -> Result<()> + Send)),
}

/// The part of a split that is to be joined.
pub(crate) struct JoinJob<'j> {
    /// The split.
    pub reader: &'j Reader,
    /// The range of the source.
    pub range: Range<u64>,
    /// Write zeros for lost bytes, and continue.
    pub best_effort: bool,
    /// Threads.
    pub workers: usize,
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinOutcome {
    /// Parts of the range that could not be read, ascending.
    pub lost: Vec<Range<u64>>,
    /// The number of batches that parity repaired.
    pub healed: u64,
    /// The ranges of batches that decode to other bytes than were split, ascending.
    pub changed: Vec<Range<u64>>,
    /// The ranges of batches with damage that lost no bytes of the source and that parity did not
    /// repair, ascending.
    pub hurt: Vec<Range<u64>>,
    /// BLAKE3 of the source, if all of it was read.
    pub blake3: Option<[u8; 32]>,
}

struct JoinShared<'s, 't> {
    job: &'s JoinJob<'s>,
    batches: &'s [Located],
    target: Mutex<Target<'t>>,
    is_verifying: bool,
    /// The number of the batch that the stream needs next.
    turn: Mutex<usize>,
    turned: Condvar,
    abort: Abort,
    found: Mutex<FoundOutputs>,
    monitor: &'s Monitor,
}

/// When a worker ends, for any reason, wakes the threads that wait for their turn: their turn may
/// never come. Wakes them while holding the lock, so that no thread is between its check and its
/// wait.
struct WakeOnDrop<'w, 's, 't>(&'w JoinShared<'s, 't>);

impl Drop for WakeOnDrop<'_, '_, '_> {
    fn drop(&mut self) {
        let _turn = lock(&self.0.turn);
        self.0.turned.notify_all();
    }
}

#[derive(Default)]
struct FoundOutputs {
    outcome: JoinOutcome,
    hash: TreeHash,
}

impl JoinJob<'_> {
    /// Reads the range and writes it to the target.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] at the first lost part, unless the job continues after
    /// losses, with [`Kind::Usage`] for a range beyond the end, or with the errors of the target.
    pub fn run(&self, target: Target<'_>, monitor: &Monitor) -> Result<JoinOutcome> {
        let Range { start, end } = self.range;
        if start > end || end > self.reader.source_bytes() {
            return Err(Error::new(Kind::Usage, "the range is beyond the end of the source")
                .expected(
                    format!("within 0..{}", self.reader.source_bytes()),
                    format!("{start}..{end}"),
                ));
        }
        let absent = self.absent();
        if let (Some(lost), false) = (absent.first(), self.best_effort) {
            return Err(lost_error(lost));
        }
        let shared = JoinShared {
            job: self,
            batches: self.reader.batches_in(&self.range),
            is_verifying: matches!(target, Target::None),
            target: Mutex::new(target),
            turn: Mutex::new(0),
            turned: Condvar::new(),
            abort: Abort::default(),
            found: Mutex::default(),
            monitor,
        };
        shared.carry_out(self.workers)?;
        shared.fill(&absent)?;
        let found = into_inner(shared.found);
        let mut outcome = found.outcome;
        outcome.lost.extend(absent);
        outcome.lost = merged(outcome.lost);
        outcome.changed.sort_by_key(|it| it.start);
        outcome.hurt.sort_by_key(|it| it.start);
        let is_whole = self.range == (0..self.reader.source_bytes()) && outcome.lost.is_empty();
        outcome.blake3 = if is_whole { found.hash.finish() } else { None };
        Ok(outcome)
    }

    /// The parts of the range that no batch contains.
    fn absent(&self) -> Vec<Range<u64>> {
        let within = |it: Range<u64>| it.start.max(self.range.start)..it.end.min(self.range.end);
        self.reader.absent().into_iter().map(within).filter(|it| it.start < it.end).collect()
    }
}

/// The error for a lost range.
fn lost_error(lost: &Range<u64>) -> Error {
    let Range { start, end } = lost;
    Error::new(
        Kind::TooManyLosses,
        format!(
            "the bytes {start}..{end} of the source are lost"
        ),
    )
    .advice(
        "'pinstripe verify OUT...' lists all lost bytes; with --best-effort, the intact bytes are \
         written, and zeros in place of the lost bytes",
    )
}

impl JoinShared<'_, '_> {
    fn carry_out(&self, workers: usize) -> Result<()> {
        let workers = workers.clamp(1, self.batches.len().max(1));
        std::thread::scope(|scope| {
            // A queue, since several writers of one file would wait for each other and for a
            // processor.
            let device = self.device().map(|(device, _)| device);
            let settings = WriteQueueSettings::default();
            let queue = device.map(|device| WriteQueue::start(scope, device, settings, |_| ()));
            let waiting = if queue.is_some() { settings.depth + settings.queued } else { 0 };
            let unit_bytes = self.job.reader.head().unit_bytes() as usize;
            let buffers = BufferPool::new(workers + waiting, unit_bytes);
            with_batches_ahead(self.job.reader, self.batches, workers, |ahead| {
                std::thread::scope(|scope| {
                    for _ in 0..workers {
                        scope.spawn(|| {
                            let _wake = WakeOnDrop(self);
                            let _guard = self.abort.on_panic();
                            if let Err(error) = self.work(ahead, &buffers, queue.as_ref()) {
                                self.abort.raise(error);
                            }
                        });
                    }
                });
            });
            self.abort.check()?;
            queue.map_or(Ok(()), |queue| queue.barrier())
        })
    }

    fn work(
        &self,
        ahead: &Ahead<'_, '_>,
        buffers: &BufferPool,
        queue: Option<&WriteQueue<'_>>,
    ) -> Result<()> {
        let mut units = UnitReader::default();
        while let Some((number, pinned)) = ahead.next() {
            if self.abort.is_raised() {
                return Ok(());
            }
            let (located, mut raw) = (&self.batches[number], buffers.take());
            let unit = {
                let fetched = pinned.get()?;
                self.job.reader.read_fetched(located, fetched.fetched(), &mut units, &mut raw)?
            };
            // Before this thread waits for its turn, which may be that of a batch not read yet.
            drop(pinned);
            self.batch(number, located, unit, raw, queue)?;
        }
        Ok(())
    }

    fn batch(
        &self,
        number: usize,
        located: &Located,
        unit: Unit,
        raw: AlignedBuf,
        queue: Option<&WriteQueue<'_>>,
    ) -> Result<()> {
        let place = located.place;
        let wanted = &self.job.range;
        let within = |it: &Range<u64>| it.start.max(wanted.start)..it.end.min(wanted.end);
        let lost: Vec<_> = unit.lost.iter().map(within).filter(|it| it.start < it.end).collect();
        if let (Some(first), false) = (lost.first(), self.job.best_effort) {
            return Err(lost_error(first));
        }
        let whole = place.offset..place.offset + place.raw_bytes;
        let part = unit.lost.is_empty().then(|| self.hash(&whole, &raw));
        // A join writes zeros over stray bytes anyway; a verification has to report them.
        let has_strays = self.is_verifying && self.job.reader.has_stray_bytes(located, &unit.zeros);
        {
            let mut found = lock(&self.found);
            found.outcome.lost.extend(lost);
            found.outcome.healed += u64::from(unit.is_healed);
            let is_hurt = unit.is_damaged && !unit.is_healed || has_strays;
            if is_hurt && unit.lost.is_empty() {
                found.outcome.hurt.push(whole.clone());
            }
            let is_same =
                |part: &UnitHash| unit.chaining_value.is_none_or(|it| it == part.chaining_value);
            if part.flatten().is_some_and(|part| !is_same(&part)) {
                found.outcome.changed.push(whole.clone());
            }
        }
        let here = within(&whole);
        match (self.device(), queue) {
            (Some((device, is_blank)), Some(queue)) => {
                let is_one = !raw.is_empty() && here == whole;
                match is_one && (unit.zeros.is_empty() || !is_blank) {
                    true => queue.write(here.start - wanted.start, raw)?,
                    false => self.parts(
                        device.device(),
                        is_blank,
                        &here,
                        place.offset,
                        &unit.zeros,
                        &raw,
                    )?,
                }
            }
            _ => self.stream(number, &here, place.offset, &raw)?,
        }
        self.monitor.add(Counter::RestoredBytes, here.end.saturating_sub(here.start));
        Ok(())
    }

    /// Returns the contribution of a batch to the hash of the source, if the batch is exactly one
    /// unit.
    fn hash(&self, whole: &Range<u64>, raw: &[u8]) -> Option<UnitHash> {
        if self.job.range.start > 0 || self.job.range.end < self.job.reader.source_bytes() {
            return None;
        }
        let unit = u64::from(self.job.reader.head().unit_bytes());
        let mut part = None;
        let zeros = if raw.is_empty() { vec![0; unit as usize] } else { Vec::new() };
        for offset in (whole.start..whole.end).step_by(unit as usize) {
            let end = whole.end.min(offset + unit);
            let range = (offset - whole.start) as usize..(end - whole.start) as usize;
            let bytes = if raw.is_empty() { &zeros[..range.len()] } else { &raw[range] };
            let of = UnitHash::from_bytes(offset, bytes);
            let mut found = lock(&self.found);
            found.hash.take(offset / unit, of);
            part = Some(of);
        }
        part.filter(|_| whole.end - whole.start <= unit)
    }

    /// Returns the device to which bytes are written at their offsets, and whether it reads as
    /// zeros where nothing was written.
    fn device(&self) -> Option<(QueueDevice, bool)> {
        match &*lock(&self.target) {
            Target::Device { device, is_blank } => Some((device.clone(), *is_blank)),
            Target::None | Target::Stream(_) => None,
        }
    }

    /// Writes the wanted part of a batch; zeros are written only where the target does not read as
    /// zeros anyway.
    fn parts(
        &self,
        device: &dyn Device,
        is_blank: bool,
        here: &Range<u64>,
        start: u64,
        zeros: &[Range<u64>],
        raw: &[u8],
    ) -> Result<()> {
        let slice =
            |range: Range<u64>| &raw[(range.start - start) as usize..(range.end - start) as usize];
        let base = self.job.range.start;
        if !is_blank {
            return match raw.is_empty() {
                true => write_zeros(device, here.start - base..here.end - base),
                false => device.write_at(here.start - base, slice(here.clone())),
            };
        }
        let mut next = here.start;
        let end = std::iter::once(here.end..here.end);
        for zero in zeros.iter().cloned().chain(end) {
            let data = next..zero.start.clamp(next, here.end);
            if !data.is_empty() && !raw.is_empty() {
                device.write_at(data.start - base, slice(data))?;
            }
            next = zero.end.clamp(next, here.end);
        }
        Ok(())
    }

    /// Waits for a batch's turn at the stream, if the target is one, and writes the source up to
    /// the batch's end.
    fn stream(&self, number: usize, here: &Range<u64>, start: u64, raw: &[u8]) -> Result<()> {
        if self.is_verifying {
            return Ok(());
        }
        let mut turn = lock(&self.turn);
        while *turn != number {
            if self.abort.is_raised() {
                return Ok(());
            }
            turn = wait(&self.turned, turn);
        }
        let before = match number.checked_sub(1).map(|it| self.batches[it].place) {
            Some(place) => (place.offset + place.raw_bytes).max(self.job.range.start),
            None => self.job.range.start,
        };
        let mut target = lock(&self.target);
        let Target::Stream(out) = &mut *target else { return Ok(()) };
        // Bytes in no batch read as zeros.
        send_zeros(out, here.start.saturating_sub(before))?;
        match raw.is_empty() {
            true => send_zeros(out, here.end - here.start)?,
            false => out(&raw[(here.start - start) as usize..(here.end - start) as usize])?,
        }
        *turn += 1;
        self.turned.notify_all();
        Ok(())
    }

    /// Writes zeros for the ranges that no batch contains: to a stream those after the last batch,
    /// to a device all of them.
    fn fill(&self, absent: &[Range<u64>]) -> Result<()> {
        let Range { start, end } = self.job.range;
        match &mut *lock(&self.target) {
            Target::Stream(out) => {
                let reached = self.batches.last().map(|it| it.place.offset + it.place.raw_bytes);
                send_zeros(out, end.saturating_sub(reached.unwrap_or(0).max(start)))
            }
            Target::Device { device, is_blank: false } => absent
                .iter()
                .try_for_each(|it| write_zeros(device.device(), it.start - start..it.end - start)),
            _ => Ok(()),
        }
    }
}

/// A buffer of zeros, aligned for direct writes to a disk.
#[repr(align(4096))]
struct DiskZeros([u8; 1 << 20]);

static ZEROS: DiskZeros = DiskZeros([0; 1 << 20]);

fn send_zeros(out: &mut dyn FnMut(&[u8]) -> Result<()>, mut bytes: u64) -> Result<()> {
    while bytes > 0 {
        let now = bytes.min(ZEROS.0.len() as u64);
        out(&ZEROS.0[..now as usize])?;
        bytes -= now;
    }
    Ok(())
}

fn write_zeros(device: &dyn Device, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let now = (range.end - at).min(ZEROS.0.len() as u64);
        device.write_at(at, &ZEROS.0[..now as usize])?;
        at += now;
    }
    Ok(())
}
