//! A server that requires certificates of clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pinstripe_base::error::Kind;
use pinstripe_member::ExtentKind;
use pinstripe_remote::{ClientCertificate, Connection};
use pinstripe_remote::{RemoteClient, ServedVolumes, read_certificates, read_private_key};
use pinstripe_serve::{ClientAuthority, TokenRole};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
};
use rcgen::{IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::hostile::{Blind, status};
use crate::roles::name;
use crate::setup::{PATIENCE, StoreFixture, directory, start_requiring};

/// An authority that signs certificates of clients, with its files.
struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
    signed: AtomicU32,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { dir, issuer, signed: AtomicU32::new(0) }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn server(&self) -> StoreFixture {
        start_requiring(ClientAuthority::from_file(&self.file()).unwrap())
    }

    fn sign(&self, name: &str) -> ClientCertificate {
        self.sign_with(name, |_| ())
    }

    /// A certificate with a DNS name, changed before it is signed.
    fn sign_with(&self, name: &str, change: impl Fn(&mut CertificateParams)) -> ClientCertificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let pair = KeyPair::generate().unwrap();
        let signed = params.signed_by(&pair, &self.issuer).unwrap();
        let number = self.signed.fetch_add(1, Ordering::Relaxed);
        let file = |end: &str| self.dir.path().join(format!("signed{number}.{end}"));
        std::fs::write(file("pem"), signed.pem()).unwrap();
        std::fs::write(file("key"), pair.serialize_pem()).unwrap();
        ClientCertificate { chain: file("pem"), key: file("key") }
    }
}

fn with(connection: &Connection, certificate: &ClientCertificate) -> Connection {
    Connection { certificate: Some(certificate.clone()), ..connection.clone() }
}

#[test]
fn a_host_with_a_certificate_of_its_own_name_is_served() {
    let authority = Authority::new("a");
    let server = authority.server();
    let (_, ant) = server.token("ant.example", TokenRole::Admin);
    let right = authority.sign("ant.example");
    let member = server.member(&with(&ant, &right), 0);
    member.put(name(ExtentKind::Scrub, 1), b"well").unwrap();
    // DNS names have no case, and one file may have both parts.
    let both = authority.dir.path().join("both.pem");
    let upper = authority.sign("ANT.example");
    let parts = [&upper.chain, &upper.key].map(|it| std::fs::read_to_string(it).unwrap());
    std::fs::write(&both, parts.concat()).unwrap();
    let both = ClientCertificate { chain: both.clone(), key: both };
    let member = server.member(&with(&ant, &both), 0);
    assert_eq!(member.len(name(ExtentKind::Scrub, 1)).unwrap(), 4);
}

#[test]
fn other_certificates_are_refused_with_the_reason() {
    let (authority, other, twin) = (Authority::new("a"), Authority::new("b"), Authority::new("a"));
    let server = authority.server();
    let (_, ant) = server.token("ant.example", TokenRole::Admin);
    let cases = [
        (Some(other.sign("ant.example")), "no certificate authority of the server"),
        (Some(twin.sign("ant.example")), "no certificate authority of the server"),
        (Some(authority.sign("bee.example")), "does not name the host of the token"),
        (Some(authority.sign("*.example")), "does not name the host of the token"),
        (
            Some(authority.sign_with("ant.example", |it| it.subject_alt_names.clear())),
            "does not name the host of the token",
        ),
        (
            Some(authority.sign_with("ant.example", |it| {
                it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            })),
            "not a valid certificate of a client",
        ),
        (
            Some(authority.sign_with("ant.example", |it| {
                it.not_before = date_time_ymd(2001, 1, 1);
                it.not_after = date_time_ymd(2002, 1, 1);
            })),
            ".pem: it has expired",
        ),
        (None, "the server requires a client certificate"),
    ];
    for (certificate, reason) in cases {
        let connection = Connection { certificate, ..ant.clone() };
        let member = server.member(&connection, 0);
        let error = member.put(name(ExtentKind::Scrub, 1), b"bad").unwrap_err();
        assert_eq!(error.kind(), Kind::NotAllowed, "{reason}: {error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
    let local = directory(&server.state.path().join("member"));
    assert_eq!(local.list(ExtentKind::Scrub).unwrap(), []);
}

#[test]
fn files_that_are_no_certificate_are_named() {
    let authority = Authority::new("a");
    let server = authority.server();
    let (_, ant) = server.token("ant", TokenRole::Admin);
    let (right, other) = (authority.sign("ant"), authority.sign("bee"));
    let absent = authority.dir.path().join("absent");
    for (chain, key, kind) in [
        (&absent, &right.key, Kind::NotFound),
        (&right.chain, &absent, Kind::NotFound),
        (&right.key, &right.key, Kind::Corrupt),
        (&right.chain, &right.chain, Kind::Corrupt),
        (&right.chain, &other.key, Kind::Usage),
    ] {
        let certificate = ClientCertificate { chain: chain.clone(), key: key.clone() };
        let connection = with(&ant, &certificate);
        let volumes = ServedVolumes::new(vec![connection.clone()], PATIENCE);
        let made: Result<Arc<RemoteClient>, _> =
            volumes.client(&connection.address, connection.volume);
        let error = made.err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.place().is_some(), "{error}");
    }
    let error = ClientAuthority::from_file(&right.key).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

/// What a program that accepts every server gets; with a certificate, or without one.
fn exchange(config: &Arc<ClientConfig>, server: &StoreFixture, request: &str) -> Answer {
    let name = ServerName::try_from("pinstripe").unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut tls = StreamOwned::new(connection, stream);
    let _ = tls.write_all(request.as_bytes()).and_then(|()| tls.flush());
    let mut text = Vec::new();
    let error = tls.read_to_end(&mut text).err().map(|it| it.to_string()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    Answer { text, error, handshake: tls.conn.handshake_kind() }
}

struct Answer {
    text: String,
    error: String,
    handshake: Option<HandshakeKind>,
}

fn config(certificate: Option<&ClientCertificate>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Blind(provider)));
    Arc::new(match certificate {
        None => config.with_no_client_auth(),
        Some(ClientCertificate { chain, key }) => config
            .with_client_auth_cert(
                read_certificates(chain).unwrap(),
                read_private_key(key).unwrap(),
            )
            .unwrap(),
    })
}

const END: &str = "Host: x\r\nConnection: close\r\n";

#[test]
fn nothing_is_answered_without_a_certificate_not_even_health() {
    let authority = Authority::new("a");
    let server = authority.server();
    for path in ["/", "/healthz", "/readyz", "/metrics", "/style.css", "/v1/hello"] {
        let answer = exchange(&config(None), &server, &format!("GET {path} HTTP/1.1\r\n{END}\r\n"));
        assert_eq!(answer.text, "", "{path}");
        assert!(answer.error.contains("CertificateRequired"), "{path}: {}", answer.error);
    }
    // Any certificate of the authority may ask for health; the second connection proves its
    // certificate again.
    let monitor = config(Some(&authority.sign("monitor")));
    for _ in 0..2 {
        let answer = exchange(&monitor, &server, &format!("GET /healthz HTTP/1.1\r\n{END}\r\n"));
        assert_eq!(status(&answer.text), 200, "{}", answer.text);
        assert_eq!(answer.handshake, Some(HandshakeKind::Full));
    }
}

#[test]
fn a_login_belongs_to_the_host_of_the_certificate() {
    let authority = Authority::new("a");
    let server = authority.server();
    let (desk, ant) = (authority.sign("desk"), authority.sign("ant"));
    let (desk, ant) = (config(Some(&desk)), config(Some(&ant)));
    let (_, token) = server.token("desk", TokenRole::Admin);
    let body = format!("join={}", token.join_string().reveal());
    let login =
        format!("POST /login HTTP/1.1\r\nContent-Length: {}\r\n{END}\r\n{body}", body.len());
    let refused = exchange(&ant, &server, &login).text;
    assert_eq!(status(&refused), 403);
    assert!(refused.contains("does not name the host of this token"), "{refused}");
    let answer = exchange(&desk, &server, &login).text;
    assert_eq!(status(&answer), 303, "{answer}");
    let cookie = answer.lines().find(|it| it.to_lowercase().starts_with("set-cookie:")).unwrap();
    let cookie = cookie.split_once(':').unwrap().1.split(';').next().unwrap().trim();
    let page = format!("GET / HTTP/1.1\r\nCookie: {cookie}\r\n{END}\r\n");
    assert!(exchange(&desk, &server, &page).text.contains("<table"));
    let stolen = exchange(&ant, &server, &page).text;
    assert!(status(&stolen) == 403 && !stolen.contains("<table"), "{stolen}");
}
