//! An array on simulated disks, what is done to it, and what it must hold afterwards.
//!
//! A seed gives a shape and then phases in turn:
//! - **lies**: disks, no more than the array can do without, lose writes of data and of their tables, put them
//!   elsewhere, tear them, flip bits, grow sectors that cannot be read, refuse writes. Every read is right, and
//!   none fails.
//! - **a power cut**: any step may be the last one; what was synced is there, every sector of the rest is old or
//!   new, and nothing is made up. Where all members are there and undamaged, no block is lost.
//!
//! Meanwhile members fail, come back, are replaced, and the array grows by one. In some worlds the level changes,
//! too, new disks are longer, and the array comes to use that.
//!
//! Where the array can do without a member and all are there, bytes of one are damaged as the power goes: a
//! block of a row that was being written may be lost or show the damage then, and no other one is. Disks do not tell other lies and
//! lose power at once: two faults of that kind are more than an array promises to bear.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_array::{
    Areas, AssembleOptions, Consistency, CreateOptions, Flusher, FlusherInputs, FlusherTask,
    LastSlot, Layout, Level, Slot, Step, VolumeSettings, WorkPace, assemble_members,
    create_on_members, probe_superblock,
};
use pinstripe_base::error::{Kind, Result};
use pinstripe_io::device::SharedDevice;

use crate::dice::Dice;
use crate::disk::{Disk, Mood, Power};
use crate::model::{Model, SPACE};

const DISK_BYTES: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// More members than that an array does not get.
const MEMBERS_MAX: usize = 6;
const DEADLINE: Duration = Duration::from_millis(20);

/// Level, layout, members, and how many the array can do without.
const SHAPES: [(Level, &str, usize, usize); 11] = [
    (Level::Raid0, "", 3, 0),
    (Level::Raid1, "", 2, 1),
    (Level::Raid1, "", 3, 2),
    (Level::Raid4, "", 3, 1),
    (Level::Raid5, "ls", 4, 1),
    (Level::Raid5, "ra", 3, 1),
    (Level::Raid5, "parity-first", 5, 1),
    (Level::Raid6, "ls", 4, 2),
    (Level::Raid6, "ddf-N-continue", 5, 2),
    (Level::Raid10, "n2", 4, 1),
    (Level::Raid10, "f2", 3, 1),
];

pub struct World {
    /// All that was done, to find the cause of a fault.
    story: Vec<String>,
    dice: Dice,
    power: Arc<Power>,
    /// All there ever were, by number.
    disks: Vec<Arc<Disk>>,
    /// Which of them are at hand when the array is assembled; some may be old.
    at_hand: BTreeSet<usize>,
    members: usize,
    redundancy: usize,
    /// Without it, no member may be away when the power goes.
    has_log: bool,
    model: Model,
    now: Duration,
    /// No member comes or goes: who failed by its lies stays away.
    is_settled: bool,
    /// Since the array was assembled last.
    has_granule: bool,
    /// Neighbours from which on members are written in long writes; the usual ones are too long for
    /// these disks.
    long_write_bytes: Option<usize>,
    /// Stories may end with a column that is written again after a failure.
    has_ends: bool,
    /// In a world whose array changes its level and its size: when, and to what.
    changes: Option<Dice>,
    /// Of all disks so far, at least.
    longest_bytes: u64,
    /// The array came to use all of its members.
    uses_all: bool,
}

/// Two blocks, so that batches mix long writes and others.
const LONG_WRITE_BYTES: usize = 2 * BLOCK;

/// Says what was done when a simulation fails.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what was done:\n  {}", self.story.join("\n  "));
        }
    }
}

impl World {
    /// Plays a seed's story.
    pub fn play(seed: u64) {
        World::new(seed).phases(3);
    }

    /// Plays a seed's story as it was drawn before stories had ends.
    pub fn play_without_ends(seed: u64) {
        let mut world = World::new(seed);
        world.has_ends = false;
        world.phases(3);
    }

    /// Plays a seed's story of an array that changes its level and its size.
    pub fn play_changing(seed: u64) {
        let mut world = World::new(seed);
        world.changes = Some(Dice::new(!seed));
        world.phases(4);
    }

    fn phases(&mut self, count: usize) {
        for _ in 0..count {
            match self.dice.below(2) {
                0 if self.redundancy > 0 => self.lies(),
                _ => {
                    // Of some stories the end is cut, of others what comes after it.
                    let is_whole = self.has_ends && self.dice.below(3) == 0;
                    let steps = if is_whole { u64::MAX } else { self.dice.below(400) };
                    self.power_cut(steps);
                }
            }
        }
    }

    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let shape = SHAPES[dice.below(SHAPES.len() as u64) as usize];
        let mut world = Self::of(shape, dice, &format!("seed {seed}"));
        world.long_write_bytes = (seed % 4 >= 2).then_some(LONG_WRITE_BYTES);
        world
    }

    fn of(
        (level, layout, members, redundancy): (Level, &str, usize, usize),
        mut dice: Dice,
        what: &str,
    ) -> Self {
        let chunk_bytes = 4096 << dice.below(4);
        let policies = [Consistency::Log, Consistency::Log, Consistency::Bitmap, Consistency::None];
        let consistency = policies[dice.below(4) as usize];
        let power = Power::new();
        let disks: Vec<_> = (0..members).map(|n| Disk::new(n, DISK_BYTES, &power)).collect();
        let create_options = CreateOptions {
            name: "sim".to_owned(),
            level,
            layout: match layout {
                "" => Layout::default_of(level),
                text => Layout::parse(level, text).unwrap(),
            },
            chunk_bytes,
            log_bytes: 1 << 20,
            consistency,
            now_seconds: 0,
        };
        let story = vec![format!(
            "{what}: {level} {layout} of {members}, chunks of {chunk_bytes}, {consistency:?}"
        )];
        let flusher = create_on_members(&create_options, shared(&disks)).unwrap();
        flusher.stop().unwrap();
        World {
            story,
            dice,
            power,
            at_hand: (0..members).collect(),
            members,
            disks,
            redundancy,
            has_log: consistency == Consistency::Log,
            model: Model::new(),
            now: Duration::ZERO,
            is_settled: false,
            has_granule: false,
            long_write_bytes: None,
            has_ends: true,
            changes: None,
            longest_bytes: DISK_BYTES + (1 << 20),
            uses_all: false,
        }
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    fn assemble(&mut self, without: Option<usize>) -> Flusher {
        let there = self.at_hand.iter().filter(|disk| Some(**disk) != without);
        let devices = there.map(|disk| Arc::clone(&self.disks[*disk]) as SharedDevice);
        // One that was being added when the power went may not know of it.
        let devices = devices.filter(|device| probe_superblock(device).is_some()).collect();
        let mut assembly = assemble_members(devices, &AssembleOptions::default()).unwrap();
        if let Some(bytes) = self.long_write_bytes {
            assembly.flusher.long_write_bytes = bytes;
        }
        let absent: Vec<_> = assembly.absent.iter().collect();
        self.has_granule = false;
        self.shape_changed(&assembly.flusher);
        self.tell(format!("assembled, {} records, absent {absent:?}", assembly.records));
        self.story.extend(assembly.left_out.iter().map(|it| format!("left out: {it:?}")));
        assembly.flusher
    }

    /// Takes over how many members the array has, and how many it can do without.
    fn shape_changed(&mut self, flusher: &Flusher) {
        let geometry = flusher.array().geometry();
        self.members = geometry.members();
        if self.changes.is_some() {
            self.redundancy = match geometry.layout() {
                Layout::Copies(copies) => copies.count() - 1,
                _ if geometry.level() == Level::Raid1 => geometry.members() - 1,
                _ => geometry.level().parity(),
            };
        }
    }

    /// The bytes of a new disk, which may have to be as long as the array uses its members.
    fn disk_bytes(&mut self) -> u64 {
        let Some(dice) = &mut self.changes else { return DISK_BYTES };
        self.longest_bytes = self.longest_bytes.max(DISK_BYTES + (dice.below(3) << 20));
        match self.uses_all {
            true => self.longest_bytes,
            false => DISK_BYTES + (dice.below(2) << 20),
        }
    }

    fn areas_of(&self, disk: usize) -> Areas {
        let device = Arc::clone(&self.disks[disk]) as SharedDevice;
        probe_superblock(&device).expect("a member").areas
    }

    fn seed(&mut self) -> u64 {
        self.dice.next()
    }

    /// Writes something somewhere.
    fn write(&mut self, flusher: &Flusher) {
        let len = match self.dice.below(4) {
            0 => 1 + self.dice.below(6000),
            1 | 2 => 4096,
            _ => self.dice.below(80_000),
        } as usize;
        let mut at = self.dice.below(SPACE as u64) as usize;
        if self.dice.below(3) > 0 {
            at = at / BLOCK * BLOCK;
        }
        let len = len.min(SPACE - at);
        let first = self.dice.next() as u8;
        let zeros = self.dice.below(8) == 0;
        let byte = |n: usize| if zeros { 0 } else { first.wrapping_add((n >> 7) as u8) };
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        self.tell(format!("write {len} at {at}"));
        flusher.array().write(at as u64, &bytes, self.now).unwrap();
        self.model.write(at, &bytes);
    }

    /// Compares all, byte by byte.
    fn check(&mut self, flusher: &Flusher) {
        let mut found = vec![0; SPACE];
        flusher
            .array()
            .read(0, &mut found)
            .unwrap_or_else(|error| panic!("a read failed: {error}"));
        assert_eq!(self.model.differs(&found), None, "the first byte that differs");
    }

    /// Does one thing; false when the power is off.
    fn act(&mut self, flusher: &mut Flusher) -> bool {
        self.now += Duration::from_millis(self.dice.below(12));
        let due = self.now.saturating_sub(DEADLINE);
        let done = match self.dice.below(25) {
            0..10 => {
                self.write(flusher);
                Ok(())
            }
            10..15 => {
                self.tell("flush what is due");
                flusher.flush(due, 1 + self.dice.below(9) as usize).map(drop)
            }
            15..17 => {
                self.tell("flush");
                flusher.flush(self.now, 5).map(drop)
            }
            17 => {
                self.tell("sync");
                flusher.sync().map(|()| self.model.sync())
            }
            18 => {
                self.tell("checkpoint");
                flusher.checkpoint()
            }
            19 => {
                let granule = [None, Some(4096), Some(16 << 10), Some(1 << 20)];
                flusher.rules.granule = granule[self.dice.below(4) as usize];
                self.tell(format!("granule {:?}", flusher.rules.granule));
                self.has_granule |= flusher.rules.granule.is_some();
                Ok(())
            }
            20..22 => {
                self.tell("step");
                flusher.step(64 << 10).map(drop)
            }
            22 => {
                self.look(flusher);
                Ok(())
            }
            23 => {
                let repair = self.dice.below(2) == 0;
                self.scrub(flusher, repair)
            }
            _ => self.change_member(flusher),
        };
        self.survives(done)
    }

    /// A member is replaced while a writer never pauses: the flusher does what its schedule says,
    /// and the array is whole as soon as the least rate promises.
    pub fn never_pause(seed: u64) {
        const TASK: Duration = Duration::from_millis(30);
        let mut world = World::new(seed);
        if world.redundancy == 0 {
            return;
        }
        let mut flusher = world.assemble(None);
        let slot = world.dice.below(world.members as u64) as usize;
        flusher.fail(slot).unwrap();
        world.add_fresh(&mut flusher).unwrap();
        let settings = VolumeSettings { speed_limit_min: 1 << 20, ..VolumeSettings::default() };
        let (mut pace, mut has_worked, mut users) = (WorkPace::default(), false, 0);
        let began = world.now;
        while flusher.array().wants_work() {
            world.write(&flusher);
            users += 1;
            pace.observe(world.now, users);
            let (gathered, now) = (flusher.array().dirty_stats(), world.now);
            let (sync, work_at) = (Some(1), Some(pace.next()));
            let inputs = FlusherInputs { gathered, now, sync, work_at, has_worked };
            let task = inputs.decide(&settings).expect("a sync is always wanted");
            has_worked = task == FlusherTask::Work;
            world.now += TASK;
            if has_worked {
                let step = flusher.step(pace.slice_bytes(now, &settings)).unwrap();
                if let Step::Moved { bytes } = step {
                    pace.moved(now, world.now, bytes, &settings);
                }
            } else {
                flusher.sync_since(now).unwrap();
                world.model.sync();
            }
            // Twice the least rate, for slices that end early because a row is being written.
            let promised = Duration::from_secs((2 * DISK_BYTES) >> 20);
            assert!(world.now - began < promised, "not whole after {promised:?}");
        }
        world.check(&flusher);
        world.do_without(&mut flusher);
        flusher.stop().unwrap();
    }

    /// Reads a part.
    fn look(&mut self, flusher: &Flusher) {
        let at = self.dice.below(SPACE as u64 - 1) as usize;
        let len = (1 + self.dice.below(20_000) as usize).min(SPACE - at);
        let mut found = vec![0; len];
        if let Err(error) = flusher.array().read(at as u64, &mut found) {
            assert!(self.power.is_off(), "a read of {len} at {at} failed: {error}");
            return;
        }
        let is_same = self.model.is(at, &found);
        assert!(is_same, "a read of {len} at {at} is wrong");
    }

    /// The number of further members that the array can do without.
    fn spare(&self, flusher: &Flusher) -> usize {
        let slots = flusher.array().superblock().slots;
        let whole = slots.iter().filter(|slot| matches!(slot, Slot::Present(_))).count();
        self.redundancy.saturating_sub(slots.len() - whole)
    }

    /// Unless they are settled: fails a member, or gives a slot a fresh one, or the one back that
    /// it had.
    fn change_member(&mut self, flusher: &mut Flusher) -> Result<()> {
        if self.is_settled {
            return Ok(());
        }
        if self.changes.as_mut().is_some_and(|dice| dice.below(2) == 0) {
            return self.change_shape(flusher);
        }
        let slots = flusher.array().superblock().slots;
        let failed = slots.iter().find_map(|slot| match slot {
            Slot::Failed(member) => Some(*member),
            _ => None,
        });
        let is_filling = slots.iter().any(|slot| matches!(slot, Slot::Rebuilding(_)));
        match failed {
            // A spare takes its slot with the next step.
            Some(_) if is_filling || !flusher.array().status().spares.is_empty() => Ok(()),
            Some(member) => {
                let is_it = |disk: &Arc<Disk>| {
                    let device = Arc::clone(disk) as SharedDevice;
                    probe_superblock(&device).is_some_and(|it| it.member == member)
                };
                let old = self.disks.iter().position(is_it);
                match old.filter(|_| self.dice.below(2) == 0) {
                    Some(old) => self.add_old(flusher, old),
                    None => self.add_fresh(flusher),
                }
            }
            None if is_filling => Ok(()),
            None if self.dice.below(3) == 0 => self.replace(flusher),
            None if self.members < MEMBERS_MAX && self.dice.below(4) == 0 => self.grow(flusher),
            None if self.spare(flusher) > 0 => {
                let slot = self.dice.below(slots.len() as u64) as usize;
                self.tell(format!("slot {slot} fails"));
                flusher.fail(slot)
            }
            None => Ok(()),
        }
    }

    /// Has a fresh disk take the place of a member.
    fn replace(&mut self, flusher: &mut Flusher) -> Result<()> {
        let (slot, number) = (self.dice.below(self.members as u64) as usize, self.disks.len());
        self.tell(format!("disk{number} is to replace slot {slot}"));
        let bytes = self.disk_bytes();
        self.disks.push(Disk::new(number, bytes, &self.power));
        self.at_hand.insert(number);
        match flusher.replace(slot, Arc::clone(&self.disks[number]) as SharedDevice) {
            Err(error) if error.kind() == Kind::Busy => Ok(()),
            done => done,
        }
    }

    /// Gives the array one member more.
    fn grow(&mut self, flusher: &mut Flusher) -> Result<()> {
        let number = self.disks.len();
        self.tell(format!("the array grows by disk{number}"));
        let bytes = self.disk_bytes();
        self.disks.push(Disk::new(number, bytes, &self.power));
        self.at_hand.insert(number);
        flusher.add_spare(Arc::clone(&self.disks[number]) as SharedDevice)?;
        // A member that failed while the array grew has nothing that the grown array could use.
        let is_missing = flusher.array().superblock().slots.contains(&Slot::Missing);
        match flusher.grow() {
            Err(error) if matches!(error.kind(), Kind::Busy | Kind::Unsupported) => Ok(()),
            Err(error) if error.kind() == Kind::Refused && is_missing => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.members += 1;
                Ok(())
            }
        }
    }

    /// Changes the level, or has the array use all of its members.
    fn change_shape(&mut self, flusher: &mut Flusher) -> Result<()> {
        let dice = self.changes.as_mut().expect("a world of changes");
        let (grows, level) = (dice.below(3) == 0, Level::ALL[dice.below(6) as usize]);
        let taken_over = flusher.array().geometry().taken_over(level);
        let done = match taken_over {
            _ if grows => {
                self.tell("the array uses all of its members");
                self.uses_all = true;
                flusher.grow_size()
            }
            Ok((after, _)) if after.members() > MEMBERS_MAX => Ok(()),
            Ok((_, LastSlot::IsAdded)) => {
                let number = self.disks.len();
                self.tell(format!("{level}, with disk{number}"));
                let bytes = self.disk_bytes();
                self.disks.push(Disk::new(number, bytes, &self.power));
                self.at_hand.insert(number);
                let device = Arc::clone(&self.disks[number]) as SharedDevice;
                flusher.change_level_with(level, device)
            }
            Ok(_) => {
                self.tell(format!("{level}"));
                flusher.change_level(level)
            }
            Err(_) => Ok(()),
        };
        self.shape_changed(flusher);
        match done {
            Err(error)
                if matches!(error.kind(), Kind::Busy | Kind::Refused | Kind::Unsupported) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    fn scrub(&mut self, flusher: &mut Flusher, repair: bool) -> Result<()> {
        self.tell(format!("scrub, repair: {repair}"));
        match flusher.scrub(repair) {
            Err(error) if error.kind() == Kind::Busy => Ok(()),
            done => done,
        }
    }

    fn add_old(&mut self, flusher: &mut Flusher, disk: usize) -> Result<()> {
        self.tell(format!("disk{disk} comes back"));
        self.at_hand.insert(disk);
        match flusher.add(Arc::clone(&self.disks[disk]) as SharedDevice) {
            // Its slot's last filling ends with the next step.
            Err(error) if error.kind() == Kind::Busy => Ok(()),
            done => done.map(drop),
        }
    }

    fn add_fresh(&mut self, flusher: &mut Flusher) -> Result<()> {
        let number = self.disks.len();
        self.tell(format!("disk{number} is added"));
        let bytes = self.disk_bytes();
        self.disks.push(Disk::new(number, bytes, &self.power));
        self.at_hand.insert(number);
        flusher.add(Arc::clone(&self.disks[number]) as SharedDevice).map(drop)
    }

    /// The disk that stands in a slot.
    fn disk_of(&self, flusher: &Flusher, slot: usize) -> Option<usize> {
        let path = flusher.array().status().slots[slot].path.clone()?;
        path.to_str()?.strip_prefix("disk")?.parse().ok()
    }

    /// Goes on with what there is to be done until there is nothing.
    fn finish_work(&mut self, flusher: &mut Flusher) {
        loop {
            match flusher.step(256 << 10).unwrap() {
                Step::Idle => return,
                Step::Moved { .. } => {}
                Step::Done(report) => self.tell(format!("{report:?}")),
            }
        }
    }

    /// Makes the array whole again: what is away gets a fresh disk.
    fn make_whole(&mut self, flusher: &mut Flusher) {
        self.finish_work(flusher);
        for slot in 0..self.members {
            let state = flusher.array().superblock().slots[slot];
            if matches!(state, Slot::Failed(_) | Slot::Missing) {
                self.add_fresh(flusher).unwrap();
                self.finish_work(flusher);
            }
        }
        let slots = flusher.array().superblock().slots;
        assert!(slots.iter().all(|slot| matches!(slot, Slot::Present(_))), "{slots:?}");
    }

    /// Disks lie unnoticed.
    fn lies(&mut self) {
        let mut flusher = self.assemble(None);
        let first = self.dice.below(self.members as u64) as usize;
        let count = 1 + self.dice.below(self.redundancy as u64) as usize;
        let liars: Vec<_> = (0..count).map(|n| (first + n) % self.members).collect();
        let disks: Vec<_> =
            liars.iter().map(|slot| self.disk_of(&flusher, *slot).unwrap()).collect();
        let mut last_seed = 0;
        for disk in &disks {
            let mut chance = || if self.dice.below(2) == 0 { self.dice.below(30) } else { 0 };
            let mood = Mood {
                lost: chance(),
                misdirected: chance(),
                torn: chance(),
                flipped: chance(),
                latent: chance(),
                refused: chance() / 20,
            };
            let seed = self.seed();
            let areas = self.lied_about(*disk, seed);
            self.tell(format!("disk{disk} lies in {areas:?}: {mood:?}"));
            self.disks[*disk].lie(mood, areas, seed);
            last_seed = seed;
        }
        self.is_settled = true;
        for _ in 0..40 + self.dice.below(60) {
            assert!(self.act(&mut flusher));
        }
        self.check(&flusher);
        flusher.sync().unwrap();
        self.model.sync();
        // Tables may be lied about to the last.
        let is_calm = last_seed.is_multiple_of(2);
        let calm = |world: &World| disks.iter().for_each(|disk| world.disks[*disk].calm());
        if is_calm {
            calm(self);
        }
        self.is_settled = false;
        self.check(&flusher);
        flusher.stop().unwrap();
        calm(self);
        let mut flusher = self.assemble(None);
        self.check(&flusher);
        if self.dice.below(2) == 0 {
            self.mend(&mut flusher);
        } else {
            let stands =
                |slot: usize| matches!(flusher.array().superblock().slots[slot], Slot::Present(_));
            let there: Vec<_> = liars.into_iter().filter(|slot| stands(*slot)).collect();
            there.into_iter().for_each(|slot| flusher.fail(slot).unwrap());
        }
        self.make_whole(&mut flusher);
        self.check(&flusher);
        flusher.stop().unwrap();
    }

    /// Areas in which a disk lies.
    fn lied_about(&self, disk: usize, seed: u64) -> Vec<Range<u64>> {
        let it = self.areas_of(disk);
        let data = it.data_at..DISK_BYTES;
        let (sums, regions) = (it.sums_at..it.data_at, it.regions_at..it.bad_blocks_at);
        match Dice::new(seed).below(4) {
            0 => vec![data],
            1 => vec![sums],
            2 => vec![sums, regions],
            _ => vec![data, sums, regions],
        }
    }

    /// Mends all that lies have left, and does without others than those that lied.
    fn mend(&mut self, flusher: &mut Flusher) {
        self.make_whole(flusher);
        flusher.cancel_work().unwrap();
        self.scrub(flusher, true).unwrap();
        self.finish_work(flusher);
        self.check(flusher);
        self.do_without(flusher);
    }

    /// Fails as many members as may be.
    fn do_without(&mut self, flusher: &mut Flusher) {
        let first = self.dice.below(self.members as u64) as usize;
        for n in 0..self.redundancy {
            let slot = (first + n) % self.members;
            self.tell(format!("slot {slot} fails"));
            flusher.fail(slot).unwrap();
            self.check(flusher);
        }
    }

    /// The power goes after so many steps.
    pub fn power_cut(&mut self, steps: u64) {
        let mut flusher = self.assemble(None);
        self.tell(format!("the power goes after {steps} steps"));
        self.power.set(steps);
        self.is_settled = !self.has_log;
        for _ in 0..80 {
            if !self.act(&mut flusher) {
                self.tell("the power went");
                break;
            }
        }
        let may_end = self.has_ends && self.has_log && !self.power.is_off();
        if may_end && self.dice.below(3) > 0 {
            self.written_again_after_a_failure(&mut flusher);
        }
        self.is_settled = false;
        let superblock = flusher.array().superblock();
        let away = superblock.slots.iter().any(|slot| !matches!(slot, Slot::Present(_)));
        let spare = self.spare(&flusher);
        let slot = self.dice.below(self.members as u64) as usize;
        let may_go = spare > 0 && self.has_log;
        let lost = self.disk_of(&flusher, slot).filter(|_| may_go && self.dice.below(3) == 0);
        let row_bytes = flusher.array().geometry().row_bytes();
        self.model.widens(row_bytes, self.has_granule);
        drop(flusher);
        self.power.set(u64::MAX);
        for disk in 0..self.disks.len() {
            let seed = self.seed();
            self.disks[disk].cut(seed);
        }
        self.tell(format!("the power is back, without {lost:?}"));
        let is_whole = !away && lost.is_none();
        let mut is_damaged = false;
        if is_whole && self.redundancy > 0 && self.has_log && self.dice.below(3) == 0 {
            let (disk, seed) = (self.dice.below(self.members as u64) as usize, self.seed());
            if let Some(disk) = self.at_hand.iter().nth(disk).copied() {
                // Where the model writes.
                let data_at = self.areas_of(disk).data_at;
                let data = data_at..data_at + SPACE as u64;
                let runs = self.disks[disk].damage(data, 12, seed);
                self.tell(format!("damaged disk{disk}: {runs:?}"));
                is_damaged = true;
            }
        }
        let mut flusher = self.assemble(lost);
        let found = self.judge(&flusher, is_whole && !is_damaged, is_damaged);
        self.model.adopt(&found);
        // What is lost is lost until it is written again.
        flusher.array().write(0, &found, self.now).unwrap();
        flusher.sync().unwrap();
        self.check(&flusher);
        self.make_whole(&mut flusher);
        self.check(&flusher);
        if self.dice.below(2) == 0 {
            self.do_without(&mut flusher);
            self.make_whole(&mut flusher);
        }
        flusher.stop().unwrap();
    }

    /// The last two records of the log are about one column, and a member failed between them.
    fn written_again_after_a_failure(&mut self, flusher: &mut Flusher) {
        let chunk = flusher.array().geometry().chunk_bytes() as usize;
        let first = self.dice.below((SPACE / BLOCK) as u64) as usize * BLOCK;
        for is_again in [false, true] {
            let slot = self.dice.below(self.members as u64) as usize;
            if is_again && self.spare(flusher) > 0 {
                self.tell(format!("slot {slot} fails"));
                self.survives(flusher.fail(slot));
            }
            let at = (first + chunk * self.dice.below(2) as usize) % SPACE;
            let bytes = [self.dice.next() as u8; BLOCK];
            self.tell(format!("write {BLOCK} at {at}, and sync"));
            flusher.array().write(at as u64, &bytes, self.now).unwrap();
            self.model.write(at, &bytes);
            if self.survives(flusher.sync()) {
                self.model.sync();
            }
        }
    }

    /// Whether something was done; only a power that went is a reason that it was not.
    fn survives(&self, done: Result<()>) -> bool {
        match done {
            Ok(()) => true,
            Err(_) if self.power.is_off() => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The content of the array after a power cut, sector by sector. Where all members are there
    /// and undamaged, nothing is lost. Nothing is made up, but for damage in blocks that were being
    /// written: it cannot be told from a tear.
    fn judge(&self, flusher: &Flusher, is_sound: bool, is_damaged: bool) -> Vec<u8> {
        let mut found = vec![0; SPACE];
        for (number, block) in found.chunks_mut(BLOCK).enumerate() {
            if let Err(error) = flusher.array().read((number * BLOCK) as u64, block) {
                let row_bytes = flusher.array().geometry().row_bytes();
                let may_be_lost = match is_damaged {
                    true => self.model.is_row_in_flux(number, row_bytes),
                    false => !is_sound && self.model.is_in_flux(number),
                };
                assert!(may_be_lost, "block {number} is lost: {error}");
                block.copy_from_slice(self.model.synced_block(number));
            }
        }
        let is_excepted = |block: usize| is_damaged && self.model.is_in_flux(block);
        let made_up = self.model.made_up_but(&found, is_excepted);
        assert_eq!(made_up, None, "a sector that is neither old nor new");
        found
    }
}

fn shared(disks: &[Arc<Disk>]) -> Vec<SharedDevice> {
    disks.iter().map(|disk| Arc::clone(disk) as SharedDevice).collect()
}

/// Cuts the power of one story at each of its steps, or at every so many of them.
pub fn cut_everywhere(shape: usize, stride: u64) {
    for steps in (shape as u64 % stride..).step_by(stride as usize) {
        let what = format!("shape {shape}, cut at step {steps}");
        let mut world = World::of(SHAPES[shape], Dice::new(shape as u64), &what);
        world.long_write_bytes = (shape % 2 == 1).then_some(LONG_WRITE_BYTES);
        let before = world.story.len();
        world.power_cut(steps);
        if !world.story[before..].iter().any(|it| it == "the power went") {
            return;
        }
    }
}

pub const SHAPE_COUNT: usize = SHAPES.len();
