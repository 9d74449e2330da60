//! Samples from another program: a file, a FIFO, standard input, a socket; or any bytes.
//!
//! These inputs wait for space in the ring, so they lose nothing. The time that a source was kept
//! waiting is reported, because the source may have lost data itself.

#![allow(
    clippy::disallowed_methods,
    reason = "this module opens and reads the files and sockets of inputs"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::wait_readable;

use super::fields::{number, pairs};
use super::{InputFeed, RecordInput, SILENT, nothing_has_come, numbered_streams};
use crate::limits::{CHANNELS_MAX, NAME_BYTES};
use crate::sample::{SampleFormat, StreamShape};
use crate::take::RecordedStream;

/// The most bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// The time limit for the response of a server.
const CONNECT: Duration = Duration::from_secs(10);
/// The default rate of raw bytes, in bytes per second.
const RAW_RATE: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
enum InputAddress {
    Path(PathBuf),
    Stdin,
    Unix(PathBuf),
    Tcp(String),
}

/// The format of samples as they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wire {
    format: SampleFormat,
    /// Bytes of a sample as it arrives; this is more than in the file for 24 bits in 32.
    bytes: usize,
    is_big_endian: bool,
}

impl Wire {
    /// Parses the names of formats that ffmpeg and ALSA use.
    fn parse(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let of =
            |format: SampleFormat, bytes, is_big_endian| Ok(Wire { format, bytes, is_big_endian });
        match lower.as_str() {
            "u8" => of(SampleFormat::U8, 1, false),
            "s16" | "s16le" | "s16_le" => of(SampleFormat::S16, 2, false),
            "s16be" | "s16_be" => of(SampleFormat::S16, 2, true),
            "s24" | "s24le" | "s24_3le" => of(SampleFormat::S24, 3, false),
            "s24be" | "s24_3be" => of(SampleFormat::S24, 3, true),
            "s24_le" | "s24_32le" => of(SampleFormat::S24, 4, false),
            "s32" | "s32le" | "s32_le" => of(SampleFormat::S32, 4, false),
            "s32be" | "s32_be" => of(SampleFormat::S32, 4, true),
            "f32" | "f32le" | "float_le" => of(SampleFormat::F32, 4, false),
            "f32be" | "float_be" => of(SampleFormat::F32, 4, true),
            _ => Err(Error::new(
                Kind::Usage,
                format!(
                    "'{text}' is not a known sample format"
                ),
            )
            .expected(
                "a sample format: u8, s16, s24, s32 or f32, each optionally with the suffix le or \
                 be, or s24_32le",
                text,
            )),
        }
    }

    /// Appends one sample in the format of files.
    fn put(&self, sample: &[u8], out: &mut Vec<u8>) {
        let kept = self.format.bytes() as usize;
        match self.is_big_endian {
            true => out.extend(sample.iter().rev().take(kept)),
            false => out.extend(&sample[..kept]),
        }
    }
}

/// A requested source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcmSpec {
    text: String,
    place: InputAddress,
    wire: Wire,
    channels: u16,
    rate: u32,
    name: String,
}

impl PcmSpec {
    /// Parses `PLACE,rate=,channels=,format=,name=`, or for raw bytes `PLACE,rate=,name=`, where
    /// the rate is in bytes per second.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(super) fn parse(text: &str, rest: &str, is_raw: bool) -> Result<Self> {
        let (place, rest) = rest.split_once(',').unwrap_or((rest, ""));
        let place = match place.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => InputAddress::Unix(path.into()),
            Some(("tcp", address)) if address.contains(':') => {
                InputAddress::Tcp(address.to_owned())
            }
            Some(("unix" | "tcp", _)) => {
                return Err(Error::new(
                    Kind::Usage,
                    format!("'{text}' does not contain the address of a socket"),
                )
                .expected("unix:PATH or tcp:HOST:PORT", place));
            }
            _ if place == "-" => InputAddress::Stdin,
            _ if place.is_empty() => {
                return Err(Error::new(
                    Kind::Usage,
                    format!("'{text}' does not contain the path of a file"),
                )
                .expected("a file, a FIFO, '-' or unix:PATH after the colon", "nothing"));
            }
            _ => InputAddress::Path(place.into()),
        };
        let raw = Wire { format: SampleFormat::Raw, bytes: 1, is_big_endian: false };
        let (mut wire, mut channels, mut rate) = match is_raw {
            true => (Some(raw), Some(1), Some(RAW_RATE)),
            false => (None, None, None),
        };
        let mut name = stem(&place);
        let known: &[&str] =
            if is_raw { &["rate", "name"] } else { &["rate", "channels", "format", "name"] };
        for (key, value) in pairs(text, rest, known)? {
            match key {
                "rate" => rate = Some(number(key, value, 1, 1 << 31)?),
                "channels" => channels = Some(number(key, value, 1, CHANNELS_MAX.into())?),
                "format" => wire = Some(Wire::parse(value)?),
                _ => name = value.chars().take(NAME_BYTES).collect(),
            }
        }
        let missing = |what: &str| {
            Error::new(Kind::Usage, format!("'{text}' lacks the option {what}"))
                .advice("write an input, for example pcm:FIFO,rate=48000,channels=2,format=s16")
        };
        Ok(PcmSpec {
            text: text.to_owned(),
            place,
            wire: wire.ok_or_else(|| missing("format"))?,
            channels: channels.ok_or_else(|| missing("channels"))? as u16,
            rate: rate.ok_or_else(|| missing("rate"))? as u32,
            name,
        })
    }
}

impl PcmSpec {
    /// Returns the source if it is standard input or a FIFO, which gives each byte to one reader
    /// only.
    pub(super) fn reads_once(&self) -> Option<String> {
        match &self.place {
            InputAddress::Stdin => Some("standard input".to_owned()),
            InputAddress::Path(path) => {
                let is_fifo = path.metadata().is_ok_and(|it| it.file_type().is_fifo());
                is_fifo.then(|| format!("'{}'", path.display()))
            }
            // Each connection is one of its own.
            InputAddress::Unix(_) | InputAddress::Tcp(_) => None,
        }
    }
}

/// Returns a default stream name for a place.
fn stem(place: &InputAddress) -> String {
    match place {
        InputAddress::Stdin => "stdin".to_owned(),
        InputAddress::Tcp(address) => address.clone(),
        InputAddress::Path(path) | InputAddress::Unix(path) => path
            .file_stem()
            .map_or_else(|| "input".to_owned(), |it| it.to_string_lossy().into_owned()),
    }
}

/// An input with samples of another program.
pub(crate) struct PcmInput {
    spec: PcmSpec,
    /// The number of streams.
    count: usize,
    shape: StreamShape,
    /// Until it runs.
    source: Option<File>,
}

impl PcmInput {
    /// Opens the file, FIFO or socket. If no program has opened a FIFO for writing, the input waits
    /// for one when it runs.
    pub(super) fn open(spec: PcmSpec, is_poly: bool) -> Result<Self> {
        let (count, channels) = match is_poly {
            true => (1, spec.channels),
            false => (usize::from(spec.channels), 1),
        };
        let shape = StreamShape { format: spec.wire.format, channels, rate: spec.rate };
        let source = Some(File::from(opened(&spec.place)?));
        Ok(PcmInput { spec, count, shape, source })
    }

    /// Distributes complete frames over the streams of their channels, and waits for space in the
    /// rings.
    fn feed(&self, feed: &mut InputFeed<'_>, frames: &[u8], parts: &mut [Vec<u8>]) -> bool {
        let bytes = self.spec.wire.bytes;
        parts.iter_mut().for_each(Vec::clear);
        let per_part = usize::from(self.spec.channels) / self.count;
        for frame in frames.chunks_exact(bytes * usize::from(self.spec.channels)) {
            for (number, sample) in frame.chunks_exact(bytes).enumerate() {
                self.spec.wire.put(sample, &mut parts[number / per_part]);
            }
        }
        for (stream, part) in parts.iter().enumerate() {
            let most = (feed.producers[stream].ring_bytes() / 4).max(self.shape.frame_bytes());
            let most = most - most % self.shape.frame_bytes();
            for run in part.chunks(most as usize) {
                if !feed.wait_for_room(stream, run.len() as u64) {
                    return false;
                }
                feed.producers[stream].push(run);
            }
        }
        true
    }

    /// Waits until the source can be read; returns false if the take ends first.
    fn wait(&self, source: &File, feed: &InputFeed<'_>, was_told: &mut bool) -> Result<bool> {
        loop {
            let fds = [source.as_fd(), feed.halt.as_fd()];
            let ready = wait_readable(&fds, Some(SILENT))
                .map_err(|error| Error::io("cannot wait for", &self.spec.text, error))?;
            match (ready[0], ready[1]) {
                (_, true) => return Ok(false),
                (true, _) => return Ok(true),
                _ if std::mem::replace(was_told, true) => {}
                _ => (feed.warn)(nothing_has_come().at(&self.spec.text)),
            }
        }
    }
}

fn opened(place: &InputAddress) -> Result<OwnedFd> {
    match place {
        InputAddress::Stdin => io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Error::io("cannot be read", "standard input", error)),
        InputAddress::Path(path) if path.is_dir() => {
            Err(Error::new(Kind::Usage, "is a directory").at(path).advice("give a file or a FIFO"))
        }
        // Nonblocking, so that a FIFO without a writer can be waited for together with the end.
        InputAddress::Path(path) => OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map(OwnedFd::from)
            .map_err(|error| Error::of_named("cannot open the input", path, error)),
        InputAddress::Unix(path) => UnixStream::connect(path)
            .map(OwnedFd::from)
            .map_err(|error| Error::io("cannot connect to the input", path, error)),
        InputAddress::Tcp(address) => address
            .to_socket_addrs()
            .and_then(|mut it| it.next().ok_or_else(|| io::ErrorKind::NotFound.into()))
            .and_then(|it| TcpStream::connect_timeout(&it, CONNECT))
            .map(OwnedFd::from)
            .map_err(|error| Error::io("cannot connect to the input", address, error)),
    }
}

impl RecordInput for PcmInput {
    fn streams(&self) -> Vec<RecordedStream> {
        numbered_streams(&self.spec.name, &self.spec.text, self.shape, self.count)
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn begins_with_take(&self) -> bool {
        matches!(&self.spec.place, InputAddress::Path(path) if path.is_file())
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        let Some(mut source) = self.source.take() else {
            return Err(Error::new(
                Kind::Usage,
                "an input of the recorder can be started only once",
            ));
        };
        let is_pollable = source.metadata().is_ok_and(|it| {
            let kind = it.file_type();
            kind.is_fifo() || kind.is_socket() || kind.is_char_device()
        });
        let frame = self.spec.wire.bytes * usize::from(self.spec.channels);
        let mut left = feed.most_frames(self.spec.rate).saturating_mul(frame as u64);
        if self.spec.wire.format == SampleFormat::Raw {
            left = u64::MAX;
        }
        let mut buffer = vec![0; READ_BYTES.next_multiple_of(frame)];
        let mut parts = vec![Vec::new(); self.count];
        let (mut filled, mut was_told, mut came) = (0, false, 0_u64);
        while left > 0 && !feed.halt.is_set() {
            if is_pollable && !self.wait(&source, feed, &mut was_told)? {
                break;
            }
            match source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => (filled, came) = (filled + count, came + count as u64),
                Err(error) if is_again(&error) => continue,
                Err(error) => {
                    return Err(Error::io("cannot read the input", &self.spec.text, error));
                }
            }
            let whole = ((filled - filled % frame) as u64).min(left) as usize;
            left -= whole as u64;
            if !self.feed(feed, &buffer[..whole], &mut parts) {
                return Ok(());
            }
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
        if came == 0 && feed.halt.is_set() {
            (feed.warn)(
                Error::new(Kind::Io, "no data was received from this input").at(&self.spec.text),
            );
        }
        if filled > 0 && left > 0 && !feed.halt.is_set() {
            let what = format!(
                "the last {filled} bytes of the input were discarded, because they are not a \
                 complete frame"
            );
            (feed.warn)(Error::new(Kind::Corrupt, what).at(Path::new(&self.spec.text)));
        }
        Ok(())
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_in_the_form_of_files() {
        for (name, bytes, expected) in [
            ("s16", &[1, 2][..], &[1, 2][..]),
            ("S16_BE", &[1, 2], &[2, 1]),
            ("s24_3le", &[1, 2, 3], &[1, 2, 3]),
            ("s24be", &[1, 2, 3], &[3, 2, 1]),
            ("S24_LE", &[1, 2, 3, 0], &[1, 2, 3]),
            ("f32be", &[1, 2, 3, 4], &[4, 3, 2, 1]),
        ] {
            let wire = Wire::parse(name).unwrap();
            assert_eq!(wire.bytes, bytes.len());
            let mut out = Vec::new();
            wire.put(bytes, &mut out);
            assert_eq!(out, expected, "{name}");
        }
    }
}
