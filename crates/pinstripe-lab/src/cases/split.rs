//! One huge source over many outputs, by codec and way of writing; all outputs read again afterwards.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pinstripe::codec::Codec;
use pinstripe::device::{Engine, Policy};
use pinstripe::error::{Error, Kind, Result};
use pinstripe::fault;
use pinstripe::monitor::{Counter, Monitor};
use pinstripe::ops::{join, split};
use pinstripe::pipeline::limits::MEMORY_DEFAULT_BYTES;
use pinstripe::pipeline::split::Choice;
use pinstripe::source::bulk::{Bulk, Extent, Fake, Identity};

use super::shared::{self, Folder};
use super::{Case, CaseOption, Form, Setting, Values, grid};
use crate::result::{Metric, Note, Parameter, Results};
use crate::run::{Head, Live, Outcome, Plan};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "split",
    about: "Split one huge source over 1 to 8 outputs, by codec and policy, and read them again",
    help: "\
A source that is made up in memory is split as 'pinstripe split' does, over files that take turns in \
the directories: with 8 outputs and two --dir there are four in each. A figure is bytes of the source in \
the time until all outputs were durable. After each run every output is read and held against its \
checksums; this is not measured.

'random' is bytes that no codec makes smaller: what a codec costs where it does not help. 'dump' is like \
the memory of a machine: 40 % pages of zeros, the others half random bytes and half words.",
    examples: "\
  pinstripe lab run split --dir /mnt/a --dir /mnt/b --dir /mnt/c --dir /mnt/d
  pinstripe lab run split --data dump --codecs raw,lz4,auto --outputs 4 --size 4G
  pinstripe lab run split --policies buffered,direct --codecs raw",
    options: OPTIONS,
    plan,
    tables,
};

const POLICIES: &[&str] = &["buffered", "dsync", "sync", "direct", "direct+dsync", "uncached"];
const DATA: &[&str] = &["random", "dump"];

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "outputs",
        value: "N,...",
        form: Form::Counts,
        default: Some("1,2,4,8"),
        about: "How many outputs",
        more: "The first is what others are judged by.",
    },
    CaseOption {
        name: "codecs",
        value: "NAME,...",
        form: Form::Text,
        default: Some("raw,lzo,snappy,lz4,zstd:1"),
        about: "How to compress: auto, raw, lzo, snappy, lz4, zstd or zstd:LEVEL",
        more: "",
    },
    CaseOption {
        name: "policies",
        value: "NAME,...",
        form: Form::SomeOf(POLICIES),
        default: Some("direct"),
        about: "How bytes go: buffered, dsync, sync, direct, direct+dsync, uncached",
        more: "",
    },
    CaseOption {
        name: "data",
        value: "NAME",
        form: Form::OneOf(DATA),
        default: Some("dump"),
        about: "What is split: random or dump",
        more: "",
    },
    CaseOption {
        name: "size",
        value: "SIZE",
        form: Form::Size,
        default: Some("1G"),
        about: "Bytes of the source",
        more: "",
    },
];

/// A source that ends with an error when the case is asked to stop.
struct Stopped {
    source: Fake,
    stop: Arc<AtomicBool>,
}

impl Bulk for Stopped {
    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn place(&self) -> &Path {
        self.source.place()
    }

    fn identity(&self) -> Option<Identity> {
        self.source.identity()
    }

    fn extent(&self, at: u64) -> Result<Extent> {
        self.source.extent(at)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Interrupted, "stopped before the source was split")),
            false => self.source.read_at(offset, buffer),
        }
    }

    fn expect(&self, range: Range<u64>) {
        self.source.expect(range);
    }
}

struct Way {
    outputs: usize,
    codec: String,
    choice: Choice,
    policy: Policy,
}

fn plan(setting: &Setting, values: &Values) -> Result<Box<dyn Plan>> {
    if let Some(device) = &setting.device {
        return Err(Error::new(Kind::Usage, "this case works in directories").at(device));
    }
    let mut ways = Vec::new();
    for policy in values.words("policies") {
        for codec in values.words("codecs") {
            let choice = match codec {
                "auto" => Choice::Auto,
                name => Choice::Fixed(name.parse::<Codec>()?),
            };
            for outputs in values.counts("outputs") {
                let (outputs, policy) = (outputs as usize, policy.parse()?);
                ways.push(Way { outputs, codec: codec.to_owned(), choice, policy });
            }
        }
    }
    if ways.iter().any(|it| it.outputs == 0) {
        return Err(Error::new(Kind::Usage, "a split has one output at least"));
    }
    let bytes = values.size("size");
    let source = match values.text("data") {
        Some("dump") => format!("fake:{bytes},seed={},zero=40%,entropy=0.5", setting.seed),
        _ => format!("fake:{bytes},seed={}", setting.seed),
    };
    Ok(Box::new(Split {
        parameters: shared::parameters(OPTIONS, values),
        dirs: setting.dirs.clone(),
        folders: Vec::new(),
        ways,
        source: Fake::new(source.parse()?)?,
        bytes,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
    }))
}

struct Split {
    parameters: Vec<Parameter>,
    dirs: Vec<PathBuf>,
    folders: Vec<Folder>,
    ways: Vec<Way>,
    source: Fake,
    bytes: u64,
    workers: usize,
}

impl Split {
    fn outputs(&self, count: usize) -> Vec<PathBuf> {
        let folder = |number: usize| &self.folders[number % self.folders.len()];
        (0..count).map(|number| folder(number).path(&format!("out.{number}"))).collect()
    }

    fn options(&self, way: &Way) -> split::Options {
        split::Options {
            outputs: self.outputs(way.outputs),
            spread: None,
            parity: 0,
            block_bytes: 64 << 10,
            strip_bytes: 256 << 10,
            codec: way.choice,
            policy: way.policy,
            engine: Engine::Auto,
            depth: 4,
            workers: self.workers,
            memory_bytes: MEMORY_DEFAULT_BYTES,
            force: false,
            resume: false,
            now_seconds: 0,
            faults: None,
        }
    }
}

impl Plan for Split {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn heads(&self) -> Vec<Head> {
        let policies = self.parameters.iter().find(|it| it.name == "policies");
        let has_policies = policies.is_some_and(|it| it.value.contains(','));
        let head = |way: &Way| {
            let Way { outputs, codec, policy, .. } = way;
            let group = match has_policies {
                true => format!("{codec}, {policy}"),
                false => codec.clone(),
            };
            Head {
                name: format!("{group}, {outputs}"),
                about: format!("{outputs} outputs, codec {codec}, written {policy}"),
                parameters: vec![
                    Parameter::new("outputs", outputs),
                    Parameter::new("codec", codec),
                    Parameter::new("policy", policy),
                    Parameter::new("way", &group),
                ],
                group,
                metric: Metric::throughput(),
            }
        };
        self.ways.iter().map(head).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.dirs.clone()
    }

    fn notes(&self) -> Vec<String> {
        vec!["every output was read again after each run, and was sound".to_owned()]
    }

    fn intents(&self) -> Vec<String> {
        let of_each = self.bytes / self.dirs.len().max(1) as u64;
        self.dirs.iter().map(|dir| shared::intent(dir, CASE.name, of_each)).collect()
    }

    fn prepare(&mut self, _: &Live) -> Result<()> {
        // As much again for what stands beside the bytes.
        let bytes = (self.bytes + self.bytes / 16) / self.dirs.len().max(1) as u64;
        for dir in &self.dirs {
            self.folders.push(Folder::make(dir, CASE.name, bytes)?);
        }
        Ok(())
    }

    fn ready(&mut self, _: usize, _: &Live) -> Result<()> {
        let most = self.ways.iter().map(|it| it.outputs).max().unwrap_or(0);
        shared::remove_files(&self.outputs(most))
    }

    fn run(&mut self, variant: usize, _: u64, live: &Live) -> Result<Outcome> {
        let way = &self.ways[variant];
        let options = self.options(way);
        let open = || -> Result<Box<dyn Bulk>> {
            let source = Fake::new(*self.source.spec())?;
            Ok(Box::new(Stopped { source, stop: Arc::clone(live.stop()) }))
        };
        let began = Instant::now();
        let done =
            live.counting(Counter::ReadBytes, |monitor| split::run(&open, &options, monitor))?;
        let seconds = began.elapsed().as_secs_f64();
        let written: u64 = done.outputs.iter().map(|it| it.written_bytes).sum();
        let is_refused = done.outputs.iter().any(|it| it.fallback.is_some());
        Ok(Outcome {
            value: self.bytes as f64 / seconds.max(1e-9) / 1e6,
            written_bytes: self.bytes,
            syncs: way.outputs as u64,
            figures: BTreeMap::from([(
                "written_of_each".to_owned(),
                written as f64 / self.bytes.max(1) as f64,
            )]),
            notes: (is_refused && way.policy.is_direct())
                .then_some(Note::NotDirect)
                .into_iter()
                .collect(),
            ..Outcome::default()
        })
    }

    fn check(&mut self, variant: usize, _: &Live) -> Result<()> {
        let paths = self.outputs(self.ways[variant].outputs);
        let monitor = Monitor::default();
        let reader = join::open(&paths, &fault::Plan::default(), &monitor)?;
        let found = join::verify(&reader, self.workers, &monitor)?;
        let joined = &found.joined;
        if joined.lost.is_empty() && joined.changed.is_empty() && found.repairable == 0 {
            return Ok(());
        }
        let place: &Path = &paths[0];
        Err(Error::new(Kind::Corrupt, "what was written is not what is read").at(place))
    }

    fn clean(&mut self) -> Result<()> {
        self.folders.drain(..).map(|folder| folder.remove()).fold(Ok(()), Result::and)
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let ways = ["way", "outputs"];
    let note = "Of each byte of the source, with heads and indexes.";
    vec![
        grid::grid(results, "MB/s by codec and outputs", "", ways, grid::value),
        grid::grid(results, "Bytes written", note, ways, grid::named("written_of_each")),
        grid::grid(results, "CPU s/GB", "", ways, |run| run.cpu_s_per_gb()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::tests::measured;

    const SMALL: [(&str, &str); 3] =
        [("size", "3M"), ("outputs", "1,3"), ("codecs", "raw,lz4,auto")];

    #[test]
    fn every_codec_and_number_of_outputs_is_measured_and_verified() {
        let dir = tempfile::tempdir().unwrap();
        let small = [&SMALL[..], &[("data", "dump"), ("policies", "buffered,direct")]].concat();
        let results = measured(&CASE, dir.path(), &small);
        assert_eq!(results.variants.len(), 12);
        let of = |name: &str| results.variant(name).unwrap().runs[0].figures["written_of_each"];
        assert!(of("lz4, buffered, 1") < 0.9 * of("raw, buffered, 1"));
        let table = tables(&results)[0].to_json();
        assert_eq!(table["columns"], serde_json::json!(["way", "outputs 1", "outputs 3"]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_output_that_was_damaged_ends_the_case() {
        let dir = tempfile::tempdir().unwrap();
        let setting = Setting { dirs: vec![dir.path().to_path_buf()], ..Setting::default() };
        let values = Values::read(OPTIONS, &SMALL).unwrap();
        let mut plan = plan(&setting, &values).unwrap();
        let live = Live::new(Default::default());
        plan.prepare(&live).unwrap();
        plan.ready(0, &live).unwrap();
        plan.run(0, 0, &live).unwrap();
        plan.check(0, &live).unwrap();
        let folder = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let path = folder.join("out.0");
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(plan.check(0, &live).is_err());
        plan.clean().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn codecs_that_are_none_and_no_outputs_are_refused() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        for bad in [("codecs", "raw,zip"), ("outputs", "0,1")] {
            let values = Values::read(OPTIONS, &[bad]).unwrap();
            assert!(plan(&setting, &values).is_err(), "{bad:?}");
        }
    }
}
