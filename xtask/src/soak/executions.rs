//! Checks how often executions of one command are reported as different, on the disk of this
//! machine. The command is executed repeatedly; then sets of three executions are compared, as a
//! user does with `lab compare`. Nothing was changed between them, so each reported difference is
//! an error of the verdict. At most one comparison in twenty may report a difference.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::program::LabProgram;
use crate::workspace::{Result, Workspace};

/// The default number of executions.
const EXECUTIONS: usize = 40;
/// The number of comparisons of two sets.
const PAIRS: usize = 100;
/// The number of executions on each side.
const SIDE: usize = 3;
/// One verdict in this number may be wrong.
const OF: usize = 20;
/// The command: writes over existing files, and random reads.
const CASE: [&str; 7] = [
    "run",
    "fileio",
    "--modes=seqrewr,rndrd",
    "--files=4",
    "--total-size=128M",
    "--run-time=0.5",
    "--time=6",
];

/// Makes `--count N` executions in `--dir DIR`; returns false if more verdicts were wrong than is
/// permitted.
pub fn run(args: &[String]) -> Result<bool> {
    let (count, dir) = wish(args)?;
    let workspace = Workspace::load()?;
    let program = LabProgram::build(&workspace)?;
    let dir = dir.unwrap_or_else(|| workspace.target.join("soak/executions"));
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let state = dir.join("state");
    let results: Vec<PathBuf> = (0..count)
        .map(|number| {
            println!("execution {} of {count}", number + 1);
            execute(&program, &dir, &state.join(number.to_string()))
        })
        .collect::<Result<_>>()?;
    let (mut verdicts, mut wrong) = (0, 0);
    for pair in 0..PAIRS {
        let drawn = draw(pair as u64, count);
        let [before, after] = [0, SIDE].map(|from| {
            drawn[from..from + SIDE].iter().map(|it| results[*it].as_path()).collect::<Vec<_>>()
        });
        let (of_pair, wrong_of_pair) = compare(&program, &state, &before, &after)?;
        verdicts += of_pair;
        wrong += wrong_of_pair;
    }
    std::fs::remove_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    println!("called different: {wrong} of {verdicts} verdicts on {PAIRS} pairs of triples");
    Ok(verdicts > 0 && wrong * OF <= verdicts)
}

fn wish(args: &[String]) -> Result<(usize, Option<PathBuf>)> {
    let (mut count, mut dir) = (EXECUTIONS, None);
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--count" => {
                let number = value.parse().ok().filter(|it| *it >= 2 * SIDE);
                count = number.ok_or_else(|| format!("--count {value}: {} or more", 2 * SIDE))?;
            }
            "--dir" => dir = Some(PathBuf::from(value)),
            _ => return Err(format!("--count and --dir are known here, not '{option}'")),
        }
    }
    Ok((count, dir))
}

/// Executes the case once; returns the file of its results.
fn execute(program: &LabProgram, dir: &Path, state: &Path) -> Result<PathBuf> {
    let dir = dir.display().to_string();
    let (status, events) = program.events(CASE.into_iter().chain(["--dir", &dir]), state)?;
    // Results that were disturbed are results.
    let mut summary = events.iter().filter(|it| it["event"] == "summary");
    let saved = summary.find_map(|it| it["path"].as_str().map(PathBuf::from));
    saved.ok_or_else(|| format!("lab run ended with {status} and saved nothing"))
}

/// Returns the number of verdicts on two sides, and how many of them report a difference.
fn compare(
    program: &LabProgram,
    state: &Path,
    before: &[&Path],
    after: &[&Path],
) -> Result<(usize, usize)> {
    let words = ["compare", "--accept-noise"].map(Path::new).into_iter();
    let sides = before.iter().copied().chain([Path::new("--")]).chain(after.iter().copied());
    let (_, events) = program.events(words.chain(sides), &state.join("none"))?;
    Ok(counted(events.into_iter()))
}

fn counted(events: impl Iterator<Item = Value>) -> (usize, usize) {
    let (mut verdicts, mut wrong) = (0, 0);
    for event in events {
        if let Some(finding) = event["finding"].as_str() {
            verdicts += 1;
            wrong += usize::from(["faster", "slower"].contains(&finding));
        }
    }
    (verdicts, wrong)
}

/// Draws different numbers below `count`, as many as two sides have.
fn draw(seed: u64, count: usize) -> Vec<usize> {
    let mut drawn: Vec<usize> = (0..count).collect();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for at in 0..2 * SIDE {
        // xorshift64 (Marsaglia 2003), which is even enough for a few draws.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = at + (state % (count - at) as u64) as usize;
        drawn.swap(at, other);
    }
    drawn.truncate(2 * SIDE);
    drawn
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_verdicts_that_differ_are_wrong() {
        let finding = |it: &str| json!({"event": "lab_verdict", "finding": it});
        let told = ["faster", "as_good", "cannot_tell", "slower"].map(finding);
        let others = [json!({"event": "summary"})];
        assert_eq!(counted(told.into_iter().chain(others)), (4, 2));
    }

    #[test]
    fn both_sides_are_drawn_without_repetition() {
        for seed in 0..200 {
            let mut drawn = draw(seed, 40);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), 2 * SIDE);
            assert!(drawn.iter().all(|it| *it < 40));
        }
        assert_ne!(draw(1, 40), draw(2, 40));
    }
}
