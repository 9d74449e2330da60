//! A tree of many small files in one bucket: first and unchanged backup, listing, restore.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pinstripe_lab::Table;

use super::super::bench::mib;
use super::stand::{HostTool, Other, ProxiedServer, RequestCounts, set_delay};
use super::{Settings, say};
use crate::Result;
use crate::child::{self, Cost};
use crate::targets::{Target, compare_row, comparison, plain_row};
use crate::trees;

/// The limits for a bucket relative to a directory on this machine: a factor, and additional
/// seconds.
const FIRST: (f64, f64) = (1.5, 3.0);
const RESTORE: (f64, f64) = (1.3, 1.0);
/// The least speed relative to restic's.
const TIMES: f64 = 5.0;
/// The least stored bytes per GET of a restore.
const BYTES_PER_GET: f64 = 3.0 * 1024.0 * 1024.0;
/// The delay that the goals are about.
const GOAL: Duration = Duration::from_millis(80);

/// What one tool took.
struct Taken {
    first: (Cost, RequestCounts),
    unchanged: (Cost, RequestCounts),
    list_cold: (Cost, RequestCounts),
    list_warm: (Cost, RequestCounts),
    restore: (Cost, RequestCounts),
}

pub fn measure(settings: &Settings) -> Result<Table> {
    let source = settings.tree()?;
    trees::warm(&source)?;
    let (entries, bytes) = trees::measure(&source)?;
    let endpoint = ProxiedServer::start(&settings.bench.work, "endpoint-tree")?;
    let (host, other) = (HostTool::new(settings, "tree")?, Other::find(settings, &endpoint));
    let local = local(settings, &host, &source)?;
    let name = other.as_ref().map_or("restic is not installed", Other::version).to_owned();
    let note = format!(
        "{entries} entries, {:.0} MB; one bucket, encrypted, no parity; page cache warm. Requests as the \
         proxy counted them. In a directory on this machine, in this run: first backup {:.2} s, \
         restore {:.2} s. Against: {name}.",
        bytes as f64 / 1e6,
        local[0],
        local[1],
    );
    let mut table = comparison("One bucket, many small files", note);
    for &delay in &settings.delays {
        set_delay(&[&endpoint], Duration::ZERO);
        let prefix = format!("tree-{}", delay.as_millis());
        let place = endpoint.place(&prefix);
        host.forget()?;
        host.make(std::slice::from_ref(&place), 0)?;
        set_delay(&[&endpoint], delay);
        let ours = ours(&host, &endpoint, &place, &source, settings)?;
        let stored = host.figure("ours-first", "written_bytes")?;
        let theirs = match &other {
            Some(other) => Some(theirs(other, &host, &endpoint, &source, settings)?),
            None => None,
        };
        rows(&mut table, delay, &ours, theirs.as_ref(), (local, stored));
    }
    Ok(table)
}

/// Wall seconds of first backup and restore with a directory as the only member.
fn local(settings: &Settings, host: &HostTool, source: &Path) -> Result<[f64; 2]> {
    let member = settings.bench.work.join("local");
    trees::remove(&member)?;
    let place = member.display().to_string();
    host.make(std::slice::from_ref(&place), 0)?;
    let run = |mut command: Command, name: &str| -> Result<f64> {
        rustix::fs::sync();
        let cost = child::run(&mut command, host.logs(), name)?;
        say(name, &cost);
        Ok(cost.wall_s)
    };
    let mut backup = host.command(&place, "backup");
    backup.arg(source);
    let first = run(backup, "local-first")?;
    let to = settings.bench.work.join("out");
    trees::remove(&to)?;
    let mut restore = host.command(&place, "restore");
    restore.args(["latest", "--to"]).arg(&to);
    let restored = run(restore, "local-restore")?;
    trees::remove(&to)?;
    trees::remove(&member)?;
    Ok([first, restored])
}

fn ours(
    host: &HostTool,
    endpoint: &ProxiedServer,
    place: &str,
    source: &Path,
    settings: &Settings,
) -> Result<Taken> {
    let to = settings.bench.work.join("out");
    trees::remove(&to)?;
    let command = |verb: &str| host.command(place, verb);
    let run = |command: Command, name: &str| host.run(command, name, &endpoint.proxy);
    let taken = taken("ours", ("--to", &to), source, (&command, &run), &|| host.forget())?;
    trees::compare(source, &to.join(source.strip_prefix("/").unwrap_or(source)))?;
    trees::remove(&to)?;
    Ok(taken)
}

fn theirs(
    other: &Other,
    host: &HostTool,
    endpoint: &ProxiedServer,
    source: &Path,
    settings: &Settings,
) -> Result<Taken> {
    // One repository for all delays would have what the earlier ones stored.
    let objects = endpoint.server.file("restic");
    trees::remove(&objects)?;
    other.forget()?;
    let mut init = other.command("init");
    child::run(&mut init, host.logs(), "restic-init")?;
    let to = settings.bench.work.join("restic-out");
    trees::remove(&to)?;
    let command = |verb: &str| other.command(verb);
    let run = |command: Command, name: &str| host.run(command, name, &endpoint.proxy);
    let taken = taken("restic", ("--target", &to), source, (&command, &run), &|| other.forget())?;
    trees::remove(&to)?;
    Ok(taken)
}

/// A verb of a tool, and the run of a command under a name.
type Call<'c> =
    (&'c dyn Fn(&str) -> Command, &'c dyn Fn(Command, &str) -> Result<(Cost, RequestCounts)>);

/// What one tool takes for everything; `forget` makes it as cold as on another host.
fn taken(
    tool: &str,
    (option, to): (&str, &Path),
    source: &Path,
    (command, run): Call<'_>,
    forget: &dyn Fn() -> Result<()>,
) -> Result<Taken> {
    let backup = |what: &str| {
        let mut backup = command("backup");
        backup.arg(source);
        run(backup, &format!("{tool}-{what}"))
    };
    let list = |what: &str| {
        let mut list = command("ls");
        list.arg("latest");
        run(list, &format!("{tool}-{what}"))
    };
    let (first, unchanged) = (backup("first")?, backup("unchanged")?);
    forget()?;
    let (list_cold, list_warm) = (list("ls-cold")?, list("ls-warm")?);
    let mut restore = command("restore");
    restore.args(["latest", option]).arg(to);
    let restore = run(restore, &format!("{tool}-restore"))?;
    Ok(Taken { first, unchanged, list_cold, list_warm, restore })
}

fn rows(
    table: &mut Table,
    delay: Duration,
    ours: &Taken,
    theirs: Option<&Taken>,
    (local, stored): ([f64; 2], f64),
) {
    let at = format!("{} ms", delay.as_millis());
    let is_goal = delay == GOAL;
    let goal = |target: Target| if is_goal { target } else { Target::None };
    let most = |(times, more): (f64, f64), of: f64| Target::AtMost(round(times * of + more));
    let of = |taken: &dyn Fn(&Taken) -> f64| [theirs.map_or(f64::NAN, taken), taken(ours)];
    let mut figure = |what: &str, taken: &dyn Fn(&Taken) -> f64, decimals, target: Target| {
        plain_row(table, format!("{at}: {what}"), of(taken), decimals, goal(target));
    };
    figure("first backup, s", &|it| it.first.0.wall_s, 2, most(FIRST, local[0]));
    let beside = |it: &Taken| it.first.1.all - it.first.1.packs;
    figure("first backup, requests beside packs", &beside, 0, Target::AtMost(60.0));
    figure("unchanged backup, s", &|it| it.unchanged.0.wall_s, 2, Target::AtMost(1.0));
    figure("unchanged backup, requests", &|it| it.unchanged.1.all, 0, Target::AtMost(12.0));
    figure("ls latest, cold, s", &|it| it.list_cold.0.wall_s, 2, Target::AtMost(1.5));
    figure("ls latest, warm, s", &|it| it.list_warm.0.wall_s, 2, Target::AtMost(0.3));
    figure("full restore, s", &|it| it.restore.0.wall_s, 2, most(RESTORE, local[1]));
    let gets = Target::AtMost((stored / BYTES_PER_GET).ceil());
    figure("full restore, GETs", &|it| it.restore.1.gets, 0, gets);
    let memory = |it: &Taken| mib(&it.first.0).max(mib(&it.restore.0));
    figure("peak memory of backup and restore, MiB", &memory, 0, Target::AtMost(256.0));
    if theirs.is_none() {
        return;
    }
    for (what, taken) in [
        ("first backup", &(|it: &Taken| it.first.0.wall_s) as &dyn Fn(&Taken) -> f64),
        ("unchanged backup", &|it| it.unchanged.0.wall_s),
        ("ls latest, cold", &|it| it.list_cold.0.wall_s),
        ("full restore", &|it| it.restore.0.wall_s),
    ] {
        let what = format!("{at}: {what}, against restic, s");
        compare_row(table, what, of(taken), 2, goal(Target::Times(TIMES)));
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
