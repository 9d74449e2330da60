use super::*;
use crate::device::{MemoryDevice, PatternDevice, conformance};
use std::collections::BTreeSet;

fn device(stop_at_step: u64) -> CutDevice<MemoryDevice> {
    CutDevice::new(MemoryDevice::new("cut"), Arc::new(Power::new(stop_at_step)))
}

#[test]
fn with_power_it_is_the_inner_device() {
    conformance::run(&|| Box::new(device(u64::MAX)));
    let disk = || CutDevice::new(PatternDevice::new("disk", 7, 1 << 20), Arc::new(Power::new(9)));
    conformance::run_bounds(&|| Box::new(disk()));
}

#[test]
fn no_step_is_made_without_power() {
    let device = device(3);
    device.write_at(0, b"one").unwrap();
    device.sync().unwrap();
    assert!(!device.power.is_off());
    device.write_at(3, b"two").unwrap();
    assert!(device.power.is_off());
    assert_eq!(
        device.write_at(6, b"three").unwrap_err().what(),
        "simulated fault: the power is off"
    );
    for refused in [device.sync(), device.set_len(0), device.discard(0..3)] {
        assert_eq!(refused.unwrap_err().kind(), Kind::Io);
    }
    assert_eq!(device.power.steps_done(), 3);
    assert_eq!(device.inner().to_vec(), b"one");
}

/// The content of a disk of 8 sectors of ones after sectors 1 to 7 were written with twos and 3 to
/// 5 with threes, unsynced.
fn after(seed: u64) -> Vec<u8> {
    let device = device(u64::MAX);
    device.write_at(0, &[1; 8 * 512]).unwrap();
    device.sync().unwrap();
    device.write_at(512, &[2; 6 * 512]).unwrap();
    device.write_at(3 * 512, &[3; 2 * 512]).unwrap();
    device.after_power_cut(seed).unwrap();
    let left = device.inner().to_vec();
    let mut read = vec![0; left.len()];
    device.read_at(0, &mut read).unwrap();
    assert_eq!(read, left);
    left
}

#[test]
fn synced_bytes_survive_and_any_sectors_of_the_others_may() {
    let mut found = BTreeSet::new();
    for seed in 0..400 {
        let left = after(seed);
        let sectors: Vec<u8> = left.chunks(512).map(|sector| sector[0]).collect();
        assert!(left.chunks(512).all(|it| it.iter().all(|byte| *byte == it[0])), "torn within");
        assert_eq!((sectors[0], sectors[7]), (1, 1));
        for (sector, found) in sectors.iter().enumerate() {
            let may = if (3..5).contains(&sector) { 1..=3 } else { 1..=2 };
            assert!(may.contains(found), "{sectors:?}");
        }
        found.insert(sectors);
    }
    for wanted in [
        [1, 1, 1, 1, 1, 1, 1, 1], // Nothing.
        [1, 2, 2, 3, 3, 2, 2, 1], // All.
        [1, 1, 1, 3, 3, 1, 1, 1], // The later one only.
        [1, 2, 2, 2, 2, 2, 2, 1], // The earlier one only.
        [1, 2, 2, 1, 1, 1, 1, 1], // Torn.
    ] {
        assert!(found.contains(&wanted[..]), "{wanted:?} never happened");
    }
    assert_eq!(after(7), after(7), "the same seed, the same loss");
}

#[test]
fn lengths_and_zeros_may_be_lost_too() {
    let (mut lens, mut firsts) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..100 {
        let device = device(u64::MAX);
        device.write_at(0, &[1; 200]).unwrap();
        device.sync().unwrap();
        device.set_len(50).unwrap();
        device.write_at(1000, &[2; 1024]).unwrap();
        device.discard(0..50).unwrap();
        device.after_power_cut(seed).unwrap();
        let left = device.inner().to_vec();
        assert!(left[..50].iter().all(|byte| *byte == left[0]));
        firsts.insert(left[0]);
        lens.insert(left.len());
    }
    assert!(firsts.into_iter().eq([0, 1]));
    assert!([50, 200, 1024, 1536, 2024].iter().all(|len| lens.contains(len)), "{lens:?}");
}

#[test]
fn parts_of_a_write_end_at_sectors() {
    let mut dice = Dice::new(1);
    assert!(sectors_kept(700, 100, 0, &mut dice).into_iter().eq(std::iter::once(0..100)));
    for _ in 0..100 {
        for part in sectors_kept(700, 2000, 3, &mut dice) {
            assert!(part.start == 0 || (700 + part.start).is_multiple_of(512));
            assert!(part.end == 2000 || (700 + part.end).is_multiple_of(512));
            assert!(!part.is_empty());
        }
    }
}
