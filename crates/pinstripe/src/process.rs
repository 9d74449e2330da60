//! The identity of this process, and whether another process with a recorded identity has certainly
//! ended.
//!
//! "Certainly" is narrow: the same boot of the same kernel, the same namespace of process numbers,
//! and there either no process of that number or one that started at another time. Everything else
//! is "may run". Never here: a guess.

#![allow(clippy::disallowed_methods, reason = "reads what the kernel tells of processes")]

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::format::session::Process;

/// This process. A part that the system does not tell is zero, and proves nothing about any
/// process.
pub fn own() -> Process {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = text("/etc/machine-id");
    let machine = match machine.trim() {
        "" => [0; 16],
        id => {
            // Hashed, since the machine id itself is private.
            let hash = blake3::derive_key("pinstripe 2026 machine id in a session", id.as_bytes());
            *hash.first_chunk().expect("32 bytes have a first 16")
        }
    };
    let pid = std::process::id();
    Process {
        machine,
        boot: uuid(text("/proc/sys/kernel/random/boot_id").trim()).unwrap_or_default(),
        namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino()),
        pid,
        started_ticks: started_ticks(pid).unwrap_or(0),
    }
}

/// Whether `other` has certainly ended, as far as `own` process can tell.
pub fn is_gone(other: &Process, own: &Process) -> bool {
    let is_known = own.boot != [0; 16] && own.namespace != 0 && own.started_ticks != 0;
    let is_comparable = other.boot == own.boot && other.namespace == own.namespace;
    if !is_known || !is_comparable || other.started_ticks == 0 {
        return false;
    }
    // Asked by a signal that is none: a process of another user may be hidden in /proc.
    let Some(pid) = i32::try_from(other.pid).ok().and_then(Pid::from_raw) else { return true };
    match test_kill_process(pid) {
        Err(Errno::SRCH) => true,
        _ => started_ticks(other.pid).is_some_and(|ticks| ticks != other.started_ticks),
    }
}

/// Whether `other` ran before this machine was last started. Machine ids are copied now and then,
/// so this allows ending its session, which does no harm to a writer that lives; not more.
pub(crate) fn is_of_an_earlier_boot(other: &Process, own: &Process) -> bool {
    let is_known = own.machine != [0; 16] && own.boot != [0; 16] && other.boot != [0; 16];
    is_known && other.machine == own.machine && other.boot != own.boot
}

/// Field 22 of `/proc/PID/stat`; the name of the program before it may hold anything.
fn started_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.chars().filter(|&c| c != '-').collect();
    pinstripe_base::id::SetId::from_hex(&hex).map(|id| id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_gone_when_it_was_waited_for() {
        let me = own();
        assert!(me.boot != [0; 16] && me.namespace != 0 && me.started_ticks != 0, "{me:?}");
        assert!(!is_gone(&me, &me));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other =
            Process { pid: child.id(), started_ticks: started_ticks(child.id()).unwrap(), ..me };
        assert!(!is_gone(&other, &me));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&other, &me));
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_no_sign_of_life() {
        let me = own();
        assert!(is_gone(&Process { started_ticks: me.started_ticks + 1, ..me }, &me));
    }

    #[test]
    fn what_cannot_be_compared_may_run() {
        let me = own();
        let dead = Process { pid: u32::MAX, ..me };
        assert!(is_gone(&dead, &me));
        for other in [
            Process { boot: [9; 16], ..dead },
            Process { namespace: 1, ..dead },
            Process { started_ticks: 0, ..dead },
        ] {
            assert!(!is_gone(&other, &me));
        }
        assert!(!is_gone(&dead, &Process { boot: [0; 16], ..me }));
        let me = Process { machine: [1; 16], ..me };
        assert!(is_of_an_earlier_boot(&Process { boot: [9; 16], ..me }, &me));
        assert!(!is_of_an_earlier_boot(&me, &me));
        assert!(!is_of_an_earlier_boot(&Process { machine: [2; 16], boot: [9; 16], ..me }, &me));
    }
}
