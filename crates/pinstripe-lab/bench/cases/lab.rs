//! The cost of the lab's own engine in addition to the requests: on a device that does nothing, and
//! on a file in the page cache, compared with fio.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_io::device::{NullDevice, Policy};
use pinstripe_lab::{
    Align, Area, Cell, Content, Direction, IoEngine, Job, JobTarget, Live, Order, Pattern, Table,
    import_fio, run_job,
};
use pinstripe_stats::median;
use rustix::time::{ClockId, clock_gettime};

use super::pairs;
use crate::Result;

/// The purpose of the case.
pub const ABOUT: &str = "what the lab's engine costs, against fio: --work DIR";

const ROUNDS: usize = 5;
const SECONDS: u64 = 1;
const FILE_BYTES: u64 = 64 << 20;

/// Runs each load in turns.
pub fn run_case(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--work"])?;
    let work = found.first().map_or_else(std::env::temp_dir, |(_, work)| PathBuf::from(work));
    let file = work.join(format!("pinstripe-bench-lab-{}", std::process::id()));
    let tables = measure(&file);
    let _ = std::fs::remove_file(&file);
    Ok(vec![tables?])
}

fn measure(file: &Path) -> Result<Table> {
    let live = Live::new(Arc::default());
    let cached = [file.to_owned()];
    let cached = Area::make(&cached, FILE_BYTES, Content::Noise, Policy::Buffered, &live);
    let cached = cached.map_err(|error| error.to_string())?;
    let null =
        Area::new(vec![JobTarget::new(Arc::new(NullDevice::new("null", FILE_BYTES)))], FILE_BYTES);
    let columns = [
        ("load", Align::Left),
        ("by", Align::Left),
        ("ns per request", Align::Right),
        ("% of a core per GB/s", Align::Right),
    ];
    let note = "Medians of five rounds of a second in turns, by processor time, user and system. The \
                null device does nothing: what is left is the engine.";
    let mut table = Table::new("The lab's engine", note, &columns);
    for (name, block_bytes, direction) in [
        ("4 KiB random write, null", 4096, Direction::Write),
        ("1 MiB random write, null", 1 << 20, Direction::Write),
        ("4 KiB random read, page cache", 4096, Direction::Read),
        ("1 MiB random read, page cache", 1 << 20, Direction::Read),
    ] {
        let is_null = name.ends_with("null");
        let area = if is_null { &null } else { &cached };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(by_us(area, block_bytes, direction, &live)?);
            let file = (!is_null).then_some(file);
            theirs.extend(by_fio(file, block_bytes, direction));
        }
        for (by, costs) in [("pinstripe lab", ours), ("fio", theirs)] {
            let middle = |which: fn(&(f64, f64)) -> f64| {
                let all: Vec<f64> = costs.iter().map(which).collect();
                median(&all).map_or_else(|| Cell::from("-"), |it| Cell::Number(it, 2))
            };
            table.row([name.into(), by.into(), middle(|it| it.0), middle(|it| it.1)]);
        }
    }
    Ok(table)
}

/// Nanoseconds of each request, and the share of a core at 10^9 bytes per second in percent.
fn by_us(area: &Area, block_bytes: usize, direction: Direction, live: &Live) -> Result<(f64, f64)> {
    let pattern = Pattern { order: Order::Random, direction, block_bytes };
    let time = Some(Duration::from_secs(SECONDS));
    let job = Job { engine: IoEngine::Psync, time, ..Job::new(pattern) };
    let began = cpu_seconds();
    let done = run_job(&job, area, live).map_err(|error| error.to_string())?;
    let cpu_s = cpu_seconds() - began;
    let each = cpu_s / done.requests.max(1) as f64 * 1e9;
    Ok((each, cpu_s / done.bytes().max(1) as f64 * 1e11))
}

fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// The same of fio; none where it is not there or fails.
fn by_fio(file: Option<&Path>, block_bytes: usize, direction: Direction) -> Option<(f64, f64)> {
    let way = if direction == Direction::Read { "randread" } else { "randwrite" };
    let mut command = Command::new("fio");
    command.args(["--name=cost", "--thread", "--norandommap", "--invalidate=0", "--time_based"]);
    command.arg("--output-format=json+").arg(format!("--runtime={SECONDS}"));
    command.arg(format!("--size={FILE_BYTES}")).arg(format!("--bs={block_bytes}"));
    command.arg(format!("--rw={way}"));
    match file {
        Some(file) => command.arg("--ioengine=psync").arg("--filename").arg(file),
        None => command.arg("--ioengine=null"),
    };
    let output = command.output().ok().filter(|output| output.status.success())?;
    let results = import_fio(&[&String::from_utf8_lossy(&output.stdout)]).ok()?;
    let run = results.variants.first()?.runs.first()?;
    let bytes = (run.measured.read_bytes + run.measured.written_bytes) as f64;
    Some((run.cpu_s / run.measured.operations as f64 * 1e9, run.cpu_s / bytes * 1e11))
}
