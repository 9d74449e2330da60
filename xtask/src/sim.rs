//! `cargo xtask sim [--seeds N] [--from S]`: the simulator of arrays with many seeds, every ordered
//! pair of array verbs, whose table it prints for `doc/measured.md`, and the power going at each step
//! of one story of each level; power cuts while an array grows, with as
//! many seeds; the planner of read-ahead on 10,000 generated patterns; and stories of hosts that
//! write to buckets, which `cargo xtask sim buckets` plays alone.

use crate::soak::range;
use crate::workspace::{Result, cargo, root_folder, succeeds};

/// A setting that makes glibc keep freed memory: the next story has disks of the same size, and
/// clearing their pages again in the kernel would take a third of the total time.
const KEEPS_MEMORY: &str =
    "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296";

/// Runs the simulators; returns false if a seed failed.
pub fn run(args: &[String]) -> Result<bool> {
    if let Some(("buckets", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        let (from, to) = range(rest)?;
        return buckets(&format!("{from}..{to}"));
    }
    let (from, to) = range(args)?;
    println!("the simulator of arrays with seeds {from} to {}", to - 1);
    let seeds = format!("{from}..{to}");
    let worlds = ["--test", "sim", "--", "--nocapture"];
    let growing = ["--lib", "--", "a_power_cut"];
    let patterns = ["--lib", "--", "no_generated_pattern"];
    Ok(play("pinstripe-array", &worlds, "PINSTRIPE_SIM_SEEDS", &seeds)?
        & play("pinstripe-array", &growing, "PINSTRIPE_GROW_SEEDS", &seeds)?
        & play("pinstripe-prefetch", &patterns, "PINSTRIPE_PATTERN_SEEDS", "0..10000")?
        & buckets(&seeds)?)
}

/// Simulates hosts that write to endpoints in memory.
fn buckets(seeds: &str) -> Result<bool> {
    println!("stories of buckets with seeds {seeds}");
    let stories = ["--test", "hosts", "--", "--nocapture", "no_story"];
    play("pinstripe-bucket", &stories, "PINSTRIPE_BUCKET_SEEDS", seeds)
}

fn play(package: &str, args: &[&str], variable: &str, seeds: &str) -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--release", "--package", package]).args(args);
    test.env(variable, seeds).env("GLIBC_TUNABLES", KEEPS_MEMORY);
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "0");
    }
    succeeds(test.current_dir(root_folder()?))
}
