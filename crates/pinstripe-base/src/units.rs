//! Parses and formats sizes as text for people.

use std::ops::Range;

use crate::error::{Error, Kind, Result};

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;

/// Parses `64K`, `1M`, `1.5G`, `512`, `64KiB`: units are powers of 1024, a number without a unit is
/// bytes.
///
/// # Errors
/// Fails with [`Kind::Usage`] for any other text, and for sizes that are not whole bytes or exceed
/// 2^63.
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::new(Kind::Usage, format!("'{text}' is not a size"))
            .advice("write a size as a number followed by K, M, G or T, for example 64K or 1M")
    };
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match number.char_indices().last().ok_or_else(bad)? {
        (at, 'k') => (&number[..at], 10),
        (at, 'm') => (&number[..at], 20),
        (at, 'g') => (&number[..at], 30),
        (at, 't') => (&number[..at], 40),
        _ => (number, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return Err(bad());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let mantissa: u128 = format!("{whole}{fraction}").parse().map_err(|_| bad())?;
    let scaled = mantissa.checked_mul(1 << shift).ok_or_else(bad)?;
    if scaled % scale != 0 || scaled / scale > i64::MAX as u128 {
        return Err(bad());
    }
    Ok((scaled / scale) as u64)
}

/// Formats a byte count for people: three or four digits and a unit, `264.1 MiB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a count with groups of three digits: `83,731`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun in singular or plural: `1 entry`, `1,204 entries`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", format_count(count), if count == 1 { one } else { many })
}

/// Serializes a path for JSON, which cannot represent bytes that are not UTF-8: these become the
/// replacement character.
///
/// # Errors
/// Fails with the errors of the serializer.
pub fn lossy_path<S: serde::Serializer>(
    path: &std::path::Path,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Sorts ranges, and merges those that touch or overlap.
pub fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|it| it.start);
    ranges.dedup_by(|later, one| {
        let touches = later.start <= one.end;
        if touches {
            one.end = one.end.max(later.end);
        }
        touches
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64K", 65536),
            ("64k", 65536),
            ("64KiB", 65536),
            ("64kb", 65536),
            ("1M", MIB),
            ("1.5G", 3 * GIB / 2),
            ("2T", 2048 * GIB),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "K", "x", "-1", "1.3B", "1e3", "99999999999T", "1..5M", "0x10"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_counts_are_written_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (MIB - 1, "1.0 MiB"),
            (276_447_802, "263.6 MiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(format_count(83_731), "83,731");
        assert_eq!(format_count(999), "999");
    }

    #[test]
    fn counts_have_the_noun_that_fits() {
        assert_eq!(counted(0, "entry", "entries"), "0 entries");
        assert_eq!(counted(1, "entry", "entries"), "1 entry");
        assert_eq!(counted(1204, "entry", "entries"), "1,204 entries");
    }
}
