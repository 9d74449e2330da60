//! A simulated cluster of servers in virtual time, which shows the effect of a read-ahead rule on a
//! reader of records.
//!
//! The model: a record is on one of `lanes` servers, selected by a hash of its number; a server
//! answers one request after the other, each in `service`; a request takes `latency` in each
//! direction, and all answers share one link. With 24 servers, the model reproduces within 20 % the
//! published figures of a Ceph cluster read by a program that gives advice (ceph-devel, July 2013):
//! collisions on servers limit the rate, not the network. The throughput at a fixed depth follows
//! X(Q) = Xmax * Q / (Q + lanes
//! - 1).

pub mod patterns;
pub mod rules;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use pinstripe_base::random::splitmix64;

use crate::planner::Presence;

/// Bytes of a record.
pub const RECORD: u64 = 4 << 20;

const MILLI: u64 = 1_000_000;

/// A cluster, with times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    /// Servers.
    pub lanes: usize,
    /// The time that a server takes for a record.
    pub service: u64,
    /// The time that a request or an answer takes in one direction.
    pub latency: u64,
    /// The time that the link takes for a record.
    pub transfer: u64,
    /// The seed that determines which server has which record.
    pub seed: u64,
}

impl Cluster {
    /// 24 servers that take 57 ms for 4 MiB, with a latency of 11 ms in each direction and a link
    /// of 1,030 MB/s.
    pub fn far24(seed: u64) -> Self {
        let transfer = RECORD * 1000 / 1030;
        Cluster { lanes: 24, service: 57 * MILLI, latency: 11 * MILLI, transfer, seed }
    }

    fn lane(&self, record: u64) -> usize {
        let mut state = record.wrapping_add(self.seed << 40);
        (splitmix64(&mut state) % self.lanes as u64) as usize
    }
}

/// A read-ahead rule.
pub trait Rule {
    /// Processes a read of `record` at time `now`; `found` says whether it was present; returns
    /// what to fetch.
    fn read(&mut self, now: u64, record: u64, found: Presence) -> Vec<u64>;

    /// Tells the rule that a record was dropped before it was read.
    fn dropped(&mut self, _record: u64) {}

    /// The records that are no longer wanted, since the last call.
    fn take_unwanted(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// The results of a simulated reader.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedRun {
    /// MB per second.
    pub rate: f64,
    /// The number of records fetched in vain per record that the reader read.
    pub waste: f64,
    /// The most records in memory or in flight at any time.
    pub peak: usize,
}

/// Reads `pattern` record by record, each as soon as the previous one is present.
pub fn run(cluster: &Cluster, pattern: &[u64], rule: &mut dyn Rule, budget: usize) -> SimulatedRun {
    let mut state = State::new(cluster);
    let mut fetched = 0u64;
    let mut used = 0u64;
    for &record in pattern {
        state.advance(state.now);
        let found = state.found(record);
        let next = rule.read(state.now, record, found);
        if found == Presence::Absent {
            state.issue(record);
        } else if state.ahead.remove(&record).is_some() {
            used += 1;
        }
        for unwanted in rule.take_unwanted() {
            state.forget(unwanted);
        }
        for record in next {
            if state.found(record) == Presence::Absent {
                fetched += 1;
                state.issue(record);
                state.ahead.insert(record, state.now);
            }
        }
        while state.ahead.len() > budget {
            let oldest = state.ahead.iter().min_by_key(|(_, at)| **at).map(|(record, _)| *record);
            let Some(oldest) = oldest else { break };
            state.forget(oldest);
            rule.dropped(oldest);
        }
        state.wait(record);
        if !state.ahead.contains_key(&record) {
            state.arrived.remove(&record);
        }
        state.peak = state.peak.max(state.ahead.len());
    }
    let seconds = state.now as f64 / 1e9;
    let bytes = pattern.len() as f64 * RECORD as f64;
    SimulatedRun {
        rate: bytes / 1e6 / seconds,
        waste: (fetched - used) as f64 / pattern.len() as f64,
        peak: state.peak,
    }
}

struct State<'c> {
    cluster: &'c Cluster,
    now: u64,
    lane_free: Vec<u64>,
    link_free: u64,
    /// Requests, ordered by the time at which their server completes them.
    served: BinaryHeap<Reverse<(u64, u64)>>,
    /// The time when the answer for a record is present, once that is known.
    arrived: HashMap<u64, u64>,
    /// Requests whose answers have not reached the link yet.
    waiting: HashSet<u64>,
    /// Records that were prefetched and not read, with the time since when.
    ahead: BTreeMap<u64, u64>,
    peak: usize,
}

impl<'c> State<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        State {
            cluster,
            now: 0,
            lane_free: vec![0; cluster.lanes],
            link_free: 0,
            served: BinaryHeap::new(),
            arrived: HashMap::new(),
            waiting: HashSet::new(),
            ahead: BTreeMap::new(),
            peak: 0,
        }
    }

    fn found(&self, record: u64) -> Presence {
        match self.arrived.get(&record) {
            Some(&at) if at <= self.now => Presence::Ready,
            Some(_) => Presence::InFlight,
            None if self.waiting.contains(&record) => Presence::InFlight,
            None => Presence::Absent,
        }
    }

    fn issue(&mut self, record: u64) {
        let free = &mut self.lane_free[self.cluster.lane(record)];
        let done = (*free).max(self.now + self.cluster.latency) + self.cluster.service;
        *free = done;
        self.waiting.insert(record);
        self.served.push(Reverse((done, record)));
    }

    /// Puts the answers that servers complete by `until` onto the link.
    fn advance(&mut self, until: u64) {
        while let Some(&Reverse((done, _))) = self.served.peek()
            && done <= until
        {
            self.send();
        }
    }

    fn send(&mut self) {
        let Some(Reverse((done, record))) = self.served.pop() else { return };
        self.link_free = self.link_free.max(done) + self.cluster.transfer;
        self.waiting.remove(&record);
        self.arrived.insert(record, self.link_free + self.cluster.latency);
    }

    fn wait(&mut self, record: u64) {
        while !self.arrived.contains_key(&record) {
            self.send();
        }
        self.now = self.now.max(self.arrived[&record]);
    }

    fn forget(&mut self, record: u64) {
        self.ahead.remove(&record);
        self.arrived.remove(&record);
    }
}
