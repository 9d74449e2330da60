//! Whether the lab's verdicts hold: equal devices are seldom called different, and a planted
//! slowdown is found.

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// Runs the tests that take minutes; false when one failed.
pub fn run() -> Result<bool> {
    let root = root_folder()?;
    let holds = |filter: &str| {
        let mut test = cargo();
        test.args(["test", "--release", "--package", "pinstripe-lab", "--lib", filter]);
        test.args(["--", "--nocapture", "--test-threads=1"]).env("PINSTRIPE_SOAK_LAB", "1");
        succeeds(test.current_dir(&root))
    };
    // Simulated races first: they need no device.
    Ok(holds("races")? && holds("verdicts::")?)
}
