//! The development tasks of this repository, as `cargo xtask VERB`.
//!
//! The program depends on none of the workspace's other crates, so that it still works when they do
//! not compile.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

mod bench;
mod fuzz;
mod licence;
mod md_oracle;
mod packages;
mod sim;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
The chores of this repository.

usage:
  cargo xtask test                 format, clippy, tidy, licences and the tests that must pass before a merge
  cargo xtask test --all           the same, the long tests too, and more seeds
  cargo xtask test --quick         format, clippy, tidy and unit tests: the inner loop
  cargo xtask tidy                 the house rules that no compiler checks
  cargo xtask tidy --words [NAME]  lines with odd words, of each crate and page or of one; also
                                   'help' and 'messages'
  cargo xtask fuzz [SECONDS]       every fuzz target for SECONDS each (default 30)
  cargo xtask soak [--seeds N] [--from S]
                                   the stress test with N seeds from S on (default 1000 from 0)
  cargo xtask soak stories [--seeds N] [--from S]
                                   short stories; each replays exactly (default 1000)
  cargo xtask soak pairs [--rounds N] [--seconds N] [--from S]
                                   every verb of a store with every other one, in two processes
  cargo xtask soak pairs --simulated [--seeds N] [--from S]
                                   the same from seeds, and three at once; prints the table of pairs
  cargo xtask soak readers         a mount read at random places by several readers, for a minute
  cargo xtask soak split           16 GiB split with parity, and verified without an output
  cargo xtask soak lab             equal devices and slower ones, and the verdicts of the lab
  cargo xtask soak loom            the orders of threads at the recorder's ring and in the pool of workers
  cargo xtask soak quick [--rounds N] [--dir DIR] [--time S]
                                   'lab quick' ten times, and whether it gives the same advice
  cargo xtask soak executions [--count N] [--dir DIR]
                                   executions of one command: how many verdicts tell them apart
  cargo xtask soak serve [--seeds N] [--from S]
                                   hosts and servers that are killed, as processes (default 60)
  cargo xtask soak ceph            the tests that need a Ceph, on a cluster that it starts (as root)
  cargo xtask soak                 all of them but these three, which need a quiet machine or a Ceph
  cargo xtask sim [--seeds N] [--from S]
                                   the simulator of arrays (default 1000 seeds from 0), and buckets
  cargo xtask sim buckets [--seeds N] [--from S]
                                   hosts that write to endpoints which lose answers
  cargo xtask md-oracle            compares arrays of Linux md with ours, both ways
  cargo xtask bench CASE [ARG]...  codec, walk, backup, bucket, kernel, seal or all; ARGs go to the case;
                                   results land in target/bench/ as JSON and Markdown
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let verb = args.first().map(String::as_str);
    let rest = args.get(1..).unwrap_or_default();
    let done = match verb {
        Some("test") => test::run(rest),
        Some("tidy") => match rest {
            [] => tidy::run(),
            [option] if option == "--words" => tidy::list_words(None),
            [option, name] if option == "--words" => tidy::list_words(Some(name)),
            _ => {
                Err("usage: cargo xtask tidy [--words [CRATE, PAGE, help or messages]]".to_owned())
            }
        },
        Some("fuzz") => fuzz::run(rest),
        Some("soak") => soak::run(rest),
        Some("sim") => sim::run(rest),
        Some("md-oracle") if rest.is_empty() => md_oracle::run(),
        Some("bench") => bench::run(rest),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
