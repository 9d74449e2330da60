//! The stages of a commit and their times, which show what made the durable lag long.

use std::time::Duration;

use crate::locks::{RankedMutex, RecordLock};
use crate::take::{CommitStages, SlowSync};

/// The slowest sync and the slowest commit so far.
#[derive(Debug)]
pub(crate) struct SlowestCommit {
    slowest: RankedMutex<(SlowSync, CommitStages)>,
}

impl Default for SlowestCommit {
    fn default() -> Self {
        SlowestCommit { slowest: RankedMutex::new(RecordLock::Slowest, Default::default()) }
    }
}

impl SlowestCommit {
    /// Records the time of a file's sync.
    pub(crate) fn note_sync(&self, file: &str, at: Duration, took: Duration) {
        let ms = took.as_secs_f64() * 1e3;
        let mut slowest = self.slowest.lock();
        if ms > slowest.0.ms {
            slowest.0 = SlowSync { file: file.to_owned(), at_seconds: at.as_secs_f64(), ms };
        }
    }

    /// Records the times of a finished commit.
    pub(crate) fn note_commit(&self, stages: CommitStages) {
        let mut slowest = self.slowest.lock();
        if stages.ms > slowest.1.ms {
            slowest.1 = stages;
        }
    }

    /// The slowest sync and the slowest commit.
    pub fn get(&self) -> (SlowSync, CommitStages) {
        self.slowest.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_sync_keeps_its_name_and_the_slowest_commit_its_stages() {
        let (found, ms) = (SlowestCommit::default(), Duration::from_millis);
        for (file, took) in [("a.wav", 3), ("b.wav", 70), ("c.wav", 5)] {
            found.note_sync(file, ms(500), ms(took));
        }
        found.note_commit(CommitStages { ms: 80.0, sync_ms: 70.0, ..CommitStages::default() });
        found.note_commit(CommitStages { ms: 9.0, sync_ms: 1.0, ..CommitStages::default() });
        let (sync, commit) = found.get();
        assert_eq!((sync.file.as_str(), sync.at_seconds, sync.ms), ("b.wav", 0.5, 70.0));
        assert_eq!((commit.ms, commit.sync_ms), (80.0, 70.0));
    }
}
