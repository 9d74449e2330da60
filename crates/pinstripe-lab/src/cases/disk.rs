//! The plan of all cases that go over files or a device: `fileio`, `iozone` and `streams` are presets
//! of it, each with options, modes and tables of its own.

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

/// One way to go over files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mode {
    /// The name.
    pub name: &'static str,
    /// The purpose, in a line.
    pub about: &'static str,
    /// The way to move bytes.
    pub work: Work,
    /// The state of the files when it begins.
    pub initial: InitialState,
    /// It ends when it has made as many requests as there are blocks.
    pub is_once: bool,
}

/// The way to move bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// By requests, in an order.
    Requests(Order, Direction),
    /// As programs do that write by a buffer in the C library: fwrite(3).
    StreamWrite,
    /// As they read: fread(3).
    StreamRead,
}

/// The state that a mode finds when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// Nothing: it makes files.
    Nothing,
    /// Files full of content; of the page cache what `--cache` says.
    Files,
    /// Files that the page cache has.
    CachedFiles,
}

impl Work {
    /// In which order bytes are met, and where they go.
    pub(super) fn course(self) -> (Order, Direction) {
        match self {
            Work::Requests(order, direction) => (order, direction),
            Work::StreamWrite => (Order::Sequential, Direction::Write),
            Work::StreamRead => (Order::Sequential, Direction::Read),
        }
    }

    /// Transfers the bytes: requests on an area, or streams over spans of `span_bytes`. Also
    /// returns whether all of them bypassed the page cache.
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
                Ok((io::run(job, area, live)?, area.is_direct()))
            }
        }
    }

    fn only_writes(self) -> bool {
        matches!(self, Work::Requests(_, Direction::Write) | Work::StreamWrite)
    }

    /// Whether it writes anything.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Work::Requests(_, Direction::Read) | Work::StreamRead)
    }
}

/// The threads or programs that make the requests of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Those of the lab.
    Us,
    /// fio(1).
    Fio,
}

/// The options of a case, read.
pub(crate) struct DiskOptions {
    /// The case's name.
    pub case: &'static str,
    /// Every parameter.
    pub parameters: Vec<Parameter>,
    /// Notes on all results.
    pub notes: Vec<String>,
    /// Directories, or one device.
    pub places: Vec<PathBuf>,
    /// Whether it is one.
    pub is_device: bool,
    /// The modes to run, in this order.
    pub modes: Vec<Mode>,
    /// The option that chooses modes.
    pub chosen_by: &'static str,
    /// Files in each directory; 1 on a device.
    pub files: u64,
    /// Bytes of each, a multiple of the block's.
    pub file_bytes: u64,
    /// The requests, without their order, direction and number.
    pub job: Job,
    /// The way to open files.
    pub policy: Policy,
    /// Whether reads begin with an empty cache.
    pub drops_cache: bool,
    /// Whether fio does the same in turns with the lab.
    pub checks: bool,
}

/// A variant, ready to be run.
pub(crate) struct DiskVariant {
    /// The name and group; its place is the number of a directory or device.
    pub spec: VariantSpec,
    /// The way to go over files.
    pub mode: Mode,
    /// The program that makes the requests.
    pub by: By,
    /// Requests; each run has a seed of its own.
    pub job: Job,
    /// The way to open files.
    pub policy: Policy,
    /// The number of files that each thread writes, a block of each in turn; `None` if all threads
    /// write one file after the other.
    pub in_turn: Option<usize>,
}

impl DiskOptions {
    /// Reads the options that presets share: modes, parameters and notes are the preset's own. `sizes`:
    /// files in each directory, bytes of all of them, and bytes of a block.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for what makes no sense together.
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

    /// The job of a mode; the number makes chance differ from run to run.
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
