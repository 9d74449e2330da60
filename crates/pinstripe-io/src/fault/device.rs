//! A device that follows a plan of faults, and counts.
//!
//! Invariant: with an empty plan it is the inner device, call for call. A fault in a write stays
//! within the range of that write; a sync that failed once stays failed.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use super::plan::{Operation, Plan};
use super::work::{Faults, Statistics, Verdict};
use crate::device::{Caps, Device, write_parts};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;

/// A device with faults.
pub struct FaultyDevice<D> {
    inner: D,
    faults: Faults,
    failed_sync: Mutex<Option<Error>>,
}

impl<D: Device> FaultyDevice<D> {
    /// Puts a plan before a device. The `member` keys of the plan are ignored: see
    /// [`Plan::for_member`].
    pub fn new(inner: D, plan: Plan) -> Self {
        let faults = Faults::new(inner.place(), plan);
        FaultyDevice { inner, faults, failed_sync: Mutex::default() }
    }

    /// The device behind the faults.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The calls so far.
    pub fn statistics(&self) -> Statistics {
        self.faults.statistics()
    }

    fn enter(&self, operation: Operation, bytes: usize) -> Result<Verdict> {
        self.faults.enter(operation, None, &|| self.faults.place.clone(), bytes)
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let verdict = self.enter(Operation::Read, buf.len())?;
        if let Some(kept) = verdict.kept(buf.len()) {
            self.inner.read_at(offset, &mut buf[..kept])?;
            return Err(Error::corrupt("simulated fault: the read ends early", self.place())
                .expected(format!("{} bytes", buf.len()), kept));
        }
        self.inner.read_at(offset, buf)?;
        verdict.flip(buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let verdict = self.enter(Operation::Write, bytes.len())?;
        match verdict.arriving(bytes) {
            Some(bytes) => self.inner.write_at(offset, &bytes),
            None => Ok(()),
        }
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        self.enter(Operation::Len, 0)?;
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.enter(Operation::SetLen, 0)?;
        self.inner.set_len(bytes)
    }

    fn sync(&self) -> Result<()> {
        let mut failed = lock(&self.failed_sync);
        if let Some(error) = &*failed {
            return Err(error.duplicate());
        }
        let struck = self.enter(Operation::Sync, 0).map(drop);
        struck.map_err(|error| failed.insert(error).duplicate())?;
        self.inner.sync()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.enter(Operation::Discard, 0)?;
        self.inner.discard(range)
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn place(&self) -> &Path {
        &self.faults.place
    }
}

#[cfg(test)]
mod tests;
