//! Handles control requests for an array open in this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::Register;
use super::counted::counted;
use super::detail::{
    Detail, ErrorCounts, MismatchDetail, ReportDetail, Served, SlotDetail, SlotStateDetail,
    WorkDetail, consistency, granule_text,
};
use super::knobs::{Knob, speed_text};
use super::register::is_same;
use super::request::{Reply, Request};
use crate::engine::{self, Mismatch, SlotStatus, WorkKind, WorkReport, WorkStatus};
use crate::plan::{RmwLevel, Rules};
use crate::set::MemberSet;
use crate::volume::Volume;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::fault::Plan;

/// Handles requests for an array that is open.
pub trait ControlHandler: Send + Sync {
    /// Answers a request about the array in its present state. The server itself handles requests
    /// for events and for stopping.
    ///
    /// # Errors
    /// Returns the reason why the request failed.
    fn answer(&self, request: &Request) -> Result<Reply>;

    /// The present state of the array.
    fn detail(&self) -> Detail;

    /// Records the addresses at which the array is served.
    fn served_as(&self, served: Served);

    /// Records the generation of the array in the register, so that older members that are found
    /// alone are not mistaken for the array.
    fn note_generation(&self) {}

    /// Writes everything, and closes the array cleanly.
    ///
    /// # Errors
    /// Returns the reason why not everything was written.
    fn close(&self) -> Result<()>;
}

/// A running array, and the state of its server.
pub struct ArrayController {
    /// The array.
    pub volume: Arc<Volume>,
    name: String,
    register: Register,
    faults: Plan,
    served: OnceLock<Served>,
    /// Held while the register is changed.
    turn: Mutex<()>,
    /// The generation that is recorded in the register.
    noted: AtomicU64,
    /// A copy of the rules that were last set, so that a reader does not have to wait for the
    /// flusher.
    rules: Mutex<Rules>,
}

impl ArrayController {
    /// A handler for an opened array; applies the array's settings from the register.
    ///
    /// # Errors
    /// Fails with the errors of the register; fails also for invalid settings in it.
    pub fn new(
        name: &str,
        volume: Arc<Volume>,
        register: &Register,
        faults: &Plan,
    ) -> Result<Self> {
        let rules = Mutex::new(volume.with(|it| it.rules));
        let controller = ArrayController {
            volume,
            name: name.to_owned(),
            register: register.clone(),
            faults: faults.clone(),
            served: OnceLock::new(),
            turn: Mutex::new(()),
            noted: AtomicU64::new(0),
            rules,
        };
        for (knob, value) in &register.read(name)?.settings {
            controller.turn(Knob::parse(knob, value)?)?;
        }
        Ok(controller)
    }

    /// The faults that are planned for the array's members.
    pub(super) fn faults(&self) -> &Plan {
        &self.faults
    }

    /// Whether the register lists a device as one of this array.
    pub(super) fn knows(&self, device: &Path) -> Result<bool> {
        Ok(knows_device(&self.register.read(&self.name)?.devices, device))
    }

    /// Records a removed device and an added one in the register.
    pub(super) fn note(&self, gone: Option<&Path>, came: Option<&Path>) -> Result<()> {
        let _turn = lock(&self.turn);
        let mut entry = self.register.read(&self.name)?;
        if let Some(gone) = gone {
            // Other devices, which may not answer, are examined only if no path is this one.
            match entry.devices.iter().any(|known| known == gone) {
                true => entry.devices.retain(|known| known != gone),
                false => entry.devices.retain(|known| !is_same(known, gone)),
            }
        }
        if let Some(came) = came.filter(|it| !knows_device(&entry.devices, it)) {
            entry.devices.push(came.to_path_buf());
        }
        self.register.write(&entry)
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let settings = self.volume.settings();
        let Rules { granule, rmw } = *lock(&self.rules);
        let rmw = match rmw {
            RmwLevel::Never => 0,
            RmwLevel::Fewer => 1,
            RmwLevel::FewerOrEqual => 2,
        };
        [
            ("stripe_size", granule_text(granule)),
            ("stripe_cache_size", settings.cache_bytes.to_string()),
            ("rmw_level", rmw.to_string()),
            ("sync_speed_min", speed_text(settings.speed_limit_min)),
            ("sync_speed_max", speed_text(settings.speed_limit_max)),
            ("write_deadline", settings.deadline.as_millis().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn work(&self, work: &WorkStatus) -> WorkDetail {
        WorkDetail {
            kind: work_word(work.kind).to_owned(),
            done_bytes: work.done_bytes,
            all_bytes: work.of_bytes,
            bytes_per_second: self.volume.work_rate(),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<Reply> {
        let knob = Knob::parse(name, value)?;
        self.turn(knob)?;
        if knob.is_kept() {
            let _turn = lock(&self.turn);
            let mut entry = self.register.read(&self.name)?;
            entry.settings.insert(name.to_owned(), value.to_owned());
            self.register.write(&entry)?;
        }
        Ok(done(format!("{name} is now {value}")))
    }

    fn rule(&self, change: impl FnOnce(&mut Rules) + Send) -> Result<()> {
        let rules = self.volume.with(|it| {
            change(&mut it.rules);
            it.rules
        });
        *lock(&self.rules) = rules;
        Ok(())
    }

    fn turn(&self, knob: Knob) -> Result<()> {
        let volume = &self.volume;
        match knob {
            Knob::Granule(granule) => {
                volume.with(|it| it.set_granule(granule))?;
                self.rule(|rules| rules.granule = granule)
            }
            Knob::Rmw(level) => self.rule(|rules| rules.rmw = level),
            Knob::CacheBytes(bytes) => volume.set(|it| it.cache_bytes = bytes),
            Knob::SpeedMin(bytes) => volume.set(|it| {
                it.speed_limit_min = bytes;
                it.speed_limit_max = it.speed_limit_max.max(bytes);
            }),
            Knob::SpeedMax(bytes) => volume.set(|it| {
                it.speed_limit_max = bytes;
                it.speed_limit_min = it.speed_limit_min.min(bytes);
            }),
            Knob::Deadline(deadline) => volume.set(|it| it.deadline = deadline),
            Knob::Scrub(repair) => volume.with(|it| it.scrub(repair)),
            Knob::Idle => {
                if let Some(cancelled) = volume.with(|it| it.cancel_work())? {
                    volume.keep_report(cancelled);
                }
                Ok(())
            }
        }
    }
}

impl ControlHandler for ArrayController {
    fn answer(&self, request: &Request) -> Result<Reply> {
        match request {
            Request::Detail => Ok(Reply::Detail(Box::new(self.detail()))),
            Request::Set { name, value } => self.set(name, value),
            Request::Check { acts } => {
                self.check(acts).map(|()| done("the array can use the devices".to_owned()))
            }
            Request::Manage { act } => self.manage(act).map(done),
            Request::Scrub { repair } => {
                self.turn(Knob::Scrub(*repair))?;
                Ok(done(format!(
                    "the {} of the array has started",
                    if *repair { "repair" } else { "check" }
                )))
            }
            Request::Grow { raid_devices, add, force } => {
                self.grow(*raid_devices, add.as_deref(), *force).map(done)
            }
            Request::ChangeLevel { level, add, force } => {
                self.change_level(level, add.as_deref(), *force).map(done)
            }
            Request::GrowSize => self.grow_size().map(done),
            Request::Cancel => {
                self.turn(Knob::Idle)?;
                Ok(done("the check or repair of the array was stopped".to_owned()))
            }
            Request::Events | Request::Stop { .. } => {
                Err(Error::new(Kind::Unsupported, "this array is not served"))
            }
        }
    }

    fn detail(&self) -> Detail {
        let status = self.volume.array().status();
        let absent: MemberSet = status
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.state != engine::SlotState::Present)
            .map(|(slot, _)| slot)
            .collect();
        Detail {
            name: self.name.clone(),
            metadata: "pinstripe".to_owned(),
            array: status.array.to_string(),
            level: status.level.to_string(),
            layout: status.layout.to_string(),
            chunk_bytes: status.chunk_bytes.into(),
            capacity_bytes: status.capacity_bytes,
            member_bytes: status.member_bytes,
            made_seconds: status.made_seconds,
            generation: status.generation,
            consistency: consistency(status.consistency).to_owned(),
            is_clean: status.dirty_bytes == 0,
            is_usable: self.volume.array().survives(absent) && self.volume.error().is_none(),
            served: self.served.get().cloned(),
            slots: status.slots.iter().enumerate().map(slot_detail).collect(),
            spares: status.spares.clone(),
            work: status.work.as_ref().map(|work| self.work(work)),
            reports: self.volume.reports().into_iter().map(report).collect(),
            mismatches: status.mismatches,
            dirty_bytes: status.dirty_bytes,
            settings: self.settings(),
            counters: counted(&self.volume.counters()),
        }
    }

    fn served_as(&self, served: Served) {
        let _ = self.served.set(served);
    }

    fn note_generation(&self) {
        let superblock = self.volume.array().superblock();
        if self.noted.load(Ordering::Relaxed) == superblock.generation {
            return;
        }
        let _turn = lock(&self.turn);
        let Ok(mut entry) = self.register.read(&self.name) else { return };
        if entry.array == superblock.array.to_string() && entry.generation < superblock.generation {
            entry.generation = superblock.generation;
            // The noted generation is only a safeguard: an array whose register cannot be written
            // continues, and the next call tries again.
            if self.register.write(&entry).is_err() {
                return;
            }
        }
        self.noted.store(superblock.generation, Ordering::Relaxed);
    }

    fn close(&self) -> Result<()> {
        let stopped = self.volume.stop();
        self.note_generation();
        stopped
    }
}

/// Whether one of these devices is this one. They are examined only if no path is equal.
fn knows_device(known: &[PathBuf], device: &Path) -> bool {
    known.iter().any(|it| it == device) || known.iter().any(|it| is_same(it, device))
}

fn report((number, it): (u64, WorkReport)) -> ReportDetail {
    let mismatch = |it: Mismatch| MismatchDetail {
        slot: it.slot,
        device: it.path,
        member_offset: it.member_offset,
        is_mended: it.is_mended,
    };
    ReportDetail {
        number,
        kind: work_word(it.kind).to_owned(),
        slot: it.slot,
        device: it.path,
        reason: it.reason,
        is_finished: it.is_finished,
        bytes: it.bytes,
        lost_blocks: it.lost_blocks,
        mismatches: it.mismatches.into_iter().map(mismatch).collect(),
    }
}

/// md's word for the work in progress.
fn work_word(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Rebuild | WorkKind::Recover | WorkKind::Replace => "recover",
        WorkKind::Resync => "resync",
        WorkKind::Check => "check",
        WorkKind::Repair => "repair",
        WorkKind::Grow => "reshape",
    }
}

fn done(said: String) -> Reply {
    Reply::Done { said }
}

fn slot_detail((number, slot): (usize, &SlotStatus)) -> SlotDetail {
    let state = match slot.state {
        engine::SlotState::Present => SlotStateDetail::InSync,
        engine::SlotState::Rebuilding => SlotStateDetail::Rebuilding,
        engine::SlotState::Failed => SlotStateDetail::Failed,
        engine::SlotState::Missing => SlotStateDetail::Missing,
    };
    let engine::Errors { reads, checksums, healed, bad_blocks } = slot.errors;
    SlotDetail {
        slot: number,
        state,
        member: slot.member.map(|it| it.to_string()),
        device: slot.path.clone(),
        replacement: slot.replacement.clone(),
        reason: slot.reason.clone(),
        errors: ErrorCounts { reads, checksums, healed, bad_blocks },
    }
}
