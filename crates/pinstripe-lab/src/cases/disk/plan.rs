//! Carries out a plan: creates and opens files, reads or writes them, and removes them at the end.

use std::path::{Path, PathBuf};

use pinstripe_base::error::Result;
use pinstripe_base::random;
use pinstripe_base::units::format_size;
use pinstripe_io::device::Access;

use super::super::device;
use super::super::shared::{self, Folder};
use super::super::stream::Span;
use super::{By, DiskOptions, DiskVariant, InitialState, Mode, Work};
use crate::fio::check;
use crate::io::{self, Area, Direction, Job, Order};
use crate::result::{Note, Parameter};
use crate::run::{Live, Outcome, Plan, VariantNo, VariantSpec};

/// A directory or device, and the areas that are open on it.
struct OpenPlace {
    path: PathBuf,
    folder: Option<Folder>,
    /// An area of existing files, filled with content.
    area: Option<Area>,
}

/// A running layout.
pub(crate) struct DiskPlan {
    layout: DiskOptions,
    open_places: Vec<OpenPlace>,
    variants: Vec<DiskVariant>,
    /// Areas that the next run rewrites: one area with all files, or an area with the files of each
    /// thread.
    fresh: Vec<Area>,
}

impl DiskPlan {
    /// Makes a plan from a layout.
    ///
    /// # Errors
    /// [`Kind::Usage`] if fio is to repeat the measurement but cannot: see [`check::refuse`].
    pub fn new(mut layout: DiskOptions) -> Result<Self> {
        if layout.checks {
            check::refuse(&layout.job, layout.places.len(), layout.is_device)?;
            let version = check::version();
            layout.notes.push(match &version {
                Some(version) => format!("the results were checked with {version}"),
                None => {
                    "the results were not checked with fio, because fio is not installed".to_owned()
                }
            });
            layout.checks = version.is_some();
        }
        let mut variants = Vec::new();
        for mode in &layout.modes {
            let of_place = |place| layout.variant(mode, place, By::Us);
            variants.extend((0..layout.places.len()).map(of_place));
            let has_other = matches!(mode.work, Work::Requests(order, _) if check::can_do(order));
            if layout.checks && has_other {
                variants.push(layout.variant(mode, 0, By::Fio));
            }
        }
        Ok(DiskPlan::with_variants(layout, variants))
    }

    /// A plan of these variants.
    pub(crate) fn with_variants(layout: DiskOptions, variants: Vec<DiskVariant>) -> Self {
        let open_place =
            |path: &PathBuf| OpenPlace { path: path.clone(), folder: None, area: None };
        let open_places = layout.places.iter().map(open_place).collect();
        DiskPlan { layout, open_places, variants, fresh: Vec::new() }
    }

    fn has(&self, is_it: impl Fn(&Mode) -> bool) -> bool {
        self.variants.iter().any(|it| is_it(&it.mode))
    }

    /// The most bytes that files take at a time: the existing files, and the files that a run
    /// creates.
    fn most_bytes(&self) -> u64 {
        let has_new = self.has(|mode| mode.initial == InitialState::Nothing);
        let has_old = self.has(|mode| mode.initial != InitialState::Nothing);
        let sets = u64::from(has_old) + u64::from(has_new);
        sets * self.layout.files * self.layout.file_bytes
    }

    /// The names of files that each run creates again.
    fn new_files(&self, place: usize) -> Vec<PathBuf> {
        let folder = self.open_places[place].folder.iter();
        folder.flat_map(|it| it.files("new", self.layout.files)).collect()
    }

    /// The names of the files that a mode reads or writes.
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

    /// Reads all of an area once, so that it is in the page cache.
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
        self.variants.iter().map(|it| it.spec.clone()).collect()
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
                    "create a directory pinstripe-lab-{case}@* in {place} with up to {} of files, \
                     of these at most {files} of {size} each at the same time, and remove that \
                     directory at the end",
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
        let DiskVariant { spec, mode, by, policy, in_turn, .. } = &self.variants[variant.0];
        let place = spec.place.0;
        self.fresh.clear();
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
        let is_made_by_us = *by == By::Us && matches!(mode.work, Work::Requests(..));
        if mode.initial == InitialState::Nothing && !self.layout.is_device && is_made_by_us {
            let (paths, file_bytes) = (self.new_files(place), self.layout.file_bytes);
            let open = |paths: &[PathBuf]| Area::open(paths, file_bytes, Access::Create, *policy);
            self.fresh = match in_turn {
                None => vec![open(&paths)?],
                Some(files) => {
                    let areas = paths.chunks(*files).map(|it| open(it).map(Area::striped));
                    areas.collect::<Result<_>>()?
                }
            };
        }
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let DiskVariant { spec, mode, by, job, policy, in_turn } = &self.variants[variant.0];
        let (place, policy) = (spec.place.0, *policy);
        let seed = random::of_run(self.layout.job.seed, number);
        let job = Job { seed, ..job.clone() };
        if in_turn.is_some() {
            let done = io::run_each(&job, &self.fresh, live)?;
            let is_direct = self.fresh.iter().all(|area| area.is_direct(job.pattern.block_bytes));
            let mut outcome = shared::outcome(&done, &job, policy, is_direct);
            outcome.measured.figures.insert("stalls".to_owned(), shared::stalls(&done.writes));
            return Ok(outcome);
        }
        let paths = self.paths(mode, place);
        if *by == By::Fio {
            let mut outcome = check::run(&job, &paths, self.layout.file_bytes, policy, live)?;
            outcome.notes.push(Note::OtherProgram);
            return Ok(outcome);
        }
        let spans: Vec<Span> = paths.into_iter().map(Span::whole).collect();
        let area = || {
            let area = self.fresh.first().or(self.open_places[place].area.as_ref());
            area.expect("files were made, or a device opened, before the first run")
        };
        let spans = (&spans[..], self.layout.file_bytes);
        let (done, is_direct) = mode.work.run(&job, spans, area, live)?;
        Ok(shared::outcome(&done, &job, policy, is_direct))
    }

    fn clean(&mut self) -> Result<()> {
        self.fresh.clear();
        self.open_places.iter_mut().try_for_each(|open_place| {
            open_place.area = None;
            open_place.folder.take().map_or(Ok(()), |folder| folder.remove())
        })
    }
}
