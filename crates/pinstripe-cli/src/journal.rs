//! A log that is kept after the run: each line is a JSON object, appended with one write.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::{into_inner, lock};

use crate::event::Event;
use crate::time;

/// An open log.
pub struct Journal {
    path: PathBuf,
    file: File,
    failure: Mutex<Option<std::io::Error>>,
}

impl Journal {
    /// Opens the log for appending; a missing log is created together with its directories, and
    /// only its owner can read it.
    ///
    /// # Errors
    /// Fails when the log cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let told = |error| {
            Error::io("cannot write this log file", path, error)
                .advice("give a file that can be written with --log FILE")
        };
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above).map_err(told)?;
        }
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path).map_err(told)?;
        Ok(Journal { path: path.to_path_buf(), file, failure: Mutex::default() })
    }

    /// Adds a line that begins with the time. [`finish`](Self::finish) reports lines that cannot be
    /// written.
    pub fn write(&self, event: &Event) {
        let when = time::utc(clock::now().0, 0);
        let line = Event::default().with_some("time", when).with_all(event.clone());
        let mut text = serde_json::to_vec(&line).expect("an event is plain JSON");
        text.push(b'\n');
        if let Err(error) = (&self.file).write_all(&text) {
            *lock(&self.failure) = Some(error);
        }
    }

    /// Returns whether every line was written.
    ///
    /// # Errors
    /// The last failure.
    pub fn finish(self) -> Result<()> {
        let failure = into_inner(self.failure);
        let synced = self.file.sync_all();
        match failure.map_or(synced, Err) {
            Ok(()) => Ok(()),
            Err(error) => {
                Err(Error::io("some lines of this log file could not be written", self.path, error))
            }
        }
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
            let journal = Journal::open(&path).unwrap();
            journal.write(&Event::new("finding").with("number", number));
            journal.finish().unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1]["event"], &lines[1]["number"]), (&"finding".into(), &1.into()));
        assert!(lines[1]["time"].is_string());
        assert!(Journal::open(dir.path()).is_err());
    }
}
