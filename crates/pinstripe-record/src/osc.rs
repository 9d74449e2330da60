//! Open Sound Control 1.0, as remote controls of recorders send it in UDP packets: reads messages
//! and bundles, checking every length, and writes messages.
//!
//! ```text
//!   message   address "/..", types ",ifs", values; texts end with 1 to 4 zeros, at a multiple of 4 bytes
//!   bundle    "#bundle", a time (u64), then elements: length u32, message or bundle
//! ```
//!
//! Numbers are big-endian. The time of a bundle is ignored: its messages are carried out at once,
//! because a button was pressed now.

/// The most messages of a packet that are read.
const MESSAGES_MAX: usize = 64;
/// The most values of a message that are read.
const VALUES_MAX: usize = 32;
/// Bundles within bundles.
const DEPTH_MAX: usize = 4;
const BUNDLE: &[u8] = b"#bundle\0";

/// A value of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OscValue<'a> {
    /// A whole number of type `i`, `h`, `c`, `r` or `m`, or the true or false of `T` and `F`.
    Whole(i64),
    /// `f` and `d`.
    Real(f64),
    /// `s` and `S`.
    Text(&'a str),
    /// `b`.
    Bytes(&'a [u8]),
    /// `N` and `I`.
    Nothing,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct OscMessage<'a> {
    /// The address of the command, as in `/transport_play`.
    pub address: &'a str,
    /// The arguments.
    pub values: Vec<OscValue<'a>>,
}

/// The messages of a packet, in order; `None` if the packet is truncated or has too many.
pub fn read_osc(packet: &[u8]) -> Option<Vec<OscMessage<'_>>> {
    let mut messages = Vec::new();
    read_element(packet, 0, &mut messages)?;
    Some(messages)
}

fn read_element<'a>(
    bytes: &'a [u8],
    depth: usize,
    messages: &mut Vec<OscMessage<'a>>,
) -> Option<()> {
    let Some(bundle) = bytes.strip_prefix(BUNDLE) else {
        if messages.len() >= MESSAGES_MAX {
            return None;
        }
        messages.push(read_message(bytes)?);
        return Some(());
    };
    if depth >= DEPTH_MAX {
        return None;
    }
    let (_time, mut rest) = bundle.split_first_chunk::<8>()?;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (element, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        read_element(element, depth + 1, messages)?;
        rest = behind;
    }
    Some(())
}

fn read_message(bytes: &[u8]) -> Option<OscMessage<'_>> {
    let (address, rest) = read_text(bytes)?;
    if !address.starts_with('/') {
        return None;
    }
    let mut values = Vec::new();
    // Old senders leave the types out of messages without values.
    let (types, mut rest) = if rest.is_empty() { (",", rest) } else { read_text(rest)? };
    for kind in types.strip_prefix(',')?.chars() {
        if values.len() >= VALUES_MAX {
            return None;
        }
        let (value, behind) = read_value(kind, rest)?;
        values.extend(value);
        rest = behind;
    }
    rest.is_empty().then_some(OscMessage { address, values })
}

/// Reads a value; the inner `Option` is `None` for the brackets of an array, whose values are
/// returned individually.
fn read_value(kind: char, bytes: &[u8]) -> Option<(Option<OscValue<'_>>, &[u8])> {
    let four = || bytes.split_first_chunk::<4>();
    let eight = || bytes.split_first_chunk::<8>();
    let (value, rest) = match kind {
        'i' | 'c' | 'r' | 'm' => {
            let (word, rest) = four()?;
            (OscValue::Whole(i32::from_be_bytes(*word).into()), rest)
        }
        'f' => {
            let (word, rest) = four()?;
            (OscValue::Real(f32::from_be_bytes(*word).into()), rest)
        }
        'h' | 't' => {
            let (word, rest) = eight()?;
            (OscValue::Whole(i64::from_be_bytes(*word)), rest)
        }
        'd' => {
            let (word, rest) = eight()?;
            (OscValue::Real(f64::from_be_bytes(*word)), rest)
        }
        's' | 'S' => {
            let (text, rest) = read_text(bytes)?;
            (OscValue::Text(text), rest)
        }
        'b' => {
            let (length, rest) = four()?;
            let length = u32::from_be_bytes(*length) as usize;
            let (blob, _) = rest.split_at_checked(length)?;
            let (_, rest) = rest.split_at_checked(length.checked_next_multiple_of(4)?)?;
            (OscValue::Bytes(blob), rest)
        }
        'T' => (OscValue::Whole(1), bytes),
        'F' => (OscValue::Whole(0), bytes),
        'N' | 'I' => (OscValue::Nothing, bytes),
        '[' | ']' => return Some((None, bytes)),
        _ => return None,
    };
    Some((Some(value), rest))
}

/// A text, and the bytes after its padding.
fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let length = bytes.iter().position(|it| *it == 0)?;
    let (padded, rest) = bytes.split_at_checked((length + 1).next_multiple_of(4))?;
    let (text, padding) = padded.split_at(length);
    let text = std::str::from_utf8(text).ok()?;
    padding.iter().all(|it| *it == 0).then_some((text, rest))
}

/// Encodes a message: whole numbers in 32 bits, real numbers as `f`.
pub fn write_osc(address: &str, values: &[OscValue<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, address);
    let kind = |it: &OscValue<'_>| match it {
        OscValue::Whole(_) => 'i',
        OscValue::Real(_) => 'f',
        OscValue::Text(_) => 's',
        OscValue::Bytes(_) => 'b',
        OscValue::Nothing => 'N',
    };
    write_text(&mut out, &format!(",{}", values.iter().map(kind).collect::<String>()));
    for value in values {
        match value {
            OscValue::Whole(it) => {
                let it = (*it).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                out.extend(it.to_be_bytes());
            }
            OscValue::Real(it) => out.extend((*it as f32).to_be_bytes()),
            OscValue::Text(it) => write_text(&mut out, it),
            OscValue::Bytes(it) => {
                out.extend((it.len() as u32).to_be_bytes());
                out.extend(*it);
                out.resize(out.len().next_multiple_of(4), 0);
            }
            OscValue::Nothing => {}
        }
    }
    out
}

/// Appends a text up to its first zero, because a zero ends a text.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let text = text.split('\0').next().unwrap_or("");
    out.extend(text.as_bytes());
    out.resize((out.len() + 1).next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two messages of the specification's examples, byte for byte.
    const OSCILLATOR: &[u8] = b"/oscillator/4/frequency\0,f\0\0\x43\xdc\0\0";
    const FOO: &[u8] = b"/foo\0\0\0\0,iisff\0\0\0\0\x03\xe8\xff\xff\xff\xffhello\0\0\0\
                         \x3f\x9d\xf3\xb6\x40\xb5\xb2\x2d";

    fn bundle(elements: &[&[u8]]) -> Vec<u8> {
        let mut out = [BUNDLE, &1_u64.to_be_bytes()].concat();
        for element in elements {
            out.extend((element.len() as u32).to_be_bytes());
            out.extend(*element);
        }
        out
    }

    #[test]
    fn the_examples_of_the_specification_are_read_and_written() {
        let told = read_osc(OSCILLATOR).unwrap();
        assert_eq!(told[0].address, "/oscillator/4/frequency");
        assert_eq!(told[0].values, [OscValue::Real(440.0)]);
        let told = read_osc(FOO).unwrap().remove(0);
        let [first, second, third, ..] = told.values[..] else { panic!("{told:?}") };
        assert_eq!(first, OscValue::Whole(1000));
        assert_eq!((second, third), (OscValue::Whole(-1), OscValue::Text("hello")));
        for packet in [OSCILLATOR, FOO] {
            let told = read_osc(packet).unwrap().remove(0);
            assert_eq!(write_osc(told.address, &told.values), packet);
        }
    }

    #[test]
    fn every_kind_of_value_and_bundles_are_read() {
        let stop = write_osc("/stop", &[]);
        let inner = bundle(&[FOO, &stop]);
        let packet = bundle(&[OSCILLATOR, &inner, b"/old\0\0\0\0"]);
        let addresses: Vec<_> =
            read_osc(&packet).unwrap().into_iter().map(|it| it.address.to_owned()).collect();
        assert_eq!(addresses, ["/oscillator/4/frequency", "/foo", "/stop", "/old"]);
        assert_eq!(read_osc(&bundle(&[])), Some(Vec::new()));
        let mut rare = b"/a\0\0,TFNI[hd]b\0\0".to_vec();
        rare.extend(7_i64.to_be_bytes());
        rare.extend(0.5_f64.to_be_bytes());
        rare.extend([0, 0, 0, 3, 1, 2, 3, 0]);
        let values = read_osc(&rare).unwrap().remove(0).values;
        let (yes, no, none) = (OscValue::Whole(1), OscValue::Whole(0), OscValue::Nothing);
        let rest = [OscValue::Whole(7), OscValue::Real(0.5), OscValue::Bytes(&[1, 2, 3])];
        assert_eq!(values, [&[yes, no, none, none][..], &rest].concat());
    }

    #[test]
    fn packets_that_are_not_whole_or_too_much_are_refused() {
        // What ends behind an address has no values, and behind a bundle's time no element.
        let first = 16 + 4 + OSCILLATOR.len();
        for (packet, whole) in
            [(FOO.to_vec(), vec![(8, 1)]), (bundle(&[OSCILLATOR, FOO]), vec![(16, 0), (first, 1)])]
        {
            let read = |end: &usize| Some((*end, read_osc(&packet[..*end])?.len()));
            let found: Vec<_> = (0..packet.len()).filter_map(|end| read(&end)).collect();
            assert_eq!(found, whole);
        }
        let many = vec![&b"/a\0\0"[..]; MESSAGES_MAX + 1];
        assert!(read_osc(&bundle(&many[1..])).is_some() && read_osc(&bundle(&many)).is_none());
        let values = [OscValue::Whole(1); VALUES_MAX + 1];
        assert!(read_osc(&write_osc("/a", &values[1..])).is_some());
        assert!(read_osc(&write_osc("/a", &values)).is_none());
        let nested = (0..DEPTH_MAX).fold(FOO.to_vec(), |it, _| bundle(&[&it]));
        assert!(read_osc(&nested).is_some() && read_osc(&bundle(&[&nested])).is_none());
        for bad in [
            &b""[..],
            b"a\0\0\0",
            b"/a",
            b"/a\0x",
            b"/\xff\0\0",
            b"/a\0\0i\0\0\0\0\0\0\x01",
            b"/a\0\0,q\0\0",
            b"/a\0\0,b\0\0\xff\xff\xff\xff",
            b"/a\0\0,b\0\0\x7f\xff\xff\xff",
            b"/a\0\0,\0\0\0\0\0\0\0",
            b"#bundle\0\0\0\0\0\0\0\0\x01\xff\xff\xff\xff",
        ] {
            assert_eq!(read_osc(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn any_byte_of_a_packet_may_be_any_other() {
        let blob = write_osc("/b", &[OscValue::Bytes(&[7; 5]), OscValue::Text("end")]);
        let packet = bundle(&[OSCILLATOR, &bundle(&[FOO, &blob])]);
        assert_eq!(read_osc(&packet).unwrap().len(), 3);
        let mut sound = 0;
        for place in 0..packet.len() {
            for byte in 0..=u8::MAX {
                let mut changed = packet.clone();
                changed[place] = byte;
                // And cut off behind it.
                for end in [packet.len(), place + 1] {
                    sound += usize::from(read_osc(&changed[..end]).is_some());
                }
            }
        }
        // Such as numbers that are other numbers.
        assert!(sound > 256 * 20, "{sound}");
    }

    #[test]
    fn a_text_with_a_zero_ends_there() {
        let packet = write_osc("/a", &[OscValue::Text("one\0two"), OscValue::Whole(i64::MAX)]);
        let told = read_osc(&packet).unwrap().remove(0);
        assert_eq!(told.values, [OscValue::Text("one"), OscValue::Whole(i32::MAX.into())]);
    }
}
