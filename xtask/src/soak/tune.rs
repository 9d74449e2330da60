//! Checks whether following `lab tune` makes jobs faster, or at least not slower: split and backup
//! are run in turns with its file of knobs and without it, in the directory that it measured. A job
//! counts as equally fast if it takes at most 3 % longer, as in the lab's own advice. On some
//! disks, equal commands differ by more than that. So each pair has a third execution, again
//! without knobs: differences between equal commands are not a fault of the advice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::program::LabProgram;
use crate::workspace::{Result, Workspace};

/// The default number of pairs.
const PAIRS: usize = 20;
/// One pair in this number may be slower.
const OF: usize = 20;
/// How much slower a setting may be so that the difference is neglected, as in the lab's advice.
const NEGLIGIBLE: f64 = 0.03;
/// The source of the split: pages of zeros, words, and random bytes.
const SPLIT: &str = "fake:1G,zero=40%,entropy=0.5";

struct Wish {
    pairs: usize,
    dir: Option<PathBuf>,
    knobs: Option<PathBuf>,
    source: PathBuf,
}

/// The options are `--pairs N`, `--dir DIR`, `--knobs FILE` from an earlier `lab tune` of that
/// directory, and `--source TREE` to back up. Returns false if the defaults were faster more often
/// than by chance.
pub fn run(args: &[String]) -> Result<bool> {
    let wish = read(args)?;
    let workspace = Workspace::load()?;
    let program = LabProgram::build(&workspace)?;
    let stand = wish.dir.clone().unwrap_or_else(|| workspace.target.join("soak"));
    let stand = stand.join("soak-tune");
    let _ = fs::remove_dir_all(&stand);
    fs::create_dir_all(&stand).map_err(|error| format!("{}: {error}", stand.display()))?;
    let knobs = match &wish.knobs {
        Some(knobs) => knobs.clone(),
        None => tuned(&program, &stand)?,
    };
    let text =
        fs::read_to_string(&knobs).map_err(|error| format!("{}: {error}", knobs.display()))?;
    println!("{text}");
    let mut holds = true;
    for job in [Job::Split, Job::Backup] {
        let pairs = (0..wish.pairs)
            .map(|number| pair(&program, &stand, (job, &wish.source), &knobs, number))
            .collect::<Result<Vec<_>>>()?;
        holds &= judge(job, &pairs);
    }
    fs::remove_dir_all(&stand).map_err(|error| format!("{}: {error}", stand.display()))?;
    Ok(holds)
}

fn read(args: &[String]) -> Result<Wish> {
    let mut wish = Wish { pairs: PAIRS, dir: None, knobs: None, source: "/usr/share".into() };
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--pairs" => {
                let number = value.parse().ok().filter(|it| *it > 0);
                wish.pairs = number.ok_or_else(|| format!("--pairs {value}: one or more"))?;
            }
            "--dir" => wish.dir = Some(value.into()),
            "--knobs" => wish.knobs = Some(value.into()),
            "--source" => wish.source = value.into(),
            _ => {
                let known = "--pairs, --dir, --knobs and --source";
                return Err(format!("{known} are known here, not '{option}'"));
            }
        }
    }
    Ok(wish)
}

/// Measures the directory with `lab tune`, as a user does.
fn tuned(program: &LabProgram, stand: &Path) -> Result<PathBuf> {
    let knobs = stand.join("knobs.toml");
    let [dir, out] = [stand, &knobs].map(|it| it.display().to_string());
    let (status, _) = program.events(["tune", &dir, "--out", &out], &stand.join("state"))?;
    match knobs.is_file() {
        true => Ok(knobs),
        false => Err(format!("lab tune ended with {status} and wrote no knobs")),
    }
}

#[derive(Clone, Copy)]
enum Job {
    Split,
    Backup,
}

/// The times of three executions, in seconds.
struct Pair {
    usual: f64,
    tuned: f64,
    usual_again: f64,
}

/// Executes a job three times; the order of the variants alternates from pair to pair.
fn pair(
    program: &LabProgram,
    stand: &Path,
    (job, source): (Job, &Path),
    knobs: &Path,
    number: usize,
) -> Result<Pair> {
    let mut seconds = [0.0; 3];
    for turn in 0..3 {
        let way = (turn + number) % 3;
        let knobs = (way == 1).then_some(knobs);
        seconds[way] = executed(program, stand, (job, source), knobs)?;
    }
    let [usual, tuned, usual_again] = seconds;
    println!("pair {}: {usual:.2} s, with knobs {tuned:.2} s, {usual_again:.2} s", number + 1);
    Ok(Pair { usual, tuned, usual_again })
}

/// Returns the seconds of one execution, from the start until everything is durable.
fn executed(
    program: &LabProgram,
    stand: &Path,
    (job, source): (Job, &Path),
    knobs: Option<&Path>,
) -> Result<f64> {
    let work = stand.join("job");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    succeeded(&mut Command::new("sync"))?;
    let outputs = ["0", "1", "2"].map(|it| work.join(it));
    let call = |verb: &str| {
        let mut command = program.command();
        command.arg(verb).stdout(Stdio::null()).env("XDG_STATE_HOME", stand.join("state"));
        command.env("XDG_CACHE_HOME", stand.join("cache"));
        knobs.into_iter().for_each(|it| _ = command.arg("--knobs").arg(it));
        command
    };
    let mut command = match job {
        Job::Split => {
            let mut split = call("split");
            split.arg(SPLIT).args(&outputs);
            split
        }
        Job::Backup => {
            let mut init = call("init");
            init.args(["--parity", "1", "--same-disk", "--encryption", "none"]);
            outputs.iter().for_each(|it| _ = init.arg("--member").arg(it));
            succeeded(&mut init)?;
            let mut backup = call("backup");
            backup.arg(source).arg("--store").arg(&outputs[0]);
            backup
        }
    };
    let began = Instant::now();
    succeeded(&mut command)?;
    Ok(began.elapsed().as_secs_f64())
}

fn succeeded(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("cannot run pinstripe: {error}"))?;
    // A tree with files that only root may read is backed up without these.
    match status.code() {
        Some(0 | 3) => Ok(()),
        _ => Err(format!("{command:?} ended with {status}")),
    }
}

/// Whether the knobs were equally fast in 19 of 20 pairs, or in as many pairs as an equal command
/// was.
fn judge(job: Job, pairs: &[Pair]) -> bool {
    let is_as_good = |it: f64, than: f64| it <= than * (1.0 + NEGLIGIBLE);
    let good = pairs.iter().filter(|it| is_as_good(it.tuned, it.usual)).count();
    let equal = pairs.iter().filter(|it| is_as_good(it.usual_again, it.usual)).count();
    let mut ratios: Vec<f64> = pairs.iter().map(|it| it.tuned / it.usual).collect();
    ratios.sort_by(f64::total_cmp);
    let what = match job {
        Job::Split => "split",
        Job::Backup => "backup",
    };
    println!(
        "{what}: as fast with knobs as without in {good} of {} pairs (an equal command in {equal}); \
         time with knobs {:.2} of that without, in the median",
        pairs.len(),
        ratios[ratios.len() / 2],
    );
    good * OF >= pairs.len() * (OF - 1) || good >= equal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(tuned: &[f64]) -> Vec<Pair> {
        tuned.iter().map(|it| Pair { usual: 1.0, tuned: *it, usual_again: 1.0 }).collect()
    }

    #[test]
    fn one_pair_of_twenty_may_be_slower() {
        let mut times = vec![1.02; 20];
        assert!(judge(Job::Split, &pairs(&times)));
        times[3] = 1.2;
        assert!(judge(Job::Split, &pairs(&times)));
        times[4] = 1.2;
        assert!(!judge(Job::Split, &pairs(&times)));
    }

    #[test]
    fn what_an_equal_command_does_too_is_no_fault() {
        let slower = |again: f64| Pair { usual: 1.0, tuned: 1.2, usual_again: again };
        assert!(judge(Job::Backup, &[slower(1.1)]));
        assert!(!judge(Job::Backup, &[slower(1.0)]));
    }

    #[test]
    fn options_are_read() {
        let read = |text: &str| read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read("--pairs 4 --dir /d").unwrap().pairs, 4);
        for bad in ["--pairs 0", "--pairs", "--count 3"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
