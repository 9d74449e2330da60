//! Chooses a codec while the speed of members and processors is unknown: `--codec auto`.
//!
//! There are [`STEPS`] steps, from the fastest codec to the slowest. A level is a pair of
//! neighbouring steps. While the members' queues are less than half full, the faster codec of the
//! level is used, otherwise the slower one: so processors and members are both busy if the balance
//! is between the two. The next level is chosen only when the queues stay nearly full although
//! everything is encoded with the slower codec, and the previous level when they stay nearly empty
//! although everything is encoded with the faster one.
//!
//! Invariants: the level changes by one at a time, and only after several decisions in a row
//! required it; how full the queues are is the only input. Since only the queues count, a slow
//! source also leads to fast codecs. The governor does no I/O, and all workers share it. Not in
//! this module: clocks, queues.

use std::sync::Mutex;

use super::{Codec, Encoder};
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;

/// The codecs to choose from: each compresses better than the one before, and is slower.
pub const STEPS: [Codec; 5] = [
    Codec::Raw,
    Codec::Lz4,
    Codec::Zstd { level: -5 },
    Codec::Zstd { level: -1 },
    Codec::Zstd { level: 1 },
];

/// The first level: LZ4 until the queues fill.
const FIRST_LEVEL: usize = 1;
const LAST_LEVEL: usize = STEPS.len() - 2;

/// If the queues are at least this full, the slower codec of the level is used.
const HALF: f32 = 0.5;
/// If the queues are at least this full, the members cannot keep up.
const HIGH: f32 = 0.8;
/// If the queues are at most this full, the members are about to become idle.
const LOW: f32 = 0.2;

/// The number of decisions in a row that must require another level, and the additional number for
/// each worker: the unit that a worker has now was decided earlier, and reaches the queues later.
const PATIENCE: u32 = 16;
const PATIENCE_PER_WORKER: u32 = 2;

/// Chooses the codec for all workers.
pub struct Governor {
    patience: u32,
    state: Mutex<GovernorState>,
}

struct GovernorState {
    /// The number of the level's faster step.
    level: usize,
    /// The number of decisions in a row at which the members could not keep up, and the number at
    /// which they were idle.
    lagging: u32,
    starving: u32,
}

impl Governor {
    /// Creates a governor for `workers` workers.
    pub fn new(workers: usize) -> Self {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        let state = GovernorState { level: FIRST_LEVEL, lagging: 0, starving: 0 };
        Governor {
            patience: PATIENCE.saturating_add(workers.saturating_mul(PATIENCE_PER_WORKER)),
            state: Mutex::new(state),
        }
    }

    /// Returns the codec for the next unit. `fill` tells how full the members' queues are, from 0
    /// to 1: the fullest queue if every member must take the unit, or all queues together if any
    /// member may take it.
    pub fn decide(&self, fill: f32) -> Codec {
        let mut state = lock(&self.state);
        state.lagging = if fill >= HIGH { state.lagging + 1 } else { 0 };
        state.starving = if fill <= LOW { state.starving + 1 } else { 0 };
        let level = state.level;
        if state.lagging >= self.patience {
            state.enter((level + 1).min(LAST_LEVEL));
        } else if state.starving >= self.patience {
            state.enter(level.saturating_sub(1));
        }
        debug_assert!(state.level.abs_diff(level) <= 1, "the level changes by one at a time");
        STEPS[state.level + usize::from(fill >= HALF)]
    }
}

impl GovernorState {
    fn enter(&mut self, level: usize) {
        debug_assert!(level <= LAST_LEVEL, "a level has two steps");
        *self = GovernorState { level, lagging: 0, starving: 0 };
    }
}

/// The encoders of one worker that switches between codecs: each is made when it is first needed,
/// and kept.
#[derive(Default)]
pub struct EncoderSet {
    encoders: Vec<Encoder>,
}

impl EncoderSet {
    /// Returns the encoder of a codec.
    ///
    /// # Errors
    /// Fails with the errors of [`Encoder::new`].
    pub fn get(&mut self, codec: Codec) -> Result<&mut Encoder> {
        let found = self.encoders.iter().position(|encoder| encoder.codec() == codec);
        let at = match found {
            Some(at) => at,
            None => {
                self.encoders.push(Encoder::new(codec)?);
                self.encoders.len() - 1
            }
        };
        Ok(&mut self.encoders[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: Codec = STEPS[0];
    const LZ4: Codec = STEPS[1];

    /// The codecs that are decided for, each once per run of equal ones.
    fn changes(governor: &Governor, fill: f32, decisions: u32) -> Vec<Codec> {
        let mut told: Vec<_> = (0..decisions).map(|_| governor.decide(fill)).collect();
        told.dedup();
        told
    }

    #[test]
    fn it_begins_with_lz4_and_bides_its_time() {
        let patience = PATIENCE + 2 * PATIENCE_PER_WORKER;
        for (fill, decisions, told) in [
            (0.0, patience - 1, &[LZ4][..]),
            (0.0, patience, &[LZ4, RAW]),
            (0.0, 1000, &[LZ4, RAW]),
            (LOW + 0.01, 1000, &[LZ4]),
            (HALF, 1000, &[STEPS[2]]),
            (HIGH - 0.01, 1000, &[STEPS[2]]),
            (HIGH, patience - 1, &[STEPS[2]]),
            (1.0, patience, &[STEPS[2], STEPS[3]]),
            (1.0, 1000, &STEPS[2..]),
            (f32::NAN, 1000, &[LZ4]),
        ] {
            assert_eq!(changes(&Governor::new(2), fill, decisions), told, "{fill} {decisions}");
        }
    }

    #[test]
    fn one_other_decision_begins_the_count_anew() {
        let governor = Governor::new(1);
        let patience = PATIENCE + PATIENCE_PER_WORKER;
        for _ in 0..10 {
            assert_eq!(changes(&governor, 1.0, patience - 1), [STEPS[2]]);
            assert_eq!(governor.decide(0.3), LZ4);
            assert_eq!(changes(&governor, 0.0, patience - 1), [LZ4]);
            assert_eq!(governor.decide(0.6), STEPS[2]);
        }
    }

    #[test]
    fn encoders_are_made_once_and_kept() {
        let mut set = EncoderSet::default();
        let mut out = Vec::new();
        for codec in STEPS.iter().chain(&STEPS) {
            let encoder = set.get(*codec).unwrap();
            assert_eq!(encoder.codec(), *codec);
            let encoded = encoder.encode(&[7; 10_000], &mut out).unwrap();
            assert_eq!(encoded.codec_id(), codec.id());
        }
        assert_eq!(set.encoders.len(), STEPS.len());
        assert!(set.get(Codec::Zstd { level: 0 }).is_err());
    }

    /// The speed of one worker at each step, in units per second, and the stored part of a unit.
    type Table = [(f64, f64); STEPS.len()];

    /// Pages of a machine's memory, as measured on one core of 2 GHz.
    const MEMORY: Table = [(900.0, 1.0), (170.0, 0.45), (110.0, 0.43), (85.0, 0.36), (65.0, 0.33)];
    /// Bytes that no codec makes smaller, which each notices in its own time.
    const NOISE: Table = [(900.0, 1.0), (500.0, 1.0), (450.0, 1.0), (300.0, 1.0), (250.0, 1.0)];
    /// Logs, which become much smaller.
    const TEXT: Table = [(900.0, 1.0), (150.0, 0.25), (90.0, 0.2), (70.0, 0.13), (50.0, 0.1)];

    /// The outcome of a simulation.
    struct Course {
        units_per_second: f64,
        /// The number of times that each step was used in the second half.
        used: [u32; STEPS.len()],
        level_changes: u32,
    }

    /// Workers that encode into one queue of `room` units, out of which members that take `rate`
    /// units per second write; `choose` gets how full it is and says the step.
    fn simulate(
        table: &Table,
        workers: usize,
        rate: f64,
        room: f64,
        mut choose: impl FnMut(f32) -> (usize, usize),
    ) -> Course {
        const UNITS: u32 = 20_000;
        let mut course = Course { units_per_second: 0.0, used: [0; 5], level_changes: 0 };
        let (mut now, mut queued, mut half_time, mut last_level) = (0.0, 0.0_f64, 0.0, FIRST_LEVEL);
        // When each worker is ready, and with how much.
        let mut hands = vec![(0.0_f64, 0.0_f64); workers];
        for unit in 0..UNITS {
            let next = (0..workers).min_by(|a, b| hands[*a].0.total_cmp(&hands[*b].0)).unwrap();
            let (ready, stored) = hands[next];
            let before = now;
            now = f64::max(now, ready);
            queued = (queued - (now - before) * rate).max(0.0);
            let wait = ((queued + stored - room) / rate).max(0.0);
            now += wait;
            queued = (queued - wait * rate).max(0.0) + stored;
            let (step, level) = choose((queued / room) as f32);
            course.level_changes += u32::from(level != last_level);
            last_level = level;
            if unit == UNITS / 2 {
                half_time = now;
            } else if unit > UNITS / 2 {
                course.used[step] += 1;
            }
            // Units differ a little, without a pattern.
            let luck =
                0.8 + 0.4 * f64::from(unit.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
            hands[next] = (now + luck / table[step].0, luck * table[step].1);
        }
        course.units_per_second = f64::from(UNITS / 2) / (now - half_time);
        course
    }

    #[test]
    fn it_settles_where_members_and_processors_are_both_busy() {
        for (name, table) in [("memory", &MEMORY), ("noise", &NOISE), ("text", &TEXT)] {
            for workers in [1, 2, 16] {
                for rate in [5.0, 20.0, 60.0, 120.0, 250.0, 500.0, 2000.0, 10_000.0] {
                    let room = 16.0 + 2.0 * workers as f64;
                    let fixed: Vec<_> = (0..STEPS.len())
                        .map(|step| simulate(table, workers, rate, room, |_| (step, FIRST_LEVEL)))
                        .map(|course| course.units_per_second)
                        .collect();
                    let governor = Governor::new(workers);
                    let course = simulate(table, workers, rate, room, |fill| {
                        let codec = governor.decide(fill);
                        let level = governor.state.lock().unwrap().level;
                        (STEPS.iter().position(|step| *step == codec).unwrap(), level)
                    });
                    let mut by_rate = fixed.clone();
                    by_rate.sort_by(|a, b| b.total_cmp(a));
                    let got = course.units_per_second;
                    let told = format!(
                        "{name}, {workers} workers, members {rate}: {got:.1} of {fixed:.1?}, used {:?}, {} changes",
                        course.used, course.level_changes
                    );
                    // Better than any one step, but where queues run dry by chance.
                    assert!(got >= 0.97 * by_rate[1] && got >= 0.85 * by_rate[0], "{told}");
                    assert!(course.level_changes <= 12, "{told}");
                    let steps = course.used.iter().filter(|used| **used > 100).count();
                    assert!(steps <= 2, "{told}");
                }
            }
        }
    }
}
