//! Events of the server: a file in the state directory, and the last ones in memory for the page.

#![allow(clippy::disallowed_methods, reason = "the file of events")]

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;
use serde::{Deserialize, Serialize};

use crate::state_file;

/// The number of events in memory.
const KEPT: usize = 100;
/// The length at which the file of events is renamed, and a new one begins.
const FILE_MAX_BYTES: u64 = 4 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerEvent {
    pub time_seconds: i64,
    /// Whether an administrator should read it.
    pub is_bad: bool,
    pub what: String,
}

/// The events of a server: `events.jsonl`, and the file before it, `events.1.jsonl`.
pub(crate) struct EventLog {
    path: PathBuf,
    state: Mutex<EventLogState>,
}

struct EventLogState {
    file: File,
    bytes: u64,
    last: VecDeque<ServerEvent>,
}

impl EventLog {
    /// Opens the log in a state directory.
    pub fn open(state: &Path) -> Result<EventLog> {
        let path = state.join("events.jsonl");
        let known = state_file::read(&path).unwrap_or_default().unwrap_or_default();
        let lines = known.split(|byte| *byte == b'\n');
        let last = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let mut last: VecDeque<ServerEvent> = last.collect();
        last.drain(..last.len().saturating_sub(KEPT));
        let (file, bytes) = append_to(&path)?;
        Ok(EventLog { path, state: Mutex::new(EventLogState { file, bytes, last }) })
    }

    /// Adds an event. If the disk of the state is full, the file lacks the event, and the page
    /// shows it.
    pub fn add(&self, is_bad: bool, what: impl Into<String>) {
        let event = ServerEvent { time_seconds: clock::now().0, is_bad, what: what.into() };
        let mut state = lock(&self.state);
        if state.bytes >= FILE_MAX_BYTES
            && fs::rename(&self.path, self.path.with_extension("1.jsonl")).is_ok()
            && let Ok((file, bytes)) = append_to(&self.path)
        {
            (state.file, state.bytes) = (file, bytes);
        }
        if let Ok(mut line) = serde_json::to_vec(&event) {
            line.push(b'\n');
            if state.file.write_all(&line).is_ok() {
                state.bytes += line.len() as u64;
            }
        }
        if state.last.len() == KEPT {
            state.last.pop_front();
        }
        state.last.push_back(event);
    }

    /// The last events, the newest first.
    pub fn last(&self) -> Vec<ServerEvent> {
        lock(&self.state).last.iter().rev().cloned().collect()
    }
}

fn append_to(path: &Path) -> Result<(File, u64)> {
    let failed = |error| Error::io("cannot open", path, error);
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let file = file.map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_there_after_a_restart_and_the_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(dir.path()).unwrap();
        let long = "x".repeat(100_000);
        for number in 0..KEPT + 5 {
            log.add(number % 2 == 0, format!("event {number} {long}"));
        }
        let before = log.last();
        assert_eq!(before.len(), KEPT);
        assert!(before[0].what.starts_with("event 104 "), "{}", &before[0].what[..20]);
        drop(log);
        let length = fs::metadata(dir.path().join("events.jsonl")).unwrap().len();
        assert!(length < FILE_MAX_BYTES + 200_000, "{length}");
        assert!(dir.path().join("events.1.jsonl").exists());
        // A torn line at the end is skipped.
        let mut file =
            OpenOptions::new().append(true).open(dir.path().join("events.jsonl")).unwrap();
        file.write_all(b"{\"time_seconds\":1,").unwrap();
        let log = EventLog::open(dir.path()).unwrap();
        assert_eq!(log.last()[0], before[0]);
    }
}
