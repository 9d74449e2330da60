//! Tables of file systems by mode, with their differences, and of the time until a file system can
//! be used.

use pinstripe_stats::median;

use crate::cases::grid;
use crate::display;
use crate::result::{Results, Run, Variant};
use crate::table::Table;

const FILE_SYSTEM: &str = "file-system";

/// Both tables.
pub fn tables(results: &Results) -> Vec<Table> {
    if results.variants.iter().all(|it| it.runs.is_empty()) {
        return Vec::new();
    }
    vec![by_modes(results), costs(results)]
}

/// The rate of a file system in a mode, in MB/s.
fn value(results: &Results, name: &str, mode: &str) -> Option<grid::Figure> {
    let is_it = |it: &&Variant| {
        grid::parameter(it, FILE_SYSTEM) == name && grid::parameter(it, "mode") == mode
    };
    results.variants.iter().find(is_it).and_then(|it| grid::figure(it, grid::value))
}

fn by_modes(results: &Results) -> Table {
    let note = "The rates include the time until all bytes were durable. 'best by worst' is the \
                rate of the best file system in a mode, divided by the rate of the worst one.";
    let title = "MB/s of the file systems, by mode";
    let mut table = grid::grid(results, title, note, [FILE_SYSTEM, "mode"], grid::value);
    let modes = grid::different(results, "mode");
    let names = grid::different(results, FILE_SYSTEM);
    let ratio = |mode: &&str| {
        let values = names.iter().filter_map(|name| value(results, name, mode));
        let values: Vec<grid::Figure> = values.filter(|it| it.value > 0.0).collect();
        let by_value = |a: &&grid::Figure, b: &&grid::Figure| a.value.total_cmp(&b.value);
        let ends = values.iter().max_by(by_value).zip(values.iter().min_by(by_value));
        match ends.filter(|_| values.len() > 1) {
            None => "-".to_owned(),
            // Any of them might be the best or the worst if it had not been disturbed.
            Some((best, worst)) => {
                let is_disturbed = values.iter().any(|it| it.is_disturbed);
                grid::marked(format!("{:.1}", best.value / worst.value), is_disturbed)
            }
        }
    };
    let ratios = modes.iter().map(ratio);
    table.words(std::iter::once("best by worst".to_owned()).chain(ratios).collect());
    table
}

/// The median of a figure over all valid runs on a file system, in any mode; if no run is valid,
/// over all runs.
fn over_all(results: &Results, name: &str, key: &str) -> Option<grid::Figure> {
    let of = results.variants.iter().filter(|it| grid::parameter(it, FILE_SYSTEM) == name);
    let runs: Vec<&Run> = of.flat_map(|it| &it.runs).collect();
    let over = |counts: &dyn Fn(&Run) -> bool| {
        let counted = runs.iter().filter(|run| counts(run));
        median(
            &counted.filter_map(|run| run.measured.figures.get(key).copied()).collect::<Vec<_>>(),
        )
    };
    let quiet = over(&Run::is_valid).map(|value| grid::Figure { value, is_disturbed: false });
    quiet.or_else(|| over(&|_| true).map(|value| grid::Figure { value, is_disturbed: true }))
}

fn costs(results: &Results) -> Table {
    let head = ["file-system", "mkfs ms", "mount ms", "fill MB/s", "stored"];
    let keys = [("mkfs_s", 1e3), ("mount_s", 1e3), ("fill_mb_per_s", 1.0), ("stored_share", 1.0)];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for name in grid::different(results, FILE_SYSTEM) {
        let cell = |(key, factor): &(&str, f64)| {
            let found = over_all(results, name, key);
            found.map_or("-".to_owned(), |it| it.derive(|it| display::figure(it * factor)))
        };
        let cells = keys.iter().map(cell);
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    let note = "The values are medians of the runs that count. A value is in brackets if no run \
                counts. Each file is synced when it has been filled. 'stored' is the space that \
                the full files use on the file system, divided by their length; it is less than 1 \
                if the file system compresses.";
    Table::from_rows("Time until a file system can be used", note, rows)
}
