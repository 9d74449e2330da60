#![allow(clippy::disallowed_methods, reason = "several readers at once")]

use std::sync::Mutex;

use pinstripe_base::sync::lock;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard};

use pinstripe_base::monitor::{Observer, Problem};
use pinstripe_base::sync::wait;
use pinstripe_base::units::MIB;

use super::*;
use crate::source::ListedName;

const LONG: Duration = Duration::from_secs(600);
const RECORD: u64 = MIB;

/// A source of one file, whose bytes follow from their offsets, and of names that a source should
/// not have. Reads are held while the gate is shut.
struct MadeUp {
    size: u64,
    names: Vec<ListedName>,
    gate: Mutex<Gate>,
    opened: Condvar,
    change: AtomicU64,
    is_local: bool,
}

#[derive(Default)]
struct Gate {
    is_shut: bool,
    held: u64,
    rounds: u64,
    reads: u64,
    /// The ranges that were read.
    ranges: Vec<Range<u64>>,
}

/// Bytes of content until it repeats: no number of blocks.
const PERIOD: u64 = 1_000_003;

/// The content of a range.
fn content(range: Range<u64>) -> Vec<u8> {
    static TABLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        (0..PERIOD).map(byte).collect()
    });
    let mut content = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let from = at % PERIOD;
        let length = (range.end - at).min(PERIOD - from);
        content.extend_from_slice(&table[from as usize..(from + length) as usize]);
        at += length;
    }
    content
}

impl MadeUp {
    fn of(size: u64) -> Self {
        MadeUp {
            size,
            names: vec![(b"file"[..].into(), None)],
            gate: Mutex::default(),
            opened: Condvar::new(),
            change: AtomicU64::new(0),
            is_local: false,
        }
    }

    fn shut(&self) {
        lock(&self.gate).is_shut = true;
    }

    /// Lets all reads go on that are held.
    fn release(&self, gate: &mut MutexGuard<'_, Gate>) {
        gate.rounds += 1;
        self.opened.notify_all();
    }

    fn open(&self) {
        let mut gate = lock(&self.gate);
        gate.is_shut = false;
        self.release(&mut gate);
    }

    fn hold(&self) {
        let mut gate = lock(&self.gate);
        gate.reads += 1;
        if !gate.is_shut {
            return;
        }
        let round = gate.rounds;
        gate.held += 1;
        while gate.rounds == round {
            gate = wait(&self.opened, gate);
        }
        gate.held -= 1;
    }

    fn version(&self) -> ContentVersion {
        ContentVersion { size: self.size, tag: [self.change.load(Ordering::SeqCst) as u8; 32] }
    }
}

impl RangeSource for MadeUp {
    fn stat(&self, path: &[u8]) -> Result<SourceEntry> {
        let entry = |kind, inode, mode, version| SourceEntry {
            kind,
            identity: (1, inode),
            mode,
            owner: (0, 0),
            data_bytes: self.size,
            links: 1,
            rdev: (0, 0),
            mtime: (0, 0),
            ctime: (0, 0),
            version,
        };
        match path {
            b"" => Ok(entry(FileKind::Directory, 1, 0o755, ContentVersion::default())),
            b"gone" => Err(Error::new(Kind::NotFound, "gone")),
            b"file" => Ok(entry(FileKind::File, 2, 0o644, self.version())),
            _ => Ok(entry(FileKind::File, 3, 0o644, self.version())),
        }
    }

    fn list(&self, _: &[u8]) -> Result<Vec<ListedName>> {
        Ok(self.names.clone())
    }

    fn read(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.hold();
        lock(&self.gate).ranges.push(range.clone());
        if *version != self.version() || range.end > self.size {
            return Err(changed(path));
        }
        out.extend(content(range));
        Ok(())
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    fn target(&self, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(Kind::Usage, "no link"))
    }

    fn xattrs(&self, _: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn totals(&self) -> Result<(u64, u64)> {
        Ok((self.size, 1))
    }
}

#[derive(Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Observer for Heard {
    fn problem(&self, problem: &Problem) {
        lock(&self.0).push(problem.error.to_string());
    }

    fn note(&self, _: &str) {}
}

fn tree_of(source: MadeUp, budget: u64, deadline: Duration) -> OverlayTree<MadeUp> {
    let options = OverlayOptions { budget, fetchers: 64, deadline };
    let monitor = Arc::new(Monitor::new(Box::new(Heard::default())));
    OverlayTree::new(source, None, options, monitor).unwrap()
}

fn read(tree: &OverlayTree<MadeUp>, inode: u64, range: Range<u64>) -> Result<()> {
    let mut out = Vec::new();
    tree.read(inode, range.clone(), &mut out)?;
    let end = range.end.min(tree.source.size);
    assert!(out == content(range.start.min(end)..end), "{range:?}");
    Ok(())
}

/// The rounds of answers by which a reader of these records had all of them, when all requests
/// that are open are answered at once, and only then are further ones seen.
fn rounds(tree: &OverlayTree<MadeUp>, records: impl Iterator<Item = u64> + Send) -> u64 {
    rounds_of(tree, |file| {
        for record in records {
            read(tree, file, record * RECORD..(record + 1) * RECORD).unwrap();
        }
    })
}

fn rounds_of(tree: &OverlayTree<MadeUp>, reader: impl FnOnce(u64) + Send) -> u64 {
    let file = tree.lookup(ROOT, b"file").unwrap().inode;
    tree.source.shut();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            reader(file);
            is_over.store(true, Ordering::SeqCst);
        });
        let (mut calm, mut last) = (0, 0);
        while !is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            let (queued, in_flight) = (tree.runner.usage().queued, tree.calls.usage().in_flight);
            let mut gate = lock(&tree.source.gate);
            // What was asked for by now has reached the source, and waits there.
            let is_calm = gate.held > 0
                && gate.held == in_flight
                && gate.reads == last
                && (queued == 0 || gate.held >= 64);
            calm = if is_calm { calm + 1 } else { 0 };
            last = gate.reads;
            if calm >= 10 {
                calm = 0;
                tree.source.release(&mut gate);
            }
        }
    });
    let rounds = lock(&tree.source.gate).rounds;
    tree.source.open();
    rounds
}

#[test]
fn what_nobody_foresaw_fetches_the_smallest_block_that_holds_it() {
    const K: u64 = 1 << 10;
    let fetched = |is_local: bool, reads: &[Range<u64>]| {
        let tree = tree_of(MadeUp { is_local, ..MadeUp::of(64 * MIB) }, 64 * MIB, LONG);
        let file = tree.lookup(ROOT, b"file").unwrap().inode;
        reads.iter().for_each(|range| read(&tree, file, range.clone()).unwrap());
        let fetched = std::mem::take(&mut lock(&tree.source.gate).ranges);
        // What is fetched ahead of these reads may have begun by now, or not.
        let is_of = |it: &Range<u64>, read: &Range<u64>| it.start < read.end && read.start < it.end;
        let is_wanted = |it: &Range<u64>| reads.iter().any(|read| is_of(it, read));
        fetched.into_iter().filter(is_wanted).collect::<Vec<_>>()
    };
    let at = |mib: u64, from: u64, to: u64| mib * MIB + from * K..mib * MIB + to * K;
    let short = at(9, 20, 24);
    assert_eq!(fetched(true, std::slice::from_ref(&short)), [at(9, 16, 32)]);
    assert_eq!(fetched(false, std::slice::from_ref(&short)), [at(9, 0, 64)]);
    // It lies in two of the smallest blocks, and in one of the next length.
    assert_eq!(fetched(true, &[at(9, 12, 20)]), [at(9, 0, 64)]);
    // It lies in two blocks of each length but the largest, which would be more than is wanted.
    assert_eq!(fetched(true, &[at(9, 60, 68)]), [at(9, 48, 64), at(9, 64, 80)]);
    assert_eq!(fetched(false, &[at(9, 60, 68)]), [at(9, 0, 64), at(9, 64, 128)]);
    // What is there in a longer block is not fetched again.
    assert_eq!(fetched(true, &[at(9, 12, 20), short]), [at(9, 0, 64)]);
    assert_eq!(fetched(true, &[at(9, 0, 96)]), [at(9, 0, 1024)]);
}

#[test]
fn strides_of_either_sign_take_a_twelfth_of_the_rounds_of_one_read_at_a_time() {
    const RECORDS: u64 = 600;
    let orders: [(&str, Vec<u64>); 3] = [
        ("stride 17", (0..RECORDS).map(|record| 17 * record).collect()),
        ("reverse", (0..RECORDS).rev().collect()),
        ("in order", (0..RECORDS).collect()),
    ];
    for (name, order) in orders {
        let tree = tree_of(MadeUp::of(17 * RECORDS * RECORD), 256 * MIB, LONG);
        let rounds = rounds(&tree, order.into_iter());
        assert!(rounds * 12 <= RECORDS, "{name}: {rounds} rounds for {RECORDS} records");
        let status = tree.status(10);
        assert_eq!(&*status.files[0].path, b"file");
        assert_eq!(status.files[0].readers.streams.len(), 1, "{name}: {status:?}");
        assert!(status.memory.peak <= 256 * MIB, "{name}: {status:?}");
        assert!(status.files[0].readers.counts.wasted <= 2 * RECORD, "{name}: {status:?}");
    }
}

/// As the kernel asks for records of 4 MiB that a program reads at every 17th place: four requests
/// of 1 MiB, and a fifth beyond the record that no program waits for and that may come late.
#[test]
fn strided_records_with_the_reads_that_the_kernel_adds_take_few_rounds() {
    const RECORDS: u64 = 100;
    for is_backwards in [false, true] {
        let attempt = || {
            let tree = tree_of(MadeUp::of(17 * 4 * RECORDS * RECORD), 256 * MIB, LONG);
            rounds_of(&tree, |file| {
                for n in 0..RECORDS {
                    let record = if is_backwards { RECORDS - 1 - n } else { n };
                    let start = record * 17 * 4 * RECORD;
                    let part = |n: u64| start + n * RECORD..start + (n + 1) * RECORD;
                    for n in 0..3 {
                        read(&tree, file, part(n)).unwrap();
                    }
                    // The kernel has both in flight at once, and the reader waits for both.
                    std::thread::scope(|scope| {
                        let (tree, added) = (&tree, part(4));
                        scope.spawn(move || read(tree, file, added).unwrap());
                        read(tree, file, part(3)).unwrap();
                    });
                }
            })
        };
        // A reader that gets no processor for 10 ms counts as one that waits, which adds a round.
        let is_few = |rounds: &u64| rounds * 12 <= 4 * RECORDS;
        let mut rounds = attempt();
        for _ in 0..2 {
            if !is_few(&rounds) {
                rounds = rounds.min(attempt());
            }
        }
        // A reader of the bare directory has three rounds a record, or four.
        assert!(is_few(&rounds), "backwards {is_backwards}: {rounds} rounds");
    }
}

#[test]
fn what_is_given_is_what_is_read() {
    let tree = tree_of(MadeUp::of(10 * MIB + 77), 64 * MIB, LONG);
    let file = tree.lookup(ROOT, b"file").unwrap().inode;
    let end = 10 * MIB + 77;
    for range in [0..MIB, 5..4096, MIB - 5..MIB + 5, 0..end + 9, end - 1..end, end..end + 1] {
        let (mut read, mut buffer, mut given) = (Vec::new(), vec![7; 7], Vec::new());
        tree.read(file, range.clone(), &mut read).unwrap();
        tree.give(file, range.clone(), &mut buffer, &mut |bytes| given.push(bytes.to_vec()))
            .unwrap();
        assert!(given == [read], "{range:?}");
    }
    tree.give(ROOT, 0..1, &mut Vec::new(), &mut |_| panic!("a directory")).unwrap_err();
}

#[test]
fn any_readers_get_what_the_source_has_within_the_budget() {
    let tree = tree_of(MadeUp::of(300 * MIB + 12_345), 16 * MIB, LONG);
    let file = tree.lookup(ROOT, b"file").unwrap().inode;
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            let tree = &tree;
            scope.spawn(move || {
                let mut at = reader * 70 * MIB;
                for step in 0..300u64 {
                    at = match step % 5 {
                        0 => (at * 31 + step * 7_654_321) % tree.source.size,
                        _ => at + 100_000,
                    };
                    read(tree, file, at..at + 1 + (step * 1_234_567) % 200_000).unwrap();
                }
            });
        }
    });
    let usage = tree.status(1).memory;
    assert!(usage.peak <= 16 * MIB, "{usage:?}");
    read(&tree, file, 300 * MIB + 12_000..u64::MAX).unwrap();
    read(&tree, file, u64::MAX - 1..u64::MAX).unwrap();
}

#[test]
fn a_source_that_hangs_is_an_error_by_the_deadline_and_read_again_when_it_answers() {
    let heard = Heard::default();
    let problems = Arc::clone(&heard.0);
    let options =
        OverlayOptions { budget: 64 * MIB, fetchers: 4, deadline: Duration::from_millis(80) };
    let monitor = Arc::new(Monitor::new(Box::new(heard)));
    let tree = OverlayTree::new(MadeUp::of(100 * MIB), None, options, monitor).unwrap();
    let file = tree.lookup(ROOT, b"file").unwrap().inode;
    tree.source.shut();
    for _ in 0..3 {
        let late = read(&tree, file, 0..4096).unwrap_err();
        assert_eq!(late.kind(), Kind::Unanswered);
    }
    assert_eq!(lock(&problems).len(), 1, "told once");
    assert_eq!(tree.status(1).source.late, 3);
    tree.source.open();
    read(&tree, file, 0..4096).unwrap();
    // A pool that is lost in hung calls does not keep the tree from ending.
    tree.source.shut();
    read(&tree, file, 50 * MIB..51 * MIB).unwrap_err();
    let held = Arc::clone(&tree.source);
    drop(tree);
    held.open();
}

#[test]
fn a_file_that_changes_is_an_error_where_it_was_open_and_another_inode_for_the_next() {
    let tree = tree_of(MadeUp::of(10 * MIB), 64 * MIB, LONG);
    let before = tree.lookup(ROOT, b"file").unwrap();
    assert_eq!(tree.open(before.inode).unwrap(), FileOpening::Current);
    read(&tree, before.inode, 0..MIB).unwrap();
    tree.source.change.store(1, Ordering::SeqCst);
    assert_eq!(tree.open(before.inode).unwrap_err().kind(), Kind::Changed);
    assert_eq!(read(&tree, before.inode, 9 * MIB..10 * MIB).unwrap_err().kind(), Kind::Changed);
    read(&tree, before.inode, 0..MIB).expect("what was read before is still that of the time");
    assert_eq!(tree.node(before.inode).unwrap(), before);
    let after = tree.lookup(ROOT, b"file").unwrap();
    assert_ne!(after.inode, before.inode);
    read(&tree, after.inode, 9 * MIB..10 * MIB).unwrap();
    tree.forget(before.inode, 1);
    assert_eq!(tree.node(before.inode).unwrap_err().kind(), Kind::NotFound);
    tree.forget(after.inode, 1);
    assert_eq!(tree.status(9).nodes, 0);
}

#[test]
fn names_that_lead_elsewhere_are_not_shown_and_many_are_listed_from_any_place() {
    let mut source = MadeUp::of(MIB);
    for name in [&b""[..], b".", b"..", b"a/b", b"nul\0", b"gone", b"file"] {
        source.names.push((name.into(), None));
    }
    source.names.extend((0..1000).map(|at| (format!("name {at:04}").into_bytes().into(), None)));
    let tree = tree_of(source, 64 * MIB, LONG);
    let (mut names, mut inodes, mut from) = (Vec::new(), Vec::new(), 0);
    loop {
        let before = names.len();
        tree.list(ROOT, from, &mut |place, name, node| {
            names.push(name.to_vec());
            inodes.push(node.inode);
            from = place;
            names.len() % 37 != 0
        })
        .unwrap();
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names.len(), 1001, "each name once");
    assert!(names.is_sorted());
    inodes.into_iter().for_each(|inode| tree.forget(inode, 1));
    assert_eq!(tree.status(9).nodes, 0);
    for name in [&b""[..], b".", b"..", b"a/b", b"gone"] {
        assert_eq!(tree.lookup(ROOT, name).unwrap_err().kind(), Kind::NotFound);
    }
}

#[test]
fn a_hint_fetches_before_the_first_read() {
    let tree = tree_of(MadeUp::of(1000 * MIB), 256 * MIB, LONG);
    let file = tree.lookup(ROOT, b"file").unwrap().inode;
    let hint = |text: &str| tree.hint(file, text.as_bytes());
    hint("will-need 5M 1M 900M 2M").unwrap();
    assert_ne!(tree.found(file, 5 * MIB), Presence::Absent);
    assert_ne!(tree.found(file, 901 * MIB), Presence::Absent);
    assert_eq!(tree.found(file, 902 * MIB), Presence::Absent);
    assert_eq!(hint("fast").unwrap_err().kind(), Kind::Usage);
}
