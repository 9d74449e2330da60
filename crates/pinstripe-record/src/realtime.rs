//! Priorities of threads, and their processor time: priorities are requested, and a refusal is
//! reported.

#![allow(clippy::disallowed_methods, reason = "this module reads the CPU time of a thread")]

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The SCHED_FIFO priority of threads that receive samples, above that of threads that write.
pub(crate) const CAPTURE: i32 = 60;
/// The SCHED_FIFO priority of threads that write the contents of the rings. Threads that wait for
/// disks never have a real-time priority.
pub(crate) const WRITING: i32 = 10;

const WHO_PROCESS: libc::c_int = 1;
const CLASS_REAL_TIME: libc::c_int = 1;
const CLASS_SHIFT: libc::c_int = 13;
/// The I/O priority level, from 0 (first) to 7.
const LEVEL: libc::c_int = 4;

/// Makes this thread run before all ordinary threads. Threads that it starts do not inherit the
/// priority.
///
/// # Errors
/// The system's error if this is not permitted (RLIMIT_RTPRIO, CAP_SYS_NICE).
pub(crate) fn run_first(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads the parameters, and changes nothing but when this thread runs.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives this thread's I/O the real-time class, if the disk's scheduler supports classes.
///
/// # Errors
/// The system's error if this is not permitted.
pub fn be_served_first() -> io::Result<()> {
    let class = CLASS_REAL_TIME << CLASS_SHIFT | LEVEL;
    // SAFETY: the call takes numbers only and changes nothing but when this thread is served.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, class) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the processor time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
