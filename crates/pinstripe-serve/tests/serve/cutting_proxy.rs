//! A proxy between a host and a server that cuts their connections after a byte. It ends TLS, so that
//! the byte is one of HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{join, select};
use pinstripe_remote::{Connection, KeyPin, pin_of_certificate};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::hostile::Blind;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Requests.
    Up,
    /// Answers.
    Down,
}

/// What becomes of the host after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// All its connections end, and it connects again.
    Again,
    /// It is never heard of again, as when its process is killed.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Cut {
    way: Way,
    after: u64,
    then: Then,
}

struct Line {
    upstream: SocketAddr,
    cut: Mutex<Option<Cut>>,
    passed: [AtomicU64; 2],
    /// The number of cuts so far; an odd number stands for a host that is gone.
    ended: watch::Sender<u64>,
    is_gone: Mutex<bool>,
}

/// A proxy on a port of the loopback; it ends when this is dropped.
pub struct CuttingProxy {
    address: SocketAddr,
    pin: KeyPin,
    line: Arc<Line>,
    _runtime: Runtime,
}

impl CuttingProxy {
    pub fn start(upstream: SocketAddr) -> CuttingProxy {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (acceptor, pin) = acceptor(&provider);
        let (of_gone, _) = self::acceptor(&provider);
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Blind(provider)))
            .with_no_client_auth();
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let line = Arc::new(Line {
            upstream,
            cut: Mutex::new(None),
            passed: Default::default(),
            ended: watch::Sender::new(0),
            is_gone: Mutex::new(false),
        });
        let connector = TlsConnector::from(Arc::new(client));
        let own = Arc::clone(&line);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (line, connector) = (Arc::clone(&own), connector.clone());
                // A process that is killed sends no request again: this one's requests end at once,
                // because it meets another key.
                let is_gone = *own.is_gone.lock().unwrap();
                let acceptor = if is_gone { of_gone.clone() } else { acceptor.clone() };
                tokio::spawn(async move { line.connect(stream, acceptor, connector).await });
            }
        });
        CuttingProxy { address, pin, line, _runtime: runtime }
    }

    /// The connection of a host that goes through the proxy.
    pub fn connection(&self, direct: &Connection) -> Connection {
        let address = self.address.to_string();
        Connection { address, pins: vec![self.pin], ..direct.clone() }
    }

    /// Cuts the connection after this number of further bytes.
    pub fn cut(&self, way: Way, after: u64, then: Then) {
        self.calm();
        *self.line.cut.lock().unwrap() = Some(Cut { way, after, then });
    }

    /// Passes everything from now on, and counts from 0.
    pub fn calm(&self) {
        *self.line.cut.lock().unwrap() = None;
        *self.line.is_gone.lock().unwrap() = false;
        self.line.passed.iter().for_each(|passed| passed.store(0, Ordering::SeqCst));
    }

    /// The bytes that have passed.
    pub fn passed(&self, way: Way) -> u64 {
        self.line.passed[way as usize].load(Ordering::SeqCst)
    }

    /// Whether the cut has been made.
    pub fn has_cut(&self) -> bool {
        self.line.cut.lock().unwrap().is_none()
    }
}

/// A TLS server with a new key, and the pin of the key.
fn acceptor(provider: &Arc<CryptoProvider>) -> (TlsAcceptor, KeyPin) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["proxy".to_owned()]).unwrap();
    let certificate = params.self_signed(&pair).unwrap().der().clone();
    let pin = pin_of_certificate(&certificate).unwrap();
    let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(server)), pin)
}

impl Line {
    async fn connect(&self, host: TcpStream, acceptor: TlsAcceptor, connector: TlsConnector) {
        let mut ended = self.ended.subscribe();
        ended.mark_unchanged();
        let pass = async {
            let host = acceptor.accept(host).await.ok()?;
            let server = TcpStream::connect(self.upstream).await.ok()?;
            let name = ServerName::try_from("pinstripe").unwrap();
            let server = connector.connect(name, server).await.ok()?;
            let (from_host, to_host) = tokio::io::split(host);
            let (from_server, to_server) = tokio::io::split(server);
            let up = self.pass(Way::Up, from_host, to_server);
            join(up, self.pass(Way::Down, from_server, to_host)).await;
            Some(())
        };
        // Without an end of TLS, as a connection breaks.
        select(Box::pin(pass), Box::pin(ended.changed())).await;
    }

    async fn pass(
        &self,
        way: Way,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) {
        let mut part = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut part).await {
            let (allowed, cut) = self.admit(way, count as u64);
            if to.write_all(&part[..allowed as usize]).await.is_err() || to.flush().await.is_err() {
                return;
            }
            if let Some(cut) = cut {
                // What has passed arrives before the end.
                tokio::task::yield_now().await;
                *self.is_gone.lock().unwrap() = cut.then == Then::Gone;
                self.ended.send_modify(|count| *count += 1);
                std::future::pending::<()>().await;
            }
        }
        let _ = to.shutdown().await;
    }

    /// How many of these bytes may pass, and the cut that they bring about.
    fn admit(&self, way: Way, count: u64) -> (u64, Option<Cut>) {
        let mut cut = self.cut.lock().unwrap();
        let before = self.passed[way as usize].fetch_add(count, Ordering::SeqCst);
        match *cut {
            Some(it) if it.way == way && before + count >= it.after => {
                *cut = None;
                (it.after.saturating_sub(before), Some(it))
            }
            _ => (count, None),
        }
    }
}
