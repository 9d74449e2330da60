//! Formats measured values for people, with only the digits that are significant.

use std::time::Duration;

/// Formats a value with three digits or more.
pub fn figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        // Times of short commands, in seconds, need their digits.
        0.0001..0.001 => format!("{value:.6}"),
        0.001..0.01 => format!("{value:.5}"),
        0.01..0.1 => format!("{value:.4}"),
        0.1..1.0 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a time, for example `830 ns`, `41 us`, `3.2 ms`, `1.5 s`.
pub fn duration(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        0.0..1e3 => format!("{nanos:.0} ns"),
        1e3..1e4 => format!("{:.1} us", nanos / 1e3),
        1e4..1e6 => format!("{:.0} us", nanos / 1e3),
        1e6..1e7 => format!("{:.1} ms", nanos / 1e6),
        1e7..1e9 => format!("{:.0} ms", nanos / 1e6),
        _ => format!("{:.2} s", nanos / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_keep_three_digits() {
        for (value, text) in [
            (123.4, "123"),
            (12.34, "12.3"),
            (1.0, "1.00"),
            (0.5, "0.500"),
            (0.01234, "0.0123"),
            (-0.001234, "-0.00123"),
            (0.0, "0.00"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn times_are_short() {
        for (nanos, text) in [
            (7, "7 ns"),
            (1_500, "1.5 us"),
            (41_300, "41 us"),
            (3_210_000, "3.2 ms"),
            (321_000_000, "321 ms"),
            (1_500_000_000, "1.50 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }
}
