//! The recorder compared with its targets, with the published requirements of other recorders and
//! with plain writers in the same run.
//!
//! One part for each line of the goals: `storm` (the rings that must hold), `idle`, `ring64`,
//! `streams512`, `mirror`, `segments`, `video`, `both`, `drift`, `network`, `jack`, `bare` and
//! `table`. The content of every take is verified. Runs with losses stay in the tables. Runs during
//! which other processes worked, or a hypervisor took time, are void; this is decided before their
//! figures are examined.

mod goals;
mod inputs;
mod jack;
mod machine;
mod others;
mod plain;
mod storm;
mod table;
mod take;

use std::fs;

use pinstripe_base::units::parse_size;
use pinstripe_lab::Table;
use pinstripe_record::{WritePolicy, durability_warning};

use super::bench::{Bench, Part, measure, only};
use super::{count, pairs};
use crate::Result;
use crate::trees;

pub const ABOUT: &str = "the recorder against its goals, with and without a storm: --work DIR, \
    --only storm|idle|ring64|streams512|mirror|segments|video|both|drift|network|jack|bare|table, --streams N, \
    --rate HZ, --ring SIZE, --chunk SIZE, --writes buffered|direct, --seconds N, --rounds N, \
    --quick (seconds and few streams: only whether it works)";

const PARTS: &[Part<Settings>] = &[
    Part { name: "storm", measure: goals::storm },
    Part { name: "idle", measure: goals::idle },
    Part { name: "ring64", measure: goals::ring64 },
    Part { name: "streams512", measure: goals::streams512 },
    Part { name: "mirror", measure: goals::mirror },
    Part { name: "segments", measure: goals::segments },
    Part { name: "video", measure: goals::video },
    Part { name: "both", measure: inputs::both },
    Part { name: "drift", measure: inputs::drift },
    Part { name: "network", measure: inputs::network },
    Part { name: "jack", measure: jack::jack },
    Part { name: "bare", measure: table::bare },
    Part { name: "table", measure: table::rings },
];

struct Settings {
    bench: Bench,
    only: Option<&'static str>,
    streams: Option<usize>,
    rate: u32,
    ring: Option<u64>,
    chunk: Option<u64>,
    writes: WritePolicy,
    seconds: Option<u64>,
    rounds: Option<usize>,
    is_quick: bool,
}

/// Measures all, or what `--only` names.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let work = &settings.bench.work;
    fs::create_dir_all(work).map_err(|error| format!("{}: {error}", work.display()))?;
    let tables = measure(PARTS, settings.only, &settings);
    trees::remove(work)?;
    tables
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let (flags, args): (Vec<_>, Vec<_>) = args.iter().cloned().partition(|it| it == "--quick");
        let mut settings = Settings {
            bench: Bench::new()?,
            only: None,
            streams: None,
            rate: 96_000,
            ring: None,
            chunk: None,
            writes: WritePolicy::Buffered,
            seconds: None,
            rounds: None,
            is_quick: !flags.is_empty(),
        };
        let known = [
            "--work",
            "--only",
            "--streams",
            "--rate",
            "--ring",
            "--chunk",
            "--seconds",
            "--rounds",
            "--writes",
        ];
        let size = |value: &str| parse_size(value).map_err(|error| error.to_string());
        for (name, value) in pairs(&args, &known)? {
            match name {
                "--only" => settings.only = Some(only(PARTS, value)?),
                "--streams" => settings.streams = Some(count(name, value)? as usize),
                "--rate" => settings.rate = count(name, value)? as u32,
                "--ring" => settings.ring = Some(size(value)?),
                "--chunk" => settings.chunk = Some(size(value)?),
                "--writes" => settings.writes = writes(value)?,
                "--rounds" => settings.rounds = Some(count(name, value)? as usize),
                "--seconds" => settings.seconds = Some(count(name, value)?),
                _ => settings.bench.set(name, value)?,
            }
        }
        settings.bench.work.push("record");
        Ok(settings)
    }

    /// The number of streams of a part: as requested, or the part's own number, which a quick run
    /// limits.
    fn streams(&self, own: usize) -> usize {
        self.streams.unwrap_or(if self.is_quick { own.min(8) } else { own })
    }

    fn seconds(&self, own: u64) -> u64 {
        self.seconds.unwrap_or(if self.is_quick { own.min(2) } else { own })
    }

    fn rounds(&self, own: usize) -> usize {
        self.rounds.unwrap_or(if self.is_quick { 1 } else { own })
    }

    /// Where and how, for the notes of tables.
    fn circumstances(&self) -> String {
        let short = if self.is_quick { " A quick run: it says nothing of the goals." } else { "" };
        let work = &self.bench.work;
        let slow = durability_warning(work).map_or_else(String::new, |it| format!(" Here {it}."));
        format!("In {}, writes {}.{short}{slow}", work.display(), self.writes)
    }
}

fn writes(text: &str) -> Result<WritePolicy> {
    match text {
        "buffered" => Ok(WritePolicy::Buffered),
        "direct" => Ok(WritePolicy::Direct),
        _ => Err(format!("--writes buffered or direct, not '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part, in a directory of its own, so short that it says nothing but whether it works.
    #[test]
    fn every_part_makes_its_table_and_leaves_nothing() {
        std::thread::scope(|scope| {
            for parts in PARTS.chunks(PARTS.len().div_ceil(4)) {
                scope.spawn(|| parts.iter().for_each(works));
            }
        });
    }

    fn works(part: &Part<Settings>) {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--work", dir.path().to_str().unwrap(), "--quick", "--only", part.name];
        let args: Vec<_> = args.into_iter().chain(["--seconds", "1"]).map(str::to_owned).collect();
        let tables = run(&args).unwrap();
        assert_eq!(tables.len(), 1, "{}", part.name);
        let json = tables[0].to_json();
        assert!(!json["rows"].as_array().unwrap().is_empty(), "{}: {json}", part.name);
        let text = tables[0].to_text();
        assert!(text.contains("A quick run") && !text.contains("WRONG"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{}", part.name);
    }

    #[test]
    fn arguments_are_read_and_what_is_none_is_refused() {
        let read =
            |text: &str| Settings::read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let some = read("--only storm --quick --rounds 3 --ring 64K").unwrap();
        assert_eq!((some.only, some.rounds(10), some.ring), (Some("storm"), 3, Some(64 << 10)));
        assert_eq!((some.streams(256), some.seconds(120)), (8, 2));
        let all = read("--streams 7").unwrap();
        assert_eq!((all.streams(256), all.seconds(120), all.rounds(10)), (7, 120, 10));
        for bad in ["--only wind", "--writes odd", "--ring x", "--rounds 0", "--seconds"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
