//! The page of a server that knows many hosts and snapshots.

use pinstripe_lab::Table;

use super::Settings;
use super::stand::{ServedStore, told};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

const FIRST_BYTE_MS: f64 = 50.0;

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "{} snapshots of {} hosts, each by a backup of one small file. A row of times is of requests over \
         one connection.",
        settings.snapshots, settings.hosts,
    );
    let mut table = figures("The page", note);
    let server = ServedStore::start(settings)?;
    let desk = server.host("desk", "admin")?;
    let file = settings.bench.work.join("small-file");
    let rounds = settings.snapshots.div_ceil(settings.hosts);
    for number in 0..settings.hosts {
        let host = server.host(&format!("host{number}"), "append-restore")?;
        for round in 0..rounds {
            std::fs::write(&file, format!("{number} {round}")).map_err(told)?;
            host.start(host.back_up(&file), "small")?.finish()?;
        }
    }
    if !server.body("/", &desk.join)?.contains("host0") {
        return Err("the page does not show the hosts".to_owned());
    }
    let mut times = server.curl("/", &desk.join, 60)?;
    times.remove(0);
    let times: Vec<f64> = times.into_iter().map(|it| it * 1e3).collect();
    let target = Target::AtMost(FIRST_BYTE_MS);
    figure_row(&mut table, "first byte of the page, ms", &times, 1, target);
    let metrics = server.curl("/metrics", &desk.join, 20)?;
    let metrics: Vec<f64> = metrics.into_iter().skip(1).map(|it| it * 1e3).collect();
    figure_row(&mut table, "first byte of the metrics, ms", &metrics, 1, Target::None);
    Ok(table)
}
