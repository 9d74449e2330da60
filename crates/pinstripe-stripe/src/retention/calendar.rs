//! The days, weeks, months and years of a point in time: the Gregorian calendar as arithmetic.
//!
//! This module uses no time-zone tables and no clock: a point in time is seconds since 1970 UTC,
//! shifted by an offset that the caller gives.

/// The calendar periods that contain a point in time; equal numbers mean the same period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// Hours since 1970, which begin when the local clock shows a whole hour.
    pub hour: i64,
    /// Days since 1970.
    pub day: i64,
    /// Weeks since the last Monday before 1970; a week begins on Monday.
    pub week: i64,
    /// Months since the year 0.
    pub month: i64,
    /// The year.
    pub year: i64,
}

const DAY_SECONDS: i64 = 86_400;

/// Returns the periods of a point in time in a zone `offset_seconds` east of UTC.
pub(crate) fn periods(seconds: i64, offset_seconds: i32) -> Periods {
    let local = seconds.saturating_add(i64::from(offset_seconds));
    let day = local.div_euclid(DAY_SECONDS);
    let (year, month) = year_and_month(day);
    Periods {
        // Not by the local clock, which has the hour of a change to winter time twice.
        hour: seconds.saturating_add(i64::from(offset_seconds.rem_euclid(3600))).div_euclid(3600),
        day,
        // 1970 began on a Thursday.
        week: day.saturating_add(3).div_euclid(7),
        month: year.saturating_mul(12).saturating_add(month - 1),
        year,
    }
}

/// Returns the year and the month, 1 to 12, of a day that is counted from 1970. The calculation
/// counts years from the first of March, so that a leap day is the last day of its year.
fn year_and_month(day: i64) -> (i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let day = day.saturating_add(719_468);
    let (era, day) = (day.div_euclid(DAYS_OF_400_YEARS), day.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day_by_day(mut visit: impl FnMut(i64, i64, i64)) {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut day = 0;
        for year in 1970..2420 {
            for month in 1..=12 {
                let days = match month {
                    2 => 28 + i64::from(leap(year)),
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                for _ in 0..days {
                    visit(day, year, month);
                    day += 1;
                }
            }
        }
    }

    #[test]
    fn every_day_of_450_years_is_in_its_month() {
        day_by_day(|day, year, month| {
            assert_eq!(year_and_month(day), (year, month), "{day}");
        });
    }

    #[test]
    fn days_before_1970_are_counted_backwards() {
        assert_eq!(year_and_month(-1), (1969, 12));
        assert_eq!(year_and_month(-719_468), (0, 3));
        assert_eq!(year_and_month(-719_469), (0, 2));
        assert_eq!(periods(-1, 0), periods(-3600, 0));
        assert_ne!(periods(-1, 0).year, periods(0, 0).year);
    }

    #[test]
    fn weeks_begin_on_mondays_and_an_offset_moves_midnight() {
        let monday = 1_704_067_200; // 2024-01-01 00:00 UTC
        assert_ne!(periods(monday - 1, 0).week, periods(monday, 0).week);
        assert_eq!(periods(monday, 0).week, periods(monday + 7 * DAY_SECONDS - 1, 0).week);
        assert_eq!(periods(monday - 1, 3600).year, 2024);
        assert_eq!(periods(monday, -1).year, 2023);
    }

    #[test]
    fn moments_beyond_all_calendars_have_periods_too() {
        for seconds in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
            for offset in [i32::MIN, 0, i32::MAX] {
                let _ = periods(seconds, offset);
            }
        }
    }
}
