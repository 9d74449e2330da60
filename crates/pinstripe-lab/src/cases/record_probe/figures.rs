//! The figures of a run: backlog, overruns, lag, and the ring that each stream needs.

use std::collections::BTreeMap;

use super::{LISTED, RecordProbe};
use crate::histogram::Histogram;
use crate::io::recorder::Recorded;

impl RecordProbe {
    /// The ring that each stream needs, before rounding up to a power of two, and the time of a
    /// round.
    pub(super) fn needed(&self, recorded: &Recorded, streams: u64) -> (f64, f64) {
        let writers = if recorded.engine.is_some() { 1 } else { self.recording.writers };
        let of_each = (streams as f64 / writers as f64).ceil();
        let round = recorded.mean_write().as_secs_f64() * of_each;
        let longest = recorded.longest_write().as_secs_f64();
        let ahead = self.recording.rate as f64 * (round + 2.0 * longest);
        (self.recording.chunk_bytes as f64 + ahead, round)
    }

    pub(super) fn figures(&self, recorded: &Recorded, streams: u64) -> BTreeMap<String, f64> {
        let (needed, round) = self.needed(recorded, streams);
        let ring = (needed.ceil() as u64).next_power_of_two();
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let storm = recorded.storm_bytes as f64 / self.recording.time.as_secs_f64() / 1e6;
        let fill = 100.0 * recorded.peak_bytes as f64 / self.recording.ring_bytes as f64;
        let mut figures: BTreeMap<String, f64> = [
            ("backlog_kib", kib(recorded.peak_bytes)),
            ("overruns", recorded.overruns as f64),
            ("lost_bytes", recorded.lost_bytes as f64),
            ("fill_percent", fill),
            ("longest_write_ms", recorded.longest_write().as_secs_f64() * 1e3),
            ("round_ms", round * 1e3),
            ("needed_kib", needed / 1024.0),
            ("ring_needed_kib", kib(ring)),
            ("memory_needed_mib", kib(ring) * streams as f64 / 1024.0),
            ("durable_lag_s", recorded.durable_lag.as_secs_f64()),
            ("storm_mb_per_s", storm),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        match recorded.engine {
            // It keeps the longest write, and not all that were long.
            Some(engine) => {
                let gigabytes = recorded.written_bytes.max(1) as f64 / 1e9;
                let of = ["inputs", "writer", "commits"].into_iter().zip(engine.cpu_seconds);
                let of = of.map(|(who, time)| (format!("cpu_{who}_s_per_gb"), time / gigabytes));
                figures.extend(of);
            }
            None => {
                figures.insert("stalls".to_owned(), recorded.stalls.len() as f64);
            }
        }
        let mut stalls = recorded.stalls.clone();
        stalls.sort_by_key(|it| std::cmp::Reverse(it.time));
        for (number, stall) in stalls.iter().take(LISTED).enumerate() {
            figures.insert(format!("stall_{number}_stream"), stall.stream as f64);
            figures.insert(format!("stall_{number}_at_s"), stall.at.as_secs_f64());
            figures.insert(format!("stall_{number}_ms"), stall.time.as_secs_f64() * 1e3);
        }
        figures
    }
}

/// Times of writes, by kind.
pub(super) fn latency(recorded: &Recorded) -> BTreeMap<String, Histogram> {
    let kinds =
        [("response", &recorded.responses), ("sync", &recorded.syncs), ("write", &recorded.writes)];
    let kinds = kinds.into_iter().filter(|(_, it)| !it.is_empty());
    kinds.map(|(kind, times)| (kind.to_owned(), times.clone())).collect()
}
