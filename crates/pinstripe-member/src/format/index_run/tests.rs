use proptest::prelude::*;

use super::*;

fn row(first: u8, pack: u32) -> Row {
    let id = ChunkId([first; 32]);
    Row { id, pack, offset: 0, bytes: 200, raw_offset: 5, raw_bytes: 10 }
}

#[test]
fn a_page_comes_back_and_finds_its_rows() {
    let rows = [row(1, 0), row(3, 1), row(3, 2), row(9, 0)];
    let page = Page::decode(&encode_page(7, &rows), 7, 3).unwrap();
    assert!(page.rows().eq(rows));
    assert_eq!((page.len(), page.is_empty()), (4, false));
    let at = |first| page.lower_bound(&ChunkId([first; 32]));
    assert_eq!([0, 1, 2, 3, 4, 9, 10].map(at), [0, 0, 1, 1, 3, 3, 4]);
}

#[test]
fn wrong_pages_are_refused() {
    let good = encode_page(7, &[row(1, 0)]);
    assert!(Page::decode(&good, 7, 1).is_ok());
    assert!(Page::decode(&good, 8, 1).is_err(), "another number");
    assert!(Page::decode(&good, 7, 0).is_err(), "a pack that is not there");
    let refused = |rows: &[Row]| assert!(Page::decode(&encode_page(7, rows), 7, 9).is_err());
    refused(&[]);
    refused(&[row(3, 0), row(1, 0)]);
    refused(&[Row { bytes: 63, ..row(1, 0) }]);
    refused(&[Row { offset: u32::MAX, ..row(1, 0) }]);
    refused(&[Row { raw_offset: RECORD_MAX_RAW_BYTES, ..row(1, 0) }]);
    refused(&[Row { raw_bytes: u32::MAX, ..row(1, 0) }]);
    refused(&vec![row(1, 0); PAGE_ROWS + 1]);
    assert!(Page::decode(&good[..good.len() - 1], 7, 1).is_err());
}

fn head() -> RunHead {
    let first = SegmentPlace { offset: 0, fences_offset: 230, fences_bytes: 50, pages: 3 };
    let second = SegmentPlace { offset: 280, fences_offset: 300, fences_bytes: 20, pages: 1 };
    RunHead {
        set: SetId([3; 16]),
        is_bound: true,
        rows: 700,
        duplicates: 2,
        page_bytes: 100,
        segments: vec![first, second],
        tables: vec![(320, 40), (360, 50)],
    }
}

#[test]
fn a_head_comes_back() {
    for is_bound in [true, false] {
        let head = RunHead { is_bound, ..head() };
        assert_eq!(RunHead::decode(&head.encode()).unwrap(), head);
    }
}

#[test]
fn a_bound_part_is_believed_in_its_run_and_place_alone() {
    let (set, other) = (SetId([3; 16]), SetId([4; 16]));
    let bound = bind(set, 7, b"body");
    assert_eq!(unbind(set, 7, &bound).unwrap(), b"body");
    assert!(unbind(other, 7, &bound).is_err() && unbind(set, 8, &bound).is_err());
    assert!(unbind(set, 7, b"body").is_err() && unbind(set, 7, &bound[..20]).is_err());
}

#[test]
fn parts_that_lie_elsewhere_are_refused() {
    let refused = |change: &dyn Fn(&mut RunHead)| {
        let mut changed = head();
        change(&mut changed);
        assert!(RunHead::decode(&changed.encode()).is_err(), "{changed:?}");
    };
    refused(&|head| head.rows = 5000);
    refused(&|head| head.rows = 1);
    refused(&|head| head.duplicates = 701);
    refused(&|head| head.page_bytes = 0);
    refused(&|head| head.segments[0].offset = 1);
    refused(&|head| head.segments[0].fences_offset = 200);
    refused(&|head| head.segments[0].fences_offset = 301);
    refused(&|head| head.segments[0].pages = 0);
    refused(&|head| head.segments[1].fences_bytes = 21);
    refused(&|head| head.segments[1].fences_offset = u64::MAX);
    refused(&|head| head.tables[1].0 += 1);
}

#[test]
fn fences_and_packs_come_back() {
    let fences = Fences {
        fences: [1, 1, 5].into(),
        rows: 700,
        seed: 9,
        segment_log2: 2,
        filter_segments: 1,
    };
    let body = fences.encode(b"fingerprints");
    assert_eq!(Fences::decode(&body).unwrap(), (fences.clone(), &b"fingerprints"[..]));
    assert!(Fences::decode(&Fences { rows: 630, ..fences.clone() }.encode(b"")).is_err());
    assert!(Fences::decode(&Fences { rows: 946, ..fences.clone() }.encode(b"")).is_err());
    let descending = Fences { fences: [2, 1, 5].into(), ..fences };
    assert!(Fences::decode(&descending.encode(b"")).is_err());
    let set = SetId([1; 16]);
    let pack = RunPack { set, data: 3, parity: 1, is_lost: false, bytes: 70 << 20 };
    let packs = vec![pack, RunPack { is_lost: true, ..pack }];
    assert_eq!(decode_packs(&encode_packs(&packs)).unwrap(), packs);
    assert!(decode_packs(&encode_packs(&[RunPack { data: 0, ..pack }])).is_err());
    assert!(decode_packs(&encode_packs(&[])).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, tag in 0_usize..5) {
        if let (Some(first), Some(tag)) = (bytes.first_mut(), b"pskh".get(tag)) {
            *first = *tag;
        }
        let _ = Page::decode(&bytes, 0, 5);
        let _ = Fences::decode(&bytes);
        let _ = decode_packs(&bytes);
        let _ = RunHead::decode(&bytes);
    }
}
