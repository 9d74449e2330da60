//! The guard on texts as kernels write them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::reading::{DiskTransfer, Pressure};
use super::*;

/// As Linux 6.18 has them.
fn record(root: &Path, busy: u64, steal: u64, io_us: u64, memory_us: u64, read: u64, written: u64) {
    let put = |name: &str, text: String| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("proc/loadavg", "1.25 0.80 0.40 2/345 6789\n".to_owned());
    let idle = 100_000 - busy - steal;
    let line = format!("cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
    put("proc/stat", line);
    let psi = |us: u64| {
        format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total={}\n",
            us / 2
        )
    };
    put("proc/pressure/cpu", psi(7));
    put("proc/pressure/io", psi(io_us));
    put("proc/pressure/memory", psi(memory_us));
    let disks = format!(
        " 254       0 vda 45 0 {read} 7 90 0 {written} 8 0 1 2 0 0 0 0 0 0\n \
         254       1 vda1 1 0 8 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    put("proc/diskstats", disks);
    put("proc/meminfo", "MemTotal: 99 kB\nDirty:   24 kB\nWriteback:  8 kB\n".to_owned());
    put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n".to_owned());
}

fn guard(root: &Path) -> Guard {
    Guard { root: root.to_path_buf(), ..Guard::new(Some((254, 0)), Limits::default()) }
}

#[test]
fn counters_are_read_as_the_kernel_writes_them() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 40_000, 10, 1234, 99, 16, 32);
    let reading = guard(root.path()).read();
    assert_eq!(reading.load, Some(1.25));
    assert_eq!(reading.ticks, Some((100_000, 40_000, 10)));
    assert_eq!(reading.io_pressure, Some(Pressure { some_us: 1234, full_us: 617 }));
    assert_eq!(reading.transfer, Some(DiskTransfer { read_bytes: 8192, written_bytes: 16_384 }));
    assert_eq!((reading.dirty_bytes, reading.writeback_bytes), (Some(24_576), Some(8192)));
    assert_eq!(reading.throttles, Some(3));
}

#[test]
fn a_kernel_that_counts_nothing_disturbs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let guard = guard(root.path());
    let (before, after) = (guard.read(), guard.read());
    assert_eq!(before.ticks, None);
    assert_eq!(guard.judge(&before, &after, OwnUsage::default()), []);
    assert_eq!(guard.wait_for_quiet(Duration::ZERO), []);
}

/// The findings in a run of one second on ten processors, of which 1 ms of waiting is a share of
/// 0.001.
fn found(change: impl Fn(&mut Reading), own: OwnUsage) -> Vec<String> {
    found_by(change, |guard, before, after| guard.judge(before, after, own))
}

/// The same, as `judge` sees the readings before and after that second.
fn found_by(
    change: impl Fn(&mut Reading),
    judge: impl Fn(&Guard, &Reading, &Reading) -> Vec<Disturbance>,
) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 0, 0, 0, 0, 0, 0);
    let guard = guard(root.path());
    let before = guard.read();
    let mut after = before.clone();
    after.at += Duration::from_secs(1);
    after.ticks = Some((101_000, 0, 0));
    change(&mut after);
    judge(&guard, &before, &after).into_iter().map(|it| it.kind).collect()
}

#[test]
fn each_limit_is_kept_by_what_is_ours_and_broken_by_what_is_others() {
    let own = OwnUsage { cpu_s: 5.0, read_bytes: 100 << 20, written_bytes: 100 << 20, syncs: 10 };
    let quiet = |after: &mut Reading| {
        after.ticks = Some((101_000, 600, 10));
        after.memory_pressure = Some(Pressure { some_us: 50_000, full_us: 0 });
        after.transfer = Some(DiskTransfer { read_bytes: 110 << 20, written_bytes: 118 << 20 });
    };
    assert_eq!(found(quiet, own), [] as [&str; 0]);
    assert_eq!(found(|it| it.ticks = Some((101_000, 750, 0)), own), ["others_cpu"]);
    assert_eq!(found(|it| it.ticks = Some((101_000, 0, 30)), own), ["steal"]);
    let memory = Some(Pressure { some_us: 200_000, full_us: 0 });
    assert_eq!(found(|it| it.memory_pressure = memory, own), ["memory"]);
    assert_eq!(found(|it| it.throttles = Some(4), own), ["throttled"]);
    let moved = |read: u64, written: u64| {
        Some(DiskTransfer { read_bytes: read << 20, written_bytes: written << 20 })
    };
    assert_eq!(found(|it| it.transfer = moved(130, 0), own), ["others_read"]);
    assert_eq!(found(|it| it.transfer = moved(0, 130), own), ["others_wrote"]);
    // A block or two in a run of a millisecond count for no process.
    let brief = |blocks: u64| {
        move |it: &mut Reading| {
            it.at -= Duration::from_millis(999);
            it.transfer = Some(DiskTransfer { read_bytes: 0, written_bytes: blocks * 4096 });
        }
    };
    assert_eq!(found(brief(100), OwnUsage { cpu_s: 5.0, ..OwnUsage::default() }), [] as [&str; 0]);
    assert_eq!(
        found(brief(1000), OwnUsage { cpu_s: 5.0, ..OwnUsage::default() }),
        ["others_wrote"]
    );
    // Journals of many syncs are no others.
    let syncing = OwnUsage { syncs: 1000, ..own };
    assert_eq!(found(|it| it.transfer = moved(0, 130), syncing), [] as [&str; 0]);
}

#[test]
fn a_busy_machine_is_seen_before_the_run() {
    let busy = |after: &mut Reading| {
        after.ticks = Some((101_000, 400, 0));
        after.io_pressure = Some(Pressure { some_us: 500_000, full_us: 0 });
        after.cpu_pressure = Some(Pressure { some_us: 300_000, full_us: 0 });
    };
    let kinds = found_by(busy, |guard, before, after| guard.judge_idle(before, after));
    assert_eq!(kinds, ["busy", "cpu_busy", "disk_busy"]);
}

#[test]
fn niced_work_counts_for_a_quarter() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 0, 0, 0, 0, 0, 0);
    let line = "cpu  100 400 0 500 0 0 0 0 0 0\n";
    fs::write(root.path().join("proc/stat"), line).unwrap();
    assert_eq!(guard(root.path()).read().ticks, Some((1000, 200, 0)));
}
