//! `cargo xtask bench CASE`: builds in release mode and runs the measurements of `pinstripe-bench`,
//! a program of `pinstripe-lab` with its feature `bench`.
//!
//! Results are written to `target/bench/` as JSON and Markdown; the Markdown is also shown. The case
//! `serve` also runs the example `shared_catalog` of `pinstripe-cli`, which prints its figures.

use std::process::Command;

use crate::workspace::{Result, Workspace, cargo, succeeds};

const CASES: &[&str] = &[
    "array", "codec", "kernel", "lab", "walk", "read", "record", "seal", "serve", "settings",
    "split", "backup", "bucket", "catalog", "store",
];

/// Runs one case or all cases; returns false if a case failed.
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
        // `pinstripe-bench` has no asynchronous runtime.
        if case == "serve" && (rest.is_empty() || rest == ["--only", "catalog"]) {
            let mut example = cargo();
            example.args(["run", "--release", "-p", "pinstripe-cli", "--example"]);
            all_fine &= succeeds(example.arg("shared_catalog").current_dir(&workspace.root))?;
            if !rest.is_empty() {
                continue;
            }
        }
        let mut bench = Command::new(workspace.target.join("release/pinstripe-bench"));
        bench.arg(case).arg("--markdown").arg("--out").arg(workspace.target.join("bench"));
        all_fine &= succeeds(bench.args(rest))?;
    }
    Ok(all_fine)
}
