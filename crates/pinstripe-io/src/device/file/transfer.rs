//! Moves bytes between memory and a file: whole pages directly, the rest through the page cache.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev, pwritev2};

use super::super::policy::Policy;
use super::super::{end_within, too_short};
use super::{FileDevice, is_refusal};
use crate::device::Device;
use pinstripe_base::error::Result;

/// The most parts in one call; the kernel accepts 1024.
const PARTS_AT_ONCE: usize = 512;

/// The descriptor that bypasses the page cache, with its alignment.
pub(super) struct Direct {
    pub file: File,
    pub block_bytes: usize,
    pub memory_align: usize,
}

/// The result of opening a file past the page cache.
pub(super) enum Second {
    Open(Direct),
    /// The file system refused, for this reason.
    Refused(io::Error),
}

impl Direct {
    /// The part of `len` bytes at `offset` that are complete blocks.
    pub(super) fn blocks(&self, offset: u64, len: usize) -> Range<usize> {
        let block = self.block_bytes as u64;
        let start = (offset.next_multiple_of(block) - offset).min(len as u64);
        let end = ((offset + len as u64) / block * block).saturating_sub(offset);
        start as usize..end.max(start) as usize
    }

    fn takes(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }
}

/// The descriptor for long writes that bypass the page cache, until it refuses one.
pub(super) struct LongDirect {
    direct: Direct,
    is_refused: AtomicBool,
}

impl LongDirect {
    pub fn new(direct: Direct) -> Self {
        LongDirect { direct, is_refused: AtomicBool::new(false) }
    }

    /// Whether direct writes were not refused so far.
    pub fn is_taken(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Whether these parts consist of whole blocks.
    pub fn takes(&self, offset: u64, parts: &[&[u8]]) -> bool {
        let block = self.direct.block_bytes;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.is_taken()
            && offset.is_multiple_of(block as u64)
            && end_within(offset, bytes, i64::MAX as u64).is_some()
            && parts.iter().all(|part| part.len().is_multiple_of(block))
    }
}

/// The part of a transfer that the kernel may do by itself.
pub(in crate::device) struct Way<'a> {
    pub file: &'a File,
    /// For each call.
    pub flags: i32,
    /// The alignment at which an incomplete call must end, so that another call can follow.
    pub block_bytes: usize,
    /// The number of bytes of this part; the rest of the transfer is for [`Device::read_at`] and
    /// [`Device::write_at`].
    pub len: usize,
    /// Whether the bytes must be copied to aligned memory.
    pub needs_copy: bool,
}

impl FileDevice {
    /// The part of a transfer between `memory` and `offset` that the kernel may do by itself.
    pub(in crate::device) fn way(&self, offset: u64, memory: &[u8]) -> Way<'_> {
        let is_within = end_within(offset, memory.len(), i64::MAX as u64).is_some();
        let Some(direct) = self.direct() else {
            let flags = self.flags().bits() as i32;
            let len = if is_within { memory.len() } else { 0 };
            return Way { file: &self.file, flags, block_bytes: 1, len, needs_copy: false };
        };
        let blocks = if is_within { direct.blocks(offset, memory.len()) } else { 0..0 };
        Way {
            file: &direct.file,
            flags: 0,
            block_bytes: direct.block_bytes,
            // From the middle of a block the kernel could only begin.
            len: if blocks.start == 0 { blocks.end } else { 0 },
            needs_copy: !direct.takes(memory),
        }
    }

    /// The descriptor that bypasses the page cache, unless direct I/O was refused.
    fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref().filter(|_| self.fallback.get().is_none())
    }

    pub(super) fn write_split(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(direct) = self.direct() else { return self.write_plain(offset, bytes) };
        let blocks = direct.blocks(offset, bytes.len());
        self.write_plain(offset, &bytes[..blocks.start])?;
        self.write_blocks(direct, offset + blocks.start as u64, &bytes[blocks.clone()])?;
        self.write_plain(offset + blocks.end as u64, &bytes[blocks.end..])
    }

    pub(super) fn read_split(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(direct) = self.direct() else { return self.read_plain(offset, buf) };
        let blocks = direct.blocks(offset, buf.len());
        self.read_plain(offset, &mut buf[..blocks.start])?;
        self.read_blocks(direct, offset + blocks.start as u64, &mut buf[blocks.clone()])?;
        self.read_plain(offset + blocks.end as u64, &mut buf[blocks.end..])
    }

    /// Writes whole blocks; copies them first if the disk cannot take their memory.
    fn write_blocks(&self, direct: &Direct, offset: u64, bytes: &[u8]) -> Result<()> {
        if direct.takes(bytes) {
            return self.write_direct(direct, offset, bytes);
        }
        let mut copy = self.bounce.take();
        let mut at = offset;
        for piece in bytes.chunks(copy.capacity()) {
            copy.clear();
            copy.extend_from_slice(piece);
            self.write_direct(direct, at, &copy)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes parts that are whole blocks past the page cache; copies them first if the disk cannot
    /// take their memory.
    pub(super) fn write_long(&self, long: &LongDirect, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        for parts in parts.chunk_by(|a, b| long.direct.takes(a) == long.direct.takes(b)) {
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            match parts.first().is_some_and(|first| long.direct.takes(first)) {
                true => self.write_gathered(long, at, parts)?,
                false => self.write_copied(long, at, parts)?,
            }
            at += bytes as u64;
        }
        Ok(())
    }

    fn write_copied(&self, long: &LongDirect, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let mut copy = self.bounce.take();
        let (mut at, most) = (offset, copy.capacity());
        for piece in parts.iter().flat_map(|part| part.chunks(most)) {
            if piece.len() > copy.room() {
                self.write_gathered(long, at, &[&copy])?;
                at += copy.len() as u64;
                copy.clear();
            }
            copy.extend_from_slice(piece);
        }
        self.write_gathered(long, at, &[&copy])
    }

    fn write_gathered(&self, long: &LongDirect, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        // Empty parts would look like a write that moved nothing.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let most = left.len().min(PARTS_AT_ONCE);
            let moved = match long.is_taken() {
                true => pwritev(&long.direct.file, &left[..most], at),
                false => Ok(0),
            };
            match moved {
                Ok(moved) if moved > 0 && moved.is_multiple_of(long.direct.block_bytes) => {
                    at += moved as u64;
                    IoSlice::advance_slices(&mut left, moved);
                }
                // Refused, or ended within a block: only the cache can continue from there.
                Ok(moved) => {
                    at += moved as u64;
                    IoSlice::advance_slices(&mut left, moved);
                    for slice in left.iter() {
                        self.write_plain(at, slice)?;
                        at += slice.len() as u64;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) if is_refusal(Some(errno.raw_os_error())) => {
                    long.is_refused.store(true, Ordering::Relaxed);
                }
                Err(errno) => return Err(self.cannot("cannot write", errno)),
            }
        }
        Ok(())
    }

    fn read_blocks(&self, direct: &Direct, offset: u64, buf: &mut [u8]) -> Result<()> {
        if direct.takes(buf) {
            return self.read_direct(direct, offset, buf);
        }
        let mut copy = self.bounce.take();
        let mut at = offset;
        for piece in buf.chunks_mut(copy.capacity()) {
            copy.set_len(piece.len());
            self.read_direct(direct, at, &mut copy)?;
            piece.copy_from_slice(&copy);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_direct(&self, direct: &Direct, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            match pwrite(&direct.file, &bytes[done..], at) {
                Ok(moved) if moved > 0 && moved.is_multiple_of(direct.block_bytes) => done += moved,
                // Ended within a block: only the cache can continue from there.
                Ok(moved) => return self.write_plain(at + moved as u64, &bytes[done + moved..]),
                Err(Errno::INTR) => {}
                Err(errno) if is_refusal(Some(errno.raw_os_error())) => {
                    self.write_plain(at, &bytes[done..])?;
                    // It was the way, not the bytes.
                    self.fall_back(errno);
                    return Ok(());
                }
                Err(errno) => return Err(self.cannot("cannot write", errno)),
            }
        }
        Ok(())
    }

    fn read_direct(&self, direct: &Direct, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match pread(&direct.file, &mut buf[done..], at) {
                Ok(moved) if moved > 0 && moved.is_multiple_of(direct.block_bytes) => done += moved,
                // The end of the file, as the cache will tell.
                Ok(moved) => return self.read_plain(at + moved as u64, &mut buf[done + moved..]),
                Err(Errno::INTR) => {}
                Err(errno) if is_refusal(Some(errno.raw_os_error())) => {
                    self.read_plain(at, &mut buf[done..])?;
                    self.fall_back(errno);
                    return Ok(());
                }
                Err(errno) => return Err(self.cannot("cannot read", errno)),
            }
        }
        Ok(())
    }

    /// Writes through the page cache.
    pub(super) fn write_plain(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let flags = self.flags();
            let moved = if flags.is_empty() {
                pwrite(&self.file, &bytes[done..], at)
            } else {
                pwritev2(&self.file, &[IoSlice::new(&bytes[done..])], at, flags)
            };
            match moved {
                Ok(0) => return Err(self.cannot("cannot write", ErrorKind::WriteZero)),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) if self.is_flag_refused(flags, errno) => {}
                Err(errno) => return Err(self.cannot("cannot write", errno)),
            }
        }
        Ok(())
    }

    /// Fills `buf` if the page cache has all of it. Returns false if it does not, or if that cannot be
    /// said without waiting for the disk.
    pub(in crate::device) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let is_possible = self.direct().is_none() && self.flags().is_empty();
        if !is_possible || end_within(offset, buf.len(), i64::MAX as u64).is_none() {
            return false;
        }
        let len = buf.len();
        let slices = &mut [IoSliceMut::new(buf)];
        preadv2(&self.file, slices, offset, ReadWriteFlags::NOWAIT).is_ok_and(|moved| moved == len)
    }

    /// Reads through the page cache.
    fn read_plain(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let flags = self.flags();
            let moved = if flags.is_empty() {
                pread(&self.file, &mut buf[done..], at)
            } else {
                preadv2(&self.file, &mut [IoSliceMut::new(&mut buf[done..])], at, flags)
            };
            match moved {
                Ok(0) => return Err(too_short(&self.path, offset, buf.len(), self.len()?)),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) if self.is_flag_refused(flags, errno) => {}
                Err(errno) => return Err(self.cannot("cannot read", errno)),
            }
        }
        Ok(())
    }

    /// The flags of each call through the page cache.
    fn flags(&self) -> ReadWriteFlags {
        if self.policy() == Policy::Uncached {
            return ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);
        }
        ReadWriteFlags::empty()
    }

    /// Whether a call failed because of its flags; if so, later calls have no flags.
    fn is_flag_refused(&self, flags: ReadWriteFlags, errno: Errno) -> bool {
        let refused = !flags.is_empty() && matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS);
        if refused {
            self.fall_back(errno);
        }
        refused
    }
}
