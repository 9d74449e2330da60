//! Selects the snapshots that a set of rules keeps, with the reasons: a pure function.
//!
//! Snapshots of one host and the same sources form a group, and the rules are applied to each group
//! separately, newest first. A rule for N hours, days, weeks, months or years keeps the newest
//! snapshot of each of the last N such periods that have a snapshot. A snapshot whose time is wrong
//! (in the future, or too early) is kept and shown as such, but no rule counts it, so that a wrong
//! clock cannot displace other snapshots; and `within` is measured from the newest of the other
//! snapshots, never from the current time.

pub(crate) mod calendar;

use std::collections::BTreeMap;

use calendar::{Periods, periods};

/// The rules that decide which snapshots are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Keep this many of the newest snapshots.
    pub last: Option<u64>,
    /// Keep the newest snapshot of each of this many hours.
    pub hourly: Option<u64>,
    /// Keep the newest snapshot of each of this many days.
    pub daily: Option<u64>,
    /// Keep the newest snapshot of each of this many weeks, which begin on Monday.
    pub weekly: Option<u64>,
    /// Keep the newest snapshot of each of this many months.
    pub monthly: Option<u64>,
    /// Keep the newest snapshot of each of this many years.
    pub yearly: Option<u64>,
    /// Keep all snapshots that have one of these tags.
    pub tags: Vec<String>,
    /// Keep all snapshots that are at most this many seconds older than the newest one.
    pub within_seconds: Option<u64>,
}

impl Policy {
    /// Whether the policy has no rule at all.
    pub fn is_empty(&self) -> bool {
        *self == Policy::default()
    }
}

/// The properties of a snapshot that the rules use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// When the snapshot was made, as seconds since 1970 and nanoseconds.
    pub created: (i64, u32),
    /// The host that was backed up.
    pub host: Vec<u8>,
    /// The paths that were backed up.
    pub sources: Vec<Vec<u8>>,
    /// The tags of the snapshot.
    pub tags: Vec<String>,
    /// It was made later than its time says: the clock was behind.
    pub is_behind: bool,
}

/// The reason why a snapshot is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeepReason {
    /// The snapshot is one of the newest.
    Last,
    /// The snapshot is the newest of its hour.
    Hourly,
    /// The snapshot is the newest of its day.
    Daily,
    /// The snapshot is the newest of its week.
    Weekly,
    /// The snapshot is the newest of its month.
    Monthly,
    /// The snapshot is the newest of its year.
    Yearly,
    /// The snapshot has this tag.
    Tag(String),
    /// The snapshot is not much older than the newest one.
    Within,
    /// The time of the snapshot is in the future.
    Future,
    /// By its own time it was made before the snapshot that it continues, or before the program.
    Behind,
}

impl std::fmt::Display for KeepReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KeepReason::Last => "last",
            KeepReason::Hourly => "hourly",
            KeepReason::Daily => "daily",
            KeepReason::Weekly => "weekly",
            KeepReason::Monthly => "monthly",
            KeepReason::Yearly => "yearly",
            KeepReason::Tag(tag) => return write!(f, "tag {tag}"),
            KeepReason::Within => "within",
            KeepReason::Future => "from the future",
            KeepReason::Behind => "clock was behind",
        })
    }
}

/// Returns for each snapshot the reasons to keep it; a snapshot without a reason may be forgotten.
/// `now` is only used to identify snapshots from the future; `offset_at` returns the seconds east
/// of UTC of the local clock at a moment: days begin by this clock.
pub fn judge(
    policy: &Policy,
    candidates: &[Candidate],
    now: (i64, u32),
    offset_at: &dyn Fn(i64) -> i32,
) -> Vec<Vec<KeepReason>> {
    let mut reasons = vec![Vec::new(); candidates.len()];
    for group in groups(candidates).into_values() {
        let mut real = Vec::new();
        for at in group {
            if candidates[at].created > now {
                reasons[at].push(KeepReason::Future);
            } else if candidates[at].is_behind {
                reasons[at].push(KeepReason::Behind);
            } else {
                real.push(at);
            }
        }
        real.sort_by_key(|&at| std::cmp::Reverse((candidates[at].created, at)));
        judge_group(policy, candidates, &real, offset_at, &mut reasons);
    }
    reasons
}

/// The snapshots of each host and list of sources, by their position in a list.
pub type Groups<'a> = BTreeMap<(&'a [u8], &'a [Vec<u8>]), Vec<usize>>;

/// Groups snapshots by host and sources.
pub fn groups(candidates: &[Candidate]) -> Groups<'_> {
    let mut groups = Groups::new();
    for (at, candidate) in candidates.iter().enumerate() {
        groups.entry((&candidate.host, &candidate.sources)).or_default().push(at);
    }
    groups
}

/// Applies the rules to one group, newest snapshot first.
fn judge_group(
    policy: &Policy,
    candidates: &[Candidate],
    newest_first: &[usize],
    offset_at: &dyn Fn(i64) -> i32,
    reasons: &mut [Vec<KeepReason>],
) {
    let Some(&newest) = newest_first.first() else { return };
    let last = policy.last.unwrap_or(0);
    for &at in newest_first.iter().take(usize::try_from(last).unwrap_or(usize::MAX)) {
        reasons[at].push(KeepReason::Last);
    }
    type Rule = (Option<u64>, fn(Periods) -> i64, KeepReason);
    let rules: [Rule; 5] = [
        (policy.hourly, |it| it.hour, KeepReason::Hourly),
        (policy.daily, |it| it.day, KeepReason::Daily),
        (policy.weekly, |it| it.week, KeepReason::Weekly),
        (policy.monthly, |it| it.month, KeepReason::Monthly),
        (policy.yearly, |it| it.year, KeepReason::Yearly),
    ];
    for (count, period, reason) in rules {
        let (mut left, mut last) = (count.unwrap_or(0), None);
        for &at in newest_first {
            let created = candidates[at].created.0;
            let this = period(periods(created, offset_at(created)));
            // A clock that is set back may show a day again that has ended.
            if left > 0 && last.is_none_or(|last| this < last) {
                last = Some(this);
                left -= 1;
                reasons[at].push(reason.clone());
            }
        }
    }
    let from = candidates[newest].created.0;
    for &at in newest_first {
        let tags = candidates[at].tags.iter().filter(|tag| policy.tags.contains(tag));
        reasons[at].extend(tags.map(|tag| KeepReason::Tag(tag.clone())));
        let age = from.abs_diff(candidates[at].created.0);
        if policy.within_seconds.is_some_and(|within| age <= within) {
            reasons[at].push(KeepReason::Within);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;
    /// 2024-03-31 12:00 UTC, a Sunday.
    const NOON: i64 = 1_711_886_400;

    fn at(seconds: i64) -> Candidate {
        let (host, sources) = (b"h".to_vec(), vec![b"etc".to_vec()]);
        Candidate { created: (seconds, 0), host, sources, tags: Vec::new(), is_behind: false }
    }

    fn tagged(seconds: i64, tag: &str) -> Candidate {
        Candidate { tags: vec![tag.to_owned()], ..at(seconds) }
    }

    /// Which of the days before `NOON` stay.
    fn kept(policy: &Policy, days: &[i64]) -> Vec<i64> {
        let all: Vec<_> = days.iter().map(|day| at(NOON - day * DAY)).collect();
        let judged = judge(policy, &all, (NOON, 0), &|_| 0);
        days.iter().zip(judged).filter(|(_, why)| !why.is_empty()).map(|(day, _)| *day).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        let days: Vec<_> = (0..800).collect();
        let none = Policy::default();
        for (policy, wanted) in [
            (Policy { last: Some(3), ..none.clone() }, vec![0, 1, 2]),
            (Policy { daily: Some(2), ..none.clone() }, vec![0, 1]),
            // Sundays end their weeks.
            (Policy { weekly: Some(3), ..none.clone() }, vec![0, 7, 14]),
            // The last of March, February (29 days) and January.
            (Policy { monthly: Some(3), ..none.clone() }, vec![0, 31, 60]),
            (Policy { yearly: Some(2), ..none.clone() }, vec![0, 91]),
            (Policy { within_seconds: Some(2 * DAY as u64), ..none.clone() }, vec![0, 1, 2]),
            (Policy { last: Some(0), ..none.clone() }, vec![]),
            (none, vec![]),
        ] {
            assert_eq!(kept(&policy, &days), wanted, "{policy:?}");
        }
        let hours: Vec<_> = (0..10).map(|n| at(NOON - n * 1800)).collect();
        let judged =
            judge(&Policy { hourly: Some(2), ..Policy::default() }, &hours, (NOON, 0), &|_| 0);
        let kept: Vec<_> = (0..10).filter(|&n| !judged[n].is_empty()).collect();
        assert_eq!(kept, [0, 1], "12:00 and 11:30: the newest of two hours");
    }

    #[test]
    fn periods_without_a_snapshot_do_not_count() {
        let policy = Policy { daily: Some(3), ..Policy::default() };
        assert_eq!(kept(&policy, &[0, 10, 20, 30]), [0, 10, 20]);
    }

    #[test]
    fn rules_add_up_and_every_reason_is_told() {
        let all = [tagged(NOON, "x"), at(NOON - DAY), tagged(NOON - 400 * DAY, "keep")];
        let policy = Policy {
            last: Some(1),
            yearly: Some(1),
            tags: vec!["keep".to_owned()],
            ..Policy::default()
        };
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        assert_eq!(judged[0], [KeepReason::Last, KeepReason::Yearly]);
        assert!(judged[1].is_empty());
        assert_eq!(judged[2], [KeepReason::Tag("keep".to_owned())]);
    }

    #[test]
    fn groups_are_judged_by_themselves() {
        let other = Candidate { host: b"other".to_vec(), ..at(NOON - 9 * DAY) };
        let paths = Candidate { sources: vec![b"home".to_vec()], ..at(NOON - 8 * DAY) };
        let all = [at(NOON), at(NOON - DAY), other, paths];
        let policy = Policy { last: Some(1), ..Policy::default() };
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        let kept: Vec<_> = judged.iter().map(|why| !why.is_empty()).collect();
        assert_eq!(kept, [true, false, true, true]);
    }

    /// A host whose clock is a year ahead made some; one whose clock is a year behind judges.
    #[test]
    fn the_future_pushes_nothing_out() {
        let policy = Policy {
            last: Some(1),
            daily: Some(2),
            within_seconds: Some(DAY as u64),
            ..Policy::default()
        };
        let real = [at(NOON), at(NOON - DAY), at(NOON - 5 * DAY)];
        let alone = judge(&policy, &real, (NOON, 0), &|_| 0);
        let mut all = real.to_vec();
        all.extend((0..9).map(|n| at(NOON + 365 * DAY + n)));
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        assert_eq!(judged[..3], alone);
        assert!(judged[3..].iter().all(|why| *why == [KeepReason::Future]));
        // A clock a year behind: all is future, all stays.
        let judged = judge(&policy, &real, (NOON - 365 * DAY, 0), &|_| 0);
        assert!(judged.iter().all(|why| *why == [KeepReason::Future]));
        // A clock a year ahead changes nothing.
        assert_eq!(judge(&policy, &real, (NOON + 365 * DAY, 0), &|_| 0), alone);
    }

    /// Of four snapshots, one was made by a clock that was at 1970, and none goes for it.
    #[test]
    fn a_clock_that_was_behind_makes_nothing_go() {
        let policy = Policy { last: Some(1), daily: Some(3), ..Policy::default() };
        let real = [at(NOON), at(NOON - DAY), at(NOON - 2 * DAY), at(NOON - 3 * DAY)];
        let alone = judge(&policy, &real, (NOON, 0), &|_| 0);
        let mut all = real.to_vec();
        all.push(Candidate { is_behind: true, ..at(300) });
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        assert_eq!(judged[..4], alone);
        assert_eq!(judged[4], [KeepReason::Behind]);
    }

    /// Each moment has the offset that the clock had then: two hours in summer, one in winter.
    #[test]
    fn days_are_those_of_the_clock_of_then() {
        /// 2024-10-27 01:00 UTC.
        const CHANGE: i64 = 1_729_990_800;
        let offset = |moment: i64| if moment < CHANGE { 7200 } else { 3600 };
        let policy = Policy { monthly: Some(12), ..Policy::default() };
        // July 31 and August 1, 00:30 in summer time.
        let summer = [at(1_722_378_600), at(1_722_465_000)];
        let judged = judge(&policy, &summer, (NOON + 365 * DAY, 0), &offset);
        assert!(judged.iter().all(|why| *why == [KeepReason::Monthly]));
        // 02:30 in summer time and 02:30 in winter time: two hours, one day.
        let both = [at(CHANGE - 1800), at(CHANGE + 1800)];
        let hourly = Policy { hourly: Some(9), ..Policy::default() };
        let judged = judge(&hourly, &both, (NOON + 365 * DAY, 0), &offset);
        assert!(judged.iter().all(|why| *why == [KeepReason::Hourly]));
        let daily = Policy { daily: Some(9), ..Policy::default() };
        let judged = judge(&daily, &both, (NOON + 365 * DAY, 0), &offset);
        assert_eq!(judged, [vec![], vec![KeepReason::Daily]]);
    }

    proptest! {
        #[test]
        fn any_times_are_judged_and_more_rules_keep_no_less(
            times in prop::collection::vec((any::<i64>(), 0u32..1_000_000_000), 0..30),
            now: i64, offset in -86_400i32..86_400,
            counts in prop::array::uniform6(prop::option::of(0u64..5)),
            within in prop::option::of(any::<u64>()),
        ) {
            let all: Vec<_> =
                times.into_iter().map(|created| Candidate { created, ..at(0) }).collect();
            let [last, hourly, daily, weekly, monthly, yearly] = counts;
            let policy = Policy {
                last, hourly, daily, weekly, monthly, yearly,
                tags: Vec::new(), within_seconds: within,
            };
            let judged = judge(&policy, &all, (now, 0), &|_| offset);
            prop_assert_eq!(judged.len(), all.len());
            let more = Policy { last: Some(last.unwrap_or(0) + 1), ..policy.clone() };
            let with_more = judge(&more, &all, (now, 0), &|_| offset);
            for (less, more) in judged.iter().zip(&with_more) {
                prop_assert!(less.is_empty() || !more.is_empty());
            }
            let real = all.iter().filter(|it| it.created <= (now, 0)).count();
            let last_kept = judged.iter().filter(|why| why.contains(&KeepReason::Last)).count() as u64;
            prop_assert_eq!(last_kept, last.unwrap_or(0).min(real as u64));
        }
    }
}
