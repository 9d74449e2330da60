//! Identifies this process, and finds out whether another process with a recorded identity has
//! certainly ended.
//!
//! "Certainly" is meant strictly: it is the same boot of the same kernel and the same PID
//! namespace, and there is no process with that PID, or one with another start time, or a zombie.
//! In all other cases the process may be running. This module never guesses.

#![allow(
    clippy::disallowed_methods,
    reason = "this module reads what the kernel reports about processes"
)]

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::format::session::Process;

/// The identity of this process. A part that the system does not report is zero, and proves nothing
/// about any process.
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
        started_ticks: ProcessStat::read(pid).map_or(0, |stat| stat.started_ticks),
    }
}

/// Whether `other` has certainly ended, as seen from the process `own`.
pub fn is_gone(other: &Process, own: &Process) -> bool {
    let is_known = own.boot != [0; 16] && own.namespace != 0 && own.started_ticks != 0;
    let is_comparable = other.boot == own.boot && other.namespace == own.namespace;
    if !is_known || !is_comparable || other.started_ticks == 0 {
        return false;
    }
    // Tested with signal 0: a process of another user may be hidden in /proc.
    let Some(pid) = i32::try_from(other.pid).ok().and_then(Pid::from_raw) else { return true };
    match test_kill_process(pid) {
        Err(Errno::SRCH) => true,
        _ => ProcessStat::read(other.pid)
            .is_some_and(|stat| stat.has_ended || stat.started_ticks != other.started_ticks),
    }
}

/// Whether `other` ran before the last boot of this machine. Machine ids are sometimes copied to
/// other machines, so this result only allows ending the session of `other`, which does no harm to
/// a running writer.
pub fn is_of_an_earlier_boot(other: &Process, own: &Process) -> bool {
    let is_known = own.machine != [0; 16] && own.boot != [0; 16] && other.boot != [0; 16];
    is_known && other.machine == own.machine && other.boot != own.boot
}

/// The fields of `/proc/PID/stat` that are used here.
struct ProcessStat {
    started_ticks: u64,
    /// The process is a zombie. The process remains a zombie if its init process never waits for
    /// children, as in some containers.
    has_ended: bool,
}

impl ProcessStat {
    /// Returns `None` if the system does not report the process.
    fn read(pid: u32) -> Option<ProcessStat> {
        ProcessStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The fields follow the name of the program, which may contain any bytes. The first field
    /// after the name is the state, field 3.
    fn parse(stat: &[u8]) -> Option<ProcessStat> {
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        let is_ended = matches!(*fields.first()?, "Z" | "X");
        // The first thread may end before the others, which may still write.
        let threads: u64 = fields.get(17)?.parse().ok()?;
        let started_ticks = fields.get(19)?.parse().ok()?;
        Some(ProcessStat { started_ticks, has_ended: is_ended && threads <= 1 })
    }
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
        let started_ticks = ProcessStat::read(child.id()).unwrap().started_ticks;
        let other = Process { pid: child.id(), started_ticks, ..me };
        assert!(!is_gone(&other, &me));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&other, &me));
    }

    #[test]
    fn a_killed_process_that_nobody_waits_for_is_gone() {
        let me = own();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started_ticks = ProcessStat::read(child.id()).unwrap().started_ticks;
        let other = Process { pid: child.id(), started_ticks, ..me };
        child.kill().unwrap();
        let ended = rustix::process::WaitId::Pid(Pid::from_child(&child));
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(ended, options).unwrap();
        assert!(is_gone(&other, &me));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state: &str, threads: u32| {
            let line =
                format!("7 (a) b) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 123 0");
            ProcessStat::parse(line.as_bytes())
                .map(|stat| (stat.started_ticks, stat.has_ended))
                .unwrap()
        };
        assert_eq!(stat("S", 3), (123, false));
        assert_eq!(stat("Z", 3), (123, false));
        assert_eq!(stat("Z", 1), (123, true));
        assert_eq!(stat("X", 0), (123, true));
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
