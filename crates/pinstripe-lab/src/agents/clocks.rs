//! Compares the clocks of two machines by exchanges of messages, as NTP does (RFC 5905, section 8).
//!
//! ```text
//! ours      sent ---------------------- came        theirs = ours + offset
//! theirs          received -- answered              |true - offset| <= round trip / 2
//! ```
//!
//! The exchange with the shortest round trip is used: the additional time of the others was
//! waiting, which need not be the same in both directions.
//!
//! This module does not read a clock. Times are nanoseconds of clocks that are never set back.

use crate::result::ClockDifference;

/// One question to another machine about its clock, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// When the question was sent, by the clock of this machine.
    pub sent_ns: u64,
    /// When the question was received, by the clock of the other machine.
    pub received_ns: u64,
    /// When the answer was sent, by the clock of the other machine.
    pub answered_ns: u64,
    /// When the answer arrived, by the clock of this machine.
    pub came_ns: u64,
    /// How far the other machine's time of day is ahead of its clock that is never set back.
    pub their_wall_ns: i64,
}

/// The difference between the clock of another machine and the clock of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// The lead of the other machine's clock over the clock of this machine, in nanoseconds.
    pub offset_ns: i128,
    /// The time from the question to the answer, without the time that the other machine took to
    /// answer.
    pub round_trip_ns: u64,
    /// The lead of the other machine's time of day over the time of day of this machine, in
    /// nanoseconds.
    pub wall_offset_ns: i128,
    /// Exchanges made.
    pub exchanges: u32,
}

impl Exchange {
    /// The round trip; `None` for impossible times.
    fn round_trip_ns(&self) -> Option<u64> {
        let ours = self.came_ns.checked_sub(self.sent_ns)?;
        ours.checked_sub(self.answered_ns.checked_sub(self.received_ns)?)
    }

    fn offset_ns(&self) -> i128 {
        let there = i128::from(self.received_ns) - i128::from(self.sent_ns);
        let back = i128::from(self.answered_ns) - i128::from(self.came_ns);
        (there + back) / 2
    }
}

impl ClockOffset {
    /// Returns the difference of the clocks according to these exchanges. `our_wall_ns` is how far
    /// the time of day of this machine is ahead of its clock. `None` if all exchanges have
    /// impossible times.
    pub(crate) fn from_exchanges(exchanges: &[Exchange], our_wall_ns: i128) -> Option<ClockOffset> {
        let timed = exchanges.iter().filter_map(|it| Some((it.round_trip_ns()?, it)));
        let (round_trip_ns, best) = timed.min_by_key(|(round_trip, _)| *round_trip)?;
        let offset_ns = best.offset_ns();
        Some(ClockOffset {
            offset_ns,
            round_trip_ns,
            wall_offset_ns: i128::from(best.their_wall_ns) - our_wall_ns + offset_ns,
            exchanges: exchanges.len() as u32,
        })
    }

    /// The true offset is at most this far from `offset_ns`, either way.
    pub(crate) fn doubt_ns(&self) -> u64 {
        self.round_trip_ns.div_ceil(2)
    }

    /// Converts a moment by the clock of this machine to the clock of the other machine.
    pub fn theirs(&self, ours_ns: u64) -> u64 {
        let theirs = i128::from(ours_ns) + self.offset_ns;
        theirs.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Converts a moment by the clock of the other machine to the clock of this machine; the result
    /// is negative for a moment before this clock began.
    pub fn ours(&self, theirs_ns: u64) -> i128 {
        i128::from(theirs_ns) - self.offset_ns
    }

    /// The difference as it is stored with results.
    pub fn kept(&self) -> ClockDifference {
        ClockDifference {
            offset_s: self.wall_offset_ns as f64 / 1e9,
            doubt_s: self.doubt_ns() as f64 / 1e9,
            round_trip_s: self.round_trip_ns as f64 / 1e9,
            exchanges: self.exchanges,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::random::Noise;

    /// An exchange with a clock that is `offset` ahead, with these times on the way.
    fn exchange(at: u64, offset: i64, there: u64, work: u64, back: u64) -> Exchange {
        let theirs = |ours: u64| ours.checked_add_signed(offset).unwrap();
        let (received, answered) = (at + there, at + there + work);
        Exchange {
            sent_ns: at,
            received_ns: theirs(received),
            answered_ns: theirs(answered),
            came_ns: answered + back,
            their_wall_ns: 0,
        }
    }

    #[test]
    fn the_true_offset_is_within_the_doubt_whatever_the_way_is_like() {
        let mut noise = Noise(7);
        for round in 0..2000 {
            let offset = noise.below(1 << 40) as i64 - (1 << 39);
            let exchanges: Vec<Exchange> = (0..1 + round % 9)
                .map(|_| {
                    let [there, work, back] = [1 << 20, 1 << 22, 1 << 14].map(|it| noise.below(it));
                    exchange((1 << 41) + noise.below(1 << 30), offset, there, work, back)
                })
                .collect();
            let found = ClockOffset::from_exchanges(&exchanges, 0).unwrap();
            let error = (found.offset_ns - i128::from(offset)).unsigned_abs();
            assert!(error <= u128::from(found.doubt_ns()), "{error} of {found:?}");
            // Within the rounding of the halves.
            let there_and_back = found.ours(found.theirs(1 << 41));
            assert_eq!(there_and_back, 1 << 41);
        }
    }

    #[test]
    fn the_exchange_that_waited_least_decides() {
        let slow = exchange(1_000_000, 500, 90_000, 10, 10);
        let quick = exchange(2_000_000, 500, 40, 1000, 60);
        let found = ClockOffset::from_exchanges(&[slow, quick, slow], 0).unwrap();
        assert_eq!((found.round_trip_ns, found.exchanges), (100, 3));
        assert_eq!(found.offset_ns, 490);
        assert_eq!(found.doubt_ns(), 50);
    }

    #[test]
    fn times_of_day_are_told_apart_from_the_clocks_that_count() {
        // Our day is 10,000 ahead of our clock, theirs 9,300 of theirs, which is 500 ahead of ours.
        let mut one = exchange(1000, 500, 50, 20, 50);
        one.their_wall_ns = 9300;
        let found = ClockOffset::from_exchanges(&[one], 10_000).unwrap();
        assert_eq!((found.offset_ns, found.wall_offset_ns), (500, -200));
        assert_eq!(found.kept().offset_s, -2e-7);
    }

    #[test]
    fn times_that_cannot_be_are_no_exchange() {
        let sound = exchange(1000, 500, 50, 20, 50);
        let wrong = [
            Exchange { answered_ns: sound.received_ns - 1, ..sound },
            Exchange { came_ns: sound.sent_ns - 1, ..sound },
            // They took longer than we waited.
            Exchange { answered_ns: sound.received_ns + 1000, ..sound },
            Exchange { received_ns: 0, answered_ns: u64::MAX, ..sound },
        ];
        assert_eq!(ClockOffset::from_exchanges(&wrong, 0), None);
        assert_eq!(ClockOffset::from_exchanges(&[], 0), None);
        assert_eq!(ClockOffset::from_exchanges(&[wrong[0], sound], 0).unwrap().round_trip_ns, 100);
    }
}
