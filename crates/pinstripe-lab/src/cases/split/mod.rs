//! Splits one huge source over many outputs, by codec and way of writing; all outputs are read back
//! afterwards.

mod sample;
mod stopped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pinstripe::MEMORY_DEFAULT_BYTES;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::device::{Access, Device, Engine, FileDevice, Policy};
use pinstripe_io::fault;
use pinstripe_split::{
    ALIGN_BYTES, ByteSource, CodecChoice, Fake, SplitOptions, open_outputs, split, verify_outputs,
};
use pinstripe_stripe::Codec;

use self::sample::SampleSource;
use self::stopped::Stopped;
use super::shared::{self, Folder};
use super::{Again, Case, CaseOption, Setting, ValueForm, Values, grid};
use crate::io;
use crate::result::{Measured, Metric, Note, Parameter, Results, Run};
use crate::run::{CountedUnit, Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::table::Table;

/// The case.
pub static CASE: Case = Case {
    name: "split",
    about: "Split one huge source into 1 to 8 outputs, with each codec and write policy, and \
            verify the outputs",
    help: "\
A source that is generated in memory is split in the same way as by 'pinstripe split'. The outputs are \
files, which are distributed over the directories of --dir in turn; for example, each of two directories \
gets 4 of 8 outputs. The rate is the number of bytes of the source, divided by the time until all outputs \
are durable. After each run, every output is read and its checksums are verified; the time for this is not \
measured.

The data 'random' cannot be compressed, and shows the cost of a codec that has no benefit. The data 'dump' \
resembles the memory of a machine: 40 % of its pages are zeros, and each other page consists of half random \
bytes and half words. With --sample, the source is your own data: up to 256 MiB of the data are kept in \
memory, and repeated until the size of --size is reached.

If --outputs has one value, each codec is compared with the first codec. If --outputs has several values, \
each codec is compared with its own result for the first value.",
    examples: "\
  pinstripe lab run split --dir /mnt/a --dir /mnt/b --dir /mnt/c --dir /mnt/d
  pinstripe lab run split --data dump --codecs raw,lz4,auto --outputs 4 --size 4G
  pinstripe lab run split --sample /srv/dumps --outputs 2 --codecs raw,lz4,zstd:1,zstd:3
  pinstripe lab run split --policies buffered,direct --codecs raw",
    options: OPTIONS,
    plan,
    tables,
    again: Again::BY_NAME,
};

const DATA: &[&str] = &["random", "dump"];

const OPTIONS: &[CaseOption] = &[
    CaseOption {
        name: "outputs",
        value: "N,...",
        form: ValueForm::Counts,
        default: Some("1,2,4,8"),
        about: "Numbers of outputs to compare",
        more: "The first value is the baseline, with which the other values are compared.",
    },
    CaseOption {
        name: "codecs",
        value: "NAME,...",
        form: ValueForm::Text,
        default: Some("raw,lzo,snappy,lz4,zstd:1"),
        about: "Codecs to compare: auto, raw (no compression), lzo, snappy, lz4, zstd or \
                zstd:LEVEL",
        more: "",
    },
    CaseOption { default: Some("direct"), more: "", ..shared::POLICIES },
    CaseOption {
        name: "data",
        value: "NAME",
        form: ValueForm::OneOf(DATA),
        default: Some("dump"),
        about: "Content of the source: random or dump",
        more: "",
    },
    CaseOption {
        name: "sample",
        value: "PATH",
        form: ValueForm::Path,
        default: None,
        about: "Split a sample of this file, or of all files below this directory, instead of \
                generated data",
        more: "The sample consists of pieces of 1 MiB, spread evenly over the data.",
    },
    CaseOption {
        name: "size",
        value: "SIZE",
        form: ValueForm::Size,
        default: Some("1G"),
        about: "Size of the source",
        more: "",
    },
];

struct SplitVariant {
    outputs: usize,
    codec: String,
    choice: CodecChoice,
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
                "auto" => CodecChoice::Auto,
                name => CodecChoice::Fixed(fixed(name)?),
            };
            for outputs in values.counts("outputs") {
                let (outputs, policy) = (outputs as usize, policy.parse()?);
                ways.push(SplitVariant { outputs, codec: codec.to_owned(), choice, policy });
            }
        }
    }
    if ways.iter().any(|it| it.outputs == 0) {
        return Err(Error::new(Kind::Usage, "a split needs at least one output"));
    }
    let bytes = values.size("size");
    if bytes == 0 {
        return Err(Error::new(Kind::Usage, "a source of 0 bytes has nothing to measure")
            .advice("--size must be more than 0 bytes"));
    }
    let source = match values.text("data") {
        Some("dump") => format!("fake:{bytes},seed={},zero=40%,entropy=0.5", setting.seed),
        _ => format!("fake:{bytes},seed={}", setting.seed),
    };
    let sample = values.text("sample").map(|text| {
        let failed = |error| Error::io("cannot be read", text, error);
        std::fs::canonicalize(text).map_err(failed)
    });
    let sample = sample.transpose()?;
    Ok(Box::new(Split {
        parameters: shared::parameters(OPTIONS, values),
        dirs: setting.dirs.clone(),
        folders: Vec::new(),
        ways,
        source: SplitSource::MadeUp(Fake::new(source.parse()?)?),
        sample,
        is_by_codec: values.counts("outputs").len() == 1,
        bytes,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
    }))
}

/// Returns the codec with this name; if the name is unknown, the error lists the choice by content
/// as well.
fn fixed(name: &str) -> Result<Codec> {
    name.parse().map_err(|error: Error| match error.advice_text() {
        Some(names) if names.ends_with(Codec::NAMES) => {
            Error::new(error.kind(), error.what()).advice(format!("{names}, auto"))
        }
        _ => error,
    })
}

/// The source of the split.
enum SplitSource {
    MadeUp(Fake),
    Own(SampleSource),
}

struct Split {
    parameters: Vec<Parameter>,
    dirs: Vec<PathBuf>,
    folders: Vec<Folder>,
    ways: Vec<SplitVariant>,
    source: SplitSource,
    /// Where the bytes of the source are taken from before the first run; `None` if they are
    /// generated.
    sample: Option<PathBuf>,
    /// Whether codecs are compared with each other, which is so if there is only one number of
    /// outputs.
    is_by_codec: bool,
    bytes: u64,
    workers: usize,
}

impl Split {
    fn outputs(&self, count: usize) -> Vec<PathBuf> {
        let folder = |number: usize| &self.folders[number % self.folders.len()];
        (0..count).map(|number| folder(number).path(&format!("out.{number}"))).collect()
    }

    /// Bytes in each directory, plus a sixteenth for data that a split adds.
    fn bytes_of_dir(&self) -> u64 {
        (self.bytes + self.bytes / 16) / self.dirs.len().max(1) as u64
    }

    fn options(&self, way: &SplitVariant) -> SplitOptions {
        SplitOptions {
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
            remote: None,
        }
    }
}

/// Whether what a split writes, which it pads to [`ALIGN_BYTES`], can bypass the page cache
/// completely.
fn suits_direct(outputs: &[PathBuf], policy: Policy) -> Result<bool> {
    let mut suits = true;
    for path in outputs {
        let caps = FileDevice::open(path, Access::Read, policy)?.caps();
        suits &= io::suits_direct(&caps, ALIGN_BYTES as usize);
    }
    Ok(suits)
}

impl Plan for Split {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let policies = self.parameters.iter().find(|it| it.name == "policies");
        let has_policies = policies.is_some_and(|it| it.value.contains(','));
        let spec = |way: &SplitVariant| {
            let SplitVariant { outputs, codec, policy, .. } = way;
            let way = match has_policies {
                true => format!("{codec}, {policy}"),
                false => codec.clone(),
            };
            let group = match (self.is_by_codec, has_policies) {
                (true, true) => format!("{outputs} outputs, {policy}"),
                (true, false) => format!("{outputs} outputs"),
                (false, _) => way.clone(),
            };
            VariantSpec {
                name: format!("{way}, {outputs}"),
                about: format!("{outputs} outputs, codec {codec}, written {policy}"),
                parameters: vec![
                    Parameter::new("outputs", outputs),
                    Parameter::new("codec", codec),
                    Parameter::new("policy", policy),
                    Parameter::new("way", way),
                ],
                group,
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        self.ways.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.dirs.clone()
    }

    fn notes(&self) -> Vec<String> {
        vec!["after each run, every output was read and was intact".to_owned()]
    }

    fn intents(&self) -> Vec<String> {
        let of_each = self.bytes / self.dirs.len().max(1) as u64;
        self.dirs.iter().map(|dir| shared::intent(dir, CASE.name, of_each)).collect()
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        self.dirs.iter().map(|dir| (dir.clone(), self.bytes_of_dir())).collect()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        if let Some(place) = &self.sample {
            self.source = SplitSource::Own(SampleSource::take(place, self.bytes, live)?);
        }
        let bytes = self.bytes_of_dir();
        for dir in &self.dirs {
            self.folders.push(Folder::make(dir, CASE.name, bytes)?);
        }
        Ok(())
    }

    fn ready(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        let most = self.ways.iter().map(|it| it.outputs).max().unwrap_or(0);
        shared::remove_files(&self.outputs(most))
    }

    fn run(&mut self, variant: VariantNo, _: u64, live: &Live) -> Result<Outcome> {
        let way = &self.ways[variant.0];
        let options = self.options(way);
        let open = || -> Result<Box<dyn ByteSource>> {
            let source: Box<dyn ByteSource> = match &self.source {
                SplitSource::MadeUp(fake) => Box::new(Fake::new(*fake.spec())?),
                SplitSource::Own(sample) => Box::new(sample.clone()),
            };
            Ok(Box::new(Stopped { source, stop: Arc::clone(live.stop()) }))
        };
        let began = Instant::now();
        let done = live.counting(CountedUnit::Bytes, Counter::ReadBytes, |monitor| {
            split(&open, &options, monitor)
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let written: u64 = done.outputs.iter().map(|it| it.written_bytes).sum();
        let is_refused = done.outputs.iter().any(|it| it.fallback.is_some());
        let is_indirect =
            way.policy.is_direct() && (is_refused || !suits_direct(&options.outputs, way.policy)?);
        Ok(Outcome {
            measured: Measured {
                value: self.bytes as f64 / seconds.max(1e-9) / 1e6,
                written_bytes: self.bytes,
                figures: BTreeMap::from([(
                    "written_of_each".to_owned(),
                    written as f64 / self.bytes.max(1) as f64,
                )]),
                ..Measured::default()
            },
            syncs: way.outputs as u64,
            notes: is_indirect.then_some(Note::NotDirect).into_iter().collect(),
            ..Outcome::default()
        })
    }

    fn check(&mut self, variant: VariantNo, _: &Live) -> Result<()> {
        let paths = self.outputs(self.ways[variant.0].outputs);
        let monitor = Monitor::default();
        let reader = open_outputs(&paths, None, &fault::Plan::default(), &monitor)?;
        let found = verify_outputs(&reader, self.workers, &monitor)?;
        let joined = &found.joined;
        if joined.lost.is_empty() && joined.changed.is_empty() && found.repairable == 0 {
            return Ok(());
        }
        let place: &Path = &paths[0];
        Err(Error::new(Kind::Corrupt, "the bytes read differ from the bytes written").at(place))
    }

    fn clean(&mut self) -> Result<()> {
        self.folders.drain(..).map(|folder| folder.remove()).fold(Ok(()), Result::and)
    }
}

fn tables(results: &Results) -> Vec<Table> {
    let ways = ["way", "outputs"];
    let note =
        "The values are bytes written for each byte of the source, including heads and indexes.";
    let first = grid::different(results, "outputs").first().map_or("1", |it| *it).to_owned();
    let outputs = if first == "1" { "output" } else { "outputs" };
    let than = format!("How many times as fast as with {first} {outputs}");
    // A figure is MB/s, so that 10^12 bytes take 10^6 / MB/s seconds.
    let terabyte = |run: &Run| Some(1e6 / 60.0 / run.measured.value);
    vec![
        grid::grid(results, "MB/s by codec and number of outputs", "", ways, grid::value),
        grid::grid(
            results,
            "Seconds",
            "The time ends when all outputs are durable.",
            ways,
            seconds,
        ),
        grid::times_the_first(results, &than, "", ways, grid::value),
        grid::grid(
            results,
            "Minutes for 1 TB",
            "This is the time for 1 TB at the measured rate.",
            ways,
            terabyte,
        ),
        grid::grid(results, "Bytes written", note, ways, grid::named("written_of_each")),
        grid::grid(results, "CPU s/GB", "", ways, |run| run.cpu_s_per_gb()),
    ]
}

/// The time of a run, computed from its figure.
fn seconds(run: &Run) -> Option<f64> {
    Some(run.measured.written_bytes as f64 / 1e6 / run.measured.value)
}

#[cfg(test)]
mod tests;
