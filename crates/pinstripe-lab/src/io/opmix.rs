//! Replays a load file by several clients at the same time, each in its own directory, and measures
//! the time of every operation.
//!
//! An operation in progress when the time has elapsed is awaited, and its full time counts, so that
//! the longest stall is never cut off. An operation whose result differs from the load file is only
//! counted, because file systems differ. Only a full or failing disk ends the replay.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use pinstripe_base::error::{Error, Result};
use pinstripe_io::remove::remove_tree;

use super::loadfile::{FileAction, KINDS, LoadOperation};
use super::{Content, at_once};
use crate::histogram::Histogram;
use crate::run::Live;

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replay {
    /// Times by sort, in the order of [`KINDS`].
    pub times: Vec<Histogram>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations whose result differs from the load file.
    pub surprises: u64,
    /// Seconds from the first operation to the end of the last one.
    pub seconds: f64,
}

/// Replays a load with this many clients, repeatedly, for this time.
///
/// # Errors
/// Errors of a full or failing disk; an interrupt.
pub fn replay(
    load: &[LoadOperation],
    base: &Path,
    clients: usize,
    time: Duration,
    live: &Live,
) -> Result<Replay> {
    let began = Instant::now();
    let parts = at_once(clients, |number| {
        MixClient::new(load, base.join(format!("client{number}")), number as u64)?
            .replay(began, time, live)
    });
    let mut replayed =
        Replay { times: vec![Histogram::default(); KINDS.len()], ..Replay::default() };
    for part in parts {
        let part = part?;
        replayed.times.iter_mut().zip(&part.times).for_each(|(all, one)| all.merge(one));
        replayed.read_bytes += part.read_bytes;
        replayed.written_bytes += part.written_bytes;
        replayed.surprises += part.surprises;
    }
    live.check()?;
    replayed.seconds = began.elapsed().as_secs_f64();
    Ok(replayed)
}

struct MixClient<'a> {
    load: &'a [LoadOperation],
    base: PathBuf,
    open: HashMap<u32, File>,
    buffer: Vec<u8>,
}

impl<'a> MixClient<'a> {
    fn new(load: &'a [LoadOperation], base: PathBuf, seed: u64) -> Result<Self> {
        fs::create_dir_all(&base).map_err(|error| Error::io("cannot make", &base, error))?;
        let bytes = |it: &LoadOperation| match it.act {
            FileAction::Write(_, _, bytes) | FileAction::Read(_, _, bytes) => bytes,
            _ => 0,
        };
        let mut buffer = vec![0; load.iter().map(bytes).max().unwrap_or(0)];
        Content::Noise.fill(&mut buffer, seed);
        Ok(MixClient { load, base, open: HashMap::new(), buffer })
    }

    fn replay(&mut self, began: Instant, time: Duration, live: &Live) -> Result<Replay> {
        let mut replayed =
            Replay { times: vec![Histogram::default(); KINDS.len()], ..Replay::default() };
        loop {
            for operation in self.load {
                let start = Instant::now();
                if live.is_stopped() || start.duration_since(began) >= time {
                    return Ok(replayed);
                }
                let done = self.act(&operation.act);
                replayed.times[operation.kind].record(start.elapsed());
                match done {
                    Ok((read, written)) => {
                        replayed.read_bytes += read;
                        replayed.written_bytes += written;
                        live.moved(read + written);
                        replayed.surprises += u64::from(!operation.succeeds);
                    }
                    Err(error) if is_fatal(&error) => {
                        return Err(Error::io("cannot continue", &self.base, error));
                    }
                    Err(_) => replayed.surprises += u64::from(operation.succeeds),
                }
            }
            self.open.clear();
        }
    }

    fn file(&self, handle: u32) -> io::Result<&File> {
        self.open.get(&handle).ok_or_else(|| io::Error::from(ErrorKind::NotFound))
    }

    /// Carries out an action; returns the bytes read and the bytes written.
    fn act(&mut self, act: &FileAction) -> io::Result<(u64, u64)> {
        let at = |path: &String| self.base.join(path);
        match act {
            FileAction::Open { path, is_directory, makes, truncates, handle } => {
                let path = at(path);
                let file = match is_directory {
                    true => open_directory(&path, *makes)?,
                    false => open_file(&path, *makes, *truncates)?,
                };
                self.open.insert(*handle, file);
            }
            FileAction::Close(handle) => {
                self.open.remove(handle).ok_or(ErrorKind::NotFound)?;
            }
            FileAction::Rename(from, to) => fs::rename(at(from), at(to))?,
            FileAction::Unlink(path) => fs::remove_file(at(path))?,
            FileAction::Deltree(path) => match remove_tree(&at(path)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            FileAction::Mkdir(path) => match fs::create_dir(at(path)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            },
            FileAction::Look(path) => {
                let _ = fs::symlink_metadata(at(path))?;
            }
            FileAction::LookAt(handle) => {
                let _ = self.file(*handle)?.metadata()?;
            }
            FileAction::Room => {
                let _ = rustix::fs::statvfs(&self.base)?;
            }
            FileAction::Touch(handle) => self.file(*handle)?.set_modified(SystemTime::now())?,
            FileAction::Find(folder, pattern) => find(&at(folder), pattern)?,
            FileAction::Write(handle, offset, bytes) => {
                self.file(*handle)?.write_all_at(&self.buffer[..*bytes], *offset)?;
                return Ok((0, *bytes as u64));
            }
            FileAction::Read(handle, offset, bytes) => {
                let file = self.open.get(handle).ok_or(ErrorKind::NotFound)?;
                let read = file.read_at(&mut self.buffer[..*bytes], *offset)?;
                return Ok((read as u64, 0));
            }
            FileAction::Lock(handle, start, bytes, locks) => {
                lock(self.file(*handle)?, *start, *bytes, *locks)?;
            }
            FileAction::Flush(handle) => self.file(*handle)?.sync_all()?,
        }
        Ok((0, 0))
    }
}

fn open_directory(path: &Path, makes: bool) -> io::Result<File> {
    if makes && !path.is_dir() {
        fs::create_dir(path)?;
    }
    File::open(path)
}

fn open_file(path: &Path, makes: bool, truncates: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match options.read(true).write(true).create(makes).truncate(truncates).open(path) {
        // A path opened for its attributes may also be a directory.
        Err(error) if error.kind() == ErrorKind::IsADirectory => File::open(path),
        other => other,
    }
}

/// Finds names that match a pattern: the directory is listed completely, as a client would. Without
/// a wildcard, only the attributes of one path are read.
fn find(folder: &Path, pattern: &str) -> io::Result<()> {
    if !pattern.contains(['*', '?', '<', '>']) {
        return fs::symlink_metadata(folder.join(pattern)).map(drop);
    }
    // A server finds these two in every directory.
    let mut has_found = [".", ".."].iter().any(|it| is_like(pattern.as_bytes(), it.as_bytes()));
    for entry in fs::read_dir(folder)? {
        has_found |= is_like(pattern.as_bytes(), entry?.file_name().as_bytes());
    }
    if has_found { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
}

/// Whether a name matches an SMB pattern, ignoring case: `*` and `<` match any number of
/// characters, `?` and `>` match one character (MS-FSCC, 2.1.4.4, without its rules for dots).
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*' | b'<', rest @ ..], _) => {
            is_like(rest, name)
                || name.split_first().is_some_and(|(_, name)| is_like(pattern, name))
        }
        ([b'?' | b'>', rest @ ..], [_, name @ ..]) => is_like(rest, name),
        ([one, rest @ ..], [other, name @ ..]) => {
            one.eq_ignore_ascii_case(other) && is_like(rest, name)
        }
        _ => false,
    }
}

/// Locks a range for this open file, or unlocks it, without waiting (fcntl(2)).
fn lock(file: &File, start: u64, bytes: u64, locks: bool) -> io::Result<()> {
    let sort = if locks { libc::F_WRLCK } else { libc::F_UNLCK };
    let range = libc::flock {
        l_type: sort as _,
        l_whence: libc::SEEK_SET as _,
        l_start: start as _,
        l_len: bytes as _,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the kernel reads `range`
    // and keeps no pointer to it.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an error makes all later operations meaningless.
fn is_fatal(error: &io::Error) -> bool {
    let fatal = [libc::EIO, libc::ENOSPC, libc::EROFS, libc::EDQUOT, libc::EMFILE, libc::ENFILE];
    error.raw_os_error().is_some_and(|it| fatal.contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loadfile::{made_up, parse};

    #[test]
    fn each_client_plays_the_load_in_a_directory_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let load = parse(&made_up()).unwrap();
        let live = Live::new(Default::default());
        let replayed = replay(&load, dir.path(), 2, Duration::from_millis(300), &live).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(replayed.written_bytes > 0 && replayed.read_bytes > 0);
        assert_eq!(replayed.surprises, 0, "all that is made up ends as it says");
        let flush = KINDS.iter().position(|it| *it == "Flush").unwrap();
        assert!(!replayed.times[flush].is_empty());
    }

    #[test]
    fn names_are_found_by_patterns_as_a_server_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Filler.001"), "").unwrap();
        for (pattern, is_there) in [
            ("*", true),
            ("FILLER.*", true),
            ("filler.00?", true),
            ("filler.0?", false),
            ("<.JNK", false),
            ("*.00>", true),
            ("Filler.001", true),
            ("filler.002", false),
        ] {
            assert_eq!(find(dir.path(), pattern).is_ok(), is_there, "{pattern}");
        }
        assert!(find(&dir.path().join("gone"), "*").is_err());
        assert!(is_like(b"*a*b", b"xaxxb") && !is_like(b"*a*b", b"xaxxbc"));
    }

    #[test]
    fn what_ends_otherwise_than_it_was_told_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let load =
            parse("Unlink \"\\nothing\" NT_STATUS_OK\nMkdir \"\\a\" NT_STATUS_OK\n").unwrap();
        let live = Live::new(Default::default());
        let replayed = replay(&load, dir.path(), 1, Duration::from_millis(500), &live).unwrap();
        assert!(replayed.surprises > 0 && replayed.surprises <= replayed.times[3].count());
    }
}
