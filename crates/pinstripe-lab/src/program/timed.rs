//! Runs a command and measures it: its time, its processor time, its memory, and the bytes that it
//! and its child processes read and wrote.
//!
//! Invariants: the command runs in a process group of its own; when [`run`] returns, the command
//! has ended and was waited for, and if it was stopped or took too long, its whole group was killed.
//! The calling thread reads the output while it waits, so the command never waits for a reader; no
//! thread is started.
//!
//! This module does not know what a command is run for, or what its failure means.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

use crate::run::Live;

/// The interval at which the stop flag is polled, because it wakes no thread.
const PERIOD: Duration = Duration::from_millis(20);
/// The bytes of standard error that are kept: the last ones.
const KEPT_BYTES: usize = 4096;
/// The bytes that one read takes from a pipe.
const READ_BYTES: usize = 64 << 10;
/// The most reads after the end of the command. A process that it left behind could write forever.
const READS_AFTER_END: usize = 32;
/// The memory that a child process may use before it becomes another program, in addition to the
/// resident memory of this process.
const FORK_BYTES: u64 = 1 << 20;
/// The unit in which the kernel counts blocks in `struct rusage`.
const BLOCK_BYTES: u64 = 512;

/// The destination of the standard output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// `/dev/null`.
    Null,
    /// A pipe whose content is counted, and hashed if this is requested.
    Pipe {
        /// Whether the content is hashed.
        is_hashed: bool,
    },
    /// The standard output of this process.
    Inherit,
    /// A file, which is created, or replaced by each run.
    File(PathBuf),
}

/// The outcome of a command that was run.
#[derive(Debug)]
pub(crate) struct TimedRun {
    /// The exit status.
    pub status: ExitStatus,
    /// Seconds from just before the start of the command to its end.
    pub seconds: f64,
    /// Its consumption of resources.
    pub usage: ProcessUsage,
    /// The bytes that went through the pipe.
    pub out_bytes: u64,
    /// Their hash, if it was requested.
    pub out_hash: Option<blake3::Hash>,
    /// The end of its standard error.
    pub err: String,
}

/// The resources that a command and its child processes used; processes that the command did not
/// wait for are not included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ProcessUsage {
    /// Processor time in user mode.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
    /// The largest resident memory of one process; `None` if it was less than `memory_floor_bytes`,
    /// below which the kernel's figure is that of the process that started the command.
    pub memory_bytes: Option<u64>,
    /// The smallest figure that means anything.
    pub memory_floor_bytes: u64,
    /// Bytes that were read from disks.
    pub disk_read_bytes: u64,
    /// Bytes that were written for disks, now or later.
    pub disk_written_bytes: u64,
    /// Bytes that read(2) and similar calls returned; `None` if the kernel does not say.
    pub call_read_bytes: Option<u64>,
    /// Bytes that were given to write(2) and similar calls.
    pub call_written_bytes: Option<u64>,
}

/// Runs a command, which reads `input`, or nothing.
///
/// # Errors
/// [`Kind::NotFound`] if the program does not exist; [`Kind::Interrupted`] after a stop request, and
/// [`Kind::Unanswered`] after `timeout`, when the command was killed; [`Kind::Io`] if it cannot be
/// started. A failing exit code is not an error.
pub(crate) fn run(
    command: &mut Command,
    input: Option<&Path>,
    output: &Output,
    timeout: Option<Duration>,
    live: &Live,
) -> Result<TimedRun> {
    let name = command.get_program().to_owned();
    let failed = |error: io::Error| Error::io("cannot run", &name, error);
    let opened = |path: &Path| File::open(path).map_err(|it| Error::io("cannot read", path, it));
    command.stdin(input.map(opened).transpose()?.map_or_else(Stdio::null, Stdio::from));
    command.stdout(destination(output)?).stderr(Stdio::piped()).process_group(0);
    // SAFETY: between fork and exec there is one system call, and nothing is allocated.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let memory_floor_bytes = resident_bytes() + FORK_BYTES;
    let began = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    let is_hashed = *output == Output::Pipe { is_hashed: true };
    let pipe = |fd: Option<OwnedFd>, is_hashed| Stream::new(fd, is_hashed);
    let mut out = pipe(child.stdout.take().map(OwnedFd::from), is_hashed);
    let mut err = pipe(child.stderr.take().map(OwnedFd::from), false);
    let waited = wait(&child, [&mut out, &mut err], began, timeout, live);
    if waited.is_err() {
        // The group is named by a child that was not waited for yet, so it is still its own.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let counted = read_counters(child.id());
    let (status, usage) = reap(&child, counted, memory_floor_bytes).map_err(failed)?;
    let seconds = waited?;
    [&mut out, &mut err].into_iter().for_each(Stream::read_rest);
    Ok(TimedRun {
        status,
        seconds,
        usage,
        out_bytes: out.bytes,
        out_hash: out.hasher.map(|it| it.finalize()),
        err: String::from_utf8_lossy(&err.tail).into_owned(),
    })
}

fn destination(output: &Output) -> Result<Stdio> {
    Ok(match output {
        Output::Null => Stdio::null(),
        Output::Pipe { .. } => Stdio::piped(),
        Output::Inherit => Stdio::inherit(),
        Output::File(path) => File::create(path)
            .map_err(|error| Error::io("cannot create the file of --output", path, error))?
            .into(),
    })
}

/// Waits for the end of the command, and reads its output. Returns the seconds that it took.
fn wait(
    child: &Child,
    mut streams: [&mut Stream; 2],
    began: Instant,
    timeout: Option<Duration>,
    live: &Live,
) -> Result<f64> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(|errno| {
        let what = "the kernel cannot report the end of a command (pidfd_open)";
        Error::io(what, "/", errno).advice("Linux 5.3 or later is needed")
    })?;
    loop {
        live.check()?;
        let left = timeout.map(|it| it.saturating_sub(began.elapsed()));
        if left.is_some_and(|it| it.is_zero()) {
            let what = "the command was killed because it did not end within the time of --timeout";
            return Err(Error::new(Kind::Unanswered, what));
        }
        let open = streams.iter().filter_map(|it| it.from.as_ref());
        let mut polled = vec![PollFd::new(&end, PollFlags::IN)];
        polled.extend(open.map(|from| PollFd::new(from, PollFlags::IN)));
        let time = left.map_or(PERIOD, |it| it.min(PERIOD));
        let time = Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
        // A signal that interrupts the wait is as good as the end of the period.
        let _ = poll(&mut polled, Some(&time));
        if polled[0].revents().intersects(PollFlags::IN) {
            return Ok(began.elapsed().as_secs_f64());
        }
        for stream in &mut streams {
            stream.read();
        }
    }
}

/// A pipe from which the output of a command is read.
struct Stream {
    /// `None` after its end.
    from: Option<File>,
    bytes: u64,
    hasher: Option<blake3::Hasher>,
    tail: Vec<u8>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>, is_hashed: bool) -> Self {
        // A pipe that would block is read by mistake only if the system refuses this.
        let set = |fd: &OwnedFd| rustix::io::ioctl_fionbio(fd.as_fd(), true).is_ok();
        let from = fd.filter(set).map(File::from);
        let hasher = is_hashed.then(blake3::Hasher::new);
        Stream { from, bytes: 0, hasher, tail: Vec::new() }
    }

    /// Reads what is available, at most one buffer. Returns whether there may be more.
    fn read(&mut self) -> bool {
        let Some(from) = &mut self.from else { return false };
        let mut buffer = vec![0; READ_BYTES];
        match from.read(&mut buffer) {
            Ok(count @ 1..) => {
                self.take(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            _ => {
                self.from = None;
                false
            }
        }
    }

    /// Reads what the command wrote before its end.
    fn read_rest(&mut self) {
        for _ in 0..READS_AFTER_END {
            if !self.read() {
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..excess);
    }
}

/// The counters of bytes of a process and of its children that have ended (`/proc/PID/io`).
#[derive(Debug, Default)]
struct Counters {
    call_read: u64,
    call_written: u64,
    disk_read: u64,
    disk_written: u64,
}

/// Reads the counters of a process that has ended and was not waited for; `None` if the kernel does
/// not offer them, or not for the processes of another user.
fn read_counters(pid: u32) -> Option<Counters> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.trim().parse().ok()
    };
    let cancelled = field("cancelled_write_bytes").unwrap_or(0);
    Some(Counters {
        call_read: field("rchar")?,
        call_written: field("wchar")?,
        disk_read: field("read_bytes")?,
        disk_written: field("write_bytes")?.saturating_sub(cancelled),
    })
}

/// The resident memory of this process. A child process shares a part of it until it becomes
/// another program, and the kernel counts this part as memory of the child.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Waits for a process that has ended or was killed.
fn reap(
    child: &Child,
    counted: Option<Counters>,
    floor: u64,
) -> io::Result<(ExitStatus, ProcessUsage)> {
    let mut status = 0;
    // SAFETY: `struct rusage` is numbers, for which zeros are a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        let pid = child.id() as libc::pid_t;
        // SAFETY: wait4 fills both, and keeps no pointer to them.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) };
        if ended == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let seconds = |it: libc::timeval| it.tv_sec as f64 + it.tv_usec as f64 / 1e6;
    let blocks = |count: libc::c_long| count as u64 * BLOCK_BYTES;
    let memory = used.ru_maxrss as u64 * 1024;
    let usage = ProcessUsage {
        user_s: seconds(used.ru_utime),
        system_s: seconds(used.ru_stime),
        memory_bytes: (memory > floor).then_some(memory),
        memory_floor_bytes: floor,
        disk_read_bytes: counted.as_ref().map_or(blocks(used.ru_inblock), |it| it.disk_read),
        disk_written_bytes: counted.as_ref().map_or(blocks(used.ru_oublock), |it| it.disk_written),
        call_read_bytes: counted.as_ref().map(|it| it.call_read),
        call_written_bytes: counted.as_ref().map(|it| it.call_written),
    };
    Ok((ExitStatus::from_raw(status), usage))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    fn ran(text: &str, output: &Output) -> TimedRun {
        run(&mut shell(text), None, output, None, &Live::new(Arc::default())).unwrap()
    }

    #[test]
    fn a_command_is_measured_with_its_children() {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let pipe = Output::Pipe { is_hashed: true };
        let ran = ran(&format!("sh -c '{busy}; echo a' ; echo b >&2; exit 3"), &pipe);
        assert_eq!(ran.status.code(), Some(3));
        assert_eq!((ran.out_bytes, &*ran.err), (2, "b\n"));
        assert_eq!(ran.out_hash, Some(blake3::hash(b"a\n")));
        assert!(ran.usage.user_s + ran.usage.system_s > 0.0 && ran.seconds > 0.0, "{ran:?}");
        // What the child wrote, and what the shell wrote.
        assert!(ran.usage.call_written_bytes.is_none_or(|it| it >= 4), "{ran:?}");
    }

    #[test]
    fn the_memory_of_the_largest_process_is_known_if_it_is_larger_than_ours() {
        let big = ran("head -c 200M /dev/zero | tail -c 200M", &Output::Null);
        let found = big.usage.memory_bytes.unwrap();
        assert!((200 << 20..2 << 30).contains(&found), "{found}");
        let small = ran("true", &Output::Null);
        assert!(small.usage.memory_bytes.is_none_or(|it| it > small.usage.memory_floor_bytes));
    }

    #[test]
    fn output_goes_where_it_is_sent_and_input_comes_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("in"), dir.path().join("out"));
        fs::write(&from, "input\n").unwrap();
        let live = Live::new(Arc::default());
        for _ in 0..2 {
            let ran = run(&mut shell("cat"), Some(&from), &Output::File(to.clone()), None, &live)
                .unwrap();
            assert!(ran.status.success());
            assert_eq!(fs::read_to_string(&to).unwrap(), "input\n", "it is replaced");
        }
        // More than a pipe holds; a background process does not prevent the end.
        let pipe = Output::Pipe { is_hashed: false };
        let much = ran("head -c 300000 /dev/zero; sleep 2 >/dev/null 2>&1 & ", &pipe);
        assert_eq!((much.out_bytes, much.out_hash), (300_000, None));
    }

    #[test]
    fn a_command_that_never_ends_is_killed() {
        let live = Live::new(Arc::default());
        let time = Some(Duration::from_millis(30));
        let error =
            run(&mut shell("sleep 1000 & wait"), None, &Output::Null, time, &live).unwrap_err();
        assert_eq!(error.kind(), Kind::Unanswered);
        live.stop().store(true, Ordering::Relaxed);
        let error = run(&mut shell("sleep 1000"), None, &Output::Null, None, &live).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted);
        let none = &mut Command::new("/no/such/program");
        let error = run(none, None, &Output::Null, None, &live).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }
}
