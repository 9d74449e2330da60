//! A thread that samples the counters several times a second during a run.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Live;
use crate::guard::{Guard, Reading};
use crate::result::Sample;

/// The time between two samples: short enough to show a stall of this length, and long enough to
/// cost almost nothing.
const PERIOD: Duration = Duration::from_millis(200);
/// Beyond this number of samples, pairs of samples are merged and the period is doubled, so that
/// the timeline of any run fits on a page.
const MOST: usize = 300;

/// A running sampler.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Starts looking.
    pub fn start(guard: &Guard, live: &Arc<Live>) -> Self {
        let (stop, stopped) = channel();
        let (guard, live) = (guard.clone(), Arc::clone(live));
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            let mut period = PERIOD;
            let first = (guard.glance(), live.bytes());
            let mut before = first.clone();
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let now = (guard.glance(), live.bytes());
                samples.push(sample(&first.0, &before, &now));
                before = now;
                if samples.len() >= MOST {
                    samples = samples.chunks_exact(2).map(|it| it[0].and(it[1])).collect();
                    period *= 2;
                }
            }
            samples
        });
        Sampler { stop, thread }
    }

    /// Ends the thread and returns its samples; empty if the run was shorter than the period.
    pub fn stop(self) -> Vec<Sample> {
        drop(self.stop);
        // It only samples: its panic is not a reason to lose a run.
        self.thread.join().unwrap_or_default()
    }
}

fn sample(first: &Reading, before: &(Reading, u64), now: &(Reading, u64)) -> Sample {
    let (reading, bytes) = now;
    let seconds = reading.seconds_since(&before.0).max(1e-9);
    Sample {
        at_s: reading.seconds_since(first),
        mb_per_s: bytes.saturating_sub(before.1) as f64 / seconds / 1e6,
        dirty_bytes: reading.dirty_bytes,
        writeback_bytes: reading.writeback_bytes,
        cpu_pressure: reading.pressure_since(&before.0, |it| it.cpu_pressure),
        io_pressure: reading.pressure_since(&before.0, |it| it.io_pressure),
        memory_pressure: reading.pressure_since(&before.0, |it| it.memory_pressure),
    }
}
