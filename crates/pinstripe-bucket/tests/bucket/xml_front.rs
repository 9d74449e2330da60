//! The writes of Google's XML API before a fake-gcs-server, which has them by the JSON API alone: PUT of
//! an object, also if none has the name, and uploads in parts. All else is passed on.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The bucket that is made.
pub const BUCKET: &str = "pinstripe-tests";

/// Starts one before the server at this address, as `127.0.0.1:4443`, and makes the bucket there; its
/// port. It ends with the process.
pub fn start(server: &str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, uploads) = (server.to_owned(), Mutex::default());
    let front = Arc::new(Front { server, uploads });
    let body = format!("{{\"name\":\"{BUCKET}\"}}").into_bytes();
    let json = "Content-Type: application/json\r\n";
    let made = front.ask("POST", "/storage/v1/b", json, &body).unwrap();
    assert!(matches!(made.status(), 200 | 409), "{:?}", made.head);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let front = Arc::clone(&front);
            thread::spawn(move || drop(front.serve(&client)));
        }
    });
    port
}

/// Parts by their numbers.
type Parts = BTreeMap<u32, Vec<u8>>;

struct Front {
    server: String,
    uploads: Mutex<HashMap<String, Parts>>,
}

/// A request or an answer.
struct Message {
    head: Vec<String>,
    body: Vec<u8>,
}

impl Message {
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.iter().filter_map(|line| line.split_once(':'));
        fields.find(|(its, _)| its.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn status(&self) -> u16 {
        self.head[0].split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn answer(status: u16, headers: &str, body: &str) -> Message {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n{headers}");
        Message { head: head.lines().map(str::to_owned).collect(), body: body.into() }
    }

    fn refusal(status: u16, code: &str) -> Message {
        Message::answer(status, "", &format!("<Error><Code>{code}</Code></Error>"))
    }
}

impl Front {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let (mut reader, mut writer) = (BufReader::new(client), client);
        while let Some(head) = read_head(&mut reader)? {
            let mut request = Message { head, body: Vec::new() };
            let length = request.header("content-length").and_then(|it| it.parse().ok());
            reader.by_ref().take(length.unwrap_or(0)).read_to_end(&mut request.body)?;
            let answer = self.answer(&request)?;
            let head: String = answer.head.iter().map(|line| format!("{line}\r\n")).collect();
            writer.write_all(format!("{head}\r\n").as_bytes())?;
            writer.write_all(&answer.body)?;
        }
        Ok(())
    }

    fn answer(&self, request: &Message) -> io::Result<Message> {
        let mut words = request.head[0].split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |name: &str| {
            let mut fields = query.split('&').filter_map(|field| field.split_once('='));
            fields.find(|(its, _)| *its == name).map(|(_, value)| value)
        };
        let (bucket, name) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        let condition = request.header("x-goog-if-generation-match");
        match (method, field("uploadId")) {
            ("PUT", None) => self.store(bucket, name, condition, &request.body),
            ("POST", None) if field("uploads").is_some() => {
                let mut uploads = self.uploads.lock().unwrap();
                let id = format!("upload{}-{name}", uploads.len()).replace('%', "_");
                uploads.insert(id.clone(), Parts::new());
                let body = format!("<UploadId>{id}</UploadId>");
                let tag = "InitiateMultipartUploadResult";
                Ok(Message::answer(200, "", &format!("<{tag}>{body}</{tag}>")))
            }
            ("PUT" | "POST" | "DELETE", Some(id)) => {
                let mut uploads = self.uploads.lock().unwrap();
                let Some(parts) = uploads.get_mut(id) else {
                    return Ok(Message::refusal(404, "NoSuchUpload"));
                };
                if let ("PUT", Some(number)) = (method, field("partNumber")) {
                    parts.insert(number.parse().unwrap(), request.body.clone());
                    return Ok(Message::answer(200, &format!("ETag: \"part{number}\"\r\n"), ""));
                }
                // So that numbers are not used again.
                let parts = std::mem::take(parts);
                drop(uploads);
                if method == "DELETE" {
                    return Ok(Message::answer(204, "", ""));
                }
                let whole: Vec<u8> = parts.into_values().flatten().collect();
                let made = self.store(bucket, name, None, &whole)?;
                let tag = made.header("etag").unwrap_or_default();
                let inner = format!(
                    "<Location>l</Location><Bucket>b</Bucket><Key>k</Key>\
                                     <ETag>{tag}</ETag>"
                );
                let result = "CompleteMultipartUploadResult";
                Ok(Message::answer(200, "", &format!("<{result}>{inner}</{result}>")))
            }
            _ => {
                let range = request.header("range").map(|it| format!("Range: {it}\r\n"));
                self.ask(method, target, &range.unwrap_or_default(), &request.body)
            }
        }
    }

    /// Puts an object by the JSON API; names are quoted there as they are here.
    fn store(
        &self,
        bucket: &str,
        name: &str,
        condition: Option<&str>,
        body: &[u8],
    ) -> io::Result<Message> {
        let mut target = format!("/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
        if let Some(generation) = condition {
            target.push_str(&format!("&ifGenerationMatch={generation}"));
        }
        let made = self.ask("POST", &target, "Content-Type: application/octet-stream\r\n", body)?;
        let text = String::from_utf8_lossy(&made.body);
        let said = |field: &str| {
            let (_, rest) = text.split_once(&format!("\"{field}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        match (made.status(), said("etag"), said("generation")) {
            (200, Some(tag), Some(generation)) => {
                let headers = format!("ETag: \"{tag}\"\r\nx-goog-generation: {generation}\r\n");
                Ok(Message::answer(200, &headers, ""))
            }
            (404, ..) => Ok(Message::refusal(404, "NoSuchBucket")),
            (412, ..) => Ok(Message::refusal(412, "PreconditionFailed")),
            (status, ..) => Ok(Message::refusal(status, "InternalError")),
        }
    }

    /// Asks the server, on a connection of its own that ends with the answer.
    fn ask(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> io::Result<Message> {
        let mut server = TcpStream::connect(&self.server)?;
        server.set_nodelay(true)?;
        let (host, length) = (&self.server, body.len());
        let head = format!(
            "{method} {target} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        server.write_all(head.as_bytes())?;
        server.write_all(body)?;
        let mut reader = BufReader::new(server);
        let head = read_head(&mut reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        reader.read_to_end(&mut body)?;
        let mut answer = Message { head, body };
        answer.head[0] = answer.head[0].replace("HTTP/1.0", "HTTP/1.1");
        answer.head.retain(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        if answer.header("content-length").is_none() {
            answer.head.push(format!("Content-Length: {}", answer.body.len()));
        }
        Ok(answer)
    }
}

/// The lines of a head; `None` where the connection ends instead.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => return Ok(Some(lines)),
            line => lines.push(line.to_owned()),
        }
    }
}
