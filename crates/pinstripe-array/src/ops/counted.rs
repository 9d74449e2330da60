//! The counters of a running array, by name.

use std::collections::BTreeMap;

use super::detail::Counted;
use crate::traffic::{Latency, MemberArea, MemberTraffic, WriteMethodCounts};
use crate::volume::VolumeCounters;

/// The names end in their unit.
pub fn counted(counters: &VolumeCounters) -> Counted {
    let VolumeCounters { reads, read_bytes, writes, written_bytes, syncs, pieces, .. } = *counters;
    let WriteMethodCounts { full, read_modify_write, reconstruct_write, plain } = pieces;
    let array = named([
        ("reads", reads),
        ("read_bytes", read_bytes),
        ("writes", writes),
        ("written_bytes", written_bytes),
        ("syncs", syncs),
        ("full_pieces", full),
        ("read_modify_write_pieces", read_modify_write),
        ("reconstruct_write_pieces", reconstruct_write),
        ("plain_pieces", plain),
    ]);
    let members = counters.members.iter().map(|it| it.as_ref().map(member)).collect();
    Counted { array, members }
}

fn member(traffic: &MemberTraffic) -> BTreeMap<String, u64> {
    let read = |part: MemberArea| traffic.read_bytes[part as usize];
    let written = |part: MemberArea| traffic.written_bytes[part as usize];
    let mean_us = |it: &Latency| it.sum_ns.checked_div(it.count).unwrap_or(0) / 1000;
    named([
        ("read_bytes", read(MemberArea::Data)),
        ("written_bytes", written(MemberArea::Data)),
        ("log_written_bytes", written(MemberArea::Log)),
        ("tables_read_bytes", read(MemberArea::Tables)),
        ("tables_written_bytes", written(MemberArea::Tables)),
        ("reads", traffic.reads.count),
        ("reads_mean_us", mean_us(&traffic.reads)),
        ("reads_longest_us", traffic.reads.max_ns / 1000),
        ("writes", traffic.writes.count),
        ("writes_mean_us", mean_us(&traffic.writes)),
        ("writes_longest_us", traffic.writes.max_ns / 1000),
        ("syncs", traffic.syncs.count),
        ("syncs_mean_us", mean_us(&traffic.syncs)),
        ("syncs_longest_us", traffic.syncs.max_ns / 1000),
    ])
}

fn named<const N: usize>(values: [(&str, u64); N]) -> BTreeMap<String, u64> {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}
