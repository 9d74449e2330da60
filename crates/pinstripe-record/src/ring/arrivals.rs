//! The arrival times of bytes. The writer and requests for the lag sample them, because the
//! producer does not read the clock.

use std::time::Duration;

use crate::locks::{RankedMutex, RecordLock};

/// The number of samples that are kept.
const KEPT: usize = 256;
/// The shortest time between two samples.
const STEP: Duration = Duration::from_millis(10);

/// Moments, each with an upper bound of the number of bytes that had arrived by then. If there are
/// too many moments, every second one of the older half is removed.
pub(crate) struct Arrivals {
    looks: RankedMutex<Vec<(Duration, u64)>>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { looks: RankedMutex::new(RecordLock::Arrivals, Vec::new()) }
    }
}

impl Arrivals {
    /// Records how much has arrived. `now` is read before `made` is called, so bytes that arrive in
    /// between count as older than they are.
    pub fn note(&self, now: Duration, made: impl FnOnce() -> u64) {
        let mut looks = self.looks.lock();
        let made = made();
        match looks.last_mut() {
            Some((at, _)) if now < *at => return,
            Some((at, last)) if *last == made => return *at = now,
            Some((at, _)) if now - *at < STEP => return,
            _ => {}
        }
        if looks.len() == KEPT {
            let mut number = 0;
            looks.retain(|_| {
                number += 1;
                number > KEPT / 2 || number % 2 == 0
            });
        }
        debug_assert!(looks.len() < KEPT, "the looks that are kept are bounded");
        debug_assert!(looks.last().is_none_or(|(at, last)| *at <= now && *last <= made));
        looks.push((now, made));
    }

    /// The latest known moment at which no byte after a place had arrived.
    pub(crate) fn all_before(&self, place: u64) -> Duration {
        let looks = self.looks.lock();
        let count = looks.partition_point(|(_, made)| *made <= place);
        count.checked_sub(1).map_or(Duration::ZERO, |it| looks[it].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_came_before_a_look_is_not_younger_than_it() {
        let arrivals = Arrivals::default();
        assert_eq!(arrivals.all_before(0), Duration::ZERO, "no look yet");
        for (second, made) in [(1, 100), (2, 200), (3, 200), (4, 300), (3, 300)] {
            arrivals.note(second * SECOND, || made);
        }
        for (place, second) in [(0, 0), (99, 0), (100, 1), (199, 1), (200, 3), (299, 3), (300, 4)] {
            assert_eq!(arrivals.all_before(place), second * SECOND, "{place}");
        }
    }

    #[test]
    fn looks_are_bounded_and_no_age_is_told_too_low() {
        let arrivals = Arrivals::default();
        let mut step = 0;
        while step < 10_000 {
            step += 1;
            arrivals.note(step as u32 * STEP, || step);
        }
        assert!(arrivals.looks.lock().len() <= KEPT);
        for place in 0..=step {
            let told = arrivals.all_before(place);
            assert!(told <= place as u32 * STEP, "{place}");
        }
        let recent = (step - 100..=step).map(|it| (it, arrivals.all_before(it)));
        assert!(recent.into_iter().all(|(place, told)| told == place as u32 * STEP));
    }
}
