//! The order of the flusher's tasks, as pure functions, so that tables and the simulator can test
//! it.
//!
//! Pending work (rebuild, resync, reshape, scrub) gets `speed_limit_min` bytes of each member per
//! second even when users keep the array busy, as with md's `sync_speed_min`: a slice that is due
//! comes before any write or sync. After each slice, users' requests have a turn. So if members are
//! too slow for both, slices and users' requests alternate, and no sync waits for more than one
//! slice. A slice that is late moves proportionally more bytes.

use std::time::Duration;

use super::VolumeSettings;
use crate::engine::DirtyStats;
use crate::limits::{LATE_STEP_BYTES, LONG_STEP_BYTES, STEP_BYTES};

/// The next task of the flusher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlusherTask {
    /// A sync, which covers all requested syncs up to this number.
    Sync(u64),
    /// A batch of rows that are full or began to gather at this time or earlier.
    Flush(Duration),
    /// A slice of pending work.
    Work,
    /// The end of the thread.
    End,
}

/// The inputs for the choice of the next task.
#[derive(Debug, Clone, Copy)]
pub struct FlusherInputs {
    /// Writes that wait for the members.
    pub gathered: DirtyStats,
    /// The present time, from the common origin.
    pub now: Duration,
    /// The number of the requested sync, if there is one.
    pub sync: Option<u64>,
    /// When pending work may continue; `None` if no work is pending.
    pub work_at: Option<Duration>,
    /// Whether the last task was a slice of pending work.
    pub has_worked: bool,
}

impl FlusherInputs {
    /// Returns the next task; if nothing is due, returns how long to wait, where `None` means until
    /// a notification.
    ///
    /// # Errors
    /// Fails with the time to wait, if nothing is due.
    pub fn decide(&self, settings: &VolumeSettings) -> Result<FlusherTask, Option<Duration>> {
        let FlusherInputs { gathered, now, sync, work_at, has_worked } = *self;
        let is_work_due = work_at.is_some_and(|at| at <= now);
        if is_work_due && !has_worked {
            return Ok(FlusherTask::Work);
        }
        if let Some(number) = sync {
            return Ok(FlusherTask::Sync(number));
        }
        if gathered.bytes > settings.cache_bytes / 2 {
            return Ok(FlusherTask::Flush(Duration::MAX));
        }
        let due_at = gathered.oldest.map(|oldest| oldest.saturating_add(settings.deadline));
        if gathered.has_full || due_at.is_some_and(|at| at <= now) {
            return Ok(FlusherTask::Flush(now.saturating_sub(settings.deadline)));
        }
        if is_work_due {
            return Ok(FlusherTask::Work);
        }
        let next = [due_at, work_at].into_iter().flatten().min();
        Err(next.map(|at| at.saturating_sub(now)))
    }
}

/// The pace of pending work.
#[derive(Debug, Default)]
pub struct WorkPace {
    /// When the next slice is due.
    next: Duration,
    /// The number of bytes that users had moved at the last check.
    users: u64,
    /// The time when that number last grew.
    active_at: Option<Duration>,
}

/// Users count as idle when they moved nothing for this time.
const RECENT: Duration = Duration::from_millis(100);
/// The most lateness that one slice makes up for, because users wait for the entire slice.
const LATE_MOST: Duration = Duration::from_secs(1);

impl WorkPace {
    /// When the next slice is due.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Records the number of bytes that users have moved so far.
    pub fn observe(&mut self, now: Duration, user_bytes: u64) {
        if user_bytes != self.users {
            (self.users, self.active_at) = (user_bytes, Some(now));
        }
    }

    fn is_active(&self, now: Duration) -> bool {
        self.active_at.is_some_and(|at| now < at + RECENT)
    }

    /// The most bytes of each member that a slice that begins now may move.
    pub fn slice_bytes(&self, now: Duration, settings: &VolumeSettings) -> u64 {
        if !self.is_active(now) {
            // Half a second at the limit: a low rate is also kept within each second.
            return (settings.speed_limit_max / 2).clamp(STEP_BYTES, LONG_STEP_BYTES);
        }
        let late = now.saturating_sub(self.next).min(LATE_MOST);
        let owed = late.as_secs_f64() * settings.speed_limit_min as f64;
        (owed as u64).clamp(STEP_BYTES, LATE_STEP_BYTES)
    }

    /// Computes when the next slice is due, after a slice that began at `began`, ended at `now` and
    /// moved `bytes` of each member.
    pub fn moved(&mut self, began: Duration, now: Duration, bytes: u64, settings: &VolumeSettings) {
        let limit = match self.is_active(now) {
            true => settings.speed_limit_min,
            false => settings.speed_limit_max,
        };
        let from = self.next.max(began.saturating_sub(LATE_MOST));
        self.next = from + Duration::from_secs_f64(bytes as f64 / limit as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine whose members move `speed` bytes per second each, with users who always have a
    /// full row and a sync waiting. Returns bytes of each member that work moved, and the users'
    /// tasks, in ten seconds.
    fn ten_seconds(settings: &VolumeSettings, speed: u64, flush_bytes: u64) -> (u64, u64) {
        let time = |bytes: u64| Duration::from_secs_f64(bytes as f64 / speed as f64);
        let gathered = DirtyStats { bytes: MIB, oldest: Some(Duration::ZERO), has_full: true };
        let (mut pace, mut now) = (WorkPace::default(), Duration::ZERO);
        let (mut moved, mut served, mut has_worked) = (0, 0, false);
        while now < Duration::from_secs(10) {
            pace.observe(now, served + 1);
            let work_at = Some(pace.next());
            let inputs = FlusherInputs { gathered, now, sync: Some(served), work_at, has_worked };
            let task = inputs.decide(settings).expect("there is always something to do");
            has_worked = task == FlusherTask::Work;
            if has_worked {
                let bytes = pace.slice_bytes(now, settings);
                let began = now;
                now += time(bytes);
                pace.moved(began, now, bytes, settings);
                moved += bytes;
            } else {
                now += time(flush_bytes);
                served += 1;
            }
        }
        (moved, served)
    }

    #[test]
    fn work_gets_its_minimum_from_users_that_never_pause_and_no_more() {
        for speed_limit_min in [MIB, 10 * MIB, 30 * MIB, 100 * MIB] {
            let settings = VolumeSettings { speed_limit_min, ..VolumeSettings::default() };
            for flush_bytes in [64 << 10, MIB, 8 * MIB] {
                let (moved, served) = ten_seconds(&settings, 400 * MIB, flush_bytes);
                let promised = 10 * speed_limit_min;
                let begun = moved + LATE_STEP_BYTES;
                assert!(begun >= promised, "{speed_limit_min} {flush_bytes}: {moved}");
                assert!(moved < promised + promised / 10 + 2 * LATE_STEP_BYTES, "{moved}");
                assert!(served * flush_bytes > 2 * promised, "users: {served}");
            }
        }
    }

    /// Members that cannot carry both are shared by turns.
    #[test]
    fn slow_members_are_shared_between_work_and_users() {
        let settings = VolumeSettings { speed_limit_min: 100 * MIB, ..VolumeSettings::default() };
        let (moved, served) = ten_seconds(&settings, 20 * MIB, MIB);
        assert!(moved > 100 * MIB && served >= 10, "{moved} {served}");
    }

    #[test]
    fn idle_members_work_as_fast_as_they_may() {
        let settings = VolumeSettings { speed_limit_max: 50 * MIB, ..VolumeSettings::default() };
        let mut pace = WorkPace::default();
        let seconds = Duration::from_secs;
        assert_eq!(pace.slice_bytes(seconds(5), &settings), LONG_STEP_BYTES);
        pace.moved(seconds(5), seconds(5), 50 * MIB, &settings);
        assert_eq!(pace.next(), seconds(5), "a second that it was late, and a second's bytes");
    }

    #[test]
    fn without_demand_the_flusher_waits_for_the_first_that_is_due() {
        let settings = VolumeSettings::default();
        let gathered = DirtyStats { bytes: 1, oldest: Some(Duration::ZERO), has_full: false };
        let now = Duration::from_millis(5);
        let mut inputs =
            FlusherInputs { gathered, now, sync: None, work_at: None, has_worked: false };
        assert_eq!(inputs.decide(&settings), Err(Some(settings.deadline - now)));
        inputs.work_at = Some(Duration::from_millis(7));
        assert_eq!(inputs.decide(&settings), Err(Some(Duration::from_millis(2))));
        inputs.gathered = DirtyStats::default();
        inputs.work_at = None;
        assert_eq!(inputs.decide(&settings), Err(None));
    }
}
