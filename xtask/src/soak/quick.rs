//! Checks whether `lab quick` repeats its advice: in nine of ten rounds, no advice may contradict
//! the other rounds. Two settings are not a contradiction if they are equally good within the share
//! that the advice itself neglects; "too close to tell" is not a contradiction either. The output
//! also shows how often exactly the same setting was recommended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::program::LabProgram;
use crate::workspace::{Result, Workspace};

/// The default number of rounds.
const ROUNDS: usize = 10;
/// One round in this number may differ.
const OF: usize = 10;
/// How much slower a setting may be so that the difference is neglected, as in the lab's advice.
const NEGLIGIBLE: f64 = 0.03;

/// The options: `--rounds N`, `--dir DIR`, and `--time S`, which is passed to `lab quick`.
struct Wish {
    rounds: usize,
    dir: Option<PathBuf>,
    time: Option<String>,
}

/// The answer of one round to one question.
#[derive(Debug, Clone)]
struct Said {
    setting: String,
    value: String,
    /// Whether the answer was decided, instead of too close to tell.
    is_decided: bool,
}

/// The answers of one round.
#[derive(Debug, Default, Clone)]
struct Round {
    /// By question.
    advice: BTreeMap<String, Said>,
    /// For each variant, the median of the runs that count, and its unit.
    medians: BTreeMap<String, f64>,
}

/// Runs the rounds, prints the advice of each round on each question, and how much of it was
/// repeated; returns false if less than nine of ten rounds agree.
pub fn run(args: &[String]) -> Result<bool> {
    let wish = read(args)?;
    let workspace = Workspace::load()?;
    let program = LabProgram::build(&workspace)?;
    let stand = workspace.target.join("xtask").join("soak-quick");
    let _ = fs::remove_dir_all(&stand);
    fs::create_dir_all(&stand)
        .map_err(|error| format!("cannot make {}: {error}", stand.display()))?;
    let dir = wish.dir.clone().unwrap_or_else(|| stand.clone());
    let rounds: Result<Vec<Round>> = (1..=wish.rounds)
        .map(|number| {
            let round = measure(&program, &stand, &dir, wish.time.as_deref())?;
            println!(
                "round {number} of {}: {} questions answered",
                wish.rounds,
                round.advice.len()
            );
            Ok(round)
        })
        .collect();
    let _ = fs::remove_dir_all(&stand);
    Ok(judge(&rounds?))
}

fn read(args: &[String]) -> Result<Wish> {
    let mut wish = Wish { rounds: ROUNDS, dir: None, time: None };
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--rounds" => {
                let number = value.parse().ok().filter(|it| *it > 1);
                wish.rounds = number.ok_or_else(|| format!("--rounds {value}: two or more"))?;
            }
            "--dir" => wish.dir = Some(PathBuf::from(value)),
            "--time" => wish.time = Some(value.clone()),
            _ => return Err(format!("--rounds, --dir and --time are known here, not '{option}'")),
        }
    }
    Ok(wish)
}

/// Runs one round, with separate directories for results and history.
fn measure(program: &LabProgram, stand: &Path, dir: &Path, time: Option<&str>) -> Result<Round> {
    let time = time.map(|it| format!("--time={it}"));
    let args =
        ["quick".as_ref(), dir.as_os_str()].into_iter().chain(time.iter().map(AsRef::as_ref));
    let (status, events) = program.events(args, &stand.join("state"))?;
    if !status.success() {
        return Err(format!("lab quick ended with {status}"));
    }
    Ok(said(events.into_iter()))
}

/// Extracts the answers of a round from its events.
fn said(events: impl Iterator<Item = Value>) -> Round {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let mut round = Round::default();
    for event in events {
        match event["event"].as_str() {
            Some("lab_variant") => {
                let median = event["value"].as_f64();
                round.medians.extend(median.map(|it| (text(&event["variant"]), it)));
            }
            Some("summary") => {
                for it in event["advice"].as_array().into_iter().flatten() {
                    let said = Said {
                        setting: text(&it["setting"]),
                        value: text(&it["value"]),
                        is_decided: it["is_decided"].as_bool().unwrap_or(true),
                    };
                    round.advice.insert(text(&it["question"]), said);
                }
            }
            _ => {}
        }
    }
    round
}

/// Prints, for each question, how often each answer was given; returns whether nine of ten rounds
/// gave no answer that others contradict.
fn judge(rounds: &[Round]) -> bool {
    let mut questions: Vec<&String> = rounds.iter().flat_map(|it| it.advice.keys()).collect();
    questions.sort();
    questions.dedup();
    let mut same = vec![!questions.is_empty(); rounds.len()];
    let mut holds = same.clone();
    for question in questions {
        let all: Vec<Option<&Said>> = rounds.iter().map(|it| it.advice.get(question)).collect();
        let Some(usual) = usual(all.iter().flatten().copied()) else { continue };
        let shown = all.iter().flatten().copied().filter(|it| it.is_decided);
        let usually_shown = self::usual(shown).unwrap_or(usual);
        for (at, round) in rounds.iter().enumerate() {
            same[at] &= is_alike(round, question, usual);
            let is_open = all[at].is_some_and(|it| !it.is_decided);
            holds[at] &= is_open || is_alike(round, question, usually_shown);
        }
        let count = all.iter().flatten().filter(|it| it.value == usual).count();
        let each: Vec<String> = all.iter().map(|it| text(*it)).collect();
        println!("{question}: {usual} in {count} of {}; each: {}", rounds.len(), each.join(" "));
    }
    let count = |of: &[bool]| of.iter().filter(|it| **it).count();
    let (same, good) = (count(&same), count(&holds));
    println!(
        "(V): too close to tell. The same advice, or as good, in {same} of {} rounds;",
        rounds.len()
    );
    println!("nothing that other rounds contradict in {good}");
    rounds.len() - good <= rounds.len() / OF
}

/// Returns the most frequent answer.
fn usual<'a>(said: impl Iterator<Item = &'a Said>) -> Option<&'a str> {
    let mut counts = BTreeMap::new();
    said.for_each(|it| *counts.entry(it.value.as_str()).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

fn text(said: Option<&Said>) -> String {
    match said {
        Some(Said { value, is_decided: true, .. }) => value.clone(),
        Some(Said { value, .. }) => format!("({value})"),
        None => "-".to_owned(),
    }
}

/// Whether a round has this advice, or advice whose figure in that round is equally good within the
/// neglected share. Returns false if the round has no answer to the question.
fn is_alike(round: &Round, question: &str, usual: &str) -> bool {
    let Some(Said { setting, value, .. }) = round.advice.get(question) else { return false };
    let median = |value: &str| round.medians.get(&format!("{question}: {setting} {value}"));
    let near = |(own, others): (&f64, &f64)| (own / others - 1.0).abs() <= NEGLIGIBLE;
    value == usual || median(value).zip(median(usual)).is_some_and(near)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A round that advises a depth, with figures of depths 1, 2 and 4.
    fn round(advised: &str, figures: [f64; 3]) -> Round {
        told(advised, true, figures)
    }

    fn told(advised: &str, is_decided: bool, figures: [f64; 3]) -> Round {
        let variant = |(depth, value): (&str, f64)| json!({"event": "lab_variant", "variant": format!("read: depth {depth}"), "value": value});
        let variants = ["1", "2", "4"].into_iter().zip(figures).map(variant);
        let advice = json!([{"question": "read", "setting": "depth", "value": advised, "is_decided": is_decided}]);
        let summary = json!({"event": "summary", "advice": advice});
        said(variants.chain([summary, json!({"event": "lab_run"})]))
    }

    #[test]
    fn nine_of_ten_rounds_are_to_say_the_same_or_something_as_good() {
        let usual = || round("2", [50.0, 99.0, 100.0]);
        let as_good = || round("4", [50.0, 98.0, 100.0]);
        let other = || round("1", [100.0, 90.0, 80.0]);
        let ten = |first: Round, second: Round| {
            let mut rounds: Vec<Round> = (0..8).map(|_| usual()).collect();
            rounds.extend([first, second]);
            judge(&rounds)
        };
        assert!(ten(usual(), usual()) && ten(as_good(), as_good()) && ten(as_good(), other()));
        assert!(!ten(other(), other()));
        let open = || told("1", false, [100.0, 90.0, 80.0]);
        assert!(ten(open(), open()) && ten(open(), other()), "what is open contradicts nothing");
        assert!(!ten(Round::default(), other()), "no answer is not the same");
        assert!(!judge(&[Round::default(), Round::default()]), "nothing was said");
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let read = |line: &str| read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let wish = read("--rounds 3 --dir /srv --time 60").unwrap();
        assert_eq!((wish.rounds, wish.dir), (3, Some(PathBuf::from("/srv"))));
        for bad in ["--rounds 1", "--rounds x", "--rounds", "--dirs /srv"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
