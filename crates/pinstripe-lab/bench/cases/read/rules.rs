//! Rules of read-ahead in virtual time, on a cluster of 24 servers.

use pinstripe_lab::{Align, Cell, Table};
use pinstripe_prefetch::{
    Cluster, Doubling, KnownPlan, OneCursor, OneStride, OwnRule, Rule, SimulatedRun, patterns,
    simulate,
};

use crate::Result;

const RECORDS: u64 = 1024;
/// Records that memory holds, and that plans may take of it.
const BUDGET: usize = 192;
const TOTAL: u32 = 160;
const WINDOW: u32 = 64;
/// Placements over which a figure is the mean.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

pub(super) fn table() -> Result<Table> {
    let note = "MB/s without hints, mean of three placements, in virtual time: 24 servers of 57 ms \
                for each 4 MiB, 11 ms away, at most 64 records ahead. The rules of others are small \
                models of what they document. Waste: records fetched in vain per record read.";
    let columns = [
        ("order of 1,024 records", Align::Left),
        ("none", Align::Right),
        ("Linux", Align::Right),
        ("Lustre", Align::Right),
        ("mountpoint-s3", Align::Right),
        ("pinstripe", Align::Right),
        ("plan known", Align::Right),
        ("share", Align::Right),
        ("waste", Align::Right),
    ];
    let mut table = Table::new("Rules of read-ahead", note, &columns);
    let most = u64::from(WINDOW);
    for (at, pattern) in patterns(RECORDS, 1).iter().enumerate() {
        let end = |records: &[u64]| records.iter().max().map_or(0, |last| last + 1);
        let none = mean(at, |_| Box::new(KnownPlan::new(&[], 0)));
        let linux = mean(at, |_| Box::new(Doubling::new(most)));
        let lustre = mean(at, |_| Box::new(OneStride::new(most)));
        let s3 = mean(at, |_| Box::new(OneCursor::new(most)));
        let ours = mean(at, |records| Box::new(OwnRule::new(end(records), WINDOW, TOTAL)));
        let known = mean(at, |records| Box::new(KnownPlan::new(records, WINDOW as usize)));
        table.row([
            pattern.name.into(),
            Cell::Number(none.rate, 0),
            Cell::Number(linux.rate, 0),
            Cell::Number(lustre.rate, 0),
            Cell::Number(s3.rate, 0),
            Cell::Number(ours.rate, 0),
            Cell::Number(known.rate, 0),
            Cell::Number(ours.rate / known.rate, 2),
            Cell::Number(ours.waste, 2),
        ]);
    }
    Ok(table)
}

fn mean(pattern: usize, rule: impl Fn(&[u64]) -> Box<dyn Rule + '_>) -> SimulatedRun {
    let runs: Vec<SimulatedRun> = SEEDS
        .map(|seed| {
            let records = &patterns(RECORDS, seed)[pattern].records;
            simulate(&Cluster::far24(seed), records, &mut *rule(records), BUDGET)
        })
        .collect();
    let of = |of: fn(&SimulatedRun) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let peak = runs.iter().map(|simulate| simulate.peak).max().unwrap_or(0);
    SimulatedRun { rate: of(|simulate| simulate.rate), waste: of(|simulate| simulate.waste), peak }
}
