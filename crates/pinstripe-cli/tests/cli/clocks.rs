//! Clocks that are wrong, and the days on which local time changes: the command is run with
//! libfaketime, which replaces the wall clock of one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::stand::{Ran, Stand, assert_ends, ran};

/// A stand with a store, whose commands are run at a time in UTC.
pub struct Clocked {
    pub stand: Stand,
    library: PathBuf,
}

/// The library, in the directory of this architecture.
pub fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|it| it.path());
    let below = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    folders.chain([Path::new("/usr/lib").to_path_buf()]).map(below).find(|it| it.exists())
}

impl Clocked {
    /// None, and a report, if the library is missing.
    pub fn new(test: &str) -> Option<Clocked> {
        let Some(library) = library() else {
            pinstripe_testing::not_installed(test, "libfaketime");
            return None;
        };
        Some(Clocked { stand: Stand::with_store(), library })
    }

    fn command(&self, utc: &str, line: &str) -> Command {
        let mut command = self.stand.command(line);
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME", format!("@{utc}"))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
        command
    }

    pub fn at(&self, utc: &str, line: &str) -> Ran {
        ran(&mut self.command(utc, line))
    }

    /// Backs `src/hello` up with this content, and returns what the backup said and its snapshot.
    #[track_caller]
    fn backup(&self, utc: &str, content: &str) -> (Ran, String) {
        fs::write(self.stand.path("src/hello"), content).unwrap();
        let done = self.at(utc, "backup src --json");
        assert_eq!(done.code, 0, "{utc}: {}", done.err);
        let snapshot = done.events_of("snapshot")[0]["snapshot"].as_str().unwrap().to_owned();
        (done, snapshot)
    }
}

/// The reasons for which a snapshot is kept; none for one that is forgotten.
fn reasons<'a>(verdicts: &'a [Value], snapshot: &str) -> Vec<&'a str> {
    let verdict = verdicts.iter().find(|it| it["snapshot"] == snapshot).unwrap();
    verdict["why"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn a_clock_in_1970_or_years_ahead_does_not_decide_alone() {
    let Some(clocked) = Clocked::new("a_clock_in_1970") else { return };
    let hello = |utc: &str| {
        let path = clocked.stand.path("src/hello").canonicalize().unwrap();
        let cat = clocked.at(utc, &format!("cat latest:{}", path.display()));
        assert_eq!(cat.code, 0, "{}", cat.err);
        cat
    };
    let (told, first) = clocked.backup("2025-06-01 10:00:00", "first");
    assert!(!told.err.contains("clock"), "{}", told.err);
    let (_, second) = clocked.backup("2025-06-01 11:00:00", "second");

    let (told, never_set) = clocked.backup("1970-01-05 10:00:00", "never set");
    assert!(
        told.err.contains(
            "according to the clock of this machine, the latest snapshot is in the future"
        ),
        "{}",
        told.err
    );
    let listed = clocked.at("2025-06-01 12:00:00", "snapshots");
    assert!(listed.out.contains("1970-01-05 10:00:"), "{}", listed.out);
    // It continues the second one, so it is the latest, whatever its time says.
    let latest = hello("2025-06-01 12:00:00");
    assert_eq!(latest.out, "never set");
    assert!(latest.err.contains("was behind the correct time when snapshot"), "{}", latest.err);

    let (_, ahead) = clocked.backup("2045-01-05 10:00:00", "years ahead");
    let latest = hello("2025-06-01 12:00:00");
    assert_eq!(latest.out, "never set", "nothing from the future is the latest");
    assert!(latest.err.contains("is in the future"), "{}", latest.err);

    let judged = clocked.at("2025-06-01 12:00:00", "forget --keep-last 1 --json");
    assert_ends(&judged, 0, "is in the future");
    let verdicts = judged.events_of("verdict");
    assert_eq!(reasons(&verdicts, &first), [""; 0]);
    assert_eq!(reasons(&verdicts, &second), ["last"]);
    assert_eq!(reasons(&verdicts, &never_set), ["clock was behind"]);
    assert_eq!(reasons(&verdicts, &ahead), ["from the future"]);

    let (told, _) = clocked.backup("2025-06-01 13:00:00", "right again");
    assert!(
        told.err.contains(
            "according to the clock of this machine, the latest snapshot is in the future"
        ),
        "{}",
        told.err
    );
    assert_eq!(hello("2025-06-01 14:00:00").out, "right again");
    assert_eq!(clocked.stand.run("check -q").code, 0);
}

#[test]
fn the_first_snapshot_of_a_clock_that_was_never_set_is_reported() {
    let Some(clocked) = Clocked::new("the_first_snapshot_of_a_clock") else { return };
    let (told, _) = clocked.backup("1970-01-01 00:00:10", "x");
    assert!(told.err.contains("the clock of this machine was never set"), "{}", told.err);
    let latest = clocked.at("2025-06-01 12:00:00", "ls latest");
    assert_ends(&latest, 0, "was behind the correct time when snapshot");
}

/// Backs up at these times in UTC, and expects that `forget --keep-daily` in Berlin keeps those
/// that are marked.
#[track_caller]
fn assert_daily(clocked: &Clocked, times: &[(&str, bool)]) {
    let made: Vec<_> = times.iter().map(|(utc, _)| clocked.backup(utc, utc).1).collect();
    let mut command = clocked.command("2025-12-24 12:00:00", "forget --keep-daily 9 --json");
    let judged = ran(command.env("TZ", "Europe/Berlin"));
    assert_eq!(judged.code, 0, "{}", judged.err);
    let verdicts = judged.events_of("verdict");
    for ((utc, stays), snapshot) in times.iter().zip(&made) {
        let why: &[&str] = if *stays { &["daily"] } else { &[] };
        assert_eq!(reasons(&verdicts, snapshot), why, "{utc}: {}", judged.out);
    }
}

#[test]
fn days_begin_by_local_time_when_summer_time_begins() {
    let Some(clocked) = Clocked::new("days_begin_when_summer_time_begins") else { return };
    // On March 30, 2025, 02:00 (UTC+1) became 03:00 (UTC+2).
    assert_daily(
        &clocked,
        &[
            ("2025-03-29 22:30:00", true),  // 23:30 on the 29th
            ("2025-03-29 23:30:00", false), // 00:30 on the 30th
            ("2025-03-30 00:30:00", false), // 01:30
            ("2025-03-30 01:30:00", false), // 03:30
            ("2025-03-30 21:30:00", true),  // 23:30
            ("2025-03-30 22:30:00", true),  // 00:30 on the 31st
        ],
    );
}

#[test]
fn days_begin_by_local_time_when_summer_time_ends() {
    let Some(clocked) = Clocked::new("days_begin_when_summer_time_ends") else { return };
    // On October 26, 2025, 03:00 (UTC+2) became 02:00 (UTC+1).
    assert_daily(
        &clocked,
        &[
            ("2025-10-25 21:30:00", true),  // 23:30 on the 25th
            ("2025-10-25 22:30:00", false), // 00:30 on the 26th
            ("2025-10-26 00:30:00", false), // 02:30, for the first time
            ("2025-10-26 01:30:00", false), // 02:30, for the second time
            ("2025-10-26 22:30:00", true),  // 23:30
            ("2025-10-26 23:30:00", true),  // 00:30 on the 27th
        ],
    );
}
