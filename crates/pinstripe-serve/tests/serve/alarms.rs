//! Alarms as a webhook receives them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use aws_lc_rs::hmac;
use pinstripe_member::Places;
use pinstripe_serve::{AlarmTargets, NewToken, TokenRole, TokenStore, Webhook};
use serde_json::Value;

use crate::setup::{start_with, volume};

const SECRET: &[u8] = b"a secret";

/// Reads one request, and answers it with a status.
fn exchange(mut stream: TcpStream, status: &str) -> (String, Vec<u8>) {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1);
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    (head, body)
}

/// The host is overdue from the start, because its token is years old. The receiver fails once:
/// the message is sent again, with the same id, and then no more, also after a restart.
#[test]
fn a_webhook_receives_each_change_signed_until_it_has_taken_it() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());
    let (send, received) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in receiver.incoming().enumerate() {
            let status = if number == 0 { "500 Sorry" } else { "204 Taken" };
            if send.send(exchange(stream.unwrap(), status)).is_err() {
                return;
            }
        }
    });
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = Places::default().create(&place).unwrap().member;
    let targets = AlarmTargets {
        webhook: Some(Webhook { url, secret: Some(SECRET.to_vec()) }),
        ..AlarmTargets::default()
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let begin =
        |state| start_with(state, volume(true, vec![member.clone()]), address, targets.clone());
    let expected = NewToken {
        host: "ant".to_owned(),
        role: TokenRole::Append,
        volume: volume(true, Vec::new()).id,
        quota_bytes: None,
        expect_seconds: Some(3600),
        rate: None,
        all_hosts: false,
        expires_seconds: None,
    };
    TokenStore::new(state.path()).add(&expected, 1_700_000_000).unwrap();
    let server = begin(state);
    let message = || {
        let (head, body) = received.recv_timeout(crate::setup::PATIENCE).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let tag = pinstripe_base::id::hex(hmac::sign(&key, &body).as_ref());
        assert!(head.contains(&format!("pinstripe-signature: sha256={tag}\r\n")), "{head}");
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    let first = message();
    assert_eq!((&first["change"], &first["subject"]), (&"raised".into(), &"host ant".into()));
    assert_eq!(first["server"], "server.example.org:7473");
    assert_eq!(message(), first);
    // A revoked token ends the expectation.
    let state = server.stop();
    TokenStore::new(state.path()).revoke("ant", 1_800_000_000).unwrap();
    let _server = begin(state);
    let last = message();
    assert_eq!((&last["change"], &last["subject"]), (&"cleared".into(), &"host ant".into()));
}
