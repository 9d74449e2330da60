//! Pairs of verbs: every verb of the store beside every other one, and three at random, each in a
//! process of its own, interleaved at the calls of the member seam; with members that are full,
//! absent, hung, stale, dead, and with objects that nobody wrote; whole, killed, and when the power
//! goes off.
//!
//! `PINSTRIPE_PAIR_SEEDS=FROM..TO` chooses other seeds (`cargo xtask soak pairs --simulated` does).
//! The pair of a seed follows from the seed, so that every run of seeds as long as there are pairs
//! plays each of them. A seed that fails is shortened, and printed as `found.rs` takes it.

mod actor;
mod found;
mod judge;
mod keys;
mod mount;
mod promise;
mod stage;
mod story;
mod table;
mod template;
mod verb;
mod world;

use std::fs::{self, File};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use pinstripe_base::clock;
use pinstripe_member::meta;

use crate::driver::told;
use crate::trace::Trace;
use story::{Story, Trouble};
use table::Table;
use template::Templates;
use world::World;

/// Seeds of `cargo xtask test --all`, of which the gate plays a third.
const SEEDS: Range<u64> = 0..225;
/// Seconds of the story's clock after which a story begins: templates were made before.
const BEGINS_SECONDS: u64 = 10_000;
/// The store is healed at the end of one story of so many.
const HEALED_ONE_OF: u64 = 2;
/// Seeds between two lines that say how far it has come.
const TOLD_EVERY: u64 = 1000;
/// Plays of one story while it is shortened, at most.
const PLAYS: usize = 300;

/// The outcome of a story.
pub struct Played {
    pub wrong: Option<String>,
    pub order: u64,
    /// Calls of each verb of the scene with most verbs.
    pub calls: Vec<(verb::Verb, u64)>,
    /// What every process did to its members, if it was asked for.
    pub trace: String,
}

/// The place of this process, and what it keeps there between stories.
struct Place {
    templates: Templates,
    _held: File,
}

/// A place in memory which other processes that play do not use at the same time. Its name is the
/// same for each process, so that stories are the same, unless the process is given a number.
fn take_place() -> Place {
    let number = std::env::var("PINSTRIPE_PAIR_PLACE").unwrap_or_else(|_| "0".to_owned());
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let place: PathBuf = base.join(format!("pinstripe-pairs-{number}"));
    fs::create_dir_all(&place).unwrap();
    let held = File::open(&place).unwrap();
    held.lock().unwrap();
    Place { templates: Templates::new(&place), _held: held }
}

/// Plays a story; keeps a trace if it is asked for.
pub fn play(story: &Story, keeps: bool) -> Played {
    static PLACE: Mutex<Option<Place>> = Mutex::new(None);
    let _alone = crate::driver::alone();
    let mut place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        clock::be_told_by(pinstripe_schedule::now);
        meta::be_told_by(told);
        pinstripe_sim::sleep_for_ticks();
    });
    let place = place.get_or_insert_with(take_place);
    Trace::begin(false);
    let template = place.templates.of(story.shape);
    Trace::begin(keeps);
    let mut world = place.templates.world(story.shape, &template);
    let mut calls = Vec::new();
    let tell = AssertUnwindSafe(|| carry_out(&mut world, story, &mut calls));
    let (done, counts) =
        pinstripe_schedule::scheduled_from(BEGINS_SECONDS, story.seed, || catch_unwind(tell));
    let wrong = done.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without words".to_owned())
    });
    drop(world);
    let trace = if keeps { Trace.text() } else { String::new() };
    Played { wrong, order: counts.order, calls, trace }
}

fn carry_out(world: &mut World, story: &Story, calls: &mut Vec<(verb::Verb, u64)>) {
    for scene in &story.scenes {
        let absent = world.absent();
        let outcomes = world.play(scene);
        let dead = usize::from(matches!(
            scene.trouble,
            Trouble::Dies { .. } | Trouble::DiesBesideRot { .. }
        ));
        if outcomes.len() > calls.len() {
            *calls = outcomes.iter().map(|it| (it.act.verb, it.calls)).collect();
        }
        world.settle(scene, absent + dead, outcomes);
    }
    world.judge();
    if story.seed.is_multiple_of(HEALED_ONE_OF) {
        world.heal();
    }
}

#[test]
fn every_pair_of_verbs_ends_well() {
    let seeds = pinstripe_testing::chosen_seeds("PINSTRIPE_PAIR_SEEDS", SEEDS);
    run(seeds);
}

#[test]
fn a_pair_goes_the_same_way_each_time() {
    for seed in 0..5 {
        let story = story::story(seed * 211);
        let [once, again] = [(); 2].map(|()| {
            let played = play(&story, true);
            (played.order, played.calls, played.trace)
        });
        let both = once.2.lines().zip(again.2.lines()).enumerate();
        for (number, (one, other)) in both {
            assert_eq!(one, other, "seed {seed}, line {number} of the trace");
        }
        assert_eq!(once, again, "seed {seed}");
    }
}

/// Plays every seed; panics at the end when one failed, the first of which was shortened.
fn run(seeds: Range<u64>) {
    let (began, mut table, mut failed) = (Instant::now(), Table::default(), Vec::new());
    let all = seeds.end - seeds.start;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for seed in seeds.clone() {
        let done = seed - seeds.start;
        if done > 0 && done.is_multiple_of(TOLD_EVERY) {
            let each = began.elapsed().as_secs_f64() * 1000.0 / done as f64;
            eprintln!("pairs: {done} of {all} seeds, {each:.1} ms each");
        }
        let story = story::story(seed);
        let played = play(&story, false);
        table.count(&played.calls);
        if let Some(wrong) = played.wrong {
            let asked = |name: &str| std::env::var_os(name).is_some();
            let (tells_all, tells) =
                (asked("PINSTRIPE_PAIR_SHORTEN"), asked("PINSTRIPE_PAIR_TELL"));
            eprintln!("pairs: seed {seed} FAILED: {}", first_line(&wrong));
            if tells {
                eprintln!("pairs: seed {seed}: {story:?}");
            }
            if failed.is_empty() || tells_all {
                report(&story, &wrong);
            }
            failed.push(seed);
        }
    }
    std::panic::set_hook(hook);
    println!("pairs: {all} seeds, {} calls, {} s", table.calls(), began.elapsed().as_secs());
    if let Some(file) = std::env::var_os("PINSTRIPE_PAIR_TABLE") {
        fs::write(file, table.data()).unwrap();
    }
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(400).collect()
}

/// What a failure is about, without names and numbers: a shorter story has to fail by the same.
fn signature(wrong: &str) -> String {
    let words = first_line(wrong);
    let words = words.split_whitespace().filter(|word| !word.contains(['/', '[', '(']));
    let words =
        words.filter(|word| word.len() < 20 && !word.contains(|it: char| it.is_ascii_digit()));
    words.take(6).collect::<Vec<_>>().join(" ")
}

/// Says the shortest story that fails, with its trace in a file.
fn report(story: &Story, wrong: &str) {
    let mut short = story.clone();
    let mut plays = 0;
    let fails = |tried: &Story| {
        let wrong_then = play(tried, false).wrong;
        wrong_then.is_some_and(|it| signature(&it) == signature(wrong))
    };
    while let Some(shorter) = short.shorter().into_iter().find(|tried| {
        plays += 1;
        plays <= PLAYS && !tried.scenes.is_empty() && fails(tried)
    }) {
        short = shorter;
    }
    let played = play(&short, true);
    let trace = std::env::temp_dir().join(format!("pinstripe-pair-{}", story.seed));
    fs::write(&trace, played.trace).unwrap();
    eprintln!("pairs: seed {}, shortened: {short:?}", story.seed);
    eprintln!("pairs: what is wrong then: {}", played.wrong.unwrap_or_default());
    eprintln!("pairs: its trace: {}", trace.display());
}
