//! Carries out orders to a running take: begin, arm or disarm streams, begin new files.
//!
//! Each order takes effect at one place in every stream: at the same frame in all streams of an
//! input, which are in step, and at the same moment for all inputs. An order applies from the very
//! next sample on; no sample is lost.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use super::gate::Spans;
use super::shared::{Losses, SharedStream, SharedTake, TakeBeginning};
use crate::header::LocalTime;
use crate::ring::TakeZero;
use crate::sample::frames_in;
use crate::take::JournalEvent;

/// The text of the mark that is set at the order to start.
const START_MARK: &str = "start";
const NANOS: u128 = 1_000_000_000;

impl SharedTake {
    /// When the take began; `None` before it began.
    pub fn beginning(&self) -> Option<TakeBeginning> {
        self.begun.get().copied()
    }

    /// Records that the take began with the first sample.
    pub(crate) fn begin_at_once(&self) {
        let at_once = TakeBeginning { at: Duration::ZERO, pre_roll: Duration::ZERO };
        self.begun.get_or_init(|| at_once);
    }

    /// Begins an armed take. At most the given time of earlier samples becomes its pre-roll; `most`
    /// limits what is recorded from now on. `now` is the local time, ahead of UTC by
    /// `zone_seconds`. If there is a pre-roll, the moment of the order is marked.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the take has begun, or no stream is armed.
    pub fn start(
        &self,
        pre_roll: Duration,
        most: Option<Duration>,
        (now, zone_seconds): (LocalTime, i64),
    ) -> Result<TakeBeginning> {
        let _order = self.orders.lock();
        if self.begun.get().is_some() {
            return Err(Error::new(Kind::Refused, "the take has already begun"));
        }
        let mut gates: Vec<_> = self.streams.iter().map(|it| it.gate.lock()).collect();
        if !gates.iter().any(|it| it.is_armed()) {
            return Err(Error::new(Kind::Refused, "no stream is armed").advice(
                "arm at least one stream, for example all streams with 'pinstripe record ctl arm \
                 TAKE all'",
            ));
        }
        let inputs: Vec<_> = self
            .inputs()
            .map(|streams| {
                let rate = self.streams[streams.start].facts.shape.rate;
                let frame = self.frame_of(streams.clone());
                (streams, rate, frame, frame.min(frames_in(pre_roll, rate)))
            })
            .collect();
        let kept = inputs.iter().map(|(_, rate, _, kept)| time_of(*kept, *rate));
        let pre_roll = kept.max().unwrap_or_default();
        for (streams, rate, frame, kept) in inputs {
            let origin = frame as i64 - frames_in(pre_roll, rate) as i64;
            let end = most.map(|it| frame.saturating_add(frames_in(it, rate)));
            for number in streams {
                let stream = &self.streams[number];
                let bytes = stream.facts.shape.frame_bytes();
                let end = end.map(|it| it.saturating_mul(bytes));
                gates[number].begin(frame * bytes, kept * bytes, end);
                stream.forget_losses();
                stream.ring.set_origin(origin.saturating_mul(bytes as i64));
            }
        }
        let begun = TakeBeginning { at: self.now(), pre_roll };
        self.zero.get_or_init(|| TakeZero { at: self.began + begun.at, pre_roll });
        let pre_roll_nanos = i64::try_from(pre_roll.as_nanos()).unwrap_or(i64::MAX);
        let started = LocalTime::from_nanos(now.to_nanos().saturating_sub(pre_roll_nanos));
        self.report_beginning(begun, (started, zone_seconds));
        // Before a gate is open: a writer of a sample finds that the take has begun.
        Ok(*self.begun.get_or_init(|| begun))
    }

    /// Records the beginning of the take in heads and journals, before any of its samples are
    /// written.
    fn report_beginning(&self, begun: TakeBeginning, (started, zone_seconds): (LocalTime, i64)) {
        self.started.store(started.to_nanos(), Ordering::Release);
        for directory in &self.directories {
            directory.record_event(JournalEvent::Start {
                started,
                started_seconds: started.seconds - zone_seconds,
                at_nanos: begun.at.saturating_sub(begun.pre_roll).as_nanos() as u64,
            });
        }
        if !begun.pre_roll.is_zero() {
            let frames = |it: &SharedStream| frames_in(begun.pre_roll, it.facts.shape.rate);
            self.mark_at(START_MARK, self.streams.iter().map(frames).collect());
        }
    }

    /// Arms or disarms streams, given by their numbers, from now on. Returns the number of streams
    /// that changed.
    ///
    /// # Errors
    /// [`Kind::Refused`] if this was done too often.
    pub fn arm(&self, chosen: &BTreeSet<usize>, is_armed: bool) -> Result<usize> {
        let _order = self.orders.lock();
        let mut changed = 0;
        for streams in self.inputs() {
            let mut gates = self.gates(streams.clone().filter(|it| chosen.contains(it)));
            gates.retain(|it| it.is_armed() != is_armed);
            // Behind all that a writer can have passed: each gate is locked before this is asked.
            let frame = self.frame_of(streams.clone());
            let bytes = self.streams[streams.start].facts.shape.frame_bytes();
            for mut gate in gates {
                gate.arm(frame * bytes, is_armed)?;
                changed += 1;
            }
        }
        Ok(changed)
    }

    /// Begins a new file of every armed stream.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the take has not begun, or if this was done too often.
    pub fn split(&self) -> Result<()> {
        let _order = self.orders.lock();
        if self.begun.get().is_none() {
            return Err(Error::new(
                Kind::Refused,
                "the take has not begun, so there is no file to split",
            ));
        }
        for streams in self.inputs() {
            let gates = self.gates(streams.clone());
            let frame = self.frame_of(streams.clone());
            let bytes = self.streams[streams.start].facts.shape.frame_bytes();
            for mut gate in gates {
                gate.split(frame * bytes)?;
            }
        }
        Ok(())
    }

    /// The range of stream numbers of each input.
    fn inputs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut from = 0;
        self.streams.chunk_by(|a, b| a.input == b.input).map(move |streams| {
            let all = from..from + streams.len();
            from = all.end;
            all
        })
    }

    fn gates(&self, streams: impl Iterator<Item = usize>) -> Vec<MutexGuard<'_, Spans>> {
        streams.map(|it| self.streams[it].gate.lock()).collect()
    }

    /// The current frame of an input: that of its most advanced stream.
    fn frame_of(&self, streams: Range<usize>) -> u64 {
        let made = |it: &SharedStream| it.ring.made_bytes() / it.facts.shape.frame_bytes();
        self.streams[streams].iter().map(made).max().unwrap_or(0)
    }
}

impl SharedStream {
    /// Makes losses up to now not count as losses of the take.
    fn forget_losses(&self) {
        *self.before.lock() = Losses {
            overruns: self.ring.overruns(),
            lost_bytes: self.ring.lost_bytes(),
            missing_bytes: self.ring.missing_bytes(),
        };
    }
}

/// The duration of a number of frames.
fn time_of(frames: u64, rate: u32) -> Duration {
    let nanos = u128::from(frames) * NANOS / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
