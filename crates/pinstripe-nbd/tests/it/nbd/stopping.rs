//! The end of a server by its stop, whatever its clients do or leave undone.

use std::path::Path;
use std::time::{Duration, Instant};

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_nbd::{Address, Export, Server, Settings};

use super::devices::memory;
use super::impatient;
use super::raw::*;

const MIB: u32 = 1 << 20;
/// Enough for a machine that is busy with other things, and much less than the default timeouts.
const PROMPT: Duration = Duration::from_secs(20);

/// The time from the stop to the end of a server to which `connect` has made connections, which its
/// clients keep open until it has ended.
fn time_to_stop(settings: Settings, connect: impl FnOnce(&Path) -> Vec<Raw>) -> Duration {
    let exports = [Export::new("", memory(MIB as usize))];
    let (monitor, stop) = (Monitor::default(), Stop::new().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::bind(&[Address::Unix(path.clone())]).unwrap();
    let (clients, took) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&exports, &settings, &monitor, &stop));
        let clients = connect(&path);
        let start = Instant::now();
        stop.set();
        serving.join().unwrap().unwrap();
        (clients, start.elapsed())
    });
    let traffic = exports[0].traffic();
    assert_eq!(traffic.connections, traffic.disconnections);
    drop(clients);
    took
}

#[test]
fn an_idle_server_ends_at_once() {
    assert!(time_to_stop(Settings::default(), |_| Vec::new()) < PROMPT);
    let took = time_to_stop(Settings::default(), |path| {
        let mut idle = Raw::ready(path, "", false);
        assert!(idle.read(0, 10).is_ok());
        vec![Raw::connect(path), Raw::ready(path, "", true), idle]
    });
    assert!(took < PROMPT, "{took:?}");
}

#[test]
fn an_unfinished_message_is_not_waited_for_past_its_timeout() {
    let took = time_to_stop(impatient(), |path| {
        let mut option = Raw::connect(path);
        option.say(b"IHAVEOPT\0\0\0\x07\0\0\0\x10half");
        let mut request = Raw::ready(path, "", false);
        request.say(&[0x25, 0x60, 0x95]);
        let mut payload = Raw::ready(path, "", false);
        payload.request(WRITE, 0, 1, 0, 1000);
        payload.say(&[1; 999]);
        // Many replies that are not taken.
        let mut untaken = Raw::ready(path, "", false);
        for cookie in 0..100 {
            untaken.request(READ, 0, cookie, 0, MIB);
        }
        vec![option, request, payload, untaken]
    });
    assert!(took < PROMPT, "{took:?}");
}

#[test]
fn a_server_that_fails_leaves_its_caller_the_stop() {
    let twice = [Export::new("one", memory(1)), Export::new("one", memory(1))];
    let stop = Stop::new().unwrap();
    let server = Server::bind(&["tcp:127.0.0.1:0".parse().unwrap()]).unwrap();
    let error = server.serve(&twice, &Settings::default(), &Monitor::default(), &stop);
    assert_eq!(error.unwrap_err().kind(), Kind::Usage);
    assert!(!stop.is_set());
    // One that was set before ends it before the first client.
    stop.set();
    server.serve(&twice[..1], &Settings::default(), &Monitor::default(), &stop).unwrap();
}
