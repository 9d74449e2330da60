//! Devices that behave so that a test can see what the server does.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use pinstripe_base::error::Result;
use pinstripe_io::device::{Caps, Device, MemoryDevice, Run, Space, Sparse};

use super::noise;

const STRIPE: u64 = 8 << 10;

/// Memory with `len` bytes of noise.
pub fn memory(len: usize) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new("memory");
    device.write_at(0, &noise(1, len)).unwrap();
    Arc::new(device)
}

/// A device on which reads at 0 wait until they are let go.
#[derive(Clone)]
pub struct Gate {
    inner: Arc<MemoryDevice>,
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub fn new() -> Self {
        Gate { inner: memory(1 << 20), is_open: Arc::default() }
    }

    pub fn open(&self) {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
    }
}

impl Device for Gate {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset == 0 {
            let is_open = self.is_open.0.lock().unwrap();
            drop(self.is_open.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }
    fn caps(&self) -> Caps {
        self.inner.caps()
    }
    fn place(&self) -> &Path {
        self.inner.place()
    }
}

/// A device of which every other 8 KiB, from the first on, are a hole.
pub struct Stripes(pub Arc<MemoryDevice>);

impl Device for Stripes {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)?;
        for (at, byte) in (offset..).zip(buf) {
            *byte *= (at / STRIPE % 2) as u8;
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.0.set_len(bytes)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.0.discard(range)
    }
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn place(&self) -> &Path {
        self.0.place()
    }
}

impl Sparse for Stripes {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        let end = (range.start + 1).next_multiple_of(STRIPE).min(range.end);
        Ok(Run { bytes: end - range.start, is_hole: (range.start / STRIPE).is_multiple_of(2) })
    }
    fn zero(&self, range: Range<u64>, space: Space) -> Result<()> {
        self.0.zero(range, space)
    }
}
