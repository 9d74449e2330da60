//! Writes of 1 MiB by NBD, compared with another server and with the disk itself: rate, latency and
//! the server's processor time.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pinstripe_array::Level;
use pinstripe_base::units::MIB;
use pinstripe_io::device::Device;
use pinstripe_lab::Table;
use pinstripe_stats::Summary;

use super::Settings;
use super::nbd::{Fio, Served, with_nbdkit, with_server};
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// Bytes that a RAID 5 of four writes for each of the user.
const WRITTEN: f64 = 4.0 / 3.0;
/// Share of what a disk or the other server gives.
const SHARE: f64 = 0.8;
const P99_MS: f64 = 40.0;
/// Processor time relative to the other server's.
const CPU_TIMES: f64 = 1.5;

pub fn measure(settings: &Settings) -> Result<Table> {
    fs::create_dir_all(&settings.bench.work).map_err(|error| error.to_string())?;
    fs::create_dir_all(&settings.shm).map_err(|error| error.to_string())?;
    let mut found: [Vec<Served>; 4] = Default::default();
    for place in ["disk", "shm"] {
        let volume = Arc::new(start(devices(settings, place, MEMBERS)?, Level::Raid5)?);
        let capacity = volume.len().map_err(text)?;
        with_server(settings, &volume, |socket| {
            for _ in 0..settings.bench.rounds {
                let [ours, theirs] = if place == "disk" { [0, 1] } else { [2, 3] };
                found[ours].push(Fio::writes(settings, socket, capacity).run_beside_us()?);
                found[theirs].push(match place {
                    "disk" => direct(settings, capacity)?,
                    _ => with_nbdkit(settings, capacity, |socket, server| {
                        // On the first write of a block, the other server allocates memory.
                        Fio::writes(settings, socket, capacity).once().run()?;
                        Fio::writes(settings, socket, capacity).run_beside(server)
                    })?,
                });
            }
            Ok(())
        })?;
        volume.stop().map_err(text)?;
    }
    Ok(table(settings, &found))
}

/// The disk without us: one file, past the page cache.
fn direct(settings: &Settings, bytes: u64) -> Result<Served> {
    let path = settings.bench.work.join("direct");
    let fio = Fio::writes(settings, Path::new(""), bytes.min(1024 * MIB)).against_file(&path);
    let found = fio.run();
    let _ = fs::remove_file(&path);
    found
}

fn table(settings: &Settings, [disk, direct, shm, nbdkit]: &[Vec<Served>; 4]) -> Table {
    let note = format!(
        "RAID 5 of {MEMBERS} members of {} MiB, all of it written before; fio's engine nbd on a unix socket, 8 writes of \
         1 MiB in flight in order, 5 s; client and server share the machine. In each round one after the other: the \
         array on the disk and fio past the page cache on one file of that disk; the array on tmpfs and nbdkit's \
         memory plugin. Processor time is that of the server, for each MiB.",
        settings.member_bytes >> 20
    );
    let mut table = figures("1 MiB writes by NBD", note);
    let sets = [
        ("disk, pinstripe", disk, Target::AtMost(P99_MS)),
        ("disk, fio past the page cache", direct, Target::None),
        ("tmpfs, pinstripe", shm, Target::AtMost(P99_MS)),
        ("nbdkit memory", nbdkit, Target::None),
    ];
    for (what, runs, p99) in sets {
        let mut row = |measure: &str, of: fn(&Served) -> f64, decimals, target| {
            let samples: Vec<f64> = runs.iter().map(of).collect();
            figure_row(&mut table, &format!("{what}: {measure}"), &samples, decimals, target);
        };
        row("MB/s", |run| run.mb_per_s, 0, Target::None);
        row("p50, ms", |run| run.millis[0], 2, Target::None);
        row("p99, ms", |run| run.millis[1], 2, p99);
        row("p99.9, ms", |run| run.millis[2], 2, Target::None);
        if runs.iter().any(|run| run.cpu_us_per_mib > 0.0) {
            row("CPU, us", |run| run.cpu_us_per_mib, 0, Target::None);
        }
    }
    let mut share = |what: &str, ours: &[Served], theirs: &[Served], times: f64| {
        let of = |(ours, theirs): (&Served, &Served)| ours.mb_per_s * times / theirs.mb_per_s;
        let samples: Vec<f64> = ours.iter().zip(theirs).map(of).collect();
        figure_row(&mut table, what, &samples, 2, Target::AtLeast(SHARE));
    };
    share("disk: share of the file's rate / 1.333", disk, direct, WRITTEN);
    share("tmpfs: share of nbdkit's rate", shm, nbdkit, 1.0);
    let theirs: Vec<f64> = nbdkit.iter().map(|run| run.cpu_us_per_mib).collect();
    let theirs = Summary::from_samples(&theirs).map_or(f64::NAN, |summary| summary.median);
    for (what, runs) in [("disk: CPU beside nbdkit's", disk), ("tmpfs: CPU beside nbdkit's", shm)] {
        let samples: Vec<f64> = runs.iter().map(|run| run.cpu_us_per_mib / theirs).collect();
        figure_row(&mut table, what, &samples, 2, Target::AtMost(CPU_TIMES));
    }
    table
}
