//! The answers to a client that keeps the rules.

use std::sync::Arc;

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::Stop;
use pinstripe_io::device::{Access, Device, FileDevice, NullDevice, Policy, SharedDevice, Sparse};
use pinstripe_io::fault::{CutDevice, FaultyDevice, Power};
use pinstripe_nbd::{Address, Export, Server, Settings, serve_socket};

use super::devices::{Gate, Stripes, memory};
use super::raw::*;
use super::{noise, served};

const MIB: usize = 1 << 20;

#[test]
fn requests_are_carried_out_by_workers_and_by_the_reader() {
    // After many quick requests, the reader hands over no more.
    for before in [0, 200] {
        let device = memory(MIB);
        let exports = [Export::sparse("", device.clone()).described("a megabyte")];
        served(&exports, Settings::default(), |path| {
            let mut client = Raw::ready(path, "", false);
            let mut wanted = noise(1, MIB);
            for _ in 0..before {
                assert_eq!(client.read(0, 1).unwrap(), wanted[..1]);
                assert_eq!(client.write(0, 0, &wanted[..1]), 0);
            }
            assert!(client.read(0, MIB as u32).unwrap() == wanted);
            assert!(client.read(4095, 3).unwrap() == wanted[4095..4098]);
            for (flags, offset, len) in [(0, 5, 70_000), (FUA, 4096, 4096), (0, MIB - 1, 1)] {
                let bytes = noise(2, len);
                assert_eq!(client.write(flags, offset as u64, &bytes), 0);
                wanted[offset..offset + len].copy_from_slice(&bytes);
            }
            assert_eq!(client.ask(WRITE_ZEROES, 0, 100, 200_000), 0);
            assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE | FAST_ZERO | FUA, 300_000, 5), 0);
            assert_eq!(client.ask(TRIM, FUA, 400_000, 5000), 0);
            // Of a flush, place and length mean nothing.
            assert_eq!(client.ask(FLUSH, FUA, u64::MAX, u32::MAX), 0);
            wanted[100..200_100].fill(0);
            wanted[300_000..300_005].fill(0);
            let trimmed = 400_000..405_000;
            let found = client.read(0, MIB as u32).unwrap();
            assert!(found[..trimmed.start] == wanted[..trimmed.start]);
            assert!(found[trimmed.end..] == wanted[trimmed.end..]);
            client.request(DISCONNECT, 0, 0, 0, 0);
            assert!(client.is_cut_off());
            assert!(device.to_vec() == found);
        });
        let traffic = exports[0].traffic();
        assert_eq!((traffic.connections, traffic.disconnections), (1, 1));
        assert_eq!((traffic.reads, traffic.read_bytes), (before + 3, before + 2 * MIB as u64 + 3));
        let written = before + 70_000 + 4096 + 1;
        assert_eq!((traffic.writes, traffic.written_bytes), (before + 3, written));
        assert_eq!((traffic.flushes, traffic.trims, traffic.zeroes), (1, 1, 2));
        assert_eq!((traffic.errors, traffic.refusals), (0, 0));
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    for workers in [1, 16] {
        let exports = [Export::new("", memory(MIB))];
        served(&exports, Settings { workers, ..Settings::default() }, |path| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut client = Raw::ready(path, "", false);
                        for cookie in 0..100 {
                            client.request(READ, 0, cookie, cookie * 1000, 5000);
                        }
                        let mut seen = [false; 100];
                        for _ in 0..100 {
                            let (cookie, error) = client.simple();
                            assert_eq!(error, 0);
                            assert!(!std::mem::replace(&mut seen[cookie as usize], true));
                            let start = cookie as usize * 1000;
                            assert!(client.take(5000) == noise(1, MIB)[start..start + 5000]);
                        }
                    });
                }
            });
        });
        assert_eq!(exports[0].traffic().reads, 400);
    }
}

#[test]
fn a_slow_request_keeps_no_other_waiting() {
    let gate = Gate::new();
    let exports = [Export::new("", Arc::new(gate.clone()))];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "", false);
        client.request(READ, 0, 1, 0, 10);
        client.request(READ, 0, 2, 10, 10);
        assert_eq!(client.simple(), (2, 0));
        client.take(10);
        let mut other = Raw::ready(path, "", false);
        assert_eq!(other.read(5, 1).unwrap(), noise(1, 6)[5..]);
        gate.open();
        assert_eq!(client.simple(), (1, 0));
        assert_eq!(client.take(10), noise(1, 10));
    });
}

#[test]
fn what_was_begun_before_the_stop_is_answered() {
    let gate = Gate::new();
    let exports = [Export::new("", Arc::new(gate.clone()))];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let stop = Stop::new().unwrap();
    let server = Server::bind(&[Address::Unix(path.clone())]).unwrap();
    std::thread::scope(|scope| {
        let monitor = Monitor::default();
        let settings = Settings::default();
        let (exports, server, stop) = (&exports, &server, &stop);
        let serving = scope.spawn(move || server.serve(exports, &settings, &monitor, stop));
        let (mut client, mut idle) = (Raw::ready(&path, "", false), Raw::ready(&path, "", false));
        client.request(READ, 0, 1, 0, 10);
        client.request(READ, 0, 2, 10, 10);
        assert_eq!(client.simple().0, 2); // So the first has been taken as well.
        client.take(10);
        stop.set();
        assert!(idle.is_cut_off());
        gate.open();
        assert_eq!(client.simple(), (1, 0));
        client.take(10);
        assert!(client.is_cut_off());
        serving.join().unwrap().unwrap();
    });
    assert!(path.exists());
    drop(server);
    assert!(!path.exists());
}

/// The content of the first `len` bytes by the chunks; each byte must be told once.
fn content(chunks: &[Chunk], len: usize) -> Vec<u8> {
    let (mut bytes, mut told) = (vec![0; len], 0);
    for chunk in chunks {
        let offset = u64::from_be_bytes(chunk.data[..8].try_into().unwrap()) as usize;
        assert_eq!(offset, told);
        if chunk.kind == 1 {
            told += chunk.data.len() - 8;
            bytes[offset..told].copy_from_slice(&chunk.data[8..]);
        } else {
            assert_eq!((chunk.kind, chunk.data.len()), (2, 12));
            told += u32::from_be_bytes(chunk.data[8..].try_into().unwrap()) as usize;
        }
    }
    assert_eq!(told, len);
    bytes
}

/// Lengths and states of an answer for block status.
fn extents(bytes: &[u8]) -> Vec<(u32, u32)> {
    let number = |it: &[u8]| u32::from_be_bytes(it.try_into().unwrap());
    bytes.chunks(8).map(|it| (number(&it[..4]), number(&it[4..]))).collect()
}

#[test]
fn a_reply_has_only_so_many_parts() {
    let device = Stripes(memory(24 * MIB));
    let wanted: Vec<u8> = noise(1, 24 * MIB)
        .chunks(16 << 10)
        .flat_map(|it| [&[0; 8 << 10], &it[8 << 10..]].concat())
        .collect();
    let exports = [Export::sparse("", Arc::new(device))];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "", true);
        let chunks = client.chunks(READ, 0, 0, 24 * MIB as u32);
        assert!(content(&chunks, 24 * MIB) == wanted);
        assert_eq!(chunks.len(), 65);
        let status = client.chunks(BLOCK_STATUS, 0, 100, 24 * MIB as u32 - 100);
        let extents = extents(&status[0].data[4..]);
        assert_eq!((extents.len(), extents[0], extents[1]), (1024, (8092, 3), (8192, 0)));
    });
}

#[test]
fn structured_replies_leave_holes_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let file = FileDevice::open(path, Access::CreateNew, Policy::Buffered).unwrap();
    file.set_len(4 * MIB as u64).unwrap();
    file.write_at(MIB as u64, &noise(1, MIB)).unwrap();
    let has_holes = file.run(0..MIB as u64).unwrap().is_hole;
    let exports = [Export::sparse("", Arc::new(file))];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "", true);
        let chunks = client.chunks(READ, 0, 0, 4 * MIB as u32);
        let found = content(&chunks, 4 * MIB);
        let mut wanted = vec![0; 4 * MIB];
        wanted[MIB..2 * MIB].copy_from_slice(&noise(1, MIB));
        assert!(found == wanted);
        let kinds: Vec<_> = chunks.iter().map(|chunk| chunk.kind).collect();
        assert!(!has_holes || kinds == [2, 1, 2], "{kinds:?}");

        let whole = client.chunks(READ, DF, 0, 2 * MIB as u32);
        assert_eq!((whole.len(), whole[0].kind), (1, 1));
        assert!(whole[0].data[8..] == wanted[..2 * MIB]);

        let status = client.chunks(BLOCK_STATUS, 0, MIB as u64 / 2, 2 * MIB as u32);
        assert_eq!((status.len(), status[0].kind, &status[0].data[..4]), (1, 5, &[0, 0, 0, 1][..]));
        let (half, one) = (MIB as u32 / 2, MIB as u32);
        if has_holes {
            assert_eq!(extents(&status[0].data[4..]), [(half, 3), (one, 0), (half, 3)]);
            let first = client.chunks(BLOCK_STATUS, REQ_ONE, MIB as u64 / 2, 2 * MIB as u32);
            assert_eq!(extents(&first[0].data[4..]), [(half, 3)]);
        }
        let done = client.chunks(FLUSH, 0, 0, 0);
        assert_eq!((done.len(), done[0].kind, done[0].data.len()), (1, 0, 0));
        let failed = client.chunks(READ, 0, 4 * MIB as u64, 1);
        assert_eq!((failed[0].kind, &failed[0].data[..4]), (0x8001, &EINVAL.to_be_bytes()[..]));
    });
}

#[test]
fn a_read_of_one_hole_needs_no_data() {
    let exports = [Export::sparse("", Arc::new(NullDevice::new("null", 1 << 40)))];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "", true);
        let chunks = client.chunks(READ, 0, 1 << 39, 32 * MIB as u32);
        assert_eq!((chunks.len(), chunks[0].kind), (1, 2));
        // Longer than any read may be.
        assert_eq!(client.chunks(WRITE_ZEROES, FAST_ZERO, 0, u32::MAX)[0].kind, 0);
        let status = client.chunks(BLOCK_STATUS, 0, 0, u32::MAX);
        assert_eq!(status[0].data, [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 3]);
    });
}

#[test]
fn a_device_that_knows_no_holes_is_served_as_well() {
    let device: SharedDevice = memory(MIB);
    let exports = [Export::new("plain", device.clone())];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "plain", true);
        let status = client.chunks(BLOCK_STATUS, 0, 5, 1000);
        assert_eq!(status[0].data, [0, 0, 0, 1, 0, 0, 3, 0xe8, 0, 0, 0, 0]);
        let fast = client.chunks(WRITE_ZEROES, FAST_ZERO, 0, 10);
        assert_eq!((fast[0].kind, &fast[0].data[..4]), (0x8001, &ENOTSUP.to_be_bytes()[..]));
        assert_eq!(client.chunks(WRITE_ZEROES, 0, 3, 600_000)[0].kind, 0);
    });
    let mut wanted = noise(1, MIB);
    wanted[3..600_003].fill(0);
    let mut found = vec![1; MIB];
    device.read_at(0, &mut found).unwrap();
    assert!(found == wanted);
    assert_eq!((exports[0].traffic().errors, exports[0].traffic().refusals), (0, 1));
}

#[test]
fn a_flush_covers_what_other_connections_wrote() {
    let power = Arc::new(Power::new(u64::MAX));
    let inner = memory(MIB);
    let device = Arc::new(CutDevice::new(inner.clone(), power));
    let exports = [Export::new("", device)];
    served(&exports, Settings::default(), |path| {
        let (mut one, mut other) = (Raw::ready(path, "", false), Raw::ready(path, "", false));
        assert_eq!(one.write(0, 10, b"written"), 0);
        assert_eq!(inner.to_vec()[10..17], noise(1, 17)[10..]);
        assert_eq!(other.ask(FLUSH, 0, 0, 0), 0);
        assert_eq!(&inner.to_vec()[10..17], b"written");
        assert_eq!(one.write(FUA, 20, b"at once"), 0);
        assert_eq!(&inner.to_vec()[20..27], b"at once");
        assert_eq!(other.ask(WRITE_ZEROES, FUA, 20, 7), 0);
        assert_eq!(&inner.to_vec()[20..27], [0; 7]);
    });
}

#[test]
fn an_error_of_the_device_is_that_of_one_request() {
    let plan = "op=write,after=1,error=ENOSPC;op=read,times=1,error=EIO;op=sync,error=EIO"
        .parse()
        .unwrap();
    let exports = [Export::new("", Arc::new(FaultyDevice::new(memory(MIB), plan)))];
    let monitor = served(&exports, Settings::default(), |path| {
        let mut client = Raw::ready(path, "", false);
        assert_eq!(client.read(0, 10), Err(EIO));
        assert_eq!(client.read(0, 10).unwrap(), noise(1, 10));
        assert_eq!(client.write(0, 0, b"a"), 0);
        assert_eq!(client.write(0, 0, b"b"), ENOSPC);
        assert_eq!(client.ask(FLUSH, 0, 0, 0), EIO);
        assert_eq!(client.ask(FLUSH, 0, 0, 0), EIO);
    });
    assert_eq!(exports[0].traffic().errors, 4);
    assert_eq!(monitor.get(Counter::Losses), 4);
}

#[test]
fn several_exports_are_told_apart() {
    let exports =
        [Export::new("one", memory(100)), Export::new("two", memory(200)).read_only().rotational()];
    served(&exports, Settings::default(), |path| {
        let mut client = Raw::connect(path);
        let names: Vec<_> = client.option(3, &[]).1.into_iter().map(|it| it.1).collect();
        assert_eq!(names, [text("one"), text("two")]);
        assert_eq!(client.option(7, &[&text("")[..], &[0, 0]].concat()).0, (1 << 31) + 6);
        let mut client = Raw::ready(path, "two", false);
        assert_eq!(client.read(199, 1).unwrap(), noise(1, 200)[199..]);
        for (command, flags) in [(TRIM, 0), (WRITE_ZEROES, 0), (WRITE_ZEROES, FAST_ZERO)] {
            assert_eq!(client.ask(command, flags, 0, 10), EPERM);
        }
        assert_eq!(client.write(0, 0, &[1; 100]), EPERM);
        assert_eq!(client.ask(FLUSH, 0, 0, 0), 0);
        assert_eq!(client.read(0, 100).unwrap(), noise(1, 100));
    });
    assert_eq!(exports[1].traffic().refusals, 4);
    let twice = [Export::new("one", memory(1)), Export::new("one", memory(1))];
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = serve_socket(socket, &twice, &Settings::default(), &Monitor::default());
    assert_eq!(error.unwrap_err().kind(), Kind::Usage);
}

#[test]
fn an_address_is_taken_once_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address: Address = format!("unix:{}", path.display()).parse().unwrap();
    let addresses = [address.clone(), "tcp:127.0.0.1:0".parse().unwrap()];
    let server = Server::bind(&addresses).unwrap();
    assert_eq!(server.addresses()[0], address);
    assert!(matches!(&server.addresses()[1], Address::Tcp(_, port) if *port > 0));
    for taken in server.addresses() {
        let error = Server::bind(std::slice::from_ref(taken)).err().unwrap();
        assert_eq!(error.kind(), Kind::Busy, "{error}");
    }
    drop(server);
    assert!(!path.exists());
    // What a killed server leaves.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Server::bind(std::slice::from_ref(&address)).unwrap());
    std::fs::write(&path, "mine").unwrap();
    let error = Server::bind(&[address]).err().unwrap();
    assert_eq!((error.kind(), std::fs::read(&path).unwrap()), (Kind::Exists, b"mine".to_vec()));
}
