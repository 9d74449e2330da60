//! Whether the lab's verdicts hold: equal devices are seldom called different, and a planted
//! slowdown is found.

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// Runs the tests that take minutes; false when one failed.
pub fn run() -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--release", "--package", "pinstripe-lab", "--test", "verdicts"]);
    test.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    succeeds(test.current_dir(root_folder()?))
}
