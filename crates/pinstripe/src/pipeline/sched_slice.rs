//! Asks the system for long turns at a processor, for threads that compute.
//!
//! A worker's tables and buffers are megabytes. When several backups share the processors, the
//! system switches between them every few milliseconds, and each turn begins with a cache full of
//! another's data. Longer turns change no process's share, and threads with short turns still run
//! when they wake up (decision 0016).
//!
//! Never changes policy or priority. Where the system knows no turns of a thread's own (Linux
//! before 6.12), nothing happens.

use super::limits::TURN;

/// The kernel's `struct sched_attr` in its first version.
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

/// Returns this thread's attributes, if the system supports this.
fn attributes() -> Option<Attributes> {
    let size = size_of::<Attributes>();
    let mut found = Attributes::default();
    // SAFETY: the pointer is to a live, writable struct of the size that is given, which holds
    // integers only; the kernel writes no more than that. 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut found, size, 0) };
    (answer == 0).then_some(found)
}

/// Asks for long turns of the calling thread. Only a wish: a system that refuses it serves as it
/// did.
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
