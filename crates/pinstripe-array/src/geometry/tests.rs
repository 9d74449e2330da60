use super::*;

/// What the kernel's own `raid5_compute_sector`, `raid6_d0`, `raid6_idx_to_slot`, `calc_sectors`
/// and `__raid10_find_phys` (Linux 6.1) say, printed by a program around them. Of levels 4 to 6:
/// the level, layout and members, then as many rows, each naming the shards of member 0, 1, ..,
/// data with `^` and its power of 2 in Q. Of level 10: layout, members, chunks of a member, then
/// for each chunk of the array its copies as `member:chunk`.
const TABLES: &str = include_str!("layouts.txt");

fn geometry(level: Level, members: usize, layout: Layout) -> ArrayGeometry {
    ArrayGeometry::new(level, members, 4096, layout, 40 * 4096).unwrap()
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn stripes_are_those_of_the_kernel() {
    let mut lines = TABLES.lines().peekable();
    let mut arrays = 0;
    while let Some(head) = lines.next() {
        let level: Level = head.split(' ').next().unwrap().parse().unwrap();
        let [number, members, ..] = numbers(head)[..] else { panic!("{head}") };
        if level == Level::Raid10 {
            while lines.next_if(|line| !line.starts_with("raid")).is_some() {}
            continue;
        }
        let layout = Layout::from_number(level, number as u32).unwrap();
        let geometry = geometry(level, members as usize, layout);
        let rows: Vec<&str> = (0..members).map(|_| lines.next().unwrap()).collect();
        for index in 0..geometry.rows() {
            // Layouts that go round on one member fewer have another period than the table.
            let around = if (16..20).contains(&number) { members - 1 } else { members };
            let row = geometry.map(index);
            let cells: Vec<String> = (0..geometry.members())
                .map(|member| match row.shard_on(member).unwrap() {
                    shard if shard == row.data() => "P".to_owned(),
                    shard if shard > row.data() => "Q".to_owned(),
                    data if level == Level::Raid6 => format!("{data}^{}", row.coefficient(data)),
                    data => data.to_string(),
                })
                .collect();
            assert_eq!(cells.join(" "), rows[(index % around) as usize], "{head}, row {index}");
        }
        arrays += 1;
    }
    assert_eq!(arrays, 6 + 6 * 6 + 14 * 5);
}

#[test]
fn copies_are_those_of_the_kernel() {
    let mut lines = TABLES.lines().peekable();
    let mut arrays = 0;
    while let Some(head) = lines.next() {
        if !head.starts_with("raid10") {
            continue;
        }
        let [layout, members, chunks, rows] = numbers(head)[..] else { panic!("{head}") };
        let layout = Layout::from_number(Level::Raid10, layout as u32).unwrap();
        let bytes = chunks * 4096 + 512;
        let geometry =
            ArrayGeometry::new(Level::Raid10, members as usize, 4096, layout, bytes).unwrap();
        assert_eq!((geometry.rows(), geometry.capacity()), (rows, rows * 4096), "{head}");
        for index in 0..rows {
            let row = geometry.map(index);
            let places = (0..row.shards()).map(|shard| row.place(shard));
            let cells: Vec<String> =
                places.map(|at| format!("{}:{}", at.member, at.start / 4096)).collect();
            assert_eq!(cells.join(" "), lines.next().unwrap(), "{head}, chunk {index}");
        }
        arrays += 1;
    }
    assert_eq!(arrays, 32);
}

/// One array of every level and layout, with every number of members from 1 to 8 that it may have.
fn every_geometry() -> impl Iterator<Item = ArrayGeometry> {
    let copies = (1..=3).flat_map(|near| {
        (1..=3).flat_map(move |far| {
            [false, true].map(|offset| Layout::Copies(Copies { near, far, offset }))
        })
    });
    let layouts: Vec<Layout> = [Layout::Fixed]
        .into_iter()
        .chain(Rotation::all().map(Layout::Parity))
        .chain(copies)
        .collect();
    Level::ALL.into_iter().flat_map(move |level| {
        layouts.clone().into_iter().flat_map(move |layout| {
            (1..=8).filter_map(move |members| {
                ArrayGeometry::new(level, members, 4096, layout, 12 * 4096 + 1024).ok()
            })
        })
    })
}

#[test]
fn every_user_byte_has_its_place_and_every_place_its_byte() {
    let mut arrays = 0;
    for geometry in every_geometry() {
        arrays += 1;
        let mut used = std::collections::HashSet::new();
        for index in 0..geometry.rows() {
            let row = geometry.map(index);
            let members: MemberSet = (0..row.shards()).map(|shard| row.member(shard)).collect();
            assert_eq!(members.len(), row.shards(), "a member twice: {geometry:?}, {row:?}");
            for shard in 0..row.shards() {
                let place = row.place(shard);
                assert!(used.insert(place.member as u64 | place.start << 8), "{geometry:?}");
                assert!(place.start + u64::from(row.len()) <= geometry.member_bytes());
                assert_eq!(row.shard_on(place.member), Some(shard));
                let held = geometry.held(place.member, place.start + 77).unwrap();
                assert_eq!(held, Held { row: index, shard, offset: 77 }, "{geometry:?}");
            }
            for data in 0..row.data() {
                let spot = Spot { row: index, data, offset: row.len() - 1 };
                let byte = geometry.user_byte(spot);
                assert!(byte < geometry.capacity());
                assert_eq!(geometry.locate(byte), spot);
            }
            let mut coefficients: Vec<_> = (0..row.data()).map(|d| row.coefficient(d)).collect();
            coefficients.sort_unstable();
            coefficients.dedup();
            assert_eq!(coefficients.len(), row.data());
            assert!(coefficients.iter().all(|&power| power < row.coefficients()));
        }
        // What holds no shard says so: the counts agree, so nothing is held twice or in secret.
        let member_chunks = 0..geometry.member_bytes().div_ceil(4096);
        let held = (0..geometry.members())
            .flat_map(|member| member_chunks.clone().map(move |chunk| (member, chunk * 4096)))
            .filter(|&(member, offset)| geometry.held(member, offset).is_some());
        assert_eq!(held.count(), used.len(), "{geometry:?}");
    }
    // Near copies count twice: without far ones, offset means nothing.
    let near_or_far = 2 * (7 + 6) + (7 + 6) + (7 + 6);
    let both = 5 + 3 + 3 + 2 + 3 + 1;
    assert_eq!(arrays, 8 + 8 + 7 + 6 * 7 + 14 * 5 + near_or_far + both);
}

#[test]
fn spans_cut_at_chunks_and_nothing_else() {
    let geometry =
        ArrayGeometry::new(Level::Raid5, 3, 4096, Layout::default_of(Level::Raid5), 9 * 4096);
    let geometry = geometry.unwrap();
    let spans: Vec<_> = geometry.spans(4000..12_300).collect();
    let columns: Vec<_> = spans.iter().map(|s| (s.row, s.data, s.column.clone())).collect();
    assert_eq!(columns, [(0, 0, 4000..4096), (0, 1, 0..4096), (1, 0, 0..4096), (1, 1, 0..12)]);
    assert_eq!(spans[3].user, 12_288..12_300);
    assert_eq!(geometry.rows_of(&(4000..12_300)), 0..2);
    assert_eq!(geometry.rows_of(&(8192..8192)), 0..0);
    let end = geometry.capacity();
    let mut last = geometry.spans(end - 1..end + 5000);
    assert_eq!(last.next().unwrap().user, end - 1..end);
    assert_eq!(last.next(), None);
    assert_eq!(geometry.spans(end..end + 1).count(), 0);
}

#[test]
fn a_mirror_ends_where_its_members_end() {
    let mirror = ArrayGeometry::new(Level::Raid1, 2, 4096, Layout::Fixed, 3 * 4096 + 1024).unwrap();
    assert_eq!((mirror.capacity(), mirror.rows()), (3 * 4096 + 1024, 4));
    assert_eq!((mirror.map(2).len(), mirror.map(3).len()), (4096, 1024));
    assert_eq!(mirror.held(1, 3 * 4096 + 1023).unwrap().row, 3);
    assert_eq!(mirror.held(1, 3 * 4096 + 1024), None);
}

#[test]
fn members_may_go_while_all_can_be_read() {
    let survives = |geometry: &ArrayGeometry, gone: &[usize]| {
        geometry.survives(gone.iter().copied().collect())
    };
    let raid = |level, members| geometry(level, members, Layout::default_of(level));
    assert!(!survives(&raid(Level::Raid0, 3), &[1]) && survives(&raid(Level::Raid0, 3), &[]));
    assert!(
        survives(&raid(Level::Raid1, 3), &[0, 2]) && !survives(&raid(Level::Raid1, 3), &[0, 1, 2])
    );
    assert!(survives(&raid(Level::Raid5, 4), &[3]) && !survives(&raid(Level::Raid5, 4), &[0, 3]));
    assert!(
        survives(&raid(Level::Raid6, 5), &[3, 4]) && !survives(&raid(Level::Raid6, 5), &[0, 1, 2])
    );
    let ten = raid(Level::Raid10, 4);
    assert!(survives(&ten, &[0, 2]) && survives(&ten, &[1, 3]) && !survives(&ten, &[2, 3]));
    // Of an odd number every two neighbours share a chunk.
    assert!(!survives(&raid(Level::Raid10, 3), &[2, 0]));
    let far = geometry(Level::Raid10, 4, Layout::parse(Level::Raid10, "f2").unwrap());
    assert!(survives(&far, &[0, 2]) && !survives(&far, &[3, 0]));
}

#[test]
fn what_cannot_be_an_array_is_refused_with_advice() {
    let fixed = Layout::Fixed;
    let ls = Layout::Parity(Rotation::LeftSymmetric);
    let copies = |near, far, offset| Layout::Copies(Copies { near, far, offset });
    for (level, members, chunk, layout, bytes) in [
        (Level::Raid5, 1, 65536, ls, 1 << 30),
        (Level::Raid6, 3, 65536, ls, 1 << 30),
        (Level::Raid0, 65, 65536, fixed, 1 << 30),
        (Level::Raid0, 0, 65536, fixed, 1 << 30),
        (Level::Raid5, 3, 2048, ls, 1 << 30),
        (Level::Raid5, 3, 12288, ls, 1 << 30),
        (Level::Raid5, 3, 128 << 20, ls, 1 << 30),
        (Level::Raid5, 3, 0, ls, 1 << 30),
        (Level::Raid5, 3, 65536, fixed, 1 << 30),
        (Level::Raid5, 3, 65536, Layout::Parity(Rotation::DdfNContinue), 1 << 30),
        (Level::Raid0, 3, 65536, ls, 1 << 30),
        (Level::Raid5, 3, 65536, ls, 65535),
        (Level::Raid5, 3, 65536, ls, u64::MAX),
        (Level::Raid5, 30, 65536, ls, 1 << 62),
        (Level::Raid10, 2, 65536, copies(3, 1, false), 1 << 30),
        (Level::Raid10, 4, 65536, copies(1, 1, false), 1 << 30),
        (Level::Raid10, 4, 65536, copies(0, 2, false), 1 << 30),
        (Level::Raid10, 5, 65536, copies(2, 2, true), 1 << 30),
        (Level::Raid10, 4, 65536, copies(1, 3, false), 65536),
        (Level::Raid10, 64, 65536, copies(1, 2, false), i64::MAX as u64),
    ] {
        let error = ArrayGeometry::new(level, members, chunk, layout, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.expected_found().is_some() || error.advice_text().is_some(), "{error}");
    }
}

#[test]
fn words_and_numbers_are_those_of_mdadm() {
    for (level, words, number) in [
        (Level::Raid5, "ls left-symmetric default", 2),
        (Level::Raid5, "la left-asymmetric", 0),
        (Level::Raid5, "ra right-asymmetric", 1),
        (Level::Raid5, "rs right-symmetric", 3),
        (Level::Raid6, "parity-first", 4),
        (Level::Raid5, "parity-last", 5),
        (Level::Raid6, "ddf-zero-restart", 8),
        (Level::Raid6, "ddf-N-restart", 9),
        (Level::Raid6, "ddf-N-continue", 10),
        (Level::Raid6, "left-asymmetric-6", 16),
        (Level::Raid6, "parity-first-6", 20),
        (Level::Raid10, "n2 default", 0x102),
        (Level::Raid10, "f2", 0x201),
        (Level::Raid10, "o3", 0x1_0301),
        (Level::Raid10, "n2f2 f2n2", 0x202),
    ] {
        for word in words.split(' ') {
            let layout = Layout::parse(level, word).unwrap();
            assert_eq!(layout.number(), number, "{word}");
            assert_eq!(Layout::from_number(level, number).unwrap(), layout);
            assert_eq!(Layout::parse(level, &layout.to_string()).unwrap(), layout);
        }
    }
    for (level, word) in [
        (Level::Raid5, "n2"),
        (Level::Raid5, "ddf-N-continue"),
        (Level::Raid0, "ls"),
        (Level::Raid10, "ls"),
        (Level::Raid10, "n"),
        (Level::Raid10, "n0"),
        (Level::Raid10, "n300"),
        (Level::Raid10, "n2n2"),
        (Level::Raid10, "f2o2"),
        (Level::Raid10, "é2"),
        (Level::Raid10, "nß"),
        (Level::Raid10, ""),
    ] {
        assert_eq!(Layout::parse(level, word).unwrap_err().kind(), Kind::Usage, "{level} {word}");
    }
    for (level, number) in [
        (Level::Raid5, 6),
        (Level::Raid5, 8),
        (Level::Raid6, 7),
        (Level::Raid10, 2),
        (Level::Raid10, 0x4_0201),
    ] {
        assert_eq!(Layout::from_number(level, number).unwrap_err().kind(), Kind::Unsupported);
    }
    assert_eq!(Layout::from_number(Level::Raid4, 5).unwrap(), Layout::Fixed);
    for level in Level::ALL {
        assert_eq!(Level::from_number(level.number()).unwrap(), level);
        assert_eq!(level.to_string().parse::<Level>().unwrap(), level);
        assert_eq!(level.number().to_string().parse::<Level>().unwrap(), level);
    }
    assert_eq!("stripe".parse::<Level>().unwrap(), Level::Raid0);
    assert_eq!(Level::from_number(-1).unwrap_err().kind(), Kind::Unsupported);
    assert!("raid2".parse::<Level>().is_err());
}
