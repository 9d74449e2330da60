//! Events of several arrays between two observations, in the words of `mdadm --monitor`.
//!
//! The watcher does not need a process that serves the array: without one, it reads the
//! superblocks. This module only decides which events there are; the caller reports them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Register;
use super::detail::{self, Detail};
use super::events::{ArrayEvent, between};
use super::open::{Reached, server};
use pinstripe_base::error::{Kind, Result};

/// An observation of an array.
#[derive(Debug)]
pub enum Sight {
    /// The state could be read.
    Seen(Box<Detail>),
    /// No array has the name, or no device of it can be read.
    Gone,
    /// The state could not be read this time.
    Unknown,
}

/// Observes an array without opening it; waits up to `patience` for each line of the process that
/// serves it.
///
/// # Errors
/// Returns [`Sight::Unknown`] if the process that serves the array does not answer, for example
/// because it is just starting.
pub fn sight(name: &str, register: &Register, patience: Duration) -> Result<Sight> {
    match look_within(name, register, patience) {
        Ok(detail) => Ok(Sight::Seen(Box::new(detail))),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::TooManyLosses) => {
            Ok(Sight::Gone)
        }
        Err(error) => Err(error),
    }
}

fn look_within(name: &str, register: &Register, patience: Duration) -> Result<Detail> {
    match server(name, register)? {
        Some(client) => {
            client.set_timeout(Some(patience))?;
            Reached::There(client).detail()
        }
        None => detail::of_devices(name, register),
    }
}

/// The last observation of each array.
#[derive(Debug, Default)]
pub struct Watcher {
    /// The last observations by name; `None` for an array that has disappeared.
    seen: BTreeMap<String, Option<Detail>>,
    /// Whether arrays that are seen for the first time are reported.
    tells_new: bool,
}

impl Watcher {
    /// A watcher that has seen no array yet. With `tells_new`, the arrays of the first observation
    /// count as new.
    pub fn new(tells_new: bool) -> Self {
        Watcher { seen: BTreeMap::new(), tells_new }
    }

    /// Takes one observation of all watched arrays, and returns the events since the previous one,
    /// each with the name of its array. An array whose name is missing in `sights` is gone.
    pub fn take(&mut self, sights: Vec<(String, Sight)>) -> Vec<(String, ArrayEvent)> {
        let mut told = Vec::new();
        let is_absent = |name: &String| !sights.iter().any(|(there, _)| there == name);
        let absent: Vec<_> = self.seen.keys().filter(|name| is_absent(name)).cloned().collect();
        for name in absent {
            if self.seen.remove(&name).flatten().is_some() {
                told.push((name, ArrayEvent::new("DeviceDisappeared")));
            }
        }
        for (name, sight) in sights {
            let events = self.of_array(&name, sight);
            told.extend(events.into_iter().map(|event| (name.clone(), event)));
        }
        self.tells_new = true;
        told
    }

    fn of_array(&mut self, name: &str, sight: Sight) -> Vec<ArrayEvent> {
        let now = match sight {
            Sight::Seen(now) => *now,
            Sight::Unknown => return Vec::new(),
            Sight::Gone => {
                let before = self.seen.insert(name.to_owned(), None);
                let was_gone = matches!(before, Some(None));
                let told = if was_gone { None } else { Some(ArrayEvent::new("DeviceDisappeared")) };
                return told.into_iter().collect();
            }
        };
        let events = match self.seen.get(name) {
            Some(Some(before)) if before.array == now.array => since(before, &now),
            None if !self.tells_new => at_first(&now),
            _ => [vec![ArrayEvent::new("NewArray")], at_first(&now)].concat(),
        };
        self.seen.insert(name.to_owned(), Some(now));
        events
    }
}

/// The problems of an array that is seen for the first time.
fn at_first(now: &Detail) -> Vec<ArrayEvent> {
    let mut events = Vec::new();
    if !now.is_usable {
        events.push(ArrayEvent::new("FailedArray"));
    } else if now.degraded() > 0 {
        events.push(ArrayEvent::counting("DegradedArray", now.degraded() as u64));
    }
    if now.served.is_none() {
        events.push(ArrayEvent::new("NobodyServes"));
    }
    events
}

/// The changes between two observations of one array.
fn since(before: &Detail, now: &Detail) -> Vec<ArrayEvent> {
    let mut events = between(before, now);
    match (&before.served, &now.served) {
        (Some(_), None) => events.push(ArrayEvent::new("NobodyServes")),
        (None, Some(_)) => events.push(ArrayEvent::new("ServedAgain")),
        _ => {}
    }
    events
}

/// An event for every array, which only tests that program, mail and webhook are reached.
pub fn test_message() -> ArrayEvent {
    ArrayEvent::new("TestMessage")
}

/// Whether an event deserves a mail: something is lost or may soon be lost.
pub fn is_grave(event: &ArrayEvent) -> bool {
    const GRAVE: [&str; 7] = [
        "Fail",
        "FailSpare",
        "DegradedArray",
        "FailedArray",
        "DeviceDisappeared",
        "NobodyServes",
        "TestMessage",
    ];
    GRAVE.contains(&&*event.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::detail::{Served, SlotStateDetail, testing::detail};

    fn look(watcher: &mut Watcher, sights: Vec<(&str, Sight)>) -> Vec<String> {
        let sights = sights.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        let told = watcher.take(sights).into_iter();
        told.map(|(name, event)| format!("{name} {}", event.what)).collect()
    }

    fn seen(detail: &Detail) -> Sight {
        Sight::Seen(Box::new(detail.clone()))
    }

    fn served() -> Detail {
        Detail { served: Some(Served { process: 1, exports: Vec::new() }), ..detail() }
    }

    #[test]
    fn what_is_wrong_at_the_first_look_is_told_once() {
        let mut degraded = detail();
        degraded.slots[0].state = SlotStateDetail::Missing;
        let mut watcher = Watcher::new(false);
        let told = look(&mut watcher, vec![("a", seen(&served())), ("b", seen(&degraded))]);
        assert_eq!(told, ["b DegradedArray", "b NobodyServes"]);
        assert!(
            look(&mut watcher, vec![("a", seen(&served())), ("b", seen(&degraded))]).is_empty()
        );
        let told = look(&mut Watcher::new(true), vec![("a", seen(&served()))]);
        assert_eq!(told, ["a NewArray"]);
    }

    #[test]
    fn arrays_come_and_go() {
        let mut watcher = Watcher::new(false);
        assert!(look(&mut watcher, vec![("a", seen(&served()))]).is_empty());
        let both = || vec![("a", seen(&served())), ("b", seen(&served()))];
        assert_eq!(look(&mut watcher, both()), ["b NewArray"]);
        let gone = |sight| vec![("a", sight), ("b", seen(&served()))];
        assert_eq!(look(&mut watcher, gone(Sight::Gone)), ["a DeviceDisappeared"]);
        assert!(look(&mut watcher, gone(Sight::Gone)).is_empty());
        assert_eq!(look(&mut watcher, both()), ["a NewArray"]);
        // The register forgot it.
        assert_eq!(look(&mut watcher, vec![("b", seen(&served()))]), ["a DeviceDisappeared"]);
        // Another array has the name.
        let other = Detail { array: "1".repeat(32), ..served() };
        assert_eq!(look(&mut watcher, vec![("b", seen(&other))]), ["b NewArray"]);
    }

    #[test]
    fn a_server_that_restarts_is_followed() {
        let mut watcher = Watcher::new(false);
        assert!(look(&mut watcher, vec![("a", seen(&served()))]).is_empty());
        assert_eq!(look(&mut watcher, vec![("a", seen(&detail()))]), ["a NobodyServes"]);
        assert!(look(&mut watcher, vec![("a", Sight::Unknown)]).is_empty());
        assert_eq!(look(&mut watcher, vec![("a", seen(&served()))]), ["a ServedAgain"]);
        let mut failed = served();
        failed.slots[1].state = SlotStateDetail::Failed;
        assert_eq!(look(&mut watcher, vec![("a", seen(&failed))]), ["a Fail", "a DegradedArray"]);
    }

    #[test]
    fn what_is_lost_or_about_to_be_is_grave() {
        assert!(is_grave(&ArrayEvent::new("Fail")) && is_grave(&test_message()));
        assert!(!is_grave(&ArrayEvent::new("RebuildFinished")));
    }
}
