//! Compares the figures with those that were published for a cluster.

use crate::cases::grid;
use crate::result::{Results, Variant};
use crate::table::Table;

/// MB/s of all clients together, by number of clients and by window. The cluster had 24 servers
/// with one disk each; records of 4 MiB were read sequentially ("Read ahead affect Ceph read
/// performance much", ceph-devel, July 2013).
const PUBLISHED: [(&str, [(&str, f64); 3]); 2] = [
    ("kernel", [("1", 180.0), ("2", 324.0), ("4", 592.0)]),
    ("256M", [("1", 645.0), ("2", 1023.0), ("4", 1268.0)]),
];

/// MB/s next to the published figures, for the published numbers of clients; `None` if none of
/// these numbers was measured.
pub(super) fn beside_published(results: &Results) -> Option<Table> {
    let measured = grid::different(results, "clients");
    let (_, of_kernel) = PUBLISHED[0];
    let known: Vec<&str> =
        of_kernel.iter().map(|(clients, _)| *clients).filter(|it| measured.contains(it)).collect();
    if known.is_empty() {
        return None;
    }
    let plural = |it: &&str| format!("{it} {}", if *it == "1" { "client" } else { "clients" });
    let mut head = vec!["window".to_owned()];
    head.extend(known.iter().map(plural));
    head.extend(known.iter().map(|it| format!("2013: {}", plural(it))));
    let mut rows = vec![head];
    for window in grid::different(results, "window") {
        let of = |clients: &&str| {
            let is_it = |it: &&Variant| {
                grid::parameter(it, "window") == window
                    && grid::parameter(it, "clients") == *clients
            };
            let variant = results.variants.iter().find(is_it);
            grid::cell(variant.and_then(|it| grid::figure(it, grid::value)))
        };
        let plain = window.strip_prefix("kernel ").unwrap_or(window);
        let rates = PUBLISHED.iter().find(|(known, _)| *known == plain).map(|(_, rates)| rates);
        let published = |clients: &&str| {
            let rate = rates.and_then(|rates| rates.iter().find(|(of, _)| of == clients));
            rate.map_or("-".to_owned(), |(_, rate)| format!("{rate:.0}"))
        };
        let row = std::iter::once(window.to_owned());
        rows.push(row.chain(known.iter().map(of)).chain(known.iter().map(published)).collect());
    }
    let note = "The columns '2013' are results that were published on ceph-devel: the total rate \
                of all clients for sequential records of 4 MiB on a Ceph cluster of 24 servers. \
                'kernel' is the default window of the kernel client.";
    Some(Table::from_rows("MB/s compared with a cluster of 24 servers in 2013", note, rows))
}
