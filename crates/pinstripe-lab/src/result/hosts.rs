//! Results of several machines that measured together: which machines took part, and what each
//! measured.

use serde::{Deserialize, Serialize};

use super::{Results, Run, Variant};
use crate::fingerprint::Fingerprint;

/// One of the machines that measured together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The address of the machine as the user gave it: `HOST:PORT`.
    pub address: String,
    /// The name that the machine has for itself.
    pub name: String,
    /// The difference between the machine's clock and the coordinator's clock; `None` if the host
    /// was lost before the clocks were compared.
    pub clock: Option<ClockDifference>,
    /// The machine, and the places on it that were measured.
    pub fingerprint: Fingerprint,
    /// Why the machine was lost; `None` if it took part to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The difference between the time of day of another machine and that of this machine, found by
/// exchanges of messages (RFC 5905); the exchange with the shortest round trip is used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockDifference {
    /// Seconds that the other machine's clock is ahead of the clock of this machine; negative if it
    /// is behind.
    pub offset_s: f64,
    /// Half of the round trip in seconds: the true difference is within this distance of
    /// `offset_s`.
    pub doubt_s: f64,
    /// Seconds from a question to its answer, without the time that the other machine took.
    pub round_trip_s: f64,
    /// Exchanges made.
    pub exchanges: u32,
}

/// The part of one machine in a run on several machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The machine: its index in [`Results::hosts`].
    pub host: usize,
    /// Seconds from the agreed start to the beginning of this part, by the coordinator's clock.
    pub began_s: f64,
    /// The measured run; `None` if the machine was lost.
    pub run: Option<Run>,
}

impl Part {
    /// The kind of disturbance of a run in which a machine was lost.
    pub(crate) const HOST_LOST: &'static str = "host_lost";
    /// The kind of disturbance of a run that the machines did not begin at the same time.
    pub(crate) const NOT_TOGETHER: &'static str = "not_together";
    /// The figure for the time at which the first machine finished, in seconds since the first
    /// beginning.
    pub(crate) const FIRST_DONE: &'static str = "first_done_s";
    /// The figure for the time at which the last machine finished, in seconds since the first
    /// beginning.
    pub(crate) const LAST_DONE: &'static str = "last_done_s";
    /// The figure for the time between the first and the last beginning, in seconds.
    pub(crate) const BEGAN_APART: &'static str = "began_apart_s";
    /// The figure for the uncertainty of that time, in seconds, due to the comparison of clocks.
    pub(crate) const BEGAN_DOUBT: &'static str = "began_doubt_s";
    /// The figure for the rate of all machines until the last one finished, in 10^6 bytes per
    /// second.
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

    /// The machines that were lost, each with the reason.
    pub fn lost_hosts(&self) -> impl Iterator<Item = (&Host, &str)> {
        self.hosts.iter().filter_map(|host| Some((host, host.lost.as_deref()?)))
    }
}
