//! `cargo xtask md-oracle`: compares arrays of Linux md with pinstripe's arrays, in both
//! directions. md runs in a User-Mode Linux, which is fetched as a Debian package and not
//! installed; this needs a network, or a mirror.

use crate::packages;
use crate::workspace::{Result, cargo, root_folder, succeeds};

/// The programs that the host needs in addition to the guest.
const PACKAGES: &[&str] = &["kmod", "mdadm"];

/// Runs the comparison; returns false if something differed.
pub fn run() -> Result<bool> {
    packages::install(PACKAGES);
    let mut test = cargo();
    test.args([
        "test",
        "--package",
        "pinstripe-array",
        "--features",
        "md-oracle",
        "--test",
        "md_oracle",
    ]);
    succeeds(test.args(["--", "--nocapture"]).current_dir(root_folder()?))
}
