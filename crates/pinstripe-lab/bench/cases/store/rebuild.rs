//! A lost member of four made anew, against `dd` that copies as many bytes on the same disk.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::{Settings, timed};
use crate::Result;
use crate::child::Cost;
use crate::content::{Recipe, make_tree};
use crate::targets::{Target, figure_row, figures};
use crate::tools::{MEMBERS, Pinstripe, Tool};
use crate::trees;

/// At least this share of `dd`'s rate.
const SHARE: f64 = 0.8;

/// Bytes of the member, rebuilding, copying.
struct Round {
    bytes: f64,
    rebuild: Cost,
    copy: Cost,
}

impl Round {
    fn rate(&self, cost: &Cost) -> f64 {
        self.bytes / 1e6 / cost.wall_s
    }
}

pub fn measure(settings: &Settings) -> Result<Table> {
    let recipe = Recipe { seed: 100, bytes: settings.bytes, shared_eighths: 0 };
    let source = make_tree(&settings.bench.work, recipe)?;
    let tool = settings.bench.pinstripe()?.with_key_file().with_codec("raw");
    let mut rounds = Vec::new();
    for number in 0..settings.bench.rounds {
        tool.make_empty()?;
        timed(tool.back_up(&source), &tool.logs, "rebuild-backup")?;
        rounds.push(round(&tool, &settings.bench.work, number)?);
    }
    trees::remove(&tool.folder)?;
    let bytes = rounds.first().map_or(0.0, |round| round.bytes);
    let note = format!(
        "One of {MEMBERS} members (parity 1, {} of it) is moved away and rebuilt into an empty \
         directory by 'pinstripe repair', every strip read and judged; against dd bs=4M conv=fsync \
         of a file of the same length. All on one disk, what is read in the page cache for both, \
         in turns, {} rounds.",
        format_size(bytes as u64),
        settings.bench.rounds,
    );
    let mut table = figures("Rebuilding a lost member", note);
    let mut row = |what: &str, value: &dyn Fn(&Round) -> f64, decimals, target| {
        let samples: Vec<f64> = rounds.iter().map(value).collect();
        figure_row(&mut table, what, &samples, decimals, target);
    };
    row("dd: MB/s", &|it| it.rate(&it.copy), 0, Target::None);
    row("repair: MB/s of the member", &|it| it.rate(&it.rebuild), 0, Target::None);
    let target = Target::AtLeast(SHARE);
    row("rate, repair / dd", &|it| it.rate(&it.rebuild) / it.rate(&it.copy), 2, target);
    row("dd: CPU s", &|it| it.copy.cpu_s, 2, Target::None);
    row("repair: CPU s", &|it| it.rebuild.cpu_s, 2, Target::None);
    row("repair: peak MiB", &|it| super::mib(&it.rebuild), 0, Target::None);
    Ok(table)
}

fn round(tool: &Pinstripe, work: &Path, number: usize) -> Result<Round> {
    let lost = 1 + number % (MEMBERS - 1);
    let away = tool.lose_member(number)?;
    let copied = [work.join("dd-from"), work.join("dd-to")];
    let bytes = join_files(&away.away, &copied[0])?;
    let mut found = [None, None];
    for which in [number % 2, 1 - number % 2] {
        let command = match which {
            0 => {
                trees::warm(&tool.folder)?;
                let mut command = tool.command("repair");
                command
                    .args(["--same-disk", "--member", &lost.to_string(), "--to"])
                    .arg(tool.member(lost));
                command
            }
            _ => {
                trees::warm(&copied[0])?;
                let mut command = Command::new("dd");
                let argument = |name: &str, path: &Path| format!("{name}={}", path.display());
                command.args([argument("if", &copied[0]), argument("of", &copied[1])]);
                command.args(["bs=4M", "conv=fsync"]);
                command
            }
        };
        found[which] = Some(timed(command, &tool.logs, ["rebuild", "rebuild-dd"][which])?);
    }
    for path in copied {
        std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let rebuilt = trees::measure(&tool.member(lost))?.1;
    if rebuilt < bytes {
        return Err(format!("the member had {bytes} bytes, the rebuilt one has {rebuilt}"));
    }
    trees::remove(&away.away)?;
    let [rebuild, copy] = found;
    let (rebuild, copy) = rebuild.zip(copy).ok_or("a round has both")?;
    Ok(Round { bytes: bytes as f64, rebuild, copy })
}

/// All files below `root` one after the other in one file; its length.
fn join_files(root: &Path, to: &Path) -> Result<u64> {
    let told = |error: io::Error| format!("{}: {error}", to.display());
    let mut out = File::create(to).map_err(told)?;
    let mut bytes = 0;
    trees::visit(root, &mut |path, metadata| {
        if metadata.is_file() {
            bytes += io::copy(&mut File::open(path)?, &mut out)?;
        }
        Ok(())
    })?;
    Ok(bytes)
}
