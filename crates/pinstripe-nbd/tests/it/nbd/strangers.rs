//! The treatment of a client that breaks the rules, which no other client notices.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Device, MemoryDevice, NullDevice};
use pinstripe_nbd::{Export, Settings, serve_socket};

use super::raw::*;
use super::{impatient, noise, served};

const MIB: u32 = 1 << 20;

fn exports() -> [Export; 1] {
    let device = MemoryDevice::new("memory");
    device.write_at(0, &noise(1, MIB as usize)).unwrap();
    [Export::sparse("", Arc::new(device))]
}

/// Has `stranger` do its worst beside a client that keeps the rules before, meanwhile and after.
fn beside_a_good_one(settings: Settings, stranger: impl FnOnce(&Path)) {
    let exports = exports();
    served(&exports, settings, |path| {
        let mut good = Raw::ready(path, "", false);
        assert_eq!(good.read(0, 100).unwrap(), noise(1, 100));
        good.request(READ, 0, 5, 0, 1000);
        stranger(path);
        assert_eq!(good.simple(), (5, 0));
        assert_eq!(good.take(1000), noise(1, 1000));
        assert_eq!(good.read(7, 100).unwrap(), noise(1, 107)[7..]);
        assert_eq!(Raw::ready(path, "", true).chunks(READ, 0, 0, 1)[0].data[8], noise(1, 1)[0]);
    });
}

#[test]
fn a_handshake_that_goes_wrong_ends() {
    beside_a_good_one(Settings::default(), |path| {
        let mut flags = Raw::dial(path);
        flags.take(18);
        flags.say(&[0xff; 4]);
        assert!(flags.is_cut_off());
        let mut http = Raw::dial(path);
        http.take(18);
        http.say(b"GET / HTTP/1.1\r\nHost: nbd\r\n\r\n");
        assert!(http.is_cut_off());
        let mut huge = Raw::connect(path);
        huge.say(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
        assert!(huge.is_cut_off());
        let mut unknown = Raw::connect(path);
        unknown.say(b"IHAVEOPT\0\0\0\x01\0\0\0\x04what");
        assert!(unknown.is_cut_off());
        let mut gone = Raw::connect(path);
        gone.say(b"IHAVEOPT\0\0\0\x07\0\0\0\x10half");
        gone.socket.shutdown(Shutdown::Both).unwrap();
        let mut polite = Raw::connect(path);
        assert_eq!(polite.option(2, &[]).0, 1);
        assert!(polite.is_cut_off());
    });
}

#[test]
fn a_long_option_is_read_over() {
    beside_a_good_one(Settings::default(), |path| {
        let mut client = Raw::connect(path);
        assert_eq!(client.option(3, &vec![0; 200 << 10]).0, (1 << 31) + 9);
        assert_eq!(client.option(3, &[]).0, 1);
        assert_eq!(client.option(5, &[]).0, (1 << 31) + 1);
        assert_eq!(client.option(11, &[]).0, (1 << 31) + 1);
    });
}

#[test]
fn requests_that_make_no_sense_are_refused_one_by_one() {
    beside_a_good_one(Settings::default(), |path| {
        let mut client = Raw::ready(path, "", false);
        for (command, flags, offset, len) in [
            (READ, 0, MIB.into(), 1),
            (READ, 0, u64::MAX, 1),
            (READ, 0, 0, u32::MAX),
            (READ, 0, 0, 0),
            (READ, DF, 0, 1), // Structured replies were not agreed on.
            (READ, 0x8000, 0, 1),
            (BLOCK_STATUS, 0, 0, 1),
            (FLUSH, REQ_ONE, 0, 0),
            (TRIM, 0, 1, MIB),
            (5, 0, 0, 1),
            (4711, 0, 0, 1),
        ] {
            assert_eq!(client.ask(command, flags, offset, len), EINVAL, "{command} {flags}");
        }
        assert_eq!(client.ask(WRITE_ZEROES, 0, 1, MIB), ENOSPC);
        // What comes with a refused write is read over.
        assert_eq!(client.write(NO_HOLE, 0, &[1; 5]), EINVAL);
        assert_eq!(client.write(0, MIB.into(), &[1; 300_000]), ENOSPC);
        assert_eq!(client.write(0, 0, &vec![1; 33 << 20]), EINVAL);
        assert_eq!(client.write(0, 0, &[]), EINVAL);
        assert_eq!(client.read(0, 10).unwrap(), noise(1, 10));
    });
}

#[test]
fn a_client_that_speaks_no_protocol_is_cut_off() {
    beside_a_good_one(Settings::default(), |path| {
        let mut garbage = Raw::ready(path, "", false);
        garbage.say(&[0xa5; 28]);
        assert!(garbage.is_cut_off());
        let mut huge = Raw::ready(path, "", true);
        huge.request(WRITE, 0, 1, 0, u32::MAX);
        assert!(huge.is_cut_off());
        // What was asked for before is answered.
        let mut both = Raw::ready(path, "", false);
        both.request(READ, 0, 1, 0, 100);
        both.say(&[0; 28]);
        assert_eq!(both.simple(), (1, 0));
        assert_eq!(both.take(100), noise(1, 100));
        assert!(both.is_cut_off());
    });
}

#[test]
fn a_client_that_goes_in_the_middle_changes_nothing() {
    beside_a_good_one(Settings::default(), |path| {
        for sent in [0, 1, 5_000, 199_999] {
            let mut client = Raw::ready(path, "", false);
            client.request(WRITE, 0, 1, 0, 200_000);
            client.say(&vec![0xee; sent]);
        }
        let mut half = Raw::ready(path, "", false);
        half.say(&[0x25, 0x60, 0x95]);
        // Many replies that the client does not read.
        let mut untaken = Raw::ready(path, "", true);
        for cookie in 0..100 {
            untaken.request(READ, 0, cookie, 0, MIB);
        }
        drop((half, untaken));
    });
}

#[test]
fn a_client_that_is_stuck_in_the_middle_is_cut_off() {
    let silent = |path: &Path| {
        let mut client = Raw::dial(path);
        client.take(18);
        assert!(client.is_cut_off());
    };
    let half = |path: &Path| {
        let mut client = Raw::ready(path, "", false);
        client.request(WRITE, 0, 1, 0, 1000);
        client.say(&[1; 999]);
        assert!(client.is_cut_off());
    };
    let deaf = |path: &Path| {
        let mut client = Raw::ready(path, "", false);
        client.socket.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = 0x25609513u32.to_be_bytes().to_vec();
        request.extend([0; 22]);
        request.extend([0xff, 0xff]);
        // Until the server has shut down, which is not what a time-out looks like.
        let error = std::iter::repeat_with(|| client.socket.write_all(&request));
        let error = error.filter_map(Result::err).next().unwrap();
        assert_ne!(error.kind(), ErrorKind::WouldBlock);
    };
    // Idle between requests is nothing wrong: the good one is, all the while.
    beside_a_good_one(impatient(), |path| {
        std::thread::scope(|scope| {
            scope.spawn(|| silent(path));
            scope.spawn(|| half(path));
            scope.spawn(|| deaf(path));
        });
    });
}

#[test]
fn one_client_too_many_is_sent_away() {
    let exports = exports();
    served(&exports, Settings { connections: 2, ..Settings::default() }, |path| {
        let (mut one, other) = (Raw::ready(path, "", false), Raw::ready(path, "", false));
        assert!(Raw::dial(path).is_cut_off());
        drop(other);
        // It takes a moment until the server has noticed.
        while Raw::dial(path).is_cut_off() {}
        assert_eq!(one.read(0, 10).unwrap(), noise(1, 10));
    });
}

#[test]
fn much_is_asked_for_at_once_with_little_memory() {
    let exports = [Export::new("", Arc::new(NullDevice::new("null", 1 << 30)))];
    served(&exports, Settings { memory_bytes: 0, ..Settings::default() }, |path| {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let mut client = Raw::ready(path, "", false);
                    for cookie in 0..4 {
                        client.request(READ, 0, cookie, 0, 32 * MIB);
                    }
                    for _ in 0..4 {
                        assert_eq!(client.simple().1, 0);
                        assert!(client.take(32 << 20).iter().all(|byte| *byte == 0));
                    }
                });
            }
        });
    });
}

#[test]
fn any_bytes_are_survived() {
    let exports = exports();
    let ready: &[u8] =
        b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    let mut state = 1_u64;
    let mut below = |most: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % most
    };
    for round in 0..300 {
        let mut said = if round % 10 == 0 { Vec::new() } else { ready.to_vec() };
        for _ in 0..below(20) {
            if below(4) > 0 {
                said.extend([0x25, 0x60, 0x95, 0x13, 0, below(8) as u8, 0, below(9) as u8]);
                said.extend([0; 13]);
                said.extend([below(20) as u8, below(256) as u8, below(256) as u8]);
                said.extend([0, 0, below(2) as u8, below(256) as u8]);
            } else {
                said.extend((0..below(600)).map(|_| 0u8));
            }
        }
        // A byte or two that are wrong.
        for _ in 0..below(3) {
            let at = below(said.len() as u64 + 1) as usize;
            said.insert(at, below(256) as u8);
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let taken = theirs.try_clone().unwrap();
            scope.spawn(move || std::io::copy(&mut &taken, &mut std::io::sink()));
            scope.spawn(move || {
                let _ = theirs.write_all(&said);
                let _ = theirs.shutdown(Shutdown::Write);
            });
            // Whether it is an error does not matter: that it ends does.
            let _ = serve_socket(ours, &exports, &impatient(), &Monitor::default());
        });
    }
}
