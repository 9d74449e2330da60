//! A part of a device that is read as if it were one extent of a stripe set.

use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;
use pinstripe_member::{
    BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Member, Replace,
};

/// A read-only member with a single extent, which it returns for any name.
pub struct Window {
    device: SharedDevice,
    start: u64,
    bytes: u64,
}

impl Window {
    /// Makes a window of at most `bytes` bytes from `start` on, as far as the device has them.
    pub fn new(device: SharedDevice, start: u64, bytes: u64) -> Self {
        Window { device, start, bytes }
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::new(Kind::Unsupported, "this output can be written only in complete stripe sets"))
}

impl Member for Window {
    fn create(&self, _name: ExtentName, _replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        read_only()
    }

    fn put(&self, _name: ExtentName, _bytes: &[u8]) -> Result<()> {
        read_only()
    }

    fn read_at(&self, _name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(Error::corrupt(
                "the read is beyond the end of the extent",
                self.device.place(),
            )
            .expected(format!("within {}", self.bytes), offset));
        }
        self.device.read_at(self.start + offset, buf)
    }

    fn read_at_hand(&self, _: ExtentName, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn len(&self, _name: ExtentName) -> Result<u64> {
        let there = self.device.len()?.saturating_sub(self.start);
        match there {
            0 => Err(Error::new(Kind::NotFound, "the output ends before this offset")
                .at(self.device.place())),
            _ => Ok(there.min(self.bytes)),
        }
    }

    fn list(&self, _room: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        Ok(Vec::new())
    }

    fn delete(&self, _name: ExtentName) -> Result<()> {
        read_only()
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0)
    }

    fn caps(&self) -> Caps {
        Caps { device: None, free_bytes: None, is_full: false, is_append_only: false, far: None }
    }

    fn place(&self) -> &Path {
        self.device.place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        None
    }
}
