//! Finds the processes that have a device open, by their descriptors in `/proc`.
//!
//! The kernel's tables list mounts, swap and volumes, and an exclusive use makes an exclusive open
//! fail. A program that opens a device without O_EXCL (a virtual machine, a database) is found by
//! neither.
//!
//! Invariant: no file on a network file system is accessed, because a server that does not respond
//! would stop the search. Descriptors that this user may not read are not found.

use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opener {
    pub(super) pid: u32,
    pub(super) program: String,
}

impl std::fmt::Display for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.program)
    }
}

/// The other processes that have the device with these numbers open.
pub(super) fn openers(major: u32, minor: u32) -> Vec<Opener> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|pid| *pid != std::process::id());
    let mut found: Vec<Opener> = others
        .filter(|pid| has_open(&Path::new("/proc").join(pid.to_string()).join("fd"), major, minor))
        .map(|pid| Opener { pid, program: program(pid) })
        .collect();
    found.sort_by_key(|it| it.pid);
    found
}

fn has_open(descriptors: &Path, major: u32, minor: u32) -> bool {
    let links = fs::read_dir(descriptors).into_iter().flatten().flatten();
    links.into_iter().any(|link| {
        // The attributes that the kernel has: nothing is asked of a server.
        let flags = AtFlags::STATX_DONT_SYNC;
        let found = statx(rustix::fs::CWD, link.path(), flags, StatxFlags::TYPE);
        found.is_ok_and(|it| {
            FileType::from_raw_mode(it.stx_mode.into()) == FileType::BlockDevice
                && (it.stx_rdev_major, it.stx_rdev_minor) == (major, minor)
        })
    })
}

fn program(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}
