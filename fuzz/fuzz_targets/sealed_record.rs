//! Sealed records: any bytes inside a sound seal, any blob under sound checksums.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pinstripe_base::checksum::checksum;
use pinstripe_base::id::StoreId;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Padding};
use pinstripe_member::record::{
    RECORD_HEAD_BYTES, RecordHead, RecordKind, clear_head, fill_sums, parse_clear, parse_inner,
};
use pinstripe_stripe::{Opener, Sealer};

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::generate_sealing(StoreId([1; 16])).unwrap());

/// A record with this blob, under sound checksums.
fn record(kind: RecordKind, blob: &[u8]) -> Vec<u8> {
    let stored_bytes = blob.len() as u32;
    let head = RecordHead { kind, codec: 0, raw_bytes: 0, stored_bytes, chunks: Vec::new() };
    let clear = clear_head(&head, Encryption::Aes256Gcm);
    let mut out = [clear.as_slice(), &[0; RECORD_HEAD_BYTES - 24]].concat();
    fill_sums(&mut out, checksum(blob));
    out.extend_from_slice(blob);
    out
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_sealed, kind, bytes) = input;
    let kinds = [RecordKind::Data, RecordKind::Tree, RecordKind::PackIndex];
    let kind = kinds[usize::from(kind) % kinds.len()];
    let blob = match is_sealed {
        false => bytes.to_vec(),
        true => {
            let head = RecordHead {
                kind,
                codec: 0,
                raw_bytes: 0,
                stored_bytes: (28 + bytes.len() + 16) as u32,
                chunks: Vec::new(),
            };
            let clear = clear_head(&head, Encryption::Aes256Gcm);
            let sealer = Sealer::new(Encryption::Aes256Gcm, Padding::None, &KEYS).unwrap();
            sealer.blob(&clear, bytes).unwrap()
        }
    };
    let mut record = record(kind, &blob);
    let clear = parse_clear(&record).unwrap();
    assert_eq!(clear.stored.end, record.len());
    let wanted = parse_inner(kind, bytes);
    match Opener::new(&KEYS).record(&mut record) {
        Ok(opened) => {
            let (head, range) = wanted.unwrap();
            assert!(is_sealed && opened.head == head);
            assert_eq!(record[opened.stored], bytes[range]);
        }
        Err(_) => assert!(!is_sealed || wanted.is_err()),
    }
});
