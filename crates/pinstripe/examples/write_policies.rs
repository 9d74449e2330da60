//! Measures how fast one file is written: by every policy, both engines, several depths and sizes.
//!
//! `write_policies DIRECTORY [TOTAL] [RUNS] [SIZES] [POLICIES] [sized]`, as in
//! `write_policies /mnt/disk 2G 3 64K,1M,4M direct,buffered`. Each run writes a fresh file of
//! incompressible bytes and ends with a sync; the median of the runs counts. With `sized` the file
//! is given its length beforehand. Processor time is that of this process, in which the kernel's
//! own writing back of the page cache is not counted.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pinstripe_base::error::Result;
use pinstripe_base::units::parse_size;
use pinstripe_io::device::{
    Access, BufferPool, Device, Engine, Fallback, FileDevice, PatternDevice, Policy, Ring,
};
use pinstripe_io::write_queue::{WriteQueue, WriteQueueSettings};

const DEPTHS: [usize; 3] = [1, 4, 8];

/// What is written.
struct Job {
    path: PathBuf,
    total: u64,
    size: usize,
    is_sized: bool,
}

/// What one run took.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    processor_seconds: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).map_or(default, |it| it).to_owned();
    let directory = PathBuf::from(arg(0, "."));
    let total = parse_size(&arg(1, "2G"))?;
    let runs = parse_size(&arg(2, "3"))?.max(1);
    let sizes = arg(3, "64K,1M,4M");
    let sizes = sizes.split(',').map(parse_size).collect::<Result<Vec<_>>>()?;
    let every = Policy::ALL.map(|(_, name)| name).join(",");
    let policies = arg(4, &every);
    let policies = policies.split(',').map(str::parse).collect::<Result<Vec<Policy>>>()?;
    let engines: &[Engine] = match Ring::new(1) {
        Ok(_) => &[Engine::Threads, Engine::Uring],
        Err(error) => {
            println!("{error}");
            &[Engine::Threads]
        }
    };

    println!("| write | policy | engine | depth | MB/s | CPU-s/GB | slowest, fastest MB/s |");
    println!("|---:|---|---|---:|---:|---:|---|");
    for &size in &sizes {
        for &policy in &policies {
            for &engine in engines {
                for depth in DEPTHS {
                    let settings = WriteQueueSettings { engine, depth, queued: depth };
                    let job = Job {
                        path: directory.join("write_policies.bin"),
                        total: total / size * size,
                        size: size as usize,
                        is_sized: arg(5, "") == "sized",
                    };
                    row(&job, policy, settings, runs)?;
                }
            }
        }
    }
    Ok(())
}

fn row(job: &Job, policy: Policy, settings: WriteQueueSettings, runs: u64) -> Result<()> {
    let mut fallback = None;
    let mut costs = Vec::new();
    for _ in 0..runs {
        costs.push(run(job, policy, settings, &mut fallback)?);
        // A file that is left is in nobody's way but the next run's, which says so.
        let _ = std::fs::remove_file(&job.path);
    }
    costs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let rate = |cost: &Cost| job.total as f64 / 1e6 / cost.seconds;
    let median = costs[costs.len() / 2];
    let WriteQueueSettings { engine, depth, .. } = settings;
    println!(
        "| {} KiB | {policy} | {engine} | {depth} | {:.0} | {:.2} | {:.0}, {:.0} |",
        job.size >> 10,
        rate(&median),
        median.processor_seconds / (job.total as f64 / 1e9),
        rate(&costs[costs.len() - 1]),
        rate(&costs[0]),
    );
    if let Some(fallback) = fallback {
        println!("{fallback}");
    }
    Ok(())
}

fn run(
    job: &Job,
    policy: Policy,
    settings: WriteQueueSettings,
    fallback: &mut Option<Fallback>,
) -> Result<Cost> {
    let &Job { ref path, total, size, is_sized } = job;
    let pool = BufferPool::new(2 * settings.depth + 2, size);
    // Filled beforehand: this measures writing.
    let mut filled: Vec<_> = (0..pool.free()).map(|_| pool.take()).collect();
    for (number, buf) in filled.iter_mut().enumerate() {
        buf.set_len(size);
        PatternDevice::fill(1, (number * size) as u64, buf);
    }
    drop(filled);
    let device = Arc::new(FileDevice::open(path, Access::CreateNew, policy)?);
    if is_sized {
        device.set_len(total)?;
    }
    let (begin, processor_begin) = (Instant::now(), processor_seconds());
    std::thread::scope(|scope| {
        let queue = WriteQueue::start(scope, Arc::clone(&device), settings, drop);
        for offset in (0..total).step_by(size) {
            let mut buf = pool.take();
            buf.set_len(size);
            queue.write(offset, buf)?;
        }
        queue.finish()
    })?;
    let cost = Cost {
        seconds: begin.elapsed().as_secs_f64(),
        processor_seconds: processor_seconds() - processor_begin,
    };
    *fallback = device.fallback().cloned();
    Ok(cost)
}

/// User and system time of this process so far.
fn processor_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
