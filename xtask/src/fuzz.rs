//! `cargo xtask fuzz [SECONDS]`: runs every fuzz target in turn, with the stable compiler.
//!
//! Fuzzing runs without a sanitizer, so that no nightly compiler is needed. It finds panics, failed
//! assertions, overflow (debug assertions are on) and excessive memory use, in safe code.

use std::fs;
use std::time::{Duration, Instant};

use crate::workspace::{Result, cargo, root_folder, succeeds, works};

const SECONDS: u64 = 30;

/// Runs every target for the given number of seconds; returns false if a target found something.
pub fn run(args: &[String]) -> Result<bool> {
    let seconds = match args {
        [] => SECONDS,
        [seconds] => {
            seconds.parse().map_err(|_| format!("'{seconds}' is not a number of seconds"))?
        }
        _ => return Err("fuzz takes one argument, the seconds for each target".to_owned()),
    };
    if !works(cargo().args(["fuzz", "--version"])) {
        return Err("cargo-fuzz is missing: cargo install --locked cargo-fuzz".to_owned());
    }
    let targets = targets()?;
    let total = Duration::from_secs(seconds * targets.len() as u64);
    println!("{} targets for {seconds} s each, {} s in all", targets.len(), total.as_secs());
    let root = root_folder()?;
    let fuzz = |verb: &str| {
        let mut command = cargo();
        // No nightly: what cargo-fuzz passes to the compiler is let through on stable as well.
        command.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", verb, "--sanitizer", "none"]);
        command.current_dir(&root);
        command
    };
    if !succeeds(&mut fuzz("build"))? {
        return Ok(false);
    }
    let mut found = Vec::new();
    for target in targets {
        let start = Instant::now();
        let mut command = fuzz("run");
        command.args([&target, "--", &format!("-max_total_time={seconds}")]);
        command.args(["-rss_limit_mb=2048", "-timeout=10", "-verbosity=0", "-print_final_stats=1"]);
        let fine = succeeds(&mut command)?;
        println!("fuzz {target}: {} after {:.0?}", verdict(fine), start.elapsed());
        if !fine {
            found.push(target);
        }
    }
    if !found.is_empty() {
        println!("found something: {} (inputs in fuzz/artifacts/)", found.join(", "));
    }
    Ok(found.is_empty())
}

fn verdict(fine: bool) -> &'static str {
    if fine { "nothing found" } else { "FOUND SOMETHING" }
}

/// The names of the targets, taken from the files; each must also be a `[[bin]]` of the manifest.
fn targets() -> Result<Vec<String>> {
    let fuzz = root_folder()?.join("fuzz");
    let told = |error| format!("cannot read {}: {error}", fuzz.display());
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).map_err(told)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz.join("fuzz_targets")).map_err(told)? {
        let file = entry.map_err(told)?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".rs") {
            if !manifest.contains(&format!("\"fuzz_targets/{file}\"")) {
                return Err(format!("fuzz/Cargo.toml has no [[bin]] for fuzz_targets/{file}"));
            }
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
