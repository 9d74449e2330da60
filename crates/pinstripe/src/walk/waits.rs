//! How often a thread has waited: for a disk, a server, a lock.

/// How often the present thread gave up its processor because it could not go on, which is not the
/// same as being preempted.
#[allow(unsafe_code, reason = "no crate of ours has getrusage(2)")]
pub(super) fn of_this_thread() -> u64 {
    // SAFETY: getrusage fills the struct, for which zeros are a value, and keeps no pointer to it;
    // with these arguments it cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_nvcsw.max(0) as u64
}
