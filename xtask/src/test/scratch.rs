//! The directory in which tests create theirs: in memory, if enough memory is available.
//!
//! The library's tests create and remove many thousands of small files; on a journaling file system
//! this takes several times as long as the tests themselves. The same is true of the endpoint in
//! the tests of buckets. Tests of the program, of devices and of the lab use the disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file system in memory that every Linux system has.
const MEMORY: &str = "/dev/shm";
/// The file with the kernel's memory statistics.
const ACCOUNT: &str = "/proc/meminfo";
/// The memory that must be available, in KiB: tests use far less at a time, and builds have ended
/// by then.
const LEAST_KIB: u64 = 4 << 20;
/// The packages whose tests use that directory.
const PACKAGES: &[&str] = &["pinstripe", "pinstripe-array", "pinstripe-bucket", "pinstripe-nbd"];

/// A directory that is removed when this value is dropped.
pub(super) struct Scratch(Option<PathBuf>);

impl Scratch {
    /// Creates the directory, if enough memory is available.
    pub fn new() -> Scratch {
        let account = fs::read_to_string(ACCOUNT).unwrap_or_default();
        if available_kib(&account) < LEAST_KIB || !Path::new(MEMORY).is_dir() {
            return Scratch(None);
        }
        let path = Path::new(MEMORY).join(format!("pinstripe-tests-{}", std::process::id()));
        // Tests that give up root's rights use it too.
        let made = fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o1777)));
        Scratch(made.is_ok().then_some(path))
    }

    /// Returns the directory for the tests of a package; `None` for the system's default.
    pub fn of(&self, package: &str) -> Option<&Path> {
        self.0.as_deref().filter(|_| PACKAGES.contains(&package))
    }

    /// Describes the place of the directory, for people.
    pub fn told(&self) -> String {
        match &self.0 {
            Some(path) => format!("{} tests run in {}", PACKAGES.join(", "), path.display()),
            None => format!("all tests run on the disk: less than {LEAST_KIB} KiB are available"),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a test that failed has kept is in the directory that it names.
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Returns the value of `MemAvailable` in the kernel's memory statistics.
fn available_kib(account: &str) -> u64 {
    let line = account.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|it| it.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_available() {
        let account = "MemTotal:       24000000 kB\nMemAvailable:   21000000 kB\n";
        assert_eq!(available_kib(account), 21_000_000);
        assert_eq!(available_kib("MemTotal: 1 kB\n"), 0);
    }

    #[test]
    fn only_the_library_is_tested_in_memory() {
        let scratch = Scratch(Some("/nowhere".into()));
        assert!(scratch.of("pinstripe").is_some());
        assert_eq!(scratch.of("pinstripe-cli"), None);
        assert_eq!(Scratch(None).of("pinstripe"), None);
        std::mem::forget(scratch);
    }
}
