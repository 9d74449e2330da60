//! A log that is kept after the run: each line is a JSON object or a message with its time,
//! appended with one write.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;

use crate::event::Event;
use crate::time;

/// An open log.
pub struct Journal {
    path: PathBuf,
    file: File,
    failure: Mutex<Option<std::io::Error>>,
}

impl Journal {
    /// Opens the log that `option` names for appending; a missing log is created together with its
    /// directories, and only its owner can read it.
    ///
    /// # Errors
    /// Fails when the log cannot be written.
    pub fn open(path: &Path, option: &str) -> Result<Self> {
        let told = |error| {
            Error::io("cannot write this log file", path, error)
                .advice(format!("give a file that can be written with {option} FILE"))
        };
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above).map_err(told)?;
        }
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path).map_err(told)?;
        Ok(Journal { path: path.to_path_buf(), file, failure: Mutex::default() })
    }

    /// Adds a line that begins with the time. [`sync`](Self::sync) reports lines that cannot be
    /// written.
    pub fn write(&self, event: &Event) {
        let when = time::utc(clock::now().0, 0);
        let line = Event::default().with_some("time", when).with_all(event.clone());
        let mut text = serde_json::to_vec(&line).expect("an event is plain JSON");
        text.push(b'\n');
        self.append(&text);
    }

    /// Adds a message: the local time, then the text.
    pub fn write_text(&self, text: &str) {
        self.append(format!("{} {text}\n", time::date(clock::now().0)).as_bytes());
    }

    fn append(&self, text: &[u8]) {
        if let Err(error) = (&self.file).write_all(text) {
            *lock(&self.failure) = Some(error);
        }
    }

    /// Makes the log durable.
    ///
    /// # Errors
    /// Fails with the last failure to write a line.
    pub fn sync(&self) -> Result<()> {
        let failure = lock(&self.failure).take();
        let synced = self.file.sync_all();
        failure.map_or(synced, Err).map_err(|error| {
            Error::io("some lines of this log file could not be written", &self.path, error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/log.jsonl");
        for number in 0..2 {
            let journal = Journal::open(&path, "--log").unwrap();
            journal.write(&Event::new("finding").with("number", number));
            journal.sync().unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1]["event"], &lines[1]["number"]), (&"finding".into(), &1.into()));
        assert!(lines[1]["time"].is_string());
        assert!(Journal::open(dir.path(), "--log").is_err());
    }
}
