//! A shared handle of a device is also a device, so that a wrapper may contain either.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::{Caps, Device};
use pinstripe_base::error::Result;

impl<D: Device + ?Sized> Device for Arc<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        (**self).write_at(offset, bytes)
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        (**self).write_long_at(offset, parts)
    }

    fn len(&self) -> Result<u64> {
        (**self).len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        (**self).set_len(bytes)
    }

    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        (**self).discard(range)
    }

    fn caps(&self) -> Caps {
        (**self).caps()
    }

    fn place(&self) -> &Path {
        (**self).place()
    }
}
