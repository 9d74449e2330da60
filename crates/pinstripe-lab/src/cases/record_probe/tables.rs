//! Rings, overruns and stalls as tables.

use pinstripe_base::units::parse_size;

use super::{LISTED, grid};
use crate::result::{Results, Run, Variant};
use crate::table::Table;

/// All of them.
pub fn tables(results: &Results) -> Vec<Table> {
    let mut tables: Vec<Table> = most(results).into_iter().collect();
    tables.push(rings(results));
    tables.extend(formula(results));
    tables.extend(stalls(results));
    tables
}

/// Returns the policy and the concurrent load: the first columns of all tables.
fn way(variant: &Variant) -> Vec<String> {
    let class = grid::parameter(variant, "io-class");
    let policy = grid::parameter(variant, "policy");
    let policy = match class {
        "" | "normal" => policy.to_owned(),
        class => format!("{policy}, {class}"),
    };
    vec![policy, grid::parameter(variant, "under").to_owned()]
}

/// The table of searches for the largest number of streams.
fn most(results: &Results) -> Option<Table> {
    let is_search = results.variants.first().is_some_and(|it| it.metric.name == "streams");
    let head = ["policy", "under", "streams", "overran at", "tries", "memory MiB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let of = |name: &str| grid::cell(grid::figure(variant, grid::named(name)));
        let mut row = way(variant);
        row.push(grid::cell(grid::figure(variant, grid::value)));
        row.extend(["overran_at", "tries", "memory_needed_mib"].map(of));
        rows.push(row);
    }
    let note = "The table shows the largest number of streams that were recorded without an \
                overrun, and the smallest number with an overrun, which is '-' if the limit of the \
                search was reached. The values are medians of the runs. The other tables are for \
                the largest number without an overrun.";
    is_search.then(|| Table::from_rows("The most streams", note, rows))
}

/// The ring each stream needs, with the figures of the run that needed most.
fn formula(results: &Results) -> Option<Table> {
    let size = |name: &str| {
        let found = results.parameters.iter().find(|it| it.name == name)?;
        Some(parse_size(&found.value).ok()? as f64 / 1024.0)
    };
    let (chunk, rate) = (size("chunk")?, size("rate")?);
    let head = ["policy", "under", "chunk + rate x (round + 2 x longest write)", "ring KiB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let of = |run: &Run, name: &str| run.measured.figures.get(name).copied();
        let runs = variant.runs.iter().filter(|it| it.is_valid());
        let needed = |run: &Run| of(run, "needed_kib").unwrap_or(0.0);
        let Some(worst) = runs.max_by(|a, b| needed(a).total_cmp(&needed(b))) else { continue };
        let (round, longest) = (of(worst, "round_ms"), of(worst, "longest_write_ms"));
        let Some((round, longest)) = round.zip(longest) else { continue };
        let text = format!(
            "{chunk:.0} KiB + {rate:.1} KiB/s x ({round:.1} ms + 2 x {longest:.1} ms) = {:.1} KiB",
            needed(worst)
        );
        let ring = of(worst, "ring_needed_kib").map_or("-".to_owned(), |it| format!("{it:.0}"));
        rows.push([way(variant), vec![text, ring]].concat());
    }
    let note = "The values are from the run that needed the largest ring, among the runs that \
                count.";
    (rows.len() > 1).then(|| Table::from_rows("The ring size that each stream needs", note, rows))
}

fn rings(results: &Results) -> Table {
    let head = [
        "policy",
        "under",
        "backlog KiB",
        "ring full %",
        "overruns",
        "longest write ms",
        "stalls in a run",
        "durable lag s",
        "ring needed KiB",
        "memory MiB",
        "storm MB/s",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let of = |name: &str| grid::cell(grid::figure(variant, grid::named(name)));
        let mut row = way(variant);
        row.extend(["backlog_kib", "fill_percent", "overruns", "longest_write_ms"].map(of));
        row.extend(["stalls", "durable_lag_s"].map(of));
        let worst = |name: &str| grid::cell(grid::largest(variant, grid::named(name)));
        row.extend(["ring_needed_kib", "memory_needed_mib"].map(worst));
        row.push(of("storm_mb_per_s"));
        rows.push(row);
    }
    let note = "'Memory' is the memory of all rings if each stream has a ring of the needed size. \
                Ring and memory are from the run that needed the most; all other values are \
                medians of the runs. A value is in brackets if all runs were disturbed. A stall is \
                a single write that took more than 100 ms.";
    Table::from_rows("Rings, overruns and stalls", note, rows)
}

/// The longest stalls of every run.
fn stalls(results: &Results) -> Option<Table> {
    let head = ["policy", "under", "run", "at s", "stream", "ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        for run in &variant.runs {
            for number in 0..LISTED {
                let of = |what: &str| {
                    run.measured.figures.get(&format!("stall_{number}_{what}")).copied()
                };
                let Some(((at, stream), ms)) = of("at_s").zip(of("stream")).zip(of("ms")) else {
                    break;
                };
                let figures = [format!("{at:.2}"), format!("{stream:.0}"), format!("{ms:.0}")];
                rows.push([way(variant), vec![run.order.to_string()], figures.to_vec()].concat());
            }
        }
    }
    let note = format!(
        "The table lists writes that took more than 100 ms: the {LISTED} longest ones of each run."
    );
    (rows.len() > 1).then(|| Table::from_rows("Stalls", note, rows))
}
