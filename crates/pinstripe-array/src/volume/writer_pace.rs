//! The pace of writers, as pure functions, so that tables can test it.
//!
//! While less than half of the limit is dirty, writers do not wait. Above half of the limit,
//! writers are slowed down in proportion, so that they match the rate of the members before the
//! limit stops them all: at half of the limit they may write twice as fast as the members, at five
//! sixths as fast, at the limit half as fast. Writers share the rate: each gets a turn, one after
//! the other.
//!
//! Invariant: a writer never waits for a turn that is further away than [`TURN_MOST`], so that a
//! wrong measurement costs little.

use std::time::Duration;

/// The longest time that a writer waits for its turn.
const TURN_MOST: Duration = Duration::from_millis(200);
/// A writer does not wait if its turn comes within this time: to sleep and wake for each small
/// write costs more than the write.
const TURN_LEAST: Duration = Duration::from_millis(2);
/// The weight of the newest task in the average rate.
const NEWEST: f64 = 0.25;
/// Tasks with fewer bytes are not used to measure the rate.
const TELLING_BYTES: u64 = 64 << 10;

/// The rate of the members, and the turns of writers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct WriterPace {
    /// Bytes per second that the flusher writes to the members; 0 while unknown.
    rate: f64,
    /// The time when the last turn ends.
    turns_end: Duration,
}

impl WriterPace {
    /// Records how many bytes the flusher wrote to the members, and how long that took.
    pub fn drained(&mut self, bytes: u64, took: Duration) {
        if bytes < TELLING_BYTES || took.is_zero() {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64();
        self.rate = match self.rate > 0.0 {
            true => self.rate + NEWEST * (rate - self.rate),
            false => rate,
        };
    }

    /// When a writer that has just added `bytes` may continue, if `dirty` of `limit` bytes are
    /// dirty; `None` means at once.
    pub fn turn(&mut self, now: Duration, bytes: u64, dirty: u64, limit: u64) -> Option<Duration> {
        let speed = self.rate * speed_up(dirty, limit)?;
        if speed <= 0.0 {
            return None;
        }
        let turn = Duration::from_secs_f64((bytes as f64 / speed).min(TURN_MOST.as_secs_f64()));
        self.turns_end = (self.turns_end.max(now) + turn).min(now + TURN_MOST);
        Some(self.turns_end).filter(|end| *end > now + TURN_LEAST)
    }
}

/// Whether writers are slowed down with this many dirty bytes.
pub(super) fn is_paced(dirty: u64, limit: u64) -> bool {
    dirty > limit / 2
}

/// How many times faster than the members writers may write with this many dirty bytes; `None`
/// means without limit.
fn speed_up(dirty: u64, limit: u64) -> Option<f64> {
    if !is_paced(dirty, limit) {
        return None;
    }
    let half = (limit / 2).max(1);
    let beyond = ((dirty - limit / 2) as f64 / half as f64).min(1.0);
    Some(2.0 - 1.5 * beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 64 * MIB;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Members that take 1 MiB per millisecond.
    fn pace() -> WriterPace {
        let mut pace = WriterPace::default();
        pace.drained(16 * MIB, at(16));
        pace
    }

    /// Small writes share one wait: turns are had in advance, up to the least that is waited for.
    #[test]
    fn a_turn_that_is_near_is_not_waited_for() {
        let mut pace = pace();
        let mut small = |now| pace.turn(at(now), MIB / 8, LIMIT, LIMIT);
        let turns: Vec<_> = (0..10).map(|_| small(100)).collect();
        assert_eq!(turns[..8], [None; 8]);
        assert_eq!(turns[8..], [2250, 2500].map(|us| Some(at(100) + Duration::from_micros(us))));
        assert_eq!(small(102), None);
    }

    #[test]
    fn writers_slow_down_from_half_of_the_limit_on() {
        for (dirty, millis) in [
            (0, None),
            (32 * MIB, None),
            (32 * MIB + 1, Some(0.5)),
            (48 * MIB, Some(0.8)),
            (32 * MIB + 64 * MIB / 3, Some(1.0)),
            (64 * MIB, Some(2.0)),
            (80 * MIB, Some(2.0)),
        ] {
            let turn = pace().turn(at(100), 8 * MIB, dirty, LIMIT);
            let found = turn.map(|end| (end - at(100)).as_secs_f64() * 1e3 / 8.0);
            let is_right = match (found, millis) {
                (Some(found), Some(millis)) => (found - millis).abs() < 0.001,
                (found, millis) => found == millis,
            };
            assert!(is_right, "{dirty}: {found:?}, not {millis:?}");
        }
    }

    #[test]
    fn writers_take_turns_and_none_waits_for_long() {
        let mut pace = pace();
        let full = |pace: &mut WriterPace, now| pace.turn(at(now), 4 * MIB, LIMIT, LIMIT).unwrap();
        assert_eq!(full(&mut pace, 100), at(108));
        assert_eq!(full(&mut pace, 100), at(116));
        assert_eq!(full(&mut pace, 112), at(124));
        assert_eq!(full(&mut pace, 200), at(208), "turns that were not taken are gone");
        for _ in 0..100 {
            assert!(full(&mut pace, 300) <= at(300) + TURN_MOST);
        }
        for _ in 0..100 {
            pace.drained(MIB, Duration::from_secs(100));
        }
        assert_eq!(full(&mut pace, 1000), at(1000) + TURN_MOST);
    }

    #[test]
    fn without_a_rate_there_are_no_turns() {
        let mut pace = WriterPace::default();
        assert_eq!(pace.turn(at(1), MIB, LIMIT, LIMIT), None);
        pace.drained(0, at(1));
        pace.drained(100, at(1));
        pace.drained(MIB, Duration::ZERO);
        assert_eq!(pace, WriterPace::default());
    }

    /// Writers who always want to write 1 MiB, and members that take 16 MiB at a time: what is dirty
    /// settles below the limit, so that it stops no writer.
    #[test]
    fn what_is_dirty_settles_below_the_limit() {
        for writers in [1, 4, 8] {
            let (mut pace, mut dirty, mut most) = (pace(), 0, 0);
            let mut free_at = vec![Duration::ZERO; writers];
            for millis in 0..2000 {
                for free_at in &mut free_at {
                    while *free_at <= at(millis) && dirty < LIMIT {
                        dirty += MIB;
                        let turn = pace.turn(at(millis), MIB, dirty, LIMIT);
                        *free_at = turn.unwrap_or(at(millis));
                    }
                }
                if millis % 16 == 15 {
                    dirty -= dirty.min(16 * MIB);
                    pace.drained(16 * MIB, at(16));
                }
                if millis > 100 {
                    most = most.max(dirty);
                }
            }
            assert!(most < LIMIT && most > LIMIT / 2, "{writers} writers: {} MiB", most / MIB);
        }
    }
}
