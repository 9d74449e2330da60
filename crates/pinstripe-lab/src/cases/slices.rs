//! One area against two areas, of one disk or of two: what is gained, or lost, by striping over them; and
//! whether they share a spindle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pinstripe::device::{Access, Policy};
use pinstripe::error::{Error, Kind, Result};
use pinstripe::ops::array::probe::{self, Verdict};
use pinstripe::pipeline::probe::Effort;

use super::shared::{self, Folder};
use super::{Case, CaseOption, Form, Setting, Values, grid};
use crate::io::{self, Area, Content, Direction, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter, Results};
use crate::run::{Head, Live, Outcome, Plan};
use crate::stats::Better;
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "slices",
    about: "Hold one area against two that are striped, and tell whether they share a spindle",
    help: "\
'one' is a file in the first --dir; 'two' are files of half the size, in the first --dir and the second, \
records in turn on either. Name directories on two partitions of one disk to see what it costs when an arm \
moves between them, on two disks to see what a second arm gives. With one --dir both files are in it.

  write, rewrite, read, reread   in order; reread is left what the cache holds
  randread, randwrite            records anywhere
  stride                         every 17th record
  spindle                        small reads at random places, of each area alone and of both at once: \
what each keeps of its rate beside the other. Half is one arm, all is two.",
    examples: "\
  pinstripe lab run slices --dir /mnt/sda1 --dir /mnt/sda2
  pinstripe lab run slices --dir /mnt/a --dir /mnt/b --tests spindle
  pinstripe lab run slices --total-size 8G --record-size 64K --policy direct",
    options: OPTIONS,
    plan,
    tables,
};

const SPINDLE: &str = "spindle";
const TESTS: &[&str] =
    &["write", "rewrite", "read", "reread", "randread", "randwrite", "stride", SPINDLE];
/// Every so-many-th record, as iozone does.
const STRIDE: u64 = 17;

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "tests",
        value: "NAME,...",
        form: Form::SomeOf(TESTS),
        default: Some("write,rewrite,read,reread,randread,randwrite,stride,spindle"),
        about: "What to do, in this order",
        more: "",
    },
    CaseOption {
        name: "total-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("512M"),
        about: "Bytes of one area, and of two together",
        more: "",
    },
    CaseOption {
        name: "record-size",
        value: "SIZE",
        form: Form::Size,
        default: Some("1M"),
        about: "Bytes of each request, and of the stripes",
        more: "",
    },
    CaseOption {
        name: "run-time",
        value: "S",
        form: Form::Number,
        default: Some("10"),
        about: "Seconds of a run at most; it ends when all records were met once",
        more: "",
    },
    CaseOption {
        name: "probe-rounds",
        value: "N",
        form: Form::Count,
        default: Some("7"),
        about: "Rounds of a run of spindle, in each of which both are read alone and together",
        more: "",
    },
    CaseOption {
        name: "probe-time",
        value: "S",
        form: Form::Number,
        default: Some("0.1"),
        about: "Seconds of each part of a round",
        more: "",
    },
    shared::POLICY,
];

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    let dirs = match (&setting.device, setting.dirs.as_slice()) {
        (None, [dir]) => [dir.clone(), dir.clone()],
        (None, [one, other]) => [one.clone(), other.clone()],
        _ => {
            return Err(Error::new(Kind::Usage, "this case measures one directory or two")
                .advice("name those whose disks are to be held against each other"));
        }
    };
    let record_bytes = values.size("record-size");
    let bytes = values.size("total-size") / (2 * record_bytes.max(1)) * 2 * record_bytes;
    if bytes == 0 {
        return Err(Error::new(Kind::Usage, "two areas have a record each at least")
            .advice("more with --total-size, or less with --record-size"));
    }
    let known = |name: &str| TESTS.iter().find(|it| **it == name).copied();
    let mut ways = Vec::new();
    for test in values.words("tests").into_iter().filter_map(known) {
        ways.push((test, 2));
        if test != SPINDLE {
            ways.insert(ways.len() - 1, (test, 1));
        }
    }
    Ok(Box::new(Slices {
        parameters: shared::parameters(OPTIONS, values),
        dirs,
        folders: Vec::new(),
        ways,
        bytes,
        record_bytes: record_bytes as usize,
        time: shared::seconds(values, "run-time")?,
        effort: Effort {
            rounds: values.count("probe-rounds") as usize,
            part: shared::seconds(values, "probe-time")?,
            ..Effort::default()
        },
        policy: values.parsed("policy")?,
        seed: setting.seed,
        areas: Vec::new(),
        fresh: None,
    }))
}

struct Slices {
    parameters: Vec<Parameter>,
    dirs: [PathBuf; 2],
    folders: Vec<Folder>,
    /// What is done, and on how many areas.
    ways: Vec<(&'static str, usize)>,
    bytes: u64,
    record_bytes: usize,
    time: Duration,
    effort: Effort,
    policy: Policy,
    seed: u64,
    /// One area, and two, that are there and full.
    areas: Vec<Area>,
    /// What the next run writes anew.
    fresh: Option<Area>,
}

impl Slices {
    fn paths(&self, name: &str, areas: usize) -> Vec<PathBuf> {
        let path = |number: usize| self.folders[number].path(&format!("{name}.{areas}.{number}"));
        (0..areas).map(path).collect()
    }

    fn job(&self, test: &str, number: u64) -> Job {
        let (order, direction) = match test {
            "write" | "rewrite" => (Order::Sequential, Direction::Write),
            "randread" => (Order::Random, Direction::Read),
            "randwrite" => (Order::Random, Direction::Write),
            "stride" => (Order::Strided(STRIDE), Direction::Read),
            _ => (Order::Sequential, Direction::Read),
        };
        let is_write = direction == Direction::Write;
        let pattern = Pattern { order, direction, block_bytes: self.record_bytes };
        Job {
            requests: Some(self.bytes / self.record_bytes as u64),
            time: Some(self.time),
            syncing: if is_write { Syncing::AT_END } else { Syncing::NEVER },
            seed: self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..Job::new(pattern)
        }
    }

    /// Of two areas, what each keeps of its rate beside the other.
    fn spindle(&self) -> Result<Outcome> {
        let [one, other] = self.paths("full", 2).try_into().expect("two areas have two files");
        let probed = probe::probe([&one, &other], self.effort, &AtomicBool::new(false))?;
        let verdict = match probed.verdict {
            Verdict::Apart => 1.0,
            Verdict::Unclear => 0.0,
            Verdict::Shared => -1.0,
        };
        let [first, second] = probed.alone_reads_per_second;
        let bytes = (first + second) * self.effort.part.as_secs_f64() * self.effort.rounds as f64;
        let bytes = (bytes * 2.0) as u64 * self.effort.read_bytes as u64;
        Ok(Outcome {
            value: probed.kept,
            read_bytes: bytes,
            figures: BTreeMap::from([
                ("first_reads_per_s".to_owned(), first),
                ("second_reads_per_s".to_owned(), second),
                ("apart".to_owned(), verdict),
                ("has_no_arm".to_owned(), f64::from(u8::from(probed.has_no_arm))),
                ("same_disk".to_owned(), f64::from(u8::from(probed.same_disk.is_some()))),
            ]),
            ..Outcome::default()
        })
    }
}

impl Plan for Slices {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn heads(&self) -> Vec<Head> {
        let head = |(test, areas): &(&'static str, usize)| {
            let is_spindle = *test == SPINDLE;
            let area = if *areas == 1 { "one" } else { "two" };
            let kept =
                Metric { name: "kept".to_owned(), unit: "kept".to_owned(), better: Better::Higher };
            Head {
                name: if is_spindle { SPINDLE.to_owned() } else { format!("{test} {area}") },
                group: (*test).to_owned(),
                about: format!("{test} on {areas} of the areas"),
                parameters: vec![Parameter::new("test", test), Parameter::new("areas", area)],
                metric: if is_spindle { kept } else { Metric::throughput() },
            }
        };
        self.ways.iter().map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        let is_one = self.dirs[0] == self.dirs[1];
        self.dirs[..if is_one { 1 } else { 2 }].to_vec()
    }

    fn notes(&self) -> Vec<String> {
        let note =
            "both areas are in one directory, where the file system puts them: name two for others";
        (self.places().len() == 1).then(|| note.to_owned()).into_iter().collect()
    }

    fn intents(&self) -> Vec<String> {
        let numbered = self.dirs.iter().enumerate();
        let intent = |(number, dir): (usize, &PathBuf)| {
            let bytes = if number == 0 { 3 * self.bytes } else { self.bytes };
            shared::intent(dir, CASE.name, bytes)
        };
        numbered.map(intent).collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        for (number, dir) in self.dirs.iter().enumerate() {
            // Full ones and new ones: the one area in the first directory, half of the two in each.
            let bytes = if number == 0 { 3 * self.bytes } else { self.bytes };
            let below = format!("{}{number}", CASE.name);
            self.folders.push(Folder::make(dir, &below, bytes)?);
        }
        for areas in [1, 2] {
            let (paths, content) = (self.paths("full", areas), Content::Noise);
            let bytes = self.bytes / areas as u64;
            self.areas.push(Area::make(&paths, bytes, content, self.policy, live)?.striped());
        }
        Ok(())
    }

    fn ready(&mut self, variant: usize, live: &Live) -> Result<()> {
        let (test, areas) = self.ways[variant];
        self.fresh = None;
        for areas in [1, 2] {
            shared::remove_files(&self.paths("new", areas))?;
        }
        match test {
            "write" => {
                let bytes = self.bytes / areas as u64;
                let paths = self.paths("new", areas);
                let area = Area::open(&paths, bytes, Access::Create, self.policy)?;
                self.fresh = Some(area.striped());
                Ok(())
            }
            // Whatever was before: what is read is what was read just now.
            "reread" => io::run(&self.job("read", 0), &self.areas[areas - 1], live).map(drop),
            _ => self.areas.iter().try_for_each(Area::drop_cache),
        }
    }

    fn run(&mut self, variant: usize, number: u64, live: &Live) -> Result<Outcome> {
        let (test, areas) = self.ways[variant];
        if test == SPINDLE {
            return self.spindle();
        }
        let area = self.fresh.as_ref().unwrap_or(&self.areas[areas - 1]);
        let job = self.job(test, number);
        let done = io::run(&job, area, live)?;
        Ok(shared::outcome(&done, &job, self.policy, area.is_direct()))
    }

    fn clean(&mut self) -> Result<()> {
        self.fresh = None;
        self.areas.clear();
        self.folders.drain(..).map(|folder| folder.remove()).fold(Ok(()), Result::and)
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let mut rows = vec![["test", "one area", "two areas", "two / one"].map(str::to_owned).to_vec()];
    for test in TESTS.iter().filter(|it| **it != SPINDLE) {
        let of = |area: &str| {
            let found = results.variant(&format!("{test} {area}"));
            found.and_then(|it| grid::figure(it, grid::value))
        };
        let (one, two) = (of("one"), of("two"));
        if let Some((one, two)) = one.zip(two) {
            let ratio = format!("{:.2}", two.value / one.value);
            rows.push(vec![
                (*test).to_owned(),
                grid::cell(Some(one)),
                grid::cell(Some(two)),
                ratio,
            ]);
        }
    }
    let mut tables = Vec::new();
    if rows.len() > 1 {
        tables.push(Table::from_rows("MB/s on one area and on two", "", rows));
    }
    tables.extend(results.variant(SPINDLE).filter(|it| !it.runs.is_empty()).map(spindle_table));
    tables
}

fn spindle_table(variant: &crate::result::Variant) -> Table {
    let of = |name: &str| grid::figure(variant, grid::named(name));
    let is = |name: &str| of(name).is_some_and(|it| it.value > 0.5);
    let verdict = match of("apart").map_or(0.0, |it| it.value) {
        it if it > 0.5 => "they do not wait for each other",
        it if it < -0.5 => "they share what serves them",
        _ => "unclear",
    };
    let why = match (is("same_disk"), is("has_no_arm")) {
        (true, true) => "The system says that both are on one disk, which moves no arm.",
        (true, false) => "The system says that both are on one disk.",
        (false, true) => "No arm moved: this is a cache, or a disk without one.",
        (false, false) => "",
    };
    let head = ["first, reads/s", "second, reads/s", "kept beside the other", "verdict"];
    let row = vec![
        grid::cell(of("first_reads_per_s")),
        grid::cell(of("second_reads_per_s")),
        grid::cell(grid::figure(variant, grid::value)),
        verdict.to_owned(),
    ];
    let rows = vec![head.map(str::to_owned).to_vec(), row];
    Table::from_rows("Do the areas share a spindle?", why, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 4] = [
        ("total-size", "1M"),
        ("record-size", "32K"),
        ("probe-rounds", "1"),
        ("probe-time", "0.005"),
    ];

    #[test]
    fn every_test_meets_as_many_bytes_on_one_area_as_on_two() {
        let dir = tempfile::tempdir().unwrap();
        let results = measured(&CASE, dir.path(), &SMALL);
        assert_eq!(results.variants.len(), 15);
        for variant in results.variants.iter().filter(|it| it.name != SPINDLE) {
            let run = &variant.runs[0];
            assert_eq!(run.read_bytes + run.written_bytes, 1 << 20, "{}", variant.name);
        }
        let [panel, spindle] = &tables(&results)[..] else { panic!("two tables") };
        assert_eq!(panel.to_json()["rows"].as_array().unwrap().len(), 7);
        assert_eq!(spindle.to_json()["rows"][0]["verdict"], "unclear", "one round says nothing");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_directories_have_an_area_each_and_three_are_refused() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths: Vec<PathBuf> = dirs.iter().map(|it| it.path().to_path_buf()).collect();
        let setting = Setting { dirs: paths.clone(), ..Setting::default() };
        let values = Values::read(OPTIONS, &SMALL).unwrap();
        let mut made = plan(&setting, &values).unwrap();
        made.prepare(&Live::new(Default::default())).unwrap();
        assert!(dirs.iter().all(|it| std::fs::read_dir(it.path()).unwrap().count() == 1));
        made.clean().unwrap();
        let setting = Setting { dirs: [paths.clone(), paths].concat(), ..Setting::default() };
        assert_eq!(plan(&setting, &values).err().unwrap().kind(), Kind::Usage);
    }
}
