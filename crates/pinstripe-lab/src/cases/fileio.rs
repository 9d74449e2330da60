//! The six modes of sysbench's fileio, with an option for every parameter.

use pinstripe_base::error::{Error, Kind, Result};

use super::disk::{DiskOptions, DiskPlan, InitialState, Mode, Work};
use super::shared;
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io::{Direction, Order, Syncing};
use crate::result::{Counting, Parameter, Results, Run};
use crate::run::Plan;
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "fileio",
    about: "Read and write files in the six access modes of sysbench, and show every parameter",
    help: "\
The case creates files in a new directory, and accesses them in these modes:
  seqwr    write new files from the first byte to the last, once
  seqrewr  overwrite existing files from the first byte to the last, once
  seqrd    read files from the first byte to the last, once
  rndrd    read blocks at random offsets
  rndwr    write blocks at random offsets
  rndrw    read and write blocks at random offsets (3 reads for 2 writes)
The rate is the number of bytes transferred, divided by the time until they were durable. The measured time \
includes the sync at the end, which is also shown separately. If --dir is given several times, the first \
directory is the baseline of each mode.

With --compat sysbench, the case syncs as sysbench does by default. After every 100 requests, and at the end \
of a run, sysbench calls fsync on every file, even if the file was not written (128 calls with 128 files). \
With --compat sysbench, sequential modes start again at the first byte until the time is over. With --compat \
sysbench, the rates of write modes depend more on fsync than on writing.",
    examples: "\
  pinstripe lab run fileio --dir /srv
  pinstripe lab run fileio --dir /mnt/ssd --dir /mnt/hdd --modes rndrd,rndwr --block-size 4K
  pinstripe lab run fileio --policy direct --engine uring --depth 32 --block-size 1M
  pinstripe lab run fileio --compat sysbench --total-size 2G",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const MODE_NAMES: &[&str] = &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"];

/// Which modes.
pub(crate) const MODES: CaseOption = CaseOption {
    name: "modes",
    value: "NAME,...",
    form: ValueForm::SomeOf(MODE_NAMES),
    default: Some("seqwr,seqrewr,seqrd,rndrd,rndwr,rndrw"),
    about: "Modes to run, in the given order",
    more: "",
};

/// The number of files over which the bytes are distributed.
pub const FILES: CaseOption = CaseOption {
    name: "files",
    value: "N",
    form: ValueForm::Count,
    default: Some("128"),
    about: "Number of files",
    more: "",
};

/// All bytes.
pub(crate) const TOTAL_SIZE: CaseOption = CaseOption {
    name: "total-size",
    value: "SIZE",
    form: ValueForm::Size,
    default: Some("1G"),
    about: "Total size of all files",
    more: "",
};

/// Bytes of a request.
pub const BLOCK_SIZE: CaseOption = CaseOption {
    name: "block-size",
    value: "SIZE",
    form: ValueForm::Size,
    default: Some("16K"),
    about: "Size of each request",
    more: "",
};

/// The length of a run.
pub(crate) const RUN_TIME: CaseOption = CaseOption {
    default: Some("3"),
    about: "Maximum duration of a run in seconds; a run of a sequential mode also ends at the last \
            byte",
    ..shared::RUN_TIME
};

/// The share of reads among the requests of the mode rndrw.
pub(crate) const READ_SHARE: CaseOption = CaseOption {
    name: "read-share",
    value: "SHARE",
    form: ValueForm::Number,
    default: Some("0.6"),
    about: "Share of reads in the mode rndrw, from 0 to 1",
    more: "",
};

const OPTIONS: &[CaseOption] = &[
    MODES,
    FILES,
    TOTAL_SIZE,
    BLOCK_SIZE,
    RUN_TIME,
    shared::THREADS,
    shared::ENGINE,
    shared::DEPTH,
    shared::POLICY,
    shared::SYNC,
    CaseOption {
        name: "sync-every",
        value: "N",
        form: ValueForm::Count,
        default: None,
        about: "Also sync every file after this many requests",
        more: "",
    },
    READ_SHARE,
    shared::RATE,
    shared::CONTENT,
    shared::CACHE,
    shared::CROSS_CHECK,
    CaseOption {
        name: "compat",
        value: "NAME",
        form: ValueForm::OneOf(&["sysbench"]),
        default: None,
        about: "Sync as sysbench does: sync every file after every 100 requests, and at the end",
        more: "The description of the case 'fileio' explains the effect of --compat sysbench.",
    },
];

/// The note on `--compat sysbench` in the results.
const COMPAT_NOTE: &str = "like sysbench: every 100 requests, fsync is called for every file in \
                           turn, written or not, and sequential modes start again at the beginning \
                           until the time is over; the figures of writing modes show fsync more \
                           than writing";

/// The number of requests after which sysbench syncs every file (file-fsync-freq).
const SYSBENCH_EVERY: u64 = 100;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let is_compat = values.has("compat");
    let every = values.has("sync-every").then(|| values.count("sync-every"));
    let syncing = Syncing {
        every: if is_compat { Some(SYSBENCH_EVERY) } else { every },
        at_end: is_compat || values.text("sync") == Some("end"),
        is_full: is_compat,
    };
    let layout = layout(setting, values, syncing, is_compat)?;
    let bytes = layout.files * layout.file_bytes;
    Ok(Box::new(DiskPlan::new(DiskOptions {
        parameters: parameters(values, is_compat, bytes),
        notes: is_compat.then(|| COMPAT_NOTE.to_owned()).into_iter().collect(),
        ..layout
    })?))
}

/// The options that all cases with these modes share.
///
/// # Errors
/// [`Kind::Usage`] for options that contradict each other.
pub(crate) fn layout(
    setting: &Setting,
    values: &Values,
    syncing: Syncing,
    is_compat: bool,
) -> Result<DiskOptions> {
    let read_share = values.number(READ_SHARE.name);
    if read_share > 1.0 {
        return Err(Error::new(Kind::Usage, "--read-share must be a number from 0 to 1"));
    }
    let files = if setting.device.is_some() { 1 } else { values.count(FILES.name) };
    let sizes = (files, values.size(TOTAL_SIZE.name), values.size(BLOCK_SIZE.name));
    let options = DiskOptions::read((CASE.name, "modes"), (setting, values), sizes, syncing)?;
    let modes = values.words(MODES.name).into_iter();
    let modes = modes.filter_map(|name| mode(name, read_share, is_compat)).collect();
    Ok(DiskOptions { modes, ..options })
}

/// Returns the mode with this name; as in sysbench, a sequential mode starts again at the beginning
/// when it reaches the end.
fn mode(name: &str, read_share: f64, is_compat: bool) -> Option<Mode> {
    use Direction::{Mixed, Read, Write};
    use InitialState::{Files, Nothing};
    use Order::{Random, Sequential};
    let mixed = Mixed(read_share);
    let (name, about, order, direction, initial) = match name {
        "seqwr" => ("seqwr", "write new files sequentially", Sequential, Write, Nothing),
        "seqrewr" => ("seqrewr", "overwrite files sequentially", Sequential, Write, Files),
        "seqrd" => ("seqrd", "read files sequentially", Sequential, Read, Files),
        "rndrd" => ("rndrd", "read blocks at random offsets", Random, Read, Files),
        "rndwr" => ("rndwr", "write blocks at random offsets", Random, Write, Files),
        "rndrw" => ("rndrw", "read and write blocks at random offsets", Random, mixed, Files),
        _ => return None,
    };
    let is_once = order == Sequential && !is_compat;
    Some(Mode { name, about, work: Work::Requests(order, direction), initial, is_once })
}

/// Every option with its value; an option that is not set has a value that says so.
fn parameters(values: &Values, is_compat: bool, bytes: u64) -> Vec<Parameter> {
    let value = |option: &CaseOption| match (option.name, values.text(option.name)) {
        ("sync", _) if is_compat => "end".to_owned(),
        ("sync-every", _) if is_compat => SYSBENCH_EVERY.to_string(),
        ("total-size", _) => bytes.to_string(),
        (_, value) => value.unwrap_or("none").to_owned(),
    };
    OPTIONS.iter().map(|option| Parameter::new(option.name, value(option))).collect()
}

/// Returns tables of the usual figures: requests per second, and the latency of requests.
fn tables(results: &Results) -> Vec<Table> {
    let head = ["mode", "MB/s", "IOPS", "p50", "p99", "requests"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for variant in results.variants.iter().filter(|it| !it.runs.is_empty()) {
        let times = variant.request_times(Counting::shown(variant)).unwrap_or_default();
        let quantile = |q: f64| grid::quantile_text(&times, q);
        rows.push(vec![
            variant.name.clone(),
            grid::cell(grid::figure(variant, grid::value)),
            grid::cell(grid::figure(variant, iops)),
            quantile(0.5),
            quantile(0.99),
            times.count().to_string(),
        ]);
    }
    let note = "IOPS are requests per second; the time until all data was durable is included. \
                Response times are the times of all reads and writes; with --rate, a response time \
                starts when the request was due.";
    vec![Table::from_rows("Requests", note, rows)]
}

/// Requests per second, over the same time as the value in bytes.
fn iops(run: &Run) -> Option<f64> {
    let bytes = run.measured.read_bytes + run.measured.written_bytes;
    (bytes > 0).then(|| run.measured.value * 1e6 * run.measured.operations as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cases::tests::measured;
    use crate::guard::Disturbance;
    use crate::result::Note;
    use crate::run::{Live, VariantNo};

    const SMALL: [(&str, &str); 4] =
        [("files", "3"), ("total-size", "384K"), ("run-time", "0.02"), ("block-size", "4K")];

    #[test]
    fn every_mode_is_measured_and_nothing_is_left_behind() {
        for more in [
            vec![],
            vec![("policy", "direct"), ("engine", "uring"), ("depth", "4")],
            vec![
                ("workers", "2"),
                ("policy", "dsync"),
                ("content", "zeros:50%"),
                ("cache", "keep"),
            ],
            vec![("rate", "500")],
        ] {
            let dir = tempfile::tempdir().unwrap();
            let results = measured(&CASE, dir.path(), &[&SMALL[..], &more].concat());
            let names: Vec<&str> = results.variants.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, MODE_NAMES);
            for variant in &results.variants {
                let run = &variant.runs[0];
                let (reads, writes) = (run.measured.read_bytes > 0, run.measured.written_bytes > 0);
                let wanted = match variant.name.as_str() {
                    "seqrd" | "rndrd" => (true, false),
                    "rndrw" => (true, true),
                    _ => (false, true),
                };
                assert_eq!((reads, writes), wanted, "{} {more:?}", variant.name);
                assert_eq!(run.measured.latency.contains_key("sync"), writes, "{}", variant.name);
                assert!(run.measured.value > 0.0 && !run.notes.contains(&Note::Wrapped));
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{more:?}");
        }
    }

    #[test]
    fn sequential_modes_go_over_the_files_once() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("modes", "seqwr,seqrd"), ("run-time", "60")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        assert_eq!(results.variants[0].runs[0].measured.written_bytes, 384 << 10);
        assert_eq!(results.variants[1].runs[0].measured.read_bytes, 384 << 10);
    }

    #[test]
    fn requests_a_second_stand_beside_bytes_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("modes", "rndrd,rndwr")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        for variant in &results.variants {
            let run = &variant.runs[0];
            let wanted = run.measured.value * 1e6 / 4096.0;
            let found = iops(run).unwrap();
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
        }
        let table = tables(&results)[0].to_json();
        assert_eq!(table["columns"][2], "IOPS");
        let requests = table["rows"][0]["requests"].as_f64().unwrap();
        assert_eq!(requests, results.variants[0].runs[0].measured.operations as f64);
    }

    /// The cell of the first row under a name, without the brackets of disturbed runs.
    fn cell(table: &Table, name: &str) -> String {
        let shown = table.shown();
        let at = shown[0].iter().position(|it| it == name).unwrap();
        shown[1][at].trim_matches(['(', ')']).to_owned()
    }

    /// Also where a run was disturbed: its requests are in neither table then, or where all were,
    /// in both.
    #[test]
    fn reads_and_writes_of_a_variant_are_counted_alike_in_both_tables() {
        for more in [("cache", "drop"), ("rate", "900")] {
            let dir = tempfile::tempdir().unwrap();
            let small = [&SMALL[..], &[("modes", "rndrw"), more]].concat();
            let mut results = measured(&CASE, dir.path(), &small);
            let made = results.variants[0].runs.len();
            for disturbed in [0, 1, made] {
                for (at, run) in results.variants[0].runs.iter_mut().enumerate() {
                    let found = Disturbance { kind: "steal".to_owned(), what: String::new() };
                    run.disturbances = if at < disturbed { vec![found] } else { Vec::new() };
                }
                let (all, own) = (crate::show::table(&results), tables(&results).remove(0));
                for name in ["requests", "p50", "p99"] {
                    assert_eq!(cell(&all, name), cell(&own, name), "{name}, {more:?}");
                }
                let counted = &results.variants[0].runs[disturbed % made..];
                let requests: u64 = counted.iter().map(|it| it.measured.operations).sum();
                assert_eq!(cell(&own, "requests"), requests.to_string(), "{more:?}");
            }
        }
    }

    #[test]
    fn sysbench_syncs_every_file_after_each_hundred_requests() {
        let dir = tempfile::tempdir().unwrap();
        let results =
            measured(&CASE, dir.path(), &[&SMALL[..], &[("compat", "sysbench")]].concat());
        for variant in results.variants.iter().filter(|it| it.name.ends_with("wr")) {
            let run = &variant.runs[0];
            let syncs = run.measured.latency["sync"].count();
            assert_eq!(syncs, 3 * (run.measured.operations / 100) + 3, "{}", variant.name);
        }
        assert!(results.notes[0].contains("fsync is called for every file"));
        let every = results.parameters.iter().find(|it| it.name == "sync-every").unwrap();
        assert_eq!(every.value, "100");
    }

    #[test]
    fn writes_that_nothing_waits_for_are_marked() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("modes", "seqwr,rndrd"), ("sync", "never")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        assert!(results.variants[0].notes().contains(&Note::AcceptedNotDurable));
        assert!(!results.variants[1].notes().contains(&Note::AcceptedNotDurable));
    }

    #[test]
    fn several_directories_are_compared_mode_by_mode() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let setting = Setting {
            dirs: dirs.iter().map(|dir| dir.path().to_path_buf()).collect(),
            ..Setting::default()
        };
        let values = Values::read(OPTIONS, &[("modes", "seqrd,rndrd")]).unwrap();
        let specs = plan(&setting, &values).unwrap().variants();
        let groups: Vec<&str> = specs.iter().map(|it| it.group.as_str()).collect();
        assert_eq!(groups, ["seqrd", "seqrd", "rndrd", "rndrd"]);
        assert_eq!(specs[1].name, format!("seqrd {}", dirs[1].path().display()));
    }

    #[test]
    fn what_makes_no_sense_or_has_no_room_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
        for bad in [("files", "9999999"), ("read-share", "1.5"), ("depth", "2"), ("content", "x")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage, "{bad:?}");
        }
        let values = Values::read(OPTIONS, &[("total-size", "4000T")]).unwrap();
        let mut plan = plan(&setting, &values).unwrap();
        let live = Live::new(Arc::default());
        assert_eq!(plan.prepare(&live).unwrap_err().kind(), Kind::NoSpace);
        plan.clean().unwrap();
    }

    #[test]
    fn fio_gives_a_second_opinion_on_what_it_can_do() {
        use crate::fio::check;
        if check::version().is_none() {
            return pinstripe_testing::not_installed("fio_gives_a_second_opinion", "fio");
        }
        let dir = tempfile::tempdir().unwrap();
        let more = [("cross-check", "fio"), ("modes", "seqwr,seqrewr,seqrd"), ("run-time", "60")];
        let results = measured(&CASE, dir.path(), &[&SMALL[..], &more].concat());
        assert_eq!(results.variants.len(), 6);
        for pair in results.variants.chunks(2) {
            assert_eq!(pair[1].name, format!("{} by fio", pair[0].name));
            assert_eq!(pair[0].group, pair[1].group);
            let (ours, theirs) = (&pair[0].runs[0], &pair[1].runs[0]);
            assert!(theirs.measured.value > 0.0 && theirs.notes.contains(&Note::OtherProgram));
            assert_eq!(
                ours.measured.written_bytes, theirs.measured.written_bytes,
                "{}",
                pair[0].name
            );
            assert_eq!(ours.measured.read_bytes, theirs.measured.read_bytes, "{}", pair[0].name);
        }
    }

    #[test]
    fn a_device_is_gone_over_as_one_file() {
        use crate::safety::tests::Loop;
        let Some(device) = Loop::new(&[]) else {
            let test = "a_device_is_gone_over_as_one_file";
            return pinstripe_testing::skipped(test, "no loop device can be made");
        };
        let setting = Setting { device: Some(device.path().to_owned()), ..Setting::default() };
        let values = Values::read(OPTIONS, &SMALL).unwrap();
        let mut plan = plan(&setting, &values).unwrap();
        let live = Live::new(Arc::default());
        plan.prepare(&live).unwrap();
        for variant in (0..plan.variants().len()).map(VariantNo) {
            plan.ready(variant, &live).unwrap();
            let outcome = plan.run(variant, 1, &live).unwrap();
            assert!(
                outcome.measured.read_bytes + outcome.measured.written_bytes > 0,
                "{variant:?}"
            );
        }
        plan.clean().unwrap();
        let large = Values::read(OPTIONS, &[("total-size", "65M")]).unwrap();
        let mut plan = super::plan(&setting, &large).unwrap();
        // A rehearsal says the same before anything is written.
        for error in [plan.may_begin().unwrap_err(), plan.prepare(&live).unwrap_err()] {
            assert!(error.to_string().contains("shorter"), "{error}");
        }
    }

    #[test]
    fn each_place_is_watched_on_its_own_disk() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
            let test = "each_place_is_watched_on_its_own_disk";
            return pinstripe_testing::skipped(test, "there is no /dev/shm");
        };
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dirs = [disk.path().to_owned(), memory.path().to_owned()];
        let wanted = dirs.each_ref().map(|dir| crate::fingerprint::disk_number_of(dir).is_some());
        let setting = Setting { dirs: dirs.to_vec(), ..Setting::default() };
        let results = crate::cases::tests::measured_in(&CASE, &setting, &SMALL);
        for (variant, wanted) in results.variants.iter().zip(wanted.into_iter().cycle()) {
            let moved = variant.runs[0].device_written_bytes;
            assert_eq!(moved.is_some(), wanted, "{}", variant.name);
        }
    }
}
