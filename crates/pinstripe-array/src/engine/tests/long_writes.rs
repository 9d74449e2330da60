//! Rows that are written as one long write to each member.

use std::sync::Mutex;

use super::filling::{BYTES, check_without_each};
use super::*;
use pinstripe_base::sync::lock;
use pinstripe_io::device::Device;
use pinstripe_io::forward_device;

/// A write that a member was given: whether a long one, its offset and bytes.
type Call = (bool, u64, usize);

/// A device that notes its writes, and may refuse long ones.
struct Noting {
    inner: Arc<MemoryDevice>,
    refuses_long: bool,
    calls: Mutex<Vec<Call>>,
}

impl Device for Noting {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        lock(&self.calls).push((false, offset, bytes.len()));
        self.inner.write_at(offset, bytes)
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        lock(&self.calls).push((true, offset, parts.iter().map(|part| part.len()).sum()));
        if self.refuses_long {
            return Err(Error::new(Kind::Io, "refused").at(self.place()));
        }
        self.inner.write_long_at(offset, parts)
    }

    forward_device!(inner: read_at len set_len sync discard caps place);
}

fn noting(disks: &[Arc<MemoryDevice>], refuses: impl Fn(usize) -> bool) -> Vec<Arc<Noting>> {
    let note = |(number, inner): (usize, &Arc<MemoryDevice>)| {
        let (inner, refuses_long) = (Arc::clone(inner), refuses(number));
        Arc::new(Noting { inner, refuses_long, calls: Mutex::default() })
    };
    disks.iter().enumerate().map(note).collect()
}

/// A batch writes what is long after what is short, so that no device has both at the same time;
/// whatever way they went, the bytes are there, and so is parity.
#[test]
fn long_writes_of_a_batch_come_after_its_short_ones() {
    for (level, count) in LEVELS {
        let disks = disks(count);
        let noting = noting(&disks, |_| false);
        let devices = noting.iter().map(|disk| Arc::clone(disk) as SharedDevice).collect();
        let mut flusher = create(&create_options(level), devices).unwrap();
        flusher.long_write_bytes = 2 * CHUNK as usize;
        let data_at = flusher.array().superblock().areas.data_at;
        let mut model = vec![0; BYTES];
        let mut put = |flusher: &Flusher, at: usize, bytes: usize, byte: u8| {
            model[at..at + bytes].fill(byte);
            flusher.array().write(at as u64, &model[at..at + bytes], Duration::ZERO).unwrap();
        };
        // A block beyond the rows that are full, and one before them.
        put(&flusher, 400 << 10, 4096, 1);
        put(&flusher, 0, 4096, 2);
        put(&flusher, 96 << 10, 192 << 10, 3);
        flusher.flush(Duration::MAX, 100).unwrap();
        for disk in &noting {
            let calls = std::mem::take(&mut *lock(&disk.calls));
            let data: Vec<Call> = calls.into_iter().filter(|it| it.1 >= data_at).collect();
            let first_long = data.iter().position(|it| it.0).expect("there is a long one");
            assert!(data[first_long..].iter().all(|it| it.0), "{level}: {data:?}");
            assert!(data[first_long..].iter().all(|it| it.2 >= 2 * CHUNK as usize), "{data:?}");
        }
        flusher.sync().unwrap();
        check(flusher.array(), &model, "running");
        drop(flusher);
        if level != Level::Raid0 {
            check_without_each(&disks, &model, &format!("{level}, long writes"));
        }
    }
}

/// A member that does not take a long write is marked failed, and misses nothing that is needed.
#[test]
fn a_member_that_takes_no_long_write_is_marked_failed() {
    for (level, count) in redundant() {
        let disks = disks(count);
        let noting = noting(&disks, |number| number == 1);
        let devices = noting.into_iter().map(|disk| disk as SharedDevice).collect();
        let mut flusher = create(&create_options(level), devices).unwrap();
        flusher.long_write_bytes = 2 * CHUNK as usize;
        let model = vec![9; BYTES];
        flusher.array().write(0, &model, Duration::ZERO).unwrap();
        flusher.sync().unwrap();
        assert!(!flusher.array().absent().is_empty(), "{level}");
        check(flusher.array(), &model, "without it");
    }
}
