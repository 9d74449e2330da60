//! Mounts that no other process sees.

use std::path::Path;
use std::process::Command;

use crate::{is_root, skipped};

/// Mounts below `at` for this thread and its children alone, on a thread that ends with them.
pub fn in_own_mounts(test: &str, work: impl FnOnce() + Send) {
    if !is_root() {
        return skipped(test, "only root can mount file systems");
    }
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            // SAFETY: leaving the shared mount namespace unshares nothing that memory safety
            // rests on: no descriptors, no address space.
            let left =
                unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
            let private = || Command::new("mount").args(["--make-rprivate", "/"]).status();
            if left.is_err() || !private().is_ok_and(|status| status.success()) {
                return skipped(test, "mounting file systems is not permitted here");
            }
            work();
        });
        done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Mounts `what` at a directory; false when the system refuses.
pub fn mount(kind: &str, options: &str, what: &Path, at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", kind, "-o", options]).arg(what).arg(at);
    command.status().is_ok_and(|status| status.success())
}

/// Unmounts what is mounted at a directory, now or when it is used no more.
pub fn unmount(at: &Path) {
    assert!(Command::new("umount").arg("-l").arg(at).status().unwrap().success());
}
