//! Disks that lose writes of their own tables: of a leaf of checksums, of the map of regions.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::filling::{BYTES, check_without_each, used};
use super::*;
use crate::engine::assemble::examine;
use crate::format::superblock::Areas;
use pinstripe_base::error::Error;
use pinstripe_io::device::Device;
use pinstripe_io::forward_device;

/// Something of a disk as it is now.
struct Kept {
    disk: Arc<MemoryDevice>,
    at: u64,
    bytes: Vec<u8>,
}

impl Kept {
    fn of(disk: &Arc<MemoryDevice>, range: Range<u64>) -> Self {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        disk.read_at(range.start, &mut bytes).unwrap();
        Kept { disk: Arc::clone(disk), at: range.start, bytes }
    }

    /// It is that again: what was written since never came.
    fn put_back(&self) {
        self.disk.write_at(self.at, &self.bytes).unwrap();
    }
}

fn table(areas: &Areas) -> Range<u64> {
    areas.sums_at..areas.sums_at + 4096
}

fn map(areas: &Areas) -> Range<u64> {
    areas.regions_at..areas.regions_at + 512
}

fn write_some(disks: &[Arc<MemoryDevice>], model: &mut [u8], dice: &mut Dice) {
    let flusher = assemble(shared(disks)).unwrap();
    (0..30).for_each(|_| write(flusher.array(), model, dice));
    flusher.stop().unwrap();
}

fn repair(flusher: &mut Flusher) {
    flusher.scrub(true).unwrap();
    while flusher.step(1 << 20).unwrap() != Step::Idle {}
}

#[test]
fn a_leaf_whose_write_was_lost_reads_as_an_erasure_not_as_zeros() {
    for (level, count) in redundant() {
        let mut dice = Dice(31 + count as u64);
        let disks = disks(count);
        let mut flusher = create(&create_options(level), shared(&disks)).unwrap();
        let areas = flusher.array().superblock().areas;
        let mut model = vec![0; BYTES];
        write(flusher.array(), &mut model, &mut dice);
        flusher.sync().unwrap();
        flusher.stop().unwrap();
        let kept = Kept::of(&disks[1], table(&areas));
        write_some(&disks, &mut model, &mut dice);
        kept.put_back();

        let mut flusher = assemble(shared(&disks)).unwrap();
        check(flusher.array(), &model, &format!("{level}, with an older leaf"));
        repair(&mut flusher);
        assert!(flusher.array().status().slots[1].errors.healed > 0, "{level}");
        flusher.stop().unwrap();
        check_without_each(&disks, &model, &format!("{level}, mended"));
    }
}

/// The only thing that says so of a block that was written to before is the version: its older
/// checksum suits it.
#[test]
fn a_disk_that_loses_data_and_their_leaf_is_found_out() {
    for (level, count) in redundant() {
        let mut dice = Dice(57 + count as u64);
        let (flusher, disks, mut model) = used(level, count, &mut dice);
        let areas = flusher.array().superblock().areas;
        flusher.stop().unwrap();
        let kept = [table(&areas), areas.data_at..MEMBER_BYTES].map(|it| Kept::of(&disks[0], it));
        write_some(&disks, &mut model, &mut dice);
        kept.iter().for_each(Kept::put_back);
        let flusher = assemble(shared(&disks)).unwrap();
        check(flusher.array(), &model, &format!("{level}, with older data"));
    }
}

#[test]
fn what_nothing_gives_back_is_an_error_and_no_zeros() {
    let mut dice = Dice(5);
    let (flusher, disks, mut model) = used(Level::Raid0, 3, &mut dice);
    let areas = flusher.array().superblock().areas;
    flusher.stop().unwrap();
    let kept = Kept::of(&disks[1], table(&areas));
    write_some(&disks, &mut model, &mut dice);
    kept.put_back();
    let flusher = assemble(shared(&disks)).unwrap();
    let error = flusher.array().read(0, &mut vec![0; BYTES]).unwrap_err();
    assert_eq!(error.kind(), Kind::TooManyLosses);
}

#[test]
fn a_member_that_lost_a_write_of_its_map_is_left_out_and_filled_anew() {
    for ((level, count), is_last_superblock_lost) in
        redundant().flat_map(|it| [(it, false), (it, true)])
    {
        let mut dice = Dice(71 + count as u64);
        let disks = disks(count);
        let flusher = create(&create_options(level), shared(&disks)).unwrap();
        let areas = flusher.array().superblock().areas;
        flusher.stop().unwrap();
        // Which says that nothing was ever written.
        let kept = Kept::of(&disks[1], map(&areas));
        let mut model = vec![0; BYTES];
        write_some(&disks, &mut model, &mut dice);
        kept.put_back();
        if is_last_superblock_lost {
            let device = Arc::clone(&disks[1]) as SharedDevice;
            let place = examine(&device).unwrap().place();
            device.write_at(place, &[0; 4096]).unwrap();
        }

        let Assembly { mut flusher, left_out, absent, was_clean, .. } =
            super::super::assemble(shared(&disks), &AssembleOptions::default()).unwrap();
        assert!(was_clean && absent.has(1) && absent.len() == 1, "{level}: {absent:?}");
        assert!(left_out[0].why.contains("is older than the one that was written last"));
        assert!(left_out[0].why.contains("add the member again"), "{}", left_out[0].why);
        check(flusher.array(), &model, &format!("{level}, without it"));
        assert_eq!(flusher.add(disks[1].clone()).unwrap(), AddedAs::Rebuilding { slot: 1 });
        while flusher.step(1 << 20).unwrap() != Step::Idle {}
        flusher.stop().unwrap();
        check_without_each(&disks, &model, &format!("{level}, filled"));
    }
}

#[test]
fn a_map_that_cannot_be_believed_is_used_only_when_that_is_forced() {
    let mut dice = Dice(17);
    let (flusher, disks, mut model) = used(Level::Raid0, 3, &mut dice);
    let areas = flusher.array().superblock().areas;
    flusher.stop().unwrap();
    let kept = Kept::of(&disks[1], map(&areas));
    write_some(&disks, &mut model, &mut dice);
    kept.put_back();
    let error = assemble(shared(&disks)).err().unwrap();
    assert_eq!(error.kind(), Kind::TooManyLosses);
    let advice = error.advice_text().unwrap();
    assert!(advice.contains("disk1") && advice.contains("--force"), "{advice}");
    let forced =
        super::super::assemble(shared(&disks), &AssembleOptions { force: true }).unwrap().flusher;
    check(forced.array(), &model, "leaves that are ahead of their map");
}

#[test]
fn a_member_with_a_damaged_map_is_left_out_after_a_power_cut_too() {
    let mut dice = Dice(23);
    let (flusher, disks, model) = used(Level::Raid5, 4, &mut dice);
    let areas = flusher.array().superblock().areas;
    drop(flusher);
    disks[2].write_at(areas.regions_at + 9, &[0x77; 3]).unwrap();
    let assembly = super::super::assemble(shared(&disks), &AssembleOptions::default()).unwrap();
    assert!(!assembly.was_clean && assembly.absent.has(2));
    assert!(assembly.left_out[0].why.contains("damaged"), "{:?}", assembly.left_out);
    check(assembly.flusher.array(), &model, "without it");
}

/// The power goes again and again after pages are written and before the map says so.
#[test]
fn leaves_that_are_ahead_of_the_map_are_believed_however_often_that_happens() {
    for (level, count) in LEVELS {
        let mut dice = Dice(3 + count as u64);
        let (flusher, disks, mut model) = used(level, count, &mut dice);
        let areas = flusher.array().superblock().areas;
        flusher.stop().unwrap();
        let maps: Vec<_> = disks.iter().map(|disk| Kept::of(disk, map(&areas))).collect();
        for turn in 0..20 {
            let mut flusher = assemble(shared(&disks)).unwrap();
            check(flusher.array(), &model, &format!("{level}, turn {turn}"));
            (0..4).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.sync().unwrap();
            flusher.checkpoint().unwrap();
            drop(flusher);
            maps.iter().for_each(Kept::put_back);
        }
        write_some(&disks, &mut model, &mut dice);
        check(assemble(shared(&disks)).unwrap().array(), &model, &format!("{level}, stopped"));
    }
}

/// The table of a member with several regions, where the page of one was written over that of
/// another.
#[test]
fn a_page_that_went_astray_is_damage_at_both_places() {
    let disks: Vec<_> = (0..4).map(|n| Arc::new(MemoryDevice::new(format!("large{n}")))).collect();
    disks.iter().for_each(|disk| disk.set_len(20 << 20).unwrap());
    let mut flusher = create(&create_options(Level::Raid5), shared(&disks)).unwrap();
    let (areas, capacity) =
        (flusher.array().superblock().areas, flusher.array().geometry().capacity());
    let at: Vec<u64> = (0..16).map(|n| capacity / 16 * n / 4096 * 4096).collect();
    let write_all = |flusher: &mut Flusher, first: u64, byte: u8| {
        for at in &at {
            flusher.array().write(at + first, &[byte; 4096], Duration::ZERO).unwrap();
        }
        flusher.sync().unwrap();
        flusher.checkpoint().unwrap();
    };
    write_all(&mut flusher, 0, 1);
    let kept = Kept::of(&disks[0], areas.sums_at..areas.sums_at + 4096);
    write_all(&mut flusher, 4096, 2);
    flusher.stop().unwrap();
    let mut page = vec![0; 4096];
    disks[0].read_at(areas.sums_at, &mut page).unwrap();
    disks[0].write_at(areas.sums_at + 3 * 4096, &page).unwrap();
    kept.put_back();

    let mut flusher = assemble(shared(&disks)).unwrap();
    let check_all = |flusher: &Flusher| {
        for at in &at {
            let mut found = vec![0; 8192];
            flusher.array().read(*at, &mut found).unwrap();
            assert_eq!((found[0], found[4095], found[4096], found[8191]), (1, 1, 2, 2), "{at}");
        }
    };
    check_all(&flusher);
    repair(&mut flusher);
    assert!(flusher.array().status().slots[0].errors.healed > 0);
    flusher.fail(2).unwrap();
    check_all(&flusher);
}

/// The power goes at each step of assembling, after a stop in order and after another power cut: no
/// member is left out for it.
#[test]
fn a_power_cut_while_an_array_is_assembled_leaves_no_member_out() {
    for is_clean in [false, true] {
        for steps in 0..60 {
            let mut dice = Dice(99);
            let (mut flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
            (0..3).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.sync().unwrap();
            match is_clean {
                true => flusher.stop().unwrap(),
                false => drop(flusher),
            }
            let power = Arc::new(Power::new(steps));
            let cut = |disk| Arc::new(CutDevice::new(disk, Arc::clone(&power)));
            let cuts: Vec<_> = shared(&disks).into_iter().map(cut).collect();
            let devices = cuts.iter().map(|cut| Arc::clone(cut) as SharedDevice).collect();
            if assemble(devices).is_err() {
                for (n, cut) in cuts.iter().enumerate() {
                    cut.after_power_cut(steps * 31 + n as u64).unwrap();
                }
            }
            let flusher = assemble(shared(&disks)).unwrap();
            let what = format!("in order: {is_clean}, step {steps}");
            assert!(flusher.array().absent().is_empty(), "{what}");
            check(flusher.array(), &model, &what);
        }
    }
}

/// A disk of which a sector cannot be read until it is written.
struct Latent {
    inner: SharedDevice,
    at: u64,
    is_lost: AtomicBool,
}

impl Latent {
    fn touches(&self, offset: u64, bytes: usize) -> bool {
        offset < self.at + 512 && self.at < offset + bytes as u64
    }
}

impl Device for Latent {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.touches(offset, buf.len()) && self.is_lost.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Io, "a sector that cannot be read").at(self.place())),
            false => self.inner.read_at(offset, buf),
        }
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.touches(offset, bytes.len()) {
            self.is_lost.store(false, Ordering::Relaxed);
        }
        self.inner.write_at(offset, bytes)
    }

    forward_device!(inner: long_by_parts len set_len sync discard caps place);
}

#[test]
fn a_leaf_that_cannot_be_read_costs_no_member() {
    for is_written in [false, true] {
        let mut dice = Dice(29);
        let (flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
        let at = flusher.array().superblock().areas.sums_at;
        flusher.stop().unwrap();
        let mut devices = shared(&disks);
        let inner = Arc::clone(&devices[1]);
        devices[1] = Arc::new(Latent { inner, at, is_lost: AtomicBool::new(true) });
        let mut flusher = assemble(devices).unwrap();
        if is_written {
            (0..9).for_each(|_| write(flusher.array(), &mut model, &mut dice));
            flusher.sync().unwrap();
        }
        check(flusher.array(), &model, "with a leaf that cannot be read");
        repair(&mut flusher);
        assert!(flusher.array().absent().is_empty());
        flusher.stop().unwrap();
        check_without_each(&disks, &model, "with the leaf written again");
    }
}

/// A map that lost a write may belong to a member that was away.
#[test]
fn a_member_that_comes_back_with_an_older_map_is_filled() {
    let mut dice = Dice(37);
    let (flusher, disks, mut model) = used(Level::Raid5, 4, &mut dice);
    let areas = flusher.array().superblock().areas;
    flusher.stop().unwrap();
    let kept = Kept::of(&disks[3], map(&areas));
    write_some(&disks, &mut model, &mut dice);
    kept.put_back();
    let mut flusher = assemble(shared(&disks[..3])).unwrap();
    write(flusher.array(), &mut model, &mut dice);
    assert_eq!(flusher.add(disks[3].clone()).unwrap(), AddedAs::Rebuilding { slot: 3 });
    while flusher.step(1 << 20).unwrap() != Step::Idle {}
    flusher.stop().unwrap();
    check_without_each(&disks, &model, "filled");
}
