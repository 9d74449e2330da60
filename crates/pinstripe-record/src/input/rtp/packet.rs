//! Parses a packet of RTP (RFC 3550), and the SDP (RFC 8866) that describes its stream, as far as a
//! recorder needs them.

/// A packet that borrows its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpPacket<'a> {
    /// The payload type.
    pub kind: u8,
    /// The sequence number of the packet.
    pub sequence: u16,
    /// The timestamp: the number of the packet's first frame.
    pub timestamp: u32,
    /// The sender's id.
    pub source: u32,
    /// The samples.
    pub payload: &'a [u8],
}

impl<'a> RtpPacket<'a> {
    /// Parses a packet; `None` if the bytes are not an RTP packet.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<12>()?;
        if head[0] >> 6 != 2 {
            return None;
        }
        rest = rest.get(4 * usize::from(head[0] & 0x0f)..)?;
        if head[0] & 0x10 != 0 {
            let (extension, behind) = rest.split_first_chunk::<4>()?;
            let words = u16::from_be_bytes([extension[2], extension[3]]);
            rest = behind.get(4 * usize::from(words)..)?;
        }
        if head[0] & 0x20 != 0 {
            let padding = usize::from(*rest.last()?);
            rest = rest.get(..rest.len().checked_sub(padding)?).filter(|_| padding > 0)?;
        }
        Some(RtpPacket {
            kind: head[1] & 0x7f,
            sequence: u16::from_be_bytes([head[2], head[3]]),
            timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            source: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
            payload: rest,
        })
    }
}

/// The first audio stream that an SDP describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SdpStream {
    /// The address at which the recorder listens.
    pub address: String,
    /// The port.
    pub port: u16,
    /// The payload type.
    pub kind: u8,
    /// `L16` or `L24`.
    pub encoding: String,
    /// Frames per second.
    pub rate: u32,
    /// The number of channels.
    pub channels: u16,
    /// The name.
    pub name: String,
}

impl SdpStream {
    /// Parses a description; `None` if it has no audio stream that can be recorded.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut address, mut name) = (None, None);
        let (mut media, mut map) = (None, None);
        for line in text.lines().map(str::trim) {
            let Some((key, value)) = line.split_once('=') else { continue };
            match key {
                "c" => address = value.split_whitespace().nth(2),
                "s" => name = Some(value),
                "m" if media.is_none() => {
                    let mut words = value.split_whitespace();
                    let (kind, port) = (words.next()?, words.next()?);
                    let payload = words.nth(1)?;
                    if kind == "audio" {
                        media = Some((port.parse().ok()?, payload.parse::<u8>().ok()?));
                    }
                }
                "m" => break,
                "a" if media.is_some() => {
                    let Some(rest) = value.strip_prefix("rtpmap:") else { continue };
                    let (number, form) = rest.split_once(' ')?;
                    if number.parse().ok() == media.map(|it| it.1) {
                        map = Some(form);
                    }
                }
                _ => {}
            }
        }
        let (port, kind) = media?;
        let mut form = map?.split('/');
        Some(SdpStream {
            address: address?.split('/').next()?.to_owned(),
            port,
            kind,
            encoding: form.next()?.to_ascii_uppercase(),
            rate: form.next()?.trim().parse().ok()?,
            channels: form.next().map_or(Some(1), |it| it.trim().parse().ok())?,
            name: name.unwrap_or("rtp").to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_with_all_that_may_stand_in_front_and_behind() {
        let plain = [0x80, 0xe2, 1, 0x39, 0x26, 0x8e, 0xee, 0x83, 0x6a, 0xc0, 0xfa, 0x6f, 1, 2, 3];
        let packet = RtpPacket::parse(&plain).unwrap();
        assert_eq!((packet.kind, packet.sequence), (98, 0x139));
        assert_eq!((packet.timestamp, packet.source), (0x268e_ee83, 0x6ac0_fa6f));
        assert_eq!(packet.payload, [1, 2, 3]);
        // A contributing source, an extension of one word, two bytes of padding.
        let mut full = plain.to_vec();
        full[0] = 0xb1;
        full.splice(12..12, [9, 9, 9, 9, 0, 0, 0, 1, 7, 7, 7, 7]);
        full.extend([0, 2]);
        assert_eq!(RtpPacket::parse(&full).unwrap().payload, [1, 2, 3]);
        for cut in 0..full.len() {
            // Padding is told by what then is the last byte.
            let _ = RtpPacket::parse(&full[..cut]);
        }
        assert_eq!(RtpPacket::parse(&plain[..11]), None);
        assert_eq!(RtpPacket::parse(&[0x40; 40]), None);
        assert_eq!(RtpPacket::parse(&[0xff; 40]), None);
    }

    #[test]
    fn descriptions_are_read_as_senders_write_them() {
        let dante = "v=0\r\ns=stage box\r\nc=IN IP4 239.69.1.2/32\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\n\
                     i=2 channels: left, right\r\na=recvonly\r\na=rtpmap:97 L24/48000/2\r\na=ptime:1\r\n\
                     a=ts-refclk:ptp=IEEE1588-2008:00-00-00-FF-FE-00-00-00:0\r\na=mediaclk:direct=142410716\r\n";
        let stream = SdpStream::parse(dante).unwrap();
        assert_eq!((stream.address.as_str(), stream.port, stream.kind), ("239.69.1.2", 5004, 97));
        assert_eq!((stream.encoding.as_str(), stream.rate, stream.channels), ("L24", 48_000, 2));
        assert_eq!(stream.name, "stage box");
        let ffmpeg = "v=0\ns=No Name\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 97\nb=AS:1411\na=rtpmap:97 L16/48000\n";
        assert_eq!(SdpStream::parse(ffmpeg).unwrap().channels, 1);
        for bad in [
            "",
            "m=video 1 RTP/AVP 96",
            "m=audio",
            "c=IN\nm=audio x RTP/AVP 1\n",
            "m=audio 1 RTP/AVP 97\na=rtpmap:98 L16/1\n",
        ] {
            assert_eq!(SdpStream::parse(bad), None, "{bad}");
        }
    }
}
