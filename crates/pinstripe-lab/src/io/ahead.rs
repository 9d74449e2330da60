//! Reads a device through the read-ahead of overlays and mounts in this process: the same planner
//! and runner, but without a file system above them.

use std::ops::Range;
use std::path::Path;

use pinstripe_base::error::Result;
use pinstripe_io::device::{Caps, Device, SharedDevice, write_parts};
use pinstripe_prefetch::{Ahead, Bounds, FetchSource, Readers, Runner};

/// The most units that are read ahead of a reader, and the number of threads that fetch them; both
/// are as in an overlay.
const WINDOW: u32 = 64;
/// The number of units in memory: those read ahead, and those being read.
const UNITS: u64 = 80;
/// The only object.
const OBJECT: u64 = 0;

/// A device with read-ahead for its readers.
pub(crate) struct AheadDevice {
    runner: Runner<AheadUnits>,
    readers: Readers,
    bounds: Bounds,
}

struct AheadUnits {
    device: SharedDevice,
    unit_bytes: u64,
    bytes: u64,
}

impl AheadUnits {
    fn range(&self, unit: u64) -> Range<u64> {
        let start = unit * self.unit_bytes;
        start..(start + self.unit_bytes).min(self.bytes)
    }
}

impl FetchSource for AheadUnits {
    type Key = u64;
    type Unit = Vec<u8>;

    fn fetch(&self, unit: u64) -> Result<Vec<u8>> {
        let range = self.range(unit);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.device.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }
}

impl AheadDevice {
    /// A device with an empty cache, which is read in units of this length.
    ///
    /// # Errors
    /// Errors of reading the length of the device.
    pub fn new(device: SharedDevice, unit_bytes: u64) -> Result<Self> {
        let bytes = device.len()?;
        let total = u64::from(WINDOW) * unit_bytes;
        let bounds = Bounds { object: bytes, record: unit_bytes, window: WINDOW, total };
        let units = AheadUnits { device, unit_bytes, bytes };
        let runner = Runner::new(units, UNITS * unit_bytes, WINDOW as usize);
        Ok(AheadDevice { runner, readers: Readers::default(), bounds })
    }

    /// Starts the prefetch of the units that follow, before the read itself.
    fn plan(&self, range: Range<u64>) {
        let units = self.runner.source();
        let found = self.runner.presence(&(range.start / units.unit_bytes));
        let dropped = self.runner.take_dropped(OBJECT);
        let plan = self.readers.read(OBJECT, self.bounds, range, found, &dropped);
        self.runner.unwanted(OBJECT, &plan.drop);
        for range in plan.fetch {
            let numbers = range.start / units.unit_bytes..range.end.div_ceil(units.unit_bytes);
            self.runner.ahead(numbers.filter(|&key| !units.range(key).is_empty()).map(|key| {
                let part = units.range(key);
                Ahead { key, bytes: part.end - part.start, origin: (OBJECT, range.clone()) }
            }));
        }
    }
}

impl Device for AheadDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let units = self.runner.source();
        self.plan(offset..offset + buf.len() as u64);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (unit, within) = (at / units.unit_bytes, (at % units.unit_bytes) as usize);
            let range = units.range(unit);
            let bytes = self.runner.get(unit, range.end.saturating_sub(range.start))?;
            let part = bytes.get(within..).unwrap_or_default();
            if part.is_empty() {
                let place = units.device.place();
                return Err(pinstripe_io::device::too_short(place, offset, buf.len(), units.bytes));
            }
            let taken = part.len().min(buf.len() - done);
            buf[done..done + taken].copy_from_slice(&part[..taken]);
            done += taken;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(self.place()))
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.runner.source().bytes)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(read_only(self.place()))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(read_only(self.place()))
    }

    fn caps(&self) -> Caps {
        self.runner.source().device.caps()
    }

    fn place(&self) -> &Path {
        self.runner.source().device.place()
    }
}

pub(super) fn read_only(place: &Path) -> pinstripe_base::error::Error {
    let what = "a file that is read ahead can only be read";
    pinstripe_base::error::Error::new(pinstripe_base::error::Kind::Unsupported, what).at(place)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pinstripe_io::device::PatternDevice;

    use super::*;

    #[test]
    fn any_order_reads_what_the_device_has() {
        const BYTES: u64 = 10_000_123;
        let device = Arc::new(PatternDevice::new("pattern", 3, BYTES));
        let ahead = AheadDevice::new(device, 64 << 10).unwrap();
        let orders: [Vec<u64>; 3] = [
            (0..100).map(|n| n * 90_000).collect(),
            (0..100).rev().map(|n| n * 90_000).collect(),
            (0..100).map(|n| n * n * 7919 % 9_900_000).collect(),
        ];
        for offset in orders.into_iter().flatten() {
            let (mut read, mut wanted) = (vec![0; 70_000], vec![0; 70_000]);
            ahead.read_at(offset, &mut read).unwrap();
            PatternDevice::fill(3, offset, &mut wanted);
            assert!(read == wanted, "at {offset}");
        }
        assert!(ahead.runner.usage().ahead > 0, "the orders were found");
        assert!(ahead.runner.usage().peak <= UNITS * (64 << 10));
        ahead.read_at(BYTES - 10, &mut [0; 11]).unwrap_err();
        ahead.write_at(0, &[1]).unwrap_err();
    }
}
