//! Requests long time slices of a processor, for threads that compute.
//!
//! The tables and buffers of a worker take megabytes. When several backups share the processors,
//! the system switches between them every few milliseconds, and each slice begins with a cache full
//! of another process's data. Longer slices change no process's share of the processors, and
//! threads with short slices still run when they wake up (decision 0016).
//!
//! Scheduling policy and priority are never changed. Where a thread cannot request a slice length
//! (Linux before 6.12), nothing happens.

use super::limits::TURN;

/// The kernel's `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Returns this thread's attributes, if the system supports slice lengths.
fn attributes() -> Option<Attributes> {
    let size = size_of::<Attributes>();
    let mut found = Attributes::default();
    // SAFETY: the pointer is to a live, writable struct of the size that is given, which holds
    // integers only; the kernel writes no more than that. 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut found, size, 0) };
    (answer == 0).then_some(found)
}

/// Requests long time slices for the calling thread. If the system refuses the request, nothing
/// changes.
pub(crate) fn request_long_slices() {
    let Some(found) = attributes() else { return };
    if !matches!(found.policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return;
    }
    let runtime = TURN.as_nanos() as u64;
    let wanted = Attributes { size: size_of::<Attributes>() as u32, runtime, ..found };
    // SAFETY: the kernel only reads the struct, which is live and as long as its size says. 0 is
    // the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &wanted, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_and_priority_stay() {
        let asked = std::thread::spawn(|| {
            let before = attributes();
            request_long_slices();
            (before, attributes())
        });
        // A sandbox may forbid to ask; then nothing was done either.
        if let (Some(before), Some(after)) = asked.join().unwrap() {
            let kept = |it: Attributes| (it.policy, it.flags, it.nice, it.priority);
            assert_eq!(kept(before), kept(after));
            assert!(after.runtime == before.runtime || after.runtime == TURN.as_nanos() as u64);
        }
    }
}
