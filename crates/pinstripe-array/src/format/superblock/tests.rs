use super::*;

fn superblock() -> Superblock {
    let member = |n: u8| MemberId([n; 16]);
    Superblock {
        array: ArrayId([1; 16]),
        member: member(4),
        slot: 2,
        generation: 41,
        name: "pool".to_owned(),
        made_seconds: 1_700_000_000,
        level: 5,
        layout: 2,
        chunk_bytes: 512 << 10,
        data_bytes: 3 << 30,
        consistency: Consistency::Log,
        areas: Areas {
            regions_at: 72 << 10,
            bad_blocks_at: 76 << 10,
            log_at: 80 << 10,
            log_bytes: 16 << 20,
            sums_at: 17 << 20,
            data_at: 24 << 20,
        },
        log: (8192, 700),
        work: Work::Rebuild { slot: 2, done_bytes: 1 << 30, only_behind: true },
        scrub: None,
        noted_since: 40,
        granule: 16 << 10,
        is_clean: false,
        regions_check: 0x1234_5678,
        slots: vec![
            Slot::Present(member(2)),
            Slot::Failed(member(3)),
            Slot::Rebuilding(member(4)),
            Slot::Missing,
        ],
    }
}

#[test]
fn a_superblock_comes_back() {
    let full = Superblock {
        name: "n".repeat(NAME_BYTES_MAX),
        slots: vec![Slot::Present(MemberId([5; 16])); SLOTS_MAX],
        scrub: Some(ScrubProgress { repair: true, done_rows: 9 }),
        is_clean: true,
        slot: SPARE,
        ..superblock()
    };
    let works = [
        Work::None,
        Work::Rebuild { slot: 3, done_bytes: 1, only_behind: false },
        Work::Replace { slot: 1, with: MemberId([9; 16]), done_bytes: 2 },
        Work::Grow { stretches: 7, columns: 8192, journal: 4096 },
    ];
    let working = works.map(|work| Superblock { work, ..superblock() });
    for superblock in [superblock(), full].into_iter().chain(working) {
        assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
    }
}

/// What versions wrote that knew neither field.
#[test]
fn a_superblock_of_an_older_version_is_read() {
    let new = Superblock { work: Work::None, noted_since: 0, ..superblock() };
    assert_eq!(new.encode()[TAIL], [0; TAIL.end - TAIL.start]);
    let mut bytes = new.encode();
    // Kind 3, a repair, 4 rows of it done.
    (bytes[216], bytes[219], bytes[224]) = (3, 1, 4);
    let check = crc32c(&bytes[..CHECK.start]);
    bytes[CHECK].copy_from_slice(&check.to_le_bytes());
    let scrub = Some(ScrubProgress { repair: true, done_rows: 4 });
    assert_eq!(Superblock::decode(&bytes).unwrap(), Superblock { scrub, ..new });
}

#[test]
fn only_a_member_that_saw_the_notes_begin_lacks_no_more_than_they_name() {
    let member = MemberId([3; 16]);
    let newest = Superblock { noted_since: 30, ..superblock() };
    let slots = vec![Slot::Failed(member), Slot::Present(member)];
    let own = Superblock { slot: 1, member, generation: 30, slots, ..superblock() };
    assert!(own.lacks_only_noted(&newest));
    let others = [
        Superblock { generation: 29, ..own.clone() },
        Superblock { slot: 0, ..own.clone() },
        Superblock { slot: SPARE, ..own.clone() },
        Superblock { slots: vec![Slot::Missing, Slot::Rebuilding(member)], ..own.clone() },
        Superblock { slots: Vec::new(), ..own.clone() },
    ];
    others.iter().for_each(|own| assert!(!own.lacks_only_noted(&newest), "{own:?}"));
    assert!(!own.lacks_only_noted(&Superblock { noted_since: 0, ..newest }));
}

#[test]
fn two_generations_stand_at_two_places() {
    let next = Superblock { generation: 42, ..superblock() };
    assert_ne!(next.place(), superblock().place());
}

#[test]
fn a_flipped_bit_is_found() {
    let bytes = superblock().encode();
    for at in 0..SUPERBLOCK_BYTES {
        let mut hurt = bytes;
        hurt[at] ^= 2;
        assert_eq!(Superblock::decode(&hurt).unwrap_err().kind(), Kind::Corrupt, "{at}");
    }
    assert_eq!(Superblock::decode(&[0; 4096]).unwrap_err().kind(), Kind::Corrupt);
}

fn with(at: usize, value: &[u8]) -> Result<Superblock> {
    let mut bytes = superblock().encode();
    bytes[at..at + value.len()].copy_from_slice(value);
    let check = crc32c(&bytes[..CHECK.start]);
    bytes[CHECK].copy_from_slice(&check.to_le_bytes());
    Superblock::decode(&bytes)
}

#[test]
fn what_a_newer_version_wrote_is_refused_by_name() {
    for (at, value) in [(8, &[2, 0][..]), (56, &[1][..])] {
        let error = with(at, value).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.advice_text().is_some());
    }
}

#[test]
fn a_sound_checksum_does_not_make_sense() {
    let hostile: &[(usize, &[u8], &str)] = &[
        (11, &[9], "consistency policy"),
        (72, &[64], "name"),
        (136, &[200, 0], "slot"),
        (138, &[4, 0], "slot"),
        (152, &[1], "areas"),
        (168, &[0xff; 8], "areas"),
        (192, &[1], "areas"),
        (216, &[7], "work"),
    ];
    for (at, value, what) in hostile {
        let error = with(*at, value).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{at}");
        assert!(error.to_string().contains(what), "{at}: {error}");
    }
    for at in 8..SUPERBLOCK_BYTES - 4 {
        for value in [0, 1, 0x80, 0xff] {
            let _ = with(at, &[value]);
        }
    }
}
