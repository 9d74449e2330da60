//! The outputs of a split: their names, the checks against overwriting data, and how they are
//! opened.

use std::collections::HashSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SplitOptions;
use crate::format::{Head, OUTPUTS_MAX, PAGE_BYTES, SplitLayout};
use crate::outputs::resume::LogProgress;
use crate::outputs::{SplitOutput, beside_path, no_remote};
use crate::pipeline::split::OutputJob;
use crate::source::Identity;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, Device, FileDevice, Policy, SharedDevice};
use pinstripe_io::fault::FaultyDevice;
use pinstripe_io::paths;
use pinstripe_io::write_queue::QueueDevice;
use pinstripe_member::is_remote;

/// An output that `split` writes.
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// The path as the user gave it.
    told: PathBuf,
    /// The device for the two pages and the log.
    pub(super) log: SharedDevice,
    /// The device for the source's bytes, if the log is in a separate file.
    pub(super) plain: Option<SharedDevice>,
    /// The file of plain bytes first, if there is one, then the file of the log.
    files: Vec<Arc<FileDevice>>,
    has_faults: bool,
}

impl Target {
    /// The caching policy in use and the reason for it, if it is not the requested one.
    pub(super) fn fallback(&self) -> Option<String> {
        let fallback = self.files.iter().find_map(|file| file.fallback())?;
        Some(fallback.to_string())
    }

    /// Returns the job for the writer of this output. A device that a test wrapped to inject faults
    /// is not a file any more.
    pub(super) fn job(&self, head: Head, begun: LogProgress) -> OutputJob {
        let queue = |device: &SharedDevice, file: Option<&Arc<FileDevice>>| match file {
            Some(file) if !self.has_faults => QueueDevice::from(Arc::clone(file)),
            _ => QueueDevice::from(Arc::clone(device)),
        };
        OutputJob {
            head,
            begun,
            name: self.told.display().to_string(),
            log: queue(&self.log, self.files.last()),
            plain: self.plain.as_ref().map(|device| queue(device, self.files.first())),
        }
    }
}

pub(super) fn output_paths(options: &SplitOptions, source: &Path) -> Result<Vec<PathBuf>> {
    let count = options.outputs.len();
    if count == 0 || count > OUTPUTS_MAX {
        return Err(Error::new(Kind::Usage, "a split cannot have this number of outputs")
            .expected(format!("1 to {OUTPUTS_MAX} outputs"), count));
    }
    if usize::from(options.parity) >= count {
        let least = usize::from(options.parity) + 1;
        return Err(Error::new(
            Kind::Usage,
            format!("parity {} needs more outputs than {count}", options.parity),
        )
        .expected(format!("at least {least} outputs"), count)
        .advice("give more outputs, or a smaller --parity"));
    }
    // The specification of a generator is not part of the name.
    let name = source.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let name = name.split([':', ' ']).next().filter(|it| !it.is_empty()).unwrap_or("split");
    let path =
        |(number, path): (usize, &PathBuf)| match !is_remote(path) && paths::is_directory(path) {
            true => path.join(format!("{name}.split-{number}")),
            false => path.clone(),
        };
    Ok(options.outputs.iter().enumerate().map(path).collect())
}

/// Refuses to overwrite existing data, unless `force` is set.
pub(super) fn check_paths(
    paths: &[PathBuf],
    layout: SplitLayout,
    source: Option<Identity>,
    options: &SplitOptions,
) -> Result<()> {
    let mut seen = HashSet::new();
    let mut names = HashSet::new();
    let beside: Vec<PathBuf> = match layout {
        SplitLayout::Plain => paths.iter().map(|path| beside_path(path)).collect(),
        _ => Vec::new(),
    };
    for path in paths.iter().chain(&beside) {
        let is_new = names.insert(if is_remote(path) { path.clone() } else { resolved(path) });
        if is_remote(path) {
            // Whether something is there is known when it is opened.
            refuse_remote(path, layout, is_new)?;
            continue;
        }
        let Ok(found) = paths::metadata(path) else {
            if is_new {
                continue;
            }
            return Err(twice(path));
        };
        let is_block = found.file_type().is_block_device();
        let is = if is_block { (found.rdev(), 0) } else { (found.dev(), found.ino()) };
        if source.is_some_and(|source| (source.device, source.inode) == is) {
            return Err(Error::new(Kind::Usage, "this output is the source itself")
                .at(path)
                .advice("nothing was written; give another file"));
        }
        let is_sink = found.file_type().is_char_device();
        if !(seen.insert(is) && is_new || is_sink) {
            return Err(twice(path));
        }
        if is_block && layout == SplitLayout::Plain {
            return Err(Error::new(
                Kind::Usage,
                "without a codec, the layout 'ranges' needs a log file next to each output",
            )
            .at(path)
            .advice("use --layout queue, or use a codec"));
        }
        if !(options.force || options.resume || is_sink) {
            return Err(exists(path));
        }
    }
    Ok(())
}

fn refuse_remote(path: &Path, layout: SplitLayout, is_new: bool) -> Result<()> {
    if !is_new {
        return Err(twice(path));
    }
    if layout == SplitLayout::Plain {
        return Err(Error::new(
            Kind::Usage,
            "without a codec, the layout 'ranges' needs a log file next to each output",
        )
        .at(path)
        .advice("use --layout queue, or use a codec"));
    }
    Ok(())
}

fn exists(path: &Path) -> Error {
    Error::new(Kind::Exists, "the output already exists").at(path).advice(
        "nothing was written; overwrite the output with --force, or continue the split with \
         --resume",
    )
}

fn twice(path: &Path) -> Error {
    Error::new(Kind::Usage, "two outputs are the same file")
        .at(path)
        .advice("nothing was written; give each output only once")
}

/// Returns a path that identifies the file even before it exists, except for a dangling symlink.
fn resolved(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = paths::real(parent.unwrap_or(Path::new(".")));
    match (parent, path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_path_buf(),
    }
}

/// Opens the outputs. Nothing is written to the outputs yet; files that were created are removed
/// again when an output cannot be opened.
///
/// # Errors
/// Fails with [`Kind::Usage`] when two outputs are the same file, or with the errors of
/// [`FileDevice::open`].
pub(super) fn open_outputs(
    paths: &[PathBuf],
    layout: SplitLayout,
    options: &SplitOptions,
) -> Result<Vec<Target>> {
    let mut made = Vec::new();
    let opened = (paths.iter().enumerate())
        .map(|(number, path)| open_target(number, path, layout, options, &mut made))
        .collect::<Result<Vec<_>>>()
        .and_then(|opened| refuse_twins(&opened).map(|()| opened));
    if opened.is_err() {
        made.iter().for_each(|path| drop(paths::remove_file(path)));
    }
    opened
}

fn open_target(
    number: usize,
    path: &Path,
    layout: SplitLayout,
    options: &SplitOptions,
    made: &mut Vec<PathBuf>,
) -> Result<Target> {
    if is_remote(path) {
        return open_remote(number, path, options);
    }
    let access = if options.resume { Access::Write } else { Access::Create };
    let mut open = |path: &Path, policy: Policy| {
        let is_new = !paths::exists(path);
        let file = Arc::new(FileDevice::open(path, access, policy)?);
        if is_new {
            made.push(path.to_path_buf());
        }
        let device: SharedDevice = match &options.faults {
            Some(plan) => Arc::new(FaultyDevice::new(file.clone(), plan.for_member(number as u32))),
            None => file.clone(),
        };
        Ok::<_, Error>((file, device))
    };
    let has_faults = options.faults.is_some();
    let (file, device) = open(path, options.policy)?;
    let (path, told) = (path.to_path_buf(), options.outputs[number].clone());
    let (files, plain) = (vec![file], None);
    let target = Target { path, told, log: device, plain, files, has_faults };
    if layout != SplitLayout::Plain {
        return Ok(target);
    }
    let (file, log) = open(&beside_path(&target.path), Policy::Buffered)?;
    let files = [target.files, vec![file]].concat();
    Ok(Target { plain: Some(target.log), log, files, ..target })
}

fn open_remote(number: usize, path: &Path, options: &SplitOptions) -> Result<Target> {
    let remote = options.remote.as_ref().ok_or_else(|| no_remote(path))?;
    let device = remote.output(path)?;
    if device.len()? > 0 && !(options.force || options.resume) {
        return Err(exists(path));
    }
    let log: SharedDevice = match &options.faults {
        Some(plan) => Arc::new(FaultyDevice::new(device, plan.for_member(number as u32))),
        None => device,
    };
    let (path, told) = (path.to_path_buf(), options.outputs[number].clone());
    let has_faults = options.faults.is_some();
    Ok(Target { path, told, log, plain: None, files: Vec::new(), has_faults })
}

/// Refuses two names of one file. The check is done here because the file may not have existed when
/// the names were examined.
fn refuse_twins(opened: &[Target]) -> Result<()> {
    let mut seen = HashSet::new();
    for file in opened.iter().flat_map(|target| &target.files) {
        let found = paths::metadata(file.place());
        let found = found.map_err(|error| Error::io("cannot examine", file.place(), error))?;
        if found.is_file() && !seen.insert((found.dev(), found.ino())) {
            return Err(twice(file.place()));
        }
    }
    Ok(())
}

/// Removes the log file that belongs to the former plain content of an output, which is being
/// overwritten.
fn remove_beside(output: &Path) -> Result<()> {
    let beside = beside_path(output);
    let Ok(file) = FileDevice::open(&beside, Access::Read, Policy::Buffered) else { return Ok(()) };
    let head = SplitOutput::open(Arc::new(file), None).and_then(|found| found.head);
    if head.is_ok_and(|head| head.layout == SplitLayout::Plain) {
        let failed = |error| Error::io("cannot remove the old log file", &beside, error);
        paths::remove_file(&beside).map_err(failed)?;
    }
    Ok(())
}

/// Sets the length of a device, unless its length is fixed.
fn set_len(device: &SharedDevice, bytes: u64) -> Result<()> {
    match device.set_len(bytes) {
        Err(error) if error.kind() == Kind::Unsupported => Ok(()),
        done => done,
    }
}

/// Truncates outputs to their heads, and gives plain outputs the lengths of their ranges. The
/// former content of the outputs is lost from here on.
pub(super) fn write_heads(outputs: &[Target], heads: &[Head], plain_bytes: &[u64]) -> Result<()> {
    for ((output, head), bytes) in outputs.iter().zip(heads).zip(plain_bytes) {
        set_len(&output.log, 0)?;
        match &output.plain {
            Some(plain) => set_len(plain, 0).and_then(|()| set_len(plain, *bytes))?,
            None if is_remote(&output.path) => {}
            None => remove_beside(&output.path)?,
        }
        let mut pages = head.encode();
        pages.resize(2 * PAGE_BYTES, 0);
        output.log.write_at(0, &pages)?;
    }
    outputs.iter().try_for_each(|output| output.log.sync())
}
