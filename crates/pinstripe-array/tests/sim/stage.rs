//! An array for pairs of verbs: disks, the array on them, what it must hold, and which devices are in
//! use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_array::{
    AssembleOptions, Consistency, CreateOptions, Flusher, LastSlot, Layout, Level, Slot, SlotState,
    SlotStatus, Step, WorkKind, assemble_members, create_on_members, probe_superblock,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Device, SharedDevice};

use crate::dice::Dice;
use crate::disk::{Disk, Power};
use crate::model::{Model, SPACE};
use crate::verbs::Verb;

const DISK_BYTES: u64 = 3 << 20;
const BLOCK: usize = 4096;
const MEMBERS_MAX: usize = 6;
/// Fills are interrupted behind a recorded point, too.
const FILL_POINT_BYTES: u64 = 8 << 10;
/// Slices after which work must have ended.
const WAIT_MAX: usize = 20_000;

const SHAPES: [(Level, &str, usize); 10] = [
    (Level::Raid0, "", 3),
    (Level::Raid1, "", 2),
    (Level::Raid1, "", 3),
    (Level::Raid4, "", 3),
    (Level::Raid5, "ls", 4),
    (Level::Raid5, "ra", 3),
    (Level::Raid6, "ls", 4),
    (Level::Raid6, "ls", 5),
    (Level::Raid10, "n2", 4),
    (Level::Raid10, "f2", 3),
];

pub struct Stage {
    story: Vec<String>,
    dice: Dice,
    power: Arc<Power>,
    /// All there ever were, by number.
    disks: Vec<Arc<Disk>>,
    /// Those that the register has.
    registered: BTreeSet<usize>,
    /// Earlier contents of disks.
    older: BTreeMap<usize, Vec<u8>>,
    disk_bytes: u64,
    model: Model,
    now: Duration,
    flusher: Option<Flusher>,
    has_log: bool,
    has_long_writes: bool,
    /// A scrub was accepted that has not ended yet, and whether it repairs.
    owed: Option<bool>,
    calls: u64,
}

/// Says what was done when a story fails.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what was done:\n  {}", self.story.join("\n  "));
        }
    }
}

fn shared(disk: &Arc<Disk>) -> SharedDevice {
    Arc::clone(disk) as SharedDevice
}

fn number_of(path: &Path) -> usize {
    path.to_str().and_then(|it| it.strip_prefix("disk")?.parse().ok()).expect("a disk's name")
}

impl Stage {
    pub fn new(seed: u64, pair: &str) -> Self {
        let mut dice = Dice::new(seed ^ 0x9a12);
        let (level, layout, members) = SHAPES[dice.below(SHAPES.len() as u64) as usize];
        let chunk_bytes = 4096 << dice.below(4);
        let policies = [Consistency::Log, Consistency::Log, Consistency::Bitmap, Consistency::None];
        let consistency = policies[dice.below(4) as usize];
        let power = Power::new();
        let disks: Vec<_> = (0..members).map(|n| Disk::new(n, DISK_BYTES, &power)).collect();
        let options = CreateOptions {
            name: "pairs".to_owned(),
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
        let flusher = create_on_members(&options, disks.iter().map(shared).collect()).unwrap();
        let has_long_writes = dice.below(4) > 0;
        let mut stage = Stage {
            story: vec![format!(
                "seed {seed}, {pair}: {level} {layout} of {members}, chunks of {chunk_bytes}, \
                 {consistency:?}, long writes {has_long_writes}"
            )],
            dice,
            power,
            registered: (0..members).collect(),
            disks,
            older: BTreeMap::new(),
            disk_bytes: DISK_BYTES,
            model: Model::new(),
            now: Duration::ZERO,
            flusher: Some(flusher),
            has_log: consistency == Consistency::Log,
            has_long_writes,
            owed: None,
            calls: 0,
        };
        stage.tune();
        stage
    }

    fn tune(&mut self) {
        let has_long_writes = self.has_long_writes;
        if let Some(flusher) = &mut self.flusher {
            flusher.set_fill_point_bytes(FILL_POINT_BYTES);
            if has_long_writes {
                flusher.long_write_bytes = 2 * BLOCK;
            }
        }
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    pub fn draws(&mut self, of: u64) -> bool {
        self.dice.below(of) == 0
    }

    pub fn any_verb(&mut self) -> Verb {
        Verb::ALL[self.dice.below(Verb::ALL.len() as u64) as usize]
    }

    fn flusher(&mut self) -> &mut Flusher {
        self.calls += 1;
        self.flusher.as_mut().expect("it is assembled")
    }

    /// Writes, and copies of disks from some moment.
    pub fn prelude(&mut self) {
        for _ in 0..4 + self.dice.below(8) {
            self.write(80_000);
        }
        self.flush();
        if self.draws(2) {
            self.sync();
        }
        self.remember();
        for _ in 0..self.dice.below(6) {
            self.write(20_000);
        }
        match self.dice.below(3) {
            0 => self.sync(),
            1 => self.flush(),
            _ => {}
        }
        // Some stories begin amid work.
        if self.draws(4) {
            let verb = [Verb::Fail, Verb::Replace, Verb::Spare, Verb::Kill, Verb::Scrub];
            let verb = verb[self.dice.below(5) as usize];
            self.perform(verb);
            self.between();
        }
    }

    fn remember(&mut self) {
        self.tell("copies of all disks");
        self.older = (0..self.disks.len()).map(|it| (it, self.disks[it].image())).collect();
    }

    /// A little of what goes on all the time.
    pub fn between(&mut self) {
        for _ in 0..self.dice.below(5) {
            match self.dice.below(6) {
                0 | 1 => self.write(6000),
                2 => self.flush(),
                3 => self.work_slice(),
                4 => self.look(),
                _ => self.write(60_000),
            }
        }
        if self.draws(6) {
            self.remember();
        }
    }

    /// Does one act. Returns whether it was accepted.
    pub fn perform(&mut self, verb: Verb) -> bool {
        self.tell(format!("{verb:?}"));
        // Without a log, an act may leave an array that a cut makes refused.
        let is_armed = self.draws(6) && (self.has_log || !self.has_parity());
        if is_armed {
            let steps = self.dice.below(20);
            self.tell(format!("the power goes after {steps} steps"));
            self.power.set(steps);
        }
        let done = self.act(verb);
        let is_accepted = match done {
            Ok(is_accepted) => is_accepted,
            Err(error) if self.power.is_off() => {
                self.tell(format!("{verb:?}: {error}"));
                false
            }
            Err(error) if is_refusal(&error) => {
                self.tell(format!("{verb:?} is refused: {error}"));
                false
            }
            Err(error) => panic!("{verb:?}: {error}"),
        };
        self.notice_power();
        self.power.set(u64::MAX);
        self.check_devices();
        self.check();
        is_accepted
    }

    fn act(&mut self, verb: Verb) -> Result<bool> {
        match verb {
            Verb::ShortWrites | Verb::LongWrites => {
                let most = if verb == Verb::ShortWrites { 6000 } else { 160_000 };
                for _ in 0..1 + self.dice.below(6) {
                    self.write(most);
                    if self.draws(2) {
                        self.flush();
                    }
                }
                Ok(true)
            }
            Verb::Reads => {
                (0..3).for_each(|_| self.look());
                Ok(true)
            }
            Verb::Sync => {
                self.flusher().sync()?;
                self.model.sync();
                Ok(true)
            }
            Verb::Checkpoint => self.flusher().checkpoint().map(|()| true),
            Verb::Fail | Verb::FailReplacement | Verb::FailOld | Verb::Remove => {
                self.name_a_device(verb)
            }
            Verb::Add | Verb::AddBack | Verb::AddOlder | Verb::Spare => self.add(verb),
            Verb::Replace => self.replace(),
            Verb::GrowMembers | Verb::GrowSize | Verb::Level => self.change_shape(verb),
            Verb::Granule => {
                let granule = [None, Some(4096), Some(16 << 10), Some(1 << 20)];
                let granule = granule[self.dice.below(4) as usize];
                self.flusher().set_granule(granule).map(|()| true)
            }
            Verb::Scrub | Verb::Repair => {
                let repair = verb == Verb::Repair;
                self.flusher().scrub(repair)?;
                self.owed = Some(repair);
                Ok(true)
            }
            Verb::Cancel => {
                let owed = self.owed.take();
                let cancelled = self.flusher().cancel_work()?;
                let is_right = cancelled.is_some() == owed.is_some();
                assert!(is_right, "owed {owed:?}, cancelled {cancelled:?}");
                Ok(cancelled.is_some())
            }
            Verb::Work => {
                for _ in 0..1 + self.dice.below(6) {
                    self.work_slice();
                }
                Ok(true)
            }
            Verb::Wait => self.wait().map(|()| true),
            Verb::Stop | Verb::SwapOlder => self.stop(verb),
            Verb::Kill | Verb::PowerCut => {
                self.make_fit_for_a_cut();
                match verb {
                    Verb::Kill => self.kill(),
                    _ => self.power_cut(),
                }
                Ok(true)
            }
        }
    }
}

fn is_refusal(error: &Error) -> bool {
    use Kind::{Busy, Exists, NotFound, Refused, Unsupported, Usage};
    matches!(error.kind(), Busy | Exists | NotFound | Refused | Unsupported | Usage)
}

/// Clients.
impl Stage {
    fn write(&mut self, most: u64) {
        if self.power.is_off() {
            return;
        }
        let len = match self.dice.below(4) {
            0 => 512 * (1 + self.dice.below(8)),
            1 => BLOCK as u64,
            _ => 1 + self.dice.below(most),
        } as usize;
        let mut at = self.dice.below(SPACE as u64) as usize;
        at = match self.dice.below(3) {
            0 => at,
            1 => at / 512 * 512,
            _ => at / BLOCK * BLOCK,
        };
        let len = len.min(SPACE - at);
        let first = self.dice.next() as u8;
        let bytes: Vec<u8> = (0..len).map(|n| first.wrapping_add((n >> 7) as u8)).collect();
        self.tell(format!("write {len} at {at}"));
        let now = self.now;
        self.flusher().array().write(at as u64, &bytes, now).unwrap();
        self.model.write(at, &bytes);
        self.now += Duration::from_millis(self.dice.below(12));
    }

    fn flush(&mut self) {
        self.tell("flush");
        let (now, most) = (self.now, 1 + self.dice.below(40) as usize);
        let done = self.flusher().flush(now, most).map(drop);
        self.survives(done);
    }

    fn sync(&mut self) {
        self.tell("sync");
        let done = self.flusher().sync();
        if self.survives(done) {
            self.model.sync();
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

    fn look(&mut self) {
        let at = self.dice.below(SPACE as u64 - 1) as usize;
        let len = (1 + self.dice.below(20_000) as usize).min(SPACE - at);
        let mut found = vec![0; len];
        if let Err(error) = self.flusher().array().read(at as u64, &mut found) {
            assert!(self.power.is_off(), "a read of {len} at {at} failed: {error}");
            return;
        }
        assert!(self.model.is(at, &found), "a read of {len} at {at} is wrong");
    }

    /// Compares all, byte by byte.
    fn check(&mut self) {
        let mut found = vec![0; SPACE];
        let done = self.flusher().array().read(0, &mut found);
        done.unwrap_or_else(|error| panic!("a read failed: {error}"));
        assert_eq!(self.model.differs(&found), None, "the first byte that differs");
    }
}

/// Work.
impl Stage {
    fn work_slice(&mut self) {
        if self.power.is_off() {
            return;
        }
        let most = 4096 << self.dice.below(5);
        self.tell(format!("work {most}"));
        let step = self.flusher().step(most);
        match &step {
            Ok(step) => self.heard(step),
            // The scrub may have ended in this slice.
            Err(_) => self.owed = None,
        }
        self.survives(step.map(drop));
    }

    /// Notes how work ended.
    fn heard(&mut self, step: &Step) {
        let Step::Done(report) = step else { return };
        self.tell(format!("{report:?}"));
        if matches!(report.kind, WorkKind::Check | WorkKind::Repair) {
            let repair = report.kind == WorkKind::Repair;
            assert!(report.is_finished && report.mismatches.is_empty(), "{report:?}");
            let owed = self.owed.take();
            assert!(
                owed.is_none_or(|owed| owed == repair),
                "another scrub ended than was asked for"
            );
        }
    }

    /// What `array wait` does: looks until no work is shown.
    fn wait(&mut self) -> Result<()> {
        for _ in 0..WAIT_MAX {
            let status = self.flusher().array().status();
            if status.work.is_none() {
                let empty = |state| matches!(state, SlotState::Failed | SlotState::Missing);
                let has_empty = status.slots.iter().any(|slot| empty(slot.state));
                let is_done = !has_empty || status.spares.is_empty();
                assert!(is_done, "nothing is pending, and {:?} wait for a slot", status.spares);
                let next = self.flusher().step(1 << 20)?;
                assert_eq!(next, Step::Idle, "nothing was pending");
                return Ok(());
            }
            let step = self.flusher().step(256 << 10);
            match &step {
                Ok(step) => self.heard(step),
                Err(_) => self.owed = None,
            }
            step?;
        }
        panic!("work is pending, and does not end: {:?}", self.flusher().array().status())
    }

    /// Devices in use: members, replacements, spares.
    fn used(&mut self) -> BTreeSet<usize> {
        let status = self.flusher().array().status();
        let is_used = |state| matches!(state, SlotState::Present | SlotState::Rebuilding);
        let members = status.slots.iter().filter(|slot| is_used(slot.state));
        let members = members.filter_map(|slot| slot.path.as_deref());
        let replacements = status.slots.iter().filter_map(|slot| slot.replacement.as_deref());
        let spares = status.spares.iter().map(AsRef::as_ref);
        members.chain(replacements).chain(spares).map(number_of).collect()
    }

    fn check_devices(&mut self) {
        let used = self.used();
        let missing: Vec<_> = used.difference(&self.registered).collect();
        assert!(missing.is_empty(), "in use, and not registered: {missing:?}");
    }
}

/// Members.
impl Stage {
    /// Fails or removes a device that is named by its path. The request waits for some slices of work
    /// before it is carried out.
    fn name_a_device(&mut self, verb: Verb) -> Result<bool> {
        let Some(device) = self.device_for(verb)? else { return Ok(false) };
        let name = format!("disk{device}");
        let is_it = move |path: &Path| path == Path::new(&name);
        // Looked at as a user does, who then types.
        let seen = self.flusher().array().role_of(&is_it);
        for _ in 0..self.dice.below(4) {
            self.work_slice();
        }
        let before = self.used();
        self.tell(format!("disk{device}, seen as {seen:?}"));
        let done = match verb {
            Verb::Remove => self.flusher().remove_device(&is_it),
            _ => self.flusher().fail_device(&is_it).map(drop),
        };
        if self.power.is_off() {
            return done.map(|()| true);
        }
        // A device that only the register knows has failed or was replaced.
        let is_known_only = done.as_ref().is_err_and(|error| error.kind() == Kind::NotFound);
        let after = self.used();
        let mut expected = before.clone();
        if done.is_ok() || is_known_only {
            expected.remove(&device);
        }
        assert_eq!(after, expected, "in use after {verb:?} of disk{device}: {done:?}");
        if verb == Verb::Remove && (done.is_ok() || is_known_only) {
            self.registered.remove(&device);
        }
        done.map(|()| true)
    }

    /// A device that suits a verb; a replace is begun for one that needs it.
    fn device_for(&mut self, verb: Verb) -> Result<Option<usize>> {
        let count = self.disks.len() as u64;
        if matches!(verb, Verb::Fail | Verb::Remove) {
            let used: Vec<_> = self.used().into_iter().collect();
            let any = self.dice.below(count) as usize;
            let one = used[self.dice.below(used.len() as u64) as usize];
            return Ok(Some(if self.draws(4) { any } else { one }));
        }
        let replaced = |stage: &mut Self| {
            let slots = stage.flusher().array().status().slots;
            slots.into_iter().find(|slot| slot.replacement.is_some())
        };
        if replaced(self).is_none() {
            self.replace()?;
        }
        let Some(slot) = replaced(self) else { return Ok(None) };
        let path = if verb == Verb::FailOld { slot.path } else { slot.replacement };
        Ok(path.as_deref().map(number_of))
    }

    fn new_disk(&mut self) -> SharedDevice {
        let number = self.disks.len();
        self.tell(format!("disk{number} is new"));
        self.disks.push(Disk::new(number, self.disk_bytes, &self.power));
        self.registered.insert(number);
        shared(&self.disks[number])
    }

    /// Disks of failed members.
    fn failed(&mut self) -> Vec<usize> {
        let slots = self.flusher().array().superblock().slots;
        let failed = |id| slots.contains(&Slot::Failed(id));
        let is_it =
            |disk: &Arc<Disk>| probe_superblock(&shared(disk)).is_some_and(|it| failed(it.member));
        (0..self.disks.len()).filter(|disk| is_it(&self.disks[*disk])).collect()
    }

    fn add(&mut self, verb: Verb) -> Result<bool> {
        let device = match verb {
            Verb::Add | Verb::Spare => self.new_disk(),
            _ => {
                if self.failed().is_empty() {
                    self.name_a_device(Verb::Fail)?;
                    self.write(40_000);
                    self.flush();
                }
                if self.power.is_off() {
                    return Ok(false);
                }
                let Some(disk) = self.failed().first().copied() else { return Ok(false) };
                if verb == Verb::AddOlder {
                    let used = self.used();
                    let Some(image) = self.older.get(&disk).filter(|_| !used.contains(&disk))
                    else {
                        return Ok(false);
                    };
                    self.disks[disk].restore(image);
                }
                self.tell(format!("disk{disk} comes back"));
                self.registered.insert(disk);
                shared(&self.disks[disk])
            }
        };
        match verb {
            Verb::Spare => self.flusher().add_spare(device)?,
            _ => {
                let added = self.flusher().add(device)?;
                self.tell(format!("{added:?}"));
            }
        }
        Ok(true)
    }

    fn replace(&mut self) -> Result<bool> {
        let members = self.flusher().array().geometry().members() as u64;
        let slot = self.dice.below(members) as usize;
        let device = self.new_disk();
        self.flusher().replace(slot, device).map(|()| true)
    }

    fn change_shape(&mut self, verb: Verb) -> Result<bool> {
        if verb == Verb::GrowSize {
            self.disk_bytes += 512 << 10;
            for disk in &self.disks {
                let more = self.disk_bytes - disk.len().unwrap();
                disk.lengthen(more as usize);
            }
            return self.flusher().grow_size().map(|()| true);
        }
        let geometry = self.flusher().array().geometry();
        if verb == Verb::GrowMembers {
            if geometry.members() >= MEMBERS_MAX {
                return Ok(false);
            }
            let device = self.new_disk();
            return self.flusher().grow_by(device).map(|()| true);
        }
        let level = Level::ALL[self.dice.below(6) as usize];
        let Ok((after, last)) = geometry.taken_over(level) else { return Ok(false) };
        match last {
            _ if after.members() > MEMBERS_MAX => return Ok(false),
            LastSlot::IsAdded => {
                let device = self.new_disk();
                self.flusher().change_level_with(level, device)?;
            }
            _ => self.flusher().change_level(level)?,
        }
        Ok(true)
    }
}

/// Ends and beginnings.
impl Stage {
    fn assemble(&mut self) {
        let devices = self.registered.iter().map(|disk| shared(&self.disks[*disk]));
        let devices: Vec<_> = devices.filter(|device| probe_superblock(device).is_some()).collect();
        let assembly = assemble_members(devices, &AssembleOptions::default());
        let assembly = assembly.unwrap_or_else(|error| panic!("not assembled: {error}"));
        let absent: Vec<_> = assembly.absent.iter().collect();
        let left_out: Vec<_> = assembly.left_out.iter().map(|it| format!("{it:?}")).collect();
        self.tell(format!("assembled, absent {absent:?}, left out {left_out:?}"));
        self.flusher = Some(assembly.flusher);
        self.tune();
    }

    fn stop(&mut self, verb: Verb) -> Result<bool> {
        if verb == Verb::SwapOlder && !self.has_log {
            // A stop amid a resync is not in order: without a member, an array of parity is refused by
            // design, and a mirror has what the copies left have of writes that no sync confirmed.
            self.wait()?;
        }
        let was_spare = match verb {
            Verb::SwapOlder if self.draws(3) => self.spare_becomes_member()?,
            _ => None,
        };
        if self.power.is_off() {
            return Ok(false);
        }
        let (spare, away) = (self.redundancy(), self.away());
        let flusher = self.flusher.take().expect("it is assembled");
        let members: Vec<_> = flusher.array().status().slots;
        let done = flusher.stop();
        if done.is_ok() {
            self.model.sync();
        }
        if self.power.is_off() {
            self.cut_with(away);
            return Ok(false);
        }
        self.power.set(u64::MAX);
        done?;
        let mut is_swapped = false;
        if verb == Verb::SwapOlder && spare > 0 {
            let any = self.dice.below(members.len() as u64) as usize;
            let is_it = |slot: &SlotStatus| slot.path.as_deref().map(number_of) == was_spare;
            let former = members.iter().position(is_it).filter(|_| was_spare.is_some());
            let slot = &members[former.unwrap_or(any)];
            let disk = slot.path.as_deref().map(number_of);
            let is_whole = slot.state == SlotState::Present;
            if let Some(disk) = disk.filter(|_| is_whole)
                && let Some(image) = self.older.get(&disk)
            {
                self.disks[disk].restore(image);
                self.tell(format!("an older copy of disk{disk} is in its place"));
                is_swapped = true;
            }
        }
        self.assemble();
        Ok(is_swapped || verb == Verb::Stop)
    }

    /// Has a spare, of which there is a copy, become a member. Returns its disk.
    fn spare_becomes_member(&mut self) -> Result<Option<usize>> {
        self.wait()?;
        if self.redundancy() == 0 || self.away() > 0 {
            return Ok(None);
        }
        let device = self.new_disk();
        let number = number_of(device.place());
        self.flusher().add_spare(device)?;
        self.remember();
        let members = self.flusher().array().geometry().members() as u64;
        let slot = self.dice.below(members) as usize;
        self.tell(format!("slot {slot} fails"));
        self.flusher().fail(slot)?;
        self.wait()?;
        Ok(Some(number))
    }

    /// The number of further members that the array can do without.
    fn redundancy(&mut self) -> usize {
        let geometry = self.flusher().array().geometry();
        let redundancy = match geometry.layout() {
            Layout::Copies(copies) => copies.count() - 1,
            _ if geometry.level() == Level::Raid1 => geometry.members() - 1,
            _ => geometry.level().parity(),
        };
        redundancy.saturating_sub(self.away())
    }

    fn away(&mut self) -> usize {
        let slots = self.flusher().array().superblock().slots;
        slots.iter().filter(|slot| !matches!(slot, Slot::Present(_))).count()
    }

    /// Without a log, an array of parity that is degraded is refused after a cut, by design.
    fn can_be_cut(&mut self) -> bool {
        self.has_log || !self.has_parity() || self.away() == 0
    }

    fn has_parity(&mut self) -> bool {
        self.flusher().array().geometry().level().parity() > 0
    }

    fn make_fit_for_a_cut(&mut self) {
        if !self.can_be_cut() {
            self.power.set(u64::MAX);
            self.make_whole();
        }
    }

    fn kill(&mut self) {
        let before = self.away();
        drop(self.flusher.take());
        self.power.set(u64::MAX);
        self.disks.iter().for_each(|disk| disk.settle());
        self.assemble();
        self.judge(before);
    }

    /// Goes on until the power goes, or not so long.
    fn power_cut(&mut self) {
        for _ in 0..self.dice.below(4) {
            self.work_slice();
            self.write(80_000);
        }
        if self.power.is_off() {
            return self.cut();
        }
        let steps = self.dice.below(60);
        self.tell(format!("the power goes after {steps} steps"));
        self.power.set(steps);
        for _ in 0..12 {
            match self.dice.below(5) {
                0 => self.write(80_000),
                1 => self.write(6000),
                2 => self.flush(),
                3 if self.draws(2) => self.sync(),
                _ => self.work_slice(),
            }
            if self.power.is_off() {
                break;
            }
        }
        self.cut();
    }

    fn notice_power(&mut self) {
        if self.power.is_off() {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let away = self.away();
        self.cut_with(away);
    }

    /// `before` are the slots that lacked a complete member.
    fn cut_with(&mut self, before: usize) {
        self.tell("the power went");
        drop(self.flusher.take());
        self.power.set(u64::MAX);
        for disk in 0..self.disks.len() {
            let seed = self.dice.next();
            self.disks[disk].cut(seed);
        }
        // Whether a scrub began or was cancelled in that moment is not known.
        let owed = self.owed.take();
        self.assemble();
        let status = self.flusher().array().status();
        let scrub = self.flusher().array().superblock().scrub.map(|it| it.repair);
        assert!(owed.is_none() || scrub.is_some(), "a scrub is forgotten: {status:?}");
        self.owed = scrub;
        self.judge(before);
    }

    /// Holds the content after a kill or a power cut against what it may be. What is lost is written
    /// again; all else is what it is from now on.
    fn judge(&mut self, away_before: usize) {
        let may_lose = away_before > 0 || self.away() > 0;
        let mut found = vec![0; SPACE];
        let mut lost = Vec::new();
        for (number, block) in found.chunks_mut(BLOCK).enumerate() {
            let read = self.flusher().array().read((number * BLOCK) as u64, block);
            if let Err(error) = read {
                let is_allowed = may_lose && self.model.is_in_flux(number);
                assert!(is_allowed, "block {number} is lost: {error}");
                block.copy_from_slice(self.model.synced_block(number));
                lost.push(number);
            }
        }
        let made_up = self.model.made_up(&found);
        assert_eq!(made_up, None, "a sector that is neither old nor new");
        self.model.adopt(&found);
        let now = self.now;
        for number in lost {
            self.tell(format!("block {number} is lost"));
            let at = number * BLOCK;
            self.flusher().array().write(at as u64, &found[at..at + BLOCK], now).unwrap();
            self.sync();
        }
    }

    fn make_whole(&mut self) {
        self.wait().unwrap();
        while self.away() > 0 {
            let device = self.new_disk();
            self.flusher().add(device).unwrap();
            self.wait().unwrap();
        }
    }

    /// Ends all work, and sees that the array keeps what it promises. Returns the calls.
    pub fn finish(mut self) -> u64 {
        self.power.set(u64::MAX);
        self.wait().unwrap();
        assert_eq!(self.owed, None, "a scrub that was accepted never ended");
        self.check();
        self.make_whole();
        self.check();
        self.flusher().scrub(false).unwrap();
        self.owed = Some(false);
        self.wait().unwrap();
        assert_eq!(self.owed, None, "the last scrub never ended");
        let members = self.flusher().array().geometry().members();
        let first = self.dice.below(members as u64) as usize;
        for n in 0..self.redundancy() {
            let slot = (first + n) % members;
            self.tell(format!("slot {slot} fails"));
            self.flusher().fail(slot).unwrap();
            self.check();
        }
        self.flusher.take().expect("it is assembled").stop().unwrap();
        self.model.sync();
        self.assemble();
        self.check();
        let slots = self.flusher().array().superblock().slots;
        let is_there = |slot: &Slot| matches!(slot, Slot::Present(_) | Slot::Failed(_));
        assert!(slots.iter().all(is_there), "{slots:?}");
        self.calls
    }
}
