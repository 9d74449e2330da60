//! The results of two areas, as tables.

use super::{SPINDLE, TESTS};
use crate::cases::grid;
use crate::result::{Results, Variant};
use crate::table::Table;

/// Returns a table of the panel for each size, and a table that shows whether the areas share a
/// spindle.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let mut sizes = grid::different(results, SIZE);
    // The spindle variant and older results have no size parameter.
    if sizes.len() > 1 {
        sizes.retain(|it| !it.is_empty());
    }
    let panels = sizes.iter().filter_map(|size| panel(results, size, sizes.len() > 1));
    let spindle = results.variant(SPINDLE).filter(|it| !it.runs.is_empty()).map(spindle_table);
    panels.chain(spindle).collect()
}

/// The parameter that distinguishes sizes.
const SIZE: &str = "total-size";

fn panel(results: &Results, size: &str, is_one_of_several: bool) -> Option<Table> {
    let mut rows = vec![["test", "one area", "two areas", "two / one"].map(str::to_owned).to_vec()];
    for test in TESTS.iter().filter(|it| **it != SPINDLE) {
        let of = |area: &str| {
            let is_it = |it: &&Variant| {
                let has = |name: &str, value: &str| grid::parameter(it, name) == value;
                has("test", test) && has("areas", area) && has(SIZE, size)
            };
            results.variants.iter().find(is_it).and_then(|it| grid::figure(it, grid::value))
        };
        if let Some((one, two)) = of("one").zip(of("two")) {
            let ratio = two.over(one).derive(|it| format!("{it:.2}"));
            rows.push(vec![
                (*test).to_owned(),
                grid::cell(Some(one)),
                grid::cell(Some(two)),
                ratio,
            ]);
        }
    }
    let of_size = if is_one_of_several { format!(", {size}") } else { String::new() };
    (rows.len() > 1)
        .then(|| Table::from_rows(&format!("MB/s on one area and on two areas{of_size}"), "", rows))
}

fn spindle_table(variant: &Variant) -> Table {
    let of = |name: &str| grid::figure(variant, grid::named(name));
    let is = |name: &str| of(name).is_some_and(|it| it.value > 0.5);
    let verdict = match of("apart").map_or(0.0, |it| it.value) {
        it if it > 0.5 => "the areas do not wait for each other",
        it if it < -0.5 => "the areas share a disk or its connection",
        _ => "unclear",
    };
    let why = match (is("same_disk"), is("has_no_arm")) {
        (true, true) => "The system reports that both areas are on one disk without moving heads.",
        (true, false) => "The system reports that both areas are on one disk.",
        (false, true) => "No disk head moved, so the device is a cache or a solid-state disk.",
        (false, false) => "",
    };
    let head = ["first, reads/s", "second, reads/s", "rate kept together", "verdict"];
    let row = vec![
        grid::cell(of("first_reads_per_s")),
        grid::cell(of("second_reads_per_s")),
        grid::cell(grid::figure(variant, grid::value)),
        verdict.to_owned(),
    ];
    let rows = vec![head.map(str::to_owned).to_vec(), row];
    Table::from_rows("Do the areas share a spindle?", why, rows)
}
