//! A proxy between a client of HTTP and its server: it counts requests, delays and falsifies them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Longest head of a request or an answer.
const HEAD_MAX_BYTES: u64 = 64 << 10;

/// A request as the proxy sees it.
pub struct Asked {
    /// The number among all requests of the proxy, from 1.
    pub number: u64,
    /// As in `PUT`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Whether it is to make an object only where there is none.
    pub is_create: bool,
    /// The length of its body.
    pub body_bytes: u64,
}

/// The fate of a request.
pub enum Fate {
    /// It is carried out and answered.
    Pass,
    /// It is carried out, and the connection ends without an answer.
    DropAnswer,
    /// It is not carried out; this is the answer: status, body. 200 without a body is what a PUT
    /// gets.
    Answer(u16, String),
    /// The same with lines of its own in the head, as `Location: http://...`.
    AnswerWith(u16, Vec<String>, String),
    /// It is carried out, and the answer ends after this many bytes of its body.
    Truncate(usize),
    /// It is carried out, and one bit of the answer's body is wrong.
    FlipAnswer,
    /// It is carried out with one bit of its own body wrong.
    FlipSent,
    /// Neither carried out nor answered, as long as the client waits.
    Hang,
}

type Rule = Arc<dyn Fn(&Asked) -> Fate + Send + Sync>;

struct ProxyShared {
    upstream: SocketAddr,
    delay: Mutex<Duration>,
    rule: Mutex<Rule>,
    log: Mutex<Vec<String>>,
    count: AtomicU64,
    stopped: AtomicBool,
}

/// A proxy on a port of the loopback.
pub struct Proxy {
    port: u16,
    shared: Arc<ProxyShared>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that passes everything to a server on the loopback.
    pub fn start(upstream_port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ProxyShared {
            upstream: (Ipv4Addr::LOCALHOST, upstream_port).into(),
            delay: Mutex::default(),
            rule: Mutex::new(Arc::new(|_: &Asked| Fate::Pass)),
            log: Mutex::default(),
            count: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let accepting = Some(thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if own.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let own = Arc::clone(&own);
                thread::spawn(move || drop(own.serve(client)));
            }
        }));
        Proxy { port, shared, accepting }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Each request takes so much longer from now on.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay.lock().unwrap() = delay;
    }

    /// Decides about every request from now on.
    pub fn rule(&self, rule: impl Fn(&Asked) -> Fate + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Arc::new(rule);
    }

    /// The requests since this was asked last, as `PUT /bucket/key`.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.log.lock().unwrap())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// A message of HTTP: the lines of its head, and its body.
struct HttpMessage {
    head: Vec<String>,
    body: Vec<u8>,
}

impl ProxyShared {
    fn serve(&self, client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let mut reader = BufReader::new(client.try_clone()?);
        let mut client = client;
        while let Some(head) = read_head(&mut reader)? {
            let mut request = HttpMessage { head, body: Vec::new() };
            if request.header("expect").is_some() {
                client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let length = request.header("content-length").and_then(|it| it.parse().ok());
            reader.by_ref().take(length.unwrap_or(0)).read_to_end(&mut request.body)?;
            // In a statement of its own: a lock held while this sleeps makes requests wait in line.
            let delay = *self.delay.lock().unwrap();
            let fate = self.decide(&request);
            thread::sleep(delay);
            match fate {
                Fate::Hang => {
                    // Until the client gives up.
                    let _ = reader.read(&mut [0]);
                    return Ok(());
                }
                Fate::Answer(status, body) => {
                    // As the answer to a PUT has it.
                    let is_put = status == 200 && body.is_empty();
                    let lines = is_put.then(|| "ETag: \"said\"".to_owned());
                    say(&mut client, &request, status, &Vec::from_iter(lines), &body)?;
                }
                Fate::AnswerWith(status, lines, body) => {
                    say(&mut client, &request, status, &lines, &body)?;
                }
                fate => {
                    if matches!(fate, Fate::FlipSent) {
                        flip(&mut request.body);
                    }
                    let answer = self.ask(&request)?;
                    if !answer_with(&mut client, answer, &fate)? {
                        return client.shutdown(Shutdown::Both);
                    }
                }
            }
        }
        Ok(())
    }

    fn decide(&self, request: &HttpMessage) -> Fate {
        let mut words = request.head[0].split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        let (method, target) = (next(), next());
        self.log.lock().unwrap().push(format!("{method} {target}"));
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let rule = Arc::clone(&*self.rule.lock().unwrap());
        let is_create = request.header("if-none-match").is_some();
        let body_bytes = request.body.len() as u64;
        rule(&Asked { number, method, target, is_create, body_bytes })
    }

    /// Has the server carry a request out, on a connection of its own.
    fn ask(&self, request: &HttpMessage) -> std::io::Result<HttpMessage> {
        let mut server = TcpStream::connect(self.upstream)?;
        server.set_nodelay(true)?;
        let kept = request.head.iter().filter(|line| !is_header(line, "connection"));
        let mut head: String = kept.map(|line| format!("{line}\r\n")).collect();
        head.push_str("Connection: close\r\n\r\n");
        server.write_all(head.as_bytes())?;
        // A server that refuses by the head alone answers, and takes no body.
        let sent = server.write_all(&request.body);
        let mut reader = BufReader::new(server);
        let cut = || sent.err().unwrap_or_else(|| std::io::Error::other("no answer was received"));
        let head = read_head(&mut reader)?.ok_or_else(cut)?;
        let mut body = Vec::new();
        reader.read_to_end(&mut body)?;
        Ok(HttpMessage { head, body })
    }
}

/// Gives the client an answer that the server did not give.
fn say(
    client: &mut TcpStream,
    request: &HttpMessage,
    status: u16,
    lines: &[String],
    body: &str,
) -> std::io::Result<()> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(client, "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n{lines}\r\n")?;
    // The answer to HEAD has no body.
    match request.head[0].starts_with("HEAD") {
        true => Ok(()),
        false => client.write_all(body.as_bytes()),
    }
}

/// Gives the client its answer; returns whether the connection continues.
fn answer_with(
    client: &mut TcpStream,
    mut answer: HttpMessage,
    fate: &Fate,
) -> std::io::Result<bool> {
    let keep = match fate {
        Fate::DropAnswer => return Ok(false),
        Fate::FlipAnswer => {
            flip(&mut answer.body);
            answer.body.len()
        }
        Fate::Truncate(bytes) => (*bytes).min(answer.body.len()),
        _ => answer.body.len(),
    };
    let lines = answer.head.iter().filter(|line| !is_header(line, "connection"));
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    client.write_all(head.as_bytes())?;
    client.write_all(b"\r\n")?;
    client.write_all(&answer.body[..keep])?;
    Ok(keep == answer.body.len())
}

impl HttpMessage {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.iter().find(|line| is_header(line, name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }
}

fn is_header(line: &str, name: &str) -> bool {
    line.split_once(':').is_some_and(|(its, _)| its.eq_ignore_ascii_case(name))
}

fn flip(body: &mut [u8]) {
    let middle = body.len() / 2;
    if let Some(byte) = body.get_mut(middle) {
        *byte ^= 4;
    }
}

/// The lines of a head; `None` where the connection ends instead.
fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<String>>> {
    let mut lines = Vec::new();
    let mut limited = reader.take(HEAD_MAX_BYTES);
    loop {
        let mut line = Vec::new();
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if text.is_empty() {
            return Ok(Some(lines));
        }
        lines.push(text);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A server that answers everything with nothing.
    fn server() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut reader = BufReader::new(client.try_clone().unwrap());
                let _ = read_head(&mut reader);
                let _ = (&client).write_all(b"HTTP/1.1 204 Nothing\r\n\r\n");
            }
        });
        port
    }

    fn ask(proxy: &Proxy) -> BufReader<TcpStream> {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        BufReader::new(client)
    }

    #[test]
    fn a_request_that_is_delayed_holds_up_no_other() {
        let proxy = Proxy::start(server());
        proxy.delay(Duration::from_secs(30));
        let late = ask(&proxy);
        let began = Instant::now();
        while proxy.take_log().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "it was not asked");
            thread::yield_now();
        }
        proxy.delay(Duration::ZERO);
        let answer = read_head(&mut ask(&proxy)).unwrap().unwrap();
        assert!(answer[0].contains("204"), "{answer:?}");
        late.get_ref().set_nonblocking(true).unwrap();
        let early = late.get_ref().peek(&mut [0]);
        assert!(early.is_err(), "the other one was waited for");
    }
}
