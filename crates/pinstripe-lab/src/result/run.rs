//! One run of a variant: what its case measured, and the activity of the machine at the same time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Part;
use crate::guard::Disturbance;
use crate::histogram::Histogram;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The position among all runs of all variants, counted from 0.
    pub order: u64,
    /// The round to which the run belongs, counted from 0; `None` without rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// When the run began, in seconds since the case began.
    pub at_s: f64,
    /// The time that the run took, in seconds.
    pub seconds: f64,
    /// What the case measured; in a file, these fields are among the fields of the run.
    #[serde(flatten)]
    pub measured: Measured,
    /// Processor time of the program, in seconds.
    pub cpu_s: f64,
    /// Bytes that the disk read during the run; `None` without a disk.
    pub device_read_bytes: Option<u64>,
    /// Bytes that the disk wrote during the run; `None` without a disk.
    pub device_written_bytes: Option<u64>,
    /// Samples taken several times per second.
    pub samples: Vec<Sample>,
    /// Notes needed to read the value.
    pub notes: Vec<Note>,
    /// The disturbances; a run with disturbances does not count unless they were
    /// [accepted](Note::BesideOthers).
    pub disturbances: Vec<Disturbance>,
    /// The part of each machine, if several measured together; the run is the sum of its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// The figures of one run that its case measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The value, in the metric's unit.
    pub value: f64,
    /// The number of requests: reads and writes.
    pub operations: u64,
    /// Bytes requested for reading.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times of requests by kind: `read`, `write`, `sync`; `response` counts from when a paced
    /// request was due.
    pub latency: BTreeMap<String, Histogram>,
    /// Further figures by name, with the unit at the end of the name: `sync_s`,
    /// `accepted_mb_per_s`. `load_before` is the number of processes that ran or wanted to run;
    /// `disk_probe_us` and `disk_probe_after_us` are the times of a short read before and after the
    /// run.
    pub figures: BTreeMap<String, f64>,
}

impl Run {
    /// Whether it counts.
    pub fn is_valid(&self) -> bool {
        let is_accepted = self.notes.contains(&Note::BesideOthers) && self.is_whole();
        self.disturbances.is_empty() || is_accepted
    }

    /// Whether all machines took part in the run. A sum over fewer machines is not comparable with
    /// sums over all machines.
    fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.run.is_some())
    }

    /// Makes the run count although it was disturbed, and adds a note that says so; a run that lost
    /// a machine still does not count.
    pub fn accept_noise(&mut self) {
        self.parts.iter_mut().filter_map(|it| it.run.as_mut()).for_each(Run::accept_noise);
        if !self.is_valid() && self.is_whole() {
            self.notes.push(Note::BesideOthers);
        }
    }

    /// Processor seconds per 10^9 bytes moved; `None` if no bytes were moved.
    pub(crate) fn cpu_s_per_gb(&self) -> Option<f64> {
        let bytes = self.measured.read_bytes + self.measured.written_bytes;
        (bytes > 0).then(|| self.cpu_s / bytes as f64 * 1e9)
    }
}

/// A note needed to read a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Most of the bytes that were read did not come from the disk.
    PageCache,
    /// Written bytes may still be lost, because nothing waited for the disk.
    AcceptedNotDurable,
    /// Direct I/O was requested, but not all requests bypassed the page cache.
    NotDirect,
    /// The files are in memory, or come from another process.
    Memory,
    /// The run accessed the same blocks more than once.
    Wrapped,
    /// The run was measured by another program.
    OtherProgram,
    /// Other processes disturbed the run, which counts because the user accepted this.
    BesideOthers,
}

impl Note {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Note::PageCache => "page cache",
            Note::AcceptedNotDurable => "accepted, not durable",
            Note::NotDirect => "not direct",
            Note::Memory => "memory, no disk",
            Note::Wrapped => "wrapped around",
            Note::OtherProgram => "measured by another program",
            Note::BesideOthers => "measured during other load",
        }
    }
}

/// The state of a run at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub at_s: f64,
    /// Millions of bytes per second since the previous sample.
    pub mb_per_s: f64,
    /// Bytes in the page cache that wait to be written.
    pub dirty_bytes: Option<u64>,
    /// Bytes in the page cache that are being written.
    pub writeback_bytes: Option<u64>,
    /// Share of the time since the last sample in which any process waited for a processor.
    pub cpu_pressure: Option<f64>,
    /// The share of the time since the last sample in which any process waited for a disk.
    pub io_pressure: Option<f64>,
    /// The share of the time since the last sample in which any process waited for memory.
    pub memory_pressure: Option<f64>,
}

impl Sample {
    /// Reduces samples to at most `most` by merging neighbours repeatedly.
    pub(crate) fn coarser(all: &[Sample], most: usize) -> Vec<Sample> {
        let mut all = if most == 0 { Vec::new() } else { all.to_vec() };
        while all.len() > most {
            let pairs = all.chunks(2);
            all = pairs.filter_map(|it| it.iter().copied().reduce(Sample::and)).collect();
        }
        all
    }

    /// Merges two consecutive samples into one of twice the length.
    #[must_use]
    pub fn and(self, next: Sample) -> Sample {
        let mean = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| (a + b) / 2.0);
        Sample {
            mb_per_s: (self.mb_per_s + next.mb_per_s) / 2.0,
            dirty_bytes: self.dirty_bytes.max(next.dirty_bytes),
            writeback_bytes: self.writeback_bytes.max(next.writeback_bytes),
            cpu_pressure: mean(self.cpu_pressure, next.cpu_pressure),
            io_pressure: mean(self.io_pressure, next.io_pressure),
            memory_pressure: mean(self.memory_pressure, next.memory_pressure),
            ..next
        }
    }
}
