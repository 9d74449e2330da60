//! Serves metrics over HTTP, as a server with one page.
//!
//! Invariants: there are at most [`CONNECTIONS`] clients at a time, each with one request of at
//! most [`HEAD_BYTES`] and one time limit; a client's request only determines the answer; no client
//! prevents a mount from ending.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock::monotonic;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::{Stop, wait_readable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The most clients at a time.
const CONNECTIONS: usize = 16;
/// The most bytes of a request with all of its headers; scrapers send far less.
const HEAD_BYTES: usize = 8 << 10;
/// The time from a client's connection to the end of its answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The most bytes that a client may send after its answer.
const REST_BYTES: usize = 64 << 10;
/// The time that a client has to send these bytes.
const REST: Duration = Duration::from_secs(1);
/// The pause before the next accept when the system has no room for a client.
const PAUSE: Duration = Duration::from_millis(100);

/// The media type of the text format of Prometheus.
const FIGURES: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
/// The path of the page with the metrics.
const PATH: &str = "/metrics";

/// A server that listens for requests for the metrics.
pub(super) struct MetricsServer {
    listener: TcpListener,
    deadline: Duration,
}

/// An answer.
struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
    /// Whether the request was HEAD.
    is_head: bool,
}

impl MetricsServer {
    /// Listens at an address.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub(super) fn bind(address: SocketAddr) -> Result<Self> {
        let failed =
            |error| Error::io("cannot listen for HTTP requests", address.to_string(), error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(MetricsServer { listener, deadline: DEADLINE })
    }

    /// The URL at which the server listens, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub(super) fn url(&self) -> Result<String> {
        let address = self.listener.local_addr();
        let address = address.map_err(|error| Error::io("has no address", "HTTP", error))?;
        Ok(format!("http://{address}{PATH}"))
    }

    /// Answers with `page` until `over` is set.
    pub(super) fn serve(&self, over: &Stop, page: &(dyn Fn() -> String + Sync)) {
        let clients = &AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !over.is_set() {
                if wait_readable(&[over.as_fd(), self.listener.as_fd()], None).is_err() {
                    over.wait(PAUSE);
                    continue;
                }
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if is_of_client(&error) => continue,
                    // Most likely there are too many descriptors.
                    Err(_) => {
                        over.wait(PAUSE);
                        continue;
                    }
                };
                let client = HttpConnection { stream, over, deadline: monotonic() + self.deadline };
                if clients.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    client.turn_away();
                    continue;
                }
                // Counted out also where no thread can be started, which drops it unused.
                let leaves = Leaves(clients);
                let answer = move || {
                    let _leaves = leaves;
                    // One that is gone needs no answer.
                    let _ = client.serve(page);
                };
                if std::thread::Builder::new().spawn_scoped(scope, answer).is_err() {
                    over.wait(PAUSE);
                }
            }
        });
    }
}

/// Whether an error concerns only one connection, so that the next one may succeed.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// Decrements the number of clients when a client's thread ends or could not be started.
struct Leaves<'c>(&'c AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of reading a client's request.
enum RequestHead {
    /// The request line and the headers.
    Whole(Vec<u8>),
    /// The HTTP status that the client gets instead of the page.
    Refused(&'static str),
}

/// A connection.
struct HttpConnection<'s> {
    stream: TcpStream,
    over: &'s Stop,
    deadline: Instant,
}

impl HttpConnection<'_> {
    fn serve(mut self, page: &dyn Fn() -> String) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let response = match self.head()? {
            RequestHead::Whole(head) => respond(&head, page),
            RequestHead::Refused(status) => {
                // It may be the deadline that has passed: the answer is short.
                self.deadline = self.deadline.max(monotonic() + REST);
                Response::plain(status)
            }
        };
        self.send(&response.bytes())?;
        // Closed with bytes unread, the connection would be reset, and the answer be lost.
        self.stream.shutdown(Shutdown::Write)?;
        self.deadline = self.deadline.min(monotonic() + REST);
        let (mut rest, mut piece) = (0, [0; 4096]);
        while rest < REST_BYTES && self.wait(PollFlags::IN)? {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(bytes) => rest += bytes,
                Err(error) if is_of_client(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Answers that there are too many clients, without waiting for the request.
    fn turn_away(mut self) {
        if self.stream.set_nonblocking(true).is_ok() {
            let _ = self.stream.write(&Response::plain("503 Service Unavailable").bytes());
        }
    }

    /// Reads the request line with the headers.
    fn head(&mut self) -> io::Result<RequestHead> {
        let (mut head, mut piece) = (Vec::new(), [0; 1024]);
        loop {
            if !self.wait(PollFlags::IN)? {
                return Ok(RequestHead::Refused("408 Request Timeout"));
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => head.extend_from_slice(&piece[..bytes]),
                Err(error) if is_of_client(&error) => continue,
                Err(error) => return Err(error),
            }
            let end = head.windows(4).position(|it| it == b"\r\n\r\n");
            match end {
                Some(end) if end <= HEAD_BYTES => {
                    head.truncate(end);
                    return Ok(RequestHead::Whole(head));
                }
                _ if head.len() > HEAD_BYTES => {
                    return Ok(RequestHead::Refused("431 Request Header Fields Too Large"));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if !self.wait(PollFlags::OUT)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_of_client(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the connection is ready to be read or written; returns `false` at the time limit
    /// and when the server ends.
    fn wait(&self, flags: PollFlags) -> io::Result<bool> {
        loop {
            let left = self.deadline.saturating_duration_since(monotonic());
            if self.over.is_set() || left.is_zero() {
                return Ok(false);
            }
            let over = PollFd::new(self.over, PollFlags::IN);
            let mut polled = [PollFd::new(&self.stream, flags), over];
            match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) if !polled[0].revents().is_empty() => return Ok(true),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Response {
    fn plain(status: &'static str) -> Self {
        Response { status, kind: TEXT, body: format!("{status}\n"), is_head: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let Response { status, kind, body, is_head } = self;
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\
             Connection: close\r\n\r\n",
            body.len(),
            if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" },
        )
        .into_bytes();
        if !is_head {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// The answer to a request.
fn respond(head: &[u8], page: &dyn Fn() -> String) -> Response {
    let Some((method, path)) = request(head) else { return Response::plain("400 Bad Request") };
    if !matches!(method, "GET" | "HEAD") {
        return Response::plain("405 Method Not Allowed");
    }
    let found = match path {
        PATH => Response { status: "200 OK", kind: FIGURES, body: page(), is_head: false },
        "/" => {
            let body = format!("pinstripe: the metrics are at {PATH}\n");
            Response { status: "200 OK", kind: TEXT, body, is_head: false }
        }
        _ => Response::plain("404 Not Found"),
    };
    Response { is_head: method == "HEAD", ..found }
}

/// The method and the path of a request, if each of its lines is valid (RFC 9112).
fn request(head: &[u8]) -> Option<(&str, &str)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && is_token(method) && !target.is_empty();
    if !is_whole || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut hosts = 0;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let is_text = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        if !is_token(name) || !value.bytes().all(is_text) {
            return None;
        }
        hosts += usize::from(name.eq_ignore_ascii_case("host"));
    }
    match version {
        "HTTP/1.1" if hosts == 1 => {}
        "HTTP/1.0" if hosts <= 1 => {}
        _ => return None,
    }
    // The form that is meant for proxies must be taken, too.
    let target = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    Some((method, target.split('?').next().unwrap_or(target)))
}

/// Whether a text is a token: a method, or the name of a header.
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with this deadline, while `ask` asks it at its address.
    fn with_server(
        deadline: Duration,
        page: &(dyn Fn() -> String + Sync),
        ask: impl FnOnce(SocketAddr),
    ) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = MetricsServer { deadline, ..MetricsServer::bind(any).unwrap() };
        let (address, over) = (server.listener.local_addr().unwrap(), &Stop::new().unwrap());
        assert_eq!(server.url().unwrap(), format!("http://{address}/metrics"));
        std::thread::scope(|scope| {
            // Also when an assertion of `ask` fails.
            struct Ends<'s>(&'s Stop);
            impl Drop for Ends<'_> {
                fn drop(&mut self) {
                    self.0.set();
                }
            }
            scope.spawn(|| server.serve(over, page));
            let _ends = Ends(over);
            ask(address);
        });
    }

    fn try_exchange(address: SocketAddr, request: &[u8]) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        try_exchange(address, request).unwrap()
    }

    const LONG: Duration = Duration::from_secs(600);
    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n";

    fn small() -> String {
        "a 1\n".to_owned()
    }

    #[test]
    fn figures_are_one_page() {
        with_server(LONG, &small, |address| {
            let answer = exchange(address, GET);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("\r\nContent-Length: 4\r\n"), "{head}");
            assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
            assert_eq!(body, "a 1\n");
            let head = exchange(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
            assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
            let proxied = exchange(address, b"GET http://h:1/metrics HTTP/1.1\r\nHost: h\r\n\r\n");
            assert!(proxied.ends_with("a 1\n"), "{proxied}");
            assert!(exchange(address, b"GET / HTTP/1.0\r\n\r\n").contains("at /metrics"));
        });
    }

    #[test]
    fn other_requests_are_refused_each_by_its_name() {
        with_server(LONG, &small, |address| {
            let long =
                [&b"GET / HTTP/1.1\r\nHost: h\r\nA: "[..], &[b'a'; 9000], b"\r\n\r\n"].concat();
            for (request, status) in [
                (&b"GET /x HTTP/1.0\r\n\r\n"[..], "404"),
                (b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "405"),
                (b"GET /metrics HTTP/1.1\r\n\r\n", "400"),
                (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
                (b"GET /metrics HTTP/2\r\nHost: a\r\n\r\n", "400"),
                (b"GET  /metrics HTTP/1.0\r\n\r\n", "400"),
                (b"GET /metrics\r\n\r\n", "400"),
                (b"GET /metrics HTTP/1.0\r\n folded\r\n\r\n", "400"),
                (b"GET /metrics HTTP/1.0\r\nA : b\r\n\r\n", "400"),
                (b"GET /metrics HTTP/1.0\r\nA: b\0\r\n\r\n", "400"),
                (b"\xff\xfe\x16\x03\x01\r\n\r\n", "400"),
                (b"\r\n\r\n\r\n", "400"),
                (&long, "431"),
            ] {
                let answer = exchange(address, request);
                let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
            }
            let endless = vec![b'x'; 1 << 20];
            let mut stream = TcpStream::connect(address).unwrap();
            // It may be closed before all of that is sent.
            let _ = stream.write_all(&endless);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(exchange(address, GET).ends_with("a 1\n"));
        });
    }

    #[test]
    fn slow_clients_meet_their_deadline_and_hold_up_no_other() {
        with_server(Duration::from_millis(100), &small, |address| {
            let mut slow = TcpStream::connect(address).unwrap();
            slow.write_all(b"GET /metrics HTTP/1.1\r\nHost").unwrap();
            let mut answer = String::new();
            slow.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        });
    }

    #[test]
    fn a_client_that_does_not_read_meets_its_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut deaf = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        deaf.write_all(GET).unwrap();
        let (stream, over) = (listener.accept().unwrap().0, Stop::new().unwrap());
        let deadline = monotonic() + Duration::from_millis(100);
        // More than the buffers of a connection hold.
        let large = || "a 1\n".repeat(8 << 20);
        let ended = HttpConnection { stream, over: &over, deadline }.serve(&large);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn too_many_clients_are_turned_away_until_others_leave() {
        with_server(LONG, &small, |address| {
            let silent: Vec<TcpStream> =
                (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            let refused = exchange(address, b"");
            assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
            drop(silent);
            // One that is turned away may be reset before it has its answer.
            let is_served = |answer: io::Result<String>| answer.is_ok_and(|it| it.contains("200"));
            while !is_served(try_exchange(address, b"GET / HTTP/1.0\r\n\r\n")) {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn the_end_does_not_wait_for_clients() {
        let mut kept = None;
        with_server(LONG, &small, |address| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET").unwrap();
            kept = Some(stream);
        });
        drop(kept);
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = MetricsServer::bind(any).unwrap();
        let error = MetricsServer::bind(server.listener.local_addr().unwrap()).err().unwrap();
        assert!(error.to_string().contains("cannot listen"), "{error}");
    }
}
