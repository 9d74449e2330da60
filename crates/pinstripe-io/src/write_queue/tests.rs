use super::*;
use crate::device::{Access, AlignedBuf, BufferPool, MemoryDevice, PatternDevice, Policy, testing};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PIECE: usize = 8192;

fn settings(depth: usize) -> WriteQueueSettings {
    WriteQueueSettings { engine: Engine::Auto, depth, queued: 3 }
}

/// Memory that fails where it is told to, and remembers what happened in which order.
struct Moody {
    inner: MemoryDevice,
    /// Writes that begin here fail.
    bad: Range<u64>,
    fails_sync: bool,
    begun: AtomicUsize,
    log: Mutex<Vec<Option<u64>>>,
}

impl Moody {
    fn new(bad: Range<u64>) -> Arc<Self> {
        Arc::new(Moody::plain(bad, false))
    }

    fn plain(bad: Range<u64>, fails_sync: bool) -> Self {
        let inner = MemoryDevice::new("moody");
        Moody { inner, bad, fails_sync, begun: AtomicUsize::new(0), log: Mutex::default() }
    }

    fn error(&self, what: String) -> Error {
        Error::new(Kind::Io, what).at(self.place())
    }
}

impl Device for Moody {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if self.bad.contains(&offset) {
            return Err(self.error(format!("bad at {offset}")));
        }
        self.inner.write_at(offset, bytes)?;
        self.log.lock().unwrap().push(Some(offset));
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        if self.fails_sync {
            return Err(self.error("no sync".to_owned()));
        }
        self.log.lock().unwrap().push(None);
        Ok(())
    }

    crate::forward_device!(inner: long_by_parts read_at len set_len discard caps place);
}

fn aligned(pool: &BufferPool, number: u64) -> AlignedBuf {
    let mut buf = pool.take();
    buf.set_len(PIECE);
    PatternDevice::fill(1, number * PIECE as u64, &mut buf);
    buf
}

fn plain(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PatternDevice::fill(1, number * PIECE as u64, &mut bytes);
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PatternDevice::fill(1, 0, &mut bytes);
    bytes
}

#[test]
fn everything_is_written_and_every_buffer_comes_back() {
    for depth in [0, 1, 4] {
        let device = Arc::new(MemoryDevice::new("memory"));
        let pool = BufferPool::new(2, PIECE);
        let plain_back = AtomicUsize::new(0);
        let back = |it: Returned| {
            assert!(it.is_written);
            if matches!(it.buf, WriteBuf::Plain(_)) {
                plain_back.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            let shared: SharedDevice = device.clone();
            let queue = WriteQueue::start(scope, shared, settings(depth), back);
            assert_eq!(queue.engine(), Engine::Threads);
            std::thread::scope(|writers| {
                for writer in 0..4 {
                    let (queue, pool) = (&queue, &pool);
                    writers.spawn(move || {
                        for number in (writer..40).step_by(4) {
                            match number % 2 {
                                0 => queue.write(number * PIECE as u64, aligned(pool, number)),
                                _ => queue.write(number * PIECE as u64, plain(number, PIECE)),
                            }
                            .unwrap();
                        }
                    });
                }
            });
            queue.write(40 * PIECE as u64, plain(40, 777)).unwrap();
            queue.barrier().unwrap();
            assert!(device.to_vec() == pattern(40 * PIECE + 777));
            let traffic = queue.finish().unwrap();
            assert_eq!(traffic.written_bytes, 40 * PIECE as u64 + 777);
            assert_eq!((traffic.queued, traffic.writing), (0, 0));
        });
        assert_eq!((pool.free(), plain_back.into_inner()), (2, 21));
    }
}

#[test]
fn a_barrier_has_everything_before_it_synced() {
    let device = Moody::new(0..0);
    std::thread::scope(|scope| {
        let shared: SharedDevice = device.clone();
        let queue = WriteQueue::start(scope, shared, settings(4), drop);
        for round in 0..20_u64 {
            for number in 0..5 {
                queue.write(round * 100 + number, vec![1]).unwrap();
            }
            let barrier = queue.begin_barrier();
            queue.write(round * 100 + 50, vec![1]).unwrap();
            barrier.wait().unwrap();
            let log = device.log.lock().unwrap();
            let last_sync = log.iter().rposition(Option::is_none).unwrap();
            for number in 0..5 {
                let written = log.iter().position(|it| *it == Some(round * 100 + number));
                assert!(written.unwrap() < last_sync);
            }
        }
    });
    assert_eq!(device.begun.load(Ordering::SeqCst), 120);
}

#[test]
fn the_first_error_is_kept_and_no_buffer_is_lost() {
    for depth in [1, 4] {
        let device = Moody::new(500..600);
        let (written, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let back = |it: Returned| {
            let count = if it.is_written { &written } else { &refused };
            count.fetch_add(1, Ordering::SeqCst);
        };
        let mut sent = 0;
        std::thread::scope(|scope| {
            let shared: SharedDevice = device.clone();
            let queue = WriteQueue::start(scope, shared, settings(depth), back);
            let error = loop {
                sent += 1;
                if let Err(error) = queue.write(sent * 10, vec![1; 10]) {
                    break error;
                }
            };
            // One write in flight may have begun before the first failed; it is not the first.
            assert!(error.to_string().contains("bad at 5"), "{error}");
            for result in [queue.write(0, vec![1]), queue.barrier(), queue.barrier()] {
                assert_eq!(result.unwrap_err().to_string(), error.to_string());
            }
            assert_eq!(queue.error().unwrap().to_string(), error.to_string());
            assert_eq!(queue.finish().unwrap_err().to_string(), error.to_string());
        });
        assert_eq!(written.load(Ordering::SeqCst), device.log.lock().unwrap().len() as u64);
        assert_eq!(written.into_inner() + refused.into_inner(), sent + 1);
        assert!(device.to_vec_len() >= 500, "what came before was written");
    }
}

impl Moody {
    fn to_vec_len(&self) -> usize {
        self.inner.to_vec().len()
    }
}

/// Both engines on a file; by the kernel where there is one for us.
fn on_files(test: &str, check: impl Fn(&Path, Engine)) {
    for engine in [Engine::Threads, Engine::Uring] {
        if engine == Engine::Uring && testing::ring(test, 1).is_none() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("file"), engine);
    }
}

#[test]
fn both_engines_write_files_under_every_policy() {
    on_files("both_engines_write_files_under_every_policy", |path, engine| {
        for (policy, _) in Policy::ALL {
            let device = Arc::new(FileDevice::open(path, Access::Create, policy).unwrap());
            let pool = BufferPool::new(6, PIECE);
            std::thread::scope(|scope| {
                let settings = WriteQueueSettings { engine, ..settings(4) };
                let queue = WriteQueue::start(scope, Arc::clone(&device), settings, drop);
                assert_eq!(queue.engine(), engine);
                assert!(queue.refusal().is_none());
                for number in 0..60 {
                    let offset = number * PIECE as u64;
                    match number % 2 {
                        0 => queue.write(offset, aligned(&pool, number)),
                        _ => queue.write(offset, plain(number, PIECE)),
                    }
                    .unwrap();
                    if number % 20 == 7 {
                        queue.barrier().unwrap();
                    }
                }
                queue.write(60 * PIECE as u64, plain(60, 777)).unwrap();
                let traffic = queue.finish().unwrap();
                assert_eq!(traffic.written_bytes, 60 * PIECE as u64 + 777);
            });
            assert_eq!(pool.free(), 6);
            assert!(std::fs::read(path).unwrap() == pattern(60 * PIECE + 777), "{policy}");
            std::fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn both_engines_keep_a_file_s_first_error() {
    on_files("both_engines_keep_a_file_s_first_error", |path, engine| {
        std::fs::write(path, b"old").unwrap();
        for policy in [Policy::Buffered, Policy::Direct] {
            let device = Arc::new(FileDevice::open(path, Access::Read, policy).unwrap());
            let pool = BufferPool::new(3, PIECE);
            let refused = AtomicUsize::new(0);
            let back = |it: Returned| {
                assert!(!it.is_written);
                refused.fetch_add(1, Ordering::SeqCst);
            };
            let mut sent = 0;
            std::thread::scope(|scope| {
                let queue = WriteQueue::start(
                    scope,
                    device,
                    WriteQueueSettings { engine, ..settings(4) },
                    back,
                );
                let error = loop {
                    sent += 1;
                    if let Err(error) = queue.write(0, aligned(&pool, 0)) {
                        break error;
                    }
                };
                assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{error}");
                assert_eq!(queue.finish().unwrap_err().to_string(), error.to_string());
            });
            assert_eq!((refused.into_inner(), pool.free()), (sent, 3));
            assert_eq!(std::fs::read(path).unwrap(), b"old");
        }
    });
}

#[test]
fn auto_leaves_direct_writes_to_the_kernel() {
    let test = "auto_leaves_direct_writes_to_the_kernel";
    if testing::ring(test, 1).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (policy, _) in Policy::ALL {
            let path = folder.path().join(policy.to_string());
            let device = FileDevice::open(path, Access::CreateNew, policy).unwrap();
            let is_direct = device.policy().is_direct();
            let queue = WriteQueue::start(scope, Arc::new(device), settings(1), drop);
            let wanted = if is_direct { Engine::Uring } else { Engine::Threads };
            assert_eq!(queue.engine(), wanted, "{policy}");
        }
    });
}

#[test]
fn what_is_no_file_is_written_by_threads_and_it_says_so() {
    std::thread::scope(|scope| {
        for (engine, is_refused) in
            [(Engine::Auto, false), (Engine::Threads, false), (Engine::Uring, true)]
        {
            let device: SharedDevice = Arc::new(MemoryDevice::new("memory"));
            let queue = WriteQueue::start(
                scope,
                device,
                WriteQueueSettings { engine, ..settings(1) },
                drop,
            );
            assert_eq!(queue.engine(), Engine::Threads);
            assert_eq!(queue.refusal().is_some(), is_refused);
            queue.write(0, vec![1]).unwrap();
            queue.finish().unwrap();
        }
    });
}

#[test]
fn a_failed_sync_ends_the_queue() {
    let device: SharedDevice = Arc::new(Moody::plain(0..0, true));
    std::thread::scope(|scope| {
        let queue = WriteQueue::start(scope, device, settings(2), drop);
        queue.write(0, vec![1]).unwrap();
        assert_eq!(queue.barrier().unwrap_err().what(), "no sync");
        assert_eq!(queue.write(1, vec![1]).unwrap_err().what(), "no sync");
        assert_eq!(queue.begin_barrier().wait().unwrap_err().what(), "no sync");
    });
}

#[test]
fn a_queue_that_is_dropped_writes_what_it_has() {
    let device = Arc::new(MemoryDevice::new("memory"));
    std::thread::scope(|scope| {
        let shared: SharedDevice = device.clone();
        let queue = WriteQueue::start(scope, shared, settings(1), drop);
        for number in 0..3 {
            queue.write(number * PIECE as u64, plain(number, PIECE)).unwrap();
        }
    });
    assert!(device.to_vec() == pattern(3 * PIECE));
}

#[test]
fn a_panicking_device_keeps_nobody_waiting() {
    struct Panics(MemoryDevice);
    impl Device for Panics {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
            panic!("on purpose")
        }

        crate::forward_device!(0: long_by_parts read_at len set_len sync discard caps place);
    }
    let device: SharedDevice = Arc::new(Panics(MemoryDevice::new("panics")));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        std::thread::scope(|scope| {
            let queue = WriteQueue::start(scope, device, settings(2), drop);
            queue.write(0, vec![1]).unwrap();
            let error = queue.barrier().unwrap_err();
            assert_eq!(error.what(), "a writer thread panicked");
        });
    }));
    let message = outcome.unwrap_err().downcast::<&str>().map(|it| it.to_string());
    assert!(message.is_ok_and(|it| it.contains("scoped thread panicked")));
}
