use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;
use pinstripe_base::error::Kind;
use pinstripe_base::sync::Stop;

const PEER: Peer = Peer { name: "the echo", advice: "start it again", silence: Kind::Unanswered };

/// Serves an echo while `act` runs; `end` ends it, `count` sends lines until the client is gone.
fn with_echo(act: impl FnOnce(&std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("socket");
    let control = Control::bind(&place).unwrap();
    let stop = Stop::new().unwrap();
    let answer = |line: &str, lines: &Lines<'_>| match line {
        "end" => {
            stop.set();
            Answer::Deferred
        }
        "count" => {
            for number in 0.. {
                if lines.is_over() || lines.send(&number.to_string()).is_err() {
                    break;
                }
            }
            Answer::Sent
        }
        other => {
            let _ = lines.send(&format!("heard {other}"));
            Answer::Sent
        }
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| control.serve(&stop, &answer));
        act(&place);
        stop.set();
        served.join().unwrap().unwrap();
    });
    control.conclude("over");
    assert!(!place.exists());
}

#[test]
fn requests_are_answered_in_order_and_the_end_is_told() {
    let mut last = None;
    with_echo(|place| {
        let mut client = Client::connect(place, PEER).unwrap().unwrap();
        client.ask("a").unwrap();
        client.ask("b").unwrap();
        assert_eq!(client.line().unwrap(), "heard a");
        assert_eq!(client.line().unwrap(), "heard b");
        assert_eq!(Control::bind(place).err().unwrap().kind(), Kind::Busy);
        client.ask("end").unwrap();
        last = Some(client);
    });
    let mut last = last.unwrap();
    assert_eq!(last.line().unwrap(), "over");
    assert_eq!(last.line().unwrap_err().kind(), Kind::Io);
}

#[test]
fn a_stream_ends_with_its_reader() {
    with_echo(|place| {
        let mut client = Client::connect(place, PEER).unwrap().unwrap();
        client.ask("count").unwrap();
        assert_eq!((client.line().unwrap(), client.line().unwrap()), ("0".into(), "1".into()));
        drop(client);
        let mut other = Client::connect(place, PEER).unwrap().unwrap();
        other.ask("x").unwrap();
        assert_eq!(other.line().unwrap(), "heard x");
    });
}

#[test]
fn garbage_and_broken_connections_hurt_no_other_client() {
    with_echo(|place| {
        let mut long = UnixStream::connect(place).unwrap();
        let _ = long.write_all(&vec![b'x'; 2 * LINE_BYTES]);
        let mut odd = UnixStream::connect(place).unwrap();
        odd.write_all(b"\xff\xfe\n").unwrap();
        drop(UnixStream::connect(place).unwrap());
        let mut client = Client::connect(place, PEER).unwrap().unwrap();
        client.ask("x").unwrap();
        assert_eq!(client.line().unwrap(), "heard x");
    });
}

#[test]
fn a_socket_that_a_dead_process_left_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("socket");
    assert!(Client::connect(&place, PEER).unwrap().is_none());
    drop(std::os::unix::net::UnixListener::bind(&place).unwrap());
    assert!(place.exists());
    assert!(Client::connect(&place, PEER).unwrap().is_none());
    drop(Control::bind(&place).unwrap());
    std::fs::write(&place, "").unwrap();
    assert_eq!(Control::bind(&place).err().unwrap().kind(), Kind::Exists);
}

#[test]
fn a_stop_ends_an_idle_server_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("socket");
    let control = Control::bind(&place).unwrap();
    let stop = Stop::new().unwrap();
    let answer = |line: &str, lines: &Lines<'_>| {
        lines.send("from now on").unwrap();
        assert!(line == "greet" || lines.is_over_within(Duration::from_secs(600)));
        Answer::Sent
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| control.serve(&stop, &answer));
        // One that follows something, and one that asks for nothing more.
        let mut clients = ["follow", "greet"].map(|request| {
            let mut client = Client::connect(&place, PEER).unwrap().unwrap();
            client.ask(request).unwrap();
            assert_eq!(client.line().unwrap(), "from now on");
            client
        });
        stop.set();
        served.join().unwrap().unwrap();
        for client in &mut clients {
            assert_eq!(client.line().unwrap_err().kind(), Kind::Io);
        }
    });
}

/// A stop in order looks the same as a kill: the error takes neither for granted.
#[test]
fn a_client_is_told_that_the_process_is_gone_in_words_of_no_crash() {
    let mut client = None;
    with_echo(|place| client = Client::connect(place, PEER).unwrap());
    let mut client = client.unwrap();
    let errors = [client.ask("a").err(), client.line().err(), client.ask("b").err()];
    assert!(errors.iter().any(Option::is_some));
    for error in errors.into_iter().flatten() {
        assert_eq!(error.what(), "the echo has ended, or closed the connection");
        assert_eq!(error.kind(), Kind::Io);
    }
}
