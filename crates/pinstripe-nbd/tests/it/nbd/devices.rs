//! Devices that behave so that a test can see what the server does.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use pinstripe_base::error::Result;
use pinstripe_io::device::{Device, MemoryDevice, Run, Space, Sparse};
use pinstripe_io::forward_device;

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

    forward_device!(inner: write_at write_long_at len set_len sync discard caps place);
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

    forward_device!(0: write_at write_long_at len set_len sync discard caps place);
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
