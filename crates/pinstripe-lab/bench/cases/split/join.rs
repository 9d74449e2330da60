//! Joining and verifying against splitting, with all outputs and with one missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pinstripe_lab::Table;

use super::{Run, Settings, rates, ratios};
use crate::Result;
use crate::targets::{Target, figure_row, figures};
use crate::tools::Pinstripe;
use crate::trees;

/// At least these shares of split's rate, and of that with one output missing.
const SHARE: f64 = 0.9;
const MISSING_SHARE: f64 = 0.7;

const OUTPUTS: usize = 5;
const CODEC: &str = "lz4";

/// One way to have the source back.
const WAYS: [(&str, f64); 4] = [
    ("join to a file", SHARE),
    ("join to /dev/null", SHARE),
    ("verify", SHARE),
    ("one missing: join to /dev/null", MISSING_SHARE),
];

pub fn measure(settings: &Settings) -> Result<Table> {
    let tool = settings.bench.pinstripe()?;
    let note = format!(
        "split --codec {CODEC} --parity 1 of a dump (45 % zero pages, the others half random bytes and \
         half words) over {OUTPUTS} outputs; these then read from the page cache. {}",
        settings.circumstances(),
    );
    let mut table = figures("Joining and verifying", note);
    let (mut splits, mut found) = (Vec::new(), WAYS.map(|_| Vec::new()));
    for _ in 0..settings.bench.rounds {
        let [split, rest @ ..] = round(settings, &tool)?;
        splits.push(split);
        found.iter_mut().zip(rest).for_each(|(runs, run)| runs.push(run));
    }
    let split_rates = rates(&splits);
    figure_row(&mut table, "split: MB/s", &split_rates, 0, Target::None);
    for ((what, share), runs) in WAYS.iter().zip(&found) {
        figure_row(&mut table, &format!("{what}: MB/s"), &rates(runs), 0, Target::None);
        let (what, shares) = (format!("{what}: share of split"), ratios(runs, &split_rates));
        figure_row(&mut table, &what, &shares, 2, Target::AtLeast(*share));
    }
    let cpu = |runs: &[Run]| runs.iter().map(Run::cpu).collect::<Vec<_>>();
    figure_row(&mut table, "split: CPU s per GB", &cpu(&splits), 2, Target::None);
    figure_row(&mut table, "verify: CPU s per GB", &cpu(&found[2]), 2, Target::None);
    Ok(table)
}

/// Split, then all ways.
fn round(settings: &Settings, tool: &Pinstripe) -> Result<[Run; 1 + WAYS.len()]> {
    let source = format!("fake:{},zero=45%,entropy=0.5", settings.bytes);
    let split = settings.split(tool, &source, OUTPUTS, &["--parity", "1", "--codec", CODEC])?;
    let outputs = outputs(settings)?;
    warm(&outputs)?;
    let joined = settings.outputs().join("joined");
    let to_file = {
        let mut command = tool.bare("join");
        command.arg("--json").args(&outputs).arg("-o").arg(&joined);
        settings.timed(command, tool, "join-file")?
    };
    fs::remove_file(&joined).map_err(|error| format!("{}: {error}", joined.display()))?;
    let to_null = |outputs: &[PathBuf]| {
        let mut join = tool.bare("join");
        join.args(outputs);
        settings.timed(to_nowhere(&join), tool, &format!("join-null-{}", outputs.len()))
    };
    let mut verify = tool.bare("verify");
    verify.arg("--json").args(&outputs);
    let verified = settings.timed(verify, tool, "verify")?;
    Ok([split, to_file, to_null(&outputs)?, verified, to_null(&outputs[1..])?])
}

/// Reads files once: split went past the page cache, and a disk that is read at the same time would
/// take writes at half its rate.
fn warm(outputs: &[PathBuf]) -> Result<()> {
    for path in outputs {
        let read = |path| std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink());
        read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The same command with its output thrown away, where it would be kept in a log.
fn to_nowhere(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" > /dev/null"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The outputs that split has written.
fn outputs(settings: &Settings) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    trees::visit(&settings.outputs(), &mut |path, metadata| {
        if metadata.is_file() {
            found.push(path.to_path_buf());
        }
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thrown_away_is_run_all_the_same() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo loud; exit $CODE"]).env("CODE", "7");
        let output = to_nowhere(&command).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0));
    }
}
