//! The one suite that every device passes: each rule of the seam, said as a test.

use super::{Device, Kind, Space, Sparse};

/// Makes a device for one check: empty, or a disk of at least [`LEN`] bytes.
pub type Fresh<'a> = &'a dyn Fn() -> Box<dyn Device>;

/// Bytes that the checks use.
pub const LEN: usize = 1 << 20;

/// Runs every check, each on a fresh device.
pub fn run(fresh: Fresh<'_>) {
    run_bounds(fresh);
    for check in [
        what_is_written_is_read_back,
        a_later_write_wins,
        only_what_is_written_changes,
        what_grows_grows_with_zeros,
        the_length_can_be_set,
        discard_leaves_the_rest,
        synced_bytes_stay,
        neighbours_are_written_at_the_same_time,
        a_long_write_is_its_parts_joined,
    ] {
        check(fresh().as_ref());
    }
}

/// Runs the checks that need no bytes kept.
pub(crate) fn run_bounds(fresh: Fresh<'_>) {
    for check in [
        reads_are_whole_or_fail,
        nothing_is_moved_anywhere,
        far_offsets_are_refused,
        a_fixed_length_stays,
        it_says_what_it_is,
    ] {
        check(fresh().as_ref());
    }
}

/// Runs the checks of devices with holes.
pub fn run_sparse(fresh: &dyn Fn() -> Box<dyn Sparse>) {
    for check in [runs_cover_the_range, zeros_are_made_where_they_are_wanted] {
        check(fresh().as_ref());
    }
}

fn runs_cover_the_range(device: &dyn Sparse) {
    let len = sized(device, LEN);
    device.write_at(100_000, &noise(1, 300_000)).unwrap();
    for (start, end) in [(0, LEN as u64), (0, 1), (99_999, 100_001), (150_000, 500_000)] {
        let mut at = start;
        while at < end {
            let run = device.run(at..end).unwrap();
            assert!(run.bytes > 0 && run.bytes <= end - at, "{run:?} at {at} of {end}");
            let found = read(device, at, run.bytes as usize);
            assert!(!run.is_hole || found.iter().all(|byte| *byte == 0), "{run:?} at {at}");
            at += run.bytes;
        }
    }
    for range in [len..len + 1, len - 1..len + 1, 5..5, u64::MAX - 1..u64::MAX] {
        assert_eq!(device.run(range.clone()).unwrap_err().kind(), Kind::Corrupt, "{range:?}");
    }
}

fn zeros_are_made_where_they_are_wanted(device: &dyn Sparse) {
    let len = sized(device, LEN);
    let mut wanted = noise(1, LEN);
    device.write_at(0, &wanted).unwrap();
    for (range, space) in [
        (4096..12_288, Space::Free),
        (20_001..40_000, Space::Free),
        (50_001..90_000, Space::Keep),
        (100_000..100_000, Space::Keep),
        (131_072..655_360, Space::Keep),
    ] {
        match device.zero(range.clone(), space) {
            Ok(()) => wanted[range.start as usize..range.end as usize].fill(0),
            Err(error) => assert_eq!(error.kind(), Kind::Unsupported, "{range:?}: {error}"),
        }
        assert!(read(device, 0, LEN) == wanted, "{range:?}");
    }
    for range in [len - 1..len + 1, u64::MAX - 1..u64::MAX] {
        let error = device.zero(range.clone(), Space::Free).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{range:?}");
    }
    assert_eq!(device.len().unwrap(), len);
}

/// Bytes that differ from one place to the next and from one seed to the next.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32 ^ (at as u32 >> 8)).wrapping_mul(seed * 2 + 1) as u8;
    (0..len).map(byte).collect()
}

/// Sees to it that the device has `len` bytes, or more where it cannot be changed.
fn sized(device: &dyn Device, len: usize) -> u64 {
    if !device.caps().is_block_device {
        device.set_len(len as u64).unwrap();
    }
    let found = device.len().unwrap();
    assert!(found >= len as u64, "{found} bytes are too few for these checks");
    found
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}

/// Offsets and lengths that begin and end on pages, sectors and neither.
const RUNS: [(u64, usize); 9] = [
    (0, 4096),
    (0, 1),
    (4096, 65536),
    (512, 1024),
    (4095, 2),
    (8191, 12_290),
    (100_000, 0),
    (100_001, 200_003),
    (0, LEN),
];

fn what_is_written_is_read_back(device: &dyn Device) {
    sized(device, LEN);
    for (seed, (offset, len)) in RUNS.into_iter().enumerate() {
        let bytes = noise(seed as u32, len);
        device.write_at(offset, &bytes).unwrap();
        assert!(read(device, offset, len) == bytes, "{len} bytes at {offset}");
        // From memory that begins anywhere.
        let mut shifted = vec![0; len + 3];
        device.read_at(offset, &mut shifted[3..]).unwrap();
        assert!(shifted[3..] == bytes, "{len} bytes at {offset}, shifted");
        shifted[3..].copy_from_slice(&bytes);
        device.write_at(offset, &shifted[3..]).unwrap();
        assert!(read(device, offset, len) == bytes, "{len} bytes at {offset}, from shifted");
    }
}

fn a_later_write_wins(device: &dyn Device) {
    sized(device, LEN);
    device.write_at(1000, &noise(1, 20_000)).unwrap();
    device.write_at(5000, &noise(2, 4097)).unwrap();
    device.write_at(4096, &noise(3, 4096)).unwrap();
    let mut wanted = noise(1, 20_000);
    wanted[4000..8097].copy_from_slice(&noise(2, 4097));
    wanted[3096..7192].copy_from_slice(&noise(3, 4096));
    assert!(read(device, 1000, 20_000) == wanted);
}

fn only_what_is_written_changes(device: &dyn Device) {
    sized(device, LEN);
    device.write_at(0, &noise(1, LEN)).unwrap();
    let mut wanted = noise(1, LEN);
    for (seed, (offset, len)) in RUNS.into_iter().filter(|run| run.1 < LEN).enumerate() {
        let bytes = noise(seed as u32 + 2, len);
        device.write_at(offset, &bytes).unwrap();
        wanted[offset as usize..offset as usize + len].copy_from_slice(&bytes);
        assert!(read(device, 0, LEN) == wanted, "{len} bytes at {offset}");
    }
}

fn what_grows_grows_with_zeros(device: &dyn Device) {
    if device.caps().is_block_device {
        return;
    }
    assert_eq!(device.len().unwrap(), 0);
    let mut len = 0;
    for (offset, bytes) in [(0, 10), (5, 3), (10, 4096), (20_001, 1), (1 << 19, 8192)] {
        device.write_at(offset, &noise(7, bytes)).unwrap();
        len = len.max(offset + bytes as u64);
        assert_eq!(device.len().unwrap(), len);
    }
    assert_eq!(read(device, 4106, 15_895), [0; 15_895]);
    assert_eq!(read(device, 20_001, 1), noise(7, 1));
    assert_eq!(read(device, 20_002, 9000), [0; 9000]);
}

fn the_length_can_be_set(device: &dyn Device) {
    if device.caps().is_block_device {
        return;
    }
    device.write_at(0, &noise(3, 10_000)).unwrap();
    for (len, kept) in [(10_000, 10_000), (5001, 5001), (20_000, 5001), (0, 0), (4097, 0)] {
        device.set_len(len).unwrap();
        assert_eq!(device.len().unwrap(), len);
        let found = read(device, 0, len as usize);
        assert!(found[..kept] == noise(3, kept) && found[kept..].iter().all(|it| *it == 0));
    }
}

fn discard_leaves_the_rest(device: &dyn Device) {
    let len = sized(device, LEN);
    device.write_at(0, &noise(1, LEN)).unwrap();
    #[allow(clippy::reversed_empty_ranges)] // What bad arithmetic may ask for.
    for range in [0..0, 4096..12_288, 20_001..40_000, 9000..5, len..len + 9, len + 1..u64::MAX] {
        match device.discard(range.clone()) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), Kind::Unsupported, "{range:?}: {error}"),
        }
    }
    assert_eq!(device.len().unwrap(), len);
    let (found, before) = (read(device, 0, LEN), noise(1, LEN));
    for (at, (found, before)) in found.into_iter().zip(before).enumerate() {
        let may_be_zero = (4096..12_288).contains(&at) || (20_001..40_000).contains(&at);
        assert!(found == before || may_be_zero && found == 0, "at {at}");
    }
    device.write_at(5000, &noise(2, 30_000)).unwrap();
    assert!(read(device, 5000, 30_000) == noise(2, 30_000));
}

fn synced_bytes_stay(device: &dyn Device) {
    sized(device, LEN);
    device.sync().unwrap();
    device.write_at(77, &noise(1, 5000)).unwrap();
    device.sync().unwrap();
    device.sync().unwrap();
    assert!(read(device, 77, 5000) == noise(1, 5000));
}

/// Eight threads write turn by turn, in pieces that share pages and sectors.
fn neighbours_are_written_at_the_same_time(device: &dyn Device) {
    const PIECES: [usize; 3] = [1001, 6007, 12_288];
    sized(device, LEN);
    for piece in PIECES {
        // Five for each thread: under some policies each waits for the disk.
        let wanted = noise(piece as u32, 40 * piece);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let mine = wanted.chunks(piece).enumerate().filter(move |(at, _)| at % 8 == thread);
                scope.spawn(move || {
                    for (at, bytes) in mine {
                        device.write_at((at * piece) as u64, bytes).unwrap();
                    }
                });
            }
        });
        assert!(read(device, 0, wanted.len()) == wanted, "in pieces of {piece}");
    }
}

/// Aligned or not, in the middle of what was written otherwise, and read at once.
fn a_long_write_is_its_parts_joined(device: &dyn Device) {
    sized(device, LEN);
    let mut wanted = noise(2, LEN);
    device.write_at(0, &wanted).unwrap();
    let mut pages = crate::device::AlignedBuf::new(300_000);
    pages.extend_from_slice(&noise(3, 300_000));
    for (number, (offset, lens)) in [
        (0, vec![65_536, 65_536]),
        (8192, vec![4096; 40]),
        (200_704, vec![0, 131_072, 0, 4096, 0]),
        (409_600, vec![512, 65_536, 3]),
        (500_001, vec![65_536, 65_536]),
        (600_000, vec![]),
        (700_416, vec![0]),
    ]
    .into_iter()
    .enumerate()
    {
        // Every other time from memory that no disk takes as it is.
        let mut from = number % 2;
        let cut = |len: &usize| {
            from += len;
            &pages[from - len..from]
        };
        let parts: Vec<&[u8]> = lens.iter().map(cut).collect();
        let joined = parts.concat();
        wanted[offset..offset + joined.len()].copy_from_slice(&joined);
        device.write_long_at(offset as u64, &parts).unwrap();
        assert!(read(device, 0, LEN) == wanted, "{lens:?} at {offset}");
        // Over its beginning, so that both ways of writing follow each other.
        wanted[offset..offset + 100].fill(7);
        device.write_at(offset as u64, &[7; 100]).unwrap();
        assert!(read(device, 0, LEN) == wanted, "{lens:?} at {offset}, written over");
    }
    device.sync().unwrap();
    assert!(read(device, 0, LEN) == wanted);
}

fn reads_are_whole_or_fail(device: &dyn Device) {
    let len = sized(device, LEN);
    let mut buf = [0; 4];
    device.read_at(len - 4, &mut buf).unwrap();
    for offset in [len - 3, len, len + 1, 1 << 62, i64::MAX as u64, u64::MAX - 3, u64::MAX] {
        let error = device.read_at(offset, &mut buf).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "offset {offset}");
        assert!(error.to_string().contains(&format!("found {len}")), "{error}");
        assert_eq!(error.place(), Some(device.place()));
    }
    let mut buf = vec![0; LEN];
    let error = device.read_at(len - 8192, &mut buf).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

fn nothing_is_moved_anywhere(device: &dyn Device) {
    let len = sized(device, LEN);
    for offset in [0, 1, len, len + 1, u64::MAX] {
        device.read_at(offset, &mut []).unwrap();
        device.write_at(offset, &[]).unwrap();
    }
    assert_eq!(device.len().unwrap(), len);
}

fn far_offsets_are_refused(device: &dyn Device) {
    let len = sized(device, LEN);
    for offset in [i64::MAX as u64 - 2, u64::MAX - 3, u64::MAX] {
        let error = device.write_at(offset, &[0; 4]).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "offset {offset}: {error}");
    }
    assert_eq!(device.len().unwrap(), len);
}

fn a_fixed_length_stays(device: &dyn Device) {
    if !device.caps().is_block_device {
        return;
    }
    let len = device.len().unwrap();
    device.set_len(len).unwrap();
    for other in [0, len - 1, len + 1] {
        assert_eq!(device.set_len(other).unwrap_err().kind(), Kind::Unsupported);
    }
    assert_eq!(device.write_at(len - 1, &[0; 2]).unwrap_err().kind(), Kind::NoSpace);
    assert_eq!(device.len().unwrap(), len);
}

fn it_says_what_it_is(device: &dyn Device) {
    let caps = device.caps();
    assert!(caps.align_bytes.is_power_of_two() && caps.align_bytes >= 512, "{caps:?}");
    assert_eq!(caps, device.caps());
    assert!(!device.place().as_os_str().is_empty());
}
