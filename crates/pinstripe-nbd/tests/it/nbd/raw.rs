//! A client that says exactly what it is told to, right or wrong.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const ENOTSUP: u32 = 95;

/// A client.
pub struct Raw {
    pub socket: UnixStream,
}

/// One chunk of a structured reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub is_last: bool,
    pub kind: u16,
    pub cookie: u64,
    pub data: Vec<u8>,
}

impl Raw {
    /// Connects and gets as far as the options.
    pub fn connect(path: &Path) -> Raw {
        let mut raw = Raw::dial(path);
        assert_eq!(raw.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        raw.say(&3u32.to_be_bytes());
        raw
    }

    /// Connects and says nothing.
    pub fn dial(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).unwrap();
        // A server that hangs fails the test instead of keeping it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Raw { socket }
    }

    /// Connects and chooses an export.
    pub fn ready(path: &Path, name: &str, is_structured: bool) -> Raw {
        let mut raw = Raw::connect(path);
        if is_structured {
            assert_eq!(raw.option(8, &[]).1, []);
            let context = [&text(name)[..], &1u32.to_be_bytes(), &text("base:allocation")];
            assert_eq!(raw.option(10, &context.concat()).1.len(), 1);
        }
        let (last, infos) = raw.option(7, &[&text(name)[..], &[0, 0]].concat());
        assert_eq!((last, infos[0].0), (1, 3));
        raw
    }

    /// Says an option; the type of the final reply, and what came before it.
    pub fn option(&mut self, number: u32, data: &[u8]) -> (u32, Vec<(u32, Vec<u8>)>) {
        let head = [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        self.say(&head.concat());
        self.say(data);
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.u64(), 0x3e889045565a9);
            assert_eq!(self.u32(), number);
            let (kind, len) = (self.u32(), self.u32());
            let data = self.take(len as usize);
            if kind == 1 || kind >> 31 == 1 {
                return (kind, replies);
            }
            replies.push((kind, data));
        }
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        let mut bytes = 0x25609513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        self.say(&bytes);
    }

    /// Makes a request and takes a simple reply without data: the error.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        self.request(command, flags, 7, offset, len);
        let (cookie, error) = self.simple();
        assert_eq!(cookie, 7);
        error
    }

    /// Writes and takes a simple reply: the error.
    pub fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> u32 {
        self.request(WRITE, flags, 8, offset, bytes.len() as u32);
        self.say(bytes);
        let (cookie, error) = self.simple();
        assert_eq!(cookie, 8);
        error
    }

    /// Reads by a simple reply.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        match self.ask(READ, 0, offset, len) {
            0 => Ok(self.take(len as usize)),
            error => Err(error),
        }
    }

    /// Takes the head of a simple reply: cookie and error.
    pub fn simple(&mut self) -> (u64, u32) {
        assert_eq!(self.u32(), 0x67446698);
        let error = self.u32();
        (self.u64(), error)
    }

    pub fn chunk(&mut self) -> Chunk {
        assert_eq!(self.u32(), 0x668e33ef);
        let (flags, kind) = (self.u16(), self.u16());
        let (cookie, len) = (self.u64(), self.u32());
        Chunk { is_last: flags == 1, kind, cookie, data: self.take(len as usize) }
    }

    /// Makes a request and takes all chunks of the reply.
    pub fn chunks(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> Vec<Chunk> {
        self.request(command, flags, 9, offset, len);
        let mut chunks = Vec::new();
        loop {
            chunks.push(self.chunk());
            assert_eq!(chunks[0].cookie, 9);
            if chunks.last().unwrap().is_last {
                return chunks;
            }
        }
    }

    /// Whether the server has closed, and said nothing more.
    pub fn is_cut_off(&mut self) -> bool {
        match self.socket.read(&mut [0; 1]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }
}

/// A string behind its length.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}
