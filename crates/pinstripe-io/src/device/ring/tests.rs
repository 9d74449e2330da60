use super::*;
use crate::device::testing::ring;
use crate::device::{Access, BufferPool, PatternDevice, Policy};
use std::collections::BTreeSet;

const LEN: usize = 1 << 20;

fn device(folder: &tempfile::TempDir, policy: Policy) -> Arc<FileDevice> {
    let path = folder.path().join(policy.to_string());
    Arc::new(FileDevice::open(path, Access::Create, policy).unwrap())
}

fn pattern(offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PatternDevice::fill(4, offset, &mut bytes);
    bytes
}

fn aligned(bytes: &[u8]) -> AlignedBuf {
    let mut buf = AlignedBuf::new(bytes.len());
    buf.extend_from_slice(bytes);
    buf
}

/// Cuts 1 MiB, and a little more, into pieces that begin on pages and between them.
fn pieces() -> Vec<(u64, usize)> {
    let mut pieces = vec![(0, 4096), (4096, 65_536), (69_632, 1000), (70_632, 3096)];
    let mut at = 73_728;
    for len in [8192, 100_001, 4095, 1, 65_536, 12_288, 40_960].into_iter().cycle() {
        let len = len.min(LEN + 777 - at);
        if len == 0 {
            return pieces;
        }
        pieces.push((at as u64, len));
        at += len;
    }
    pieces
}

fn reap_all(ring: &mut Ring) -> Vec<Completion> {
    (0..ring.in_flight()).map(|_| ring.reap().unwrap()).collect()
}

#[test]
fn any_piece_is_written_and_read_under_every_policy() {
    let test = "any_piece_is_written_and_read_under_every_policy";
    let folder = tempfile::tempdir().unwrap();
    for (policy, _) in Policy::ALL {
        let Some(mut ring) = ring(test, 4) else { return };
        let device = device(&folder, policy);
        for (number, (offset, len)) in pieces().into_iter().enumerate() {
            let bytes = pattern(offset, len);
            match number % 2 {
                0 => ring.submit_write(&device, offset, bytes, number as u64),
                _ => ring.submit_write(&device, offset, aligned(&bytes), number as u64),
            }
        }
        assert_eq!(ring.in_flight(), pieces().len());
        let mut tokens = BTreeSet::new();
        for done in reap_all(&mut ring) {
            done.result.unwrap();
            let (offset, len) = pieces()[done.token as usize];
            assert!(*done.buf == pattern(offset, len), "the buffer is the one that was given");
            assert_eq!(matches!(done.buf, WriteBuf::Plain(_)), done.token.is_multiple_of(2));
            tokens.insert(done.token);
        }
        assert_eq!(tokens.len(), pieces().len());
        assert!(std::fs::read(device.place()).unwrap() == pattern(0, LEN + 777), "{policy}");

        for (number, (offset, len)) in pieces().into_iter().enumerate() {
            match number % 2 {
                0 => ring.submit_read(&device, offset, aligned(&vec![7; len]), number as u64),
                _ => ring.submit_read(&device, offset, vec![7; len], number as u64),
            }
        }
        for done in reap_all(&mut ring) {
            done.result.unwrap();
            let (offset, len) = pieces()[done.token as usize];
            assert!(*done.buf == pattern(offset, len), "{policy}: {len} bytes at {offset}");
        }
    }
}

#[test]
fn errors_come_with_the_buffer() {
    let test = "errors_come_with_the_buffer";
    let folder = tempfile::tempdir().unwrap();
    for policy in [Policy::Buffered, Policy::Direct, Policy::Uncached] {
        let Some(mut ring) = ring(test, 2) else { return };
        let writable = device(&folder, policy);
        writable.write_at(0, &pattern(0, 10_000)).unwrap();
        let read_only = FileDevice::open(writable.place(), Access::Read, policy).unwrap();
        let read_only = Arc::new(read_only);
        ring.submit_write(&read_only, 0, aligned(&[1; 4096]), 1);
        ring.submit_write(&read_only, 0, vec![1; 10], 2);
        ring.submit_write(&writable, u64::MAX - 3, vec![1; 10], 3);
        ring.submit_read(&writable, 4096, vec![1; 8192], 4);
        ring.submit_read(&writable, 1 << 40, aligned(&[1; 4096]), 5);
        ring.submit_read(&writable, u64::MAX, vec![1; 10], 6);
        let mut found = reap_all(&mut ring);
        found.sort_by_key(|done| done.token);
        let wanted =
            [Kind::Io, Kind::Io, Kind::NoSpace, Kind::Corrupt, Kind::Corrupt, Kind::Corrupt];
        for (done, kind) in found.iter().zip(wanted) {
            let error = done.result.as_ref().unwrap_err();
            assert_eq!(error.kind(), kind, "{policy}, {}: {error}", done.token);
            assert_eq!(error.place(), Some(writable.place()));
        }
        let lens: Vec<_> = found.iter().map(|done| done.buf.len()).collect();
        assert_eq!(lens, [4096, 10, 10, 8192, 4096, 10]);
        assert_eq!(writable.len().unwrap(), 10_000);
    }
}

#[test]
fn a_way_that_is_refused_meanwhile_is_left() {
    let test = "a_way_that_is_refused_meanwhile_is_left";
    let folder = tempfile::tempdir().unwrap();
    for policy in [Policy::Direct, Policy::Uncached] {
        let Some(mut ring) = ring(test, 8) else { return };
        let device = device(&folder, policy);
        for (number, (offset, len)) in pieces().into_iter().enumerate() {
            ring.submit_write(&device, offset, pattern(offset, len), number as u64);
            if number == 7 {
                device.fall_back(rustix::io::Errno::INVAL);
            }
        }
        reap_all(&mut ring).into_iter().for_each(|done| done.result.unwrap());
        assert!(std::fs::read(device.place()).unwrap() == pattern(0, LEN + 777));
    }
}

#[test]
fn a_ring_that_is_dropped_waits() {
    let test = "a_ring_that_is_dropped_waits";
    let folder = tempfile::tempdir().unwrap();
    let pool = BufferPool::new(8, 65_536);
    for policy in [Policy::Direct, Policy::Buffered] {
        let Some(mut ring) = ring(test, 8) else { return };
        let device = device(&folder, policy);
        for number in 0..8 {
            let mut buf = pool.take();
            buf.extend_from_slice(&pattern(number * 65_536, 65_536));
            ring.submit_write(&device, number * 65_536, buf, number);
        }
        drop(ring);
        assert_eq!(pool.free(), 8);
        assert_eq!(Arc::strong_count(&device), 1);
        assert!(std::fs::read(device.place()).unwrap() == pattern(0, 8 * 65_536));
    }
}

#[test]
fn nothing_in_flight_is_nothing_to_reap() {
    let Some(mut ring) = ring("nothing_in_flight_is_nothing_to_reap", 1) else { return };
    assert_eq!(ring.reap().unwrap_err().kind(), Kind::Usage);
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(ring.reap_until(soon).unwrap().is_none());
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn what_ends_before_a_moment_is_reaped_and_a_moment_that_passes_costs_nothing() {
    let Some(mut ring) = ring("what_ends_before_a_moment_is_reaped", 8) else { return };
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, Policy::Buffered);
    for number in 0..8 {
        ring.submit_write(&device, number * 4096, pattern(number * 4096, 4096), number);
    }
    let mut reaped = 0;
    while ring.in_flight() > 0 {
        // Over already: what has ended is taken in all the same.
        let early = ring.reap_until(Instant::now()).unwrap();
        let landed = match early {
            Some(landed) => Some(landed),
            None => ring.reap_until(Instant::now() + Duration::from_secs(60)).unwrap(),
        };
        landed.expect("a minute is enough").result.unwrap();
        reaped += 1;
    }
    assert_eq!(reaped, 8);
    assert!(std::fs::read(device.place()).unwrap()[..8 * 4096] == pattern(0, 8 * 4096));
}

#[test]
fn what_forbids_a_ring_is_told_from_what_breaks_it() {
    let kind = |number| unusable(io::Error::from_raw_os_error(number)).kind();
    for number in [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::ENOMEM] {
        assert_eq!(kind(number), Kind::Unsupported);
    }
    assert_eq!(kind(libc::EMFILE), Kind::Io);
    let passes = |number| passing(io::Error::from_raw_os_error(number)).is_ok();
    assert!(passes(libc::EINTR) && passes(libc::EAGAIN) && passes(libc::ETIME));
    assert!(!passes(libc::EBADF));
}
