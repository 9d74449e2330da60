//! What the command requests from the system before it begins.

use std::num::NonZero;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use pinstripe_base::units::KIB;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Prevents crashes and other processes of the same user from copying this process's memory, which
/// has keys: disables core files, and tracing by anyone except root. If a sandbox forbids this,
/// only the protection is lost.
pub fn forbid_dumps() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Raises the limit of open files to the highest allowed value: a restore has hundreds of files
/// open at once, and the usual soft limit of 1024 exists for programs that call select.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // When it cannot be raised, whatever needs more files says so itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Whether a descriptor is the stream to the journal of systemd that the variable `JOURNAL_STREAM`
/// names by device and inode: see systemd.exec(5).
pub fn is_journal(fd: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    let named = std::env::var_os("JOURNAL_STREAM");
    named.is_some_and(|it| it.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// Lowers the priority of this process for processors and disks, where the system allows it.
/// Threads that are started later inherit the priority.
pub fn lower_priority() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: the call takes numbers only and changes nothing but when this thread is served; a
    // kernel or a sandbox without it answers with an error, and then it goes at the usual pace.
    let _ =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE << CLASS_SHIFT) };
    let _ = rustix::process::nice(NICE);
}

/// The nice value of a run that yields the processors.
const NICE: i32 = 19;

/// The memory that this process may still take, as far as the system tells: the least of the
/// machine's free memory, the limit of its control group and the limit of its address space.
pub fn free_memory_bytes() -> Option<u64> {
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|it| available(&it));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| {
        // A cgroup of version 2 has one line, `0::/path`.
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let dir = Path::new("/sys/fs/cgroup").join(path);
        Some(number(&dir.join("memory.max"))?.saturating_sub(number(&dir.join("memory.current"))?))
    });
    let space = getrlimit(Resource::As).current.and_then(|limit| {
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        let used: u64 = pages.split(' ').next()?.parse().ok()?;
        Some(limit.saturating_sub(used * rustix::param::page_size() as u64))
    });
    [machine, group, space].into_iter().flatten().min()
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * KIB)
}

/// The first listening socket that a service manager has passed to this process, as described in
/// sd_listen_fds(3).
pub fn activated_socket() -> Option<OwnedFd> {
    const FIRST_FD: i32 = 3;
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID")? != std::process::id() || number("LISTEN_FDS")? == 0 {
        return None;
    }
    // SAFETY: the service manager opened this descriptor for this process, and nothing else here
    // uses it: this function is called once.
    Some(unsafe { OwnedFd::from_raw_fd(FIRST_FD) })
}

/// The machine's name, as it is stored in snapshots.
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The numbers of the user and the group that this process runs as.
pub fn owner() -> (u32, u32) {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    (user.as_raw(), group.as_raw())
}

/// The number of processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       16316412 kB\nMemFree:  1 kB\nMemAvailable:   12345 kB\n";
        assert_eq!(available(text), Some(12_345 * 1024));
        assert_eq!(available("MemFree:  1 kB\n"), None);
        assert!(free_memory_bytes().is_none_or(|free| free > 0));
    }
}
