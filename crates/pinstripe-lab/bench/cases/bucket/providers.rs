//! Four endpoints with parity, one of them slow and one dead.

use std::time::Duration;

use pinstripe_lab::Table;

use super::Settings;
use super::stand::{HostTool, ProxiedServer, noise_tree, set_delay};
use crate::Result;
use crate::child;
use crate::targets::{Target, figure_row, figures};

/// The greatest time, relative to three good providers.
const RATIO: f64 = 1.3;
/// The round trip of the good ones, and of the slow one.
const GOOD: Duration = Duration::from_millis(30);
const SLOW: Duration = Duration::from_millis(200);

pub fn measure(settings: &Settings) -> Result<Table> {
    let source = noise_tree(&settings.bench.work, 2, settings.bytes / 4)?;
    let note = format!(
        "{} of incompressible files; parity 1 over the members. Good endpoints have {} ms. The dead one \
         accepts no connections; it was there when the store was made. First backups into new \
         stores; a degraded backup ends with code 4.",
        pinstripe_base::units::format_size(settings.bytes / 4),
        GOOD.as_millis(),
    );
    let mut table = figures("Several endpoints, s", note);
    let (mut three, mut troubled) = (Vec::new(), Vec::new());
    for round in 0..settings.bench.rounds {
        three.push(first_backup(settings, &source, 3, round)?);
        troubled.push(first_backup(settings, &source, 4, round)?);
    }
    figure_row(&mut table, "three good ones", &three, 2, Target::None);
    let what = "four, one of them 200 ms and one dead";
    figure_row(&mut table, what, &troubled, 2, Target::None);
    let ratios: Vec<f64> = troubled.iter().zip(&three).map(|(four, three)| four / three).collect();
    let what = "one of them 200 ms and one dead / three good ones";
    figure_row(&mut table, what, &ratios, 2, Target::AtMost(RATIO));
    Ok(table)
}

/// Wall seconds of a first backup over this many endpoints; of four, one is slow and one dead.
fn first_backup(
    settings: &Settings,
    source: &std::path::Path,
    endpoints: usize,
    round: usize,
) -> Result<f64> {
    let work = &settings.bench.work;
    let start =
        |number: usize| ProxiedServer::start(work, &format!("endpoint-{endpoints}-{number}"));
    let mut endpoints: Vec<ProxiedServer> = (0..endpoints).map(start).collect::<Result<_>>()?;
    let places: Vec<String> =
        endpoints.iter().map(|endpoint| endpoint.place(&format!("round-{round}"))).collect();
    let host = HostTool::new(settings, "providers")?;
    host.make(&places, 1)?;
    set_delay(&endpoints.iter().collect::<Vec<_>>(), GOOD);
    if endpoints.len() == 4 {
        endpoints[2].proxy.delay(SLOW);
        endpoints.truncate(3);
    }
    let mut backup = host.command(&places[0], "backup");
    backup.arg(source);
    let name = format!("providers-{}", places.len());
    let began = std::time::Instant::now();
    match child::run(&mut backup, host.logs(), &name) {
        Ok(_) => {}
        // Done, but degraded.
        Err(_)
            if places.len() == 4
                && host.figure(&name, "exit_code").is_ok_and(|code| code == 4.0) => {}
        Err(error) => return Err(error),
    }
    Ok(began.elapsed().as_secs_f64())
}
