//! Converts times in S3's form to seconds since 1970.

/// The number of days from 1970 to a day of the Gregorian calendar (Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// As in `2026-11-25T10:00:00Z`.
pub fn written(seconds: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted - era * 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses `2026-11-25T10:00:00Z`, with or without a fraction of the second.
pub fn read(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?
    };
    let signs = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
    if signs.iter().any(|(at, sign)| text.get(*at..at + 1) != Some(sign)) {
        return None;
    }
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_one = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    (zone == "Z" && is_one)
        .then(|| days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_600_800, "2026-11-25T10:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(written(seconds), text);
            assert_eq!(read(text), Some(seconds));
        }
        for day in (-300_000..300_000).step_by(37) {
            let seconds = day * 86_400 + 7;
            if (0..=9999).contains(&written(seconds).get(..4).unwrap_or("").parse().unwrap_or(-1)) {
                assert_eq!(read(&written(seconds)), Some(seconds), "{}", written(seconds));
            }
        }
        assert_eq!(read("2026-11-25T10:00:00.123Z"), Some(1_795_600_800));
        for odd in [
            "",
            "2026-11-25",
            "2026-13-25T10:00:00Z",
            "2026-11-25T10:00:00+01:00",
            "é".repeat(20).as_str(),
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
