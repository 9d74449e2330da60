//! Selects the snapshots that a set of rules keeps, with the reasons: a pure function.
//!
//! By default, snapshots of one host and the same sources form a group, and the rules are applied to
//! each group separately, newest first. A rule for N hours, days, weeks, months or years keeps the
//! newest snapshot of each of the last N such periods that have a snapshot. A snapshot whose time is
//! wrong (in the future, or too early) is kept and shown as such, but no rule counts it, so that a
//! wrong clock cannot displace other snapshots; and the age of a snapshot is measured from the
//! newest of the other snapshots of its group, never from the current time.

pub(crate) mod calendar;
pub(crate) mod group;

use calendar::{Periods, periods};
use group::{GroupBy, groups};

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
    /// Keep the newest snapshot of each hour, among those at most this many seconds older than the
    /// newest one.
    pub hourly_within_seconds: Option<u64>,
    /// The same for each day.
    pub daily_within_seconds: Option<u64>,
    /// The same for each week.
    pub weekly_within_seconds: Option<u64>,
    /// The same for each month.
    pub monthly_within_seconds: Option<u64>,
    /// The same for each year.
    pub yearly_within_seconds: Option<u64>,
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
    /// The snapshot is the newest of its hour, and not much older than the newest one.
    HourlyWithin,
    /// The same for its day.
    DailyWithin,
    /// The same for its week.
    WeeklyWithin,
    /// The same for its month.
    MonthlyWithin,
    /// The same for its year.
    YearlyWithin,
    /// The time of the snapshot is in the future.
    Future,
    /// By its own time it was made before the snapshot that it continues, or before the program.
    Behind,
}

impl KeepReason {
    /// Whether the time of the snapshot is wrong, so that no rule counted it.
    pub fn is_wrong_time(&self) -> bool {
        matches!(self, KeepReason::Future | KeepReason::Behind)
    }
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
            KeepReason::HourlyWithin => "hourly within",
            KeepReason::DailyWithin => "daily within",
            KeepReason::WeeklyWithin => "weekly within",
            KeepReason::MonthlyWithin => "monthly within",
            KeepReason::YearlyWithin => "yearly within",
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
    by: GroupBy,
    candidates: &[Candidate],
    now: (i64, u32),
    offset_at: &dyn Fn(i64) -> i32,
) -> Vec<Vec<KeepReason>> {
    let mut reasons = vec![Vec::new(); candidates.len()];
    for group in groups(candidates, by).into_values() {
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
    let from = candidates[newest].created.0;
    let age = |at: usize| from.abs_diff(candidates[at].created.0);
    for rule in rules(policy) {
        let periods_of = |at: &usize| {
            let created = candidates[*at].created.0;
            (rule.period)(periods(created, offset_at(created)))
        };
        let newest_of_each = newest_of_periods(newest_first, periods_of);
        let count = usize::try_from(rule.count.unwrap_or(0)).unwrap_or(usize::MAX);
        for &at in newest_of_each.iter().take(count) {
            reasons[at].push(rule.reason.clone());
        }
        let Some(within) = rule.within_seconds else { continue };
        for at in newest_of_each.into_iter().filter(|&at| age(at) <= within) {
            reasons[at].push(rule.within_reason.clone());
        }
    }
    for &at in newest_first {
        let tags = candidates[at].tags.iter().filter(|tag| policy.tags.contains(tag));
        reasons[at].extend(tags.map(|tag| KeepReason::Tag(tag.clone())));
        if policy.within_seconds.is_some_and(|within| age(at) <= within) {
            reasons[at].push(KeepReason::Within);
        }
    }
}

/// The rules for one kind of period.
struct PeriodRule {
    period: fn(Periods) -> i64,
    /// The newest snapshot is kept in this many periods.
    count: Option<u64>,
    reason: KeepReason,
    /// The newest snapshot is kept in each period, up to this age.
    within_seconds: Option<u64>,
    within_reason: KeepReason,
}

fn rules(policy: &Policy) -> [PeriodRule; 5] {
    [
        PeriodRule {
            period: |it| it.hour,
            count: policy.hourly,
            reason: KeepReason::Hourly,
            within_seconds: policy.hourly_within_seconds,
            within_reason: KeepReason::HourlyWithin,
        },
        PeriodRule {
            period: |it| it.day,
            count: policy.daily,
            reason: KeepReason::Daily,
            within_seconds: policy.daily_within_seconds,
            within_reason: KeepReason::DailyWithin,
        },
        PeriodRule {
            period: |it| it.week,
            count: policy.weekly,
            reason: KeepReason::Weekly,
            within_seconds: policy.weekly_within_seconds,
            within_reason: KeepReason::WeeklyWithin,
        },
        PeriodRule {
            period: |it| it.month,
            count: policy.monthly,
            reason: KeepReason::Monthly,
            within_seconds: policy.monthly_within_seconds,
            within_reason: KeepReason::MonthlyWithin,
        },
        PeriodRule {
            period: |it| it.year,
            count: policy.yearly,
            reason: KeepReason::Yearly,
            within_seconds: policy.yearly_within_seconds,
            within_reason: KeepReason::YearlyWithin,
        },
    ]
}

/// The newest snapshot of each period, newest first.
fn newest_of_periods(newest_first: &[usize], period: impl Fn(&usize) -> i64) -> Vec<usize> {
    let mut last = None;
    // A clock that is set back may show a day again that has ended.
    let is_new = |at: &&usize| {
        let this = period(at);
        let is_new = last.is_none_or(|last| this < last);
        if is_new {
            last = Some(this);
        }
        is_new
    };
    newest_first.iter().filter(is_new).copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;
    /// 2024-03-31 12:00 UTC, a Sunday.
    const NOON: i64 = 1_711_886_400;

    /// Judges with the default groups.
    fn judge(
        policy: &Policy,
        candidates: &[Candidate],
        now: (i64, u32),
        offset_at: &dyn Fn(i64) -> i32,
    ) -> Vec<Vec<KeepReason>> {
        super::judge(policy, GroupBy::default(), candidates, now, offset_at)
    }

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
    fn the_newest_of_each_period_is_kept_up_to_an_age() {
        let days: Vec<_> = (0..800).collect();
        let none = Policy::default();
        let span = |days: i64| Some((days * DAY) as u64);
        for (policy, wanted) in [
            (Policy { daily_within_seconds: span(2), ..none.clone() }, vec![0, 1, 2]),
            // Sundays end their weeks; the last one is exactly as old as the span.
            (Policy { weekly_within_seconds: span(14), ..none.clone() }, vec![0, 7, 14]),
            (Policy { weekly_within_seconds: span(13), ..none.clone() }, vec![0, 7]),
            // The last of March, February (29 days) and January.
            (Policy { monthly_within_seconds: span(60), ..none.clone() }, vec![0, 31, 60]),
            // 91 days ago was the last day of 2023.
            (Policy { yearly_within_seconds: span(91), ..none.clone() }, vec![0, 91]),
            (Policy { yearly_within_seconds: span(90), ..none.clone() }, vec![0]),
            (Policy { daily_within_seconds: Some(0), ..none.clone() }, vec![0]),
        ] {
            assert_eq!(kept(&policy, &days), wanted, "{policy:?}");
        }
        // Not the first of a day within the span, but the newest of the day.
        let halves: Vec<_> = (0..6).map(|n| at(NOON + DAY / 4 - n * DAY / 2)).collect();
        let policy = Policy { daily_within_seconds: span(1), ..none.clone() };
        let judged = judge(&policy, &halves, (NOON + DAY, 0), &|_| 0);
        let kept: Vec<_> = (0..6).filter(|&n| !judged[n].is_empty()).collect();
        assert_eq!(kept, [0, 2], "18:00 of this day and of the day before");
        let hours: Vec<_> = (0..10).map(|n| at(NOON - n * 1800)).collect();
        let policy = Policy { hourly_within_seconds: Some(2 * 3600), ..none };
        let judged = judge(&policy, &hours, (NOON, 0), &|_| 0);
        let kept: Vec<_> = (0..10).filter(|&n| !judged[n].is_empty()).collect();
        assert_eq!(kept, [0, 1, 3], "12:00, 11:30 and 10:30; 9:30 is too old");
    }

    #[test]
    fn ages_are_measured_in_each_group_and_a_wrong_time_measures_nothing() {
        let policy = Policy { daily_within_seconds: Some(DAY as u64), ..Policy::default() };
        let other = |days: i64| Candidate { host: b"other".to_vec(), ..at(NOON - days * DAY) };
        let ahead = at(NOON + 365 * DAY);
        let behind = Candidate { is_behind: true, ..at(NOON - DAY / 2) };
        let all = [at(NOON), at(NOON - DAY), at(NOON - 2 * DAY), other(50), other(51), other(52)];
        let all = [&all[..], &[ahead, behind]].concat();
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        let daily = vec![KeepReason::DailyWithin];
        assert_eq!(judged[..3], [daily.clone(), daily.clone(), vec![]]);
        assert_eq!(judged[3..6], [daily.clone(), daily, vec![]]);
        assert_eq!(judged[6..], [[KeepReason::Future], [KeepReason::Behind]]);
    }

    #[test]
    fn a_rule_for_a_number_and_one_for_an_age_add_up() {
        let policy = Policy {
            daily: Some(1),
            daily_within_seconds: Some(DAY as u64),
            within_seconds: Some(0),
            ..Policy::default()
        };
        let all = [at(NOON), at(NOON - DAY), at(NOON - 2 * DAY)];
        let judged = judge(&policy, &all, (NOON, 0), &|_| 0);
        assert_eq!(judged[0], [KeepReason::Daily, KeepReason::DailyWithin, KeepReason::Within]);
        assert_eq!(judged[1], [KeepReason::DailyWithin]);
        assert!(judged[2].is_empty());
    }

    #[test]
    fn one_group_for_all_has_one_newest() {
        let other = Candidate { host: b"other".to_vec(), ..at(NOON - DAY) };
        let all = [at(NOON), other, tagged(NOON - 2 * DAY, "x")];
        let policy = Policy { last: Some(1), ..Policy::default() };
        let stays = |by: &str| {
            let by = by.parse().unwrap();
            let judged = super::judge(&policy, by, &all, (NOON, 0), &|_| 0);
            judged.iter().map(|why| !why.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(stays("none"), [true, false, false]);
        assert_eq!(stays("host"), [true, true, false]);
        assert_eq!(stays("host,tags"), [true, true, true]);
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
            daily_within in prop::option::of(any::<u64>()),
        ) {
            let all: Vec<_> =
                times.into_iter().map(|created| Candidate { created, ..at(0) }).collect();
            let [last, hourly, daily, weekly, monthly, yearly] = counts;
            let policy = Policy {
                last, hourly, daily, weekly, monthly, yearly,
                within_seconds: within, daily_within_seconds: daily_within,
                ..Policy::default()
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
