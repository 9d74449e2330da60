//! Many hosts that back up new data at once, against one host that does so alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::units::{MIB, format_size};
use pinstripe_lab::Table;

use super::Settings;
use super::stand::{ServedHost, ServedStore};
use crate::Result;
use crate::child::Running;
use crate::content::{Recipe, make_tree};
use crate::targets::{Target, figure_row, figures};
use crate::trees;

/// The least rate of all hosts together, relative to that of one host.
const SHARE: f64 = 0.9;
const MEMORY_MIB: f64 = 300.0;
const SHORT_REQUEST_MS: f64 = 50.0;
/// Hosts that hold a tree at the same time: the others wait for room on the disk of the bench.
const TREES: u64 = 8;

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "{} hosts with {} of new data each, four members with parity 1, TLS. Rates are of the data that \
         the hosts read. The hosts share the processors with the server, and have a lower priority, because \
         they would have processors of their own. A short request is a greeting over one connection.",
        settings.hosts,
        format_size(settings.bytes),
    );
    let mut table = figures("Many hosts through one server", note);
    let tree = |seed: u64| {
        let recipe = Recipe { seed, bytes: settings.bytes, shared_eighths: 0 };
        make_tree(&settings.bench.work, recipe)
    };
    let server = ServedStore::start(settings)?;
    let alone = server.host("alone", "append-restore")?;
    let source = tree(1000)?;
    trees::warm(&source)?;
    let cost = alone.run(alone.back_up(&source), "backup")?;
    trees::remove(&source)?;
    let one = settings.bytes as f64 / 1e6 / cost.wall_s;

    let desk = server.host("desk", "admin")?;
    let hosts: Vec<ServedHost> = (0..settings.hosts)
        .map(|number| server.host(&format!("host{number}"), "append-restore"))
        .collect::<Result<_>>()?;
    let ends = AtomicBool::new(false);
    let (mut busy_s, mut short) = (0.0, Vec::new());
    for (group, hosts) in hosts.chunks(TREES as usize).enumerate() {
        let first = group as u64 * TREES;
        let sources: Vec<_> =
            (0..hosts.len() as u64).map(|it| tree(2000 + first + it)).collect::<Result<_>>()?;
        sources.iter().try_for_each(|source| trees::warm(source))?;
        rustix::fs::sync();
        ends.store(false, Ordering::Relaxed);
        let (took, times) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&server, &desk.join, &ends));
            let began = Instant::now();
            let start = |(host, source): (&ServedHost, &std::path::PathBuf)| {
                host.start(host.back_up(source), "backup")
            };
            let running: Vec<Result<Running>> = hosts.iter().zip(&sources).map(start).collect();
            let ended: Vec<_> =
                running.into_iter().map(|it| it.and_then(Running::finish)).collect();
            let took = began.elapsed().as_secs_f64();
            ends.store(true, Ordering::Relaxed);
            let times = asking.join().map_err(|_| "the short requests panicked".to_owned())?;
            ended.into_iter().collect::<Result<Vec<_>>>()?;
            times.map(|times| (took, times))
        })?;
        busy_s += took;
        short.extend(times);
        sources.iter().try_for_each(|source| trees::remove(source))?;
    }
    let many = settings.hosts as f64 * settings.bytes as f64 / 1e6 / busy_s;
    figure_row(&mut table, "one host, MB/s", &[one], 1, Target::None);
    figure_row(&mut table, "all hosts at once, MB/s", &[many], 1, Target::None);
    let target = Target::AtLeast(SHARE);
    figure_row(&mut table, "all hosts at once / one host", &[many / one], 2, target);
    let peak = server.peak_bytes()? / MIB as f64;
    figure_row(
        &mut table,
        "most memory of the server, MiB",
        &[peak],
        0,
        Target::AtMost(MEMORY_MIB),
    );
    short.sort_by(f64::total_cmp);
    let at = |share: f64| short.get((short.len() as f64 * share) as usize).copied();
    for (name, share, target) in
        [("p50", 0.5, Target::None), ("p99", 0.99, Target::AtMost(SHORT_REQUEST_MS))]
    {
        let value = at(share).ok_or("no short request was answered")? * 1e3;
        figure_row(
            &mut table,
            &format!("short requests meanwhile, {name}, ms"),
            &[value],
            1,
            target,
        );
    }
    Ok(table)
}

/// Times of short requests until the end.
fn ask(server: &ServedStore, join: &str, ends: &AtomicBool) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    while !ends.load(Ordering::Relaxed) || times.is_empty() {
        // The first request of a connection also makes the connection.
        times.extend(server.curl("/v1/hello", join, 6)?.into_iter().skip(1));
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(times)
}
