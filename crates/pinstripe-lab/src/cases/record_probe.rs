//! How many streams can be recorded at which rate with which ring, while somebody else writes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinstripe::device::{Access, Policy};
use pinstripe::error::{Error, Kind, Result};

use super::shared::{self, Folder};
use super::{Case, CaseOption, Form, Setting, Values, grid};
use crate::io::Target;
use crate::io::recorder::{Recorded, Recording, record};
use crate::result::{Metric, Note, Parameter, Results};
use crate::run::{Head, Live, Outcome, Plan};
use crate::stats::Better;
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "record-probe",
    about: "Record many streams at a fixed rate beside a storm of writes: rings, overruns, stalls",
    help: "\
Streams come at their rate whatever the disk does, as sound and pictures do: a clock says how many bytes \
there are, so no stall can hide what it kept waiting. --writers threads look after them in turn and write \
a chunk of each as soon as it is whole; one more makes all durable every --sync-every seconds. Once nobody \
else writes ('idle'), once a thread of pinstripe's own writes 1 MiB after the other as fast as it goes, \
and has the disk take it ('storm').

The figure is the backlog: the most KiB that any stream had waiting. Beside it stand overruns (a ring of \
--ring was too small), stalls of more than 100 ms, the durable lag (the greatest age of a byte that a \
power cut would have taken), and the ring that each stream needs:
  chunk + rate x (round + 2 x longest write), and from there to a power of two
where a round is the time in which a writer writes a chunk of each of its streams.",
    examples: "\
  pinstripe lab run record-probe --dir /srv/audio
  pinstripe lab run record-probe --streams 256 --rate 288K --ring 128K --run-time 20
  pinstripe lab run record-probe --streams 8 --rate 50M --chunk 4M --ring 64M --policies direct",
    options: OPTIONS,
    plan,
    tables,
};

const POLICIES: &[&str] = &["buffered", "dsync", "sync", "direct", "direct+dsync", "uncached"];
const UNDER: &[&str] = &["idle", "storm"];
/// Of each run, the longest so many are listed.
const LISTED: usize = 5;

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "streams",
        value: "N",
        form: Form::Count,
        default: Some("50"),
        about: "How many streams",
        more: "",
    },
    CaseOption {
        name: "rate",
        value: "SIZE",
        form: Form::Size,
        default: Some("288000"),
        about: "Bytes per second of each stream: 288000 is 96 kHz of 24 bits",
        more: "",
    },
    CaseOption {
        name: "chunk",
        value: "SIZE",
        form: Form::Size,
        default: Some("64K"),
        about: "Bytes of each write",
        more: "",
    },
    CaseOption {
        name: "ring",
        value: "SIZE",
        form: Form::Size,
        default: Some("1M"),
        about: "Bytes that a stream may have waiting",
        more: "",
    },
    CaseOption {
        name: "writers",
        value: "N",
        form: Form::Count,
        default: Some("1"),
        about: "Threads that write",
        more: "",
    },
    CaseOption {
        name: "policies",
        value: "NAME,...",
        form: Form::SomeOf(POLICIES),
        default: Some("buffered,direct,dsync"),
        about: "How bytes go: buffered, dsync, sync, direct, direct+dsync, uncached",
        more: "The first is what others are judged by.",
    },
    CaseOption {
        name: "under",
        value: "NAME,...",
        form: Form::SomeOf(UNDER),
        default: Some("idle,storm"),
        about: "Beside what: idle, storm",
        more: "",
    },
    CaseOption {
        name: "sync-every",
        value: "S",
        form: Form::Number,
        default: Some("1"),
        about: "Seconds between two rounds that make all streams durable; 0 is never",
        more: "",
    },
    CaseOption {
        name: "storm-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("1G"),
        about: "Bytes of the file that the storm goes over",
        more: "",
    },
    CaseOption {
        name: "storm-sync",
        value: "SIZE",
        form: Form::Size,
        default: Some("256M"),
        about: "Bytes after which the storm waits until they are durable",
        more: "Without that it would be over in memory where there is much of it.",
    },
    CaseOption {
        name: "run-time",
        value: "S",
        form: Form::Number,
        default: Some("5"),
        about: "Seconds of a run",
        more: "",
    },
];

type Way = (&'static str, &'static str);

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let recording = Recording {
        rate: values.size("rate"),
        chunk_bytes: values.size("chunk") as usize,
        ring_bytes: values.size("ring"),
        time: shared::seconds(values, "run-time")?,
        writers: values.count("writers") as usize,
        sync_every: Some(shared::seconds(values, "sync-every")?).filter(|it| !it.is_zero()),
        storm_bytes: values.size("storm-size"),
        storm_sync_bytes: values.size("storm-sync"),
    };
    if recording.rate == 0 || recording.chunk_bytes == 0 {
        return Err(Error::new(Kind::Usage, "a stream has a rate and chunks above 0"));
    }
    if recording.ring_bytes < recording.chunk_bytes as u64 {
        return Err(Error::new(Kind::Usage, "a ring holds one chunk at least")
            .advice("more with --ring, or less with --chunk"));
    }
    let known =
        |name: &str, all: &'static [&'static str]| all.iter().find(|it| **it == name).copied();
    let policies: Vec<&str> =
        values.words("policies").into_iter().filter_map(|it| known(it, POLICIES)).collect();
    let under = values.words("under").into_iter().filter_map(|it| known(it, UNDER));
    let ways =
        under.flat_map(|under| policies.iter().map(move |&policy| (policy, under))).collect();
    Ok(Box::new(RecordProbe {
        parameters: shared::parameters(OPTIONS, values),
        dir: shared::one_directory(setting)?,
        folder: None,
        ways,
        streams: values.count("streams"),
        recording,
        targets: Vec::new(),
        storm: None,
    }))
}

struct RecordProbe {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    /// Policy of each variant, and beside what.
    ways: Vec<Way>,
    streams: u64,
    recording: Recording,
    targets: Vec<Target>,
    storm: Option<Target>,
}

impl RecordProbe {
    fn bytes(&self) -> u64 {
        let seconds = self.recording.time.as_secs_f64() + 1.0;
        (seconds * self.recording.rate as f64) as u64 * self.streams + self.recording.storm_bytes
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.folder.iter().flat_map(|it| it.files("stream", self.streams)).collect()
    }

    /// What each stream needs, by what was measured; and the time of a round.
    fn ring_needed(&self, recorded: &Recorded) -> (u64, f64) {
        let mean = recorded.writes.mean().unwrap_or_default().as_secs_f64();
        let of_each = (self.streams as f64 / self.recording.writers as f64).ceil();
        let round = mean * of_each;
        let longest = recorded.writes.max().unwrap_or_default().as_secs_f64();
        let ahead = self.recording.rate as f64 * (round + 2.0 * longest);
        let ring = self.recording.chunk_bytes as u64 + ahead.ceil() as u64;
        (ring.next_power_of_two(), round)
    }

    fn figures(&self, recorded: &Recorded) -> BTreeMap<String, f64> {
        let (ring, round) = self.ring_needed(recorded);
        let millis = |it: Option<Duration>| it.unwrap_or_default().as_secs_f64() * 1e3;
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let mut figures: BTreeMap<String, f64> = [
            ("overruns", recorded.overruns as f64),
            ("lost_bytes", recorded.lost_bytes as f64),
            ("fill_percent", 100.0 * recorded.peak_bytes as f64 / self.recording.ring_bytes as f64),
            ("longest_write_ms", millis(recorded.writes.max())),
            ("round_ms", round * 1e3),
            ("ring_needed_kib", kib(ring)),
            ("memory_needed_mib", kib(ring) * self.streams as f64 / 1024.0),
            ("durable_lag_s", recorded.durable_lag.as_secs_f64()),
            ("stalls", recorded.stalls.len() as f64),
            (
                "storm_mb_per_s",
                recorded.storm_bytes as f64 / self.recording.time.as_secs_f64() / 1e6,
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let mut stalls = recorded.stalls.clone();
        stalls.sort_by_key(|it| std::cmp::Reverse(it.time));
        for (number, stall) in stalls.iter().take(LISTED).enumerate() {
            figures.insert(format!("stall_{number}_stream"), stall.stream as f64);
            figures.insert(format!("stall_{number}_at_s"), stall.at.as_secs_f64());
            figures.insert(format!("stall_{number}_ms"), stall.time.as_secs_f64() * 1e3);
        }
        figures
    }
}

impl Plan for RecordProbe {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn heads(&self) -> Vec<Head> {
        let head = |(policy, under): &Way| Head {
            name: format!("{policy}, {under}"),
            group: (*under).to_owned(),
            about: format!("{} streams written {policy}, {under}", self.streams),
            parameters: vec![Parameter::new("policy", policy), Parameter::new("under", under)],
            metric: Metric {
                name: "backlog".to_owned(),
                unit: "KiB waiting".to_owned(),
                better: Better::Lower,
            },
        };
        self.ways.iter().map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        let note = "backlog is of bytes not yet accepted; the durable lag says how old a byte was that \
                    a power cut would have taken";
        vec![note.to_owned()]
    }

    fn intents(&self) -> Vec<String> {
        vec![shared::intent(&self.dir, CASE.name, self.bytes())]
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        let folder = Folder::make(&self.dir, CASE.name, self.bytes())?;
        let storm = folder.path("storm");
        self.folder = Some(folder);
        self.storm = Some(Target::open(&storm, Access::Create, Policy::Buffered)?);
        Ok(())
    }

    fn ready(&mut self, variant: usize, _: &Live) -> Result<()> {
        self.targets.clear();
        let paths = self.paths();
        shared::remove_files(&paths)?;
        let policy: Policy = self.ways[variant].0.parse()?;
        let open = |path: &PathBuf| Target::open(path, Access::Create, policy);
        self.targets = paths.iter().map(open).collect::<Result<_>>()?;
        // The storm before is over when it is on the disk.
        self.storm.iter().try_for_each(|it| it.sync(false).map(drop))
    }

    fn run(&mut self, variant: usize, _: u64, live: &Live) -> Result<Outcome> {
        let (policy, under) = self.ways[variant];
        let storm = self.storm.as_ref().filter(|_| under == "storm");
        let recorded = record(&self.recording, &self.targets, storm, live)?;
        let figures = self.figures(&recorded);
        let is_refused = policy.starts_with("direct")
            && self.targets.iter().any(|it| it.is_direct() == Some(false));
        let waits = self.recording.sync_every.is_some() || policy.contains("sync");
        let is_accepted = (!waits).then_some(Note::AcceptedNotDurable);
        let (syncs, operations) = (recorded.syncs.count(), recorded.writes.count());
        let kinds = [
            ("response", recorded.responses),
            ("sync", recorded.syncs),
            ("write", recorded.writes),
        ];
        let latency = kinds.into_iter().filter(|(_, it)| !it.is_empty());
        Ok(Outcome {
            value: recorded.peak_bytes as f64 / 1024.0,
            operations,
            written_bytes: recorded.written_bytes,
            beside_written_bytes: recorded.storm_bytes,
            syncs,
            latency: latency.map(|(kind, times)| (kind.to_owned(), times)).collect(),
            figures,
            notes: is_refused.then_some(Note::NotDirect).into_iter().chain(is_accepted).collect(),
            ..Outcome::default()
        })
    }

    fn clean(&mut self) -> Result<()> {
        self.targets.clear();
        self.storm = None;
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let mut tables = vec![rings(results)];
    tables.extend(stalls(results));
    tables
}

fn rings(results: &Results) -> Table {
    let head = [
        "policy",
        "under",
        "backlog KiB",
        "ring full %",
        "overruns",
        "longest write ms",
        "stalls",
        "durable lag s",
        "ring needed KiB",
        "memory MiB",
        "storm MB/s",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        let of = |name: &str| grid::cell(grid::figure(variant, grid::named(name)));
        let mut row = vec![
            grid::parameter(variant, "policy").to_owned(),
            grid::parameter(variant, "under").to_owned(),
            grid::cell(grid::figure(variant, grid::value)),
        ];
        row.extend(
            ["fill_percent", "overruns", "longest_write_ms", "stalls", "durable_lag_s"].map(of),
        );
        row.extend(["ring_needed_kib", "memory_needed_mib", "storm_mb_per_s"].map(of));
        rows.push(row);
    }
    let note = "The ring each stream needs: chunk + rate x (round + 2 x longest write), to a power of two; \
                memory is that of all. Medians of runs; in brackets where all were disturbed.";
    Table::from_rows("Rings, overruns and stalls", note, rows)
}

/// The longest stalls of every run.
fn stalls(results: &Results) -> Option<Table> {
    let head = ["policy", "under", "run", "at s", "stream", "ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in &results.variants {
        for run in &variant.runs {
            for number in 0..LISTED {
                let of = |what: &str| run.figures.get(&format!("stall_{number}_{what}")).copied();
                let Some(((at, stream), ms)) = of("at_s").zip(of("stream")).zip(of("ms")) else {
                    break;
                };
                rows.push(vec![
                    grid::parameter(variant, "policy").to_owned(),
                    grid::parameter(variant, "under").to_owned(),
                    run.order.to_string(),
                    format!("{at:.2}"),
                    format!("{stream:.0}"),
                    format!("{ms:.0}"),
                ]);
            }
        }
    }
    let note = format!("Writes of more than 100 ms, the {LISTED} longest of each run.");
    (rows.len() > 1).then(|| Table::from_rows("Stalls", note, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 6] = [
        ("streams", "3"),
        ("rate", "1M"),
        ("chunk", "8K"),
        ("run-time", "0.2"),
        ("storm-size", "2M"),
        ("sync-every", "0.05"),
    ];

    #[test]
    fn streams_are_recorded_by_every_policy_beside_nothing_and_beside_a_storm() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &SMALL);
        assert_eq!(results.variants.len(), 6);
        for variant in &results.variants {
            let run = &variant.runs[0];
            assert!(run.written_bytes > 0 && run.value >= 8.0, "{}", variant.name);
            let is_storm = grid::parameter(variant, "under") == "storm";
            assert_eq!(run.figures["storm_mb_per_s"] > 0.0, is_storm, "{}", variant.name);
            let ring = run.figures["ring_needed_kib"];
            assert!(ring >= 16.0 && (ring as u64).is_power_of_two(), "{ring}");
        }
        assert_eq!(tables(&results)[0].to_json()["rows"].as_array().unwrap().len(), 6);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_ring_needed_is_a_chunk_and_what_comes_in_a_round_and_two_longest_writes() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        let mut probe = RecordProbe {
            parameters: Vec::new(),
            dir: setting.dirs[0].clone(),
            folder: None,
            ways: Vec::new(),
            streams: 256,
            recording: Recording {
                rate: 288_000,
                chunk_bytes: 64 << 10,
                ring_bytes: 1 << 20,
                time: Duration::from_secs(1),
                writers: 1,
                sync_every: None,
                storm_bytes: 0,
                storm_sync_bytes: 0,
            },
            targets: Vec::new(),
            storm: None,
        };
        let mut recorded = Recorded::default();
        recorded.writes.record_many(181_000_000, 1);
        recorded.writes.record_many(31_000, 999);
        // 64 KiB + 288 kB/s x (256 x 0.21 ms + 2 x 181 ms).
        let (ring, round) = probe.ring_needed(&recorded);
        assert!((round - 0.0543).abs() < 0.001, "{round}");
        assert_eq!(ring, 256 << 10);
        probe.recording.writers = 16;
        assert!((probe.ring_needed(&recorded).1 - 0.0034).abs() < 0.0001);
    }

    #[test]
    fn a_ring_of_less_than_a_chunk_is_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("ring", "4K"), ("rate", "0"), ("chunk", "0")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
    }
}
