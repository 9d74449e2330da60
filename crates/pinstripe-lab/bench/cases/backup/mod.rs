//! pinstripe against restic on one real tree, and both on one huge file.
//!
//! Both read the same bytes from a warm page cache and write to the same file system; they take
//! turns, and who begins changes from round to round, so that a neighbour's load falls on both.
//! pinstripe has four members with parity one, restic one directory. Everything that is restored
//! is compared with its source, content and metadata, outside the measured time. A store is made
//! anew in each round, and making it is not measured.

pub(super) mod image;
mod limits;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe_base::units::{GIB, format_count, parse_size};
use pinstripe_lab::{Align, Cell, Table, file_system};
use pinstripe_stats::Summary;

use super::bench::{Bench, absolute};
use super::pairs;
use crate::Result;
use crate::child::{self, Cost};
use crate::targets::{Target, compare_row, comparison};
use crate::tools::{self, Pinstripe, Restic, Tool};
use crate::trees;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "pinstripe against restic: --source TREE, --work DIR (20 GB free), \
                         --rounds N, --image-size SIZE, --restic FILE, --pinstripe FILE";

const MEMORY_LIMIT_MIB: f64 = 200.0;

/// The steps of each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    First,
    Second,
    Restore,
    Degraded,
    Image,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::First => "first backup",
            Phase::Second => "unchanged second backup",
            Phase::Restore => "full restore",
            Phase::Degraded => "restore, one member missing",
            Phase::Image => "one huge file",
        }
    }
}

/// Runs both and returns the tables.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let mut contest = Contest::prepare(&settings)?;
    for round in 0..settings.bench.rounds {
        contest.tree_round(round)?;
    }
    let image = image::make(&settings.bench.work, settings.image_bytes)?;
    for round in 0..settings.bench.rounds {
        contest.image_round(round, &image)?;
    }
    contest.clear()?;
    let limits = limits::measure(&image)?;
    Ok(vec![
        contest.tree_table()?,
        image::table(&contest.costs, settings.image_bytes, &limits)?,
        contest.runs_table(),
    ])
}

struct Settings {
    bench: Bench,
    source: Option<PathBuf>,
    image_bytes: u64,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let mut settings = Settings { bench: Bench::new()?, source: None, image_bytes: 4 * GIB };
        let known = ["--source", "--work", "--rounds", "--image-size", "--restic", "--pinstripe"];
        for (name, value) in pairs(args, &known)? {
            match name {
                "--source" => settings.source = Some(absolute(value)?),
                "--image-size" => {
                    settings.image_bytes = parse_size(value).map_err(|error| error.to_string())?;
                }
                _ => settings.bench.set(name, value)?,
            }
        }
        Ok(settings)
    }
}

/// Both tools, the tree, and what was measured so far.
struct Contest {
    source: PathBuf,
    entries: u64,
    source_bytes: u64,
    work: PathBuf,
    /// Trees restored so far.
    restores: usize,
    restic: Restic,
    pinstripe: Pinstripe,
    costs: Costs,
    /// Stored bytes after the first backup: restic's, pinstripe's without and with parity.
    stored: [Vec<f64>; 3],
}

/// The costs of each phase by tool, one per round.
type Costs = BTreeMap<(Phase, &'static str), Vec<Cost>>;

impl Contest {
    fn prepare(settings: &Settings) -> Result<Contest> {
        let work = settings.bench.work.clone();
        fs::create_dir_all(work.join("logs"))
            .map_err(|error| format!("cannot make {}: {error}", work.display()))?;
        // The tools first, so that a missing one is reported before a tree is unpacked.
        let restic = settings.bench.restic()?;
        let pinstripe = settings.bench.pinstripe()?;
        let source = match &settings.source {
            Some(source) => source.clone(),
            None => trees::kernel_source(&work)?,
        };
        let (entries, source_bytes) = trees::measure(&source)?;
        let (costs, stored) = (Costs::new(), Default::default());
        let contest = Contest {
            source,
            entries,
            source_bytes,
            work,
            restic,
            pinstripe,
            costs,
            stored,
            restores: 0,
        };
        trees::remove(&contest.restored())?;
        Ok(contest)
    }

    /// One round over the tree: first backup, second, restore, restore with a member away.
    fn tree_round(&mut self, round: usize) -> Result<()> {
        let source = self.source.clone();
        for phase in [Phase::First, Phase::Second, Phase::Restore] {
            for name in order(round) {
                match phase {
                    Phase::First => {
                        self.tool(name).make_empty()?;
                        self.back_up(phase, name, &source)?;
                    }
                    Phase::Second => self.back_up(phase, name, &source)?,
                    _ => self.restore(phase, name)?,
                }
            }
            if phase == Phase::First {
                let all = self.pinstripe.stored_bytes()?;
                self.stored[0].push(self.restic.stored_bytes()? as f64);
                self.stored[1].push(tools::without_parity(all));
                self.stored[2].push(all as f64);
            }
        }
        let away = self.pinstripe.lose_member(round)?;
        self.restore(Phase::Degraded, tools::PINSTRIPE)?;
        away.bring_back()
    }

    fn image_round(&mut self, round: usize, image: &Path) -> Result<()> {
        for name in order(round) {
            self.tool(name).make_empty()?;
            self.back_up(Phase::Image, name, image)?;
        }
        Ok(())
    }

    fn tool(&self, name: &str) -> &dyn Tool {
        if name == tools::RESTIC { &self.restic } else { &self.pinstripe }
    }

    fn back_up(&mut self, phase: Phase, name: &'static str, source: &Path) -> Result<()> {
        trees::warm(source)?;
        let command = self.tool(name).back_up(source);
        self.measure(phase, name, command)
    }

    fn restore(&mut self, phase: Phase, name: &'static str) -> Result<()> {
        // Kept until the end: for minutes after a deletion ext4 searches long for free inodes
        // (`recently_deleted` in fs/ext4/ialloc.c), and the tool that comes next would pay for it.
        let to = self.restored().join(format!("{}", self.restores));
        self.restores += 1;
        let command = self.tool(name).restore(&to);
        self.measure(phase, name, command)?;
        // Both put every source below the target under its full path.
        let inside = to.join(self.source.strip_prefix("/").unwrap_or(&self.source));
        trees::compare(&self.source, &inside)
            .map_err(|error| format!("{name}, {}: not the same: {error}", phase.name()))
    }

    fn restored(&self) -> PathBuf {
        self.work.join("restored")
    }

    fn measure(&mut self, phase: Phase, name: &'static str, mut command: Command) -> Result<()> {
        // What others left to be written must not be paid by this run.
        rustix::fs::sync();
        let log = format!("{name}-{}", phase.name().replace([' ', ','], "-"));
        let cost = child::run(&mut command, &self.work.join("logs"), &log)?;
        let Cost { wall_s, cpu_s, memory_bytes } = cost;
        let memory = mib(memory_bytes as f64);
        eprintln!("{name}, {}: {wall_s:.2} s, {cpu_s:.2} s CPU, {memory:.0} MiB", phase.name());
        self.costs.entry((phase, name)).or_default().push(cost);
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        trees::remove(&self.restored())?;
        trees::remove(&self.restic.folder)?;
        trees::remove(&self.pinstripe.folder)
    }

    fn tree_table(&self) -> Result<Table> {
        let note = format!(
            "{} entries, {:.0} MB in {}; {} and pinstripe with {} members, parity {}, all on one \
             {}; page cache warm; medians of {} rounds in turns; every restore was compared with \
             its source, content and metadata. Ratio: restic / pinstripe, above 1 is better for \
             pinstripe.",
            format_count(self.entries),
            self.source_bytes as f64 / 1e6,
            self.source.file_name().unwrap_or_default().to_string_lossy(),
            self.restic.version,
            tools::MEMBERS,
            tools::PARITY,
            file_system(&self.work),
            self.stored[0].len(),
        );
        let mut table = comparison("Backup and restore of a tree", note);
        let median =
            |samples: &[f64]| Summary::from_samples(samples).map_or(f64::NAN, |s| s.median);
        let targets = [
            (Phase::First, Phase::First, Target::Times(3.0), Target::Times(2.5)),
            (Phase::Second, Phase::Second, Target::Times(8.0), Target::None),
            (Phase::Restore, Phase::Restore, Target::Times(3.0), Target::None),
            (Phase::Degraded, Phase::Restore, Target::Times(2.0), Target::None),
        ];
        for (phase, against, wall_target, cpu_target) in targets {
            let theirs = costs_of(&self.costs, against, tools::RESTIC)?;
            let ours = costs_of(&self.costs, phase, tools::PINSTRIPE)?;
            let name = phase.name();
            let mut line = |what: &str, pick: fn(&Cost) -> f64, decimals, target: Target| {
                let values = |costs: &[Cost]| median(&costs.iter().map(pick).collect::<Vec<_>>());
                let values = [values(theirs), values(ours)];
                compare_row(&mut table, format!("{name}: {what}"), values, decimals, target);
            };
            line("wall s", |cost| cost.wall_s, 2, wall_target);
            line("CPU s", |cost| cost.cpu_s, 2, cpu_target);
            let limit = Target::AtMost(MEMORY_LIMIT_MIB);
            line("peak MiB", |cost| mib(cost.memory_bytes as f64), 0, limit);
        }
        let [restic, without_parity, all] = [0, 1, 2].map(|at| median(&self.stored[at]) / 1e6);
        let limit = Target::TimesTheirs(1.05);
        let what = "stored MB, parity not counted".to_owned();
        compare_row(&mut table, what, [restic, without_parity], 1, limit);
        let what = "stored MB, with parity".to_owned();
        compare_row(&mut table, what, [restic, all], 1, Target::None);
        Ok(table)
    }

    fn runs_table(&self) -> Table {
        let columns = [
            ("phase", Align::Left),
            ("tool", Align::Left),
            ("round", Align::Right),
            ("wall s", Align::Right),
            ("CPU s", Align::Right),
            ("peak MiB", Align::Right),
        ];
        let mut table = Table::new("Every run", "", &columns);
        for ((phase, tool), costs) in &self.costs {
            for (round, cost) in costs.iter().enumerate() {
                table.row([
                    phase.name().into(),
                    (*tool).into(),
                    (round as u64 + 1).into(),
                    Cell::Number(cost.wall_s, 2),
                    Cell::Number(cost.cpu_s, 2),
                    Cell::Number(mib(cost.memory_bytes as f64), 0),
                ]);
            }
        }
        table
    }
}

/// The program that runs first changes with the round.
fn order(round: usize) -> [&'static str; 2] {
    match round % 2 {
        0 => [tools::RESTIC, tools::PINSTRIPE],
        _ => [tools::PINSTRIPE, tools::RESTIC],
    }
}

fn costs_of<'a>(costs: &'a Costs, phase: Phase, tool: &'static str) -> Result<&'a [Cost]> {
    let found = costs.get(&(phase, tool)).filter(|costs| !costs.is_empty());
    found.map(Vec::as_slice).ok_or_else(|| format!("{tool} never ran the {}", phase.name()))
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_changes() {
        assert_eq!(order(0)[0], order(1)[1]);
        assert_ne!(order(0), order(1));
    }

    #[test]
    fn wrong_settings_are_named() {
        let read = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            Settings::read(&args).map(|settings| settings.image_bytes)
        };
        assert_eq!(read("--image-size 64M --rounds 1").unwrap(), 64 << 20);
        assert!(read("--rounds 0").unwrap_err().contains("--rounds: '0'"));
        assert!(read("--image-size big").unwrap_err().contains("big"));
    }
}
