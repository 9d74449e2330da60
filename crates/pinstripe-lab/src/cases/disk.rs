//! The plan of all cases that read or write files or a device: `fileio`, `iozone` and `streams` are
//! presets of this plan, each with its own options, modes and tables.

mod plan;

use std::path::PathBuf;

use pinstripe_base::error::Result;
use pinstripe_base::random;
use pinstripe_io::device::Policy;

use super::shared;
use super::stream::{self, Span};
use super::{Setting, Values};
use crate::io::{self, Area, Direction, Done, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Parameter};
use crate::run::{Live, PlaceNo, VariantSpec};
pub(crate) use plan::DiskPlan;

/// One way to read or write files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mode {
    /// The name.
    pub name: &'static str,
    /// The purpose of the mode, in one line.
    pub about: &'static str,
    /// How the mode moves bytes.
    pub work: Work,
    /// The state of the files when the mode begins.
    pub initial: InitialState,
    /// Whether the mode ends after as many requests as there are blocks.
    pub is_once: bool,
}

/// How the mode moves bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// Requests in an order and a direction.
    Requests(Order, Direction),
    /// Writes as programs do that use the buffer of the C library: fwrite(3).
    StreamWrite,
    /// Reads as programs do that use the buffer of the C library: fread(3).
    StreamRead,
}

/// The state that a mode finds when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// The mode needs no files, because it creates them.
    Nothing,
    /// The mode needs files full of content; `--cache` determines what the page cache holds.
    Files,
    /// The mode needs files that are in the page cache.
    CachedFiles,
}

impl Work {
    /// The order of the accesses, and their direction.
    pub(super) fn course(self) -> (Order, Direction) {
        match self {
            Work::Requests(order, direction) => (order, direction),
            Work::StreamWrite => (Order::Sequential, Direction::Write),
            Work::StreamRead => (Order::Sequential, Direction::Read),
        }
    }

    /// Transfers the bytes: by requests on an area, or by streams over spans of `span_bytes`. Also
    /// returns whether all of the transfers bypassed the page cache.
    pub(super) fn run<'a>(
        self,
        job: &Job,
        (spans, span_bytes): (&[Span], u64),
        area: impl FnOnce() -> &'a Area,
        live: &Live,
    ) -> Result<(Done, bool)> {
        match self {
            Work::StreamWrite => Ok((stream::write(job, spans, span_bytes, live)?, false)),
            Work::StreamRead => Ok((stream::read(job, spans, span_bytes, live)?, false)),
            Work::Requests(..) => {
                let area = area();
                Ok((io::run(job, area, live)?, area.is_direct(job.pattern.block_bytes)))
            }
        }
    }

    fn only_writes(self) -> bool {
        matches!(self, Work::Requests(_, Direction::Write) | Work::StreamWrite)
    }

    /// Whether the mode writes anything.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Work::Requests(_, Direction::Read) | Work::StreamRead)
    }
}

/// The threads or programs that make the requests of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The threads of the lab.
    Us,
    /// fio(1).
    Fio,
}

/// The options of a case, parsed.
pub(crate) struct DiskOptions {
    /// The case's name.
    pub case: &'static str,
    /// Every parameter.
    pub parameters: Vec<Parameter>,
    /// Notes on all results.
    pub notes: Vec<String>,
    /// The directories to measure, or one device.
    pub places: Vec<PathBuf>,
    /// Whether the place is a device.
    pub is_device: bool,
    /// The modes to run, in this order.
    pub modes: Vec<Mode>,
    /// The option that chooses modes.
    pub chosen_by: &'static str,
    /// Files in each directory; 1 on a device.
    pub files: u64,
    /// Bytes of each file, a multiple of the block size.
    pub file_bytes: u64,
    /// The job without its order, direction and number of requests.
    pub job: Job,
    /// How the files are opened.
    pub policy: Policy,
    /// Whether reads begin with an empty page cache.
    pub drops_cache: bool,
    /// Whether fio measures the same in turn with the lab.
    pub checks: bool,
}

/// A variant, ready to be run.
pub(crate) struct DiskVariant {
    /// The name and group of the variant; its place is the number of a directory or device.
    pub spec: VariantSpec,
    /// How the variant reads or writes files.
    pub mode: Mode,
    /// The program that makes the requests.
    pub by: By,
    /// The requests of the variant; each run has its own seed.
    pub job: Job,
    /// How the files are opened.
    pub policy: Policy,
    /// The number of files that each thread writes in turn, block by block; `None` if all threads
    /// write one file after the other.
    pub in_turn: Option<usize>,
}

impl DiskOptions {
    /// Reads the options that presets share; modes, parameters and notes are supplied by the
    /// preset. `sizes` contains the number of files in each directory, the total bytes of all
    /// files, and the bytes of a block.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for options that contradict each other.
    pub fn read(
        (case, chosen_by): (&'static str, &'static str),
        (setting, values): (&Setting, &Values),
        (files, bytes, block_bytes): (u64, u64, u64),
        syncing: Syncing,
    ) -> Result<DiskOptions> {
        let (places, is_device) = shared::places(setting);
        let pattern = Pattern {
            order: Order::Sequential,
            direction: Direction::Read,
            block_bytes: block_bytes as usize,
        };
        Ok(DiskOptions {
            case,
            parameters: Vec::new(),
            notes: Vec::new(),
            places,
            is_device,
            modes: Vec::new(),
            chosen_by,
            files,
            file_bytes: shared::file_bytes(bytes, files, block_bytes)?,
            job: shared::job(setting, values, pattern, syncing)?,
            policy: values.parsed(shared::POLICY.name)?,
            drops_cache: values.text(shared::CACHE.name) == Some("drop"),
            checks: values.has(shared::CROSS_CHECK.name),
        })
    }

    /// The variant of a mode at a place.
    fn variant(&self, mode: &Mode, number: usize, by: By) -> DiskVariant {
        let path = self.places[number].to_string_lossy().into_owned();
        let name = match (by, self.places.len()) {
            (By::Fio, _) => format!("{} by fio", mode.name),
            (By::Us, 1) => mode.name.to_owned(),
            (By::Us, _) => format!("{} {path}", mode.name),
        };
        let place = if self.is_device { "device" } else { "dir" };
        let mut parameters =
            vec![Parameter::new(self.chosen_by, mode.name), Parameter::new(place, path)];
        if by == By::Fio {
            parameters.push(Parameter::new(shared::CROSS_CHECK.name, "fio"));
        }
        let spec = VariantSpec {
            name,
            group: mode.name.to_owned(),
            about: mode.about.to_owned(),
            parameters,
            metric: Metric::throughput(),
            place: PlaceNo(number),
        };
        let (job, policy) = (self.job(mode, 0), self.policy);
        DiskVariant { spec, mode: mode.clone(), by, job, policy, in_turn: None }
    }

    /// The job of a mode; `number` makes random choices differ from run to run.
    pub fn job(&self, mode: &Mode, number: u64) -> Job {
        let job = &self.job;
        let (order, direction) = mode.work.course();
        let pattern = Pattern { order, direction, ..job.pattern };
        let blocks = self.file_bytes / pattern.block_bytes as u64 * self.files;
        Job {
            pattern,
            requests: mode.is_once.then_some(blocks),
            syncing: if mode.work.writes() { job.syncing } else { Syncing::NEVER },
            seed: random::of_run(job.seed, number),
            ..job.clone()
        }
    }
}
