//! The units of a runner, and the bytes that each is charged for.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use super::Ahead;
use super::cell::Cell;
use crate::planner::Presence;

/// The usage of the budget, in bytes and units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// The most bytes that may be charged.
    pub budget: u64,
    /// Bytes charged.
    pub charged: u64,
    /// The most bytes that were charged at any time.
    pub peak: u64,
    /// The number of units that wait for a thread.
    pub queued: u64,
    /// Bytes that readers requested and that were fetched for them.
    pub demanded: u64,
    /// Bytes that were prefetched.
    pub ahead: u64,
    /// Bytes that were prefetched and dropped unread.
    pub wasted: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CellStage {
    /// The unit waits for a thread.
    Queued,
    /// A thread is fetching the unit.
    Fetching,
    /// It is present.
    There,
}

struct CellSlot<U> {
    cell: Arc<Cell<U>>,
    bytes: u64,
    stage: CellStage,
    /// The object and range for which the unit was planned; `None` once it was read.
    origin: Option<(u64, Range<u64>)>,
    /// Whether the unit was read since the hand of the clock last passed.
    is_recent: bool,
    is_wanted: bool,
    /// The number of uses of the unit that known plans still have.
    pins: u32,
    /// Whether the fetch failed; the failed unit is kept only as long as it is pinned.
    is_failed: bool,
}

/// The result of pinning a unit of a known plan in the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pinning {
    /// The unit has a place now, and has to be fetched.
    New,
    /// It had one.
    Known,
    /// The budget has no room until another pin is released.
    NoRoom,
    /// The unit gets no place: no pin exists whose release could make room, or the runner has
    /// ended.
    Unplaced,
}

pub(super) struct State<K, U> {
    slots: HashMap<K, CellSlot<U>>,
    queue: VecDeque<K>,
    /// The keys of all slots, in the order in which the hand of the clock passes.
    clock: VecDeque<K>,
    dropped: HashMap<u64, Vec<Range<u64>>>,
    usage: BudgetUsage,
    /// Slots with pins.
    pinned: usize,
    is_over: bool,
}

impl<K: Copy + Eq + Hash, U> State<K, U> {
    pub(super) fn new(budget: u64) -> Self {
        State {
            slots: HashMap::new(),
            queue: VecDeque::new(),
            clock: VecDeque::new(),
            dropped: HashMap::new(),
            usage: BudgetUsage { budget, ..BudgetUsage::default() },
            pinned: 0,
            is_over: false,
        }
    }

    pub(super) fn presence(&self, key: &K) -> Presence {
        match self.slots.get(key) {
            None => Presence::Absent,
            Some(slot) if slot.stage == CellStage::There => Presence::Ready,
            Some(_) => Presence::InFlight,
        }
    }

    /// The cell of a unit for which a reader waits, and whether that reader has to fetch the unit.
    pub(super) fn demand(&mut self, key: K, bytes: u64) -> (Arc<Cell<U>>, bool) {
        if let Some(slot) = self.slots.get_mut(&key) {
            (slot.is_recent, slot.is_wanted, slot.origin) = (true, true, None);
            let is_ours = slot.stage == CellStage::Queued;
            if is_ours {
                slot.stage = CellStage::Fetching;
            }
            return (Arc::clone(&slot.cell), is_ours);
        }
        self.usage.demanded += bytes;
        let cell = Cell::empty();
        if self.make_room(bytes, true) {
            self.insert(key, bytes, CellStage::Fetching, None, Arc::clone(&cell));
        }
        (cell, true)
    }

    /// Adds a unit that will be read; returns whether a thread has to fetch it.
    pub(super) fn ahead(&mut self, ahead: Ahead<K>) -> bool {
        if let Some(slot) = self.slots.get_mut(&ahead.key) {
            // Neighbours in one unit are planned one after the other.
            slot.is_recent = true;
            return false;
        }
        if !self.make_room(ahead.bytes, false) {
            return false;
        }
        self.usage.ahead += ahead.bytes;
        self.insert(ahead.key, ahead.bytes, CellStage::Queued, Some(ahead.origin), Cell::empty());
        self.queue.push_back(ahead.key);
        true
    }

    fn insert(
        &mut self,
        key: K,
        bytes: u64,
        stage: CellStage,
        origin: Option<(u64, Range<u64>)>,
        cell: Arc<Cell<U>>,
    ) {
        self.usage.charged += bytes;
        self.usage.peak = self.usage.peak.max(self.usage.charged);
        let (is_recent, is_wanted, is_failed) = (true, true, false);
        let slot =
            CellSlot { cell, bytes, stage, origin, is_recent, is_wanted, pins: 0, is_failed };
        let before = self.slots.insert(key, slot);
        debug_assert!(before.is_none(), "a unit has one place");
        self.clock.push_back(key);
        debug_assert_eq!(self.clock.len(), self.slots.len(), "each unit is on the clock once");
        debug_assert!(self.usage.charged <= self.usage.budget, "no more is charged than there is");
    }

    /// Adds a use of a unit by a known plan. The unit is kept until it is unpinned as often as it
    /// was pinned.
    pub(super) fn pin(&mut self, key: K, bytes: u64) -> Pinning {
        if self.is_over {
            return Pinning::Unplaced;
        }
        let is_known = self.slots.contains_key(&key);
        if !is_known {
            // One that is longer than the budget has it alone.
            let bytes = bytes.min(self.usage.budget);
            if !self.make_room(bytes, true) {
                return match self.pinned {
                    0 => Pinning::Unplaced,
                    _ => Pinning::NoRoom,
                };
            }
            self.usage.ahead += bytes;
            self.insert(key, bytes, CellStage::Queued, None, Cell::empty());
        }
        let Some(slot) = self.slots.get_mut(&key) else { return Pinning::Unplaced };
        (slot.is_recent, slot.is_wanted, slot.origin) = (true, true, None);
        self.pinned += usize::from(slot.pins == 0);
        slot.pins += 1;
        match is_known {
            true => Pinning::Known,
            false => Pinning::New,
        }
    }

    /// Removes one use; returns whether it was the last one, so that there may be room now.
    pub(super) fn unpin(&mut self, key: &K) -> bool {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.pins > 0) else { return false };
        slot.pins -= 1;
        if slot.pins > 0 {
            return false;
        }
        debug_assert!(self.pinned > 0, "a unit that is unpinned was counted");
        self.pinned -= 1;
        // No reader will come for what was not begun yet.
        if slot.is_failed || slot.stage == CellStage::Queued {
            self.remove(key);
        }
        true
    }

    /// Gives a pinned unit to the threads that fetch; returns whether a thread has to fetch it.
    pub(super) fn start(&mut self, key: K) -> bool {
        let is_queued = self.slots.get(&key).is_some_and(|slot| slot.stage == CellStage::Queued);
        if is_queued && !self.is_over {
            self.queue.push_back(key);
        }
        is_queued
    }

    /// The next unit for a prefetching thread.
    pub(super) fn next(&mut self) -> Option<(K, Arc<Cell<U>>)> {
        while let Some(key) = self.queue.pop_front() {
            // A reader may have taken it, or it may not be wanted any more.
            if let Some(slot) = self.slots.get_mut(&key)
                && slot.stage == CellStage::Queued
            {
                slot.stage = CellStage::Fetching;
                return Some((key, Arc::clone(&slot.cell)));
            }
        }
        None
    }

    /// Charges a unit for its actual size, now that it is present; if that is larger than expected,
    /// other units are dropped.
    pub(super) fn charge(&mut self, key: &K, cell: &Arc<Cell<U>>, bytes: u64) {
        // One that is longer than the budget has it alone.
        let bytes = bytes.min(self.usage.budget);
        let slot = self.slots.get_mut(key).filter(|slot| Arc::ptr_eq(&slot.cell, cell));
        let Some(slot) = slot else { return };
        self.usage.charged = self.usage.charged - slot.bytes + bytes;
        slot.bytes = bytes;
        self.make_room(0, true);
        self.usage.peak = self.usage.peak.max(self.usage.charged);
    }

    /// Records that a fetch has ended. A failed unit is removed at once, unless it is pinned: then
    /// all of its uses get the same error.
    pub(super) fn arrived(&mut self, key: &K, cell: &Arc<Cell<U>>, is_unit: bool) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| Arc::ptr_eq(&slot.cell, cell))
        else {
            return;
        };
        slot.stage = CellStage::There;
        slot.is_failed = !is_unit;
        if !is_unit && slot.pins == 0 {
            self.remove(key);
        }
    }

    pub(super) fn unwanted(&mut self, object: u64, ranges: &[Range<u64>]) {
        let is_named = |slot: &CellSlot<U>| {
            slot.origin.as_ref().is_some_and(|(of, range)| *of == object && ranges.contains(range))
        };
        let named: Vec<K> =
            self.slots.iter().filter(|(_, slot)| is_named(slot)).map(|(key, _)| *key).collect();
        for key in named {
            match self.slots.get_mut(&key) {
                Some(slot) if slot.stage == CellStage::Fetching => {
                    (slot.is_wanted, slot.is_recent) = (false, false);
                }
                _ => self.waste(&key),
            }
        }
    }

    pub(super) fn take_dropped(&mut self, object: u64) -> Vec<Range<u64>> {
        self.dropped.remove(&object).unwrap_or_default()
    }

    /// Drops units until there is room for `bytes`. A reader's unit may replace any unit that no
    /// reader holds; a prefetched unit may replace only units that were read or are no longer
    /// wanted.
    fn make_room(&mut self, bytes: u64, for_reader: bool) -> bool {
        if bytes > self.usage.budget {
            return false;
        }
        // Each unit loses its mark in the first round, and goes in the second.
        let mut left = 2 * self.clock.len();
        while self.usage.charged + bytes > self.usage.budget && left > 0 {
            left -= 1;
            let Some(key) = self.clock.pop_front() else { break };
            self.clock.push_back(key);
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            let is_unread = slot.origin.is_some() && slot.is_wanted;
            let may_go = slot.stage == CellStage::There
                && slot.pins == 0
                && !slot.cell.is_held()
                && (for_reader || !is_unread)
                && !std::mem::take(&mut slot.is_recent);
            if may_go {
                self.waste(&key);
            }
        }
        self.usage.charged + bytes <= self.usage.budget
    }

    /// Drops a unit, and if it was never read, records this for its planner.
    fn waste(&mut self, key: &K) {
        let Some(slot) = self.remove(key) else { return };
        let Some((object, range)) = slot.origin else { return };
        if slot.stage == CellStage::There {
            self.usage.wasted += slot.bytes;
        }
        if slot.is_wanted {
            self.dropped.entry(object).or_default().push(range);
        }
    }

    fn remove(&mut self, key: &K) -> Option<CellSlot<U>> {
        let slot = self.slots.remove(key)?;
        debug_assert!(self.usage.charged >= slot.bytes, "a unit that is dropped was charged");
        debug_assert!(slot.pins == 0, "a pinned unit stays");
        self.usage.charged -= slot.bytes;
        if let Some(at) = self.clock.iter().rposition(|other| other == key) {
            self.clock.remove(at);
        }
        Some(slot)
    }

    pub(super) fn usage(&self) -> BudgetUsage {
        BudgetUsage { queued: self.queue.len() as u64, ..self.usage }
    }

    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.queue.clear();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}
