//! The table of the case: a line for each command.

use crate::cases::grid;
use crate::display;
use crate::result::{Results, Run, Variant};
use crate::table::Table;

const HEAD: [&str; 11] = [
    "command",
    "time, s",
    "mean, s",
    "deviation, s",
    "min, s",
    "max, s",
    "user, s",
    "system, s",
    "memory, MB",
    "read, MB",
    "written, MB",
];

/// The times of each command, and what it used.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let exit_code = |it: &Variant| grid::largest(it, grid::named("exit_code"));
    let failed = results.variants.iter().any(|it| exit_code(it).is_some_and(|it| it.value != 0.0));
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let figure = |name: &str| grid::cell(grid::figure(variant, grid::named(name)));
        let millions = |name: &str| grid::cell(grid::figure(variant, in_millions(name)));
        let times = Times::of(variant);
        rows.push(vec![
            variant.name.clone(),
            grid::cell(grid::figure(variant, grid::value)),
            times.shown(|it| it.mean),
            times.shown(|it| it.deviation),
            times.shown(|it| it.min),
            times.shown(|it| it.max),
            figure("user_s"),
            figure("system_s"),
            memory(variant),
            millions("disk_read_bytes"),
            millions("disk_written_bytes"),
        ]);
    }
    if failed {
        rows[0].push("exit code".to_owned());
        for (row, variant) in rows[1..].iter_mut().zip(&results.variants) {
            row.push(
                exit_code(variant).map_or("-".to_owned(), |it| it.derive(|it| it.to_string())),
            );
        }
    }
    let note = "'time' is the median. User and system are processor times, of all processes of the command. \
                'memory' is that of its largest process. 'read' and 'written' are bytes that a disk must read and \
                write, now or later.";
    vec![Table::from_rows("Commands", note, rows)]
}

fn in_millions(name: &str) -> impl Fn(&Run) -> Option<f64> + '_ {
    move |run| grid::named(name)(run).map(|bytes| bytes / 1e6)
}

/// The memory, or the figure below which it cannot be known.
fn memory(variant: &Variant) -> String {
    match grid::figure(variant, in_millions("peak_memory_bytes")) {
        None => match grid::figure(variant, in_millions("peak_memory_at_most_bytes")) {
            None => "-".to_owned(),
            Some(figure) => figure.derive(|it| format!("< {}", display::figure(it))),
        },
        known => grid::cell(known),
    }
}

/// The times of a command in the runs that count, or in all runs if none counts.
struct Times {
    mean: f64,
    deviation: f64,
    min: f64,
    max: f64,
    is_disturbed: bool,
    count: usize,
}

impl Times {
    fn of(variant: &Variant) -> Times {
        let counted = variant.values();
        let is_disturbed = counted.is_empty();
        let all = || variant.runs.iter().map(|it| it.measured.value).collect();
        let values: Vec<f64> = if is_disturbed { all() } else { counted };
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        Times {
            mean,
            deviation: (squares / count.saturating_sub(1).max(1) as f64).sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            is_disturbed,
            count,
        }
    }

    fn shown(&self, of: impl Fn(&Times) -> f64) -> String {
        match self.count {
            0 => "-".to_owned(),
            _ => grid::marked(display::figure(of(self)), self.is_disturbed),
        }
    }
}
