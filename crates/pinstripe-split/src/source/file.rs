//! A file or block device, read at any offset.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::{ByteSource, Extent, Identity};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::meta::{FileKind, Stat};

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct BulkFile {
    fd: OwnedFd,
    place: PathBuf,
    identity: Identity,
    has_holes: bool,
}

impl BulkFile {
    /// Takes over an open descriptor of a file or block device.
    ///
    /// # Errors
    /// Fails with the error of the system, when it does not report the length.
    pub fn new(fd: OwnedFd, place: &Path, stat: &Stat) -> Result<Self> {
        let identity = if stat.kind == FileKind::BlockDevice {
            // The end of a device is where its size says (blkdev_llseek in block/fops.c): no
            // ioctl is needed for that.
            let bytes = rustix::fs::seek(&fd, SeekFrom::End(0))
                .map_err(|errno| Error::io("cannot find the length of the source", place, errno))?;
            let (major, minor) = stat.rdev;
            let device = rustix::fs::makedev(major, minor);
            Identity { device, inode: 0, bytes, modified_seconds: 0, modified_nanos: 0 }
        } else {
            Identity {
                device: stat.device,
                inode: stat.inode,
                bytes: stat.size_bytes,
                modified_seconds: stat.mtime.seconds,
                modified_nanos: stat.mtime.nanos,
            }
        };
        let has_holes =
            stat.kind == FileKind::File && stat.blocks.saturating_mul(512) < stat.size_bytes;
        // Advice only: reading is right without it.
        let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Sequential);
        Ok(BulkFile { fd, place: place.into(), identity, has_holes })
    }

    /// Returns whether there is data or a hole at `at`, and where it ends.
    fn seek(&self, at: u64) -> Result<Extent, Errno> {
        let end = self.identity.bytes;
        match rustix::fs::seek(&self.fd, SeekFrom::Data(at)) {
            Ok(data) if data > at => return Ok(Extent { end: data.min(end), is_hole: true }),
            Ok(_) => {}
            // Everything behind it is a hole, or the file is shorter now. Only its size shows
            // which: a hole is not read, so no read would notice.
            Err(Errno::NXIO) => {
                let size = rustix::fs::fstat(&self.fd)?.st_size as u64;
                return Ok(Extent { end, is_hole: size >= end });
            }
            Err(errno) => return Err(errno),
        }
        match rustix::fs::seek(&self.fd, SeekFrom::Hole(at)) {
            Ok(hole) => Ok(Extent { end: hole.clamp(at + 1, end), is_hole: false }),
            Err(Errno::NXIO) => Ok(Extent { end, is_hole: false }),
            Err(errno) => Err(errno),
        }
    }
}

impl ByteSource for BulkFile {
    fn length(&self) -> Option<u64> {
        Some(self.identity.bytes)
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.identity)
    }

    fn extent(&self, at: u64) -> Result<Extent> {
        let data = Extent { end: self.identity.bytes, is_hole: false };
        if !self.has_holes {
            return Ok(data);
        }
        self.seek(at).or_else(|errno| match errno {
            // A file system that knows no holes.
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Ok(data),
            _ => {
                let what = format!("cannot find the holes of the source after byte {at}");
                Err(Error::io(what, &self.place, errno))
            }
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.identity.bytes.saturating_sub(offset);
        let wanted = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        let mut filled = 0;
        while filled < wanted {
            let at = offset + filled as u64;
            let to = &mut buffer[filled..wanted];
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut *to, at)) {
                Ok(0) => {
                    return Err(Error::new(
                        Kind::Changed,
                        "the source became shorter while it was read",
                    )
                    .at(&self.place)
                    .expected(
                        format!("{} bytes", self.identity.bytes),
                        format!("the end of the source at byte {at}"),
                    ));
                }
                Ok(count) => filled += count,
                Err(errno) => {
                    return Err(Error::io(
                        format!("cannot read the source at byte {at}"),
                        &self.place,
                        errno,
                    ));
                }
            }
        }
        Ok(wanted)
    }

    fn readahead(&self, range: Range<u64>) {
        if let Some(bytes) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = rustix::fs::fadvise(&self.fd, range.start, Some(bytes), Advice::WillNeed);
        }
    }
}
