//! Requests that no client of this project sends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::Kind;
use pinstripe_base::id::{SetId, random};
use pinstripe_member::{ExtentKind, ExtentName, Member, Places, Replace};
use pinstripe_remote::Connection;
use pinstripe_serve::{NewToken, ServerKey, TokenRole};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::roles::name;
use crate::setup::{StoreFixture, directory, exported, start_as, store, volume};

/// Accepts every server: what these requests get is the server's matter.
#[derive(Debug)]
pub struct Blind(pub Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &StoreFixture) -> Tls {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Blind(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("pinstripe").unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Sends bytes, and returns all that the server answers until it closes the connection. With `ends`
/// the sending side is closed before.
pub fn exchange(server: &StoreFixture, request: &[u8], ends: bool) -> String {
    let mut tls = connect(server);
    // A server that refuses early may close before all is sent.
    let _ = tls.write_all(request).and_then(|()| tls.flush());
    if ends {
        tls.conn.send_close_notify();
        let _ = tls.flush();
    }
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = tls.read(&mut part) {
        answer.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

struct Target {
    server: StoreFixture,
    connection: Connection,
    bearer: String,
    base: String,
}

fn target() -> Target {
    let server = exported();
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let bearer = connection.join_string().reveal();
    let base = format!("/v1/{}/0", connection.volume);
    Target { server, connection, bearer, base }
}

impl Target {
    fn request(&self, line: &str, headers: &str, body: &[u8]) -> String {
        self.request_that(false, line, headers, body)
    }

    /// With `ends` the sending side is closed after the body.
    fn request_that(&self, ends: bool, line: &str, headers: &str, body: &[u8]) -> String {
        let bearer = &self.bearer;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: pinstripe\r\nAuthorization: Bearer {bearer}\r\n\
             Connection: close\r\n{headers}\r\n"
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        exchange(&self.server, &request, ends)
    }

    /// The server still works, and has nothing that was not acknowledged.
    fn still_serves(&self, packs: usize) {
        let member = self.server.member(&self.connection, 0);
        assert_eq!(member.list(ExtentKind::Packs).unwrap().len(), packs);
        let name = ExtentName::In(ExtentKind::Scrub, random().unwrap());
        member.put(name, b"well").unwrap();
        let local = directory(&self.server.state.path().join("member"));
        assert_eq!(local.list(ExtentKind::Packs).unwrap().len(), packs);
    }
}

#[test]
fn without_a_valid_token_nothing_is_told() {
    let target = target();
    let path = format!("{}/list/packs", target.base);
    let mut other = target.connection.join_string();
    other.secret = pinstripe_member::SecretBytes::take(&mut [9; 32]);
    for bearer in ["", "x", "pst1_", "pst1_AAAA", other.reveal().as_str(), &"A".repeat(5000)] {
        for path in [path.as_str(), "/v1/hello"] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\
                 Connection: close\r\n\r\n"
            );
            let answer = exchange(&target.server, request.as_bytes(), false);
            assert_eq!(status(&answer), 403, "{bearer}: {answer}");
        }
    }
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = exchange(&target.server, request.as_bytes(), false);
    assert_eq!(status(&answer), 403);
    target.still_serves(0);
}

#[test]
fn bodies_of_another_length_leave_nothing() {
    let target = target();
    let path = format!("PUT {}/extent/packs/{}", target.base, SetId([1; 16]));
    let free = "If-None-Match: *\r\n";
    for (headers, body) in [
        (format!("{free}Content-Length: 10\r\n"), &b"short"[..]),
        (format!("{free}Content-Length: 9000\r\n"), &[7; 5000]),
        (free.to_owned(), b"none"),
        (format!("{free}Content-Length: 18446744073709551615\r\n"), b"x"),
        (format!("{free}Content-Length: -1\r\n"), b"x"),
        (format!("{free}Content-Length: 5\r\nPinstripe-Sum: 00\r\n"), b"wrong"),
        (format!("{free}Transfer-Encoding: chunked\r\n"), b"5\r\nhello\r\n0\r\n\r\n"),
        ("If-None-Match: \"a\"\r\nContent-Length: 1\r\n".to_owned(), b"x"),
    ] {
        let answer = target.request_that(true, &path, &headers, body);
        assert_ne!(status(&answer), 201, "{headers}: {answer}");
    }
    target.still_serves(0);
    let answer = target.request(&path, &format!("{free}Content-Length: 5\r\n"), b"whole and more");
    assert_eq!(status(&answer), 201, "{answer}");
    target.still_serves(1);
}

/// A request that puts objects, and removes objects, on members.
fn steps(members: &[u16], puts: &[(u8, &[u8])], removals: &[u8]) -> Vec<u8> {
    let scrub = ExtentKind::ALL.iter().position(|kind| *kind == ExtentKind::Scrub).unwrap() as u8;
    let mut body = vec![members.len() as u8];
    members.iter().for_each(|member| body.extend(member.to_le_bytes()));
    body.push((puts.len() + removals.len()) as u8);
    for (id, bytes) in puts {
        body.extend([0, scrub]);
        body.extend([*id; 16]);
        body.push(bytes.len() as u8);
        body.extend(*bytes);
    }
    for id in removals {
        body.extend([1, scrub]);
        body.extend([*id; 16]);
    }
    body.push(0);
    body
}

#[test]
fn odd_requests_for_objects_put_nothing() {
    let target = target();
    let line = format!("POST /v1/{}/objects", target.connection.volume);
    let send = |length: usize, body: &[u8]| {
        let ends = length != body.len();
        target.request_that(ends, &line, &format!("Content-Length: {length}\r\n"), body)
    };
    let good = steps(&[0], &[(1, b"one"), (2, b"two")], &[3]);
    let mut odd: Vec<Vec<u8>> = (0..good.len()).map(|cut| good[..cut].to_vec()).collect();
    odd.push([&good[..], b"more"].concat());
    odd.push(steps(&[], &[(1, b"one")], &[]));
    odd.push(steps(&[0, 0], &[(1, b"one")], &[]));
    odd.push(steps(&[0, 1], &[(1, b"one")], &[]));
    odd.push(steps(&[0], &[(1, b"one"), (1, b"two")], &[]));
    odd.push(steps(&[0], &[(1, b"one")], &[1]));
    odd.push(steps(&[0], &[], &[]));
    odd.push(steps(&[0], &[(1, &b"one"[..]); 100], &[]));
    for (at, value) in [(0, 0x80), (3, 0xff), (4, 9), (5, 0xff), (22, 0xff), (good.len() - 1, 7)] {
        let mut changed = good.clone();
        changed[at] = value;
        odd.push(changed);
    }
    for body in odd {
        let answer = send(body.len(), &body);
        assert!((400..500).contains(&status(&answer)), "{body:?}: {answer}");
    }
    // The announced length is not that of the body, or the sum not that of the bytes.
    for length in [good.len() - 1, good.len() + 1, 1 << 30] {
        let answer = send(length, &good);
        assert_ne!(status(&answer), 200, "{length}: {answer}");
    }
    let headers = format!("Content-Length: {}\r\nPinstripe-Sum: 00\r\n", good.len());
    assert_ne!(status(&target.request_that(true, &line, &headers, &good)), 200);
    let local = directory(&target.server.state.path().join("member"));
    assert_eq!(local.list(ExtentKind::Scrub).unwrap(), []);
    assert_eq!(status(&send(good.len(), &good)), 200);
    target.still_serves(0);
}

#[test]
fn odd_ranges_and_paths_are_refused() {
    let target = target();
    let name = SetId([1; 16]);
    let put = format!("PUT {}/extent/packs/{name}", target.base);
    let answer = target.request(&put, "If-None-Match: *\r\nContent-Length: 5\r\n", b"hello");
    assert_eq!(status(&answer), 201);
    let get = format!("GET {}/extent/packs/{name}", target.base);
    for range in ["bytes=0-18446744073709551615", "bytes=9223372036854775808-", "bytes=5-", "x"] {
        let answer = target.request(&get, &format!("Range: {range}\r\n"), b"");
        assert_eq!(status(&answer), 422, "{range}: {answer}");
    }
    for path in [
        format!("{}/extent/packs/../../tokens.json", target.base),
        format!("{}/extent/packs/%2e%2e%2ftokens.json", target.base),
        format!("{}/extent/../tokens.json", target.base),
        format!("{}/extent/tokens.json", target.base),
        format!("{}/extent/packs/{}", target.base, name.to_string().to_uppercase() + "A"),
        format!("/v1/{}/1/list/packs", target.connection.volume),
        format!("/v1/{}/99999999999/list/packs", target.connection.volume),
        format!("/v1/{}/0/list/packs", SetId([0; 16])),
        "/v1".to_owned(),
    ] {
        let answer = target.request(&format!("GET {path}"), "", b"");
        assert!((400..500).contains(&status(&answer)), "{path}: {answer}");
    }
    target.still_serves(1);
}

#[test]
fn floods_of_headers_and_half_requests_do_not_stop_the_server() {
    let target = target();
    let many: String = (0..2000).map(|n| format!("X-{n}: y\r\n")).collect();
    let answer = target.request("GET /v1/hello", &many, b"");
    assert!((400..500).contains(&status(&answer)), "{answer}");
    let long = format!("X: {}\r\n", "y".repeat(1 << 20));
    let answer = target.request("GET /v1/hello", &long, b"");
    assert_ne!(status(&answer), 200, "{answer}");
    // Connections that never finish a handshake, or a header.
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(target.server.address).unwrap()).collect();
    let mut half = Vec::new();
    for _ in 0..20 {
        let mut tls = connect(&target.server);
        tls.write_all(b"GET /v1/hello HTTP/1.1\r\nHo").unwrap();
        half.push(tls);
    }
    target.still_serves(0);
    drop((idle, half));
}

/// A client that sends a header byte by byte is cut off, whether each byte comes in time or not.
#[test]
#[ignore = "with --all: it waits for 30 s, and bodies that drip are tested in the gate"]
fn a_header_that_drips_is_given_up() {
    let target = target();
    let mut tls = connect(&target.server);
    tls.write_all(b"GET /v1/hello HTTP/1.1\r\nX-Slow: ").unwrap();
    tls.sock.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut part = [0; 1000];
    let is_over = (0..240).any(|_| {
        let is_written = tls.write_all(b"y").and_then(|()| tls.flush()).is_ok();
        let read = tls.read(&mut part);
        let waits = read.as_ref().is_err_and(|it| {
            matches!(it.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        });
        !is_written || !waits
    });
    assert!(is_over, "the server waits for the header without an end");
    target.still_serves(0);
}

/// Offsets up to the largest number, in the requests for several ranges and for parts of sets.
#[test]
fn ranges_beyond_every_extent_are_refused_one_by_one() {
    let server = store();
    let (_, connection) = server.token("desk", TokenRole::Admin);
    let local = directory(&server.state.path().join("member"));
    let extent = crate::sets::extents(&crate::sets::run(1, 1)).swap_remove(0);
    local.put(name(ExtentKind::Packs, 1), &extent).unwrap();
    let bearer = connection.join_string().reveal();
    let send = |path: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/{}/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            server.volume,
            body.len()
        );
        exchange(&server, &[head.as_bytes(), body].concat(), false)
    };
    let packs = ExtentKind::ALL.iter().position(|kind| *kind == ExtentKind::Packs).unwrap() as u8;
    let pack = [&[1, packs][..], &[1; 16]].concat();
    let mut known = 0;
    for offset in [0, extent.len() as u64, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 3, u64::MAX]
    {
        for bytes in [1, 4, 1 << 20, 1 << 40, u64::MAX] {
            for flag in [0, 1] {
                let range =
                    [&pack[..], &offset.to_le_bytes(), &bytes.to_le_bytes(), &[flag]].concat();
                let answer = send("0/read", &range);
                assert_eq!(status(&answer), 200, "{offset} {bytes} {flag}: {answer}");
                // Anything but the bytes, or a complete extent, is an error of this range.
                let is_there = match flag {
                    0 => offset == 0 && bytes <= 4,
                    _ => bytes >= extent.len() as u64,
                };
                let has_error = answer.contains("\"kind\":");
                assert_eq!(has_error, !is_there, "{offset} {bytes} {flag}: {answer}");
                known += usize::from(is_there && flag == 0);
            }
            let part = [&pack[..], &offset.to_le_bytes(), &(bytes as u32).to_le_bytes()].concat();
            let answer = send("fetch", &part);
            assert!((200..500).contains(&status(&answer)), "{offset} {bytes}: {answer}");
        }
    }
    assert_eq!(known, 2);
    assert_eq!(server.member(&connection, 0).list(ExtentKind::Packs).unwrap().len(), 1);
}

/// Two lengths in one header would let two servers see two different requests.
#[test]
fn a_body_with_two_lengths_is_refused() {
    let target = target();
    let path = format!("PUT {}/extent/packs/{}", target.base, SetId([1; 16]));
    for headers in [
        "If-None-Match: *\r\nContent-Length: 4\r\nContent-Length: 5\r\n",
        "If-None-Match: *\r\nContent-Length: 5, 4\r\n",
        "If-None-Match: *\r\nContent-Length: +5\r\n",
        "If-None-Match: *\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n",
        "If-None-Match: *\r\nTransfer-Encoding: x\r\nContent-Length: 5\r\n",
    ] {
        let answer = target.request_that(
            true,
            &path,
            headers,
            b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        );
        assert_ne!(status(&answer), 201, "{headers}: {answer}");
    }
    target.still_serves(0);
}

#[test]
fn a_client_that_breaks_off_leaves_nothing() {
    let target = target();
    let (bearer, base) = (&target.bearer, &target.base);
    let head = format!(
        "PUT {base}/extent/packs/{} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\
         If-None-Match: *\r\nContent-Length: 200000\r\n\r\n",
        SetId([2; 16])
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + 200_000, 5);
    for cut in (0..request.len() - 1).step_by(9_973) {
        let mut tls = connect(&target.server);
        let _ = tls.write_all(&request[..cut]).and_then(|()| tls.flush());
        let _ = tls.sock.shutdown(Shutdown::Both);
    }
    target.still_serves(0);
}

/// What never arrived completely does not count for the quota.
#[test]
fn uploads_that_break_off_use_up_no_quota() {
    let server = store();
    let quota =
        NewToken { quota_bytes: Some(300_000), ..server.new_token("ant", TokenRole::Append) };
    let (_, connection) = server.token_with(quota);
    let bearer = connection.join_string().reveal();
    let pack = |byte: u8| crate::sets::extents(&crate::sets::run(byte, 1)).swap_remove(0);
    for byte in 1..20 {
        let extent = pack(byte);
        let head = format!(
            "PUT /v1/{}/0/extent/packs/{} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\
             If-None-Match: *\r\nContent-Length: {}\r\n\r\n",
            server.volume,
            SetId([byte; 16]),
            extent.len()
        );
        let mut tls = connect(&server);
        tls.write_all(head.as_bytes()).unwrap();
        tls.write_all(&extent[..extent.len() / 2]).and_then(|()| tls.flush()).unwrap();
        let _ = tls.sock.shutdown(Shutdown::Both);
    }
    let client = server.member(&connection, 0);
    let put = || {
        let mut writer = client.create(name(ExtentKind::Packs, 30), Replace::Never)?;
        writer.append(&pack(30))?;
        writer.seal()
    };
    // The server may still be about to see that the last client is gone.
    let mut tries = 0..500;
    while let Err(error) = put() {
        assert!(tries.next().is_some() && error.kind() == Kind::NoSpace, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_token_over_its_rate_waits() {
    let server = exported();
    let (_, connection) = server.token_with(pinstripe_serve::NewToken {
        rate: Some(5),
        ..server.new_token("ant", TokenRole::Admin)
    });
    let bearer = connection.join_string().reveal();
    let request = format!(
        "GET /v1/hello HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\
         Connection: close\r\n\r\n"
    );
    let answers: Vec<u16> =
        (0..30).map(|_| status(&exchange(&server, request.as_bytes(), false))).collect();
    assert!(answers.contains(&200) && answers.contains(&429), "{answers:?}");
    // A client of this project sends the request again later.
    let member = server.member(&connection, 0);
    for _ in 0..10 {
        member.list(ExtentKind::Packs).unwrap();
    }
}

#[test]
fn a_revoked_token_ends_at_once() {
    let target = target();
    let member = target.server.member(&target.connection, 0);
    member.list(ExtentKind::Packs).unwrap();
    target.server.tokens().revoke("ant", 1_700_000_000).unwrap();
    let error = member.list(ExtentKind::Packs).unwrap_err();
    assert_eq!(error.kind(), pinstripe_base::error::Kind::NotAllowed);
}

/// Hosts recognize the key of a server, whatever the dates in its certificate.
#[test]
fn an_expired_certificate_with_the_right_key_is_accepted() {
    let state = tempfile::tempdir().unwrap();
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let expired = params.self_signed(&pair).unwrap();
    let (key, certificate) = (state.path().join("key.pem"), state.path().join("cert.pem"));
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    std::fs::write(&certificate, expired.pem()).unwrap();
    let identity = ServerKey::from_files(&certificate, &key).unwrap();
    let member = Places::default().create(&state.path().join("member")).unwrap().member;
    let served = volume(false, vec![member]);
    let server = start_as(state, served, identity);
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let name = ExtentName::In(ExtentKind::Scrub, [1; 16]);
    server.member(&connection, 0).put(name, b"well").unwrap();
}
