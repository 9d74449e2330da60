//! Runs seeds side by side, names those that fail, and shortens their stories.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pinstripe_sim::Story;
use pinstripe_sim::World;

use crate::process::Threads;

/// Times that the story of a failing seed is played again before it is shortened: how often it
/// fails says how often a shorter one has to be played.
const REPLAYS: usize = 20;
/// Runs of a shortened story at most: a failing seed must not take the whole day.
const SHRINK_RUNS: usize = 60;
/// Seeds between two lines that say how far it has come.
const TOLD_EVERY: u64 = 25;

/// Runs every seed; panics with the list of those that failed.
pub fn run(seeds: Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    if seed > seeds.start && (seed - seeds.start).is_multiple_of(TOLD_EVERY) {
                        eprintln!("stress: seed {seed} begins");
                    }
                    let story = Story::new(seed);
                    if !holds(&story, true) {
                        eprintln!("stress: seed {seed} FAILED; as drawn: {story}");
                        failed.lock().unwrap().push((seed, story));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    if let Some((seed, story)) = failed.first() {
        let failures = (0..REPLAYS).filter(|_| !holds(story, false)).count();
        eprintln!("stress: seed {seed} failed {failures} of {REPLAYS} times when it was replayed");
        if let Some(plays) = REPLAYS.checked_div(failures) {
            eprintln!("stress: seed {seed}, shortened: {}", shrink(story, plays));
        }
    }
    failed.sort_by_key(|(seed, _)| *seed);
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(
        seeds.is_empty(),
        "seeds {seeds:?} failed; one alone: cargo xtask soak --seeds 1 --from {}",
        seeds[0]
    );
}

fn holds(story: &Story, keep: bool) -> bool {
    catch_unwind(AssertUnwindSafe(|| World::play(&Threads, story, keep))).is_ok()
}

/// Leaves operations out as long as the rest still fails, each time played up to so many times:
/// halves first, then one by one.
fn shrink(story: &Story, plays: usize) -> Story {
    let mut short = story.clone();
    let mut runs = 0;
    let mut piece = short.operations.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < short.operations.len() && runs < SHRINK_RUNS {
            let mut tried = short.clone();
            let end = (at + piece).min(tried.operations.len());
            tried.operations.drain(at..end);
            let mut holds_each_time = || {
                runs += 1;
                holds(&tried, false)
            };
            if (0..plays).all(|_| holds_each_time()) {
                at = end;
            } else {
                short = tried;
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    short
}
