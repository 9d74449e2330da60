//! A device shown as a file: what goes wrong in the device reaches the reader and the server.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;
use pinstripe_io::device::{Device, MemoryDevice, Run, Space, Sparse};
use pinstripe_io::forward_device;
use pinstripe_nbd::{DeviceMount, MountOptions};
use pinstripe_testing::skipped;
use rustix::mount::{UnmountFlags, unmount};

const BYTES: u64 = 8 << 20;

/// Zeros, and an error behind the half.
struct Broken(MemoryDevice);

impl Device for Broken {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset + buf.len() as u64 > BYTES / 2 {
            return Err(Error::new(Kind::Changed, "broke off").at(self.place()));
        }
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> Result<u64> {
        Ok(BYTES)
    }

    fn place(&self) -> &Path {
        Path::new("broken")
    }

    forward_device!(0: write_at write_long_at set_len sync discard caps);
}

impl Sparse for Broken {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        Ok(Run { bytes: range.end - range.start, is_hole: false })
    }

    fn zero(&self, range: Range<u64>, space: Space) -> Result<()> {
        self.0.zero(range, space)
    }
}

fn options() -> MountOptions {
    MountOptions { name: "zeros".to_owned(), threads: 2, is_read_only: true, may_change: true }
}

#[test]
fn an_error_of_the_device_reaches_its_reader_and_its_server() {
    let test = "an_error_of_the_device_reaches_its_reader_and_its_server";
    let here = tempfile::tempdir().unwrap();
    let memory = MemoryDevice::new("broken");
    memory.set_len(BYTES).unwrap();
    let mount = match DeviceMount::new(Arc::new(Broken(memory)), here.path(), &options()) {
        Ok(mount) => mount,
        Err(error) => return skipped(test, &format!("mounting: {error}")),
    };
    let file = File::open(mount.file()).unwrap();
    let stop = &Stop::new().unwrap();
    let told = std::thread::scope(|scope| {
        let served = scope.spawn(|| mount.serve(stop));
        let mut read = [7; 4096];
        let before = file.read_at(&mut read, 4096);
        let behind = file.read_at(&mut [0; 4096], BYTES - 4096);
        drop(file);
        stop.set();
        assert_eq!(before.unwrap(), 4096);
        assert_eq!(read, [0; 4096]);
        assert_eq!(behind.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        served.join().unwrap()
    });
    let error = told.unwrap_err();
    assert_eq!((error.kind(), error.what()), (Kind::Changed, "broke off"));
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn serving_ends_when_another_unmounts() {
    let test = "serving_ends_when_another_unmounts";
    let here = tempfile::tempdir().unwrap();
    let memory = MemoryDevice::new("memory");
    memory.set_len(BYTES).unwrap();
    let mount = match DeviceMount::new(Arc::new(memory), here.path(), &options()) {
        Ok(mount) => mount,
        Err(error) => return skipped(test, &format!("mounting: {error}")),
    };
    let stop = &Stop::new().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| mount.serve(stop));
        let unmounted = unmount(here.path(), UnmountFlags::empty());
        if let Err(errno) = unmounted {
            stop.set();
            skipped(test, &format!("unmounting: {errno}"));
        }
        served.join().unwrap().unwrap();
        assert_eq!(stop.is_set(), unmounted.is_err());
    });
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
}
