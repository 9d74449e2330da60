//! Blocks that are not what they should be, and get what the others say.

use std::ops::Range;

use super::filling::{BYTES, check_without_each, used};
use super::*;
use pinstripe_io::device::Device;
use pinstripe_io::forward_device;

/// Flips a bit in every third block of a member's data.
pub(super) fn flip(flusher: &Flusher, disk: &MemoryDevice, slot: usize) -> Vec<u64> {
    let (array, mut flipped) = (flusher.array(), Vec::new());
    let data_at = array.superblock().areas.data_at;
    for block in (0..BYTES as u64 / 4096).step_by(3) {
        let sums = array.member(slot).unwrap().sums(block..block + 1).unwrap();
        if sums[0].is_written() {
            let at = data_at + block * 4096 + 7 * block;
            let mut byte = [0];
            disk.read_at(at, &mut byte).unwrap();
            disk.write_at(at, &[byte[0] ^ 4]).unwrap();
            flipped.push(block * 4096);
        }
    }
    flipped
}

fn read_all(flusher: &Flusher) {
    flusher.array().read(0, &mut vec![0; BYTES]).unwrap();
}

#[test]
fn a_flipped_bit_is_healed() {
    for (level, count) in redundant() {
        let mut dice = Dice(41 + count as u64);
        let (mut flusher, disks, mut model) = used(level, count, &mut dice);
        let flipped = flip(&flusher, &disks[0], 0);
        assert!(flipped.len() > 5);
        assert!(!flusher.array().wants_work());
        read_all(&flusher);
        assert!(flusher.array().wants_work(), "{level}");
        assert_eq!(flusher.step(1 << 20).unwrap(), Step::Idle);
        assert!(!flusher.array().wants_work());
        let errors = flusher.array().status().slots[0].errors;
        assert!(errors.healed > 0 && errors.checksums >= errors.healed, "{level}: {errors:?}");
        (0..20).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        flusher.scrub(true).unwrap();
        while flusher.step(64 << 10).unwrap() != Step::Idle {}
        flusher.sync().unwrap();
        check(flusher.array(), &model, "healed");
        drop(flusher);
        check_without_each(&disks, &model, &format!("{level}, healed"));
    }
}

/// What only a batch reads is healed as well, and each copy of a mirror in its turn.
#[test]
fn what_a_batch_finds_bad_is_healed() {
    for (level, count) in redundant() {
        for slot in 0..count {
            let mut dice = Dice(43 + slot as u64);
            let (mut flusher, disks, mut model) = used(level, count, &mut dice);
            flip(&flusher, &disks[slot], slot);
            // So that parity is read as well.
            flusher.rules.rmw = crate::plan::RmwLevel::FewerOrEqual;
            match level {
                Level::Raid1 | Level::Raid10 => read_all(&flusher),
                _ => {
                    let capacity = flusher.array().geometry().capacity() as usize;
                    for at in (0..BYTES.min(capacity)).step_by(4096) {
                        flusher.array().write(at as u64, &[1], Duration::ZERO).unwrap();
                        model[at] = 1;
                        flusher.flush(Duration::MAX, 9).unwrap();
                    }
                }
            }
            assert!(flusher.array().wants_work(), "{level}, slot {slot}");
            flusher.step(1 << 20).unwrap();
            check(flusher.array(), &model, "healed");
            assert!(!flusher.array().wants_work(), "{level}, slot {slot}");
        }
    }
}

/// The power goes while blocks are healed: all of them are still there.
#[test]
fn a_power_cut_amid_healing_costs_nothing() {
    for (level, count) in redundant() {
        for seed in cut_seeds() {
            let mut dice = Dice(seed * 7 + count as u64);
            let (mut flusher, disks, model) = used(level, count, &mut dice);
            flusher.checkpoint().unwrap();
            flip(&flusher, &disks[1], 1);
            drop(flusher);
            let judge = PowerCut::amid(level, disks, model.clone(), seed, |_, devices| {
                let Ok(mut flusher) = assemble(devices) else { return };
                let mut found = vec![0; BYTES];
                flusher.array().read(0, &mut found).unwrap();
                while flusher.step(1 << 20).is_ok() && flusher.array().wants_work() {}
            });
            let mut flusher = judge.open(None);
            flusher.scrub(true).unwrap();
            while flusher.step(1 << 20).unwrap() != Step::Idle {}
            flusher.stop().unwrap();
            check_without_each(&judge.disks, &model, &judge.what);
        }
    }
}

#[test]
fn a_damaged_leaf_of_the_table_is_made_anew() {
    for (level, count) in redundant() {
        let mut dice = Dice(77 + count as u64);
        let (flusher, disks, model) = used(level, count, &mut dice);
        let sums_at = flusher.array().superblock().areas.sums_at;
        flusher.stop().unwrap();
        disks[1].write_at(sums_at + 40, &[0xaa; 900]).unwrap();
        let mut flusher = assemble(shared(&disks)).unwrap();
        check(flusher.array(), &model, "with a leaf damaged");
        flusher.scrub(true).unwrap();
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        assert!(flusher.array().status().slots[1].errors.healed > 0);
        flusher.scrub(false).unwrap();
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        assert_eq!(flusher.array().status().mismatches, 0);
        flusher.stop().unwrap();
        check_without_each(&disks, &model, &format!("{level}, with its table mended"));
    }
}

/// A disk that can neither read nor write some of its bytes.
struct Worn {
    inner: SharedDevice,
    worn: Range<u64>,
}

impl Worn {
    fn touch(&self, offset: u64, bytes: usize) -> Result<()> {
        match offset < self.worn.end && self.worn.start < offset + bytes as u64 {
            true => Err(pinstripe_base::error::Error::new(Kind::Io, "worn").at(self.place())),
            false => Ok(()),
        }
    }
}

impl Device for Worn {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.touch(offset, buf.len())?;
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.touch(offset, bytes.len())?;
        self.inner.write_at(offset, bytes)
    }

    forward_device!(inner: long_by_parts len set_len sync discard caps place);
}

#[test]
fn what_a_member_does_not_take_is_had_from_the_others() {
    for (blocks, is_kept) in [(3, true), (60, false)] {
        let mut dice = Dice(13);
        let (flusher, disks, model) = used(Level::Raid5, 4, &mut dice);
        let data_at = flusher.array().superblock().areas.data_at;
        flusher.stop().unwrap();
        let mut devices = shared(&disks);
        let worn = data_at..data_at + blocks * 4096;
        devices[2] = Arc::new(Worn { inner: Arc::clone(&devices[2]), worn });
        let mut flusher = assemble(devices).unwrap();
        check(flusher.array(), &model, "worn");
        flusher.scrub(true).unwrap();
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        assert_eq!(!flusher.array().absent().has(2), is_kept);
        let errors = flusher.array().status().slots[2].errors;
        assert!(errors.reads > 0 && errors.bad_blocks > 0, "{errors:?}");
        check(flusher.array(), &model, "still worn");
        assert!(!flusher.array().wants_work(), "it is not tried again and again");
    }
}
