//! `cargo xtask soak [--seeds N] [--from S]` runs the stress test of the library with many seeds;
//! `cargo xtask soak split` runs a split that is far larger than its memory. `cargo xtask soak lab`
//! tests verdicts on devices that take a known time; `cargo xtask soak readers` tests a mount that
//! several readers read at random offsets. Without an argument, all of these are run. `cargo xtask
//! soak hostile [--seeds N] [--from S]` tests every verb with members that return false data.
//! `cargo xtask soak stories [--seeds N] [--from S]` plays short stories that are determined
//! completely by their seeds, in release mode. `cargo xtask soak pairs` runs every verb
//! concurrently with every other verb, with the real command or simulated. `cargo xtask soak record
//! [--seeds N] [--from S]` tests takes that are killed, takes interrupted by a power cut, and takes
//! that other programs wrote, with 60 seeds. `cargo xtask soak buckets [--seconds N]` tests hosts
//! that are killed while gc runs, in one bucket, for an hour. `cargo xtask soak quick` runs `lab
//! quick` repeatedly and compares its advice; this takes half an hour, on a machine without other
//! load. `cargo xtask soak executions [--count N] [--dir DIR]` compares equal executions of one
//! command on this disk; this takes six minutes. `cargo xtask soak tune [--pairs N] [--dir DIR]
//! [--knobs FILE] [--source TREE]` runs `lab tune`, then jobs with and without its advice. `cargo
//! xtask soak whole` runs completely the tests that `cargo xtask test --all` runs in part: with a
//! fault at each step instead of every fifth or third step, and with four times the seeds and
//! cases. `cargo xtask soak loom` tries the orders of the threads of the recorder's ring and of the
//! worker pool. `cargo xtask soak ceph` starts a Ceph cluster and runs the tests that need one. `cargo
//! xtask soak serve [--seeds N] [--from S]` kills hosts and servers that are real processes, with 60
//! seeds.
//!
//! `cargo xtask test --all` runs only the first six seeds of the stress test; `cargo xtask soak`
//! runs any number of seeds. A failed seed is reported with its story, and with a shorter story
//! that also fails.

mod ceph;
mod executions;
mod lab;
mod loom;
mod pairs;
mod program;
mod quick;
mod readers;
mod split;
mod stories;
mod tune;

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// The default number of seeds.
const SEEDS: u64 = 1000;

/// The default number of seeds for the recorder, where each seed is a kill, and for servers, where
/// each seed is a store: one takes about five seconds.
const SLOW_SEEDS: u64 = 60;

/// Runs the requested tests; returns false if something failed.
pub fn run(args: &[String]) -> Result<bool> {
    match args {
        [] => {
            let pairs = pairs::run(&["--simulated".to_owned()])? & pairs::run(args)?;
            let of_store = seeds(args)? & stories::run(args)? & hostile(args)? & pairs;
            Ok(of_store & record(args)? & readers::run()? & split::run()? & lab::run()?)
        }
        [word, args @ ..] if word == "record" => record(args),
        [word] if word == "readers" => readers::run(),
        [word, args @ ..] if word == "hostile" => hostile(args),
        [word, args @ ..] if word == "stories" => stories::run(args),
        [word, args @ ..] if word == "pairs" => pairs::run(args),
        [word] if word == "split" => split::run(),
        [word] if word == "lab" => lab::run(),
        [word] if word == "loom" => loom::run(),
        [word] if word == "ceph" => ceph::run(),
        [word] if word == "whole" => whole(),
        [word, args @ ..] if word == "buckets" => buckets(args),
        [word, args @ ..] if word == "serve" => serve(args),
        [word, args @ ..] if word == "executions" => executions::run(args),
        [word, args @ ..] if word == "tune" => tune::run(args),
        [word, args @ ..] if word == "quick" => quick::run(args),
        _ => seeds(args),
    }
}

fn seeds(args: &[String]) -> Result<bool> {
    let (from, to) = range(args)?;
    println!("stress test with seeds {from} to {}", to - 1);
    let mut test = cargo();
    test.args(["test", "--package", "pinstripe", "--test", "stress"]);
    test.args(["--", "--nocapture", "no_finished_snapshot_ever_loses_a_byte"]);
    test.env("PINSTRIPE_STRESS_SEEDS", format!("{from}..{to}"));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "0");
    }
    succeeds(test.current_dir(root_folder()?))
}

/// The crates whose tests use only a share of their steps, seeds or cases in `cargo xtask test
/// --all`.
const SHARED_OUT: [&str; 5] =
    ["pinstripe", "pinstripe-array", "pinstripe-bucket", "pinstripe-prefetch", "pinstripe-serve"];

/// Runs these tests with all their steps, seeds and cases.
fn whole() -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--no-fail-fast"]);
    SHARED_OUT.iter().for_each(|crate_| _ = test.args(["--package", crate_]));
    test.args(["--", "--include-ignored"]).env("PINSTRIPE_WHOLE", "1");
    succeeds(test.current_dir(root_folder()?))
}

/// Tests hosts that write to one bucket and are killed, over a connection with faults, for a
/// limited time.
fn buckets(args: &[String]) -> Result<bool> {
    let seconds = match args {
        [] => "3600",
        [option, seconds] if option == "--seconds" => seconds,
        _ => return Err("soak buckets knows --seconds N".to_owned()),
    };
    let mut test = cargo();
    test.args(["test", "--package", "pinstripe-cli", "--test", "cli", "--", "--nocapture"]);
    test.args(["--include-ignored", "buckets_soak::"]).env("PINSTRIPE_SOAK_SECONDS", seconds);
    succeeds(test.current_dir(root_folder()?))
}

/// Runs attacks and verbs in the order that each seed draws.
fn hostile(args: &[String]) -> Result<bool> {
    let (from, to) = range(args)?;
    println!("hostile members with seeds {from} to {}", to - 1);
    let root = root_folder()?;
    let run = |package: &str, test: &str| {
        let mut command = cargo();
        command.args(["test", "--release", "--package", package, "--test", test, "--"]);
        command.args(["--nocapture", "whatever_hostile_members_do_in_turn_nothing_is_lost"]);
        command.env("PINSTRIPE_HOSTILE_SEEDS", format!("{from}..{to}"));
        // Behind a server, every seed instead of a few.
        succeeds(command.env("PINSTRIPE_ALL", "1").current_dir(&root))
    };
    Ok(run("pinstripe", "it")? & run("pinstripe-serve", "serve")?)
}

/// Tests takes that were killed, interrupted by a power cut, or written by other programs.
fn record(args: &[String]) -> Result<bool> {
    let (from, to) = few(args)?;
    println!("takes with seeds {from} to {}", to - 1);
    let run = |package: &[&str], tests: &[&str]| {
        let mut test = cargo();
        test.args(["test", "--package"]).args(package).args(["--", "--nocapture"]);
        test.arg("--include-ignored").args(tests);
        test.env("PINSTRIPE_RECORD_SEEDS", format!("{from}..{to}"));
        succeeds(test.current_dir(root_folder()?))
    };
    let in_memory = ["after_a_power_cut_all", "whatever_stands_in_a_take"];
    Ok(run(&["pinstripe-record", "--lib"], &in_memory)?
        & run(&["pinstripe-cli", "--test", "cli"], &["record::killed_at_any_moment"])?)
}

/// Kills hosts and servers while hosts back up.
fn serve(args: &[String]) -> Result<bool> {
    let (from, to) = few(args)?;
    println!("hosts and servers that are killed with seeds {from} to {}", to - 1);
    let mut test = cargo();
    test.args(["test", "--package", "pinstripe-cli", "--test", "cli", "--", "--nocapture"]);
    test.arg("serve_killed::").env("PINSTRIPE_SERVE_KILL_SEEDS", format!("{from}..{to}"));
    succeeds(test.current_dir(root_folder()?))
}

/// The seeds of a test whose seeds are slow.
fn few(args: &[String]) -> Result<(u64, u64)> {
    let own = ["--seeds".to_owned(), SLOW_SEEDS.to_string()];
    let is_given = args.iter().any(|it| it == "--seeds");
    range(&if is_given { args.to_vec() } else { [&own, args].concat() })
}

/// The seeds that `--seeds N` and `--from S` select: the first one, and the one after the last.
pub(crate) fn range(args: &[String]) -> Result<(u64, u64)> {
    let (mut seeds, mut from) = (SEEDS, 0_u64);
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let place = match option.as_str() {
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            other => {
                return Err(format!("--seeds N and --from S are known here, not '{other}'"));
            }
        };
        let number = args.next().ok_or_else(|| format!("{option} needs a number"))?;
        *place = number.parse().map_err(|_| format!("{option}: '{number}' is not a number"))?;
    }
    let to = from.checked_add(seeds).filter(|_| seeds > 0);
    Ok((from, to.ok_or_else(|| format!("--seeds {seeds} --from {from}: no seeds to run"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_counted_from_the_first() {
        let range =
            |args: &[&str]| range(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert_eq!(range(&[]).unwrap(), (0, 1000));
        assert_eq!(range(&["--seeds", "1", "--from", "42"]).unwrap(), (42, 43));
        for bad in [&["--seeds"][..], &["--seeds", "x"], &["--seeds", "0"], &["7"]] {
            assert!(range(bad).is_err(), "{bad:?}");
        }
    }
}
