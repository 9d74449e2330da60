//! Times of single requests: counts in buckets whose width is at most 1 % of the time
//! (HdrHistogram); the minimum, the maximum and the sum are exact.
//!
//! This module reads no clock. In JSON, a histogram is stored as the list of its non-empty buckets.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Significant digits; a bucket is then at most 1/128 of its value wide, as in fio.
const DIGITS: u8 = 2;

/// Times of requests.
#[derive(Clone)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    /// In nanoseconds.
    sum: u128,
    least: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = hdrhistogram::Histogram::new(DIGITS).expect("two digits are allowed");
        Histogram { buckets, sum: 0, least: u64::MAX, most: 0 }
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let ends = |it: &Self| (it.sum, it.least, it.most);
        ends(self) == ends(other) && self.buckets().eq(other.buckets())
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, median, most) = (self.min(), self.quantile(0.5), self.max());
        write!(f, "Histogram({} from {least:?} over {median:?} to {most:?})", self.count())
    }
}

impl Histogram {
    /// Counts one request.
    pub fn record(&mut self, time: Duration) {
        self.record_many(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1), 1);
    }

    /// Counts `count` requests that took `nanos` each.
    pub(crate) fn record_many(&mut self, nanos: u64, count: u64) {
        if count == 0 {
            return;
        }
        let nanos = nanos.min(u64::MAX >> 1);
        // It grows as it needs to, up to 2^63.
        let _ = self.buckets.record_n(nanos, count);
        self.sum = self.sum.saturating_add(u128::from(nanos) * u128::from(count));
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        let _ = self.buckets.add(&other.buckets);
        // Histograms from a file may contain any sum.
        self.sum = self.sum.saturating_add(other.sum);
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// The number of requests.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Whether the histogram contains no request.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The shortest time, exactly.
    pub fn min(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.least))
    }

    /// The longest time, exactly.
    pub fn max(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.most))
    }

    /// The mean time.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count()))?;
        Some(Duration::from_nanos(mean as u64))
    }

    /// The standard deviation of the times, with an error of at most 1 %.
    pub fn deviation(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.buckets.stdev() as u64))
    }

    /// The time that the share `q`, from 0 to 1, of all requests did not exceed, with an error of
    /// at most 1 %.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let value = self.buckets.value_at_quantile(q).clamp(self.least.min(self.most), self.most);
        (!self.is_empty()).then(|| Duration::from_nanos(value))
    }

    /// The histogram with fewer buckets: `steps` buckets for each halving of the share of slower
    /// requests, so that the longest times keep their own buckets. Times are rounded up; minimum,
    /// maximum and sum stay exact.
    #[must_use]
    pub(crate) fn coarser(&self, steps: u32) -> Histogram {
        let mut coarse = Histogram::default();
        let (mut open, mut step_before) = (0, None);
        let mut left = self.count();
        let mut before = 0;
        for (nanos, count) in self.buckets() {
            let halvings = (self.count() as f64 / left as f64).log2();
            let step = Some((halvings * f64::from(steps)) as u64);
            if step != step_before {
                coarse.record_many(before, open);
                (open, step_before) = (0, step);
            }
            open += count;
            left -= count;
            before = nanos;
        }
        coarse.record_many(before, open);
        (coarse.sum, coarse.least, coarse.most) = (self.sum, self.least, self.most);
        coarse
    }

    /// The non-empty buckets in the order of time: the middle of the bucket in nanoseconds, and its
    /// number of requests.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter_recorded().map(|it| {
            let middle = self.buckets.median_equivalent(it.value_iterated_to());
            (middle.clamp(self.least, self.most), it.count_at_value())
        })
    }
}

/// The stored form: `[nanoseconds more than the previous bucket, count, ...]`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHistogram {
    sum_ns: f64,
    min_ns: u64,
    max_ns: u64,
    buckets_ns: Vec<u64>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut before = 0;
        let pairs = self.buckets().flat_map(|(nanos, count)| {
            let step = nanos - before;
            before = nanos;
            [step, count]
        });
        let buckets_ns = pairs.collect();
        let min_ns = if self.is_empty() { 0 } else { self.least };
        let kept =
            StoredHistogram { sum_ns: self.sum as f64, min_ns, max_ns: self.most, buckets_ns };
        kept.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = StoredHistogram::deserialize(deserializer)?;
        let mut histogram = Histogram::default();
        let mut nanos = 0_u64;
        for pair in kept.buckets_ns.chunks(2) {
            let [step, count] = *pair else {
                return Err(de::Error::custom(
                    "the list of buckets of a histogram is incomplete: the last bucket lacks its \
                     count",
                ));
            };
            let next = nanos.checked_add(step).filter(|it| *it <= u64::MAX >> 1);
            nanos = next.ok_or_else(|| {
                de::Error::custom("a bucket of a histogram has an impossible time")
            })?;
            let all = histogram.count().checked_add(count);
            all.ok_or_else(|| {
                de::Error::custom("the sum of the counts of a histogram is too large")
            })?;
            histogram.record_many(nanos, count);
        }
        if !histogram.is_empty() {
            let (low, high) = (histogram.least, histogram.most);
            if kept.min_ns > low || kept.max_ns < high || kept.sum_ns < 0.0 {
                return Err(de::Error::custom(
                    "the buckets of a histogram do not match its smallest and largest value",
                ));
            }
            (histogram.least, histogram.most) = (kept.min_ns, kept.max_ns);
            histogram.sum = kept.sum_ns as u128;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::random::Noise;

    fn filled() -> (Histogram, Vec<u64>) {
        let mut noise = Noise(2);
        let mut histogram = Histogram::default();
        let mut draw = || {
            let most = 1 << (10 + noise.below(20));
            800 + noise.below(most)
        };
        let mut all: Vec<u64> = (0..10_000).map(|_| draw()).collect();
        all.iter().for_each(|nanos| histogram.record(Duration::from_nanos(*nanos)));
        all.sort_unstable();
        (histogram, all)
    }

    #[test]
    fn quantiles_are_within_one_percent_and_the_ends_exact() {
        let (histogram, all) = filled();
        for q in [0.1, 0.5, 0.9, 0.99, 0.999] {
            let exact = all[(q * all.len() as f64).ceil() as usize - 1] as f64;
            let found = histogram.quantile(q).unwrap().as_nanos() as f64;
            assert!((found / exact - 1.0).abs() < 0.01, "{q}: {found} for {exact}");
        }
        assert_eq!(histogram.min().unwrap().as_nanos(), u128::from(all[0]));
        assert_eq!(histogram.max().unwrap().as_nanos(), u128::from(all[all.len() - 1]));
        assert_eq!(histogram.quantile(1.0), histogram.max());
        let mean = all.iter().sum::<u64>() / all.len() as u64;
        assert_eq!(histogram.mean().unwrap().as_nanos(), u128::from(mean));
        assert_eq!(histogram.count(), 10_000);
    }

    #[test]
    fn parts_are_merged_to_the_whole() {
        let (whole, all) = filled();
        let mut parts = [Histogram::default(), Histogram::default(), Histogram::default()];
        for (at, nanos) in all.iter().enumerate() {
            parts[at % 3].record(Duration::from_nanos(*nanos));
        }
        let mut merged = Histogram::default();
        parts.iter().for_each(|part| merged.merge(part));
        assert_eq!(merged.quantile(0.99), whole.quantile(0.99));
        assert_eq!(
            (merged.count(), merged.max(), merged.mean()),
            (10_000, whole.max(), whole.mean())
        );
    }

    #[test]
    fn what_is_kept_is_short_and_comes_back() {
        let (histogram, _) = filled();
        let text = serde_json::to_string(&histogram).unwrap();
        assert!(text.len() < 20_000, "{}", text.len());
        let back: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back.count(), histogram.count());
        assert_eq!(
            (back.min(), back.max(), back.mean()),
            (histogram.min(), histogram.max(), histogram.mean())
        );
        for q in [0.01, 0.5, 0.99] {
            assert_eq!(back.quantile(q), histogram.quantile(q), "{q}");
        }
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        let none: Histogram =
            serde_json::from_str(&serde_json::to_string(&Histogram::default()).unwrap()).unwrap();
        assert!(none.is_empty() && none.quantile(0.5).is_none() && none.mean().is_none());
    }

    #[test]
    fn coarser_ones_are_short_and_keep_their_ends() {
        let (whole, _) = filled();
        let coarse = whole.coarser(4);
        let text = serde_json::to_string(&coarse).unwrap();
        assert!(text.len() < 1000, "{}", text.len());
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), coarse);
        let ends = |it: &Histogram| (it.count(), it.min(), it.max(), it.mean());
        assert_eq!(ends(&coarse), ends(&whole));
        for q in [0.5, 0.9, 0.99, 0.999] {
            let (found, exact) = (coarse.quantile(q).unwrap(), whole.quantile(q).unwrap());
            assert!(found >= exact && found < exact * 2, "{q}: {found:?} for {exact:?}");
        }
        assert!(Histogram::default().coarser(4).is_empty());
    }

    #[test]
    fn damaged_ones_are_refused() {
        for text in [
            r#"{"sum_ns":1,"min_ns":1,"max_ns":1,"buckets_ns":[1]}"#,
            r#"{"sum_ns":1,"min_ns":5,"max_ns":1,"buckets_ns":[1,1]}"#,
            r#"{"sum_ns":1,"min_ns":1,"max_ns":1,"buckets_ns":[18446744073709551615,1]}"#,
            r#"{"sum_ns":1,"min_ns":1,"max_ns":9,"buckets_ns":[1,18446744073709551615,1,1]}"#,
        ] {
            assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_that_never_ends_is_counted() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::MAX);
        histogram.record(Duration::ZERO);
        assert_eq!(histogram.count(), 2);
        assert_eq!(histogram.min(), Some(Duration::ZERO));
    }
}
