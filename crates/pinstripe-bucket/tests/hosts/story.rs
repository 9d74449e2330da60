//! The operations of a story, drawn from its seed, and playing it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use pinstripe_base::clock;
use pinstripe_member::meta::{self, Stat, Time};

use crate::endpoint::Fate;
use crate::world::World;
use pinstripe_schedule::Counts;
use pinstripe_sim::Dice;
use pinstripe_sim::STAMP_SECONDS;

/// Numbers of endpoints and parity that are tried.
const SHAPES: &[(usize, u8)] = &[(1, 0), (1, 0), (2, 1), (3, 1)];
/// Operations of one story.
const FEWEST: usize = 6;
const MORE: usize = 8;
/// Requests after which the longest operations of these stores have ended.
const REQUESTS: usize = 120;

/// One thing that happens. Hosts and sources have the same numbers: each backs up its own.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    /// A source changes.
    Change {
        source: usize,
        seed: u64,
    },
    /// A host backs up its source. It is gone after so many requests, if that is said.
    Backup {
        host: usize,
        gone_after: Option<u64>,
    },
    /// Both hosts do at once; the first may be gone midway.
    Together {
        gone_after: Option<u64>,
    },
    /// A gc; its host may be gone midway.
    Collect {
        host: usize,
        waste: u64,
        gone_after: Option<u64>,
    },
    /// A gc beside a backup of the other host, which may be gone midway.
    CollectBeside {
        host: usize,
        waste: u64,
        gone_after: Option<u64>,
    },
    Forget {
        host: usize,
        snapshot: usize,
    },
    Undelete {
        host: usize,
        snapshot: usize,
    },
    /// An endpoint is away during a backup, where parity replaces it; then it is back and repaired.
    Outage {
        host: usize,
        endpoint: usize,
    },
    /// Every snapshot is read whole by a host.
    Read {
        host: usize,
    },
}

/// One seed's story.
pub struct Story {
    pub seed: u64,
    pub endpoints: usize,
    pub parity: u8,
    pub operations: Vec<Operation>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let &(endpoints, parity) = dice.pick(SHAPES);
        let count = FEWEST + dice.below(MORE);
        let operations = (0..count).map(|_| operation(&mut dice)).collect();
        Story { seed, endpoints, parity, operations }
    }
}

fn operation(dice: &mut Dice) -> Operation {
    let (host, snapshot, waste) = (dice.below(2), dice.below(16), *dice.pick(&[0, 0, 10, 100]));
    let gone_after = (dice.below(3) == 0).then(|| dice.below(REQUESTS) as u64);
    match dice.below(20) {
        0..3 => Operation::Change { source: host, seed: dice.next() },
        3..7 => Operation::Backup { host, gone_after },
        7..9 => Operation::Together { gone_after },
        9..11 => Operation::Collect { host, waste, gone_after },
        11..14 => Operation::CollectBeside { host, waste, gone_after },
        14..16 => Operation::Forget { host, snapshot },
        16 => Operation::Undelete { host, snapshot },
        17 => Operation::Outage { host, endpoint: dice.below(3) },
        _ => Operation::Read { host },
    }
}

/// The outcome of a story.
pub struct Played {
    /// The fault that was found.
    pub wrong: Option<String>,
    pub counts: Counts,
    /// How many requests met each fate.
    pub met: BTreeMap<Fate, u64>,
}

/// The directory of a story: a name of its seed alone, for names stand in what is written.
fn place(seed: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    base.join(format!("pinstripe-buckets-{}-{seed:08x}", std::process::id()))
}

/// What the file system says of an entry, as far as it follows from the story.
fn told(stat: Stat) -> Stat {
    if stat.mtime.seconds != STAMP_SECONDS {
        let mtime = Time { seconds: STAMP_SECONDS, nanos: 0 };
        return told(Stat { mtime, links: 2, size_bytes: 0, device: 0, ..stat });
    }
    Stat { inode: stat.mtime.nanos.into(), ctime: stat.mtime, device: 0, ..stat }
}

/// Plays the story of a seed.
pub fn play(seed: u64) -> Played {
    static PLAYING: Mutex<()> = Mutex::new(());
    let _alone = PLAYING.lock().unwrap_or_else(PoisonError::into_inner);
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        clock::be_told_by(pinstripe_schedule::now);
        meta::be_told_by(told);
        pinstripe_sim::sleep_for_ticks();
    });
    let (story, place) = (Story::new(seed), place(seed));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    let mut met = BTreeMap::new();
    let world = AssertUnwindSafe(|| World::play(&story, &place, &mut met));
    let (done, counts) = pinstripe_schedule::scheduled(seed, || catch_unwind(world));
    let _ = fs::remove_dir_all(&place);
    let wrong = done.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without words".to_owned())
    });
    Played { wrong, counts, met }
}

/// Plays every seed; panics at the end when one failed.
pub fn run(seeds: Range<u64>) {
    let (began, mut failed) = (Instant::now(), Vec::new());
    let mut met: BTreeMap<Fate, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        let played = play(seed);
        for (fate, count) in played.met {
            *met.entry(fate).or_default() += count;
        }
        if let Some(wrong) = played.wrong {
            let operations = Story::new(seed).operations;
            eprintln!("buckets: seed {seed} FAILED: {wrong}\n{operations:#?}");
            failed.push(seed);
        }
    }
    println!("buckets: {seeds:?}, {met:?}, {} s", began.elapsed().as_secs());
    assert!(
        failed.is_empty(),
        "seeds {failed:?} failed; one alone: cargo xtask sim buckets --seeds 1 --from {}",
        failed[0]
    );
    if seeds.end - seeds.start >= 20 {
        let fates =
            [Fate::ServerOfMember, Fate::Lost, Fate::AnswerLost, Fate::Late, Fate::Conflict];
        assert!(fates.iter().all(|fate| met.contains_key(fate)), "of no use without: {met:?}");
    }
}
