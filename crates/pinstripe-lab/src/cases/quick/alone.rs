//! Repeats one question of `quick` by itself, as a measurement of the case `fileio`.

use super::super::Given;
use super::{probes, shared};
use crate::io::{Direction, Order};
use crate::result::{Results, Variant};

/// The options of `fileio` that measure what a variant of `quick` measured.
pub fn alone(results: &Results, variant: &Variant) -> Option<Vec<Given>> {
    let probe = probes::all().into_iter().find(|it| it.spec().name == variant.name)?;
    let mode = match (probe.order, probe.direction) {
        (Order::Sequential, Direction::Write) => "seqwr",
        (Order::Sequential, Direction::Read) => "seqrd",
        (Order::Random, Direction::Write) => "rndwr",
        (Order::Random, Direction::Read) => "rndrd",
        _ => return None,
    };
    let shared = |name: &'static str| {
        let found = results.parameters.iter().find(|it| it.name == name);
        found.map(|it| (name, it.value.clone()))
    };
    let mut given = vec![
        ("modes", mode.to_owned()),
        ("files", "1".to_owned()),
        ("block-size", shared::typed(probe.block_bytes as u64)),
        ("policy", probe.policy.to_string()),
    ];
    if probe.depth > 1 {
        given.extend([("engine", "uring".to_owned()), ("depth", probe.depth.to_string())]);
    }
    given.extend(["total-size", "run-time"].into_iter().filter_map(shared));
    Some(given)
}
