//! What the command asks of the system before it begins.

use std::num::NonZero;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes as many open files as are allowed: a restore keeps hundreds open at once, and the usual
/// soft limit of 1024 is there for programs that call select.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // When it cannot be raised, whatever needs more files says so itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Lets others go first, on the processors and at the disks, where the system allows that. Threads
/// that are started from now on inherit it.
pub fn be_patient() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: the call takes numbers only and changes nothing but when this thread is served; a
    // kernel or a sandbox without it answers with an error, and then it goes at the usual pace.
    let _ =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE << CLASS_SHIFT) };
    let _ = rustix::process::nice(NICE);
}

/// How far it steps back at the processors.
const NICE: i32 = 19;

/// The machine's name, as snapshots keep it.
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The numbers of the user and the group that this process runs as.
pub fn owner() -> (u32, u32) {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    (user.as_raw(), group.as_raw())
}

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
