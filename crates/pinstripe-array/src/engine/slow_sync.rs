//! Tests of an array's status while a member is slow to sync.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::assemble::examine;
use super::*;
use crate::executor::{Executor, TaskKind};
use crate::format::superblock::Consistency;
use crate::geometry::{Layout, Level};
use pinstripe_base::sync::lock;
use pinstripe_io::device::{Device, MemoryDevice, SharedDevice};
use pinstripe_io::forward_device;

const MEMBER_BYTES: u64 = 3 << 20;

/// A device whose next sync, once channels are set, announces itself on one channel and waits for
/// the other.
struct HeldSync {
    inner: MemoryDevice,
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl HeldSync {
    fn new(number: usize) -> Arc<Self> {
        let inner = MemoryDevice::with_limit(format!("disk{number}"), MEMBER_BYTES);
        inner.set_len(MEMBER_BYTES).unwrap();
        Arc::new(HeldSync { inner, next: Mutex::default() })
    }

    /// Makes the next sync wait. Returns the channel on which the next sync announces itself, and
    /// the channel that lets it continue.
    fn stop_next(&self) -> (Receiver<()>, Sender<()>) {
        let ((arrive, arrived), (go, wait)) = (channel(), channel());
        *lock(&self.next) = Some((arrive, wait));
        (arrived, go)
    }
}

impl Device for HeldSync {
    fn sync(&self) -> Result<()> {
        let channels = lock(&self.next).take();
        if let Some((arrive, wait)) = channels {
            arrive.send(()).unwrap();
            wait.recv().unwrap();
        }
        Ok(())
    }

    forward_device!(inner: read_at write_at write_long_at len set_len discard caps place);
}

/// An executor that starts a thread for each task.
struct Threads;

impl Executor for Threads {
    fn each(&self, _: TaskKind, count: usize, task: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            (0..count).for_each(|number| _ = scope.spawn(move || task(number)));
        });
    }

    fn is_slow(&self, _: TaskKind) -> bool {
        true
    }
}

fn made(disks: &[Arc<HeldSync>]) -> Flusher {
    let options = CreateOptions {
        name: "test".to_owned(),
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_bytes: 16 << 10,
        log_bytes: 512 << 10,
        consistency: Consistency::Log,
        now_seconds: 0,
    };
    let devices = disks.iter().map(|disk| Arc::clone(disk) as SharedDevice).collect();
    create(&options, devices).unwrap()
}

/// The status shows only durable changes until the slowest member has made the new one durable.
#[test]
fn a_status_waits_for_no_sync() {
    let disks: Vec<_> = (0..3).map(HeldSync::new).collect();
    let mut flusher = made(&disks);
    let array = Arc::clone(flusher.array());
    let before = array.status();
    let (arrived, go) = disks[2].stop_next();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| flusher.set_granule(Some(8192)));
        arrived.recv().unwrap();
        let meanwhile = array.status();
        assert_eq!((meanwhile.generation, meanwhile.granule), (before.generation, None));
        assert!(!array.wants_work() && array.absent().is_empty());
        go.send(()).unwrap();
        publishing.join().unwrap().unwrap();
    });
    let after = array.status();
    assert_eq!((after.generation, after.granule), (before.generation + 1, Some(8192)));
}

/// While one superblock change waits for a slow member, another change waits too: the first is on
/// all members before the second begins.
#[test]
fn superblocks_reach_the_members_in_order() {
    let disks: Vec<_> = (0..3).map(HeldSync::new).collect();
    let flusher = made(&disks);
    let array = flusher.array();
    let before = array.superblock().generation;
    let (arrived, go) = disks[1].stop_next();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| array.update_superblocks(|it| it.granule = 4096));
        arrived.recv().unwrap();
        let (done, second_done) = channel();
        scope.spawn(move || done.send(array.update_superblocks(|it| it.granule *= 2)).unwrap());
        assert!(second_done.recv_timeout(std::time::Duration::from_millis(50)).is_err());
        go.send(()).unwrap();
        first.join().unwrap().unwrap();
        second_done.recv().unwrap().unwrap();
    });
    let superblock = array.superblock();
    assert_eq!((superblock.generation, superblock.granule), (before + 2, 8192));
    for disk in disks {
        let own = examine(&(disk as SharedDevice)).unwrap();
        assert_eq!((own.generation, own.granule), (before + 2, 8192));
    }
}

/// All members sync at the same time: if they synced one after the other, the second sync would
/// never begin.
#[test]
fn superblocks_are_synced_side_by_side() {
    let disks: Vec<_> = (0..3).map(HeldSync::new).collect();
    let mut flusher = made(&disks);
    flusher.set_executor(Arc::new(Threads));
    let channels: Vec<_> = disks.iter().map(|disk| disk.stop_next()).collect();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| flusher.set_granule(Some(8192)));
        channels.iter().for_each(|(arrived, _)| arrived.recv().unwrap());
        channels.iter().for_each(|(_, go)| go.send(()).unwrap());
        publishing.join().unwrap().unwrap();
    });
}
