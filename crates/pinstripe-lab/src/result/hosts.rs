//! Results of several machines that measured together: who they were, and what each found.

use serde::{Deserialize, Serialize};

use super::{Results, Run, Variant};
use crate::fingerprint::Fingerprint;

/// One of the machines that measured together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The address given for it: `HOST:PORT`.
    pub address: String,
    /// The machine's own name.
    pub name: String,
    /// The difference between its clock and that of the coordinator; `None` if the host was lost
    /// before the clocks were compared.
    pub clock: Option<ClockDifference>,
    /// The machine, and the places on it that were measured.
    pub fingerprint: Fingerprint,
    /// Why it was lost; `None` if it stayed to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The time of day of another machine against ours, found by exchanges of messages (RFC 5905): of
/// several the one with the shortest round trip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockDifference {
    /// Seconds that its clock is ahead of ours; negative if it is behind.
    pub offset_s: f64,
    /// The true difference is at most this many seconds away from `offset_s`, either way: half of
    /// the round trip.
    pub doubt_s: f64,
    /// Seconds from a question to its answer, without the time that the other machine took.
    pub round_trip_s: f64,
    /// Exchanges made.
    pub exchanges: u32,
}

/// The part of one machine in a run of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The machine: its index in [`Results::hosts`].
    pub host: usize,
    /// Seconds after the agreed start at which it began, by the clock of the machine that started all.
    pub began_s: f64,
    /// The measured run; `None` if it was lost.
    pub run: Option<Run>,
}

impl Part {
    /// The kind of the disturbance of a run in which a machine was lost.
    pub(crate) const HOST_LOST: &'static str = "host_lost";
    /// The kind of the disturbance of a run that machines did not begin together.
    pub(crate) const NOT_TOGETHER: &'static str = "not_together";
    /// The figure of when the first machine was done: seconds since the first one began.
    pub(crate) const FIRST_DONE: &'static str = "first_done_s";
    /// The same of the last one.
    pub(crate) const LAST_DONE: &'static str = "last_done_s";
    /// The figure for the time between the first and the last beginning, in seconds.
    pub(crate) const BEGAN_APART: &'static str = "began_apart_s";
    /// The figure of how far wrong that may be, either way, by the comparison of clocks.
    pub(crate) const BEGAN_DOUBT: &'static str = "began_doubt_s";
    /// The figure of what all moved until the last one was done, in 10^6 bytes per second.
    pub(crate) const UNTIL_LAST: &'static str = "until_last_mb_per_s";
}

impl Results {
    /// The results of a single host; `None` if there is no such host.
    pub fn of_host(&self, host: usize) -> Option<Results> {
        let found = self.hosts.get(host)?;
        let part = |run: &Run| -> Option<Run> {
            let part = run.parts.iter().find(|it| it.host == host)?.run.as_ref()?;
            Some(Run { order: run.order, round: run.round, ..part.clone() })
        };
        let variant = |it: &Variant| Variant {
            runs: it.runs.iter().filter_map(part).collect(),
            ..it.clone()
        };
        let mut own = Results {
            fingerprint: found.fingerprint.clone(),
            hosts: Vec::new(),
            variants: self.variants.iter().map(variant).collect(),
            verdicts: Vec::new(),
            is_complete: self.is_complete && found.lost.is_none(),
            ..self.clone()
        };
        own.judge();
        Some(own)
    }

    /// Whether a machine was lost while several measured.
    pub fn lost_hosts(&self) -> impl Iterator<Item = (&Host, &str)> {
        self.hosts.iter().filter_map(|host| Some((host, host.lost.as_deref()?)))
    }
}
