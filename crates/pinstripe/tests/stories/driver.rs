//! Plays stories by their seeds, keeps what is left of one that fails, and shortens it: since each
//! goes the same way whenever it is played, a shorter one that fails is one that fails always.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Instant;

use pinstripe_base::clock;
use pinstripe_member::meta::{self, Stat, Time};
use tempfile::TempDir;

use crate::draw;
use crate::process::Scheduled;
use crate::shrink::Short;
use crate::trace::Trace;
use pinstripe_schedule::Counts;
use pinstripe_sim::STAMP_SECONDS;
use pinstripe_sim::Story;
use pinstripe_sim::World;

/// Seeds between two lines that say how far it has come.
const TOLD_EVERY: u64 = 500;

/// The outcome of a story.
pub struct Played {
    /// The fault that was found.
    pub wrong: Option<String>,
    pub counts: Counts,
    pub trace: String,
}

/// The directory of a story: a name of its seed alone, for names stand in what is written.
fn place(seed: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    base.join(format!("pinstripe-story-{seed:08x}"))
}

/// What the file system says of an entry, as far as it follows from the story: times of
/// modification tell inodes and their versions apart, for each is another one. What has none of
/// the story is a directory above its own.
pub fn told(stat: Stat) -> Stat {
    if stat.mtime.seconds != STAMP_SECONDS {
        let mtime = Time { seconds: STAMP_SECONDS, nanos: 0 };
        return told(Stat { mtime, links: 2, size_bytes: 0, device: 0, ..stat });
    }
    Stat { inode: stat.mtime.nanos.into(), ctime: stat.mtime, device: 0, ..stat }
}

/// The directory of the story that is played.
pub fn directory(seed: u64) -> TempDir {
    tempfile::Builder::new().prefix("story").rand_bytes(0).tempdir_in(place(seed)).unwrap()
}

/// Has a place to itself: another process may play the same story.
fn take_place(place: &Path) -> File {
    loop {
        let _ = fs::create_dir(place);
        let Ok(held) = File::open(place) else { continue };
        held.lock().unwrap();
        let is_still_there = File::open(place).is_ok_and(|it| is_same(&it, &held));
        if is_still_there {
            let _ = fs::remove_dir_all(place.join("story"));
            return held;
        }
    }
}

fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).unwrap();
    of(one) == of(other)
}

/// Trace and schedule are the process's: tests that run side by side play one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static PLAYING: Mutex<()> = Mutex::new(());
    PLAYING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays a story; `keeps` a trace, and the directory when it fails.
pub fn play(story: &Story, keeps: bool) -> Played {
    let _alone = alone();
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        clock::be_told_by(pinstripe_schedule::now);
        meta::be_told_by(told);
        pinstripe_sim::sleep_for_ticks();
    });
    let place = place(story.seed);
    let held = take_place(&place);
    Trace::begin(keeps);
    let world = AssertUnwindSafe(|| World::play(&Scheduled, story, keeps));
    let (done, counts) = pinstripe_schedule::scheduled(story.seed, || catch_unwind(world));
    let wrong = done.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without words".to_owned())
    });
    if wrong.is_some() && keeps {
        let kept = place.with_extension("failed");
        let _ = fs::remove_dir_all(&kept);
        let _ = fs::rename(place.join("story"), &kept);
    }
    let _ = fs::remove_dir_all(&place);
    drop(held);
    let trace = if keeps { Trace.text() } else { String::new() };
    Played { wrong, counts, trace }
}

/// Plays every seed, of its story only what is asked for; panics at the end when one failed, the
/// first of which was shortened.
pub fn run(seeds: Range<u64>, only: Option<&str>) {
    let (began, mut calls, mut choices) = (Instant::now(), 0, 0);
    let (mut orders, mut failed) = (HashSet::new(), Vec::new());
    let all = seeds.end - seeds.start;
    for seed in seeds.clone() {
        let done = seed - seeds.start;
        if done > 0 && done.is_multiple_of(TOLD_EVERY) {
            let each = began.elapsed().as_secs_f64() / done as f64;
            let left = each * (all - done) as f64 / 60.0;
            let each = each * 1000.0;
            eprintln!("stories: {done} of {all} seeds, {each:.1} ms each, {left:.0} min left");
        }
        let mut story = draw::story(seed);
        if let Some(only) = only {
            story = Short::parse(&story, only).expect("NUMBER[=STEPS|=whole],...").story();
        }
        let played = play(&story, false);
        calls += played.counts.calls;
        choices += played.counts.choices;
        orders.insert(played.counts.order);
        if played.wrong.is_some() {
            eprintln!("stories: seed {seed} FAILED; as drawn: {story}");
            if failed.is_empty() {
                report(&story, &played);
            }
            failed.push(seed);
        }
    }
    let (orders, took) = (orders.len(), began.elapsed().as_secs());
    println!("stories: {all} seeds, {calls} calls, {choices} choices, {orders} orders, {took} s");
    assert!(
        failed.is_empty(),
        "seeds {failed:?} failed; one alone: cargo xtask soak stories --seeds 1 --from {}",
        failed[0]
    );
}

/// Says whether a failure comes again, and the shortest story that has one.
fn report(story: &Story, first: &Played) {
    let again = play(story, true);
    let is_same = (&again.wrong, again.counts) == (&first.wrong, first.counts);
    let seed = story.seed;
    eprintln!("stories: seed {seed} replays {}", if is_same { "exactly" } else { "OTHERWISE" });
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let short = Short::of(story, |tried| play(tried, false).wrong.is_some());
    let played = play(&short.story(), true);
    std::panic::set_hook(hook);
    eprintln!("stories: seed {seed}, shortened: {}", short.story());
    eprintln!("stories: what is wrong then: {}", played.wrong.unwrap_or_default());
    let next = seed + 1;
    eprintln!(
        "stories: it alone: PINSTRIPE_STORY_SEEDS={seed}..{next} PINSTRIPE_STORY_ONLY={short}"
    );
    let kept = place(seed).with_extension("failed");
    eprintln!("stories: its directory, story and trace: {}", kept.display());
}
