//! The plan of the case `fs`: a file system is created for each run, and removed after the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::Access;

use super::super::disk::{DiskOptions, InitialState, Mode};
use super::super::{Setting, Values, fileio, shared};
use super::{OPTIONS, chosen};
use crate::fingerprint::number_of;
use crate::guard::{KernelThreads, Reading};
use crate::io::{self, Area, Syncing};
use crate::result::{Metric, Parameter};
use crate::run::{Live, Outcome, PlaceNo, Plan, VariantNo, VariantSpec};
use crate::scratch::kinds::System;
use crate::scratch::{Maker, Mounted, Scratch, may_mount};

/// The greatest share of a new file system's free space that files take: a file system that writes
/// to a new place also keeps the old blocks for a while.
const MOST_OF_FREE: f64 = 0.7;

/// Where file systems are created.
enum FsBacking {
    /// An image of this many bytes in a directory.
    Image(PathBuf, u64),
    /// On a device.
    Device(PathBuf),
}

/// The file system and the open files of one run. Fields are dropped in this order, so the files
/// are closed before the file system is unmounted.
struct Setup {
    area: Area,
    mounted: Mounted,
    figures: BTreeMap<String, f64>,
    /// The share of the files' bytes that the file system stores.
    stored_share: Option<f64>,
}

/// The running case.
pub(crate) struct FsPlan {
    parameters: Vec<Parameter>,
    backing: FsBacking,
    layout: DiskOptions,
    makers: Vec<Maker>,
    notes: Vec<String>,
    scratch: Option<Scratch>,
    setup: Option<Setup>,
}

impl FsPlan {
    /// Reads the options.
    ///
    /// # Errors
    /// The errors of [`chosen`] and of the options.
    pub fn new(setting: &Setting, values: &Values, system: &System) -> Result<Self> {
        let bytes = values.size("image-size");
        let backing = match &setting.device {
            Some(device) => FsBacking::Device(device.clone()),
            None => FsBacking::Image(shared::one_directory(setting)?, bytes),
        };
        let image_bytes = matches!(backing, FsBacking::Image(..)).then_some(bytes);
        let (makers, notes) = chosen(values, system, image_bytes)?;
        let syncing = Syncing { at_end: values.text("sync") == Some("end"), ..Syncing::NEVER };
        // Files are on the file systems to come, wherever these are made.
        let inside = Setting { dirs: Vec::new(), device: None, seed: setting.seed };
        let mut layout = fileio::layout(&inside, values, syncing, false)?;
        // As many requests as there are blocks, anywhere too: more of them would find in the page
        // cache what those before have read, and write again what is not on the disk yet.
        layout.modes.iter_mut().for_each(|mode| mode.is_once = true);
        let names: Vec<String> = makers.iter().map(|it| it.candidate.to_string()).collect();
        let parameter = |it: Parameter| match it.name.as_str() {
            "file-systems" => Parameter { value: names.join("; "), ..it },
            _ => it,
        };
        let parameters = shared::parameters(OPTIONS, values).into_iter();
        let parameters = parameters.filter(|it| it.name != "candidates").map(parameter).collect();
        Ok(FsPlan { parameters, backing, layout, makers, notes, scratch: None, setup: None })
    }

    /// Returns the mode and the candidate of a variant; the variants of one mode have consecutive
    /// numbers.
    fn of(&self, variant: VariantNo) -> (&Mode, &Maker) {
        let makers = self.makers.len();
        (&self.layout.modes[variant.0 / makers], &self.makers[variant.0 % makers])
    }

    fn scratch(&self) -> &Scratch {
        self.scratch.as_ref().expect("prepare comes before all runs")
    }

    fn file_bytes(&self) -> u64 {
        self.layout.files * self.layout.file_bytes
    }

    fn files(&self, mounted: &Mounted) -> Vec<PathBuf> {
        let root = mounted.path();
        (0..self.layout.files).map(|number| root.join(format!("file.{number:04}"))).collect()
    }

    /// Creates and mounts a candidate once, so that a candidate that cannot work is found before
    /// anything is measured. Returns the details of the candidate.
    fn rehearse(&self, maker: &Maker, live: &Live) -> Result<String> {
        let Maker { candidate, program } = maker;
        let scratch = self.scratch();
        scratch.format(maker, live)?;
        let mounted = scratch.mount(candidate)?;
        let (options, (_, free)) = (mounted.options(), mounted.space()?);
        scratch.unmount(mounted)?;
        let (wanted, most) = (self.file_bytes(), (free as f64 * MOST_OF_FREE) as u64);
        if wanted > most {
            let what = format!("{candidate} has too little space for the files");
            let error = Error::new(Kind::NoSpace, what).at(scratch.path());
            let error = error.expected(format_size(wanted), format_size(most));
            return Err(error.advice("reduce --total-size, or increase --image-size"));
        }
        let version = maker.version(live)?.map_or(String::new(), |it| format!(" ({it})"));
        let (name, words) = (program.display(), scratch.arguments(candidate).join(" "));
        let options = options.unwrap_or_else(|| {
            "with unknown options, because the kernel does not report them".to_owned()
        });
        Ok(format!("{candidate}: created by '{name} {words}'{version}, mounted {options}"))
    }

    /// Creates, mounts and fills a file system, and drops its files from the page cache.
    fn set_up(&self, mode: &Mode, maker: &Maker, live: &Live) -> Result<Setup> {
        let DiskOptions { file_bytes, policy, job, .. } = &self.layout;
        let scratch = self.scratch();
        let mut figures = BTreeMap::new();
        let mut note = |name: &str, value: f64| {
            figures.insert(name.to_owned(), value);
        };
        note("mkfs_s", scratch.format(maker, live)?.as_secs_f64());
        let began = Instant::now();
        let mut mounted = scratch.mount(&maker.candidate)?;
        note("mount_s", began.elapsed().as_secs_f64());
        let mut stored_share = None;
        let mut access = Access::Create;
        if mode.initial != InitialState::Nothing {
            let (before, _) = mounted.space()?;
            let began = Instant::now();
            drop(Area::make(&self.files(&mounted), *file_bytes, job.content, *policy, live)?);
            let seconds = began.elapsed().as_secs_f64();
            scratch.unmount(mounted)?;
            mounted = scratch.mount(&maker.candidate)?;
            let stored = mounted.space()?.0.saturating_sub(before);
            let share = stored as f64 / self.file_bytes() as f64;
            note("fill_mb_per_s", self.file_bytes() as f64 / seconds.max(1e-9) / 1e6);
            note("stored_share", share);
            stored_share = Some(share.min(1.0));
            access = Access::Write;
        }
        let area = Area::open(&self.files(&mounted), *file_bytes, access, *policy)?;
        Ok(Setup { area, mounted, figures, stored_share })
    }

    /// Unmounts the mounted file system.
    fn take_down(&mut self) -> Result<()> {
        match self.setup.take() {
            None => Ok(()),
            Some(Setup { area, mounted, .. }) => {
                drop(area);
                self.scratch().unmount(mounted)
            }
        }
    }

    /// Bytes that the scratch device has moved so far; no other process uses the device.
    fn moved(&self) -> Reading {
        Reading::take(Path::new("/"), number_of(self.scratch().path()))
    }
}

/// Replaces the path in an error, which is below a temporary mount, by the name of the candidate.
fn named(error: Error, maker: &Maker) -> Error {
    let Some(place) = error.place().filter(|it| it.starts_with("/proc/self/fd")) else {
        return error;
    };
    let file = place.file_name().unwrap_or_default().to_string_lossy();
    let what = format!("{} {file}", error.what());
    let on = format!("[{}]", maker.candidate);
    let told = match error.raw_os_error() {
        Some(number) => Error::io(what, on, std::io::Error::from_raw_os_error(number)),
        None => Error::new(error.kind(), what).at(on),
    };
    match error.kind() {
        Kind::NoSpace => told.advice("reduce --total-size, or increase --image-size"),
        _ => told,
    }
}

impl Plan for FsPlan {
    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn variants(&self) -> Vec<VariantSpec> {
        let spec = |variant: VariantNo| {
            let (mode, maker) = self.of(variant);
            let name = maker.candidate.to_string();
            VariantSpec {
                name: format!("{} {name}", mode.name),
                group: mode.name.to_owned(),
                about: format!("{} on a new {name}", mode.about),
                parameters: vec![
                    Parameter::new("mode", mode.name),
                    Parameter::new("file-system", name),
                ],
                metric: Metric::throughput(),
                place: PlaceNo::FIRST,
            }
        };
        (0..self.layout.modes.len() * self.makers.len()).map(VariantNo).map(spec).collect()
    }

    fn places(&self) -> Vec<PathBuf> {
        let (FsBacking::Image(place, _) | FsBacking::Device(place)) = &self.backing;
        vec![place.clone()]
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn intents(&self) -> Vec<String> {
        let names: Vec<String> = self.makers.iter().map(|it| it.candidate.to_string()).collect();
        let names = names.join("; ");
        match &self.backing {
            FsBacking::Image(dir, bytes) => vec![
                format!(
                    "write an unlinked image of {} in {}, attach a loop device to the image, and \
                     remove the image and the loop device at the end",
                    format_size(*bytes),
                    dir.display()
                ),
                format!(
                    "create one of these file systems on the loop device for each run: {names}"
                ),
            ],
            FsBacking::Device(device) => vec![
                format!(
                    "overwrite {} with one of these file systems for each run: {names}",
                    device.display()
                ),
                format!("wipe the signature of the last file system from {}", device.display()),
            ],
        }
    }

    fn room(&self) -> Vec<(PathBuf, u64)> {
        match &self.backing {
            FsBacking::Image(dir, bytes) => vec![(dir.clone(), *bytes)],
            FsBacking::Device(_) => Vec::new(),
        }
    }

    fn may_begin(&self) -> Result<()> {
        if self.makers.is_empty() {
            let what = format!("no file system can be created here: {}", self.notes.join("; "));
            return Err(Error::new(Kind::Unsupported, what));
        }
        may_mount()
    }

    fn prepare(&mut self, live: &Live) -> Result<()> {
        self.may_begin()?;
        let scratch = match &self.backing {
            FsBacking::Image(dir, bytes) => {
                shared::refuse_without_room(dir, *bytes, "the image")?;
                Scratch::image(dir, *bytes, live)?
            }
            FsBacking::Device(device) => Scratch::device(device)?,
        };
        self.notes.push(scratch.about());
        self.scratch = Some(scratch);
        for number in 0..self.makers.len() {
            live.check()?;
            self.notes.push(self.rehearse(&self.makers[number], live)?);
        }
        Ok(())
    }

    fn ready(&mut self, variant: VariantNo, live: &Live) -> Result<()> {
        self.take_down()?;
        let (mode, maker) = self.of(variant);
        let setup = self.set_up(mode, maker, live).map_err(|error| named(error, maker))?;
        self.setup = Some(setup);
        Ok(())
    }

    fn run(&mut self, variant: VariantNo, number: u64, live: &Live) -> Result<Outcome> {
        let (mode, maker) = self.of(variant);
        let (job, policy) = (self.layout.job(mode, number), self.layout.policy);
        let setup = self.setup.as_ref().expect("ready comes before each run");
        let root = Path::new("/");
        let before = (self.moved(), KernelThreads::read(root));
        let done = io::run(&job, &setup.area, live).map_err(|error| named(error, maker))?;
        let moved = self.moved().transfer_since(&before.0).unwrap_or_default();
        let is_direct = setup.area.is_direct(job.pattern.block_bytes);
        let mut outcome = shared::outcome(&done, &job, policy, is_direct);
        outcome.beside_read_bytes = moved.read_bytes.saturating_sub(outcome.measured.read_bytes);
        outcome.beside_written_bytes =
            moved.written_bytes.saturating_sub(outcome.measured.written_bytes);
        // Compression, writeback, checksums and the loop device are theirs.
        outcome.other_cpu_s = KernelThreads::read(root).seconds_since(&before.1);
        outcome.stored_share = setup.stored_share;
        outcome.measured.figures.extend(setup.figures.clone());
        if outcome.measured.written_bytes > 0 {
            let per_byte = moved.written_bytes as f64 / outcome.measured.written_bytes as f64;
            outcome.measured.figures.insert("disk_bytes_per_byte".to_owned(), per_byte);
        }
        Ok(outcome)
    }

    fn check(&mut self, _: VariantNo, _: &Live) -> Result<()> {
        self.take_down()
    }

    fn clean(&mut self) -> Result<()> {
        let down = self.take_down();
        let wiped = match self.scratch.take() {
            Some(scratch @ Scratch::Device(..)) => scratch.wipe(),
            // The image goes with the last descriptor of its loop device.
            _ => Ok(()),
        };
        down.and(wiped)
    }
}
