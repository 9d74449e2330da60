//! Four hosts that write one bucket while gc runs, compared with one host alone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::Settings;
use super::stand::{HostTool, ProxiedServer, noise_tree, set_delay};
use crate::Result;
use crate::child;
use crate::targets::{Target, figure_row, figures};

/// Hosts that write at once.
const HOSTS: u64 = 4;
/// The sum of their rates, of the rate of one alone, at least.
const SHARE: f64 = 0.9;

pub fn measure(settings: &Settings) -> Result<Table> {
    let bytes = settings.bytes / HOSTS;
    let note = format!(
        "{HOSTS} processes with homes of their own, each with {} of incompressible files of its own, while gc \
         runs again and again; no delay. Against: one process with one of these trees, in a bucket of \
         its own. Who begins changes from round to round.",
        format_size(bytes),
    );
    let mut table = figures("Many hosts, one bucket, MB/s", note);
    let trees: Vec<_> = (0..HOSTS)
        .map(|number| noise_tree(&settings.bench.work, 10 + number, bytes))
        .collect::<Result<_>>()?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for round in 0..settings.bench.rounds {
        let endpoint = ProxiedServer::start(&settings.bench.work, "endpoint-hosts")?;
        set_delay(&[&endpoint], settings.delays[0]);
        let alone = |trees: &[PathBuf], name: &str| {
            let place = endpoint.place(&format!("{name}-{round}"));
            let rate = rate(settings, &place, trees)?;
            Ok::<f64, String>(rate * bytes as f64 / 1e6)
        };
        match round % 2 {
            0 => {
                one.push(alone(&trees[..1], "one")?);
                all.push(alone(&trees, "all")?);
            }
            _ => {
                all.push(alone(&trees, "all")?);
                one.push(alone(&trees[..1], "one")?);
            }
        }
    }
    figure_row(&mut table, "one host alone", &one, 1, Target::None);
    figure_row(&mut table, "four hosts, sum of their rates", &all, 1, Target::None);
    let shares: Vec<f64> = all.iter().zip(&one).map(|(all, one)| all / one).collect();
    figure_row(&mut table, "four hosts / one alone", &shares, 2, Target::AtLeast(SHARE));
    Ok(table)
}

/// Backs up each tree by a separate host, all at once; with several hosts, gc runs meanwhile.
/// Returns the trees per second.
fn rate(settings: &Settings, place: &str, trees: &[PathBuf]) -> Result<f64> {
    let hosts: Vec<HostTool> = (0..=trees.len())
        .map(|number| HostTool::new(settings, &format!("crowd-{number}")))
        .collect::<Result<_>>()?;
    hosts[0].make(&[place.to_owned()], 0)?;
    let is_over = AtomicBool::new(false);
    let collector = &hosts[trees.len()];
    let took = std::thread::scope(|scope| {
        let gc = (trees.len() > 1).then(|| {
            scope.spawn(|| {
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut gc = collector.command(place, "gc");
                    child::run(&mut gc, collector.logs(), "crowd-gc")?;
                    rounds += 1;
                }
                Ok::<u32, String>(rounds)
            })
        });
        let began = Instant::now();
        let write = |(number, (host, tree)): (usize, (&'_ HostTool, &'_ PathBuf))| {
            let mut backup = host.command(place, "backup");
            backup.arg(tree);
            let logs = host.logs().to_path_buf();
            scope.spawn(move || child::run(&mut backup, &logs, &format!("crowd-{number}")))
        };
        let writers: Vec<_> = hosts.iter().zip(trees).enumerate().map(write).collect();
        let join = |it: std::thread::ScopedJoinHandle<'_, Result<child::Cost>>| {
            it.join().map_err(|_| "a writer died".to_owned())?.map(drop)
        };
        let done: Result<()> = writers.into_iter().try_for_each(join);
        let took = began.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let collected = gc.map(|gc| gc.join().map_err(|_| "gc died".to_owned())?).transpose();
        done.and(collected.map(|_| took))
    })?;
    Ok(trees.len() as f64 / took)
}
