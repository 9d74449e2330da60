//! The catalogue of a backup of fifteen machines, as a paper of 2009 describes it: 13,753,410
//! files, 7,037,848 distinct triples (name, size, hash), and 37 file systems that are inserted at
//! the same time.
//!
//! The data is generated with names by Zipf's law with a long tail of names used once, log-normal
//! sizes with a mean of about 120 KB, duplicates mostly of popular objects, streams of unequal
//! size, and about twelve files in a directory. The same arguments give the same rows.

use std::collections::HashSet;
use std::f64::consts::TAU;

use pinstripe_base::id::ChunkId;
use pinstripe_base::random::splitmix64;
use pinstripe_member::entry::{Content, Entry, ListRow};
use pinstripe_member::meta::{FileKind, Metadata, Time};
use pinstripe_member::record::{ChunkRow, RECORD_MAX_RAW_BYTES};

/// The number of rows of the complete catalogue.
pub const ROWS: usize = 13_753_410;
const OBJECTS: usize = 7_037_848;
/// The number of file systems; each is a stream, and the streams may be written at the same time.
pub const STREAMS: usize = 37;
/// The number of machines that the file systems belong to.
pub const NODES: usize = 15;
/// The earliest modification time of the files: March 2009.
const BEGAN_SECONDS: i64 = 1_236_000_000;
const DEPTH_MAX: usize = 10;
const SPAN_SECONDS: u64 = 30_000_000;

const SYLLABLES: [&str; 31] = [
    "ba", "be", "bi", "co", "da", "de", "fi", "ga", "he", "in", "jo", "ka", "li", "lo", "ma", "me",
    "no", "pa", "qu", "re", "sa", "si", "ta", "te", "un", "va", "we", "xi", "yo", "za", "ro",
];
const ENDINGS: [&str; 16] = [
    ".h", ".c", ".so", ".html", ".png", ".txt", ".gz", ".py", ".pyc", ".js", ".xml", ".conf",
    ".jpg", ".log", "", ".mo",
];

/// A small random number generator of sufficient quality, with the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn word(&mut self, syllables: u64, into: &mut Vec<u8>) {
        for _ in 0..syllables {
            let at = self.below(SYLLABLES.len() as u64) as usize;
            into.extend_from_slice(SYLLABLES[at].as_bytes());
        }
    }

    fn size(&mut self) -> u64 {
        let normal = (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (TAU * self.unit()).cos();
        ((8.32 + 2.6 * normal).exp() as u64).min(1 << 40)
    }
}

/// Draws numbers by Zipf's law, from the cumulated weights of `1 / (rank + shift)^exponent`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, exponent: f64, shift: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| (rank as f64 + 1.0 + shift).powf(-exponent);
        Zipf(
            (0..ranks)
                .map(|rank| {
                    sum += weight(rank);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut Random) -> usize {
        let all = self.0.last().copied().unwrap_or(0.0);
        let at = random.unit() * all;
        self.0.partition_point(|sum| *sum < at).min(self.0.len() - 1)
    }
}

/// Byte strings, stored one after the other in one buffer.
#[derive(Default)]
struct StringPool {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl StringPool {
    fn push(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() as u32 - 1
    }

    fn get(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }
}

/// One file: a name in a directory.
struct FileRow {
    directory: u32,
    object: u32,
    mtime: u32,
}

/// The rows of one file system, in path order.
pub struct RowStream {
    /// The machine that the file system belongs to.
    pub node: usize,
    directories: StringPool,
    rows: Vec<FileRow>,
}

impl RowStream {
    /// The number of its rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }
}

/// The complete catalogue, in memory.
pub struct Workload {
    names: StringPool,
    sizes: Vec<u64>,
    ids: Vec<ChunkId>,
    /// The file systems.
    pub streams: Vec<RowStream>,
}

impl Workload {
    /// Makes a catalogue of this many rows, with the same ratio of distinct objects as the full
    /// one.
    pub fn make(rows: usize, seed: u64) -> Workload {
        let mut random = Random(seed);
        let objects = (rows as f64 * OBJECTS as f64 / ROWS as f64).round() as usize;
        let (names, sizes, ids) = objects_of(objects, seed, &mut random);
        let mut order: Vec<u32> = (0..objects as u32).collect();
        let popular = Zipf::new(objects, 0.7, 10.0);
        order.extend((objects..rows).map(|_| popular.draw(&mut random) as u32));
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let weights: Vec<f64> = (0..STREAMS).map(|k| (k as f64 + 2.0).powf(-0.8)).collect();
        let all: f64 = weights.iter().sum();
        let mut rest = &order[..];
        let mut streams = Vec::new();
        for (number, weight) in weights.iter().enumerate() {
            let take = match number + 1 == STREAMS {
                true => rest.len(),
                false => ((rows as f64 * weight / all) as usize).min(rest.len()),
            };
            let (mine, others) = rest.split_at(take);
            rest = others;
            streams.push(stream(number, mine, &names, &mut random));
        }
        Workload { names, sizes, ids, streams }
    }

    /// Rows of all streams.
    pub fn rows(&self) -> usize {
        self.streams.iter().map(|stream| stream.rows.len()).sum()
    }

    /// The number of distinct triples (name, size, hash), by counting them.
    pub fn distinct_objects(&self) -> usize {
        let rows = self.streams.iter().flat_map(|stream| &stream.rows);
        rows.map(|row| self.ids[row.object as usize].0).collect::<HashSet<_>>().len()
    }

    /// Fills `entry` with row `at` of a stream; returns false after the last row.
    pub fn fill(&self, stream: &RowStream, at: usize, entry: &mut Entry) -> bool {
        let Some(row) = stream.rows.get(at) else { return false };
        let object = row.object as usize;
        entry.path.clear();
        entry.path.extend_from_slice(stream.directories.get(row.directory));
        entry.path.push(b'/');
        entry.path.extend_from_slice(self.names.get(row.object));
        let mtime = Time { seconds: BEGAN_SECONDS + i64::from(row.mtime), nanos: 0 };
        entry.meta = Metadata { kind: FileKind::File, mode: 0o644, mtime, ..Metadata::default() };
        entry.ctime = mtime;
        entry.inode = at as u64 + 2;
        entry.device = 2049;
        entry.links = 1;
        entry.size = self.sizes[object];
        set_content(&mut entry.content, self.ids[object], entry.size);
        true
    }
}

/// Sets the content to one chunk, or to one content list if no chunk is so long; the content itself
/// is not stored here.
fn set_content(content: &mut Content, id: ChunkId, size: u64) {
    if size > u64::from(RECORD_MAX_RAW_BYTES) {
        *content = Content::Lists(vec![ListRow { id, content_bytes: size }]);
        return;
    }
    let row = ChunkRow { id, raw_bytes: size as u32 };
    match content {
        Content::Chunks(rows) => rows.clear(),
        Content::Lists(_) => *content = Content::default(),
    }
    if let (Content::Chunks(rows), true) = (content, size > 0) {
        rows.push(row);
    }
}

fn objects_of(
    count: usize,
    seed: u64,
    random: &mut Random,
) -> (StringPool, Vec<u64>, Vec<ChunkId>) {
    let endings = Zipf::new(ENDINGS.len(), 0.7, 0.0);
    let mut words = StringPool::default();
    let mut name = Vec::new();
    let common = (count / 8).max(100);
    for _ in 0..common {
        name.clear();
        let syllables = 2 + random.below(3);
        random.word(syllables, &mut name);
        name.extend_from_slice(ENDINGS[endings.draw(random)].as_bytes());
        words.push(&name);
    }
    let usual = Zipf::new(common, 1.0, 0.0);
    let mut names = StringPool::default();
    let (mut sizes, mut ids) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for number in 0..count {
        name.clear();
        if random.unit() < 0.6 {
            name.extend_from_slice(words.get(usual.draw(random) as u32));
        } else {
            random.word(2, &mut name);
            let number = random.below(1 << 24);
            let ending = ENDINGS[endings.draw(random)];
            name.extend_from_slice(format!("-{number:06x}{ending}").as_bytes());
        }
        names.push(&name);
        sizes.push(random.size());
        ids.push(ChunkId(*blake3::hash(format!("{seed}/{number}").as_bytes()).as_bytes()));
    }
    (names, sizes, ids)
}

/// Generates a stream directory by directory, then sorts it in path order.
fn stream(number: usize, objects: &[u32], names: &StringPool, random: &mut Random) -> RowStream {
    let mut stream = RowStream {
        node: number % NODES,
        directories: StringPool::default(),
        rows: Vec::with_capacity(objects.len()),
    };
    let top = format!("srv{:02}", number % NODES).into_bytes();
    let mut stack = vec![top];
    let mut seen = HashSet::new();
    let mut rest = objects;
    while !rest.is_empty() {
        while stack.len() > 1 && random.unit() < 0.45 {
            stack.pop();
        }
        while stack.len() < 2 || (stack.len() < DEPTH_MAX - 1 && random.unit() < 0.5) {
            let (mut word, syllables) = (Vec::new(), 2 + random.below(4));
            random.word(syllables, &mut word);
            stack.push(word);
        }
        // A directory is gone through once; none is deeper than ten.
        while !seen.insert(stack.join(&b'/')) {
            stack.truncate(DEPTH_MAX - 1);
            let mut word = Vec::new();
            random.word(3, &mut word);
            stack.push(word);
        }
        let files = 1 + (-(1.0 - random.unit()).ln() * 11.0) as usize;
        let (here, others) = rest.split_at(files.min(rest.len()));
        rest = others;
        add_directory(&mut stream, &stack.join(&b'/'), here, names, random);
    }
    sort(&mut stream, names);
    stream
}

/// A directory holds only one file with a given name; further files with this name go to the
/// directories `d1`, `d2` below it.
fn add_directory(
    stream: &mut RowStream,
    path: &[u8],
    objects: &[u32],
    names: &StringPool,
    random: &mut Random,
) {
    let mut places = vec![stream.directories.push(path)];
    let mut used: Vec<&[u8]> = Vec::new();
    for &object in objects {
        let name = names.get(object);
        let copy = used.iter().filter(|known| **known == name).count();
        used.push(name);
        if copy == places.len() {
            let below = [path, format!("/d{copy}").as_bytes()].concat();
            places.push(stream.directories.push(&below));
        }
        let mtime = random.below(SPAN_SECONDS) as u32;
        stream.rows.push(FileRow { directory: places[copy], object, mtime });
    }
}

fn sort(stream: &mut RowStream, names: &StringPool) {
    let mut keys = Pool64::default();
    for row in &stream.rows {
        keys.push(stream.directories.get(row.directory), names.get(row.object));
    }
    let mut order: Vec<u32> = (0..stream.rows.len() as u32).collect();
    order.sort_unstable_by(|left, right| keys.get(*left).cmp(keys.get(*right)));
    let rows = order.iter().map(|at| {
        let FileRow { directory, object, mtime } = stream.rows[*at as usize];
        FileRow { directory, object, mtime }
    });
    stream.rows = rows.collect();
}

/// Paths in which `/` is encoded below every other byte, so that their byte order is path order.
#[derive(Default)]
struct Pool64 {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Pool64 {
    fn push(&mut self, directory: &[u8], name: &[u8]) {
        let low = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        self.bytes.extend(directory.iter().map(low));
        self.bytes.push(0);
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len() as u64);
    }

    fn get(&self, at: u32) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at as usize - 1] as usize };
        &self.bytes[start..self.ends[at as usize] as usize]
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_member::tree::compare_paths;

    use super::*;

    #[test]
    fn counts_are_exact_and_paths_ascend() {
        let workload = Workload::make(20_000, 1);
        assert_eq!((workload.rows(), workload.distinct_objects()), (20_000, 10_234));
        assert_eq!(workload.streams.len(), STREAMS);
        let mut entry = Entry::default();
        for stream in &workload.streams {
            let (mut at, mut last) = (0, Vec::new());
            while workload.fill(stream, at, &mut entry) {
                assert!(compare_paths(&last, &entry.path).is_lt());
                last.clone_from(&entry.path);
                at += 1;
            }
        }
    }
}
