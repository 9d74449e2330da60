//! One host with a long round trip to its server.

use std::time::Duration;

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::Settings;
use super::link::DelayedLink;
use super::stand::{ServedHost, ServedStore, told};
use crate::Result;
use crate::child::Cost;
use crate::content::{Recipe, make_tree};
use crate::targets::{Target, figure_row, figures};
use crate::trees;

/// The least share of the rate without a delay, up to which the link counts.
const SHARE: f64 = 0.8;
const LINK_MBPS: f64 = 400.0;
const SECONDS: f64 = 0.6;
const REQUESTS: f64 = 8.0;

pub fn measure(settings: &Settings) -> Result<Table> {
    let tree = settings.tree()?;
    let (entries, _) = trees::measure(&tree)?;
    let note = format!(
        "A proxy on the loopback that adds {} ms to each round trip and has no limit of its rate. New data: \
         {} of files; its rate counts relative to the same backup without the proxy, at most {LINK_MBPS} \
         MB/s. The tree has {entries} entries.",
        settings.delay.as_millis(),
        format_size(settings.bytes),
    );
    let mut table = figures("One host far from its server", note);
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let listen = port.map_err(told)?.to_string();
    let link = DelayedLink::start(&listen)?;
    let server = ServedStore::start_at(settings, &listen, Some(&link.address))?;
    let far = server.host("far", "append-restore")?;
    let rate = |delay, seed: u64| {
        link.set_round_trip(delay);
        let recipe = Recipe { seed, bytes: settings.bytes, shared_eighths: 0 };
        let source = make_tree(&settings.bench.work, recipe)?;
        trees::warm(&source)?;
        let cost = far.run(far.back_up(&source), "new")?;
        trees::remove(&source)?;
        Ok::<f64, String>(settings.bytes as f64 / 1e6 / cost.wall_s)
    };
    let (fast, slow) = (rate(Duration::ZERO, 3000)?, rate(settings.delay, 3001)?);
    figure_row(&mut table, "new data without a delay, MB/s", &[fast], 1, Target::None);
    figure_row(&mut table, "new data, MB/s", &[slow], 1, Target::None);
    let share = slow / fast.min(LINK_MBPS);
    figure_row(&mut table, "share of the link", &[share], 2, Target::AtLeast(SHARE));

    trees::warm(&tree)?;
    far.run(far.back_up(&tree), "first")?;
    let counted = |what: &str, command| -> Result<(Cost, f64)> {
        let before = server.requests()?;
        let cost = far.run(command, what)?;
        Ok((cost, server.requests()? - before))
    };
    let (cost, requests) = counted("unchanged", far.back_up(&tree))?;
    let target = Target::AtMost(SECONDS);
    figure_row(&mut table, "unchanged backup, s", &[cost.wall_s], 2, target);
    let most = Target::AtMost(REQUESTS);
    figure_row(&mut table, "unchanged backup, requests", &[requests], 0, most);
    for (what, command) in readings(settings, &far, &tree)? {
        let (cost, requests) = counted(what.split(' ').next().unwrap_or(what), command)?;
        figure_row(&mut table, &format!("{what}, s"), &[cost.wall_s], 2, target);
        figure_row(&mut table, &format!("{what}, requests"), &[requests], 0, Target::None);
    }
    Ok(table)
}

/// The verbs that read a little, each with its name.
fn readings(
    settings: &Settings,
    host: &ServedHost,
    tree: &std::path::Path,
) -> Result<Vec<(&'static str, std::process::Command)>> {
    let mut file = None;
    trees::visit(tree, &mut |path, metadata| {
        if metadata.is_file() && metadata.len() > 1000 {
            file = file.take().or_else(|| Some(path.to_path_buf()));
        }
        Ok(())
    })?;
    let file = file.ok_or("the tree has no file")?;
    let mut ls = host.command("ls");
    ls.args(["latest"]).arg(file.parent().unwrap_or(tree));
    let to = settings.bench.work.join("restored");
    trees::remove(&to)?;
    std::fs::create_dir_all(&to).map_err(told)?;
    let mut restore = host.command("restore");
    restore.arg("latest").arg("--to").arg(&to).arg("--include").arg(&file);
    Ok(vec![
        ("snapshots", host.command("snapshots")),
        ("ls of a directory", ls),
        ("restore of one file", restore),
    ])
}
