//! The outputs of a split: their names, what may be written over, and opening them.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Options;
use crate::device::{Access, FileDevice, Policy, SharedDevice};
use crate::error::{Error, Kind, Result};
use crate::format::split::{Head, Layout, OUTPUTS_MAX, PAGE_BYTES};
use crate::pipeline::lane::LaneDevice;
use crate::pipeline::split::Sink;
use crate::source::bulk::Identity;
use crate::split::beside_path;

/// An output as it is written.
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// As it was named.
    told: PathBuf,
    /// Takes pages and log.
    pub(super) log: SharedDevice,
    /// Takes the source's bytes, if the log stands beside.
    pub(super) plain: Option<SharedDevice>,
    /// Of plain bytes first, then of the log.
    files: Vec<Arc<FileDevice>>,
    has_faults: bool,
}

impl Target {
    /// What it is written by in place of what was asked for.
    pub(super) fn fallback(&self) -> Option<String> {
        let fallback = self.files.iter().find_map(|file| file.fallback())?;
        Some(fallback.to_string())
    }

    /// Where its lanes write. A device that was wrapped is no file any more.
    pub(super) fn sink(&self) -> Sink {
        let lane = |device: &SharedDevice, file: Option<&Arc<FileDevice>>| match file {
            Some(file) if !self.has_faults => LaneDevice::from(Arc::clone(file)),
            _ => LaneDevice::from(Arc::clone(device)),
        };
        Sink {
            name: self.told.display().to_string(),
            log: lane(&self.log, self.files.last()),
            plain: self.plain.as_ref().map(|device| lane(device, self.files.first())),
        }
    }
}

pub(super) fn output_paths(options: &Options, source: &Path) -> Result<Vec<PathBuf>> {
    let count = options.outputs.len();
    if count == 0 || count > OUTPUTS_MAX {
        return Err(Error::new(Kind::Usage, format!("{count} outputs"))
            .expected(format!("1 to {OUTPUTS_MAX}"), count));
    }
    if usize::from(options.parity) >= count {
        let least = usize::from(options.parity) + 1;
        return Err(Error::new(
            Kind::Usage,
            format!("parity {} over {count} outputs", options.parity),
        )
        .expected(format!("at least {least} outputs"), count)
        .advice("name more outputs, or ask for less parity"));
    }
    // Of what a generator was told only that it is one.
    let name = source.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let name = name.split([':', ' ']).next().filter(|it| !it.is_empty()).unwrap_or("split");
    let path = |(number, path): (usize, &PathBuf)| match path.is_dir() {
        true => path.join(format!("{name}.split-{number}")),
        false => path.clone(),
    };
    Ok(options.outputs.iter().enumerate().map(path).collect())
}

/// Refuses what would be written over without being asked for.
pub(super) fn check_paths(
    paths: &[PathBuf],
    layout: Layout,
    source: Option<Identity>,
    options: &Options,
) -> Result<()> {
    let mut seen = HashSet::new();
    let mut names = HashSet::new();
    let beside: Vec<PathBuf> = match layout {
        Layout::Plain => paths.iter().map(|path| beside_path(path)).collect(),
        _ => Vec::new(),
    };
    for path in paths.iter().chain(&beside) {
        if !names.insert(path.clone()) {
            return Err(Error::new(Kind::Usage, "two outputs are the same file").at(path));
        }
        let Ok(found) = fs::metadata(path) else { continue };
        let is_block = found.file_type().is_block_device();
        let is = if is_block { (found.rdev(), 0) } else { (found.dev(), found.ino()) };
        if source.is_some_and(|source| (source.device, source.inode) == is) {
            return Err(Error::new(Kind::Usage, "an output is the source itself")
                .at(path)
                .advice("nothing was written; name another file"));
        }
        let is_sink = found.file_type().is_char_device();
        if !seen.insert(is) && !is_sink {
            return Err(Error::new(Kind::Usage, "two outputs are the same file").at(path));
        }
        if is_block && layout == Layout::Plain {
            return Err(Error::new(Kind::Usage, "plain ranges need a file beside each output")
                .at(path)
                .advice("use --layout queue, or a codec"));
        }
        if !(options.force || options.resume || is_sink) {
            return Err(Error::new(Kind::Exists, "the output is there already").at(path).advice(
                "nothing was written; to write over it --force, to go on with it --resume",
            ));
        }
    }
    Ok(())
}

pub(super) fn open_outputs(
    paths: &[PathBuf],
    layout: Layout,
    options: &Options,
) -> Result<Vec<Target>> {
    let access = if options.resume { Access::Write } else { Access::Create };
    let open = |number: usize, path: &Path, policy: Policy| {
        let file = Arc::new(FileDevice::open(path, access, policy)?);
        let device: SharedDevice = file.clone();
        let _ = number;
        Ok::<_, Error>((file, device))
    };
    let has_faults = options.faults.is_some();
    let target = |(number, path): (usize, &PathBuf)| {
        let (file, device) = open(number, path, options.policy)?;
        let told = options.outputs[number].clone();
        if layout != Layout::Plain {
            let path = path.clone();
            return Ok(Target {
                path,
                told,
                log: device,
                plain: None,
                files: vec![file],
                has_faults,
            });
        }
        let (log_file, log) = open(number, &beside_path(path), Policy::Buffered)?;
        let files = vec![file, log_file];
        Ok(Target { path: path.clone(), told, log, plain: Some(device), files, has_faults })
    };
    paths.iter().enumerate().map(target).collect()
}

/// Makes outputs empty but for their heads. From here on what was in them is gone.
pub(super) fn write_heads(outputs: &mut [Target], heads: &[Head]) -> Result<()> {
    for (output, head) in outputs.iter().zip(heads) {
        for device in [Some(&output.log), output.plain.as_ref()].into_iter().flatten() {
            match device.set_len(0) {
                Err(error) if error.kind() == Kind::Unsupported => {}
                done => done?,
            }
        }
        let mut pages = head.encode();
        pages.resize(2 * PAGE_BYTES, 0);
        output.log.write_at(0, &pages)?;
    }
    outputs.iter().try_for_each(|output| output.log.sync())
}
