//! Where the streams of one input begin in the take, if not at the beginning of the take.
//!
//! The input's thread determines this with its first samples, without locking, allocating or a
//! system call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinstripe_base::clock;

use super::Ring;
use crate::sample::frames_in;

/// An input whose first bytes arrive within this time begins with the take, because starting the
/// threads takes this long.
const SOON: Duration = Duration::from_millis(20);
/// Nothing came yet.
const UNKNOWN: u64 = u64::MAX;
/// The value for an input that begins with the take, or with the order to start.
const IN_TIME: u64 = u64::MAX - 1;

/// The moment from which the frames of a take are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakeZero {
    /// The beginning of the take, or the order to start.
    pub at: Instant,
    /// The length of the pre-roll.
    pub pre_roll: Duration,
}

/// The beginning of one input, which its streams share because they are in step.
pub(crate) struct InputBeginning {
    /// Empty before an armed take begins, and if inputs are counted from their own beginnings.
    zero: Arc<OnceLock<TakeZero>>,
    /// The greatest time that is recorded, counted from `zero`.
    most: Option<Duration>,
    rate: u32,
    /// The number of frames between the beginning of the take and the beginning of the input.
    late: AtomicU64,
}

impl InputBeginning {
    /// Creates the beginning of an input with this rate. An input for which `begins_with_take` is
    /// set is never late, because its source does not wait for other inputs.
    pub fn new(
        zero: &Arc<OnceLock<TakeZero>>,
        most: Option<Duration>,
        (rate, begins_with_take): (u32, bool),
    ) -> Self {
        let late = AtomicU64::new(if begins_with_take { IN_TIME } else { UNKNOWN });
        InputBeginning { zero: Arc::clone(zero), most, rate, late }
    }

    /// Called before the first bytes of a stream are stored. Determines their place in the take,
    /// and the most bytes that the stream may have if it begins late.
    pub(super) fn fix(&self, ring: &Ring, bytes: u64) {
        let zero = self.zero.get();
        let late = match self.late.load(Ordering::Acquire) {
            UNKNOWN => {
                let now = clock::monotonic();
                let found =
                    zero.map_or(IN_TIME, |it| self.lateness(it, now, bytes / ring.frame_bytes));
                let set =
                    self.late.compare_exchange(UNKNOWN, found, Ordering::AcqRel, Ordering::Acquire);
                set.map_or_else(|known| known, |_| found)
            }
            known => known,
        };
        let Some(zero) = zero.filter(|_| late != IN_TIME) else { return };
        let bytes = |frames: u64| frames.saturating_mul(ring.frame_bytes).min(i64::MAX as u64);
        ring.set_origin(-(bytes(late) as i64));
        if let Some(most) = self.most {
            let all = frames_in(most + zero.pre_roll, self.rate);
            ring.end_at(bytes(all.saturating_sub(late)));
        }
    }

    fn lateness(&self, zero: &TakeZero, now: Instant, frames: u64) -> u64 {
        let length = Duration::from_secs_f64(frames as f64 / f64::from(self.rate.max(1)));
        let since = now.saturating_duration_since(zero.at).saturating_sub(length);
        if since < SOON { IN_TIME } else { frames_in(since + zero.pre_roll, self.rate) }
    }
}
