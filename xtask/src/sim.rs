//! `cargo xtask sim [--seeds N] [--from S]`: the simulator of arrays with many seeds, and with the
//! power going at each step of one story of each level.

use crate::soak::range;
use crate::workspace::{Result, cargo, root_folder, succeeds};

/// Runs it; false when a seed failed.
pub fn run(args: &[String]) -> Result<bool> {
    let (from, to) = range(args)?;
    println!("the simulator of arrays with seeds {from} to {}", to - 1);
    let mut test = cargo();
    test.args([
        "test",
        "--release",
        "--package",
        "pinstripe-array",
        "--test",
        "sim",
        "--",
        "--nocapture",
    ]);
    test.env("PINSTRIPE_SIM_SEEDS", format!("{from}..{to}"));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "0");
    }
    succeeds(test.current_dir(root_folder()?))
}
