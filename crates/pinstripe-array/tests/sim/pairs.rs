//! Every ordered pair of verbs, by construction: a seed's place modulo the number of pairs says which
//! one is begun while the work of the other one is in progress. A third verb is drawn at random.
//!
//! Judged throughout:
//! - every byte that is read is right, and no read fails; after a kill or a power cut each sector is old
//!   or new, and only what was being written while a member was away may be lost;
//! - an act touches the device that it names and no other one; a device in use stays registered;
//! - nothing is said to be done while an empty slot has a usable spare;
//! - a scrub that was accepted ends or is cancelled, whatever comes between;
//! - in the end the array can do without as many members as its level promises.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::stage::Stage;
use crate::verbs::Verb;

/// Pairs of verbs.
pub const PAIRS: u64 = (Verb::ALL.len() * Verb::ALL.len()) as u64;

/// The pair that a seed plays.
pub fn pair_of(seed: u64) -> (Verb, Verb) {
    let (number, count) = ((seed % PAIRS) as usize, Verb::ALL.len());
    (Verb::ALL[number / count], Verb::ALL[number % count])
}

/// What was played of one pair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    pub seeds: u64,
    /// Of these, both acts were accepted.
    pub both: u64,
    /// Calls of the array and its flusher.
    pub calls: u64,
}

pub static TABLE: Mutex<BTreeMap<(Verb, Verb), Played>> = Mutex::new(BTreeMap::new());

/// Plays a seed's story.
pub fn play(seed: u64) {
    let (first, second) = pair_of(seed);
    let mut stage =
        Stage::new(seed / PAIRS * PAIRS + seed % PAIRS, &format!("{first:?}, {second:?}"));
    stage.prelude();
    let is_first = stage.perform(first);
    stage.between();
    let is_second = stage.perform(second);
    stage.between();
    if stage.draws(2) {
        let third = stage.any_verb();
        stage.perform(third);
        stage.between();
    }
    let calls = stage.finish();
    let mut table = TABLE.lock().unwrap();
    let played = table.entry((first, second)).or_default();
    played.seeds += 1;
    played.both += u64::from(is_first && is_second);
    played.calls += calls;
}

/// The table as Markdown: rows are the act that comes first.
pub fn table() -> String {
    let table = TABLE.lock().unwrap();
    let played = |a: Verb, b: Verb| table.get(&(a, b)).copied().unwrap_or_default();
    let all = || table.values();
    let mut out = format!(
        "{} pairs, {} seeds, {} calls; fewest seeds of a pair {}, both acts accepted in {} seeds\n\n",
        table.len(),
        all().map(|it| it.seeds).sum::<u64>(),
        all().map(|it| it.calls).sum::<u64>(),
        all().map(|it| it.seeds).min().unwrap_or(0),
        all().map(|it| it.both).sum::<u64>(),
    );
    let words = |verb: &Verb| verb.words();
    out += "| first | ";
    out += &Verb::ALL.iter().map(|it| words(it).0).collect::<Vec<_>>().join(" | ");
    out += &format!(" |\n|---|{}\n", "---:|".repeat(Verb::ALL.len()));
    for first in Verb::ALL {
        let cells = Verb::ALL.iter().map(|second| played(first, *second).both.to_string());
        let (name, what) = first.words();
        out += &format!("| {name}: {what} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    out
}
