//! The areas: files in directories, or the beginning and the middle of a device.

use std::path::{Path, PathBuf};

use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;
use pinstripe_io::device::{Access, Device, FileDevice, Policy};

use super::CASE;
use crate::cases::device;
use crate::cases::shared::{self, Folder};
use crate::cases::stream::Span;
use crate::io::{Area, Content};
use crate::run::Live;

/// The second area of a device begins at a multiple of this number of bytes.
const ALIGN_BYTES: u64 = 1 << 20;

/// Where one area is placed, and where two areas are placed.
pub(super) enum Backing {
    /// The areas are in directories; `folders` are the lab directories that were created there.
    Dirs { dirs: [PathBuf; 2], folders: Vec<Folder> },
    /// The areas are on a device, whose middle is known after it was opened.
    Device { path: PathBuf, middle: u64 },
}

impl Backing {
    pub fn dirs(dirs: [&PathBuf; 2]) -> Self {
        Backing::Dirs { dirs: dirs.map(PathBuf::clone), folders: Vec::new() }
    }

    pub fn device(path: &Path) -> Self {
        Backing::Device { path: path.to_path_buf(), middle: 0 }
    }

    pub fn is_device(&self) -> bool {
        matches!(self, Backing::Device { .. })
    }

    /// The places that are measured.
    pub fn places(&self) -> Vec<PathBuf> {
        match self {
            Backing::Device { path, .. } => vec![path.clone()],
            Backing::Dirs { dirs: [one, other], .. } if one == other => vec![one.clone()],
            Backing::Dirs { dirs, .. } => dirs.to_vec(),
        }
    }

    /// One area, or two areas, in files with this name. A device has only these areas, whatever the
    /// name.
    pub fn spans(&self, name: &str, areas: usize) -> Vec<Span> {
        let span = |number: usize| match self {
            Backing::Dirs { folders, .. } => {
                Span::whole(folders[number].path(&format!("{name}.{areas}.{number}")))
            }
            Backing::Device { path, middle } => {
                Span { path: path.clone(), start: number as u64 * middle }
            }
        };
        (0..areas).map(span).collect()
    }

    /// The files of these areas.
    pub fn paths(&self, name: &str, areas: usize) -> Vec<PathBuf> {
        self.spans(name, areas).into_iter().map(|span| span.path).collect()
    }

    /// Notes on all results.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            Backing::Dirs { .. } if self.places().len() == 1 => Some(
                "both areas are in one directory, so the file system decides where they are on the \
                 disk: to control this, give two directories",
            ),
            Backing::Dirs { .. } => None,
            Backing::Device { .. } => Some("the second area begins in the middle of the device"),
        }
    }

    /// The files or ranges made or overwritten, for people.
    pub fn intents(&self, bytes: u64) -> Vec<String> {
        match self {
            Backing::Dirs { dirs, .. } => {
                let intent = |(number, dir): (usize, &PathBuf)| {
                    shared::intent(dir, CASE.name, bytes_in(number, bytes))
                };
                dirs.iter().enumerate().map(intent).collect()
            }
            Backing::Device { path, .. } => vec![format!(
                "overwrite the first {} of {}, and {} that begin in the middle of the device",
                format_size(bytes),
                path.display(),
                format_size(bytes / 2)
            )],
        }
    }

    /// The directories that need room, with the bytes of each.
    pub fn room(&self, bytes: u64) -> Vec<(PathBuf, u64)> {
        let Backing::Dirs { dirs, .. } = self else { return Vec::new() };
        let needed = |(number, dir): (usize, &PathBuf)| (dir.clone(), bytes_in(number, bytes));
        dirs.iter().enumerate().map(needed).collect()
    }

    /// Checks that a device is long enough for areas of this number of bytes.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) if the device is too short; other errors
    /// as the system reports them.
    pub fn may_begin(&self, bytes: u64) -> Result<()> {
        let Backing::Device { path, .. } = self else { return Ok(()) };
        device::refuse_short(path, bytes.max(middle_of(path, bytes)? + bytes / 2))
    }

    /// Creates one area and a pair of areas of each size, filled with content, because blocks that
    /// were never written are read without accessing the disk. The areas of a smaller size are the
    /// beginning of the areas of the largest size.
    ///
    /// # Errors
    /// Errors of files and devices; an interrupt.
    pub fn prepare(
        &mut self,
        sizes: &[u64],
        policy: Policy,
        live: &Live,
    ) -> Result<Vec<[Area; 2]>> {
        let bytes = sizes.iter().copied().max().unwrap_or(0);
        self.find_room(bytes)?;
        let Backing::Device { path, middle } = &*self else {
            for areas in [1, 2] {
                let (paths, bytes) = (self.paths("full", areas), bytes / areas as u64);
                Area::make(&paths, bytes, Content::Noise, policy, live)?;
            }
            let area = |size: u64, areas: usize| {
                let paths = self.paths("full", areas);
                let bytes = size / areas as u64;
                Ok(Area::open(&paths, bytes, Access::Write, policy)?.striped())
            };
            return sizes.iter().map(|&size| Ok([area(size, 1)?, area(size, 2)?])).collect();
        };
        let (starts, full) = ([0, *middle], Some((Content::Noise, live)));
        // The device is opened once: a writer opens it exclusively.
        let one = device::area(path, &starts[..1], bytes, Policy::Buffered, full);
        one.map(drop)?;
        let two = device::area(path, &starts, bytes / 2, policy, full)?.striped();
        let of_size = |&size: &u64| {
            let target = &two.targets()[0];
            let one = Area::parts(target, &starts[..1], size)?;
            Ok([one, Area::parts(target, &starts, size / 2)?.striped()])
        };
        sizes.iter().map(of_size).collect()
    }

    fn find_room(&mut self, bytes: u64) -> Result<()> {
        match self {
            Backing::Dirs { dirs, folders } => {
                for (number, dir) in dirs.iter().enumerate() {
                    let below = format!("{}{number}", CASE.name);
                    folders.push(Folder::make(dir, &below, bytes_in(number, bytes))?);
                }
            }
            Backing::Device { path, middle } => {
                *middle = middle_of(path, bytes)?;
            }
        }
        Ok(())
    }

    /// Removes the files that were created.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn clean(&mut self) -> Result<()> {
        let Backing::Dirs { folders, .. } = self else { return Ok(()) };
        folders.drain(..).map(|folder| folder.remove()).fold(Ok(()), Result::and)
    }
}

/// The offset of the second of two areas on a device. `bytes` is the size of both areas together;
/// the first area must not overlap the second.
fn middle_of(device: &Path, bytes: u64) -> Result<u64> {
    let len = FileDevice::open(device, Access::Read, Policy::Buffered)?.len()?;
    Ok((len / 2).next_multiple_of(ALIGN_BYTES).max(bytes / 2))
}

/// The bytes of the full files and the new files in a directory: the single area is in the first
/// directory, and each directory has half of the pair.
fn bytes_in(number: usize, bytes: u64) -> u64 {
    if number == 0 { 3 * bytes } else { bytes }
}
