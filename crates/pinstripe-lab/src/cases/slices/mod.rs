//! Compares one area with two areas, of one disk or of two: what striping over them gains or loses,
//! and whether they share a spindle.

mod backing;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_array::{ProbeEffort, ProbeVerdict, probe_devices};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::random;
use pinstripe_io::device::{Access, Policy};
use pinstripe_stats::Better;

use self::backing::Backing;
use super::disk::{InitialState, Work};
use super::iozone;
use super::shared;
use super::{Again, Case, CaseOption, Setting, ValueForm, Values};
use crate::io::{self, Area, Job, Pattern, Syncing};
use crate::result::{Measured, Metric, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};

/// The case.
pub static CASE: Case = Case {
    name: "slices",
    about: "Compare one area of a disk with two striped areas, and detect whether two areas share \
            a disk head",
    help: "\
The variant 'one' uses one file in the first --dir. The variant 'two' uses two files of half the size, one \
in the first --dir and one in the second, and stripes records over both files. With directories on two \
partitions of one disk, the case shows the cost of moving the disk head between the partitions; with \
directories on two disks, it shows the gain of a second disk head. With only one --dir, both files of the \
variant 'two' are in this directory. With --device, the variant 'one' uses an area at the beginning of the \
device; the variant 'two' uses an area of half the size at the beginning, and another area in the middle. If \
several sizes are given, they are measured in turn, because data that fits into the cache of the disk \
behaves differently.

The tests are those of the case 'iozone', with a stride of 17, and the test spindle:
  spindle    read small blocks at random offsets, in each area alone and in both areas at the same time; \
show the share of its rate that each area keeps. If each area keeps half of its rate, one disk head serves \
both areas; if each area keeps its full rate, there are two disk heads.",
    examples: "\
  pinstripe lab run slices --dir /mnt/sda1 --dir /mnt/sda2
  pinstripe lab run slices --dir /mnt/sda1 --dir /mnt/sda2 --total-size 8G,16G --run-time 600
  pinstripe lab run slices --dir /mnt/a --dir /mnt/b --tests spindle
  pinstripe lab run slices --device /dev/sdx --serial S3Z1NB0K --total-size 8G --policy direct",
    options: OPTIONS,
    plan,
    tables: tables::tables,
    again: Again::BY_NAME,
};

const SPINDLE: &str = "spindle";
/// The tests of iozone's panel, and one more.
const TESTS: [&str; iozone::PANEL.len() + 1] = {
    let mut tests = [SPINDLE; iozone::PANEL.len() + 1];
    let mut at = 0;
    while at < iozone::PANEL.len() {
        tests[at] = iozone::PANEL[at];
        at += 1;
    }
    tests
};
/// The stride in records, as in iozone: every 17th record is accessed.
const STRIDE: u64 = 17;

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        form: ValueForm::SomeOf(&TESTS),
        default: Some(
            "write,rewrite,read,reread,random-read,random-write,backward,record-rewrite,stride,\
             fwrite,fread,mixed,spindle",
        ),
        ..iozone::TESTS
    },
    CaseOption {
        name: "total-size",
        value: "SIZE,...",
        form: ValueForm::Sizes,
        default: Some("512M"),
        about: "Size of the file of variant 'one', and of both files of variant 'two' together",
        more: "",
    },
    CaseOption {
        about: "Size of each request, and of each strip of the variant 'two'",
        ..shared::RECORD_SIZE
    },
    CaseOption {
        about: "Maximum duration of a run in seconds; a run also ends when all records were \
                accessed once",
        ..shared::RUN_TIME
    },
    CaseOption {
        name: "probe-rounds",
        value: "N",
        form: ValueForm::Count,
        default: Some("7"),
        about: "Number of rounds in a run of the test spindle; each round reads each area alone \
                and both areas together",
        more: "",
    },
    CaseOption {
        name: "probe-time",
        value: "S",
        form: ValueForm::Number,
        default: Some("0.1"),
        about: "Duration of each part of a round of the test spindle, in seconds",
        more: "",
    },
    shared::POLICY,
];

/// A test, its number of areas, and the index of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AreaTest {
    test: &'static str,
    areas: usize,
    size: usize,
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let backing = match (&setting.device, setting.dirs.as_slice()) {
        (Some(device), _) => Backing::device(device),
        (None, [dir]) => Backing::dirs([dir, dir]),
        (None, [one, other]) => Backing::dirs([one, other]),
        _ => {
            return Err(Error::new(
                Kind::Usage,
                "this case can measure only one or two directories",
            )
            .advice("give the directories whose disks are to be compared"));
        }
    };
    let record_bytes = values.size("record-size");
    let whole = |bytes: u64| bytes / (2 * record_bytes.max(1)) * 2 * record_bytes;
    let sizes: Vec<u64> = values.sizes("total-size").into_iter().map(whole).collect();
    if sizes.contains(&0) {
        return Err(Error::new(Kind::Usage, "each of the two areas must hold at least one record")
            .advice("increase --total-size, or reduce --record-size"));
    }
    if (1..sizes.len()).any(|at| sizes[..at].contains(&sizes[at])) {
        return Err(Error::new(Kind::Usage, "the same size is given twice"));
    }
    let ways = ways(values, sizes.len(), backing.is_device());
    if ways.is_empty() {
        let error = Error::new(Kind::Usage, "both areas of one device are always on the same disk");
        return Err(error.advice("give two directories, or choose other --tests"));
    }
    Ok(Box::new(Slices {
        parameters: shared::parameters(OPTIONS, values),
        backing,
        ways,
        sizes,
        record_bytes: record_bytes as usize,
        time: shared::seconds(values, "run-time")?,
        effort: ProbeEffort {
            rounds: values.count("probe-rounds") as usize,
            part: shared::seconds(values, "probe-time")?,
            ..ProbeEffort::default()
        },
        policy: values.parsed("policy")?,
        seed: setting.seed,
        areas: Vec::new(),
        fresh: None,
    }))
}

/// The variants: each test on one area and on two areas, for each size. The spindle test is left
/// out on one device, whose areas share its spindle. In directories it is run once, because it does
/// not depend on the size.
fn ways(values: &Values, sizes: usize, is_device: bool) -> Vec<AreaTest> {
    let known = |name: &str| TESTS.iter().find(|it| **it == name).copied();
    let tests = values.words("tests").into_iter().filter_map(known);
    let on = |test: &'static str| match test {
        SPINDLE if is_device => vec![],
        SPINDLE => vec![AreaTest { test, areas: 2, size: 0 }],
        _ => {
            (0..sizes).flat_map(|size| [1, 2].map(|areas| AreaTest { test, areas, size })).collect()
        }
    };
    tests.flat_map(on).collect()
}

struct Slices {
    parameters: Vec<Parameter>,
    backing: Backing,
    ways: Vec<AreaTest>,
    /// The sizes, in bytes: of the single area, and of both areas of a pair together.
    sizes: Vec<u64>,
    record_bytes: usize,
    time: Duration,
    effort: ProbeEffort,
    policy: Policy,
    seed: u64,
    /// For each size, two existing and filled areas.
    areas: Vec<[Area; 2]>,
    /// The areas that the next run rewrites.
    fresh: Option<Area>,
}

/// The way a test of the panel moves bytes, and the state that it needs.
fn work(test: &str) -> (Work, InitialState) {
    let mode = iozone::mode(test, STRIDE).expect("the panel is that of iozone");
    (mode.work, mode.initial)
}

impl Slices {
    /// The bytes of the largest area.
    fn most_bytes(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    fn job(&self, work: Work, bytes: u64, number: u64) -> Job {
        let (order, direction) = work.course();
        let pattern = Pattern { order, direction, block_bytes: self.record_bytes };
        Job {
            requests: Some(bytes / self.record_bytes as u64),
            time: Some(self.time),
            syncing: if work.writes() { Syncing::AT_END } else { Syncing::NEVER },
            seed: random::of_run(self.seed, number),
            ..Job::new(pattern)
        }
    }

    /// Returns the name of the files that a test creates, or works on.
    fn name_of(initial: InitialState) -> &'static str {
        if initial == InitialState::Nothing { "new" } else { "full" }
    }

    /// Measures the share of its rate that each of two areas keeps while the other area is in use.
    fn spindle(&self, live: &Live) -> Result<Outcome> {
        let paths = self.backing.paths("full", 2);
        let paths: [&Path; 2] = [&paths[0], &paths[1]];
        let probed = probe_devices(paths, self.effort, live.stop())?;
        live.check()?;
        let verdict = match probed.verdict {
            ProbeVerdict::Apart => 1.0,
            ProbeVerdict::Unclear => 0.0,
            ProbeVerdict::Shared => -1.0,
        };
        let [first, second] = probed.alone_reads_per_second;
        let bytes = (first + second) * self.effort.part.as_secs_f64() * self.effort.rounds as f64;
        let bytes = (bytes * 2.0) as u64 * self.effort.read_bytes as u64;
        Ok(Outcome {
            measured: Measured {
                value: probed.kept,
                read_bytes: bytes,
                figures: BTreeMap::from([
                    ("first_reads_per_s".to_owned(), first),
                    ("second_reads_per_s".to_owned(), second),
                    ("apart".to_owned(), verdict),
                    ("has_no_arm".to_owned(), f64::from(u8::from(probed.has_no_arm))),
                    ("same_disk".to_owned(), f64::from(u8::from(probed.same_disk.is_some()))),
                ]),
                ..Measured::default()
            },
            ..Outcome::default()
        })
    }
}

impl Plan for Slices {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |AreaTest { test, areas, size }: &AreaTest| {
            let size = self.sizes[*size];
            let is_spindle = *test == SPINDLE;
            let area = if *areas == 1 { "one" } else { "two" };
            let kept =
                Metric { name: "kept".to_owned(), unit: "kept".to_owned(), better: Better::Higher };
            let group = match self.sizes.len() {
                1 => (*test).to_owned(),
                _ => format!("{test} {}", shared::typed(size)),
            };
            let mut parameters = vec![Parameter::new("test", test), Parameter::new("areas", area)];
            if !is_spindle {
                parameters.push(Parameter::new("total-size", shared::typed(size)));
            }
            VariantSpec {
                name: if is_spindle { SPINDLE.to_owned() } else { format!("{group} {area}") },
                group: if is_spindle { SPINDLE.to_owned() } else { group },
                about: format!("{test} on {areas} of the two areas"),
                parameters,
                metric: if is_spindle { kept } else { Metric::throughput() },
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.backing.places()
    }

    fn notes(&self) -> Vec<String> {
        self.backing.note().map(str::to_owned).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        self.backing.intents(self.most_bytes())
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        self.backing.room(self.most_bytes())
    }

    fn may_begin(&self) -> Result<()> {
        self.backing.may_begin(self.most_bytes())
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        self.areas = self.backing.prepare(&self.sizes, self.policy, live)?;
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        let AreaTest { test, areas, size } = self.ways[variant.0];
        self.fresh = None;
        let is_device = self.backing.is_device();
        if !is_device {
            for areas in [1, 2] {
                shared::remove_files(&self.backing.paths("new", areas))?;
            }
        }
        self.areas.iter().flatten().try_for_each(Area::drop_cache)?;
        if test == SPINDLE {
            return Ok(());
        }
        match work(test) {
            (Work::Requests(..), InitialState::Nothing) if !is_device => {
                let bytes = self.sizes[size] / areas as u64;
                let paths = self.backing.paths("new", areas);
                let area = Area::open(&paths, bytes, Access::Create, self.policy)?;
                self.fresh = Some(area.striped());
                Ok(())
            }
            // Reads the same data that was read just before.
            (work, InitialState::CachedFiles) => {
                let job = self.job(work, self.sizes[size], 0);
                io::run(&job, &self.areas[size][areas - 1], live).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let AreaTest { test, areas, size } = self.ways[variant.0];
        if test == SPINDLE {
            return self.spindle(live);
        }
        let (work, initial) = work(test);
        let bytes = self.sizes[size];
        let (job, bytes) = (self.job(work, bytes, number), bytes / areas as u64);
        let spans = self.backing.spans(Self::name_of(initial), areas);
        let area = || self.fresh.as_ref().unwrap_or(&self.areas[size][areas - 1]);
        let (done, is_direct) = work.run(&job, (&spans, bytes), area, live)?;
        Ok(shared::outcome(&done, &job, self.policy, is_direct))
    }

    fn clean(&mut self) -> Result<()> {
        self.fresh = None;
        self.areas.clear();
        self.backing.clean()
    }
}

#[cfg(test)]
mod tests;
