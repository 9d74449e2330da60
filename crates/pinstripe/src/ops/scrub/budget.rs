//! The budget of a scrub: a portion of the store, a time, and a rate.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::parse_size;

/// A portion of a store's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// Thousandths of a percent of all bytes.
    MilliPercent(u64),
    /// A number of bytes.
    Bytes(u64),
}

/// When a scrub stops, by the limit reached first; it never stops within a stripe set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Stop after this portion of the store.
    pub portion: Option<Portion>,
    /// After this time.
    pub time: Option<Duration>,
}

const ALL: u64 = 100_000;

impl Budget {
    /// Returns the number of bytes to verify in a store of `all` bytes.
    pub fn bytes(&self, all: u64) -> u64 {
        match self.portion {
            None => u64::MAX,
            Some(Portion::Bytes(bytes)) => bytes,
            Some(Portion::MilliPercent(part)) => {
                (u128::from(all) * u128::from(part)).div_ceil(u128::from(ALL)) as u64
            }
        }
    }

    /// Combines two budgets that set different limits.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when both budgets set the same limit.
    pub fn and(self, other: Budget) -> Result<Self> {
        if self.portion.and(other.portion).is_some() || self.time.and(other.time).is_some() {
            return Err(Error::new(Kind::Usage, "two budgets of the same kind were given")
                .advice("give at most one amount (5% or 10G) and one time (2h)"));
        }
        Ok(Budget { portion: self.portion.or(other.portion), time: self.time.or(other.time) })
    }
}

impl FromStr for Budget {
    type Err = Error;

    /// Parses `5%`, `0.5%`, `2h`, `90m`, `30s`, `7d`, `10G`: sizes end in capital letters, times in
    /// small ones.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Kind::Usage, format!("'{text}' is not a valid budget"))
                .advice("write a part of the store (5%), a size (10G) or a time (2h, 90m, 30s)")
        };
        let mut budget = Budget::default();
        if let Some(number) = text.strip_suffix('%') {
            let part = thousandths(number).filter(|part| (1..=ALL).contains(part));
            budget.portion = Some(Portion::MilliPercent(part.ok_or_else(bad)?));
            return Ok(budget);
        }
        let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
        if let Some((unit, seconds)) = units.iter().find(|(unit, _)| text.ends_with(*unit)) {
            let number = thousandths(text.trim_end_matches(*unit)).filter(|number| *number > 0);
            let millis = number.and_then(|number| number.checked_mul(*seconds));
            budget.time = Some(Duration::from_millis(millis.ok_or_else(bad)?));
            return Ok(budget);
        }
        let bytes = parse_size(text).map_err(|_| bad())?;
        budget.portion = Some(Portion::Bytes(Some(bytes).filter(|b| *b > 0).ok_or_else(bad)?));
        Ok(budget)
    }
}

/// Parses a decimal number with at most three digits after the point, and returns it in
/// thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 3 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction)
}

/// Keeps the total rate of all threads below a limit.
pub(super) struct Throttle {
    rate: Option<u64>,
    began: Instant,
    bytes: AtomicU64,
}

impl Throttle {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Throttle { rate, began: clock::monotonic(), bytes: AtomicU64::new(0) }
    }

    /// Counts `bytes` as read, and waits as long as the rate requires.
    pub(super) fn took(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let due = Duration::from_secs_f64(all as f64 / rate.max(1) as f64);
        let early = due.saturating_sub(clock::since(self.began));
        if !early.is_zero() {
            clock::sleep(early);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::units::GIB;

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let portion = |text: &str| text.parse::<Budget>().unwrap().portion.unwrap();
        assert_eq!(portion("5%"), Portion::MilliPercent(5000));
        assert_eq!(portion("0.25%"), Portion::MilliPercent(250));
        assert_eq!(portion("10G"), Portion::Bytes(10 * GIB));
        let seconds = |text: &str| text.parse::<Budget>().unwrap().time.unwrap().as_secs();
        assert_eq!([seconds("2h"), seconds("90m"), seconds("1.5h")], [7200, 5400, 5400]);
        assert_eq!([seconds("30s"), seconds("1d")], [30, 86_400]);
        for text in ["", "%", "0%", "101%", "h", "0s", "-1h", "2 h", "1.2345%", "x", "0", "2hh%"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_portion_is_rounded_up_and_all_is_all() {
        let budget: Budget = "5%".parse().unwrap();
        assert_eq!([budget.bytes(1000), budget.bytes(1), budget.bytes(0)], [50, 1, 0]);
        assert_eq!(Budget::default().bytes(7), u64::MAX);
        let both = budget.and("2h".parse().unwrap()).unwrap();
        assert!(both.portion.is_some() && both.time.is_some());
        assert!(both.and("1h".parse().unwrap()).is_err());
    }
}
