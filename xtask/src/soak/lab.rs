//! Checks the lab's verdicts: equal devices must seldom be reported as different, and a simulated
//! slowdown must be found.

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// Runs the tests that take minutes; returns false if one failed.
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
