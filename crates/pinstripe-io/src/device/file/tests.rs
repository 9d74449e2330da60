use super::*;
use crate::device::{AlignedBuf, conformance};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Files with names of their own in one directory.
struct Files(tempfile::TempDir, AtomicU32);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap(), AtomicU32::new(0))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join(self.1.fetch_add(1, Ordering::Relaxed).to_string())
    }

    fn fresh(&self, policy: Policy) -> FileDevice {
        FileDevice::open(self.path(), Access::CreateNew, policy).unwrap()
    }
}

/// Whether long writes go past the page cache.
fn writes_long_directly(device: &FileDevice) -> bool {
    device.policy.is_direct() && device.fallback.get().is_none()
        || device.long.as_ref().is_some_and(LongDirect::is_taken)
}

#[test]
fn every_policy_keeps_the_rules_of_the_seam() {
    let files = Files::new();
    for (policy, _) in Policy::ALL {
        conformance::run(&|| Box::new(files.fresh(policy)));
    }
}

#[test]
fn a_refused_policy_keeps_the_rules_of_the_seam() {
    let files = Files::new();
    for policy in [Policy::Direct, Policy::DirectDsync, Policy::Uncached] {
        let refused = || {
            let device = files.fresh(policy);
            device.fall_back(Errno::INVAL);
            device
        };
        assert_eq!(refused().policy(), policy.fallback());
        assert_eq!(refused().fallback().unwrap().asked, policy);
        assert!(refused().fallback().unwrap().to_string().contains("Invalid argument"));
        conformance::run(&|| Box::new(refused()));
    }
}

fn long(files: &Files) -> FileDevice {
    files.fresh(Policy::Buffered).with_direct_long_writes().unwrap()
}

#[test]
fn long_writes_past_the_cache_keep_the_rules_of_the_seam() {
    let files = Files::new();
    conformance::run(&|| Box::new(long(&files)));
    let refused = || {
        let device = long(&files);
        if let Some(long) = &device.long {
            long.refuse();
        }
        assert!(!writes_long_directly(&device));
        device
    };
    conformance::run(&|| Box::new(refused()));
}

/// Where the file system takes direct writes, a long write leaves nothing in the cache that a sync
/// would have to wait for.
#[test]
fn long_writes_go_past_the_cache() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("file");
    let device = FileDevice::open(path, Access::CreateNew, Policy::Buffered).unwrap();
    let device = device.with_direct_long_writes().unwrap();
    if !writes_long_directly(&device) {
        return pinstripe_testing::skipped(
            "long_writes_go_past_the_cache",
            "no direct writes here",
        );
    }
    let mut bytes = AlignedBuf::new(1 << 20);
    bytes.resize(1 << 20);
    device.write_long_at(0, &[&bytes]).unwrap();
    assert_eq!(cached_pages(&device, 1 << 20), 0);
    device.write_at(0, &bytes[..8192]).unwrap();
    assert!(cached_pages(&device, 1 << 20) >= 2, "a short write goes through the cache");
}

/// Pages of a file's beginning that the page cache has (mincore(2)).
fn cached_pages(device: &FileDevice, bytes: usize) -> usize {
    use std::os::fd::AsRawFd;
    let mut pages = vec![0u8; bytes / 4096];
    // SAFETY: a new mapping of an open file, which is asked about and unmapped; nothing reads it.
    unsafe {
        let fd = device.file.as_raw_fd();
        let at = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, bytes, pages.as_mut_ptr()), 0);
        libc::munmap(at, bytes);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn what_is_written_is_in_the_file() {
    let files = Files::new();
    for (policy, _) in Policy::ALL {
        let device = files.fresh(policy);
        let mut aligned = AlignedBuf::new(3 * 4096);
        aligned.set_len(3 * 4096);
        aligned.fill(5);
        device.write_at(4096, &aligned).unwrap();
        device.write_at(4 * 4096, b"the end").unwrap();
        device.sync().unwrap();
        let found = std::fs::read(device.place()).unwrap();
        let wanted = [&[0; 4096][..], &aligned, b"the end"].concat();
        assert!(found == wanted, "{policy}");
        assert!(device.fallback().is_none_or(|it| it.used == policy.fallback()), "{policy}");
    }
}

#[test]
fn access_decides_what_must_be_there() {
    let files = Files::new();
    let path = files.path();
    let open = |access| FileDevice::open(&path, access, Policy::Direct);
    let kind = |access| open(access).err().map(|error| error.kind());
    assert_eq!(kind(Access::Read), Some(Kind::NotFound));
    assert_eq!(kind(Access::Write), Some(Kind::NotFound));
    open(Access::CreateNew).unwrap().write_at(0, b"kept").unwrap();
    assert_eq!(kind(Access::CreateNew), Some(Kind::Exists));
    for access in [Access::Read, Access::Write, Access::Create] {
        let mut found = [0; 4];
        open(access).unwrap().read_at(0, &mut found).unwrap();
        assert_eq!(&found, b"kept", "{access:?}");
    }
    assert_eq!(open(Access::Read).unwrap().write_at(0, b"x").unwrap_err().kind(), Kind::Io);
    std::fs::remove_file(&path).unwrap();
    open(Access::Create).unwrap();
}

#[test]
fn what_is_no_file_is_refused() {
    let files = Files::new();
    let fifo = files.path();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for path in [files.0.path(), &fifo, Path::new("/dev/tty")] {
        for access in [Access::Read, Access::Write, Access::Create] {
            let error = FileDevice::open(path, access, Policy::Buffered).err().unwrap();
            assert_eq!((error.kind(), error.place()), (Kind::Usage, Some(path)));
        }
    }
}

#[test]
fn a_failed_sync_stays_failed() {
    let files = Files::new();
    let device = files.fresh(Policy::Buffered);
    device.sync().unwrap();
    let error = Error::io("cannot", device.place(), Errno::IO);
    *device.failed_sync.lock().unwrap() = Some(error);
    for _ in 0..2 {
        assert_eq!(device.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    }
}

#[test]
fn whole_blocks_are_found_in_any_range() {
    let file = tempfile::tempfile().unwrap();
    let direct = Direct { file, block_bytes: 4096, memory_align: 512 };
    for (offset, len, blocks) in [
        (0, 0, 0..0),
        (0, 4096, 0..4096),
        (0, 5000, 0..4096),
        (1, 4095, 4095..4095),
        (1, 8191, 4095..8191),
        (1, 8195, 4095..8191),
        (1, 100, 100..100),
        (4000, 200, 96..96),
        (4096, 4095, 0..0),
    ] {
        assert_eq!(direct.blocks(offset, len), blocks, "{len} bytes at {offset}");
    }
}

#[derive(Debug, Clone)]
enum Act {
    Write { offset: u64, len: usize, shift: usize, byte: u8 },
    Read { offset: u64, len: usize, shift: usize },
    SetLen(u64),
    Discard(u64, u64),
    Sync,
}

/// Places about pages, and anywhere.
fn places() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..40_u64).prop_map(|page| page * 4096),
        (0..40_u64, 0..3_u64).prop_map(|(page, off)| page * 4096 + off),
        0..160_000_u64,
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    let lens = || prop_oneof![places().prop_map(|len| len as usize), 0..600_usize];
    let shifts = || prop_oneof![Just(0_usize), Just(512), 0..64_usize];
    prop_oneof![
        6 => (places(), lens(), shifts(), any::<u8>())
            .prop_map(|(offset, len, shift, byte)| Act::Write { offset, len, shift, byte }),
        3 => (places(), lens(), shifts())
            .prop_map(|(offset, len, shift)| Act::Read { offset, len, shift }),
        1 => places().prop_map(Act::SetLen),
        1 => (places(), places()).prop_map(|(a, b)| Act::Discard(a.min(b), a.max(b))),
        1 => Just(Act::Sync),
    ]
}

/// Does the same to a device and to a list of bytes, and compares.
fn act(device: &FileDevice, model: &mut Vec<u8>, act: &Act) {
    match *act {
        Act::Write { offset, len, shift, byte } => {
            let mut buf = AlignedBuf::new(len + shift);
            buf.set_len(len + shift);
            buf.iter_mut().enumerate().for_each(|(at, it)| *it = byte.wrapping_add(at as u8));
            device.write_at(offset, &buf[shift..]).unwrap();
            let range = offset as usize..offset as usize + len;
            if len > 0 {
                model.resize(model.len().max(range.end), 0);
                model[range].copy_from_slice(&buf[shift..]);
            }
        }
        Act::Read { offset, len, shift } => {
            let mut buf = AlignedBuf::new(len + shift);
            buf.set_len(len + shift);
            let range = offset as usize..offset as usize + len;
            match (device.read_at(offset, &mut buf[shift..]), model.get(range)) {
                (Ok(()), Some(wanted)) => assert!(&buf[shift..] == wanted),
                (Ok(()), None) => assert_eq!(len, 0),
                (Err(error), wanted) => assert!(wanted.is_none(), "{error}"),
            }
        }
        Act::SetLen(len) => {
            device.set_len(len).unwrap();
            model.resize(len as usize, 0);
        }
        Act::Discard(start, end) => {
            match device.discard(start..end) {
                Err(error) if error.kind() == Kind::Unsupported => return,
                other => other.unwrap(),
            }
            let end = (end as usize).min(model.len());
            let start = (start as usize).min(end);
            model[start..end].fill(0);
        }
        Act::Sync => device.sync().unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_acts_give_the_bytes_of_a_plain_list(
        acts in prop::collection::vec(acts(), 1..24),
        policy in (0..6_usize).prop_map(|at| Policy::ALL[at].0),
    ) {
        let files = Files::new();
        let device = files.fresh(policy);
        let mut model = Vec::new();
        for it in &acts {
            act(&device, &mut model, it);
        }
        prop_assert_eq!(device.len().unwrap(), model.len() as u64);
        prop_assert!(std::fs::read(device.place()).unwrap() == model);
        let mut found = vec![0; model.len()];
        device.read_at(0, &mut found).unwrap();
        prop_assert!(found == model);
    }
}

/// More parts than one call takes, some of them in memory that the disk does not take as it is.
#[test]
fn a_long_write_of_many_parts_is_in_the_file() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let device = FileDevice::open(dir.path().join("file"), Access::CreateNew, Policy::Buffered);
    let device = device.unwrap().with_direct_long_writes().unwrap();
    const PARTS: usize = 1500;
    let mut memory = AlignedBuf::new((PARTS + 1) * 4096);
    memory.resize((PARTS + 1) * 4096);
    for (number, byte) in memory.iter_mut().enumerate() {
        *byte = (number / 512 + number) as u8;
    }
    // The first 600 fit as they are; then come runs of those that do and those that do not.
    let aside = |number: usize| usize::from(number >= 600 && (number / 100).is_multiple_of(2));
    let part = |number: usize| &memory[number * 4096 + aside(number)..][..4096];
    let parts: Vec<&[u8]> = (0..PARTS).map(part).collect();
    device.write_long_at(8192, &parts).unwrap();
    let found = std::fs::read(device.place()).unwrap();
    assert!(found[..8192].iter().all(|byte| *byte == 0));
    assert!(found[8192..] == parts.concat());
}

/// A reader through the cache, while a long write goes past it, leaves nothing old there.
#[test]
fn a_read_beside_a_long_write_keeps_nothing_old() {
    const BYTES: usize = 256 << 10;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let device = FileDevice::open(dir.path().join("file"), Access::CreateNew, Policy::Buffered);
    let device = device.unwrap().with_direct_long_writes().unwrap();
    device.set_len(BYTES as u64).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut bytes = vec![0; BYTES];
                while !is_over.load(Ordering::Relaxed) {
                    device.read_at(0, &mut bytes).unwrap();
                }
            });
        }
        let mut bytes = AlignedBuf::new(BYTES);
        bytes.resize(BYTES);
        for round in 1..200u8 {
            bytes.fill(round);
            device.write_long_at(0, &[&bytes]).unwrap();
            // A short write that follows, as parity of a block does.
            device.write_at(4096, &[round; 4096]).unwrap();
            let mut found = vec![0; BYTES];
            device.read_at(0, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == round), "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    device.sync().unwrap();
}
