//! Writes many files at the same time: by one thread in turn, and by one thread for each file, with
//! every write policy.

use pinstripe_base::error::Result;
use pinstripe_io::device::Policy;

use super::disk::{By, DiskOptions, DiskPlan, DiskVariant, InitialState, Mode, Work};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid, shared};
use crate::io::{Direction, Engine, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter, Results};
use crate::run::{PlaceNo, Plan, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "streams",
    about: "Write many files at the same time, with one thread or one thread per file, and with \
            every write policy",
    help: "\
Writes like a recorder with many tracks: one thread writes a block to each of several new files (--files) in \
turn, or each file has its own thread. Every write policy and every engine is measured. The rate is the \
number of bytes written, divided by the time until they were durable. The measured time includes the sync at \
the end ('sync_s'). The value 'accepted_mb_per_s' is the rate without the sync, as a program that does not \
sync would measure it. A stall is a write that took more than 100 ms; a recorder must buffer its data in \
memory for the duration of a stall.

With the policy 'buffered', writes only fill the page cache, and the sync takes long; with the other \
policies, each write waits for the disk.",
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
        about: "Size of each file",
        more: "",
    },
    CaseOption {
        name: "block-size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1M"),
        about: "Size of each write",
        more: "",
    },
    CaseOption {
        name: "threads-by",
        value: "NAME,...",
        form: ValueForm::SomeOf(THREADS),
        default: Some("one,each"),
        about: "Threads that write: one thread for all files in turn (one), or one thread per file \
                (each)",
        more: "",
    },
    shared::POLICIES,
    CaseOption {
        name: "engines",
        value: "NAME,...",
        form: ValueForm::SomeOf(ENGINES),
        default: Some("psync,uring"),
        about: "I/O engines to compare: psync, uring",
        more: "",
    },
    CaseOption {
        name: "depth",
        value: "N",
        form: ValueForm::Count,
        default: Some("16"),
        about: "Number of writes in flight per thread with the engine uring",
        more: "",
    },
    CaseOption {
        default: Some("5"),
        about: "Maximum duration of a run in seconds; a run also ends when the files have their \
                full size",
        ..shared::RUN_TIME
    },
    shared::CONTENT,
];

/// The note on all results.
const NOTE: &str = "the rates include the time until all data was durable; with the policies \
                    buffered and uncached, data is accepted but not durable until the sync at the \
                    end";

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let (files, block_bytes) = (values.count("files"), values.size("block-size"));
    let (order, direction) = (Order::Sequential, Direction::Write);
    let pattern = Pattern { order, direction, block_bytes: block_bytes as usize };
    let layout = DiskOptions {
        case: CASE.name,
        parameters: shared::parameters(OPTIONS, values),
        notes: vec![NOTE.to_owned()],
        places: vec![shared::one_directory(setting)?],
        is_device: false,
        modes: Vec::new(),
        chosen_by: "policies",
        files,
        file_bytes: shared::file_bytes(values.size("file-size"), 1, block_bytes)?,
        job: Job {
            time: Some(shared::seconds(values, "run-time")?),
            syncing: Syncing::AT_END,
            content: values.parsed("content")?,
            seed: setting.seed,
            ..Job::new(pattern)
        },
        policy: Policy::Buffered,
        drops_cache: false,
        checks: false,
    };
    let mut variants = Vec::new();
    for threads in values.words("threads-by") {
        for policy in values.words("policies") {
            for engine in values.words("engines") {
                let depth = if engine == "uring" { values.count("depth") as usize } else { 1 };
                variants.push(variant(&layout, threads == "one", policy, (engine, depth))?);
            }
        }
    }
    Ok(Box::new(DiskPlan::with_variants(layout, variants)))
}

/// A variant that writes new files, by one thread in turn, or by one thread for each file.
fn variant(
    layout: &DiskOptions,
    is_one: bool,
    policy: &str,
    (engine, depth): (&str, usize),
) -> Result<DiskVariant> {
    let of_each = if is_one { layout.files } else { 1 };
    let threads = layout.files / of_each;
    let group = match threads {
        1 => "1 thread".to_owned(),
        _ => format!("{threads} threads"),
    };
    let spec = VariantSpec {
        name: format!("{policy} {engine}, {group}"),
        about: format!("{} files written by {group}", layout.files),
        group,
        parameters: vec![
            Parameter::new("policy", policy),
            Parameter::new("engine", engine),
            Parameter::new("threads", threads),
            Parameter::new("way", format!("{policy}, {engine}")),
        ],
        metric: Metric::throughput(),
        place: PlaceNo::FIRST,
    };
    let blocks = layout.file_bytes / layout.job.pattern.block_bytes as u64;
    let engine = if engine == "uring" { Engine::Uring } else { Engine::Psync };
    Ok(DiskVariant {
        spec,
        mode: Mode {
            name: CASE.name,
            about: CASE.about,
            work: Work::Requests(Order::Sequential, Direction::Write),
            initial: InitialState::Nothing,
            is_once: true,
        },
        by: By::Us,
        job: Job { engine, depth, requests: Some(of_each * blocks), ..layout.job.clone() },
        policy: policy.parse()?,
        in_turn: Some(of_each as usize),
    })
}

fn tables(results: &Results) -> Vec<Table> {
    let grid = |title: &str, note: &str, of: &dyn Fn(&crate::result::Run) -> Option<f64>| {
        grid::grid(results, title, note, ["way", "threads"], of)
    };
    vec![
        grid("MB/s until durable", "", &grid::value),
        grid(
            "MB/s accepted",
            "These are rates without the sync at the end: a program that does not sync sees these \
             rates, but may lose the data.",
            &grid::named("accepted_mb_per_s"),
        ),
        grid("Duration of the sync at the end, in seconds", "", &grid::named("sync_s")),
        grid("Writes of more than 100 ms per run", "", &grid::named("stalls")),
    ]
}

#[cfg(test)]
mod tests {
    use pinstripe_base::error::Kind;

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
