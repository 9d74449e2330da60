//! Changes of an array between two observations, in the words of `mdadm --monitor`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::detail::{Detail, SlotDetail, SlotStateDetail};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrayEvent {
    /// The name of the event: `Fail`, `SpareActive`, `RebuildStarted`, `RebuildFinished`,
    /// `Rebuild20` and further steps of 20, `DegradedArray`, `NewSpare`, `MismatchFound`,
    /// `BlocksHealed`, `FailedArray`.
    pub what: String,
    /// The device concerned.
    pub device: Option<PathBuf>,
    /// The slot.
    pub slot: Option<usize>,
    /// The number that belongs to the event: a number of blocks, or percent.
    pub count: Option<u64>,
    /// Why the device failed, if that is known.
    #[serde(default)]
    pub reason: Option<String>,
}

impl ArrayEvent {
    /// An event that concerns the entire array.
    pub(super) fn new(what: impl Into<String>) -> Self {
        let (device, slot, count, reason) = Default::default();
        ArrayEvent { what: what.into(), device, slot, count, reason }
    }

    fn for_slot(what: &str, slot: &SlotDetail) -> Self {
        let device = slot.device.clone();
        ArrayEvent { device, slot: Some(slot.slot), ..Self::new(what) }
    }

    /// An event with a number.
    pub(super) fn counting(what: impl Into<String>, count: u64) -> Self {
        ArrayEvent { count: Some(count), ..Self::new(what) }
    }
}

/// The changes between two observations, the most serious one last.
pub fn between(before: &Detail, now: &Detail) -> Vec<ArrayEvent> {
    let mut events = Vec::new();
    for (old, new) in before.slots.iter().zip(&now.slots) {
        // A failed member's device may be forgotten at once: use its old path.
        let named = if new.device.is_some() { new } else { old };
        let what = match (old.state, new.state) {
            (SlotStateDetail::InSync, SlotStateDetail::Failed | SlotStateDetail::Missing) => "Fail",
            (SlotStateDetail::Rebuilding, SlotStateDetail::Failed | SlotStateDetail::Missing) => {
                "FailSpare"
            }
            // It failed, and was added again or replaced before this observation.
            (SlotStateDetail::InSync, SlotStateDetail::Rebuilding) => {
                let reason = new.reason.clone();
                events.push(ArrayEvent { reason, ..ArrayEvent::for_slot("Fail", old) });
                continue;
            }
            (_, SlotStateDetail::InSync) if old.state != SlotStateDetail::InSync => "SpareActive",
            _ => continue,
        };
        let (slot, is_failed) = (Some(new.slot), what != "SpareActive");
        let reason = new.reason.clone().filter(|_| is_failed);
        events.push(ArrayEvent { slot, reason, ..ArrayEvent::for_slot(what, named) });
    }
    for spare in now.spares.iter().filter(|spare| !before.spares.contains(spare)) {
        events.push(ArrayEvent { device: Some(spare.clone()), ..ArrayEvent::new("NewSpare") });
    }
    events.extend(of_work(before, now));
    if now.mismatches > before.mismatches {
        events.push(ArrayEvent::counting("MismatchFound", now.mismatches - before.mismatches));
    }
    let healed = |it: &Detail| it.slots.iter().map(|slot| slot.errors.healed).sum::<u64>();
    if healed(now) > healed(before) {
        events.push(ArrayEvent::counting("BlocksHealed", healed(now) - healed(before)));
    }
    if now.degraded() > before.degraded() {
        events.push(ArrayEvent::counting("DegradedArray", now.degraded() as u64));
    }
    if before.is_usable && !now.is_usable {
        events.push(ArrayEvent::new("FailedArray"));
    }
    events
}

/// Events about work that began, ended, or completed a further fifth.
fn of_work(before: &Detail, now: &Detail) -> Vec<ArrayEvent> {
    let fifths = |detail: &Detail| {
        let work = detail.work.as_ref()?;
        Some((work.kind.clone(), work.done_bytes * 5 / work.all_bytes.max(1)))
    };
    let percent =
        |fifths: u64| ArrayEvent::counting(format!("Rebuild{}", 20 * fifths), 20 * fifths);
    match (fifths(before), fifths(now)) {
        (None, Some((_, done))) => {
            let mut events = vec![ArrayEvent::new("RebuildStarted")];
            events.extend((1..=done.min(4)).map(percent));
            events
        }
        (Some(_), None) => vec![ArrayEvent::new("RebuildFinished")],
        (Some((old, _)), Some((new, _))) if old != new => {
            vec![ArrayEvent::new("RebuildFinished"), ArrayEvent::new("RebuildStarted")]
        }
        (Some((_, old)), Some((_, new))) => (old + 1..=new.min(4)).map(percent).collect(),
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::detail::{WorkDetail, testing::detail};

    fn describe(before: &Detail, now: &Detail) -> Vec<String> {
        between(before, now).into_iter().map(|event| event.what).collect()
    }

    fn with_work(done: u64) -> Detail {
        let work = WorkDetail {
            kind: "recover".into(),
            done_bytes: done,
            all_bytes: 100,
            bytes_per_second: 0,
        };
        Detail { work: Some(work), ..detail() }
    }

    #[test]
    fn nothing_happens_while_nothing_changes() {
        assert_eq!(describe(&detail(), &detail()), Vec::<String>::new());
        assert_eq!(describe(&with_work(21), &with_work(39)), Vec::<String>::new());
    }

    #[test]
    fn a_member_that_fails_and_one_that_comes() {
        let (whole, mut failed) = (detail(), detail());
        failed.slots[1].state = SlotStateDetail::Failed;
        failed.slots[1].device = None;
        assert_eq!(describe(&whole, &failed), ["Fail", "DegradedArray"]);
        let event = &between(&whole, &failed)[0];
        assert_eq!((event.slot, event.device.clone()), (Some(1), whole.slots[1].device.clone()));
        assert_eq!(describe(&failed, &whole), ["SpareActive"]);
        let mut added = detail();
        added.slots[1].state = SlotStateDetail::Rebuilding;
        assert_eq!(describe(&whole, &added), ["Fail", "DegradedArray"]);
        failed.slots[2].state = SlotStateDetail::Failed;
        failed.is_usable = false;
        assert_eq!(describe(&whole, &failed), ["Fail", "Fail", "DegradedArray", "FailedArray"]);
    }

    #[test]
    fn work_is_told_in_fifths() {
        assert_eq!(describe(&detail(), &with_work(0)), ["RebuildStarted"]);
        assert_eq!(describe(&with_work(0), &with_work(45)), ["Rebuild20", "Rebuild40"]);
        assert_eq!(describe(&with_work(79), &with_work(100)), ["Rebuild80"]);
        assert_eq!(describe(&with_work(90), &detail()), ["RebuildFinished"]);
    }

    #[test]
    fn what_a_scrub_finds_is_counted() {
        let found = Detail { mismatches: 3, ..detail() };
        let events = between(&detail(), &found);
        assert_eq!((&*events[0].what, events[0].count), ("MismatchFound", Some(3)));
    }
}
