//! Every kind of source against the bytes that it must give, handed out to one reader and to many.

// A list of one range is what is meant.
#![allow(clippy::single_range_in_vec_init)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const UNIT: u64 = 64 << 10;

fn spec(text: &str) -> FakeSpec {
    text.parse().unwrap()
}

/// The bytes of a generator, from one call.
fn made(text: &str) -> Vec<u8> {
    let fake = Fake::new(spec(text)).unwrap();
    let mut bytes = vec![1; fake.spec().bytes as usize];
    fake.fill(0, &mut bytes);
    bytes
}

fn open_path(path: &Path) -> Box<dyn ByteSource> {
    open(path.as_os_str(), File::open("/dev/null").unwrap().as_fd()).unwrap()
}

fn refused(path: &Path) -> Error {
    let null = File::open("/dev/null").unwrap();
    open(path.as_os_str(), null.as_fd()).map(drop).unwrap_err()
}

/// A reading end from which these bytes come in pieces, and then the end.
fn stream(bytes: Vec<u8>) -> OwnedFd {
    let (reader, mut writer) = std::io::pipe().unwrap();
    thread::spawn(move || {
        for piece in bytes.chunks(9999) {
            // The reader may have gone.
            if writer.write_all(piece).is_err() {
                break;
            }
        }
    });
    reader.into()
}

fn pipe(bytes: Vec<u8>) -> Box<dyn ByteSource> {
    by_kind(stream(bytes), Path::new("pipe")).unwrap()
}

/// The pieces that `readers` readers get, by place; `None` is a hole.
fn handed_out(units: &Units, readers: usize) -> BTreeMap<u64, (u64, Option<Vec<u8>>)> {
    let read = || {
        let mut pieces = Vec::new();
        let mut buffer = vec![0xaa; UNIT as usize];
        while let Some(piece) = units.next(&mut buffer).unwrap() {
            let bytes = (!piece.is_hole).then(|| buffer[..piece.bytes as usize].to_vec());
            pieces.push((piece.offset, (piece.bytes, bytes)));
        }
        assert_eq!(units.next(&mut buffer).unwrap(), None, "the end is the end");
        pieces
    };
    let pieces: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    let count = pieces.len();
    let pieces: BTreeMap<_, _> = pieces.into_iter().collect();
    assert_eq!(pieces.len(), count, "no place is handed out twice");
    pieces
}

/// Panics unless the pieces, with what was done, are the content and keep to units.
fn assert_covers(
    pieces: &BTreeMap<u64, (u64, Option<Vec<u8>>)>,
    done: &[Range<u64>],
    content: &[u8],
) {
    let mut at = 0;
    let mut done = done.iter().peekable();
    for (&offset, (bytes, read)) in pieces {
        while done.peek().is_some_and(|range| range.start == at) {
            at = done.next().unwrap().end;
        }
        assert_eq!(offset, at, "pieces follow each other");
        assert!(*bytes > 0 && offset.is_multiple_of(UNIT));
        at += bytes;
        let wanted = &content[offset as usize..at as usize];
        match read {
            Some(read) => assert!(read == wanted && *bytes <= UNIT, "bytes {offset} to {at}"),
            None => assert!(wanted.iter().all(|byte| *byte == 0), "bytes {offset} to {at}"),
        }
        assert!(at.is_multiple_of(UNIT) || at == content.len() as u64);
    }
    at = done.last().map_or(at, |range| at.max(range.end));
    assert_eq!(at, content.len() as u64);
}

fn units(source: Box<dyn ByteSource>, done: &[Range<u64>]) -> Units {
    Units::new(source, UNIT, done.to_vec()).unwrap()
}

#[test]
fn every_kind_is_handed_out_whole_to_any_number_of_readers() {
    let here = TempDir::new().unwrap();
    for bytes in [0, 1, UNIT - 1, UNIT, UNIT + 1, 9 * UNIT + 4097] {
        let text = format!("fake:{bytes},seed=3");
        let content = made(&text);
        let path = here.path().join("file");
        fs::write(&path, &content).unwrap();
        for readers in [1, 4] {
            let sources = [open_path(Path::new(&text)), open_path(&path), pipe(content.clone())];
            for source in sources {
                assert!(source.length().is_none_or(|length| length == bytes));
                assert_covers(&handed_out(&units(source, &[]), readers), &[], &content);
            }
        }
    }
}

#[test]
fn what_is_done_is_left_out() {
    let here = TempDir::new().unwrap();
    let path = here.path().join("file");
    let text = format!("fake:{}", 10 * UNIT + 77);
    let content = made(&text);
    fs::write(&path, &content).unwrap();
    let end = content.len() as u64;
    let cases: [&[Range<u64>]; 7] = [
        &[0..UNIT],
        &[0..UNIT, UNIT..3 * UNIT],
        &[2 * UNIT..3 * UNIT, 5 * UNIT..9 * UNIT],
        &[9 * UNIT..10 * UNIT],
        &[10 * UNIT..end],
        &[0..UNIT, 8 * UNIT..end],
        &[0..end],
    ];
    for done in cases {
        for source in [open_path(Path::new(&text)), open_path(&path), pipe(content.clone())] {
            assert_covers(&handed_out(&units(source, done), 3), done, &content);
        }
    }
}

#[test]
fn ranges_that_cannot_be_done_are_refused() {
    let bytes = 3 * UNIT + 5;
    let cases: [&[Range<u64>]; 7] = [
        &[1..UNIT],
        &[0..UNIT + 1],
        &[0..UNIT - 1, UNIT..2 * UNIT],
        &[UNIT..2 * UNIT, 0..UNIT],
        &[0..2 * UNIT, UNIT..3 * UNIT],
        &[UNIT..UNIT],
        &[0..4 * UNIT],
    ];
    for done in cases {
        let source = Box::new(Fake::new(FakeSpec::new(bytes)).unwrap());
        let error = Units::new(source, UNIT, done.to_vec()).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{done:?}");
    }
    let source = Box::new(Fake::new(FakeSpec::new(bytes)).unwrap());
    assert_eq!(Units::new(source, 0, Vec::new()).map(drop).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn another_stream_than_before_is_noticed() {
    let mut buffer = vec![0; UNIT as usize];
    let cases = [(UNIT, 0..2 * UNIT), (3 * UNIT, 0..2 * UNIT + 5), (UNIT + 9, 0..UNIT + 5)];
    for (bytes, done) in cases {
        let units = units(pipe(vec![1; bytes as usize]), &[done]);
        assert_eq!(units.next(&mut buffer).unwrap_err().kind(), Kind::Changed);
    }
}

/// A file of `units` units with data where `data` says, or `None` where holes are not told.
fn sparse(here: &TempDir, bytes: u64, data: &[Range<u64>]) -> Option<(PathBuf, Vec<u8>)> {
    let path = here.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(bytes).unwrap();
    let mut content = vec![0; bytes as usize];
    for range in data {
        let part = &mut content[range.start as usize..range.end as usize];
        part.fill(7);
        file.write_all_at(part, range.start).unwrap();
    }
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
        Ok(0) if data.first().is_none_or(|range| range.start > 0) => None,
        _ => Some((path, content)),
    }
}

#[test]
fn holes_are_handed_out_unread_in_whole_units() {
    let here = TempDir::new().unwrap();
    let end = 40 * UNIT + 100;
    // A unit with one page of data, data over a unit's edge, and a long hole that ends the file.
    let data = [3 * UNIT + 4096..3 * UNIT + 8192, 10 * UNIT - 4096..10 * UNIT + 4096];
    let Some((path, content)) = sparse(&here, end, &data) else {
        eprintln!("skipped: this file system tells no holes");
        return;
    };
    let pieces = handed_out(&units(open_path(&path), &[]), 1);
    let shape: Vec<_> =
        pieces.iter().map(|(offset, (bytes, read))| (*offset, *bytes, read.is_none())).collect();
    assert_eq!(
        shape,
        [
            (0, 3 * UNIT, true),
            (3 * UNIT, UNIT, false),
            (4 * UNIT, 5 * UNIT, true),
            (9 * UNIT, UNIT, false),
            (10 * UNIT, UNIT, false),
            (11 * UNIT, end - 11 * UNIT, true),
        ]
    );
    assert_covers(&pieces, &[], &content);
    let done = [UNIT..2 * UNIT, 9 * UNIT..10 * UNIT, 30 * UNIT..31 * UNIT];
    assert_covers(&handed_out(&units(open_path(&path), &done), 3), &done, &content);
    // Nothing but a hole.
    let (path, content) = sparse(&here, 5 * UNIT + 1, &[]).unwrap();
    let pieces = handed_out(&units(open_path(&path), &[]), 2);
    assert_eq!(pieces.len(), 1);
    assert_covers(&pieces, &[], &content);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(pinstripe_testing::cases(12)))]
    #[test]
    fn any_holes_and_any_done_units_come_out_right(
        bytes in 0..20 * UNIT,
        data in prop::collection::vec((0..80u64, 1..9u64), 0..6),
        is_done in prop::collection::vec(any::<bool>(), 20),
    ) {
        let here = TempDir::new().unwrap();
        let page = UNIT / 4;
        let data: Vec<_> = data.into_iter()
            .map(|(at, pages)| (at * page).min(bytes)..((at + pages) * page).min(bytes))
            .collect();
        let Some((path, content)) = sparse(&here, bytes, &data) else { return Ok(()) };
        let done: Vec<_> = is_done.iter().zip(0..).filter(|(is_done, _)| **is_done)
            .map(|(_, unit)| unit * UNIT..((unit + 1) * UNIT).min(bytes))
            .filter(|range| !range.is_empty())
            .collect();
        assert_covers(&handed_out(&units(open_path(&path), &done), 2), &done, &content);
    }
}

#[test]
fn a_file_that_shrinks_says_where_and_one_that_grows_keeps_its_length() {
    let here = TempDir::new().unwrap();
    let path = here.path().join("file");
    fs::write(&path, vec![1; 4 * UNIT as usize]).unwrap();
    let units = units(open_path(&path), &[]);
    let mut buffer = vec![0; UNIT as usize];
    assert!(units.next(&mut buffer).unwrap().is_some());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(UNIT + 100).unwrap();
    let error = units.next(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), Kind::Changed);
    let facts = error.expected_found().unwrap();
    assert_eq!(facts, ("262144 bytes", "the end of the source at byte 65636"), "{error}");

    let source = open_path(&path);
    file.set_len(2 * UNIT).unwrap();
    assert_eq!(source.read_at(0, &mut vec![0; 2 * UNIT as usize]).unwrap() as u64, UNIT + 100);
    assert_eq!(source.read_at(UNIT + 100, &mut buffer).unwrap(), 0);
    assert_eq!(source.read_at(u64::MAX, &mut buffer).unwrap(), 0);
}

#[test]
fn a_sparse_file_that_shrinks_is_not_taken_for_a_hole() {
    let here = TempDir::new().unwrap();
    let Some((path, _)) = sparse(&here, 9 * UNIT, &[8 * UNIT..9 * UNIT]) else {
        eprintln!("skipped: this file system tells no holes");
        return;
    };
    let units = units(open_path(&path), &[]);
    File::options().write(true).open(&path).unwrap().set_len(3 * UNIT).unwrap();
    let mut buffer = vec![0; UNIT as usize];
    let error = loop {
        match units.next(&mut buffer) {
            Ok(piece) => assert!(piece.is_some_and(|piece| !piece.is_hole), "{piece:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Changed, "{error}");
}

#[test]
fn a_changed_source_has_another_identity() {
    let here = TempDir::new().unwrap();
    let path = here.path().join("file");
    fs::write(&path, "one").unwrap();
    let first = open_path(&path).identity();
    assert!(first.is_some());
    assert_eq!(open_path(&path).identity(), first);
    fs::write(&path, "longer").unwrap();
    assert_ne!(open_path(&path).identity(), first);
    let fake = |text: &str| Fake::new(spec(text)).unwrap().identity().unwrap();
    assert_eq!(fake("fake:1M"), fake("fake:1024K,seed=0,block=4K"));
    assert_ne!(fake("fake:1M"), fake("fake:1M,seed=1"));
    assert_eq!(pipe(Vec::new()).identity(), None);
}

#[test]
fn a_stream_is_read_from_front_to_back_only() {
    let source = pipe(vec![5; 100]);
    let mut buffer = [0; 10];
    assert_eq!(source.read_at(0, &mut buffer).unwrap(), 10);
    assert_eq!(source.read_at(0, &mut buffer).unwrap_err().kind(), Kind::Unsupported);
    assert_eq!(source.read_at(10, &mut [0; 100]).unwrap(), 90);
    assert_eq!(source.read_at(100, &mut buffer).unwrap(), 0);
}

#[test]
fn a_stream_whose_descriptor_does_not_wait_is_waited_for() {
    let fd = stream(made("fake:1M"));
    rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK).unwrap();
    let source = by_kind(fd, Path::new("pipe")).unwrap();
    assert_covers(&handed_out(&units(source, &[]), 2), &[], &made("fake:1M"));
}

#[test]
fn standard_input_is_read_from_where_it_stands() {
    let here = TempDir::new().unwrap();
    let path = here.path().join("file");
    fs::write(&path, "0123456789").unwrap();
    let file = File::open(&path).unwrap();
    let source = open(OsStr::new("-"), file.as_fd()).unwrap();
    assert_eq!((source.length(), source.place()), (Some(10), Path::new("standard input")));
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(4)).unwrap();
    let source = open(OsStr::new("-"), file.as_fd()).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(source.length(), None);
    assert_eq!(source.read_at(0, &mut buffer).unwrap(), 6);
    assert_eq!(&buffer[..6], b"456789");
}

#[test]
fn what_is_named_is_opened_as_what_it_is() {
    let here = TempDir::new().unwrap();
    let at = |name: &str| here.path().join(name);
    fs::write(at("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    assert_eq!(open_path(&at("link")).length(), Some(1));
    // A file with bytes and without a size is a stream.
    let version = open_path(Path::new("/proc/version"));
    assert_eq!(version.length(), None);
    assert!(version.read_at(0, &mut [0; 4096]).unwrap() > 0);
    let mut zeros = [1; 100];
    assert_eq!(open_path(Path::new("/dev/zero")).read_at(0, &mut zeros).unwrap(), 100);
    assert_eq!(zeros, [0; 100]);

    assert_eq!(refused(here.path()).kind(), Kind::Usage);
    let _listening = UnixListener::bind(at("socket")).unwrap();
    assert_eq!(refused(&at("socket")).kind(), Kind::Usage);
    assert_eq!(refused(&at("none")).kind(), Kind::NotFound);
    assert_eq!(refused(Path::new("fake:")).kind(), Kind::Usage);
    assert_eq!(refused(Path::new("./fake:1M")).kind(), Kind::NotFound);
}

#[test]
fn specs_are_read_as_they_are_written() {
    for text in ["fake:0", "fake:10G,zero=12.5%", "fake:1,entropy=0.333,seed=18446744073709551615"]
    {
        assert_eq!(spec(&spec(text).to_string()), spec(text), "{text}");
    }
    let told = spec("fake:1T,block=16M,seed=7,zero=40%,entropy=0.5");
    assert_eq!(told.to_string(), "fake:1099511627776,block=16777216,seed=7,zero=0.4,entropy=0.5");
    for (text, wrong) in [
        ("1G", "fake:"),
        ("fake:", "size"),
        ("fake:1X", "1X"),
        ("fake:1G,", "key=value"),
        ("fake:1G,zero", "'zero'"),
        ("fake:1G,zero=101%", "zero: '101%'"),
        ("fake:1G,zero=1.5", "zero: '1.5'"),
        ("fake:1G,entropy=NaN", "entropy: 'NaN'"),
        ("fake:1G,entropy=-0.1", "entropy: '-0.1'"),
        ("fake:1G,seed=x", "seed: 'x'"),
        ("fake:1G,block=3000", "block:"),
        ("fake:1G,block=256", "block:"),
        ("fake:1G,block=32M", "block:"),
        ("fake:1G,seed=1,seed=2", "seed twice"),
        ("fake:1G,colour=red", "colour:"),
    ] {
        let error = text.parse::<FakeSpec>().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.what().contains(wrong), "{text}: {error}");
        assert!(error.advice_text().is_some());
    }
}

#[test]
fn made_up_bytes_never_change() {
    for (text, hash) in [
        ("fake:1M", "fbad14bb192bd0f35ce41eb08585b8a1644cff401603600665ba9a64c87bffdd"),
        (
            "fake:1M,block=64K,seed=7,zero=40%,entropy=0.5",
            "1bc3d3c4b3be961153a55c8ee96f6e15b15b3baafe4267c77201882a7277fa9d",
        ),
        (
            "fake:1M,block=512,seed=1,zero=10%,entropy=0",
            "5c827f4c3c6592156378231f4633d73dd5857530555f1ad1b5f31f41a3202415",
        ),
    ] {
        assert_eq!(blake3::hash(&made(text)).to_hex().as_str(), hash, "{text}");
    }
}

#[test]
fn blocks_are_zeros_or_all_different_in_the_shares_asked_for() {
    for (text, block, zero) in [
        ("fake:8M", 4096, 0.0..=0.0),
        ("fake:8M,zero=40%", 4096, 0.37..=0.43),
        ("fake:8M,zero=1", 4096, 1.0..=1.0),
        ("fake:8M,block=512,zero=10%,entropy=0.2", 512, 0.08..=0.12),
        ("fake:64M,block=64K,zero=50%", 65_536, 0.44..=0.56),
    ] {
        let bytes = made(text);
        let mut blocks: Vec<_> = bytes.chunks(block).collect();
        let count = blocks.len();
        let is_data = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
        blocks.retain(is_data);
        let share = (count - blocks.len()) as f64 / count as f64;
        assert!(zero.contains(&share), "{text}: {share}");
        let data = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), data, "{text}");
    }
}

proptest! {
    #[test]
    fn any_range_is_the_same_part_of_the_whole(
        at in 0..1usize << 20,
        bytes in 0..40_000usize,
        which in 0..4usize,
    ) {
        /// Each whole, and another source of the same recipe.
        static MADE: LazyLock<Vec<(Vec<u8>, Fake)>> = LazyLock::new(|| {
            let recipes = [
                "fake:1M,block=512,zero=10%",
                "fake:1M,block=4K,entropy=0.3",
                "fake:1M,block=64K,entropy=0.77,zero=20%,seed=5",
                "fake:1M,block=16M,entropy=0.01",
            ];
            recipes.map(|text| (made(text), Fake::new(spec(text)).unwrap())).into()
        });
        let (whole, again) = &MADE[which];
        let end = (at + bytes).min(whole.len());
        let mut part = vec![1; end - at];
        again.fill(at as u64, &mut part);
        prop_assert!(part == whole[at..end]);
    }
}
