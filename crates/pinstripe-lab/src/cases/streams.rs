//! Many files written at once: by one thread in turn, and by a thread for each, in every way there
//! is.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::random;
use pinstripe_io::device::{Access, Policy};

use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io::{self, Area, Direction, Engine, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "streams",
    about: "Write many files at once, by one thread or one thread per file, with every policy",
    help: "\
Like a recorder with many tracks: --files new files are written, one block of each in turn by one \
thread, or each by a thread of its own; with every write policy and every engine. A figure is bytes \
written in the time until they were durable: the sync at the end is counted in, and told apart as \
'sync_s'; 'accepted_mb_per_s' is without it, which is what a program without a sync would call its \
rate. A stall is a write that took more than 100 ms: what a recorder needs memory for.

'buffered' fills the page cache while it can, and pays at the sync; the others wait at each write.",
    examples: "\
  pinstripe lab run streams --dir /srv
  pinstripe lab run streams --files 50 --file-size 4M --block-size 256K --policies buffered,direct
  pinstripe lab run streams --engines uring --depth 64",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const ENGINES: &[&str] = &["psync", "uring"];
const THREADS: &[&str] = &["one", "each"];

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "files",
        value: "N",
        form: ValueForm::Count,
        default: Some("20"),
        about: "Number of files",
        more: "",
    },
    CaseOption {
        name: "file-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("25M"),
        about: "Bytes of each file",
        more: "",
    },
    CaseOption {
        name: "block-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1M"),
        about: "Bytes of each write",
        more: "",
    },
    CaseOption {
        name: "threads-by",
        value: "NAME,...",
        form: ValueForm::SomeOf(THREADS),
        default: Some("one,each"),
        about: "One thread for all files in turn (one), or one for each file (each)",
        more: "",
    },
    shared::POLICIES,
    CaseOption {
        name: "engines",
        value: "NAME,...",
        form: ValueForm::SomeOf(ENGINES),
        default: Some("psync,uring"),
        about: "I/O engines: psync, uring",
        more: "",
    },
    CaseOption {
        name: "depth",
        value: "N",
        form: ValueForm::Count,
        default: Some("16"),
        about: "Writes in flight per thread, with uring",
        more: "",
    },
    CaseOption {
        default: Some("5"),
        about: "Seconds of a run at most; it ends when the files are full",
        ..shared::RUN_TIME
    },
    shared::CONTENT,
];

struct Way {
    policy: &'static str,
    engine: &'static str,
    threads: &'static str,
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let words = |name: &str, known: &'static [&'static str]| -> Vec<&'static str> {
        let words = values.words(name).into_iter();
        words.filter_map(|word| known.iter().find(|it| **it == word).copied()).collect()
    };
    let (policies, engines) = (words("policies", shared::POLICY_NAMES), words("engines", ENGINES));
    let mut ways = Vec::new();
    for threads in words("threads-by", THREADS) {
        for &policy in &policies {
            ways.extend(engines.iter().map(|&engine| Way { policy, engine, threads }));
        }
    }
    let block_bytes = values.size("block-size");
    let file_bytes = values.size("file-size") / block_bytes.max(1) * block_bytes;
    if file_bytes == 0 {
        return Err(Error::new(Kind::Usage, "each file is smaller than one block")
            .advice("more with --file-size, or less with --block-size"));
    }
    Ok(Box::new(Streams {
        parameters: shared::parameters(OPTIONS, values),
        dir: shared::one_directory(setting)?,
        folder: None,
        ways,
        files: values.count("files"),
        file_bytes,
        block_bytes: block_bytes as usize,
        depth: values.count("depth") as usize,
        time: shared::seconds(values, "run-time")?,
        content: values.parsed("content")?,
        seed: setting.seed,
        areas: Vec::new(),
    }))
}

struct Streams {
    parameters: Vec<Parameter>,
    dir: PathBuf,
    folder: Option<Folder>,
    ways: Vec<Way>,
    files: u64,
    file_bytes: u64,
    block_bytes: usize,
    depth: usize,
    time: Duration,
    content: io::Content,
    seed: u64,
    /// Files that the next run fills: all in one, or each in one of its own.
    areas: Vec<Area>,
}

impl Streams {
    fn paths(&self) -> Vec<PathBuf> {
        self.folder.iter().flat_map(|it| it.files("stream", self.files)).collect()
    }

    fn job(&self, way: &Way, number: u64) -> Job {
        let in_turn = way.threads == "one";
        let files = if in_turn { self.files } else { 1 };
        let pattern = Pattern {
            order: Order::Sequential,
            direction: Direction::Write,
            block_bytes: self.block_bytes,
        };
        let is_uring = way.engine == "uring";
        Job {
            engine: if is_uring { Engine::Uring } else { Engine::Psync },
            depth: if is_uring { self.depth } else { 1 },
            requests: Some(files * (self.file_bytes / self.block_bytes as u64)),
            time: Some(self.time),
            syncing: Syncing::AT_END,
            content: self.content,
            seed: random::of_run(self.seed, number),
            ..Job::new(pattern)
        }
    }
}

impl Plan for Streams {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |way: &Way| {
            let Way { policy, engine, threads } = way;
            let threads = if *threads == "one" { 1 } else { self.files };
            let group = match threads {
                1 => "1 thread".to_owned(),
                _ => format!("{threads} threads"),
            };
            VariantSpec {
                name: format!("{policy} {engine}, {group}"),
                about: format!("{} files written by {group}", self.files),
                group,
                parameters: vec![
                    Parameter::new("policy", policy),
                    Parameter::new("engine", engine),
                    Parameter::new("threads", threads),
                    Parameter::new("way", format!("{policy}, {engine}")),
                ],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.dir.clone()]
    }

    fn notes(&self) -> Vec<String> {
        let note = "rates are until all was durable; before the sync at the end, what was written \
                    buffered or uncached was accepted, not durable";
        vec![note.to_owned()]
    }

    fn intents(&self) -> Vec<String> {
        vec![shared::intent(&self.dir, CASE.name, self.files * self.file_bytes)]
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        vec![(self.dir.clone(), self.files * self.file_bytes)]
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        let bytes = self.files * self.file_bytes;
        self.folder = Some(Folder::make(&self.dir, CASE.name, bytes)?);
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        self.areas.clear();
        let paths = self.paths();
        shared::remove_files(&paths)?;
        let way = &self.ways[variant.0];
        let policy: Policy = way.policy.parse()?;
        let of_each = if way.threads == "one" { paths.len() } else { 1 };
        let open = |paths: &[PathBuf]| {
            Area::open(paths, self.file_bytes, Access::Create, policy).map(Area::striped)
        };
        self.areas = paths.chunks(of_each).map(open).collect::<Result<_>>()?;
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let way = &self.ways[variant.0];
        let job = self.job(way, number);
        let done = io::run_each(&job, &self.areas, live)?;
        let is_direct = self.areas.iter().all(Area::is_direct);
        let mut outcome = shared::outcome(&done, &job, way.policy.parse()?, is_direct);
        outcome.measured.figures.insert("stalls".to_owned(), shared::stalls(&done.writes));
        Ok(outcome)
    }

    fn clean(&mut self) -> Result<()> {
        self.areas.clear();
        self.folder.take().map_or(Ok(()), |folder| folder.remove())
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let grid = |title: &str, note: &str, of: &dyn Fn(&crate::result::Run) -> Option<f64>| {
        grid::grid(results, title, note, ["way", "threads"], of)
    };
    vec![
        grid("MB/s until durable", "", &grid::value),
        grid(
            "MB/s accepted",
            "Without the sync at the end: what the program sees, and may lose.",
            &grid::named("accepted_mb_per_s"),
        ),
        grid("Seconds of the sync at the end", "", &grid::named("sync_s")),
        grid("Writes of more than 100 ms, in a run", "", &grid::named("stalls")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 3] = [("files", "3"), ("file-size", "128K"), ("block-size", "32K")];

    #[test]
    fn every_way_fills_every_file_once_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &SMALL);
        assert_eq!(results.variants.len(), 24);
        for variant in &results.variants {
            let run = &variant.runs[0];
            assert_eq!(run.measured.written_bytes, 384 << 10, "{}", variant.name);
            assert_eq!(run.measured.latency["write"].count(), 12, "{}", variant.name);
            assert_eq!(run.measured.latency["sync"].count(), 3, "{}", variant.name);
            assert!(
                run.measured.figures.contains_key("stalls")
                    && run.measured.figures.contains_key("sync_s")
            );
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_tables_have_a_way_in_each_row_and_threads_across() {
        let dir = tempfile::tempdir().unwrap();
        let more = [("policies", "buffered,sync"), ("engines", "psync")];
        let results = measured(&CASE, dir.path(), &[&SMALL[..], &more].concat());
        let table = tables(&results)[0].to_json();
        assert_eq!(table["columns"], serde_json::json!(["way", "threads 1", "threads 3"]));
        assert_eq!(table["rows"][1]["way"], "sync, psync");
        assert_eq!(results.verdicts.len(), 2, "each number of threads is judged for itself");
    }

    #[test]
    fn a_device_and_several_directories_are_refused() {
        let values = Values::read(OPTIONS, &[]).unwrap();
        let dir = std::env::temp_dir();
        for setting in [
            Setting { device: Some(dir.clone()), ..Setting::default() },
            Setting { dirs: vec![dir.clone(), dir.clone()], ..Setting::default() },
        ] {
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
        }
    }
}
