//! Makes the objects of a Ceph pool a device, which `--engine ceph:POOL` measures.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, write_parts};
use pinstripe_rados::{Cluster, Pool};

use super::at_once;

/// The time limit for one request.
const DEADLINE: Duration = Duration::from_secs(60);
/// The default namespace in the pool: it contains no objects of other programs.
const NAMESPACE: &str = "pinstripe-lab";
/// The number of threads that remove objects at the end.
const REMOVERS: usize = 16;
/// The alignment value that means no alignment is required.
const ALIGN_BYTES: u32 = 1;

/// An operation on an object: its name, the offset in it, and the part of the caller's range.
type ObjectOperation<'a> = &'a mut dyn FnMut(&str, u64, Range<usize>) -> Result<()>;

/// Objects of equal length that together form a device, one after the other. The objects are
/// removed when the device is dropped.
pub(crate) struct CephDevice {
    pool: Pool,
    place: PathBuf,
    prefix: String,
    object_bytes: u64,
    bytes: AtomicU64,
}

impl CephDevice {
    /// An empty device in `POOL` or `POOL/NAMESPACE`, stored as objects of this length. Devices
    /// with different numbers have different objects.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without librados; errors of connecting to the cluster.
    pub fn new(
        pool: &str,
        conf: &Path,
        user: &str,
        (number, object_bytes): (u64, u64),
    ) -> Result<Self> {
        let (name, namespace) = pool.split_once('/').unwrap_or((pool, NAMESPACE));
        if name.is_empty() || object_bytes == 0 {
            return Err(Error::new(Kind::Usage, "the Ceph cluster has no pool with this name")
                .advice("give the engine in the form ceph:POOL or ceph:POOL/NAMESPACE"));
        }
        let place = PathBuf::from(format!("ceph:{name}/{namespace}"));
        let pool = Cluster::connect(conf, user, DEADLINE)?.pool(name, namespace)?;
        let (seconds, nanos) = pinstripe_base::clock::now();
        let prefix = format!("record.{}.{seconds}.{nanos}.{number}", std::process::id());
        Ok(CephDevice { pool, place, prefix, object_bytes, bytes: AtomicU64::new(0) })
    }

    fn object(&self, number: u64) -> String {
        format!("{}.{number:08}", self.prefix)
    }

    /// Calls `act` for each object that a range covers, with the offset in the object and the
    /// corresponding part of the range.
    fn each(&self, offset: u64, length: usize, act: ObjectOperation<'_>) -> Result<()> {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = at % self.object_bytes;
            let part = ((self.object_bytes - within) as usize).min(length - done);
            act(&self.object(at / self.object_bytes), within, done..done + part)?;
            done += part;
        }
        Ok(())
    }
}

impl Device for CephDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.each(offset, buf.len(), &mut |object, at, part| {
            let wanted = part.len();
            match self.pool.read(object, at, &mut buf[part])? {
                read if read == wanted => Ok(()),
                read => Err(Error::corrupt(
                    "an object of the Ceph pool is shorter than expected",
                    &self.place,
                )
                .expected(wanted, read)),
            }
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.each(offset, bytes.len(), &mut |object, at, part| {
            self.pool.write(object, at, &bytes[part])
        })?;
        self.bytes.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.load(Ordering::Relaxed))
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "objects of a Ceph pool cannot be truncated here")
            .at(&self.place))
    }

    /// Does nothing, because data that the cluster has confirmed is durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "objects of the Ceph pool are removed only at the end")
            .at(&self.place))
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: ALIGN_BYTES, is_block_device: false, device: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}

impl Drop for CephDevice {
    fn drop(&mut self) {
        let count = self.bytes.load(Ordering::Relaxed).div_ceil(self.object_bytes);
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        at_once(REMOVERS, |_| {
            while !is_over.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                // After the first that fails the cluster is gone, and each would take its deadline.
                if number >= count || self.pool.remove(&self.object(number)).is_err() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        });
    }
}
