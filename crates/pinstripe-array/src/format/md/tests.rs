use proptest::prelude::*;

use super::*;

macro_rules! superblock {
    ($name:literal) => {
        ($name, include_bytes!(concat!("superblocks/", $name, ".superblock")))
    };
}

/// A name and its 4 KiB.
type File = (&'static str, &'static [u8; 4096]);
/// Level, layout, chunk in KiB, members, features, data offset, events, role.
type Facts = (i32, u32, u32, u32, u32, u64, u64, Role);

const MEMBER: fn(u16) -> Role = Role::Member;

/// Superblocks that mdadm made, with what `mdadm --examine` says of them.
#[rustfmt::skip]
fn real() -> Vec<(File, Facts)> {
    vec![
        (superblock!("r0-3-0"), (0, 1, 64, 3, 0, 2048, 0, MEMBER(0))),
        (superblock!("r1-2-bitmap-1"), (1, 0, 0, 2, FEATURE_BITMAP, 2048, 2, MEMBER(1))),
        (superblock!("r4-3-2"), (4, 0, 64, 3, 0, 2048, 2, MEMBER(2))),
        (superblock!("r5-ls-4-0"), (5, 2, 64, 4, 0, 2048, 2, MEMBER(0))),
        (superblock!("r5-la-4-1"), (5, 0, 4, 4, 0, 2048, 2, MEMBER(1))),
        (superblock!("r5-ra-4-ppl-0"), (5, 1, 64, 4, FEATURE_MULTIPLE_PPLS, 4096, 2, MEMBER(0))),
        (superblock!("r5-last-3-3"), (5, 5, 16, 3, 0, 2048, 2, Role::Spare)),
        (superblock!("r5-journal-0"), (5, 2, 64, 3, FEATURE_JOURNAL, 2048, 10, MEMBER(0))),
        (superblock!("r5-journal-3"), (5, 2, 64, 3, FEATURE_JOURNAL, 2048, 10, Role::Journal)),
        (superblock!("r5-degraded-0"), (5, 2, 64, 4, 0, 2048, 4, MEMBER(0))),
        (superblock!("r5-degraded-1"), (5, 2, 64, 4, 0, 2048, 1, MEMBER(1))),
        (superblock!("r6-ls-4-bitmap-3"), (6, 2, 64, 4, FEATURE_BITMAP, 2048, 2, MEMBER(3))),
        (superblock!("r6-la6-5-0"), (6, 16, 16, 5, 0, 2048, 2, MEMBER(0))),
        (superblock!("r6-n-continue-5-4"), (6, 10, 16, 5, 0, 2048, 2, MEMBER(4))),
        (superblock!("r10-n2-4-1"), (10, 0x102, 64, 4, 0, 2048, 2, MEMBER(1))),
        (superblock!("r10-f2-4-0"), (10, 0x201, 64, 4, 0, 2048, 2, MEMBER(0))),
        (superblock!("r10-o3-5-2"), (10, 0x1_0301, 16, 5, 0, 2048, 2, MEMBER(2))),
    ]
}

fn one() -> MdSuperblock {
    MdSuperblock::decode(superblock!("r6-ls-4-bitmap-3").1).unwrap()
}

#[test]
fn superblocks_of_real_arrays_are_read_and_written_again() {
    for ((name, bytes), expected) in real() {
        let it = MdSuperblock::decode(bytes).unwrap();
        let array = &it.array;
        let found = (
            array.level,
            array.layout,
            array.chunk_sectors / 2,
            array.members,
            array.features,
            it.device.data_offset_sectors,
            it.state.events,
            it.role(),
        );
        assert_eq!(found, expected, "{name}");
        assert_eq!(it.name(), format!("oracle:{}", name.rsplit_once('-').unwrap().0), "{name}");
        let sectors = if array.features == FEATURE_MULTIPLE_PPLS { 12288 } else { 14336 };
        assert_eq!(it.device.data_sectors, sectors, "{name}");
        assert!(name == "r5-degraded-1" || it.is_clean(), "{name}");
        let again = it.encode();
        let len = HEAD_BYTES + 2 * it.roles.len();
        assert_eq!(again[..len], bytes[..len], "{name}");
        assert_eq!(MdSuperblock::decode(&again).unwrap(), it);
    }
}

#[test]
fn what_one_superblock_says_of_the_others() {
    let of = |bytes: &[u8]| MdSuperblock::decode(bytes).unwrap();
    let new = of(superblock!("r5-degraded-0").1);
    let old = of(superblock!("r5-degraded-1").1);
    assert_eq!(new.array.set_uuid, old.array.set_uuid);
    assert_eq!((new.role_of(1), old.role_of(1)), (Role::Faulty, Role::Member(1)));
    assert_eq!((new.role_of(3), new.role_of(1000)), (Role::Member(3), Role::Spare));
    assert!(!old.is_clean());
    let (bitmap, ppl) = (one(), of(superblock!("r5-ra-4-ppl-0").1));
    assert_eq!((bitmap.bitmap_sectors(), bitmap.ppl()), (Some(8), None));
    assert_eq!((ppl.bitmap_sectors(), ppl.ppl()), (None, Some((8, 2048))));
    assert_eq!(ppl.device.bad_blocks_offset_sectors, 2056);
    assert_eq!((bitmap.device.bad_blocks_sectors, bitmap.device.bad_blocks_shift), (8, 0));
}

/// Changes a field and says what becomes of it, with a checksum that is right.
fn changed(change: impl FnOnce(&mut MdSuperblock)) -> Result<MdSuperblock> {
    let mut it = one();
    change(&mut it);
    MdSuperblock::decode(&it.encode())
}

#[test]
fn what_cannot_be_is_refused() {
    let bits = |features: u32| changed(|it| it.array.features = features);
    let device = |change: fn(&mut MdDeviceInfo)| changed(|it| change(&mut it.device));
    for (error, kind, word) in [
        (bits(1 << 13), Kind::Unsupported, "0x2000"),
        (bits(FEATURE_RAID0_LAYOUT), Kind::Corrupt, "level 0"),
        (bits(FEATURE_PPL | FEATURE_BITMAP), Kind::Corrupt, "with a bitmap"),
        (bits(FEATURE_MULTIPLE_PPLS | FEATURE_JOURNAL), Kind::Corrupt, "or a journal"),
        (bits(FEATURE_MULTIPLE_PPLS | FEATURE_PPL), Kind::Corrupt, "two kinds"),
        (device(|it| it.data_sectors = 9), Kind::Corrupt, "no space"),
        (device(|it| it.data_sectors = u64::MAX), Kind::Corrupt, "impossible offset"),
        (device(|it| it.data_offset_sectors = u64::MAX / 512), Kind::Corrupt, "impossible offset"),
        (device(|it| it.data_offset_sectors = 8), Kind::Corrupt, "overlap"),
        (device(|it| it.bad_blocks_shift = 64), Kind::Corrupt, "impossible block size"),
        (device(|it| it.bad_blocks_sectors = 9), Kind::Corrupt, "too long"),
        (changed(|it| it.roles[0] = 0xff00), Kind::Corrupt, "role"),
        (
            changed(|it| {
                it.array.features |= FEATURE_BAD_BLOCKS;
                it.device.bad_blocks_offset_sectors = 0;
            }),
            Kind::Corrupt,
            "not at which offset",
        ),
    ]
    .map(|(result, kind, word)| (result.unwrap_err(), kind, word))
    {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error} has no '{word}'");
    }
    // What a reshape, a recovery or a cluster is recognised by is read, not refused: to use it is
    // not for the decoder to decide.
    let reshape = changed(|it| {
        it.array.features |= FEATURE_RESHAPE | FEATURE_RECOVERY | FEATURE_CLUSTERED;
        it.array.reshape.delta_members = -1;
        it.array.reshape.new_offset_sectors = -8;
    });
    let reshape = reshape.unwrap();
    assert!(reshape.has(FEATURE_RESHAPE) && reshape.array.reshape.delta_members == -1);
}

#[test]
fn bytes_that_are_no_superblock_are_refused() {
    let sound = *superblock!("r5-ls-4-0").1;
    let kind = |at: usize, byte: u8| {
        let mut bytes = sound;
        bytes[at] = byte;
        let len = HEAD_BYTES + 2 * usize::from(bytes[220]);
        let sum = checksum(&bytes[..len]);
        if at != CHECKSUM_AT {
            bytes[CHECKSUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        MdPlace::V1_2.decode(&bytes).unwrap_err().kind()
    };
    assert_eq!(kind(0, 0), Kind::NotFound);
    assert_eq!(kind(4, 0), Kind::Unsupported, "version");
    assert_eq!(kind(12, 1), Kind::Unsupported, "padding");
    assert_eq!(kind(144, 0), Kind::Unsupported, "another place");
    assert_eq!(kind(CHECKSUM_AT, !sound[CHECKSUM_AT]), Kind::Corrupt);
    assert_eq!(kind(222, 1), Kind::Corrupt, "too many devices");
    assert_eq!(kind(230, 1), Kind::Unsupported, "padding");
    assert_eq!(MdSuperblock::decode(&sound[..4095]).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(MdSuperblock::decode(&[]).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(MdSuperblock::decode(&[0; 4096]).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn every_byte_of_a_superblock_counts() {
    let sound = *superblock!("r5-ls-4-0").1;
    let len = HEAD_BYTES + 2 * MdSuperblock::decode(&sound).unwrap().roles.len();
    for at in 0..len {
        let mut bytes = sound;
        bytes[at] ^= 0x10;
        assert!(MdSuperblock::decode(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn odd_numbers_of_roles_count_half_a_word() {
    let mut it = one();
    it.roles = vec![1, 2, 0xffff];
    let bytes = it.encode();
    assert_eq!(MdSuperblock::decode(&bytes).unwrap(), it);
    let mut other = bytes.clone();
    other[HEAD_BYTES + 4] = 0xfe;
    assert_eq!(MdSuperblock::decode(&other).unwrap_err().kind(), Kind::Corrupt);
    it.roles = vec![0xffff; DEVICES_MAX];
    assert_eq!(MdSuperblock::decode(&it.encode()).unwrap(), it);
}

#[test]
fn bad_blocks_are_ranges_of_sectors() {
    let list = |entries: &[u64]| entries.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
    let bytes = list(&[100 << 10 | 8, 7 << 10 | 1, u64::MAX, 5 << 10 | 5]);
    assert_eq!(bad_blocks(&bytes, 0).collect::<Vec<_>>(), [100..108, 7..8]);
    assert_eq!(bad_blocks(&bytes, 3).collect::<Vec<_>>(), [800..864, 56..64]);
    assert_eq!(bad_blocks(&bytes[..15], 0).count(), 1);
    // What would lie beyond all devices is passed over.
    assert_eq!(bad_blocks(&list(&[1 << 63, 1 << 10 | 1]), 20).count(), 1);
    assert_eq!(bad_blocks(&bytes, 64).count() + bad_blocks(&bytes, 255).count(), 0);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 4096), changes: Vec<(u16, u8)>, framed: bool,
    ) {
        if framed {
            bytes = superblock!("r10-o3-5-2").1.to_vec();
            for (at, byte) in changes {
                bytes[usize::from(at) % 400] = byte;
            }
            let len = HEAD_BYTES + 2 * usize::from(bytes[220]);
            let sum = checksum(&bytes[..len]);
            bytes[CHECKSUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        let _ = bad_blocks(&bytes, bytes[0]).count();
        if let Ok(it) = MdSuperblock::decode(&bytes) {
            let len = HEAD_BYTES + 2 * it.roles.len();
            prop_assert_eq!(&it.encode()[..len], &bytes[..len]);
            let _ = (it.name(), it.role(), it.ppl(), it.bitmap_sectors());
        }
    }
}
