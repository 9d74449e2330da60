//! Measures the difference between the clock of an input and the clock of this machine.
//!
//! An input delivers blocks, so its count of frames increases in jumps and lags behind its clock;
//! it is never ahead of its clock. In each window, the moment is used at which the count was
//! furthest ahead. A line is fitted through these moments: its slope is the error of the clock.
//! Nothing is reported before the slope is certain, and samples are never resampled. A rate that
//! differs strongly from the stated rate is reported after four seconds.

use std::time::Duration;

use serde::Serialize;

/// The length of a window, which contributes one moment.
const WINDOW: Duration = Duration::from_secs(3);
/// The most windows that are kept; the oldest are dropped.
const WINDOWS_MAX: usize = 200;
/// The smallest number of windows for which a line is fitted.
const WINDOWS_LEAST: usize = 10;
/// The greatest standard error at which a slope is reported, in parts per million.
const CERTAIN_PPM: f64 = 4.0;

/// A clock must run for `JUDGED_PARTS` parts of this length before its rate is judged.
const JUDGED_PART: Duration = Duration::from_millis(500);
const JUDGED_PARTS: usize = 8;
/// The smallest error of the median part, as a share of the error of all parts together. A source
/// that stalled once has an error in only one or two parts, and its rate is right.
const STEADY_SHARE: f64 = 2.0 / 3.0;
/// The greatest accepted difference between the measured and the stated rate, as a share of the
/// stated rate.
const RATE_SHARE: f64 = 0.005;
/// A difference up to this length may be one block that has just arrived, or is about to arrive,
/// and does not indicate another rate.
const BLOCK_SECONDS: f64 = 0.1;

/// The time until the next sample of the frame count, from 4 to 16 ms. The interval varies: if
/// samples were in step with the blocks of an input, they would find it at the same point of its
/// block for a minute, and at another point in the next minute. The sampling thread only sleeps: an
/// input must not make a system call to wake it.
pub(crate) fn look_after(look: u32) -> Duration {
    let golden = 0.618_033_988_749_895;
    Duration::from_millis(4) + Duration::from_millis(12).mul_f64((f64::from(look) * golden).fract())
}

/// The measured clock of an input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InputDrift {
    /// The name of the input, as the user wrote it.
    pub source: String,
    /// How much faster the input's clock is than this machine's clock, in parts per million.
    pub ppm: f64,
}

/// Measures the clock of one input.
#[derive(Debug)]
pub(crate) struct ClockDrift {
    rate: f64,
    /// The current window: its end, and its best moment so far.
    window: Option<(Duration, (f64, f64))>,
    /// The best moment of each window: its time, and the lead of the input at that time, in
    /// seconds.
    moments: Vec<(f64, f64)>,
    /// When the first frames had arrived, and their number.
    first: Option<(Duration, u64)>,
    /// The moment of the latest sample, and the number of frames that had arrived.
    last: (Duration, u64),
    /// The first sample in each part of the time after which the rate is judged.
    parts: Vec<(Duration, u64)>,
    is_judged: bool,
}

impl ClockDrift {
    /// Creates the measurement of an input with this stated number of frames per second.
    pub fn new(rate: u32) -> Self {
        ClockDrift {
            rate: f64::from(rate.max(1)),
            window: None,
            moments: Vec::new(),
            first: None,
            last: (Duration::ZERO, 0),
            parts: Vec::new(),
            is_judged: false,
        }
    }

    /// Adds a sample: at the moment `now`, this number of frames had arrived.
    pub fn add(&mut self, now: Duration, frames: u64) {
        if frames == 0 {
            return;
        }
        self.first.get_or_insert((now, frames));
        self.last = (now, frames);
        let is_next = |it: &(Duration, u64)| now.saturating_sub(it.0) >= JUDGED_PART;
        if self.parts.len() <= JUDGED_PARTS && self.parts.last().is_none_or(is_next) {
            self.parts.push((now, frames));
        }
        let seconds = now.as_secs_f64();
        let here = (seconds, frames as f64 / self.rate - seconds);
        match &mut self.window {
            Some((end, best)) if now < *end => {
                if here.1 > best.1 {
                    *best = here;
                }
            }
            window => {
                // The first window begins when the first frame comes, and is not whole.
                if let Some((_, best)) = window.replace((now + WINDOW, here)) {
                    self.moments.push(best);
                }
            }
        }
        if self.moments.len() > WINDOWS_MAX {
            self.moments.remove(0);
        }
    }

    /// The measured frames per second, if they differ strongly from the stated rate; returned only
    /// once.
    pub(crate) fn wrong_rate(&mut self) -> Option<f64> {
        let (began, first) = self.first?;
        let seconds = self.last.0.saturating_sub(began).as_secs_f64();
        if self.is_judged || self.parts.len() <= JUDGED_PARTS {
            return None;
        }
        self.is_judged = true;
        let measured = self.last.1.saturating_sub(first) as f64 / seconds;
        let off = measured / self.rate - 1.0;
        let is_far = off.abs() > RATE_SHARE && off.abs() * seconds > BLOCK_SECONDS;
        let is_steady = self.usual_part() * off.signum() >= STEADY_SHARE * off.abs();
        (is_far && is_steady).then_some(measured)
    }

    /// The error of the median part, as a share of the stated rate.
    fn usual_part(&self) -> f64 {
        let off = |pair: &[(Duration, u64)]| {
            let seconds = pair[1].0.saturating_sub(pair[0].0).as_secs_f64();
            pair[1].1.saturating_sub(pair[0].1) as f64 / seconds / self.rate - 1.0
        };
        let mut all: Vec<f64> = self.parts.windows(2).map(off).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    /// How much faster than this machine's clock the input's clock is, in parts per million; `None`
    /// until that is certain.
    pub fn ppm(&self) -> Option<f64> {
        let count = self.moments.len() as f64;
        if self.moments.len() < WINDOWS_LEAST {
            return None;
        }
        let mean_at = self.moments.iter().map(|it| it.0).sum::<f64>() / count;
        let mean = self.moments.iter().map(|it| it.1).sum::<f64>() / count;
        let spread: f64 = self.moments.iter().map(|it| (it.0 - mean_at).powi(2)).sum();
        let both: f64 = self.moments.iter().map(|it| (it.0 - mean_at) * (it.1 - mean)).sum();
        let slope = both / spread;
        let off = |it: &(f64, f64)| (it.1 - mean - slope * (it.0 - mean_at)).powi(2);
        let error = (self.moments.iter().map(off).sum::<f64>() / (count - 2.0) / spread).sqrt();
        (error * 1e6 <= CERTAIN_PPM).then_some(slope * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source by a clock of its own that delivers blocks, late by up to `late`, looked at as a take does.
    fn watched(ppm: f64, block: u64, late: f64, seconds: u64) -> ClockDrift {
        let rate = 48_000.0 * (1.0 + ppm / 1e6);
        let mut drift = ClockDrift::new(48_000);
        let (mut random, mut now) = (12345_u64, 0.0);
        for look in 0..seconds as u32 * 100 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let late = late * (random >> 40) as f64 / (1_u64 << 24) as f64;
            now += look_after(look).as_secs_f64();
            let made = ((now - late).max(0.0) * rate) as u64;
            drift.add(Duration::from_secs_f64(now), made / block * block);
        }
        drift
    }

    #[test]
    fn fifty_ppm_are_told_within_a_minute_to_ten() {
        for ppm in [50.0, -50.0, 0.0, 400.0] {
            // Blocks of 5 and 10.7 ms, and packets of 1 ms with a thread that comes late; longer ones
            // need more time.
            for (block, late, seconds) in
                [(240, 0.002, 60), (48, 0.01, 60), (512, 0.002, 120), (1024, 0.005, 240)]
            {
                let found = watched(ppm, block, late, seconds).ppm();
                let found = found.unwrap_or_else(|| panic!("{ppm} {block} {late}: nothing told"));
                assert!((found - ppm).abs() < 10.0, "{ppm} {block} {late}: {found}");
            }
        }
    }

    #[test]
    fn what_is_not_certain_is_not_told() {
        assert_eq!(watched(50.0, 240, 0.002, 10).ppm(), None, "too short");
        assert_eq!(watched(50.0, 48_000, 0.9, 30).ppm(), None, "blocks of a second");
        assert_eq!(ClockDrift::new(0).ppm(), None);
    }

    #[test]
    fn another_rate_than_the_one_that_was_said_is_told_once() {
        // PipeWire said 96,000 and gave 48,128.
        for (said, comes, is_told) in [(96_000, 48_128, true), (96_000, 96_050, false)] {
            let mut drift = ClockDrift::new(said);
            let mut told = Vec::new();
            for look in 1..500_u64 {
                drift.add(Duration::from_millis(10 * look), look * comes / 100 / 1024 * 1024);
                told.extend(drift.wrong_rate());
            }
            assert_eq!(told.len(), usize::from(is_told), "{told:?}");
            assert!(told.iter().all(|it| (it - comes as f64).abs() < 600.0), "{told:?}");
        }
    }

    #[test]
    fn a_source_that_stalled_once_has_no_other_rate() {
        for (from, stall) in [(50, 50), (120, 15), (180, 30)] {
            let mut drift = ClockDrift::new(48_000);
            let told: Vec<f64> = (1..700_u64)
                .filter_map(|look| {
                    let lost = look.saturating_sub(from).min(stall);
                    drift.add(Duration::from_millis(10 * look), (look - lost) * 480 / 1024 * 1024);
                    drift.wrong_rate()
                })
                .collect();
            assert!(told.is_empty() && drift.is_judged, "{from} {stall}: {told:?}");
        }
    }

    #[test]
    fn a_watch_of_hours_is_bounded_and_forgets_what_was() {
        let drift = watched(50.0, 240, 0.001, 700);
        assert_eq!(drift.moments.len(), WINDOWS_MAX);
    }
}
