//! Layout, refusals and robustness of the stripe set's on-disk structs.

use proptest::prelude::*;

use super::*;

fn geometry() -> Geometry {
    Geometry::new(3, 1, 4096).unwrap()
}

fn header() -> Header {
    let (store, set) = (StoreId([1; 16]), SetId([2; 16]));
    Header { store, set, kind: SetKind::Pack, geometry: geometry(), slot: 3 }
}

fn trailer() -> Trailer {
    Trailer {
        store: StoreId([1; 16]),
        set: SetId([2; 16]),
        kind: SetKind::IndexRun,
        geometry: geometry(),
        logical_bytes: 3 * 4096 + 1,
        index: 100..12_000,
        checksums: (0..8).map(|number| [number; 16]).collect(),
    }
}

/// Splits the end of an extent as the reader does.
fn decode_tail(tail: &[u8]) -> Result<Trailer> {
    let footer_at = tail.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&tail[footer_at..])?;
    Trailer::decode(&tail[..footer_at], &footer)
}

/// Changes a field and makes the checksum right again, as a newer writer would.
fn header_with(at: usize, bytes: &[u8]) -> Result<Header> {
    let mut block = header().encode();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = checksum(&block[..HEADER_CHECKSUM_AT]);
    block[HEADER_CHECKSUM_AT..].copy_from_slice(&sum);
    Header::decode(&block)
}

fn trailer_with(at: usize, bytes: &[u8]) -> Result<Trailer> {
    let mut tail = trailer().encode();
    let footer_at = tail.len() - FOOTER_BYTES;
    tail.truncate(footer_at);
    tail[at..at + bytes.len()].copy_from_slice(bytes);
    let footer = Footer {
        trailer_bytes: footer_at as u64,
        checksum: checksum(&tail),
        set_prefix: set_prefix(SetId([2; 16])),
    };
    Trailer::decode(&tail, &footer)
}

#[test]
fn every_struct_comes_back() {
    let block = header().encode();
    assert_eq!(block.len(), HEADER_BYTES);
    assert_eq!(Header::decode(&block).unwrap(), header());
    let tail = trailer().encode();
    assert_eq!(tail.len() as u64, geometry().tail_bytes(2));
    assert_eq!(decode_tail(&tail).unwrap(), trailer());
}

#[test]
fn fields_lie_where_the_format_says() {
    let block = header().encode();
    assert_eq!(&block[..8], b"pstrSETh");
    assert_eq!(block[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(block[16..32], [1; 16]);
    assert_eq!(block[32..48], [2; 16]);
    assert_eq!(block[48..60], [1, 3, 1, 4, 3, 0, 0, 0, 0, 0x10, 0, 0]);
    assert_eq!(block[4080..], checksum(&block[..4080]));

    let tail = trailer().encode();
    assert_eq!(&tail[..8], b"pstrSETt");
    assert_eq!(tail[48..56], [2, 3, 1, 1, 0, 0x10, 0, 0]);
    assert_eq!(tail[56..64], 12_289_u64.to_le_bytes());
    assert_eq!(tail[64..72], 2_u64.to_le_bytes());
    assert_eq!(tail[72..80], 100_u64.to_le_bytes());
    assert_eq!(tail[80..88], 11_900_u64.to_le_bytes());
    assert_eq!(tail[96 + 7 * 16..96 + 8 * 16], [7; 16]);
    let footer = &tail[96 + 8 * 16..];
    assert_eq!(&footer[..8], b"pstrSETf");
    assert_eq!(footer[16..24], 224_u64.to_le_bytes());
    assert_eq!(footer[24..40], checksum(&tail[..224]));
    assert_eq!(footer[40..48], [2; 8]);
    assert_eq!(footer[48..], checksum(&footer[..48]));
}

#[test]
fn what_is_newer_is_refused_and_not_called_damage() {
    for (at, bytes) in [
        (8, &[2, 0, 0, 0][..]),
        (8, &[0xff; 4]),
        (12, &[1, 0, 0, 0]),
        (12, &[0, 0, 0, 0x80]),
        (48, &[9]),
        (49, &[3, 3, 6]),
        (49, &[3, 4, 7]),
    ] {
        let error = header_with(at, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{at} {error}");
        assert!(error.advice_text().is_some());
    }
    for (at, bytes) in
        [(8, &[2, 0, 0, 0][..]), (12, &[0, 1, 0, 0]), (48, &[0]), (50, &[3]), (51, &[2])]
    {
        let error = trailer_with(at, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{at} {error}");
    }
}

#[test]
fn impossible_values_are_damage() {
    for (at, bytes) in [
        (8, &[0, 0, 0, 0][..]),
        (49, &[0]),
        (50, &[5]),
        (51, &[5]),
        (52, &[4]),
        (53, &[1]),
        (56, &[1]),
        (60, &[1]),
        (4079, &[1]),
    ] {
        assert_eq!(header_with(at, bytes).unwrap_err().kind(), Kind::Corrupt, "{at}");
    }
    for (at, bytes) in [
        (49, &[0][..]),
        (49, &[4]),
        (52, &[1]),
        (56, &[0xff; 8]),
        (64, &[3]),
        (72, &[0xff; 8]),
        (80, &[0xff; 8]),
        (88, &[1]),
        (32, &[3]),
    ] {
        assert_eq!(trailer_with(at, bytes).unwrap_err().kind(), Kind::Corrupt, "{at}");
    }
}

#[test]
fn a_geometry_is_always_possible() {
    for (data, parity, strip_bytes, kind) in [
        (1, 0, 4096, None),
        (253, 2, 16 << 20, None),
        (0, 1, 4096, Some(Kind::Usage)),
        (254, 2, 4096, Some(Kind::Usage)),
        (2, 5, 4096, Some(Kind::Usage)),
        (2, 3, 4096, Some(Kind::Unsupported)),
        (2, 1, 2048, Some(Kind::Usage)),
        (2, 1, 32 << 20, Some(Kind::Usage)),
        (2, 1, 12_288, Some(Kind::Usage)),
        (2, 1, 0, Some(Kind::Usage)),
    ] {
        let found = Geometry::new(data, parity, strip_bytes).err().map(|error| error.kind());
        assert_eq!(found, kind, "{data}+{parity} {strip_bytes}");
    }
}

proptest! {
    #[test]
    fn any_changed_bit_of_a_header_is_damage(at in 0..HEADER_BYTES, bit in 0u32..8) {
        let mut block = header().encode();
        block[at] ^= 1u8 << bit;
        prop_assert_eq!(Header::decode(&block).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn any_changed_bit_of_a_tail_is_damage(at in 0usize..288, bit in 0u32..8) {
        let mut tail = trailer().encode();
        prop_assert_eq!(tail.len(), 288);
        tail[at] ^= 1u8 << bit;
        prop_assert_eq!(decode_tail(&tail).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn a_cut_part_is_damage(cut in 0..HEADER_BYTES) {
        let block = header().encode();
        prop_assert_eq!(Header::decode(&block[..cut]).unwrap_err().kind(), Kind::Corrupt);
        let tail = trailer().encode();
        let cut = cut % tail.len();
        prop_assert_eq!(decode_tail(&tail[..cut]).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn bytes_with_right_checksums_but_any_content_never_panic(
        mut block in prop::collection::vec(any::<u8>(), HEADER_BYTES),
        fields in prop::collection::vec(any::<u8>(), 8..400),
        cut in 0usize..400,
    ) {
        block[..8].copy_from_slice(&HEADER_MAGIC);
        block[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        block[60..].fill(0);
        let sum = checksum(&block[..HEADER_CHECKSUM_AT]);
        block[HEADER_CHECKSUM_AT..].copy_from_slice(&sum);
        if let Ok(decoded) = Header::decode(&block) {
            prop_assert_eq!(decoded.encode(), block);
        }

        let mut tail = trailer().encode();
        tail.truncate(tail.len() - FOOTER_BYTES);
        tail[48..48 + fields.len().min(48)].copy_from_slice(&fields[..fields.len().min(48)]);
        tail.truncate(cut);
        let footer = Footer {
            trailer_bytes: tail.len() as u64,
            checksum: checksum(&tail),
            set_prefix: set_prefix(SetId([2; 16])),
        };
        if let Ok(decoded) = Trailer::decode(&tail, &footer) {
            footer.encode(&mut tail);
            prop_assert_eq!(decoded.encode(), tail);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, footer_bytes: [u8; FOOTER_BYTES]) {
        prop_assert!(Header::decode(&bytes).is_err());
        prop_assert!(Footer::decode(&footer_bytes).is_err());
        let footer = Footer {
            trailer_bytes: bytes.len() as u64,
            checksum: checksum(&bytes),
            set_prefix: [0; 8],
        };
        prop_assert!(Trailer::decode(&bytes, &footer).is_err());
    }
}
