//! A scratch device: an image behind a loop device, or a device that may be overwritten, which is
//! formatted and mounted repeatedly.
//!
//! Invariant: however the process ends, no mount, loop device or image remains; see [`Image`] and
//! [`Mounted`]. A user's device keeps its last content unless it is [wiped](Scratch::wipe). This
//! module does not measure.

mod candidate;
mod image;
pub mod kinds;
mod mount;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;

use crate::run::Live;
use crate::safety;

pub(crate) use candidate::{FsCandidate, Maker};
pub use image::Image;
pub use mount::{Mounted, may_mount};

/// The advice for a user without the necessary rights.
const AS_ROOT: &str = "run the case as root, or measure a mounted file system with 'pinstripe lab \
                       run fileio --dir DIR'";

/// The device that is formatted and mounted.
#[derive(Debug)]
pub(crate) enum Scratch {
    /// A loop device on an unnamed file.
    Image(Image),
    /// A device that the user named.
    Device(PathBuf, File),
}

/// The longest wait until no process has the device open any more: io_uring releases files a moment
/// after they were closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two checks.
const PERIOD: Duration = Duration::from_millis(5);
/// The number of bytes overwritten at each end when a device is wiped; signatures are in these
/// bytes.
const END_BYTES: u64 = 1 << 20;
/// The offsets at which btrfs keeps copies of its superblock (`btrfs_sb_offset`), and the length of
/// a copy.
const COPIES: [u64; 2] = [64 << 20, 256 << 30];
const COPY_BYTES: u64 = 4096;

impl Scratch {
    /// Creates an image in a directory.
    ///
    /// # Errors
    /// The errors of [`Image::make`].
    pub fn image(dir: &Path, bytes: u64, live: &Live) -> Result<Scratch> {
        Ok(Scratch::Image(Image::make(dir, bytes, live)?))
    }

    /// Opens a device that its owner has permitted to be overwritten; the device is examined again.
    ///
    /// # Errors
    /// [`Kind::Refused`] if there is now an objection.
    pub fn device(path: &Path) -> Result<Scratch> {
        let failed = |error| Error::io("cannot open", path, error);
        // By its own name, since links may be put on another device meanwhile, and open from now
        // on: as long as it is, no other device gets that name.
        let path = std::fs::canonicalize(path).map_err(failed)?;
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        let examined = safety::examine(&path)?;
        // The user was asked before: what counts now is what has changed since.
        let serial = examined.serial.as_deref();
        examined.allow(safety::Consent { serial, overwrite_unknown: true })?;
        let scratch = Scratch::Device(path, file);
        scratch.alone()?;
        Ok(scratch)
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        match self {
            Scratch::Image(image) => image.path(),
            Scratch::Device(path, _) => path,
        }
    }

    fn file(&self) -> &File {
        match self {
            Scratch::Image(image) => image.device(),
            Scratch::Device(_, file) => file,
        }
    }

    /// The length.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn bytes(&self) -> Result<u64> {
        let mut file = self.file();
        let len = file.seek(SeekFrom::End(0));
        len.map_err(|error| Error::io("cannot examine", self.path(), error))
    }

    /// The description, for people.
    pub fn about(&self) -> String {
        let path = self.path().display();
        let way = match self {
            Scratch::Device(..) => return format!("on the complete device {path}"),
            Scratch::Image(image) if image.is_direct() => {
                "bypassing the page cache of the underlying file system"
            }
            Scratch::Image(_) => {
                "through the page cache of the underlying file system, which does not support \
                 direct I/O"
            }
        };
        let bytes = self.bytes().map_or("unknown size".to_owned(), format_size);
        format!(
            "on {path}, a loop device over an image of {bytes} that was completely written before, \
             {way}"
        )
    }

    /// The command that creates a candidate on the device, without the name of the device.
    pub fn arguments(&self, candidate: &FsCandidate) -> Vec<String> {
        let kind = candidate.kind;
        let keeping = match self {
            Scratch::Image(_) => kind.keeping_blocks,
            Scratch::Device(..) => &[],
        };
        let words = kind.quietly.iter().chain(keeping).map(|word| (*word).to_owned());
        words.chain(candidate.making.iter().cloned()).collect()
    }

    /// Creates a file system on the device after removing its previous content, and returns the
    /// time that the program took.
    ///
    /// # Errors
    /// [`Kind::Busy`] if the device is in use; [`Kind::Io`] with the last message of the program;
    /// [`Kind::Interrupted`] after a stop request.
    pub fn format(&self, maker: &Maker, live: &Live) -> Result<Duration> {
        // A program that looks for a free loop device holds this one for an instant, although it is
        // not free (`bd_prepare_to_claim` in drivers/block/loop.c): that must not end hours of
        // measuring.
        match self.format_once(maker, live) {
            Err(error) if error.kind() == Kind::Io => self.format_once(maker, live),
            other => other,
        }
    }

    fn format_once(&self, maker: &Maker, live: &Live) -> Result<Duration> {
        let Maker { candidate, program } = maker;
        live.check()?;
        self.wipe()?;
        let mut command = Command::new(program);
        command.args(self.arguments(candidate)).arg(self.path());
        // In a directory where no word of its arguments can be the name of a file or device.
        command.current_dir("/proc").env("LC_ALL", "C").env_remove("POSIXLY_CORRECT");
        let began = Instant::now();
        let ran = crate::program::run(&mut command, live)?;
        let took = began.elapsed();
        if ran.status.success() {
            return Ok(took);
        }
        let mut lines = ran.out.lines().chain(ran.err.lines()).map(str::trim);
        let last = lines.rfind(|line| !line.is_empty()).unwrap_or("it printed no message");
        let what = format!("{} failed ({}): {last}", candidate.kind.program, ran.status);
        let advice = format!("the installed version may not support the options of '{candidate}'");
        Err(Error::new(Kind::Io, what).at(self.path()).advice(advice))
    }

    /// Mounts the file system of the device, with none of its data in the page cache.
    ///
    /// # Errors
    /// The errors of [`Mounted::new`].
    pub fn mount(&self, candidate: &FsCandidate) -> Result<Mounted> {
        self.settle()?;
        let kind = candidate.kind;
        let without_discard = match self {
            Scratch::Image(_) => kind.without_discard,
            Scratch::Device(..) => &[],
        };
        let ours = kind.settled.iter().chain(without_discard).map(|it| (*it).to_owned());
        let options: Vec<String> = ours.chain(candidate.mounting.iter().cloned()).collect();
        self.patiently(|| Mounted::new(self.path(), kind.name, &options))
    }

    /// Unmounts a file system, and waits until it is unmounted.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another process still has the device open after some time.
    pub fn unmount(&self, mounted: Mounted) -> Result<()> {
        drop(mounted);
        self.alone().map(drop)
    }

    /// Removes every known signature from the device, unless it is in use.
    ///
    /// # Errors
    /// [`Kind::Busy`] if the device is in use; other errors as the system reports them.
    pub fn wipe(&self) -> Result<()> {
        let (file, len) = (self.alone()?, self.bytes()?);
        let failed = |error| Error::io("cannot be wiped", self.path(), error);
        let zeros = vec![0; END_BYTES as usize];
        let ends = [(0, END_BYTES), (len.saturating_sub(END_BYTES), END_BYTES)];
        for (at, bytes) in ends.into_iter().chain(COPIES.map(|at| (at, COPY_BYTES))) {
            let bytes = bytes.min(len.saturating_sub(at));
            file.write_all_at(&zeros[..bytes as usize], at).map_err(failed)?;
        }
        image::settle(&file).map_err(failed)
    }

    /// Opens the device exclusively for this process; all writes to the device use this descriptor.
    fn alone(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_EXCL);
        let failed = |error| Error::io("cannot open", self.path(), error);
        let file = self.patiently(|| options.open(self.path()).map_err(failed))?;
        let number = |file: &File| file.metadata().map(|it| it.rdev()).map_err(failed);
        match number(&file)? == number(self.file())? {
            true => Ok(file),
            false => {
                Err(Error::new(Kind::Changed, "another device has replaced this one")
                    .at(self.path()))
            }
        }
    }

    /// Repeats an action for some time while another process has the device open.
    fn patiently<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            match act() {
                Err(error) if error.raw_os_error() != Some(libc::EBUSY) => return Err(error),
                Err(_) if began.elapsed() >= PATIENCE => {
                    let error = Error::new(Kind::Busy, "another process now uses this device");
                    return Err(error.at(self.path()));
                }
                Err(_) => std::thread::sleep(PERIOD),
                done => return done,
            }
        }
    }

    /// Writes back and drops the pages of the device in the page cache.
    fn settle(&self) -> Result<()> {
        let failed = |error| {
            Error::io("the writes to this device cannot be made durable", self.path(), error)
        };
        image::settle(self.file()).map_err(failed)?;
        match self {
            Scratch::Image(image) => image.settle(),
            Scratch::Device(..) => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
