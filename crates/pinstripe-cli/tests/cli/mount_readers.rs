//! `pinstripe mount` read at random by several readers at once, as fsx does: every byte is that of
//! the source, and the memory stays within its limit.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, SeekFrom, fadvise, seek};

use crate::fakevmcore::obstacle;
use crate::mount::{Mounted, ok, where_mounts_work};
use crate::stand::{Stand, noise, skipped};

/// Seconds for which `cargo xtask soak readers` has them read; without it each does `STEPS` steps.
const SECONDS: &str = "PINSTRIPE_READER_SECONDS";
const READERS: u64 = 4;
const STEPS: u64 = 120;

/// Numbers that follow from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// Bytes that do not compress, made eight at a time.
pub fn words(seed: u64, bytes: usize) -> Vec<u8> {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut all = vec![0; bytes];
    for word in all.chunks_exact_mut(8) {
        word.copy_from_slice(&(draw.below(u64::MAX) << 11 ^ draw.0).to_le_bytes());
    }
    all
}

/// One file: its copy in the mount, its bytes, and where it has data.
struct Source {
    shown: PathBuf,
    bytes: Vec<u8>,
    data: Vec<std::ops::Range<u64>>,
}

fn sources(stand: &Stand) -> Vec<Source> {
    let mut sparse = vec![0; 9 << 20];
    for (at, seed) in [(1 << 20, 11), (5 << 20, 12)] {
        sparse[at..at + 300_000].copy_from_slice(&noise(seed, 300_000));
    }
    let mut all =
        vec![("large", words(1, 56 << 20)), ("odd", noise(2, 1_234_567)), ("empty", vec![])];
    all.extend([("repeats", b"0123456789".repeat(70_000)), ("sparse", sparse), ("one", vec![7])]);
    let write = |(name, bytes): (&str, Vec<u8>)| {
        let path = stand.path("tree").join(name);
        fs::write(&path, if name == "sparse" { &[] } else { &bytes[..] }).unwrap();
        if name == "sparse" {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            for at in [1 << 20, 5 << 20] {
                file.write_all_at(&bytes[at..at + 300_000], at as u64).unwrap();
            }
        }
        let shown = PathBuf::from("mnt/latest").join(path.strip_prefix("/").unwrap());
        let data = data_of(&File::open(&path).unwrap(), bytes.len() as u64);
        Source { shown: stand.path(shown.to_str().unwrap()), bytes, data }
    };
    fs::create_dir(stand.path("tree")).unwrap();
    all.into_iter().map(write).collect()
}

/// The data of a file, by its SEEK_DATA and SEEK_HOLE.
fn data_of(file: &File, size: u64) -> Vec<std::ops::Range<u64>> {
    let (mut data, mut at) = (Vec::new(), 0);
    while at < size {
        let Ok(start) = seek(file, SeekFrom::Data(at)) else { break };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        data.push(start..at);
    }
    data
}

/// One step of a reader: a few reads of one file, in a pattern, and a look at what they gave.
fn step(draw: &mut Draw, source: &Source, open: &mut Option<File>) {
    if open.is_none() || draw.below(8) == 0 {
        let mut options = File::options();
        // Past the kernel's pages, now and then.
        if draw.below(4) == 0 {
            std::os::unix::fs::OpenOptionsExt::custom_flags(
                &mut options,
                OFlags::DIRECT.bits() as i32,
            );
        }
        *open = Some(options.read(true).open(&source.shown).unwrap());
    }
    let file = open.as_ref().unwrap();
    if draw.below(3) == 0 {
        // What is read next comes from the mount again.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }
    let size = source.bytes.len() as u64;
    let length = match draw.below(3) {
        0 => draw.below(64),
        1 => draw.below(70_000),
        _ => draw.below(2 << 20),
    };
    let stride = match draw.below(4) {
        0 => length as i64,
        1 => -(length as i64),
        2 => 3 * length as i64 + 1,
        _ => draw.below(size) as i64,
    };
    let mut at = draw.below(size + size / 16 + 1);
    for _ in 0..1 + draw.below(6) {
        let mut read = vec![0xee; length as usize];
        let count = read_at(file, &mut read, at);
        let begin = at.min(size) as usize;
        let wanted = &source.bytes[begin..(begin + read.len()).min(size as usize)];
        assert_eq!(count, wanted.len(), "{}: {length} bytes at {at}", source.shown.display());
        let is_same = read[..count] == *wanted;
        assert!(is_same, "{}: {length} bytes at {at}", source.shown.display());
        at = at.saturating_add_signed(stride);
    }
    if draw.below(10) == 0 {
        let shown = File::open(&source.shown).unwrap();
        assert_eq!(shown.metadata().unwrap().len(), size);
        assert_eq!(data_of(&shown, size), source.data, "{}", source.shown.display());
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64).unwrap() {
            0 => break,
            count => done += count,
        }
    }
    done
}

#[test]
fn readers_at_random_places_get_the_bytes_of_the_source() {
    let name = "readers_at_random_places_get_the_bytes_of_the_source";
    if let Some(obstacle) = obstacle() {
        return skipped(name, obstacle);
    }
    let time = std::env::var(SECONDS).ok().map(|it| Duration::from_secs(it.parse().unwrap()));
    let stand = Stand::with_store();
    let sources = sources(&stand);
    ok(&stand, "backup --store m0 tree");
    // Less than the files have together: what was read has to make room.
    let mounted = Mounted::of(&stand, "mount mnt --store m0 --memory 64M", "mnt");
    let began = Instant::now();
    let read = |reader: u64| {
        let mut draw = Draw((reader + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut open: Vec<Option<File>> = sources.iter().map(|_| None).collect();
        let mut steps = 0;
        while time.map_or(steps < STEPS, |time| began.elapsed() < time) {
            let which = draw.below(sources.len() as u64) as usize;
            step(&mut draw, &sources[which], &mut open[which]);
            steps += 1;
        }
        steps
    };
    let steps: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || read(reader))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    if let Some(time) = time {
        println!("{READERS} readers took {steps} steps in {} s", time.as_secs());
    }
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_thousand_open_files_take_no_more_memory_than_they_may() {
    const FILES: usize = 1000;
    const BYTES: usize = 160 << 10;
    const BUDGET: u64 = 64 << 20;
    /// Beside the budget: the program, the index, buffers of threads.
    const BESIDE: u64 = 64 << 20;
    let name = "a_thousand_open_files_take_no_more_memory_than_they_may";
    let Some(stand) = where_mounts_work(name, Stand::with_store) else { return };
    fs::create_dir(stand.path("files")).unwrap();
    let all = noise(5, FILES * 1000 + BYTES);
    let content = |number: usize| &all[number * 1000..][..BYTES];
    for number in 0..FILES {
        // Distinct from the first byte on, so that no two share a chunk.
        let bytes = [number.to_string().as_bytes(), content(number)].concat();
        fs::write(stand.path(&format!("files/{number}")), bytes).unwrap();
    }
    ok(&stand, "backup --store m0 files");
    let mounted = Mounted::of(&stand, "mount mnt --store m0 --memory 64M", "mnt");
    let files = stand.path("files");
    let shown = mounted.place.join("latest").join(files.strip_prefix("/").unwrap());
    let open = |number: usize| File::open(shown.join(number.to_string())).unwrap();
    let files: Vec<File> = (0..FILES).map(open).collect();
    let mut held = 0;
    // In the order of the tree, so that all is fetched ahead that may be; then in another one.
    let step = |number: usize| number * 617 % FILES;
    for (turn, number) in (0..FILES).chain((0..FILES).map(step)).enumerate() {
        let mut read = vec![0; BYTES];
        let digits = number.to_string().len();
        files[number].read_exact_at(&mut read, digits as u64).unwrap();
        assert!(read == content(number), "{number}");
        if turn % 100 == 99 {
            let status = stand.run("mount status mnt --json").events();
            held = held.max(status[0]["memory"]["peak_bytes"].as_u64().unwrap());
            let resident = anonymous_bytes(mounted.child.id());
            assert!(resident <= BUDGET + BESIDE, "{} MiB after {turn} reads", resident >> 20);
        }
    }
    assert!((BUDGET / 2..=BUDGET).contains(&held), "{held} bytes of records were held");
    drop(files);
    assert_eq!(mounted.end(), 0);
}

/// The memory of a process that is no file's: pages of the program itself are shared, and can be
/// dropped.
fn anonymous_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}
