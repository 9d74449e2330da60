//! The messages between a host and a server: requests as the server reads them, answers as the host
//! reads them, join strings and places.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_remote::{
    JoinString, LookRequest, MemberLook, ObjectsAnswer, ObjectsRequest, ServedPlace, WantedRange,
    decode_page, decode_ranges, decode_results,
};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, count, bytes) = input;
    match kind % 8 {
        0 => drop(decode_ranges(bytes)),
        1 => drop(LookRequest::decode(bytes)),
        2 => drop(ObjectsRequest::decode(bytes)),
        3 => drop(MemberLook::decode_all(bytes)),
        4 => {
            if let Ok(page) = decode_page(bytes, None) {
                assert!(page.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
        5 => results(count, bytes),
        6 => drop(ObjectsAnswer::decode(bytes, usize::from(count % 8), usize::from(count / 8))),
        _ => text(&String::from_utf8_lossy(bytes)),
    }
});

fn results(count: u8, bytes: &[u8]) {
    let wanted = |number| WantedRange {
        name: ExtentName::In(ExtentKind::Packs, [number; 16]),
        offset: 0,
        bytes: u64::from(number),
        is_whole: number % 2 == 0,
    };
    let wanted: Vec<_> = (0..count).map(wanted).collect();
    if let Ok(results) = decode_results(bytes, &wanted) {
        assert!(results.len() <= wanted.len());
    }
}

fn text(text: &str) {
    if let Ok(join) = text.parse::<JoinString>() {
        assert_eq!(
            join.reveal().parse::<JoinString>().expect("it was printed").reveal(),
            join.reveal()
        );
    }
    if let Ok(place) = ServedPlace::parse(std::path::Path::new(text)) {
        let again = ServedPlace::parse(&place.path()).expect("it was printed");
        assert_eq!(again.path(), place.path());
    }
}
