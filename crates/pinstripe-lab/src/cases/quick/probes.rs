//! The questions that `quick` asks about a disk; each question is a group of variants that differ
//! in one setting. The baseline of a group is the default of the verb
//! ([`questions`](crate::questions)), or else the first variant; cheaper variants come before more
//! expensive ones.

use pinstripe_io::device::Policy;

use super::super::shared;
use crate::io::{Direction, Engine, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter};
use crate::run::{PlaceNo, VariantSpec};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// One variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    group: &'static str,
    about: &'static str,
    /// The setting in which the variants of the group differ.
    setting: ProbeSetting,
    pub order: Order,
    pub direction: Direction,
    pub block_bytes: usize,
    pub depth: usize,
    pub policy: Policy,
    syncing: Syncing,
}

/// The setting that differs within a group, by the name of its option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeSetting {
    Policy,
    Depth,
    RequestSize,
}

impl Probe {
    /// Whether the probe creates a new file.
    pub(crate) fn makes_a_file(&self) -> bool {
        self.order == Order::Sequential && self.direction == Direction::Write
    }

    /// The job of one run of the probe.
    pub fn job(&self, seed: u64, file_bytes: u64, time: std::time::Duration) -> Job {
        let Probe { order, direction, block_bytes, depth, syncing, .. } = *self;
        let is_once = order == Order::Sequential;
        Job {
            engine: if depth > 1 { Engine::Uring } else { Engine::Psync },
            depth,
            requests: is_once.then_some(file_bytes / block_bytes as u64),
            time: Some(time),
            syncing,
            seed,
            ..Job::new(Pattern { order, direction, block_bytes })
        }
    }

    /// The variant that measures this probe.
    pub fn spec(&self) -> VariantSpec {
        let (option, value) = match self.setting {
            ProbeSetting::Policy => ("policy", self.policy.to_string()),
            ProbeSetting::Depth => ("depth", self.depth.to_string()),
            ProbeSetting::RequestSize => ("strip-size", shared::typed(self.block_bytes as u64)),
        };
        let metric = match self.block_bytes {
            small if small < MIB / 16 => Metric::rate(),
            _ => Metric::throughput(),
        };
        VariantSpec {
            name: format!("{}: {option} {value}", self.group),
            group: self.group.to_owned(),
            about: self.about.to_owned(),
            parameters: vec![Parameter::new(option, value)],
            metric,
            place: PlaceNo::FIRST,
        }
    }
}

/// All questions.
pub fn all() -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut ask = |probe: Probe| probes.push(probe);
    let stream = Probe {
        group: "write 1 MiB blocks sequentially",
        about: "a new file is written once, until it is durable",
        setting: ProbeSetting::Policy,
        order: Order::Sequential,
        direction: Direction::Write,
        block_bytes: MIB,
        depth: 1,
        policy: Policy::Buffered,
        syncing: Syncing::AT_END,
    };
    let policies = [Policy::Buffered, Policy::Uncached, Policy::Direct, Policy::Dsync];
    policies.into_iter().for_each(|policy| ask(Probe { policy, ..stream.clone() }));
    let direct = Probe { policy: Policy::Direct, ..stream.clone() };
    for depth in [1, 2, 4, 8] {
        let (group, setting) = ("write 1 MiB blocks sequentially, direct", ProbeSetting::Depth);
        ask(Probe { group, setting, depth, ..direct.clone() });
    }
    for block_bytes in [256 * KIB, 64 * KIB, 1024 * KIB, 4096 * KIB] {
        let (group, setting) =
            ("write sequentially, direct, 4 at a time", ProbeSetting::RequestSize);
        ask(Probe { group, setting, depth: 4, block_bytes, ..direct.clone() });
    }
    let reads = Probe {
        group: "read 1 MiB blocks sequentially, direct",
        about: "a file is read once, bypassing the page cache",
        setting: ProbeSetting::Depth,
        direction: Direction::Read,
        syncing: Syncing::NEVER,
        ..direct.clone()
    };
    [1, 4, 16].into_iter().for_each(|depth| ask(Probe { depth, ..reads.clone() }));
    let anywhere = Probe {
        group: "read 4 KiB at random offsets",
        about: "blocks are read at random offsets of a file, bypassing the page cache",
        order: Order::Random,
        block_bytes: 4 * KIB,
        ..reads.clone()
    };
    [1, 8, 32, 64].into_iter().for_each(|depth| ask(Probe { depth, ..anywhere.clone() }));
    let writes = Probe {
        group: "write 4 KiB at random offsets",
        about: "blocks are written at random offsets of a file, bypassing the page cache",
        direction: Direction::Write,
        syncing: Syncing::AT_END,
        ..anywhere.clone()
    };
    [1, 8, 32].into_iter().for_each(|depth| ask(Probe { depth, ..writes.clone() }));
    for policy in [Policy::Dsync, Policy::DirectDsync] {
        let (group, setting) = ("make 4 KiB durable", ProbeSetting::Policy);
        let about = "blocks are written at random offsets of a file, and each block is made \
                     durable before the next";
        ask(Probe { group, about, setting, policy, ..writes.clone() });
    }
    probes
}
