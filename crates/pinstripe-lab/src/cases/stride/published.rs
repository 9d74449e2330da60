//! Compares the figures with those that were published for a cluster.

use crate::cases::grid;
use crate::result::Results;
use crate::table::Table;

/// MB/s by number of records advised. The cluster had 24 servers with one disk each; records of 4
/// MiB were read with stride 17 ("Read ahead affect Ceph read performance much", ceph-devel, July
/// 2013).
const PUBLISHED: [(&str, f64); 6] =
    [("0", 42.8), ("1", 100.7), ("4", 217.0), ("16", 498.0), ("64", 854.0), ("128", 950.0)];

/// For each number of clients, a table with records ahead, MB/s, the ratio to the first row, and
/// the published figures for one client. Results without a number of clients have one table.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    grid::different(results, "clients").into_iter().map(|it| table(results, it)).collect()
}

fn table(results: &Results, clients: &str) -> Table {
    let head = ["records ahead", "MB/s", "times", "24 servers, 2013", "times"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let is_one = ["", "1"].contains(&clients);
    let of_them = results.variants.iter().filter(|it| grid::parameter(it, "clients") == clients);
    let figures: Vec<_> = of_them.map(|it| (it, grid::figure(it, grid::value))).collect();
    let first = figures.first().and_then(|(_, figure)| *figure);
    for (variant, figure) in figures {
        let times = figure.zip(first).map(|(it, first)| it.over(first));
        let times = times.map_or("-".to_owned(), |it| it.derive(|it| format!("{it:.1}")));
        let ahead = grid::parameter(variant, "ahead");
        let published = PUBLISHED.iter().find(|(known, _)| *known == ahead && is_one);
        let [rate, gain] = published.map_or(["-".to_owned(), "-".to_owned()], |(_, rate)| {
            [format!("{rate:.1}"), format!("{:.1}", rate / PUBLISHED[0].1)]
        });
        rows.push(vec![ahead.to_owned(), grid::cell(figure), times, rate, gain]);
    }
    let of_clients = if is_one { String::new() } else { format!(" of {clients} clients") };
    let title = format!("Stride reads{of_clients}, by number of records advised ahead");
    let note = "The columns '2013' are results that were published on ceph-devel, for a stride of \
                17 records of 4 MiB on a Ceph cluster.";
    Table::from_rows(&title, note, rows)
}
