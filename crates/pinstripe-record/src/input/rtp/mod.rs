//! Sound from a network: RTP with 16 or 24 bit samples, as AES67 devices, ffmpeg and GStreamer send it.
//!
//! Packets are placed by timestamp; lost frames become silence of the right length. A socket cannot
//! wait: packets that did not fit in its kernel buffer are counted separately from packets lost in
//! the network.

#![allow(clippy::disallowed_methods, reason = "this module listens at the sockets of inputs")]

mod packet;
mod window;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::wait_readable;

use super::fields::{number, pairs};
use super::{InputFeed, RecordInput, SILENT, nothing_has_come, numbered_streams};
use crate::limits::{CHANNELS_MAX, NAME_BYTES};
use crate::sample::{SampleFormat, StreamShape};
use crate::take::RecordedStream;

pub use packet::{RtpPacket, SdpStream};
pub use window::{Given, RtpCounts, RtpWindow};

/// The default time for which reordered packets are awaited; ffmpeg sends in bursts of 50 ms.
const JITTER_MS: u64 = 60;
/// The largest datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// The requested buffer size of a socket; the system may grant less.
const SOCKET_BYTES: usize = 8 << 20;
/// After this number of consecutive packets from another sender, the previous sender counts as
/// gone.
const STRANGERS: u32 = 3;
/// The longest gap after which a restarted stream is continued with silence for the gap.
const BRIDGE: Duration = Duration::from_secs(3600);
/// Silence at the end of a take is reported if it is at least this long; from [`SILENT`] on it is a
/// loss.
const WENT_AWAY: Duration = Duration::from_secs(1);
/// The largest SDP description that is read, in bytes.
const SDP_BYTES: u64 = 64 << 10;

/// A requested stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpSpec {
    text: String,
    address: SocketAddr,
    shape: StreamShape,
    kind: Option<u8>,
    jitter_ms: u64,
    name: String,
}

impl RtpSpec {
    /// Parses `ADDRESS:PORT,format=L24,rate=,channels=[,pt=][,jitter=MS][,name=]`, or the name of
    /// an SDP file followed by the options.
    ///
    /// # Errors
    /// [`Kind::Usage`] for invalid text; errors of the file as the system reports them.
    pub(super) fn parse(text: &str, rest: &str) -> Result<Self> {
        let (place, rest) = rest.split_once(',').unwrap_or((rest, ""));
        let sdp = if place.ends_with(".sdp") { Some(read_sdp(place)?) } else { None };
        let (mut format, mut rate, mut channels, mut kind) = (None, None, None, None);
        let (mut jitter_ms, mut name) = (JITTER_MS, "rtp".to_owned());
        let mut at = place.to_owned();
        if let Some(sdp) = sdp {
            at = format!("{}:{}", sdp.address, sdp.port);
            format = Some(encoding(&sdp.encoding)?);
            rate = Some(number("rate", &sdp.rate.to_string(), 1, 1 << 24)?);
            channels = Some(number("channels", &sdp.channels.to_string(), 1, 64)?);
            (kind, name) = (Some(sdp.kind), sdp.name.chars().take(NAME_BYTES).collect());
        }
        for (key, value) in
            pairs(text, rest, &["format", "rate", "channels", "pt", "jitter", "name"])?
        {
            match key {
                "format" => format = Some(encoding(value)?),
                "rate" => rate = Some(number(key, value, 1, 1 << 24)?),
                "channels" => channels = Some(number(key, value, 1, CHANNELS_MAX.into())?),
                "pt" => kind = Some(number(key, value, 0, 127)? as u8),
                "jitter" => jitter_ms = number(key, value, 1, 10_000)?,
                _ => name = value.chars().take(NAME_BYTES).collect(),
            }
        }
        let address = at.parse().map_err(|_| {
            Error::new(Kind::Usage, format!("'{text}' does not contain a valid address")).expected(
                "ADDRESS:PORT, for example 239.69.1.2:5004, or a file whose name ends in .sdp",
                place,
            )
        })?;
        let missing = |what: &str| {
            Error::new(Kind::Usage, format!("'{text}' lacks the option {what}")).advice(
                "write an input, for example rtp:127.0.0.1:5004,format=L24,rate=48000,channels=8",
            )
        };
        let shape = StreamShape {
            format: format.ok_or_else(|| missing("format"))?,
            rate: rate.ok_or_else(|| missing("rate"))? as u32,
            channels: channels.ok_or_else(|| missing("channels"))? as u16,
        };
        Ok(RtpSpec { text: text.to_owned(), address, shape, kind, jitter_ms, name })
    }
}

fn encoding(text: &str) -> Result<SampleFormat> {
    match text.to_ascii_uppercase().as_str() {
        "L16" => Ok(SampleFormat::S16),
        "L24" => Ok(SampleFormat::S24),
        _ => Err(Error::new(Kind::Usage, format!("RTP with the encoding {text} is not supported"))
            .expected("the encoding L16 or L24", text)),
    }
}

fn read_sdp(path: &str) -> Result<SdpStream> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|it| it.take(SDP_BYTES).read_to_string(&mut text))
        .map_err(|error| Error::of_named("cannot read the SDP file", path, error))?;
    SdpStream::parse(&text).ok_or_else(|| {
        Error::new(Kind::Usage, "this file does not describe an audio stream that can be recorded")
            .at(path)
    })
}

/// An input from a network.
pub(crate) struct RtpInput {
    spec: RtpSpec,
    /// The number of streams.
    count: usize,
    shape: StreamShape,
    /// Until it runs.
    socket: Option<UdpSocket>,
}

/// Counts of packets that are not part of the stream, by their reason.
#[derive(Default)]
struct Strays {
    bad: u64,
    strangers: u64,
    in_a_row: u32,
    kernel_drops: u32,
    /// The packets that the kernel had dropped before the take began.
    drops_before: u32,
}

impl RtpInput {
    /// Opens a socket at the address.
    pub(super) fn open(spec: RtpSpec, is_poly: bool) -> Result<Self> {
        let (count, channels) = match is_poly {
            true => (1, spec.shape.channels),
            false => (usize::from(spec.shape.channels), 1),
        };
        let shape = StreamShape { channels, ..spec.shape };
        let mut input = RtpInput { spec, count, shape, socket: None };
        input.socket = Some(input.listen()?);
        Ok(input)
    }

    /// Returns the socket after discarding the packets that arrived before the take began.
    fn take_socket(&mut self, buffer: &mut [u8], strays: &mut Strays) -> Result<UdpSocket> {
        let Some(socket) = self.socket.take() else {
            return Err(Error::new(
                Kind::Usage,
                "an input of the recorder can be started only once",
            ));
        };
        let cannot = |error| Error::io("cannot receive", &self.spec.text, error);
        // As many as there can be now: a sender that is faster must not hold it here.
        let mut left = SOCKET_BYTES;
        while left > 0
            && let Some(count) =
                receive(&socket, buffer, &mut strays.kernel_drops).map_err(cannot)?
        {
            left = left.saturating_sub(count.max(1));
        }
        strays.drops_before = strays.kernel_drops;
        Ok(socket)
    }

    fn listen(&self) -> Result<UdpSocket> {
        let address = self.spec.address;
        let cannot = |error| Error::io("cannot listen", address.to_string(), error);
        let socket = match address.ip() {
            IpAddr::V4(group) if group.is_multicast() => {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
                UdpSocket::bind(any).and_then(|it| {
                    it.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).map(|()| it)
                })
            }
            _ => UdpSocket::bind(address),
        }
        .map_err(cannot)?;
        socket.set_nonblocking(true).map_err(cannot)?;
        // Only root may exceed the usual limit; the other call takes the permitted size.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
        }
        count_drops(&socket);
        Ok(socket)
    }

    /// Distributes frames over the streams of their channels.
    fn give(
        &self,
        feed: &mut InputFeed<'_>,
        given: Given<'_>,
        left: &mut u64,
        parts: &mut [Vec<u8>],
    ) {
        let bytes = self.shape.format.bytes() as usize;
        let frame = bytes * usize::from(self.spec.shape.channels);
        match given {
            Given::Lost(frames) => {
                let frames = frames.min(*left);
                *left -= frames;
                let missing = frames * self.shape.frame_bytes();
                feed.producers.iter_mut().for_each(|it| it.skip(missing));
            }
            Given::Frames(run) => {
                let frames = ((run.len() / frame) as u64).min(*left);
                *left -= frames;
                parts.iter_mut().for_each(Vec::clear);
                let per_part = usize::from(self.spec.shape.channels) / self.count;
                for whole in run.chunks_exact(frame).take(frames as usize) {
                    for (number, sample) in whole.chunks_exact(bytes).enumerate() {
                        parts[number / per_part].extend(sample.iter().rev());
                    }
                }
                feed.producers.iter_mut().zip(parts).for_each(|(it, part)| it.push(part));
            }
        }
    }

    fn report(&self, feed: &InputFeed<'_>, counts: &RtpCounts, strays: &Strays) {
        let told: Vec<String> = [
            (counts.lost_frames, "frames lost in the network"),
            (
                u64::from(strays.kernel_drops.wrapping_sub(strays.drops_before)),
                "packets dropped by the kernel",
            ),
            (counts.late, "packets late"),
            (counts.doubled, "packets doubled"),
            (counts.reordered, "packets reordered"),
            (counts.restarts, "restarts"),
            (strays.strangers, "packets of other senders"),
            (strays.bad, "packets with a different format"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        if !told.is_empty() {
            (feed.warn)(Error::new(Kind::Io, told.join(", ")));
        }
    }
}

impl RecordInput for RtpInput {
    fn streams(&self) -> Vec<RecordedStream> {
        numbered_streams(&self.spec.name, &self.spec.text, self.shape, self.count)
    }

    fn is_patient(&self) -> bool {
        false
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        let rate = self.spec.shape.rate;
        let size = (u64::from(rate) * self.spec.jitter_ms / 1000).max(1);
        let frame = self.spec.shape.frame_bytes() as usize;
        let mut window = RtpWindow::new(frame, size, rate);
        let (mut buffer, mut parts) = (vec![0; DATAGRAM_BYTES], vec![Vec::new(); self.count]);
        let (mut strays, mut sender) = (Strays::default(), None);
        let socket = self.take_socket(&mut buffer, &mut strays)?;
        let mut left = feed.most_frames(rate);
        let mut last: Option<Instant> = None;
        let mut silence = Silence { began: clock::monotonic(), was_told: false };
        while left > 0 && !feed.halt.is_set() {
            let waited = wait_readable(&[socket.as_fd(), feed.halt.as_fd()], Some(SILENT));
            let ready =
                waited.map_err(|error| Error::io("cannot wait for", &self.spec.text, error))?;
            silence.look(last, ready[1], feed);
            while let Some(count) = receive(&socket, &mut buffer, &mut strays.kernel_drops)
                .map_err(|error| Error::io("cannot receive", &self.spec.text, error))?
            {
                let packet = RtpPacket::parse(&buffer[..count]).filter(|it| {
                    let is_whole = it.payload.len().is_multiple_of(frame);
                    is_whole && self.spec.kind.is_none_or(|kind| kind == it.kind)
                });
                let Some(packet) = packet else {
                    strays.bad += 1;
                    continue;
                };
                silence.end(last, feed);
                let since = last.map_or(Duration::ZERO, clock::since).min(BRIDGE);
                let waited = (since.as_secs_f64() * f64::from(rate)) as u64;
                let mut give = |given: Given<'_>| self.give(feed, given, &mut left, &mut parts);
                if *sender.get_or_insert(packet.source) != packet.source {
                    strays.strangers += 1;
                    strays.in_a_row += 1;
                    if strays.in_a_row <= STRANGERS {
                        continue;
                    }
                    sender = Some(packet.source);
                    window.restart(waited, &mut give);
                }
                strays.in_a_row = 0;
                window.place(packet.timestamp, packet.payload, waited, &mut give);
                last = Some(clock::monotonic());
            }
        }
        let mut give = |given: Given<'_>| self.give(feed, given, &mut left, &mut parts);
        window.finish(&mut give);
        self.report(feed, &window.counts, &strays);
        let silent = last.filter(|_| left > 0).map_or(Duration::ZERO, clock::since);
        match last {
            Some(_) if silent >= SILENT => Err(went_away(silent).advice(
                "the recording of this input ended with the last packet: check whether the sender \
                 or the network stopped",
            )),
            Some(_) if silent >= WENT_AWAY => {
                (feed.warn)(went_away(silent));
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(Error::new(Kind::Io, "no data was received from this address")
                .advice("check the address, and whether a firewall blocks the packets")),
        }
    }
}

fn went_away(silent: Duration) -> Error {
    let seconds = silent.as_secs_f64();
    Error::new(
        Kind::Io,
        format!("the last packet was received {seconds:.1} s before the end of the take"),
    )
}

/// The state of a silent sender, which is reported once for each silence.
struct Silence {
    began: Instant,
    was_told: bool,
}

impl Silence {
    /// Checks how long no packet has arrived; packets of other senders do not count.
    fn look(&mut self, last: Option<Instant>, is_over: bool, feed: &InputFeed<'_>) {
        let is_silent = clock::since(last.unwrap_or(self.began)) >= SILENT;
        if is_silent && !is_over && !std::mem::replace(&mut self.was_told, true) {
            (feed.warn)(nothing_has_come());
        }
    }

    /// A packet came.
    fn end(&mut self, last: Option<Instant>, feed: &InputFeed<'_>) {
        let was_told = std::mem::replace(&mut self.was_told, false);
        if let Some(last) = last.filter(|_| was_told) {
            let seconds = clock::since(last).as_secs_f64();
            let what = format!("the sender sends packets again after a silence of {seconds:.1} s");
            (feed.warn)(Error::new(Kind::Changed, what));
        }
    }
}

/// Makes the kernel report with each packet the number of packets that it has dropped.
fn count_drops(socket: &UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the option is a number, and the socket is open; a kernel without it counts nothing.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RXQ_OVFL,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Receives the next datagram, if there is one, and updates the number of packets that the kernel
/// has dropped.
fn receive(socket: &UdpSocket, buffer: &mut [u8], drops: &mut u32) -> io::Result<Option<usize>> {
    // Aligned as control messages must be.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message names memory that lives until the call returns.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if count < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            // An earlier send was refused, for example on a socket that also sends: not an error of
            // this input.
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel filled the control buffer as the message says, and the macros stay in it.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SO_RXQ_OVFL {
                *drops = libc::CMSG_DATA(head).cast::<u32>().read_unaligned();
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    Ok(Some(count as usize))
}
