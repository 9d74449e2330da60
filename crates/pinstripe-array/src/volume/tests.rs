//! Running arrays on devices in memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::engine::{AssembleOptions, CreateOptions, assemble, create};
use crate::format::superblock::Consistency;
use crate::geometry::{Layout, Level};
use crate::traffic::{MemberArea, MemberTraffic};
use pinstripe_base::units::{KIB, MIB};
use pinstripe_io::device::{Device, MemoryDevice, SharedDevice, Sparse, conformance};
use pinstripe_io::fault::{FaultyDevice, Plan};

const MEMBER_BYTES: u64 = 4 * MIB;

fn create_options(level: Level) -> CreateOptions {
    CreateOptions {
        name: "test".to_owned(),
        level,
        layout: Layout::default_of(level),
        chunk_bytes: 16 * KIB,
        log_bytes: 512 * KIB,
        consistency: Consistency::Log,
        now_seconds: 0,
    }
}

fn disks(count: usize) -> Vec<SharedDevice> {
    let disk = |n: usize| {
        let disk = MemoryDevice::with_limit(format!("disk{n}"), MEMBER_BYTES);
        disk.set_len(MEMBER_BYTES).unwrap();
        Arc::new(disk) as SharedDevice
    };
    (0..count).map(disk).collect()
}

fn faulty(disks: &[SharedDevice], plan: &str) -> Vec<SharedDevice> {
    let plan: Plan = plan.parse().unwrap();
    let faulty = |disk: &SharedDevice| -> SharedDevice {
        Arc::new(FaultyDevice::new(Arc::clone(disk), plan.clone()))
    };
    disks.iter().map(faulty).collect()
}

fn start(disks: &[SharedDevice], change: impl FnOnce(&mut VolumeSettings)) -> Volume {
    let flusher = create(&create_options(Level::Raid5), disks.to_vec()).unwrap();
    let mut settings = VolumeSettings::default();
    change(&mut settings);
    Volume::start(flusher, settings).unwrap()
}

/// Settings with which rows are written only by a sync.
fn lazy(settings: &mut VolumeSettings) {
    settings.deadline = std::time::Duration::MAX;
}

fn read(volume: &Volume, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    volume.read_at(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn it_keeps_the_rules_of_the_seam() {
    let fresh = || Box::new(start(&disks(4), |_| {}));
    conformance::run(&|| fresh());
    conformance::run_sparse(&|| fresh());
}

#[test]
fn what_was_written_is_there_after_a_stop() {
    let disks = disks(4);
    let volume = start(&disks, lazy);
    volume.write_at(100_000, &[7; 300_000]).unwrap();
    volume.stop().unwrap();
    assert!(volume.write_at(0, b"late").is_err() && volume.sync().is_err());
    assert_eq!(volume.stop().unwrap_err().kind(), Kind::Usage);
    let flusher = assemble(disks, &AssembleOptions::default()).unwrap().flusher;
    let mut found = vec![0; 300_000];
    flusher.array().read(100_000, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn rows_that_are_full_or_old_are_written_and_others_gather() {
    let volume = start(&disks(4), lazy);
    let row = volume.array().geometry().row_bytes();
    volume.write_at(0, &vec![1; row as usize]).unwrap();
    while volume.array().dirty_bytes() > 0 {
        std::thread::yield_now();
    }
    volume.write_at(row, &[2; 4096]).unwrap();
    volume.with(|_| ());
    assert_eq!(volume.array().dirty_bytes(), 4096);
    volume.set(|settings| settings.deadline = std::time::Duration::from_millis(1)).unwrap();
    volume.wait_idle().unwrap();
    assert_eq!(volume.array().dirty_bytes(), 0);
    assert_eq!(read(&volume, row, 4096), [2; 4096]);
}

#[test]
fn writers_wait_at_the_limit_and_get_through() {
    let volume = start(&disks(4), |settings| {
        lazy(settings);
        settings.cache_bytes = 64 * KIB;
    });
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (volume, most) = (&volume, &most);
            scope.spawn(move || {
                for n in 0..100 {
                    let at = (thread * 100 + n) * 20_480;
                    volume.write_at(at, &[thread as u8 + 1; 4096]).unwrap();
                    most.fetch_max(volume.array().dirty_bytes() as usize, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(most.into_inner() <= (64 << 10) + 3 * 4096);
    for thread in 0..3 {
        assert_eq!(read(&volume, (thread * 100 + 99) * 20_480, 4096), [thread as u8 + 1; 4096]);
    }
}

#[test]
fn a_sync_returns_while_others_go_on_writing() {
    let volume = start(&disks(4), |_| {});
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                volume.write_at(n % 500 * 4096, &[n as u8; 4096]).unwrap();
                n += 1;
            }
        });
        let syncs: Vec<_> =
            (0..2).map(|_| scope.spawn(|| (0..5).map(|_| volume.sync()).collect())).collect();
        for sync in syncs {
            let all: Vec<Result<()>> = sync.join().unwrap();
            all.into_iter().for_each(Result::unwrap);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Writers at the limit and callers of sync get the error, and none of them hangs.
#[test]
fn an_array_that_lost_too_much_tells_everybody() {
    let disks = disks(4);
    create(&create_options(Level::Raid5), disks.clone()).unwrap().stop().unwrap();
    let mut some = faulty(&disks, "op=write,after=30,error=EIO");
    some.truncate(2);
    some.extend_from_slice(&disks[2..]);
    let volume = Volume::start(
        assemble(some, &AssembleOptions::default()).unwrap().flusher,
        VolumeSettings { cache_bytes: 64 * KIB, ..VolumeSettings::default() },
    );
    let volume = volume.unwrap();
    let failed = (0..3000).find_map(|n| volume.write_at(n % 500 * 4096, &[1; 4096]).err());
    assert_eq!(failed.expect("it fails").kind(), Kind::TooManyLosses);
    assert_eq!(volume.sync().unwrap_err().kind(), Kind::TooManyLosses);
    assert_eq!(volume.wait_idle().unwrap_err().kind(), Kind::TooManyLosses);
    assert_eq!(volume.error().unwrap().kind(), Kind::TooManyLosses);
    assert_eq!(volume.stop().unwrap_err().kind(), Kind::TooManyLosses);
}

#[test]
fn guests_have_the_flusher_between_batches() {
    let volume = start(&disks(4), |_| {});
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..2000).for_each(|n| volume.write_at(n % 700 * 4096, &[3; 4096]).unwrap());
        });
        while !writer.is_finished() {
            volume.with(|flusher| flusher.checkpoint()).unwrap();
        }
    });
    volume.sync().unwrap();
    assert_eq!(volume.array().dirty_bytes(), 0);
}

#[test]
fn what_was_never_written_is_a_hole_and_zeros_keep_it_so() {
    let volume = start(&disks(4), lazy);
    let capacity = volume.array().geometry().capacity();
    volume.write_at(200_000, &[9; 100]).unwrap();
    for is_synced in [false, true] {
        let run = volume.run(0..capacity).unwrap();
        assert!(run.is_hole && run.bytes <= 200_000, "{run:?}");
        assert!(!volume.run(200_050..capacity).unwrap().is_hole, "synced: {is_synced}");
        volume.sync().unwrap();
    }
    volume.zero(0..capacity, pinstripe_io::device::Space::Free).unwrap();
    volume.sync().unwrap();
    assert_eq!(read(&volume, 199_990, 120), [0; 120]);
    assert!(volume.run(400_000..capacity).unwrap().is_hole);
}

#[test]
fn impossible_settings_are_refused() {
    let volume = start(&disks(4), |_| {});
    let before = volume.settings();
    assert!(volume.set(|settings| settings.cache_bytes = 1).is_err());
    assert!(volume.set(|settings| settings.speed_limit_min = 0).is_err());
    assert!(volume.set(|settings| settings.speed_limit_max = 1).is_err());
    assert_eq!(volume.settings(), before);
}

/// Bytes of data that all members read and wrote.
fn moved(volume: &Volume) -> [u64; 2] {
    let members = volume.counters().members;
    let sum = |of: fn(&MemberTraffic) -> u64| members.iter().flatten().map(of).sum();
    [
        sum(|it| it.read_bytes[MemberArea::Data as usize]),
        sum(|it| it.written_bytes[MemberArea::Data as usize]),
    ]
}

#[test]
fn counters_say_what_moved() {
    let volume = start(&disks(4), lazy);
    let row = volume.array().geometry().row_bytes();
    volume.write_at(0, &vec![1; row as usize]).unwrap();
    volume.sync().unwrap();
    assert_eq!(moved(&volume), [0, row / 3 * 4]);
    assert_eq!(volume.counters().pieces.full, 1);
    volume.write_at(8192, &[2; 4096]).unwrap();
    volume.sync().unwrap();
    let counters = volume.counters();
    assert_eq!(moved(&volume), [8192, row / 3 * 4 + 8192]);
    // Of three data chunks the two others are as few as this one and parity.
    assert_eq!(counters.pieces.reconstruct_write, 1);
    assert_eq!((counters.writes, counters.written_bytes, counters.syncs), (2, row + 4096, 2));
    assert!(counters.members.iter().flatten().all(|it| it.syncs.count > 0));
    read(&volume, 0, 4096);
    assert_eq!((volume.counters().reads, volume.counters().read_bytes), (1, 4096));
    assert_eq!(moved(&volume)[0], 8192 + 4096);
}

#[test]
fn a_member_is_rebuilt_while_others_write() {
    let (old, new) = (disks(4), disks(1));
    let volume = start(&old, |_| {});
    let piece: Vec<u8> = (0..300_000u32).map(|at| (at >> 7) as u8).collect();
    volume.write_at(0, &piece).unwrap();
    volume.with(|flusher| flusher.fail(1)).unwrap();
    volume.with(|flusher| flusher.remove(1)).unwrap();
    volume.with(|flusher| flusher.add(Arc::clone(&new[0]))).unwrap();
    volume.write_at(200_000, &piece).unwrap();
    volume.wait_idle().unwrap();
    assert!(volume.array().absent().is_empty());
    volume.stop().unwrap();
    // Without another one the new member has to have it all.
    let devices = [&new[0], &old[0], &old[3]].map(Arc::clone).to_vec();
    let flusher = assemble(devices, &AssembleOptions::default()).unwrap().flusher;
    let mut found = vec![0; 500_000];
    flusher.array().read(0, &mut found).unwrap();
    assert!(found[..200_000] == piece[..200_000] && found[200_000..] == piece);
}

/// Long reads go to members side by side, and come back in order.
#[test]
fn long_reads_are_put_together() {
    let volume = start(&disks(4), |_| {});
    let all: Vec<u8> = (0..2 << 20u32).map(|at: u32| (at >> 9) as u8).collect();
    volume.write_at(5000, &all).unwrap();
    assert!(read(&volume, 5000, all.len()) == all);
    volume.sync().unwrap();
    assert!(read(&volume, 5000, all.len()) == all);
}

/// A block that a read finds damaged is healed without any request.
#[test]
fn what_is_read_as_damaged_is_healed() {
    let disks = disks(4);
    let volume = start(&disks, |_| {});
    volume.write_at(0, &[5; 100_000]).unwrap();
    volume.sync().unwrap();
    let data_at = volume.array().superblock().areas.data_at;
    disks[0].write_at(data_at + 100, b"damaged").unwrap();
    assert_eq!(read(&volume, 0, 100_000), [5; 100_000]);
    volume.wait_idle().unwrap();
    let mut found = [0; 7];
    disks[0].read_at(data_at + 100, &mut found).unwrap();
    assert_eq!(found, [5; 7]);
}

/// It waits for no interval, and for no other call.
#[test]
fn a_read_that_finds_damage_wakes_the_flusher() {
    let disks = disks(4);
    let volume = start(&disks, lazy);
    volume.write_at(0, &[5; 100_000]).unwrap();
    volume.sync().unwrap();
    volume.wait_idle().unwrap();
    let data_at = volume.array().superblock().areas.data_at;
    disks[0].write_at(data_at + 100, b"damaged").unwrap();
    assert_eq!(read(&volume, 0, 100_000), [5; 100_000]);
    let healed =
        || volume.array().status().slots.iter().map(|slot| slot.errors.healed).sum::<u64>();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while healed() == 0 {
        assert!(std::time::Instant::now() < until, "nothing was healed");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_granule_widens_and_is_changed_while_it_runs() {
    let volume = start(&disks(4), lazy);
    let row = volume.array().geometry().row_bytes();
    volume.write_at(0, &vec![1; 2 * row as usize]).unwrap();
    volume.sync().unwrap();
    for (granule, wanted) in [(Some(8 << 10), 8 << 10), (None, 4 << 10), (Some(1 << 20), 16 << 10)]
    {
        volume.with(|flusher| flusher.rules.granule = granule);
        let [_, before] = moved(&volume);
        volume.write_at(row + 4096, &[2; 4096]).unwrap();
        volume.sync().unwrap();
        // Of the data chunk and of parity.
        assert_eq!(moved(&volume)[1] - before, 2 * wanted, "{granule:?}");
    }
    assert_eq!(read(&volume, row, 12288)[4096..8192], [2; 4096]);
}

/// Two blocks of one column are lost; a part of one of them is written.
#[test]
fn what_cannot_be_stored_is_told_to_who_syncs_and_ends_nothing() {
    let disks = disks(4);
    let volume = start(&disks, lazy);
    volume.write_at(0, &[5; 100_000]).unwrap();
    volume.sync().unwrap();
    let data_at = volume.array().superblock().areas.data_at;
    let map = volume.array().geometry().map(0);
    for shard in [0, 1] {
        disks[map.member(shard)].write_at(data_at + 100, b"damaged").unwrap();
    }
    volume.write_at(50, b"a part").unwrap();
    volume.write_at(60_000, b"elsewhere").unwrap();
    assert_eq!(volume.sync().unwrap_err().kind(), Kind::Corrupt);
    volume.sync().unwrap();
    assert_eq!(read(&volume, 60_000, 9), b"elsewhere");
    assert!(volume.read_at(0, &mut [0; 4096]).is_err());
    volume.write_at(0, &[6; 4096]).unwrap();
    volume.sync().unwrap();
    assert_eq!(read(&volume, 0, 4096), [6; 4096]);
    volume.stop().unwrap();
}
