//! A plan of modes on files or a device: what `fileio` and `iozone` are both made of.

use std::path::{Path, PathBuf};

use pinstripe_base::error::Result;
use pinstripe_base::random;
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Policy};

use super::device;
use super::shared::{self, Folder};
use super::stream::{self, Span};
use crate::fio::check;
use crate::io::{self, Area, Direction, Done, Job, Order, Pattern, Syncing};
use crate::result::{Metric, Note, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};

/// One way to go over files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in a line.
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

    /// Moves bytes: requests on an area, streams over spans of so many bytes. Also answers whether
    /// all went past the page cache.
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
enum By {
    Us,
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
    /// The option by which modes are chosen.
    pub chosen_by: &'static str,
    /// Files in each directory; 1 on a device.
    pub files: u64,
    /// Bytes of each, a multiple of the block's.
    pub file_bytes: u64,
    /// Requests, but for their order, direction and number.
    pub job: Job,
    /// The way to open files.
    pub policy: Policy,
    /// Whether reads begin with an empty cache.
    pub drops_cache: bool,
    /// Whether fio does the same beside us.
    pub checks: bool,
}

impl DiskOptions {
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

/// A directory or device, and what is open on it.
struct OpenPlace {
    path: PathBuf,
    folder: Option<Folder>,
    /// Files that are there, full of content.
    area: Option<Area>,
}

/// A layout at work.
pub(crate) struct DiskPlan {
    layout: DiskOptions,
    open_places: Vec<OpenPlace>,
    variants: Vec<(usize, usize, By)>,
    /// Files that the next run writes anew.
    fresh: Option<Area>,
}

impl DiskPlan {
    /// A plan of a layout.
    ///
    /// # Errors
    /// [`Kind::Usage`] when fio is to do the same beside us and cannot: see [`check::refuse`].
    pub fn new(mut layout: DiskOptions) -> Result<Self> {
        if layout.checks {
            check::refuse(&layout.job, layout.places.len(), layout.is_device)?;
            let version = check::version();
            layout.notes.push(match &version {
                Some(version) => format!("checked with {version}"),
                None => "not checked with fio: it is not installed".to_owned(),
            });
            layout.checks = version.is_some();
        }
        let mut variants = Vec::new();
        for (at, mode) in layout.modes.iter().enumerate() {
            for place in 0..layout.places.len() {
                variants.push((at, place, By::Us));
            }
            let has_other = matches!(mode.work, Work::Requests(order, _) if check::can_do(order));
            if layout.checks && has_other {
                variants.push((at, 0, By::Fio));
            }
        }
        let open_place =
            |path: &PathBuf| OpenPlace { path: path.clone(), folder: None, area: None };
        let open_places = layout.places.iter().map(open_place).collect();
        Ok(DiskPlan { layout, open_places, variants, fresh: None })
    }

    fn has(&self, is_it: impl Fn(&Mode) -> bool) -> bool {
        self.layout.modes.iter().any(is_it)
    }

    /// The space of files at one time: those that are there, and those that a run makes.
    fn most_bytes(&self) -> u64 {
        let has_new = self.has(|mode| mode.initial == InitialState::Nothing);
        let has_old = self.has(|mode| mode.initial != InitialState::Nothing);
        let sets = u64::from(has_old) + u64::from(has_new);
        sets * self.layout.files * self.layout.file_bytes
    }

    /// The names of files that are made anew.
    fn new_files(&self, place: usize) -> Vec<PathBuf> {
        let folder = self.open_places[place].folder.iter();
        folder.flat_map(|it| it.files("new", self.layout.files)).collect()
    }

    /// The names of what a mode works on.
    fn paths(&self, mode: &Mode, place: usize) -> Vec<PathBuf> {
        match (self.layout.is_device, mode.initial) {
            (true, _) => vec![self.open_places[place].path.clone()],
            (false, InitialState::Nothing) => self.new_files(place),
            (false, _) => {
                let folder = self.open_places[place].folder.iter();
                folder.flat_map(|it| it.files("old", self.layout.files)).collect()
            }
        }
    }

    fn open_device(&self, path: &Path, live: &Live) -> Result<Area> {
        let DiskOptions { file_bytes, job, policy, .. } = &self.layout;
        let is_read = self.has(|mode| !mode.work.only_writes());
        device::area(path, &[0], *file_bytes, *policy, is_read.then_some((job.content, live)))
    }

    /// Reads all of an area once, so that the page cache has it.
    fn warm(&self, mode: &Mode, area: &Area, live: &Live) -> Result<()> {
        let read =
            Mode { work: Work::Requests(Order::Sequential, Direction::Read), ..mode.clone() };
        let job =
            Job { time: None, rate: None, ..self.layout.job(&Mode { is_once: true, ..read }, 0) };
        io::run(&job, area, live).map(drop)
    }
}

impl Plan for DiskPlan {
    fn parameters(&self) -> Vec<Parameter> {
        self.layout.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |&(mode, number, by): &(usize, usize, By)| {
            let mode = &self.layout.modes[mode];
            let path = self.layout.places[number].to_string_lossy().into_owned();
            let name = match (by, self.layout.places.len()) {
                (By::Fio, _) => format!("{} by fio", mode.name),
                (By::Us, 1) => mode.name.to_owned(),
                (By::Us, _) => format!("{} {path}", mode.name),
            };
            let place = if self.layout.is_device { "device" } else { "dir" };
            let mut parameters =
                vec![Parameter::new(self.layout.chosen_by, mode.name), Parameter::new(place, path)];
            if by == By::Fio {
                parameters.push(Parameter::new(shared::CROSS_CHECK.name, "fio"));
            }
            VariantSpec {
                name,
                group: mode.name.to_owned(),
                about: mode.about.to_owned(),
                parameters,
                metric: Metric::throughput(),
                place: PlaceNo(number),
            }
        };
        self.variants.iter().map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.layout.places.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.layout.notes.clone()
    }

    fn intents(&self) -> Vec<String> {
        let DiskOptions { files, file_bytes, is_device, places, case, .. } = &self.layout;
        let intent = |place: &PathBuf| {
            let (place, size) = (place.display(), format_size(*file_bytes));
            match is_device {
                true => format!("overwrite the first {size} of {place}"),
                false => format!(
                    "create up to {} of files, {files} of {size} each at a time, in a directory \
                     pinstripe-lab-{case}@* in {place}, and remove it at the end",
                    format_size(self.most_bytes())
                ),
            }
        };
        places.iter().map(intent).collect()
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        let DiskOptions { places, is_device, .. } = &self.layout;
        let needed = |place: &PathBuf| (place.clone(), self.most_bytes());
        places.iter().filter(|_| !is_device).map(needed).collect()
    }

    fn may_begin(&self) -> Result<()> {
        let DiskOptions { places, is_device, file_bytes, .. } = &self.layout;
        places
            .iter()
            .filter(|_| *is_device)
            .try_for_each(|it| device::refuse_short(it, *file_bytes))
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        let bytes = self.most_bytes();
        let has_old = self.has(|mode| mode.initial != InitialState::Nothing);
        for at in 0..self.open_places.len() {
            let path = self.open_places[at].path.clone();
            if self.layout.is_device {
                self.open_places[at].area = Some(self.open_device(&path, live)?);
                continue;
            }
            let folder = Folder::make(&path, self.layout.case, bytes)?;
            let folder = self.open_places[at].folder.insert(folder);
            if has_old {
                let DiskOptions { files, file_bytes, job, policy, .. } = &self.layout;
                let paths = folder.files("old", *files);
                let area = Area::make(&paths, *file_bytes, job.content, *policy, live)?;
                self.open_places[at].area = Some(area);
            }
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        let (mode, place, by) = self.variants[variant.0];
        let mode = &self.layout.modes[mode];
        self.fresh = None;
        for place in 0..self.open_places.len() {
            shared::remove_files(&self.new_files(place))?;
        }
        if let Some(area) = &self.open_places[place].area {
            if self.layout.drops_cache {
                area.drop_cache()?;
            }
            if mode.initial == InitialState::CachedFiles {
                self.warm(mode, area, live)?;
            }
        }
        let is_made_by_us = by == By::Us && matches!(mode.work, Work::Requests(..));
        if mode.initial == InitialState::Nothing && !self.layout.is_device && is_made_by_us {
            let (paths, layout) = (self.new_files(place), &self.layout);
            let area = Area::open(&paths, layout.file_bytes, Access::Create, layout.policy)?;
            self.fresh = Some(area);
        }
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let (mode, place, by) = self.variants[variant.0];
        let mode = &self.layout.modes[mode];
        let (job, policy) = (self.layout.job(mode, number), self.layout.policy);
        let paths = self.paths(mode, place);
        if by == By::Fio {
            let mut outcome = check::run(&job, &paths, self.layout.file_bytes, policy, live)?;
            outcome.notes.push(Note::OtherProgram);
            return Ok(outcome);
        }
        let spans: Vec<Span> = paths.into_iter().map(Span::whole).collect();
        let area = || {
            let area = self.fresh.as_ref().or(self.open_places[place].area.as_ref());
            area.expect("files were made, or a device opened, before the first run")
        };
        let spans = (&spans[..], self.layout.file_bytes);
        let (done, is_direct) = mode.work.run(&job, spans, area, live)?;
        Ok(shared::outcome(&done, &job, policy, is_direct))
    }

    fn clean(&mut self) -> Result<()> {
        self.fresh = None;
        self.open_places.iter_mut().try_for_each(|open_place| {
            open_place.area = None;
            open_place.folder.take().map_or(Ok(()), |folder| folder.remove())
        })
    }
}
