//! The kernels on one core: parity and the gear scan, each version of them that this processor has.
//!
//! Time is the processor time of the thread, so that other processes on the processor do not count
//! (their use of the caches does).

mod gear;
mod parity;

use pinstripe_lab::{Align, Cell, Table};
use rustix::time::{ClockId, clock_gettime};

use super::pairs;
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "parity and the gear scan: --only TEXT (a part of the names of kernels)";

/// The number of samples of each kernel; the median is shown.
const SAMPLES: usize = 21;
/// Processor time of a sample at least: the clock is read twice for it.
const SAMPLE_SECONDS: f64 = 0.02;

/// The measurements; kernels whose names were not requested are left out.
struct Bench<'a> {
    only: &'a str,
    table: Table,
}

impl Bench<'_> {
    /// Measures `work`, which reads `bytes` bytes of data, and adds a row.
    fn measure(&mut self, name: &str, bytes: usize, mut work: impl FnMut()) {
        if !name.contains(self.only) {
            return;
        }
        // The first passes fill the caches and say how many belong into a sample.
        let mut passes = 1;
        while seconds_of(passes, &mut work) < SAMPLE_SECONDS {
            passes *= 2;
        }
        let mut samples = [(); SAMPLES].map(|()| seconds_of(passes, &mut work));
        samples.sort_by(f64::total_cmp);
        let [least, median, most] = [SAMPLES - 1, SAMPLES / 2, 0].map(|at| {
            let rate = (passes * bytes) as f64 / samples[at] / 1e9;
            Cell::Number(rate, 1)
        });
        self.table.row([name.into(), (bytes as u64).into(), median, least, most]);
    }
}

/// The processor time of `passes` passes.
fn seconds_of(passes: usize, work: &mut impl FnMut()) -> f64 {
    let began = cpu_seconds();
    (0..passes).for_each(|_| work());
    cpu_seconds() - began
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Measures and returns the table.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--only"])?;
    let only = found.first().map_or("", |(_, only)| *only);
    let note = "GB/s are 10^9 bytes of data per second of processor time, parity not counted: the \
                median, the least and the most of 21 samples.";
    let columns = [
        ("kernel", Align::Left),
        ("bytes", Align::Right),
        ("GB/s", Align::Right),
        ("least", Align::Right),
        ("most", Align::Right),
    ];
    let mut bench = Bench { only, table: Table::new("Kernels", note, &columns) };
    parity::measure(&mut bench);
    gear::measure(&mut bench);
    if bench.table.to_json()["rows"].as_array().is_none_or(Vec::is_empty) {
        return Err(format!("no kernel has '{only}' in its name"));
    }
    Ok(vec![bench.table])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_picked_by_a_part_of_their_name() {
        let args = |only: &str| ["--only".to_owned(), only.to_owned()];
        let tables = run(&args("gear/64K/fastcdc")).unwrap();
        let rows = &tables[0].to_json()["rows"];
        assert_eq!(rows.as_array().unwrap().len(), 1);
        let rates = ["least", "GB/s", "most"].map(|column| rows[0][column].as_f64().unwrap());
        assert!(rates[0] > 0.0 && rates.is_sorted(), "{rates:?}");
        assert!(run(&args("no such kernel")).unwrap_err().contains("no such kernel"));
    }
}
