//! The parts of an index run: any bytes give a part or an error, what is read is written again as
//! it was, and a filter that was read answers any question.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::index_run::{self, Fences, Page, RunHead};
use pinstripe_stripe::{Filter, Shape};

fuzz_target!(|bytes: &[u8]| {
    let number = bytes.get(1..5).map_or(0, |n| u32::from_le_bytes(n.try_into().unwrap()));
    if let Ok(page) = Page::decode(bytes, number, 1000) {
        let rows: Vec<_> = page.rows().collect();
        assert_eq!(index_run::encode_page(number, &rows), bytes);
        for row in &rows {
            assert!(page.row(page.lower_bound(&row.id)).id == row.id);
        }
    }
    if let Ok((fences, fingerprints)) = Fences::decode(bytes) {
        assert_eq!(fences.encode(fingerprints), bytes);
        let Fences { seed, segment_log2, filter_segments: segments, .. } = fences;
        if let Ok(filter) = Filter::from_parts(Shape { seed, segment_log2, segments }, fingerprints)
        {
            (0..64).for_each(|key| {
                let _ = filter.contains(key);
            });
        }
    }
    if let Ok(packs) = index_run::decode_packs(bytes) {
        assert_eq!(index_run::encode_packs(&packs), bytes);
    }
    if let Ok(head) = RunHead::decode(bytes) {
        assert_eq!(head.encode(), bytes);
    }
});
