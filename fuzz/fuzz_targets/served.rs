//! The messages between a host and a server: requests as the server reads them, answers as the host
//! reads them, join strings and places.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_base::id::StoreId;
use pinstripe_member::tree::compare_paths;
use pinstripe_remote::{
    AnswerFrame, CatalogRequest, FrameReader, JoinString, LookRequest, MemberLook, ObjectsAnswer,
    ObjectsRequest, RowsFrame, ServedPlace, WantedRange, decode_head, decode_page, decode_ranges,
    decode_results, decode_sync,
};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, count, bytes) = input;
    match kind % 12 {
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
        7 => request(bytes),
        8 => frames(count, bytes),
        9 => drop(decode_sync(bytes)),
        10 => drop(decode_head(bytes)),
        _ => text(&String::from_utf8_lossy(bytes)),
    }
});

fn request(bytes: &[u8]) {
    if let Ok(request) = CatalogRequest::decode(bytes) {
        CatalogRequest::decode(&request.encode()).expect("it was encoded");
    }
}

/// Frames in pieces of some length: rows as the server reads them, answers as the host does.
fn frames(piece: u8, bytes: &[u8]) {
    let (store, mut reader) = (StoreId([7; 16]), FrameReader::default());
    let mut last: Option<Vec<u8>> = None;
    for piece in bytes.chunks(usize::from(piece) + 1) {
        reader.push(piece);
        while let Ok(Some((kind, content))) = reader.next_frame() {
            let _ = AnswerFrame::decode(store, kind, content);
            let Ok(RowsFrame::Changes(changes)) =
                RowsFrame::decode(store, kind, content, last.as_deref())
            else {
                continue;
            };
            for change in changes {
                assert!(last.is_none_or(|last| compare_paths(&last, &change.path).is_lt()));
                last = Some(change.path);
            }
        }
    }
}

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
