//! File systems by modes, with how far they are apart; and what it takes until one can be used.

use crate::cases::grid;
use crate::display;
use crate::result::{Results, Variant};
use crate::stats::median;
use crate::table::Table;

const FILE_SYSTEM: &str = "file-system";

/// Both tables.
pub fn tables(results: &Results) -> Vec<Table> {
    if results.variants.iter().all(|it| it.runs.is_empty()) {
        return Vec::new();
    }
    vec![by_modes(results), costs(results)]
}

/// The rate of a variant in MB/s.
fn value(results: &Results, name: &str, mode: &str) -> Option<grid::Figure> {
    let is_it = |it: &&Variant| {
        grid::parameter(it, FILE_SYSTEM) == name && grid::parameter(it, "mode") == mode
    };
    results.variants.iter().find(is_it).and_then(|it| grid::figure(it, grid::value))
}

fn by_modes(results: &Results) -> Table {
    let note = "What counts is the time until bytes were durable. Best by worst: how far the best file \
                system of a mode is from the worst.";
    let title = "MB/s of file systems, by mode";
    let mut table = grid::grid(results, title, note, [FILE_SYSTEM, "mode"], grid::value);
    let modes = grid::different(results, "mode");
    let names = grid::different(results, FILE_SYSTEM);
    let ratio = |mode: &&str| {
        let values = names.iter().filter_map(|name| value(results, name, mode));
        let values: Vec<f64> = values.map(|it| it.value).filter(|it| *it > 0.0).collect();
        let best = values.iter().copied().fold(f64::MIN, f64::max);
        let worst = values.iter().copied().fold(f64::MAX, f64::min);
        if values.len() < 2 { "-".to_owned() } else { format!("{:.1}", best / worst) }
    };
    let ratios = modes.iter().map(ratio);
    table.words(std::iter::once("best by worst".to_owned()).chain(ratios).collect());
    table
}

/// The median of a figure over all runs on a file system, whatever the mode.
fn over_all(results: &Results, name: &str, key: &str) -> Option<f64> {
    let of = results.variants.iter().filter(|it| grid::parameter(it, FILE_SYSTEM) == name);
    let found = of.flat_map(|it| &it.runs).filter_map(|run| run.measured.figures.get(key).copied());
    median(&found.collect::<Vec<_>>())
}

fn costs(results: &Results) -> Table {
    let head = ["file-system", "mkfs ms", "mount ms", "fill MB/s", "stored"];
    let keys = [("mkfs_s", 1e3), ("mount_s", 1e3), ("fill_mb_per_s", 1.0), ("stored_share", 1.0)];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for name in grid::different(results, FILE_SYSTEM) {
        let cell = |(key, factor): &(&str, f64)| {
            over_all(results, name, key).map_or("-".to_owned(), |it| display::figure(it * factor))
        };
        let cells = keys.iter().map(cell);
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    let note = "Medians of all runs. Each file is synced when it has been filled. 'stored' is what files take of the file system once they are full, by \
                their length: less than 1 where they were compressed.";
    Table::from_rows("What it takes until a file system can be used", note, rows)
}
