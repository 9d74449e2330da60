//! The promises of seals.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Padding};
use pinstripe_member::record::{self, ChunkRow, RecordHead, RecordKind};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};

const CIPHERS: [Encryption; 2] = [Encryption::Aes256Gcm, Encryption::ChaCha20Poly1305];

fn keys() -> Keys {
    Keys::generate_sealing(StoreId([1; 16])).unwrap()
}

fn rows() -> Vec<ChunkRow> {
    vec![
        ChunkRow { id: ChunkId([1; 32]), raw_bytes: 10 },
        ChunkRow { id: ChunkId([2; 32]), raw_bytes: 20 },
    ]
}

fn sealed(sealer: &Sealer) -> Vec<u8> {
    sealer.record(RecordKind::Data, 4, &rows(), 30, b"compressed content").unwrap()
}

#[track_caller]
fn assert_opens(opener: &Opener, record: &[u8]) {
    let mut bytes = [record, b"what follows"].concat();
    let opened = opener.record(&mut bytes).unwrap();
    assert_eq!(&bytes[opened.stored], b"compressed content");
    assert_eq!(opened.bytes, record.len());
    let head = RecordHead {
        kind: RecordKind::Data,
        codec: 4,
        raw_bytes: 30,
        stored_bytes: 18,
        chunks: rows(),
    };
    assert_eq!(opened.head, head);
}

#[test]
fn records_come_back_sealed_padded_or_neither() {
    assert_opens(&Opener::clear(), &sealed(&Sealer::none()));
    let keys = keys();
    for encryption in CIPHERS {
        for padding in [Padding::None, Padding::Padme] {
            let record = sealed(&Sealer::new(encryption, padding, &keys).unwrap());
            assert_opens(&Opener::new(&keys), &record);
            let longest = record::longest(30, 2);
            assert!(record.len() as u64 <= longest, "{} of {longest}", record.len());
        }
    }
}

#[test]
fn without_a_key_a_record_shows_its_kind_and_length_only() {
    let record = sealed(&Sealer::new(CIPHERS[0], Padding::None, &keys()).unwrap());
    let clear = record::parse_clear(&record).unwrap();
    assert_eq!((clear.head.kind, clear.stored.end), (RecordKind::Data, record.len()));
    assert_eq!((clear.head.codec, clear.head.raw_bytes, clear.head.chunks.len()), (0, 0, 0));
    for secret in [&[1; 8][..], &[2; 8], b"compressed"] {
        assert!(!record.windows(secret.len()).any(|window| window == secret));
    }
    let error = Opener::locked().record(&mut record.clone()).unwrap_err();
    assert_eq!(error.kind(), Kind::Locked);
    assert!(error.advice_text().is_some());
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen_with_and_without_a_key() {
    let keys = keys();
    let opener = Opener::new(&keys);
    let record = sealed(&Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap());
    for at in 0..record.len() * 8 {
        let mut damaged = record.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert!(record::parse_clear(&damaged).is_err(), "bit {at}");
        assert!(opener.record(&mut damaged).is_err(), "bit {at}");
    }
    for len in 0..record.len() {
        assert!(opener.record(&mut record[..len].to_vec()).is_err());
    }
}

/// A process without the key can make checksums right, and still forges nothing.
#[test]
fn a_changed_record_under_right_checksums_is_refused() {
    let keys = keys();
    let opener = Opener::new(&keys);
    let record = sealed(&Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap());
    let resum = |bytes: &mut Vec<u8>| {
        let sum = pinstripe_base::checksum::checksum(&bytes[record::RECORD_HEAD_BYTES..]);
        record::fill_sums(&mut bytes[..record::RECORD_HEAD_BYTES], sum);
    };
    for at in (5..6).chain(record::RECORD_HEAD_BYTES..record.len()) {
        let mut forged = record.clone();
        forged[at] ^= 3;
        resum(&mut forged);
        assert!(record::parse_clear(&forged).is_ok(), "byte {at}");
        // A generation that the ring does not have may have come with a rotation.
        let generation = record::RECORD_HEAD_BYTES..record::RECORD_HEAD_BYTES + 4;
        let wanted = if generation.contains(&at) { Kind::KeysChanged } else { Kind::Corrupt };
        assert_eq!(opener.record(&mut forged).unwrap_err().kind(), wanted, "byte {at}");
    }
    let error = opener.record(&mut sealed(&Sealer::none())).unwrap_err();
    assert!(error.what().contains("unsealed"), "{error}");
    let other = Opener::new(&self::keys());
    assert_eq!(other.record(&mut record.clone()).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn no_nonce_is_used_twice() {
    let keys = keys();
    let sealers = [0; 2].map(|_| Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap());
    let mut seen = HashSet::new();
    for sealer in &sealers {
        std::thread::scope(|scope| {
            let seal = || (0..200).map(|_| sealer.blob(b"", b"x").unwrap()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(seal)).collect();
            for blob in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
                assert!(seen.insert(blob[..BLOB_HEAD_BYTES].to_vec()), "a nonce was used twice");
            }
        });
    }
    assert_eq!(seen.len(), 2 * 4 * 200);
}

#[test]
fn older_generations_are_read_and_newer_ones_are_named() {
    let mut keys = keys();
    let old = sealed(&Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap());
    let before = Opener::new(&keys);
    keys.seals.push([9; 32].into());
    let new = sealed(&Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap());
    let after = Opener::new(&keys);
    assert_opens(&after, &old);
    assert_opens(&after, &new);
    let error = before.record(&mut new.clone()).unwrap_err();
    assert!(error.to_string().contains("generation"), "{error}");
}

#[test]
fn snapshots_are_sealed_but_for_their_names() {
    let snapshot = Snapshot {
        store: StoreId([1; 16]),
        id: SnapshotId([2; 16]),
        created_seconds: 1_700_000_000,
        created_nanos: 5,
        host: b"a-host-by-name".to_vec(),
        program: "0.1.0".into(),
        sources: vec![b"home/somebody".to_vec()],
        parent: None,
        root: TreeRoot { id: ChunkId([4; 32]), height: 1, entries: 99 },
        counts: vec![("new_files".into(), 7)],
        tags: vec!["weekly".into()],
        comment: String::new(),
    };
    let keys = keys();
    let opener = Opener::new(&keys);
    let object =
        Sealer::new(CIPHERS[1], Padding::None, &keys).unwrap().snapshot(&snapshot).unwrap();
    assert_eq!(opener.snapshot(&object).unwrap(), snapshot);
    assert!(!object.windows(6).any(|window| window == b"a-host"));
    let parsed = pinstripe_member::snapshot::parse(&object).unwrap();
    assert_eq!((parsed.store, parsed.id), (snapshot.store, snapshot.id));
    assert_eq!(Opener::locked().snapshot(&object).unwrap_err().kind(), Kind::Locked);
    assert_eq!(Snapshot::decode(&object).unwrap_err().kind(), Kind::Locked);
    // Under another name, or in the clear, it is no snapshot of the store.
    let pinstripe_member::snapshot::SnapshotContent::Sealed(seal, blob) = parsed.content else {
        panic!()
    };
    let id = SnapshotId([3; 16]);
    let renamed = pinstripe_member::snapshot::frame_sealed((snapshot.store, id), false, seal, blob);
    assert_eq!(opener.snapshot(&renamed).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(opener.snapshot(&snapshot.encode()).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(Opener::clear().snapshot(&snapshot.encode()).unwrap(), snapshot);
}

#[test]
fn nothing_prints_a_secret() {
    let keys = keys();
    let sealer = Sealer::new(CIPHERS[0], Padding::None, &keys).unwrap();
    assert_eq!(format!("{sealer:?}"), "Sealer(aes256-gcm, secret)");
    assert_eq!(format!("{:?}", Opener::new(&keys)), "Opener(secret)");
    assert!(format!("{keys:?}").ends_with("secret)"));
}

proptest! {
    #[test]
    fn whatever_stands_inside_a_seal_is_read_or_refused(plain: Vec<u8>, kind in 1u8..4) {
        let kind = [RecordKind::Data, RecordKind::Tree, RecordKind::PackIndex][usize::from(kind) - 1];
        if let Ok((head, range)) = record::parse_inner(kind, &plain) {
            prop_assert_eq!(range.len(), head.stored_bytes as usize);
        }
    }

    #[test]
    fn arbitrary_bytes_open_nothing(mut bytes: Vec<u8>) {
        let opener = Opener::new(&keys());
        prop_assert!(opener.blob(Encryption::Aes256Gcm, b"", &bytes).is_err());
        prop_assert!(opener.record(&mut bytes).is_err());
    }
}
