//! `cargo xtask bench CASE`: builds in release mode and lets `pinstripe-bench`, a program of
//! `pinstripe-lab` with its feature `bench`, measure.
//!
//! Results land in `target/bench/` as JSON and Markdown; the Markdown is also shown.

use std::process::Command;

use crate::workspace::{Result, Workspace, cargo, succeeds};

const CASES: &[&str] = &[
    "array", "codec", "lab", "walk", "parity", "read", "record", "seal", "settings", "split",
    "backup", "bucket", "catalog", "store",
];

/// Runs one case, or all of them; false when one of them failed.
pub fn run(args: &[String]) -> Result<bool> {
    let (case, rest) = match args.split_first() {
        Some((case, rest)) => (case.as_str(), rest),
        None => return Err(format!("bench what? {} or all", CASES.join(", "))),
    };
    let cases = match CASES.iter().find(|known| **known == case) {
        Some(known) => vec![*known],
        None if case == "all" && rest.is_empty() => CASES.to_vec(),
        None if case == "all" => return Err("bench all takes no arguments".to_owned()),
        None => return Err(format!("no case '{case}': {} or all", CASES.join(", "))),
    };
    let workspace = Workspace::load()?;
    let mut build = cargo();
    build.args(["build", "--release", "-p", "pinstripe-lab", "-p", "pinstripe-cli"]);
    build.args(["--features", "pinstripe-lab/bench"]);
    if !succeeds(build.current_dir(&workspace.root))? {
        return Ok(false);
    }
    let mut all_fine = true;
    for case in cases {
        // The parity kernels are measured by criterion; the bench only reads what it wrote.
        let mut criterion = cargo();
        criterion.args(["bench", "-p", "pinstripe-kernel"]).current_dir(&workspace.root);
        if case == "parity" && !succeeds(&mut criterion)? {
            all_fine = false;
            continue;
        }
        let mut bench = Command::new(workspace.target.join("release/pinstripe-bench"));
        bench.arg(case).arg("--markdown").arg("--out").arg(workspace.target.join("bench"));
        if case == "parity" {
            bench.arg("--criterion").arg(workspace.target.join("criterion"));
        }
        all_fine &= succeeds(bench.args(rest))?;
    }
    Ok(all_fine)
}
