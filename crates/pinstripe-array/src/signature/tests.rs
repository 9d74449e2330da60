//! Every format that is known, as a few bytes on an empty device.

use super::*;
use pinstripe_io::device::MemoryDevice;

/// Bytes at a place.
type Patch<'a> = (u64, &'a [u8]);

const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// Long enough for what stands 2 MiB from the beginning.
const BYTES: u64 = 4 << 20;

fn with(patches: &[Patch<'_>]) -> Option<String> {
    let device = MemoryDevice::new("memory");
    device.set_len(BYTES).unwrap();
    for (at, bytes) in patches {
        device.write_at(*at, bytes).unwrap();
    }
    signature(&device).unwrap().map(|it| it.to_string())
}

#[test]
fn what_is_well_known_is_named() {
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[(512, b"EFI PARE")]), None);
    let cases: &[(&[Patch<'_>], &str)] = &[
        (&[(0, b"XFSB")], "an XFS file system"),
        (&[(0x10040, b"_BHRfS_M")], "a btrfs file system"),
        (&[(4086, b"SWAPSPACE2")], "swap space"),
        (&[(512, b"LABELONE"), (536, b"LVM2 001")], "an LVM physical volume"),
        (&[(512, b"EFI PART"), (450, &[0xee]), (510, &[0x55, 0xaa])], "a partition table (GPT)"),
        (&[(450, &[0x83]), (510, &[0x55, 0xaa])], "a partition table (MBR)"),
        (&[(1080, &[0x53, 0xef])], "an ext2 file system"),
        (&[(1080, &[0x53, 0xef]), (1116, &[4])], "an ext3 file system"),
        (&[(1080, &[0x53, 0xef]), (1116, &[4]), (1120, &[0x40])], "an ext4 file system"),
        (&[(132 << 10, &[0x0c, 0xb1, 0xba])], "a ZFS device"),
        (&[(0, &MD_MAGIC)], "a member of an md array that cannot be read"),
        (&[(4096, &MD_MAGIC)], "a member of an md array that cannot be read"),
        (&[(BYTES - 8192, &MD_MAGIC)], "a member of an md array that cannot be read"),
        (&[(BYTES - 65536, &MD_MAGIC)], "a member of an md array that cannot be read"),
        (&[(0, MAGIC)], "a member of an array of pinstripe that cannot be read"),
        (&[(1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34])], "a NILFS2 file system"),
        (&[(32768, b"JFS1")], "a JFS file system"),
        (&[(65588, b"ReIsEr2Fs")], "a Reiser file system"),
        (&[(16374, b"SWAPSPACE2")], "swap space"),
        (&[(BYTES - 512, b"EFI PART")], "the backup copy of a partition table (GPT)"),
        (&[(BYTES - 1024, b"Intel Raid ISM Cfg Sig. ")], "a member of a firmware RAID (Intel)"),
    ];
    for (patches, what) in cases {
        assert_eq!(with(patches).as_deref(), Some(*what));
    }
}

#[test]
fn short_devices_carry_nothing() {
    for bytes in [0, 1, 511, 1025, 4097, 66_000] {
        let device = MemoryDevice::new("memory");
        device.set_len(bytes).unwrap();
        assert_eq!(signature(&device).unwrap(), None, "{bytes}");
    }
}

/// The forty and more that blkid knows, or that people write to devices, with the places at which
/// their own programs look for them.
const FOREIGN: &[(&[Patch<'_>], &str)] = &[
    (&[(32, b"ORCLDISK")], "a disk of Oracle ASM"),
    (&[(8, b"OracleCFS")], "an OCFS file system"),
    (&[(1 << 20, &[0x0d, 0xd0, 0x01, 0xc0])], "a member of a VMFS volume"),
    (&[(2 << 20, &[0x5e, 0xf1, 0xab, 0x2f])], "a VMFS file system"),
    (&[(BYTES - 4096 + 60, &[0x83, 0x74, 0x02, 0x6b])], "a member of DRBD"),
    (&[(BYTES - 4096 + 60, &[0x83, 0x74, 0x02, 0x6d])], "a member of DRBD"),
    (&[(16, b"DRBDdlh*")], "a log of a DRBD proxy"),
    (&[(1372, &[0x54, 0x19, 0x01, 0x00])], "a UFS file system"),
    (&[(8192 + 1372, &[0x19, 0x01, 0x54, 0x19])], "a UFS file system"),
    (&[((64 << 10) + 1372, &[0x19, 0x54, 0x01, 0x19])], "a UFS file system"),
    (&[((256 << 10) + 1372, &[0x00, 0x01, 0x19, 0x54])], "a UFS file system"),
    (&[(0, b"HM\x01\0")], "an LVM physical volume (version 1)"),
    (&[(BYTES - 1024, b"NVIDIA")], "a member of a firmware RAID (NVIDIA)"),
    (&[(BYTES - 512, b"$XIDE$")], "a member of a firmware RAID (LSI)"),
    (&[(BYTES - 63 * 512, b"Promise Technology, Inc.")], "a member of a firmware RAID (Promise)"),
    (&[(BYTES - 512, &[0xde, 0x11, 0xde, 0x11])], "a member of a firmware RAID (DDF)"),
    (&[(1028, &[1]), (1040, &[0x8f, 0x13])], "a minix file system"),
    (&[(1030, &[1]), (1048, &[0x5a, 0x4d])], "a minix file system"),
    (&[(0, &[0xce, 0xfa, 0xad, 0x1b])], "a BFS file system"),
    (&[(544, b"1SFB")], "a BeFS file system"),
    (&[(0, b"-rom1fs-")], "a romfs file system"),
    (&[(0, &[0x45, 0x3d, 0xcd, 0x28])], "a cramfs file system"),
    (&[(0, b"UBI#\x01")], "a UBI volume"),
    (&[(0, &[0x31, 0x18, 0x10, 0x06])], "a UBIFS file system"),
    (&[(0, b"hsqs")], "a squashfs file system"),
    (&[(1024, &[0xe2, 0xe1, 0xf5, 0xe0])], "an EROFS file system"),
    (&[(1024, b"BD"), (1044, &[0, 0, 0x10, 0])], "an HFS file system"),
    (&[(1024, b"H+\0\x04")], "an HFS+ file system"),
    (&[(32, b"NXSB")], "an APFS file system"),
    (&[(8192, &[0x49, 0xe8, 0x95, 0xf9])], "an HPFS file system"),
    (&[(3, b"ReFS\0")], "a ReFS file system"),
    (&[(1024, &[0xf5, 0xfc, 0x01, 0xa5])], "a VxFS file system"),
    (&[(508, &[0xda, 0xbe, 0xda, 0xbe])], "a partition table (Sun)"),
    (&[(0, b"ER\x02"), (512, b"PM")], "a partition table (Apple)"),
    (&[(0, &[0x0b, 0xe5, 0xa9, 0x41])], "a partition table (SGI)"),
    (&[(512, &[0x57, 0x45, 0x56, 0x82])], "a partition table (BSD)"),
    (&[(510, &[0x55, 0xaa])], "a partition table (MBR) without partitions"),
    (&[(440, b"disk"), (510, &[0x55, 0xaa])], "a partition table (MBR) without partitions"),
    (&[(3072, b"PRIVHEAD")], "a dynamic disk of Windows"),
    (&[(0, &[0xc9, 0xc2, 0xd4, 0xc1])], "a physical volume of AIX"),
    (&[(0, b"SnAp")], "a snapshot of the device mapper"),
    (&[(0, b"integrt\0")], "a volume with checksums (dm-integrity)"),
    (&[(0, b"QFI\xfb\0\0\0\x03")], "a disk image (qcow2)"),
    (&[(0x40, &[0x7f, 0x10, 0xda, 0xbe])], "a disk image (VDI)"),
    (&[(0, b"KDMV")], "a disk image (VMDK)"),
    (&[(BYTES - 512, b"conectix")], "a disk image (VHD)"),
    (&[(257, b"ustar\0")], "a tar archive"),
    (&[(0, b"070701")], "a cpio archive"),
    (&[(0, &[0x1f, 0x8b, 0x08])], "data compressed by gzip"),
    (&[(0, &[0x28, 0xb5, 0x2f, 0xfd])], "data compressed by zstd"),
    (&[(0, b"\xfd7zXZ\0")], "data compressed by xz"),
    (&[(0, b"BZh91AY&SY")], "data compressed by bzip2"),
    (&[(0, b"PK\x03\x04")], "a zip archive"),
    (&[(0, b"SQLite format 3\0")], "an SQLite database"),
];

#[test]
fn what_other_systems_and_programs_write_is_named() {
    assert!(FOREIGN.len() >= 40);
    for (patches, what) in FOREIGN {
        assert_eq!(with(patches).as_deref(), Some(*what));
    }
}

#[test]
fn every_row_of_the_tables_is_found() {
    let rows = KNOWN.iter().map(|(at, magic, what)| (*at as u64, *magic, *what));
    let rows = rows.chain(FAR.iter().copied());
    let rows =
        rows.chain(AT_THE_END.iter().map(|(back, magic, what)| (BYTES - back, *magic, *what)));
    for (at, magic, what) in rows {
        assert_eq!(with(&[(at, magic)]).as_deref(), Some(what), "{at}");
    }
}

#[test]
fn objects_of_ours_are_named_by_what_wrote_them() {
    let page = |kind: u8| [&b"PINSTRIP"[..], &[kind, 0, 1, 0]].concat();
    for (at, kind, what) in [
        (0, 10, "an output of 'pinstripe split'"),
        (4096, 11, "an output of 'pinstripe split'"),
        (0, 1, "an object of a pinstripe store"),
        (0, 3, "an object of a pinstripe store"),
    ] {
        assert_eq!(with(&[(at, &page(kind))]).as_deref(), Some(what), "{kind}");
    }
}

#[test]
fn two_bytes_alone_are_nothing() {
    for (at, bytes) in [(1024, b"BD"), (1040, &[0x8f, 0x13]), (508, &[0xda, 0xbe]), (0, b"ER")] {
        assert_eq!(with(&[(at, bytes)]), None, "{at}");
    }
    // The mark of a boot record behind something that is no table of parts.
    assert_eq!(with(&[(446, b"no"), (510, &[0x55, 0xaa])]), None);
}
