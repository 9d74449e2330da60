use proptest::prelude::*;

use super::*;
use pinstripe_base::error::Kind;

fn exports() -> Vec<ExportInfo> {
    let export = |name: &str, is_read_only| ExportInfo {
        name: name.to_owned(),
        description: "for a test".to_owned(),
        bytes: 1 << 20,
        is_read_only,
        is_rotational: false,
        can_trim: !is_read_only,
        can_fast_zero: !is_read_only,
        preferred_bytes: 4096,
    };
    vec![export("", false), export("second", true)]
}

/// A string behind its length.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// One reply to an option: option, type, data.
type Reply = (u32, u32, Vec<u8>);

fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x3e889045565a9_u64.to_be_bytes());
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let end = 20 + number(16) as usize;
        replies.push((number(8), number(12), bytes[20..end].to_vec()));
        bytes = &bytes[end..];
    }
    replies
}

fn ask(handshake: &mut Handshake<'_>, number: u32, data: &[u8]) -> (Step, Vec<Reply>) {
    let mut out = Vec::new();
    let head = OptionHead { number, bytes: data.len() as u32 };
    let step = handshake.answer(head, Some(data), &mut out);
    (step, replies(&out))
}

fn go(handshake: &mut Handshake<'_>, name: &str) -> (Step, Vec<Reply>) {
    ask(handshake, 7, &[&text(name)[..], &[0, 0]].concat())
}

fn request(command: u16, flags: u16, offset: u64, len: u32) -> Request {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&0x25609513_u32.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&77_u64.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    let request = Request::decode(&bytes).unwrap();
    assert_eq!((request.cookie, request.offset, request.len), (77, offset, len));
    request
}

#[test]
fn the_greeting_is_that_of_fixed_newstyle() {
    assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\0\x03");
    let exports = exports();
    for (flags, is_known) in [(0u32, true), (1, true), (3, true), (4, false), (1 << 31, false)] {
        let handshake = Handshake::new(&exports, flags.to_be_bytes());
        assert_eq!(handshake.is_ok(), is_known, "{flags}");
    }
}

#[test]
fn an_export_is_described_and_chosen() {
    let exports = exports();
    let mut handshake = Handshake::new(&exports, [0, 0, 0, 3]).unwrap();
    assert_eq!(
        ask(&mut handshake, 3, &[]),
        (Step::More, vec![(3, 2, text("")), (3, 2, text("second")), (3, 1, vec![])])
    );
    let (step, said) = go(&mut handshake, "third");
    assert_eq!((step, said[0].1), (Step::More, (1 << 31) + 6));
    let (step, said) = go(&mut handshake, "second");
    let terms = Terms {
        bytes: 1 << 20,
        is_read_only: true,
        can_trim: false,
        is_structured: false,
        has_status: false,
    };
    assert_eq!(step, Step::Begin(1, terms));
    let export = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &0b1_0000_1111_u16.to_be_bytes()];
    assert_eq!(said[0], (7, 3, export.concat()));
    let sizes = [1u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(said[1], (7, 3, [&[0, 3][..], &sizes].concat()));
    assert_eq!(said[2..], [(7, 1, vec![])]);
    let wanted = [&text("")[..], &[0, 2, 0, 1, 0, 2]].concat();
    let (step, said) = ask(&mut handshake, 6, &wanted);
    assert_eq!((step, said.len()), (Step::More, 5));
    assert_eq!(said[2].2, b"\0\x02for a test");
}

#[test]
fn the_old_way_of_choosing_has_zeros_behind_it() {
    let exports = exports();
    for (flags, bytes) in [(1, 134), (3, 10)] {
        let mut handshake = Handshake::new(&exports, [0, 0, 0, flags]).unwrap();
        let mut out = Vec::new();
        let head = OptionHead { number: 1, bytes: 0 };
        assert!(matches!(handshake.answer(head, Some(b""), &mut out), Step::Begin(0, _)));
        assert_eq!(out.len(), bytes);
        assert_eq!(handshake.answer(head, Some(b"third"), &mut out), Step::End);
    }
}

#[test]
fn block_status_is_chosen_for_one_export_after_structured_replies() {
    let exports = exports();
    let mut handshake = Handshake::new(&exports, [0, 0, 0, 3]).unwrap();
    let set = |name: &str, query: &str| [text(name), vec![0, 0, 0, 1], text(query)].concat();
    let (_, said) = ask(&mut handshake, 10, &set("", "base:allocation"));
    assert_eq!(said[0].1, (1 << 31) + 3);
    assert_eq!(ask(&mut handshake, 8, &[]).1, [(8, 1, vec![])]);
    let (_, said) = ask(&mut handshake, 9, &[&text("")[..], &[0; 4]].concat());
    assert_eq!(said[0], (9, 4, b"\0\0\0\0base:allocation".to_vec()));
    assert_eq!(ask(&mut handshake, 10, &set("", "qemu:dirty-bitmap:x")).1, [(10, 1, vec![])]);
    assert!(matches!(go(&mut handshake, "").0, Step::Begin(0, terms) if !terms.has_status));
    let (_, said) = ask(&mut handshake, 10, &set("", "base:allocation"));
    assert_eq!(said[0], (10, 4, b"\0\0\0\x01base:allocation".to_vec()));
    assert!(matches!(go(&mut handshake, "").0, Step::Begin(0, terms) if terms.has_status));
    assert!(matches!(go(&mut handshake, "second").0, Step::Begin(1, terms) if !terms.has_status));
}

#[test]
fn what_is_not_known_or_makes_no_sense_is_refused_in_words() {
    let exports = exports();
    let mut handshake = Handshake::new(&exports, [0, 0, 0, 3]).unwrap();
    let long = text(&"x".repeat(NAME_BYTES_MAX + 1));
    let many = [&text("")[..], &[0xff; 4]].concat();
    for (number, data, kind) in [
        (5, &[][..], 1),               // TLS
        (11, &[], 1),                  // extended headers
        (4711, b"whatever", 1),        // from the future
        (3, b"data", 3),               // data where there are none
        (8, b"data", 3),               //
        (7, b"", 3),                   // no name
        (7, &[0xff; 7], 3),            // a name longer than the data
        (7, &[0; 5], 3),               // half a count
        (6, &long, 3),                 // too long a name
        (9, &many, 3),                 // four thousand million queries
        (6, b"\0\0\0\x01\xff\0\0", 3), // no text
    ] {
        let (step, said) = ask(&mut handshake, number, data);
        assert_eq!((step, said.len()), (Step::More, 1), "option {number}");
        assert_eq!((said[0].0, said[0].1), (number, (1 << 31) + kind), "option {number}");
    }
    let mut out = Vec::new();
    let head = OptionHead { number: 7, bytes: u32::MAX };
    assert_eq!(handshake.answer(head, None, &mut out), Step::More);
    assert_eq!(replies(&out)[0].1, (1 << 31) + 9);
    assert_eq!(ask(&mut handshake, 2, b"bye"), (Step::End, vec![(2, 1, vec![])]));
}

#[test]
fn requests_are_checked_against_the_terms() {
    let terms = Terms {
        bytes: 1 << 20,
        is_read_only: false,
        can_trim: true,
        is_structured: true,
        has_status: true,
    };
    let read_only = Terms { is_read_only: true, ..terms };
    let no_trim = Terms { can_trim: false, ..terms };
    let simple = Terms { is_structured: false, has_status: false, ..terms };
    let big = Terms { bytes: u64::MAX, ..terms };
    use error::{EINVAL, ENOSPC, EPERM};
    for (request, terms, wanted) in [
        (request(0, flag::FUA | flag::DF, 0, 1 << 20), &terms, Ok(())),
        (request(0, 0, 1, 1 << 20), &terms, Err(EINVAL)),
        (request(0, 0, u64::MAX, 2), &terms, Err(EINVAL)),
        (request(0, 0, 0, 0), &terms, Err(EINVAL)),
        (request(0, flag::DF, 0, 1), &simple, Err(EINVAL)),
        (request(0, flag::REQ_ONE, 0, 1), &terms, Err(EINVAL)),
        (request(0, 0, 0, REQUEST_BYTES_MAX + 1), &big, Err(EINVAL)),
        (request(0, 0, 0, REQUEST_BYTES_MAX), &big, Ok(())),
        (request(1, flag::FUA, 0, 1), &terms, Ok(())),
        (request(1, 0, 0, 1), &read_only, Err(EPERM)),
        (request(1, flag::NO_HOLE, 0, 1), &terms, Err(EINVAL)),
        (request(1, 0, (1 << 20) - 1, 2), &terms, Err(ENOSPC)),
        (request(1, 0, u64::MAX, u32::MAX), &big, Err(EINVAL)),
        (request(2, 0, 9, 9), &terms, Ok(())),
        (request(3, 0, 9, 9), &terms, Ok(())),
        (request(3, flag::DF, 0, 0), &terms, Err(EINVAL)),
        (request(4, 0, 0, u32::MAX), &big, Ok(())),
        (request(4, 0, 0, 1), &read_only, Err(EPERM)),
        (request(4, 0, 0, 1), &no_trim, Err(EINVAL)),
        (request(4, 0, 1 << 20, 1), &terms, Err(EINVAL)),
        (request(5, 0, 0, 1), &terms, Err(EINVAL)),
        (request(6, flag::NO_HOLE | flag::FAST_ZERO | flag::FUA, 0, 1), &terms, Ok(())),
        (request(6, 0, 0, 1), &read_only, Err(EPERM)),
        (request(6, 0, 1 << 20, 1), &terms, Err(ENOSPC)),
        (request(7, flag::REQ_ONE, 0, 1), &terms, Ok(())),
        (request(7, 0, 0, 1), &simple, Err(EINVAL)),
        (request(7, 0, 1 << 20, 1), &terms, Err(EINVAL)),
        (request(8, 0, 0, 1), &terms, Err(EINVAL)),
        (request(1, 1 << 15, 0, 1), &terms, Err(EINVAL)),
    ] {
        assert_eq!(request.check(terms), wanted, "{request:?} {terms:?}");
    }
    let error = Request::decode(&[0; REQUEST_BYTES]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert_eq!(OptionHead::decode(&[0; OPTION_HEAD_BYTES]).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn replies_have_the_form_that_was_agreed_on() {
    fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }
    let cookie = [0, 0, 0, 0, 0, 0, 0, 9];
    let simple = b"\x67\x44\x66\x98";
    let chunk = b"\x66\x8e\x33\xef";
    let head = |rest: &[u8], len: u8| [chunk, rest, &cookie, &[0, 0, 0, len]].concat();
    assert_eq!(
        bytes(|out| Form::Simple.data(out, 9, 5, 7, true)),
        [&simple[..], &[0; 4], &cookie].concat()
    );
    assert_eq!(
        bytes(|out| Form::Simple.error(out, 9, error::EIO, "no", Some(1))),
        [&simple[..], &[0, 0, 0, 5], &cookie].concat()
    );
    assert_eq!(
        bytes(|out| Form::Structured.data(out, 9, 5, 7, false)),
        [head(&[0, 0, 0, 1], 15), vec![0, 0, 0, 0, 0, 0, 0, 5]].concat()
    );
    assert_eq!(bytes(|out| Form::Structured.done(out, 9)), head(&[0, 1, 0, 0], 0));
    assert_eq!(
        bytes(|out| hole(out, 9, 5, 7, true)),
        [head(&[0, 1, 0, 2], 12), vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7]].concat()
    );
    let extents = [(4096, true), (1, false)].map(|(bytes, is_hole)| Extent { bytes, is_hole });
    let described = [0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(
        bytes(|out| status(out, 9, &extents)),
        [head(&[0, 1, 0, 5], 20), described.to_vec()].concat()
    );
    assert_eq!(
        bytes(|out| Form::Structured.error(out, 9, error::EIO, "no", None)),
        [head(&[0, 1, 0x80, 1], 8), vec![0, 0, 0, 5, 0, 2, b'n', b'o']].concat()
    );
    let at = [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        bytes(|out| Form::Structured.error(out, 9, error::EIO, "", Some(1))),
        [head(&[0, 1, 0x80, 2], 14), at.to_vec()].concat()
    );
    // A long text ends with a whole character.
    let long = bytes(|out| Form::Structured.error(out, 9, error::EIO, &"ä€".repeat(999), None));
    assert!(std::str::from_utf8(&long[26..]).is_ok_and(|text| text.len() > 500));
    for form in [Form::Simple, Form::Structured] {
        assert_eq!(bytes(|out| form.data(out, 1, 2, 3, true)).len(), form.data_head_bytes());
    }
}

proptest! {
    #[test]
    fn whatever_a_client_says_is_answered(
        flags: [u8; 4],
        options in prop::collection::vec((0u32..13, prop::collection::vec(0u8..4, 0..40)), 0..8),
    ) {
        let exports = exports();
        if let Ok(mut handshake) = Handshake::new(&exports, flags) {
            for (number, data) in options {
                let (step, said) = match number {
                    1 => continue,
                    number => ask(&mut handshake, number, &data),
                };
                prop_assert!(said.iter().all(|reply| reply.0 == number));
                // The last reply is the final one, and no other is.
                let finals = said.iter().filter(|reply| reply.1 == 1 || reply.1 >> 31 == 1);
                prop_assert!(finals.count() == 1);
                prop_assert!(step != Step::End || number == 2);
            }
        }
    }
}
