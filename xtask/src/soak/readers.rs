//! Several readers read a mount at random offsets for a minute; every byte must be equal to the
//! source.

use crate::workspace::{Result, cargo, root_folder, succeeds};

/// The number of seconds for which they read.
const SECONDS: u64 = 60;

/// Runs the readers; returns false if a byte was wrong.
pub fn run() -> Result<bool> {
    println!("readers of a mount, for {SECONDS} s");
    let mut test = cargo();
    test.args(["test", "--release", "--package", "pinstripe-cli", "--test", "cli", "--"]);
    test.args(["--nocapture", "mount_readers::readers_at_random_places"]);
    test.env("PINSTRIPE_READER_SECONDS", SECONDS.to_string());
    succeeds(test.current_dir(root_folder()?))
}
