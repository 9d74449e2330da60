//! A running array as a device.

use std::ops::Range;
use std::path::Path;

use super::Volume;
use crate::format::BLOCK_BYTES;
use crate::limits::{LONG_READ, PIECE_BYTES};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, Run, Space, Sparse, write_parts};

impl Device for Volume {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let capacity = self.shared.array.capacity();
        if buf.is_empty() {
            return Ok(());
        }
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > capacity) {
            let end = u128::from(offset) + buf.len() as u128;
            return Err(Error::corrupt("the array ends before this range", self.place())
                .expected(format!("an array of {end} bytes or more"), capacity));
        }
        self.shared.counts.read(buf.len());
        let read = match buf.len() < LONG_READ {
            true => self.shared.array.read(offset, buf),
            false => self.shared.array.read_by(&*self.shared.pool, offset, buf),
        };
        read.map_err(|error| error.at(self.place()))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let shared = &*self.shared;
        let capacity = shared.array.capacity();
        if bytes.is_empty() {
            return Ok(());
        }
        // All of it or nothing: the end is checked before the first piece is added.
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > capacity) {
            let end = u128::from(offset) + bytes.len() as u128;
            return Err(Error::new(
                Kind::NoSpace,
                "the write would end beyond the end of the array",
            )
            .at(self.place())
            .expected(format!("an end at byte {capacity} at most"), end));
        }
        shared.counts.wrote(bytes.len());
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES) {
            shared.state.check().map_err(|error| error.at(self.place()))?;
            let gathered = shared.array.write(at, piece, shared.now())?;
            let dirty = || shared.array.dirty_bytes();
            shared.state.wrote(piece.len() as u64, &gathered, || shared.now(), dirty)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.shared.array.capacity())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let capacity = self.shared.array.capacity();
        if bytes == capacity {
            return Ok(());
        }
        let error = Error::new(Kind::Unsupported, "the length of an array cannot be set");
        Err(error
            .at(self.place())
            .expected(capacity, bytes)
            .advice("use 'pinstripe array grow' to enlarge the array"))
    }

    fn sync(&self) -> Result<()> {
        self.shared.counts.synced();
        self.shared.state.sync().map_err(|error| error.at(self.place()))
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        let what = "an array does not support discard";
        Err(Error::new(Kind::Unsupported, what).at(self.place()))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: BLOCK_BYTES as u32, is_block_device: true, device: None }
    }

    fn place(&self) -> &Path {
        &self.shared.place
    }
}

impl Sparse for Volume {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        let capacity = self.shared.array.capacity();
        if range.is_empty() || range.end > capacity {
            let what = "the range is empty or beyond the end of the array";
            return Err(Error::corrupt(what, self.place())
                .expected(format!("within {capacity} bytes"), format!("{range:?}")));
        }
        let (bytes, is_hole) = self.shared.array.run(range)?;
        Ok(Run { bytes, is_hole })
    }

    /// Blocks that were never written stay unwritten; all others are overwritten with zeros.
    fn zero(&self, range: Range<u64>, _: Space) -> Result<()> {
        let capacity = self.shared.array.capacity();
        if range.end > capacity && !range.is_empty() {
            return Err(Error::new(
                Kind::NoSpace,
                "the write would end beyond the end of the array",
            )
            .at(self.place())
            .expected(format!("an end at byte {capacity} at most"), range.end));
        }
        if !self.has_hole(range.clone())? {
            let what =
                "this device has no request that zeroes a range; the caller must write zeros";
            return Err(Error::new(Kind::Unsupported, what).at(self.place()));
        }
        let mut at = range.start;
        while at < range.end {
            let run = self.run(at..range.end)?;
            if !run.is_hole {
                self.write_zeros(at..at + run.bytes)?;
            }
            at += run.bytes;
        }
        Ok(())
    }
}

impl Volume {
    /// Whether any byte of a range was never written; true for an empty range.
    fn has_hole(&self, range: Range<u64>) -> Result<bool> {
        let mut at = range.start;
        while at < range.end {
            let run = self.run(at..range.end)?;
            if run.is_hole {
                return Ok(true);
            }
            at += run.bytes;
        }
        Ok(range.is_empty())
    }

    fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let bytes = (range.end - at).min(ZEROS.len() as u64);
            self.write_at(at, &ZEROS[..bytes as usize])?;
            at += bytes;
        }
        Ok(())
    }
}
