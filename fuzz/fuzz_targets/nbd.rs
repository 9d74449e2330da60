//! Clients of a network block device: whatever they say in the handshake is answered, whatever they
//! ask for stays within the export, and a connection ends when they have said all.
#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Device, MemoryDevice};
use pinstripe_nbd::{
    Export, ExportInfo, Handshake, OPTION_HEAD_BYTES, OptionHead, REQUEST_BYTES, Request, Settings,
    Step, Terms, serve_socket,
};

const BYTES: u64 = 1 << 16;
const READY: &[u8] =
    b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

fuzz_target!(|input: (bool, &[u8])| {
    let (is_ready, said) = input;
    haggle(said);
    requests(said);
    let device = MemoryDevice::new("memory");
    device.set_len(BYTES).unwrap();
    let exports = [Export::sparse("", Arc::new(device))];
    let said = if is_ready { [READY, said].concat() } else { said.to_vec() };
    converse(&said, &exports);
    let traffic = exports[0].traffic();
    assert_eq!((traffic.errors, traffic.connections), (0, traffic.disconnections));
});

fn haggle(mut said: &[u8]) {
    let export = ExportInfo {
        name: "export".to_owned(),
        description: String::new(),
        bytes: BYTES,
        is_read_only: false,
        is_rotational: false,
        can_trim: true,
        can_fast_zero: true,
        preferred_bytes: 4096,
    };
    let exports = [export];
    let Ok(mut handshake) = Handshake::new(&exports, [0, 0, 0, 3]) else { unreachable!() };
    while let Some((head, rest)) = said.split_first_chunk::<OPTION_HEAD_BYTES>() {
        let number = u32::from(head[0] % 12);
        let (data, rest) = rest.split_at(rest.len().min(head[1].into()));
        said = rest;
        let mut out = Vec::new();
        let head = OptionHead { number, bytes: data.len() as u32 };
        match handshake.answer(head, Some(data), &mut out) {
            Step::More => assert!(out.len() >= 20),
            Step::Begin(at, terms) => assert_eq!((at, terms.bytes), (0, BYTES)),
            Step::End => assert!(number < 3),
        }
        // What is said is at most a few replies for each name that was asked for.
        assert!(out.len() <= 4096 + data.len());
    }
}

fn requests(said: &[u8]) {
    for bytes in said.as_chunks::<REQUEST_BYTES>().0 {
        let mut bytes = *bytes;
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        let request = Request::decode(&bytes).unwrap();
        for flags in 0..8 {
            let [is_read_only, is_structured, has_status] = [1, 2, 4].map(|bit| flags & bit != 0);
            let terms = Terms { bytes: BYTES, is_read_only, is_structured, has_status };
            if request.check(&terms).is_ok() && request.payload() > 0 {
                assert!(!is_read_only && request.offset + u64::from(request.len) <= BYTES);
            }
        }
    }
}

fn converse(said: &[u8], exports: &[Export]) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let short = Duration::from_secs(5);
    let settings = Settings {
        handshake_timeout: short,
        stall_timeout: short,
        workers: 2,
        ..Default::default()
    };
    std::thread::scope(|scope| {
        let taken = theirs.try_clone().unwrap();
        scope.spawn(move || std::io::copy(&mut &taken, &mut std::io::sink()));
        scope.spawn(move || {
            let _ = theirs.write_all(said);
            let _ = theirs.shutdown(Shutdown::Write);
        });
        // Whether it is an error does not matter: that it ends does.
        let _ = serve_socket(ours, exports, &settings, &Monitor::default());
    });
}
