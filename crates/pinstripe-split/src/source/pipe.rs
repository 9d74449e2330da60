//! A stream that can only be read from beginning to end: a pipe, a FIFO, a terminal, a character
//! device, or the rest of a file whose beginning another process has read.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{ByteSource, Extent, Identity};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The requested size of a kernel pipe buffer: the default limit (`pipe-max-size`, man 7 pipe)
/// grants this to every user.
const PIPE_BYTES: usize = 1 << 20;

/// An open stream.
#[derive(Debug)]
pub struct Pipe {
    fd: OwnedFd,
    place: PathBuf,
    /// Bytes read so far. Locked while a range is read, so that each reader gets a contiguous
    /// range.
    at: Mutex<u64>,
}

impl Pipe {
    /// Takes over a readable descriptor.
    pub fn new(fd: OwnedFd, place: &Path) -> Self {
        // A longer buffer saves turns between writer and reader; anything but a pipe refuses.
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_BYTES);
        Pipe { fd, place: place.into(), at: Mutex::new(0) }
    }

    /// Reads once; waits for data even if the descriptor is non-blocking (O_NONBLOCK was set by its
    /// opener and is shared by all processes that have it).
    fn read(&self, to: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match retry_on_intr(|| rustix::io::read(&self.fd, &mut *to)) {
                Err(Errno::AGAIN) => {
                    let mut waiting = [PollFd::new(&self.fd, PollFlags::IN)];
                    retry_on_intr(|| rustix::event::poll(&mut waiting, None))?;
                }
                other => return other,
            }
        }
    }
}

impl ByteSource for Pipe {
    fn length(&self) -> Option<u64> {
        None
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn identity(&self) -> Option<Identity> {
        None
    }

    fn extent(&self, _: u64) -> Result<Extent> {
        Ok(Extent { end: u64::MAX, is_hole: false })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut at = lock(&self.at);
        if *at != offset {
            return Err(Error::new(Kind::Unsupported, "a pipe can only be read sequentially")
                .at(&self.place)
                .expected(format!("a read at byte {at}"), format!("byte {offset}")));
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    *at += count as u64;
                }
                Err(errno) => {
                    return Err(Error::io(
                        format!("cannot read the source at byte {at}"),
                        &self.place,
                        errno,
                    ));
                }
            }
        }
        Ok(filled)
    }

    fn readahead(&self, _: Range<u64>) {}
}
