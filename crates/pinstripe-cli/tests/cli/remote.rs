//! The recorder as remote controls meet it: OSC in UDP packets.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use pinstripe_record::{OscValue, read_osc, write_osc};
use serde_json::Value;

use crate::record::{FAST, Recorder};
use crate::stand::Stand;

/// A remote control.
struct Remote {
    socket: UdpSocket,
    recorder: SocketAddr,
}

impl Remote {
    fn new(recorder: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Remote { socket, recorder: recorder.parse().unwrap() }
    }

    fn send(&self, address: &str, values: &[OscValue<'_>]) {
        self.socket.send_to(&write_osc(address, values), self.recorder).unwrap();
    }

    /// What comes up to a message of this address: by address, the last value as text.
    fn hear(&self, last: &str) -> BTreeMap<String, String> {
        let mut heard = BTreeMap::new();
        let mut packet = [0; 8192];
        while !heard.contains_key(last) {
            let (length, _) = match self.socket.recv_from(&mut packet) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                received => received.expect("an answer"),
            };
            for message in read_osc(&packet[..length]).expect("a sound message") {
                let value = match message.values.last().unwrap() {
                    OscValue::Text(text) => text.to_string(),
                    OscValue::Real(real) => real.to_string(),
                    OscValue::Whole(whole) => whole.to_string(),
                    other => panic!("{other:?}"),
                };
                heard.insert(message.address.to_owned(), value);
            }
        }
        heard
    }

    fn ask(&self, address: &str, values: &[OscValue<'_>]) -> BTreeMap<String, String> {
        self.send(address, values);
        self.hear("/pinstripe/lost_frames")
    }
}

#[test]
fn a_remote_control_begins_marks_and_ends_a_take_and_is_answered() {
    let stand = Stand::new();
    let line = format!("record gig --to . {FAST} --armed --osc 0 test:streams=3,rate=48000");
    let mut recorder = Recorder::start(&stand, &line);
    let address = recorder.await_event("take")["osc"].as_str().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let remote = Remote::new(&address);
    let (on, off) = (OscValue::Real(1.0), OscValue::Real(0.0));
    let told = remote.ask("/pinstripe/status", &[]);
    assert_eq!((told["/pinstripe/phase"].as_str(), told["/record_tally"].as_str()), ("armed", "0"));
    assert_eq!(told["/session_name"], "gig");
    assert!(told["/pinstripe/left_seconds"].parse::<f64>().unwrap() > 0.0);
    // Nothing of this is a message, or one that means something: none is answered.
    for bad in
        [&b""[..], b"/", &[0; 3000], &[0xff; 64], b"#bundle\0", b"/transport_stop\0,b\0\0\x7f"]
    {
        remote.socket.send_to(bad, remote.recorder).unwrap();
    }
    remote.send("/nothing/of/ours", &[on]);
    remote.send("/transport_play", &[off]);
    let told = remote.ask("/strip/recenable", &[OscValue::Whole(2), off]);
    assert_eq!(
        (told["/pinstripe/phase"].as_str(), told["/pinstripe/streams"].as_str()),
        ("armed", "2")
    );
    remote.hear("/strip/recenable");
    remote.send("/add_marker", &[OscValue::Text("early")]);
    assert!(remote.hear("/pinstripe/error")["/pinstripe/error"].contains("not begun"));
    let told = remote.ask("/transport_play", &[on]);
    assert_eq!(told["/pinstripe/phase"], "recording");
    assert_eq!((told["/record_tally"].as_str(), told["/transport_stop"].as_str()), ("1", "0"));
    remote.ask("/add_marker", &[OscValue::Text("refrain")]);
    // Who follows hears it again by itself.
    remote.ask("/set_surface", &[]);
    remote.hear("/heartbeat");
    assert_eq!(remote.hear("/pinstripe/lost_frames")["/record_tally"], "1");
    remote.send("/transport_stop", &[on]);
    // What was told before may still be on its way.
    while remote.hear("/pinstripe/lost_frames")["/record_tally"] != "0" {}
    let summary = recorder.await_event("summary");
    assert_eq!((&summary["exit_code"], &summary["files"]), (&0.into(), &2.into()));
    recorder.child.wait().unwrap();
    let manifest: Value =
        serde_json::from_slice(&fs::read(stand.path("gig/take.json")).unwrap()).unwrap();
    assert_eq!(manifest["marks"][0]["text"], "refrain");
    assert_eq!(stand.run("verify gig").code, 0);
    for (line, part) in [
        ("--osc 0.0.0.0:0", "--osc-from"),
        ("--osc 1.2.3:x", "port or an address"),
        ("--osc 0 --osc-from 10.0.0.0/99", "an address or a network"),
    ] {
        let ran = stand.run(&format!("record t --to . {FAST} {line} test:"));
        assert_eq!(ran.code, 2, "{line}: {}", ran.err);
        assert!(ran.err.contains(part), "{line}: {}", ran.err);
    }
}
