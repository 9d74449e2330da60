//! The findings of a scrub: each is passed to the caller in full, and each object is reported once
//! to the ledger.

use std::path::PathBuf;
use std::sync::Mutex;

use super::ScrubOutcome;
use crate::store::Store;
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentName;

/// What happened to a damaged part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The part was rewritten, and is durable.
    Mended,
    /// `repair` can rewrite the part.
    Repairable,
    /// The part cannot be repaired.
    Lost,
}

/// One damaged or missing part of a member or a stripe set.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Finding {
    /// The member, if the finding is about a single member.
    pub member: Option<usize>,
    /// The path of the member with the damaged part.
    #[serde(serialize_with = "pinstripe_base::units::lossy_path")]
    pub place: PathBuf,
    /// The object's name below the member: `packs/ab/ab12...`, `snapshots/...`; empty for the
    /// complete member.
    pub object: String,
    /// The kind of the part: `member`, `object`, `set`, `extent`, `header`, `strip` or `trailer`.
    pub part: &'static str,
    /// The row of a strip.
    pub row: Option<u64>,
    /// The offset of the part in the member's extent.
    pub offset: Option<u64>,
    /// The damage.
    pub what: String,
    /// The outcome.
    pub fate: Fate,
}

/// Receives and counts findings.
pub(super) struct Ledger<'a> {
    pub(super) monitor: &'a Monitor,
    store: &'a Store,
    report: &'a (dyn Fn(&Finding) + Sync),
    sums: Mutex<FindingSums>,
}

#[derive(Default, Clone)]
struct FindingSums {
    extents: u64,
    objects: u64,
    repairable: u64,
    lost: u64,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(
        store: &'a Store,
        monitor: &'a Monitor,
        report: &'a (dyn Fn(&Finding) + Sync),
    ) -> Self {
        Ledger { monitor, store, report, sums: Mutex::default() }
    }

    /// Reports a member that is missing.
    pub(super) fn absent(&self, member: usize, error: Error) {
        let finding = Finding { part: "member", ..self.finding(member, None, error.what()) };
        (self.report)(&finding);
        self.sums().repairable += 1;
        self.monitor.warning(finding.place, error);
    }

    /// Reports a member that was absent and has returned.
    pub(super) fn stale(&self, member: usize, what: String) {
        let finding = self.finding(member, None, &what);
        (self.report)(&Finding { part: "member", fate: Fate::Mended, ..finding });
    }

    /// Reports a small object of one member.
    pub(super) fn object(&self, member: usize, name: ExtentName, error: &Error, fate: Fate) {
        let mut finding = self.finding(member, Some(name), &error.to_string());
        finding.fate = fate;
        (self.report)(&finding);
        self.sums().objects += u64::from(fate == Fate::Mended);
        let text = format!("member {member}, {}", error.what());
        self.report(member, name, fate, text);
    }

    /// Reports parts of one member's extent, all with the same fate.
    pub(super) fn extent(&self, member: usize, name: ExtentName, parts: &[Finding], fate: Fate) {
        let Some(first) = parts.first() else { return };
        for part in parts {
            (self.report)(&Finding { fate, ..part.clone() });
        }
        let more = match parts.len() {
            1 => String::new(),
            parts => format!("; number of damaged parts: {}", parts),
        };
        self.sums().extents += u64::from(fate == Fate::Mended);
        self.report(member, name, fate, format!("{}{more}", first.what));
    }

    /// Reports a problem of a stripe set as a whole.
    pub(super) fn set(&self, name: ExtentName, error: Error, fate: Fate) {
        (self.report)(&Finding {
            member: None,
            place: PathBuf::new(),
            object: name.path(),
            part: "set",
            row: None,
            offset: None,
            what: error.to_string(),
            fate,
        });
        self.count(fate);
        match fate {
            Fate::Lost => self.monitor.loss(name.path(), error),
            _ => self.monitor.warning(name.path(), error.advice("run 'pinstripe repair'")),
        }
    }

    /// Returns a new finding about a member, to be completed by the caller.
    pub(super) fn finding(&self, member: usize, name: Option<ExtentName>, what: &str) -> Finding {
        Finding {
            member: Some(member),
            place: self.store.member_slots[member].place.clone(),
            object: name.map(|name| name.path()).unwrap_or_default(),
            part: "object",
            row: None,
            offset: None,
            what: what.to_owned(),
            fate: Fate::Repairable,
        }
    }

    pub(super) fn tally(&self, outcome: &mut ScrubOutcome) {
        let sums = self.sums().clone();
        outcome.mended_extents = sums.extents;
        outcome.mended_objects = sums.objects;
        outcome.repairable = sums.repairable;
        outcome.lost = sums.lost;
    }

    fn report(&self, member: usize, name: ExtentName, fate: Fate, text: String) {
        self.count(fate);
        let place = self.store.member_slots[member].place.join(name.path());
        match fate {
            Fate::Mended => {
                let text = format!("{text}; rewritten");
                self.monitor.warning(place, Error::new(Kind::Corrupt, text));
            }
            Fate::Repairable => {
                let error = Error::new(Kind::Corrupt, text);
                self.monitor.warning(place, error.advice("run 'pinstripe repair'"));
            }
            Fate::Lost => self.monitor.loss(place, Error::new(Kind::Corrupt, text)),
        }
    }

    fn count(&self, fate: Fate) {
        let mut sums = self.sums();
        match fate {
            Fate::Mended => self.monitor.add(Counter::RepairedExtents, 1),
            Fate::Repairable => sums.repairable += 1,
            Fate::Lost => sums.lost += 1,
        }
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, FindingSums> {
        lock(&self.sums)
    }
}
