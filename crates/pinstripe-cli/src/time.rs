//! Times in readable form, in the time zone of this machine; and amounts per time.

use std::ffi::OsString;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Formats a time as `2024-05-01 12:34:56`; a time outside the calendar is given in seconds since
/// 1970.
pub fn date(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(time) => {
            let local = time.to_zoned(TimeZone::system());
            local.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => format!("@{seconds}"),
    }
}

/// Returns the value of `TZ` if it names no zone that is known here: times are then in UTC.
pub fn unknown_zone() -> Option<OsString> {
    let zone = std::env::var_os("TZ").filter(|zone| !zone.is_empty())?;
    TimeZone::try_system().is_err().then_some(zone)
}

/// Formats a time for the name of a file, `2024-05-01T12:34:56`, which sorts by time and needs no
/// quotes.
pub fn name(seconds: i64) -> String {
    date(seconds).replace(' ', "T")
}

/// The offset of local time from UTC at a moment, in seconds to the east.
pub fn offset_seconds(seconds: i64) -> i32 {
    let time = Timestamp::from_second(seconds);
    time.map_or(0, |time| TimeZone::system().to_offset(time).seconds())
}

/// Reads a span as `36h`, `30d`, `8w`, `6m` (of 30 days) or `2y` (of 365 days), in seconds.
pub fn parse_span(text: &str) -> Result<u64, String> {
    let refuse = || {
        format!("'{text}' is not a time span; write a number with h, d, w, m or y, for example 30d")
    };
    let (unit_at, unit) = text.char_indices().next_back().ok_or_else(refuse)?;
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        'm' => 30 * 24,
        'y' => 365 * 24,
        _ => return Err(refuse()),
    };
    let number = &text[..unit_at];
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| is_number).ok_or_else(refuse)?;
    number.checked_mul(hours * 3600).ok_or_else(refuse)
}

/// Formats a time as `2024-05-01T12:34:56Z` in UTC; returns `None` outside the calendar.
pub fn utc(seconds: i64, nanos: u32) -> Option<String> {
    Timestamp::new(seconds, nanos as i32).ok().map(|time| time.to_string())
}

/// Reads a local time in the form of options: `2024-05-01`, `2024-05-01 12:30:00`, or `@` and
/// seconds since 1970.
pub fn parse(text: &str) -> Result<i64, String> {
    let bad = "write a time in the form 2024-05-01, '2024-05-01 12:30:00', or @SECONDS (seconds \
               since 1970)";
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| bad.to_owned());
    }
    let civil: DateTime = text.parse().map_err(|_| bad.to_owned())?;
    let zoned = civil.to_zoned(TimeZone::system()).map_err(|error| error.to_string())?;
    Ok(zoned.timestamp().as_second())
}

/// Formats a duration as `0.04 s`, `12.3 s` or `3 min 20 s`.
pub fn span(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..10 => format!("{:.2} s", elapsed.as_secs_f64()),
        10..60 => format!("{:.1} s", elapsed.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats an estimated duration in whole seconds.
pub fn rough_span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => self::span(span),
    }
}

/// Formats a rate as `412.3 MB/s`, where MB is a million bytes, as for disks.
pub fn rate(bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-6);
    format!("{:.1} MB/s", bytes as f64 / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_rates_are_short() {
        for (millis, text) in [
            (0, "0.00 s"),
            (1_250, "1.25 s"),
            (12_310, "12.3 s"),
            (61_000, "1 min 1 s"),
            (7_384_000, "2 h 3 min"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(rough_span(Duration::from_millis(2_900)), "2 s");
        assert_eq!(rough_span(Duration::from_secs(60)), "1 min 0 s");
        assert_eq!(rate(3_000_000, Duration::from_secs(2)), "1.5 MB/s");
        assert!(rate(1, Duration::ZERO).ends_with(" MB/s"));
    }

    #[test]
    fn spans_are_numbers_with_a_unit() {
        for (text, seconds) in [
            ("36h", Some(36 * 3600)),
            ("30d", Some(30 * 86_400)),
            ("2w", Some(14 * 86_400)),
            ("1m", Some(30 * 86_400)),
            ("1y", Some(365 * 86_400)),
            ("0d", Some(0)),
            ("", None),
            ("d", None),
            ("30", None),
            ("+3d", None),
            ("3 d", None),
            ("3ü", None),
            ("99999999999999999999y", None),
            ("9999999999999999y", None),
        ] {
            assert_eq!(parse_span(text).ok(), seconds, "{text:?}");
        }
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        for seconds in [0, 1_714_566_600, -86_400] {
            assert_eq!(parse(&date(seconds)), Ok(seconds));
            assert_eq!(parse(&format!("@{seconds}")), Ok(seconds));
        }
        assert_eq!(parse("2024-05-01"), parse("2024-05-01 00:00:00"));
        for bad in ["", "yesterday", "2024-13-01", "@x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_beyond_the_calendar_are_told_all_the_same() {
        assert_eq!(utc(0, 5).unwrap(), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(utc(i64::MAX, 0), None);
        assert_eq!(date(i64::MAX), format!("@{}", i64::MAX));
        assert_eq!(date(0).len(), "1970-01-01 00:00:00".len());
    }
}
