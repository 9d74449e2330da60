//! The six modes of sysbench's fileio, with every parameter in sight.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe::device::{Access, Policy};
use pinstripe::error::{Error, Kind, Result};

use super::shared::{self, Folder};
use super::{Case, CaseOption, Form, Setting, Values};
use crate::io::{self, Area, Direction, Engine, Job, Order, Pattern, Syncing, Target};
use crate::result::{Metric, Parameter};
use crate::run::{Head, Live, Outcome, Plan};

/// The case.
pub static CASE: Case = Case {
    name: "fileio",
    about: "Read and write files in six ways: sysbench's modes, with every parameter in sight",
    help: "\
Files are made in a directory of their own and gone through in these modes:
  seqwr    write new files from the first byte to the last, once
  seqrewr  write over files that are there, from the first byte to the last, once
  seqrd    read files from the first byte to the last, once
  rndrd    read blocks anywhere
  rndwr    write blocks anywhere
  rndrw    read and write blocks anywhere, 3 reads for 2 writes
A figure is bytes moved in the time until they were durable: the sync at the end is counted in, and \
told apart. With several --dir, each mode is judged by the first of them.

--compat sysbench does what sysbench does unless told otherwise: after each 100 requests fsync of every \
file, written or not, one after the other (128 of them with 128 files), once more at the end, and \
sequential modes that begin again from the first byte until the time is over. Figures of its writing \
modes are those of fsync more than those of writing.",
    examples: "\
  pinstripe lab run fileio --dir /srv
  pinstripe lab run fileio --dir /mnt/ssd --dir /mnt/hdd --modes rndrd,rndwr --block-size 4K
  pinstripe lab run fileio --policy direct --engine uring --depth 32 --block-size 1M
  pinstripe lab run fileio --compat sysbench --total-size 2G",
    options: OPTIONS,
    plan,
};

const MODE_NAMES: &[&str] = &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"];

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "modes",
        value: "NAME,...",
        form: Form::SomeOf(MODE_NAMES),
        default: Some("seqwr,seqrewr,seqrd,rndrd,rndwr,rndrw"),
        about: "What to do, in this order",
        more: "",
    },
    CaseOption {
        name: "files",
        value: "N",
        form: Form::Count,
        default: Some("128"),
        about: "How many files",
        more: "",
    },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("1G"),
        about: "Bytes of all files together",
        more: "",
    },
    CaseOption {
        name: "block-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("16K"),
        about: "Bytes of each request",
        more: "",
    },
    CaseOption {
        name: "run-time",
        value: "S",
        form: Form::Number,
        default: Some("3"),
        about: "Seconds of a run at most; a sequential mode ends when it is through",
        more: "",
    },
    shared::THREADS,
    shared::ENGINE,
    shared::DEPTH,
    shared::POLICY,
    CaseOption {
        name: "sync",
        value: "WHEN",
        form: Form::OneOf(&["end", "never"]),
        default: Some("end"),
        about: "When to wait until bytes are durable: end or never",
        more: "Without it, figures of writes are marked 'accepted, not durable'.",
    },
    CaseOption {
        name: "sync-every",
        value: "N",
        form: Form::Count,
        default: None,
        about: "Also wait for every file after so many requests",
        more: "",
    },
    CaseOption {
        name: "read-share",
        value: "SHARE",
        form: Form::Number,
        default: Some("0.6"),
        about: "Share of reads in rndrw, from 0 to 1",
        more: "",
    },
    CaseOption {
        name: "rate",
        value: "N",
        form: Form::Count,
        default: None,
        about: "Requests per second, of all threads together; as fast as they go without",
        more: "Latency 'response' then counts from when a request was due, so that a stall is seen in all \
               that it kept waiting.",
    },
    shared::CONTENT,
    shared::CACHE,
    CaseOption {
        name: "compat",
        value: "NAME",
        form: Form::OneOf(&["sysbench"]),
        default: None,
        about: "Sync as sysbench does: every file after each 100 requests, and at the end",
        more: "See above.",
    },
];

/// What `--compat sysbench` says of itself in the results.
const COMPAT_NOTE: &str = "as sysbench: after each 100 requests fsync of every file, written or not, one \
    after the other, and sequential modes begin again until the time is over; figures of writing modes \
    are those of fsync more than those of writing";

struct Mode {
    name: &'static str,
    about: &'static str,
    order: Order,
    /// None is the mix.
    direction: Option<Direction>,
    makes_files: bool,
}

#[rustfmt::skip]
const MODES: [Mode; 6] = [
    Mode { name: "seqwr", about: "write new files in order", order: Order::Sequential, direction: Some(Direction::Write), makes_files: true },
    Mode { name: "seqrewr", about: "write over files in order", order: Order::Sequential, direction: Some(Direction::Write), makes_files: false },
    Mode { name: "seqrd", about: "read files in order", order: Order::Sequential, direction: Some(Direction::Read), makes_files: false },
    Mode { name: "rndrd", about: "read blocks anywhere", order: Order::Random, direction: Some(Direction::Read), makes_files: false },
    Mode { name: "rndwr", about: "write blocks anywhere", order: Order::Random, direction: Some(Direction::Write), makes_files: false },
    Mode { name: "rndrw", about: "read and write blocks anywhere", order: Order::Random, direction: None, makes_files: false },
];

/// After so many requests sysbench syncs every file (file-fsync-freq).
const SYSBENCH_EVERY: u64 = 100;

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let modes = values.words("modes").into_iter();
    let modes: Vec<&Mode> =
        modes.filter_map(|name| MODES.iter().find(|mode| mode.name == name)).collect();
    let files = if setting.device.is_some() { 1 } else { values.count("files") };
    let block_bytes = values.size("block-size");
    let file_bytes = values.size("total-size") / files / block_bytes.max(1) * block_bytes;
    if file_bytes == 0 {
        return Err(Error::new(Kind::Usage, "each file is smaller than one block")
            .advice("more with --total-size, or fewer with --files"));
    }
    let read_share = values.number("read-share");
    if read_share > 1.0 {
        return Err(Error::new(Kind::Usage, "--read-share is a number from 0 to 1"));
    }
    let is_compat = values.has("compat");
    let every = values.has("sync-every").then(|| values.count("sync-every"));
    let syncing = Syncing {
        every: if is_compat { Some(SYSBENCH_EVERY) } else { every },
        at_end: is_compat || values.text("sync") == Some("end"),
        is_full: is_compat,
    };
    let time = Duration::try_from_secs_f64(values.number("run-time"))
        .map_err(|_| Error::new(Kind::Usage, "--run-time is too long"))?;
    let job = Job {
        engine: shared::engine(values),
        threads: values.count("workers") as usize,
        depth: values.count("depth") as usize,
        requests: None,
        time: Some(time),
        syncing,
        content: values.parsed("content")?,
        seed: setting.seed,
        rate: values.has("rate").then(|| values.count("rate") as f64),
        pattern: Pattern {
            order: Order::Sequential,
            direction: Direction::Read,
            block_bytes: block_bytes as usize,
        },
    };
    refuse_idle_depth(&job)?;
    let places = match &setting.device {
        Some(device) => vec![device.clone()],
        None => setting.dirs.clone(),
    };
    Ok(Box::new(FileIo {
        parameters: parameters(values, is_compat, file_bytes * files),
        places: places.into_iter().map(|path| Spot { path, folder: None, area: None }).collect(),
        is_device: setting.device.is_some(),
        modes,
        files,
        file_bytes,
        job,
        policy: values.parsed("policy")?,
        read_share,
        drops_cache: values.text("cache") == Some("drop"),
        is_compat,
        fresh: None,
    }))
}

fn refuse_idle_depth(job: &Job) -> Result<()> {
    if job.engine == Engine::Psync && job.depth > 1 {
        let error = Error::new(Kind::Usage, "--depth has no meaning with the engine psync");
        return Err(error.advice("add --engine uring, or use more --workers"));
    }
    Ok(())
}

/// Every option with its value; what is not set says so.
fn parameters(values: &Values, is_compat: bool, bytes: u64) -> Vec<Parameter> {
    let value = |option: &CaseOption| match (option.name, values.text(option.name)) {
        ("sync", _) if is_compat => "end".to_owned(),
        ("sync-every", _) if is_compat => SYSBENCH_EVERY.to_string(),
        ("total-size", _) => bytes.to_string(),
        (_, value) => value.unwrap_or("none").to_owned(),
    };
    OPTIONS.iter().map(|option| Parameter::new(option.name, value(option))).collect()
}

/// A directory or device, and what is open on it.
struct Spot {
    path: PathBuf,
    folder: Option<Folder>,
    /// Files that are there, full of content.
    area: Option<Area>,
}

struct FileIo {
    parameters: Vec<Parameter>,
    places: Vec<Spot>,
    is_device: bool,
    modes: Vec<&'static Mode>,
    files: u64,
    file_bytes: u64,
    /// But for its pattern and length.
    job: Job,
    policy: Policy,
    read_share: f64,
    drops_cache: bool,
    is_compat: bool,
    /// Files that the next run writes anew.
    fresh: Option<Area>,
}

impl FileIo {
    /// The mode and the place of a variant: places of one mode stand side by side.
    fn parts(&self, variant: usize) -> (&'static Mode, usize) {
        (self.modes[variant / self.places.len()], variant % self.places.len())
    }

    fn job(&self, mode: &Mode, number: u64) -> Job {
        let direction = mode.direction.unwrap_or(Direction::Mixed(self.read_share));
        let pattern = Pattern { order: mode.order, direction, ..self.job.pattern };
        let blocks = self.file_bytes / pattern.block_bytes as u64 * self.files;
        let is_once = mode.order == Order::Sequential && !self.is_compat;
        let syncing = match direction {
            Direction::Read => Syncing::NEVER,
            _ => self.job.syncing,
        };
        Job {
            pattern,
            requests: is_once.then_some(blocks),
            syncing,
            seed: self.job.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..self.job.clone()
        }
    }

    fn new_files(&self, place: usize) -> Vec<PathBuf> {
        self.places[place].folder.iter().flat_map(|it| it.files("new", self.files)).collect()
    }
}

impl Plan for FileIo {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn heads(&self) -> Vec<Head> {
        let head = |variant: usize| {
            let (mode, place) = self.parts(variant);
            let path = self.places[place].path.to_string_lossy().into_owned();
            let name = match self.places.len() {
                1 => mode.name.to_owned(),
                _ => format!("{} {path}", mode.name),
            };
            Head {
                name,
                group: mode.name.to_owned(),
                about: mode.about.to_owned(),
                parameters: vec![Parameter::new("mode", mode.name), Parameter::new("place", path)],
                metric: Metric::throughput(),
            }
        };
        (0..self.modes.len() * self.places.len()).map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.path.clone()).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.is_compat.then(|| COMPAT_NOTE.to_owned()).into_iter().collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let has_old = self.modes.iter().any(|mode| !mode.makes_files);
        let has_new = self.modes.iter().any(|mode| mode.makes_files);
        let sets = u64::from(has_old) + u64::from(has_new);
        for place in &mut self.places {
            if self.is_device {
                let target = Target::open(&place.path, Access::Write, self.policy)?;
                let len = target.device().len()?;
                if len < self.file_bytes {
                    let error = Error::new(Kind::Usage, "is shorter than --total-size");
                    return Err(error.at(&place.path).expected(self.file_bytes, len));
                }
                place.area = Some(Area::new(vec![target], self.file_bytes));
                continue;
            }
            let bytes = sets * self.files * self.file_bytes;
            let folder = place.folder.insert(Folder::make(&place.path, CASE.name, bytes)?);
            if has_old {
                let paths = folder.files("old", self.files);
                let content = self.job.content;
                place.area = Some(Area::make(&paths, self.file_bytes, content, self.policy, live)?);
            }
        }
        Ok(())
    }

    fn ready(&mut self, variant: usize, _: &Live) -> Result<()> {
        let (mode, place) = self.parts(variant);
        self.fresh = None;
        for place in 0..self.places.len() {
            shared::remove_files(&self.new_files(place))?;
        }
        if mode.makes_files && !self.is_device {
            let paths = self.new_files(place);
            self.fresh = Some(Area::open(&paths, self.file_bytes, Access::Create, self.policy)?);
        }
        match &self.places[place].area {
            Some(area) if self.drops_cache => area.drop_cache(),
            _ => Ok(()),
        }
    }

    fn run(&mut self, variant: usize, number: u64, live: &Live) -> Result<Outcome> {
        let (mode, place) = self.parts(variant);
        let job = self.job(mode, number);
        let area = self.fresh.as_ref().or(self.places[place].area.as_ref());
        let area = area.expect("files were made, or a device opened, before the first run");
        let done = io::run(&job, area, live)?;
        Ok(shared::outcome(&done, &job, self.policy, area.is_direct()))
    }

    fn clean(&mut self) -> Result<()> {
        self.fresh = None;
        self.places.iter_mut().try_for_each(|place| {
            place.area = None;
            place.folder.take().map_or(Ok(()), |folder| folder.remove())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cases::tests::measured;
    use crate::result::Note;

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
                let (reads, writes) = (run.read_bytes > 0, run.written_bytes > 0);
                let wanted = match variant.name.as_str() {
                    "seqrd" | "rndrd" => (true, false),
                    "rndrw" => (true, true),
                    _ => (false, true),
                };
                assert_eq!((reads, writes), wanted, "{} {more:?}", variant.name);
                assert_eq!(run.latency.contains_key("sync"), writes, "{}", variant.name);
                assert!(run.value > 0.0 && !run.notes.contains(&Note::Wrapped));
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{more:?}");
        }
    }

    #[test]
    fn sequential_modes_go_over_the_files_once() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("modes", "seqwr,seqrd"), ("run-time", "60")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        assert_eq!(results.variants[0].runs[0].written_bytes, 384 << 10);
        assert_eq!(results.variants[1].runs[0].read_bytes, 384 << 10);
    }

    #[test]
    fn sysbench_syncs_every_file_after_each_hundred_requests() {
        let dir = tempfile::tempdir().unwrap();
        let results =
            measured(&CASE, dir.path(), &[&SMALL[..], &[("compat", "sysbench")]].concat());
        for variant in results.variants.iter().filter(|it| it.name.ends_with("wr")) {
            let run = &variant.runs[0];
            let syncs = run.latency["sync"].count();
            assert_eq!(syncs, 3 * (run.operations / 100) + 3, "{}", variant.name);
        }
        assert!(results.notes[0].contains("fsync of every file"));
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
        let heads = plan(&setting, &values).unwrap().heads();
        let groups: Vec<&str> = heads.iter().map(|head| head.group.as_str()).collect();
        assert_eq!(groups, ["seqrd", "seqrd", "rndrd", "rndrd"]);
        assert_eq!(heads[1].name, format!("seqrd {}", dirs[1].path().display()));
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
}
