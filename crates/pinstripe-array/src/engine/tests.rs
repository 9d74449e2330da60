//! Arrays on devices in memory, with power cuts and members that fail, held against an array of
//! bytes.

mod assembling;
mod filling;
mod growing;
mod healing;
mod long_writes;
mod losing;
mod older_copies;
mod policies;
mod replacing;
mod replaying;
mod scrubbing;
mod tables;
mod taking_over;

use std::time::Duration;

use super::*;
use crate::format::superblock::Consistency;
use crate::geometry::{Layout, Level};
use pinstripe_base::error::Result;
use pinstripe_io::device::{MemoryDevice, SharedDevice};
use pinstripe_io::fault::{CutDevice, Power};

const CHUNK: u64 = 16 << 10;
const MEMBER_BYTES: u64 = 3 << 20;

/// Seeds of power cuts, for tests that try each with every level.
fn cut_seeds() -> std::ops::Range<u64> {
    pinstripe_testing::chosen_seeds("PINSTRIPE_CUT_SEEDS", 1..8)
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }
}

pub(super) fn create_options(level: Level) -> CreateOptions {
    CreateOptions {
        name: "test".to_owned(),
        level,
        layout: Layout::default_of(level),
        chunk_bytes: CHUNK,
        log_bytes: 512 << 10,
        consistency: Consistency::Log,
        now_seconds: 0,
    }
}

fn assemble(devices: Vec<SharedDevice>) -> Result<Flusher> {
    super::assemble(devices, &AssembleOptions::default()).map(|it| it.flusher)
}

fn disks(count: usize) -> Vec<Arc<MemoryDevice>> {
    let disk = |n: usize| Arc::new(MemoryDevice::with_limit(format!("disk{n}"), MEMBER_BYTES));
    let disks: Vec<_> = (0..count).map(disk).collect();
    // Something stood on them before: nothing of it may ever be seen.
    let before = vec![0xa5; MEMBER_BYTES as usize];
    disks
        .iter()
        .for_each(|disk| pinstripe_io::device::Device::write_at(&**disk, 0, &before).unwrap());
    disks
}

fn shared(disks: &[Arc<MemoryDevice>]) -> Vec<SharedDevice> {
    disks.iter().map(|disk| Arc::clone(disk) as SharedDevice).collect()
}

const LEVELS: [(Level, usize); 6] = [
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

/// Those that can do without a member.
fn redundant() -> impl Iterator<Item = (Level, usize)> {
    LEVELS.into_iter().filter(|(level, _)| *level != Level::Raid0)
}

fn check(array: &Array, model: &[u8], what: &str) {
    let mut found = vec![0; model.len()];
    array.read(0, &mut found).unwrap_or_else(|error| panic!("{what}: {error}"));
    // Compared as a whole first: byte by byte takes most of a test's time.
    if found != model {
        let differs = found.iter().zip(model).position(|(is, wanted)| is != wanted);
        panic!("{what}: the first byte that differs is {differs:?}");
    }
}

fn write(array: &Array, model: &mut [u8], dice: &mut Dice) {
    let at = dice.below(model.len() as u64);
    let len = match dice.below(3) {
        0 => 1 + dice.below(5000),
        1 => 4096,
        _ => dice.below(5 * CHUNK),
    };
    let at = if dice.below(2) == 0 { at / 4096 * 4096 } else { at };
    let len = len.min(model.len() as u64 - at) as usize;
    let first = dice.below(256) as u8;
    let bytes: Vec<u8> = (0..len).map(|n| first.wrapping_add((n >> 6) as u8)).collect();
    array.write(at, &bytes, Duration::ZERO).unwrap();
    model[at as usize..at as usize + len].copy_from_slice(&bytes);
}

#[test]
fn what_is_written_is_read_in_the_cache_on_the_members_and_after_a_stop() {
    for (level, count) in LEVELS {
        let disks = disks(count);
        let mut flusher = create(&create_options(level), shared(&disks)).unwrap();
        let mut dice = Dice(7 + count as u64);
        let mut model = vec![0; flusher.array().geometry().capacity() as usize];
        for step in 0..60 {
            write(flusher.array(), &mut model, &mut dice);
            if dice.below(3) == 0 {
                flusher.flush(Duration::MAX, 1 + dice.below(9) as usize).unwrap();
            }
            if step % 20 == 0 {
                check(flusher.array(), &model, "running");
            }
        }
        flusher.sync().unwrap();
        assert_eq!(flusher.array().dirty_bytes(), 0);
        check(flusher.array(), &model, "synced");
        flusher.stop().unwrap();
        let mut turned = shared(&disks);
        turned.reverse();
        let flusher = assemble(turned).unwrap();
        check(flusher.array(), &model, "assembled again");
    }
}

/// Cuts the power at many steps, on all levels: what was synced is there, of what came after each
/// sector is old or new or its block is lost, and each member can be lost afterwards.
#[test]
fn a_power_cut_leaves_each_sector_old_or_new() {
    for (level, count) in LEVELS {
        for seed in pinstripe_testing::chosen_seeds("PINSTRIPE_CUT_SEEDS", 1..16) {
            PowerCut::new(level, count, seed).judge(None);
        }
    }
}

/// The same, and a member is never seen again. A block that was being written on it may be lost,
/// and is said to be; nothing is made up.
#[test]
fn a_power_cut_that_takes_a_member_with_it_costs_only_what_was_being_written() {
    for (level, count) in redundant() {
        for seed in pinstripe_testing::chosen_seeds("PINSTRIPE_CUT_SEEDS", 1..16) {
            PowerCut::new(level, count, seed).judge(Some(seed as usize % count));
        }
    }
}

/// Members as a power cut left them, and what was written.
struct PowerCut {
    what: String,
    level: Level,
    dice: Dice,
    disks: Vec<Arc<MemoryDevice>>,
    synced: Vec<u8>,
    /// All since the last sync.
    versions: Vec<Vec<u8>>,
}

impl PowerCut {
    fn new(level: Level, count: usize, seed: u64) -> Self {
        let disks = disks(count);
        create(&create_options(level), shared(&disks)).unwrap().stop().unwrap();
        Self::amid(level, disks, vec![0; 512 << 10], seed, Self::run)
    }

    /// The power goes somewhere amid what is done to members that are there with what was synced to
    /// them.
    fn amid(
        level: Level,
        disks: Vec<Arc<MemoryDevice>>,
        synced: Vec<u8>,
        seed: u64,
        run: impl FnOnce(&mut Self, Vec<SharedDevice>),
    ) -> Self {
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let what = format!("{level}, seed {seed}");
        let mut it = PowerCut { what, level, dice, disks, synced, versions: Vec::new() };
        let power = Arc::new(Power::new(it.dice.below(200)));
        let cut = |disk| Arc::new(CutDevice::new(disk, Arc::clone(&power)));
        let cuts: Vec<_> = shared(&it.disks).into_iter().map(cut).collect();
        run(&mut it, cuts.iter().map(|cut| Arc::clone(cut) as SharedDevice).collect());
        for (n, cut) in cuts.iter().enumerate() {
            cut.after_power_cut(seed * 31 + n as u64).unwrap();
        }
        it
    }

    /// Writes until the power goes.
    fn run(&mut self, devices: Vec<SharedDevice>) {
        let Ok(mut flusher) = assemble(devices) else { return };
        self.write_on(&mut flusher, 60, |flusher, _, choice| match choice {
            1 => flusher.checkpoint(),
            _ => flusher.flush(Duration::MAX, 3).map(drop),
        });
    }

    /// Writes and does long work until the power goes.
    fn go_on(&mut self, flusher: &mut Flusher) {
        self.write_on(flusher, 40, |flusher, dice, choice| match choice {
            1 | 2 => flusher.flush(Duration::MAX, 3).map(drop),
            _ => flusher.step(dice.below(200 << 10)).map(drop),
        });
    }

    /// Writes so many times, and after each one syncs or does something else, by a choice of 1 to
    /// 5, until the power goes.
    fn write_on(
        &mut self,
        flusher: &mut Flusher,
        times: usize,
        otherwise: impl Fn(&mut Flusher, &mut Dice, u64) -> Result<()>,
    ) {
        let mut model = self.synced.clone();
        for _ in 0..times {
            write(flusher.array(), &mut model, &mut self.dice);
            self.versions.push(model.clone());
            let done = match self.dice.below(6) {
                0 => flusher.sync().map(|()| {
                    self.synced.clone_from(&model);
                    self.versions.clear();
                }),
                choice => otherwise(flusher, &mut self.dice, choice),
            };
            if done.is_err() {
                break;
            }
        }
    }

    fn open(&self, without: Option<usize>) -> Flusher {
        let mut devices = shared(&self.disks);
        without.map(|slot| devices.remove(slot));
        assemble(devices).unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    fn judge(mut self, without: Option<usize>) {
        let flusher = self.open(without);
        let found = self.compare(&flusher);
        flusher.stop().unwrap();
        if without.is_none() && self.level != Level::Raid0 {
            let gone = self.dice.below(self.disks.len() as u64) as usize;
            let flusher = self.open(Some(gone));
            check(flusher.array(), &found, &format!("{}: without member {gone}", self.what));
        }
    }

    /// Reads all, and holds each sector against what it may be. Blocks that were being written may
    /// be lost: they are written again as they were last.
    fn compare(&self, flusher: &Flusher) -> Vec<u8> {
        let mut found = vec![0; self.synced.len()];
        for (n, block) in found.chunks_mut(4096).enumerate() {
            let range = n * 4096..n * 4096 + block.len();
            if let Err(error) = flusher.array().read(range.start as u64, block) {
                let is_written =
                    self.versions.iter().any(|it| it[range.clone()] != self.synced[range.clone()]);
                assert!(is_written, "{}: block {n}: {error}", self.what);
                block.copy_from_slice(&self.synced[range.clone()]);
                flusher.array().write(range.start as u64, block, Duration::ZERO).unwrap();
                continue;
            }
            for (m, sector) in block.chunks(512).enumerate() {
                let range = range.start + m * 512..range.start + m * 512 + sector.len();
                let is_known = *sector == self.synced[range.clone()]
                    || self.versions.iter().any(|version| *sector == version[range.clone()]);
                assert!(is_known, "{}: sector {m} of block {n} is neither old nor new", self.what);
            }
        }
        found
    }
}

/// A member that fails at any write is done without.
#[test]
fn a_member_that_fails_is_done_without() {
    use pinstripe_io::fault::{FaultyDevice, Plan};
    for (level, count) in redundant() {
        for from in [1, 5, 9, 20, 60] {
            let disks = disks(count);
            create(&create_options(level), shared(&disks)).unwrap().stop().unwrap();
            let plan: Plan = format!("op=write,after={from},error=EIO").parse().unwrap();
            let mut devices = shared(&disks);
            devices[1] = Arc::new(FaultyDevice::new(Arc::clone(&devices[1]), plan));
            let mut flusher = match assemble(devices) {
                Ok(flusher) => flusher,
                Err(error) => panic!("{level}, from {from}: {error}"),
            };
            let mut dice = Dice(from * 77 + count as u64);
            let mut model = vec![0; 512 << 10];
            for _ in 0..40 {
                write(flusher.array(), &mut model, &mut dice);
                flusher.flush(Duration::MAX, 2).unwrap();
            }
            flusher.sync().unwrap();
            check(flusher.array(), &model, &format!("{level}, from {from}"));
            assert!(flusher.array().absent().has(1), "{level}, from {from}");
            flusher.stop().unwrap();
            let again = assemble(shared(&disks)).unwrap();
            check(again.array(), &model, &format!("{level}, from {from}, again"));
            assert!(again.array().absent().has(1));
        }
    }
}

/// A flipped bit on a member is read around.
#[test]
fn a_flipped_bit_is_rebuilt() {
    for (level, count) in redundant() {
        let disks = disks(count);
        let mut flusher = create(&create_options(level), shared(&disks)).unwrap();
        let mut dice = Dice(11);
        let mut model = vec![0; 512 << 10];
        (0..40).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        flusher.sync().unwrap();
        let data_at = flusher.array().superblock().areas.data_at;
        for block in (0..40).step_by(3) {
            let disk = &disks[block % count];
            let at = data_at + block as u64 * 4096 + 100;
            let mut byte = [0];
            pinstripe_io::device::Device::read_at(&**disk, at, &mut byte).unwrap();
            pinstripe_io::device::Device::write_at(&**disk, at, &[byte[0] ^ 1]).unwrap();
        }
        check(flusher.array(), &model, &format!("{level}"));
        (0..40).for_each(|_| write(flusher.array(), &mut model, &mut dice));
        flusher.sync().unwrap();
        check(flusher.array(), &model, &format!("{level}, written over"));
    }
}
