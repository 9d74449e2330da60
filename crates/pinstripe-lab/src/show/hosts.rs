//! Shows what each of several machines measured, and how well their runs coincided.

use std::time::Duration;

use pinstripe_stats as stats;

use super::tables::{interval_text, latency_of, marked, shown_runs, value};
use crate::cases::quantile_text;
use crate::display::{duration, figure};
use crate::result::{ClockDifference, Host, Part, Results, Variant};
use crate::table::{Align, Cell, Table};

/// The smallest share of the last machine's time in which the first machine was also running; below
/// it, the sum of rates was not reached all the time.
const TOGETHER: f64 = 0.9;

/// Tables of the machines, and of the results of each machine for each variant; empty if one
/// machine measured by itself.
pub(crate) fn host_tables(results: &Results) -> Vec<Table> {
    match results.hosts.is_empty() {
        true => Vec::new(),
        false => vec![of_hosts(results), by_host(results)],
    }
}

fn of_hosts(results: &Results) -> Table {
    let columns = [
        ("host", Align::Left),
        ("name", Align::Left),
        ("clock", Align::Right),
        ("doubt", Align::Right),
        ("round trip", Align::Right),
        ("state", Align::Left),
    ];
    let note = "'clock' is the difference between the clock of the host and the clock of the \
                coordinator; it is positive if the host is ahead. Its error is at most 'doubt', \
                which is half of the shortest of several round trips. Runs are started by \
                monotonic clocks.";
    let mut table = Table::new("hosts", note, &columns);
    for host in &results.hosts {
        let clock = |of: fn(&ClockDifference) -> String| {
            Cell::from(host.clock.as_ref().map_or("-".to_owned(), of))
        };
        table.row([
            host.address.clone().into(),
            host.name.clone().into(),
            clock(|it| signed(it.offset_s)),
            clock(|it| duration(seconds(it.doubt_s))),
            clock(|it| duration(seconds(it.round_trip_s))),
            host.lost.as_ref().map_or("there".to_owned(), |why| format!("LOST: {why}")).into(),
        ]);
    }
    table
}

fn by_host(results: &Results) -> Table {
    let columns = [
        ("variant", Align::Left),
        ("host", Align::Left),
        ("value", Align::Right),
        ("unit", Align::Left),
        ("interval", Align::Right),
        ("requests", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("runs", Align::Right),
    ];
    let note = "This table has the results of each host, measured while the other hosts ran. The \
                values are medians of the runs that count on that host. The previous table is for \
                all hosts together: its rates are sums, and its other values are those of the \
                worst host.";
    let mut table = Table::new("by host", note, &columns);
    let each: Vec<(&Host, Results)> = results
        .hosts
        .iter()
        .enumerate()
        .filter_map(|(at, host)| Some((host, results.of_host(at)?)))
        .collect();
    for (at, variant) in results.variants.iter().enumerate() {
        for (host, own) in &each {
            let Some(own) = own.variants.get(at) else { continue };
            table.row(row(variant, host, own));
        }
    }
    table
}

fn row(variant: &Variant, host: &Host, own: &Variant) -> [Cell; 10] {
    let counting = shown_runs(own);
    let marked = |text: String| marked(text, counting);
    let times = latency_of(own, counting);
    let quantile = |q: f64| -> Cell {
        times.as_ref().map_or("-".to_owned(), |it| marked(quantile_text(it, q))).into()
    };
    let interval = stats::median_interval(&counting.values(own));
    let requests = times.as_ref().map_or("-".to_owned(), |it| marked(it.count().to_string()));
    [
        variant.name.clone().into(),
        host.address.clone().into(),
        value(own).into(),
        own.metric.unit.clone().into(),
        interval.map_or("-".to_owned(), |it| marked(interval_text(&it))).into(),
        requests.into(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        format!("{} of {}", own.values().len(), variant.runs.len()).into(),
    ]
}

/// Describes a host's clock, for example `a:7411 (vm1): the clock of this host differs by +12 us
/// from the clock of the coordinator, with an error of at most 80 us (round trip 160 us, 16
/// exchanges)`.
pub fn clock_line(host: &Host) -> String {
    let Host { address, name, .. } = host;
    match &host.clock {
        None => format!("{address} ({name}): the clock of this host was not compared"),
        Some(it) => format!(
            "{address} ({name}): the clock of this host differs by {} from the clock of the \
             coordinator, with an error of at most {} (round trip {}, {} exchanges)",
            signed(it.offset_s),
            duration(seconds(it.doubt_s)),
            duration(seconds(it.round_trip_s)),
            it.exchanges
        ),
    }
}

/// A line for each host that was lost, and for each variant in which the machines were not all
/// running at the same time.
pub(super) fn host_lines(results: &Results) -> Vec<String> {
    let lost = results.lost_hosts().map(|(host, why)| {
        format!(
            "the connection to the host {} was lost: {why}; the run lacks the part of this host, \
             and no further run was started",
            host.address
        )
    });
    let apart = results.variants.iter().filter_map(|it| tail_line(it, results.hosts.len()));
    lost.chain(apart).collect()
}

/// A line such as `rndrd: hosts were done after 3.10 to 9.00 s: ...`, if the sum of rates was
/// reached only for a part of the time.
fn tail_line(variant: &Variant, hosts: usize) -> Option<String> {
    let counting = shown_runs(variant);
    let median = |name: &str| {
        let found =
            counting.runs(variant).filter_map(|run| run.measured.figures.get(name).copied());
        stats::median(&found.collect::<Vec<_>>())
    };
    let (first, last) = (median(Part::FIRST_DONE)?, median(Part::LAST_DONE)?);
    if hosts < 2 || first >= TOGETHER * last {
        return None;
    }
    let until = median(Part::UNTIL_LAST);
    let until = until.map(|it| {
        format!(
            "; averaged over the total time, all hosts together transferred {} MB/s",
            figure(it)
        )
    });
    Some(format!(
        "{}: the first host was done after {first:.2} s, and the last host after {last:.2} s, so \
         the sum of the rates was reached only while all hosts ran{}",
        variant.name,
        until.unwrap_or_default()
    ))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Formats a difference with its sign: `+12 us`, `-1.50 s`.
fn signed(offset_s: f64) -> String {
    let sign = if offset_s < 0.0 { "-" } else { "+" };
    format!("{sign}{}", duration(seconds(offset_s.abs())))
}
