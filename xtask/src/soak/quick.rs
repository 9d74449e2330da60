//! Whether `lab quick` says the same again: of ten rounds on a quiet machine nine have the same advice, or one
//! by which as little is lost as the advice itself neglects.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::workspace::{Result, Workspace, cargo, succeeds};

/// Rounds when no others are asked for.
const ROUNDS: usize = 10;
/// Of so many rounds one may differ.
const OF: usize = 10;
/// The share by which something may be slower without being passed over, as `advice` has it.
const NEGLIGIBLE: f64 = 0.03;

/// `--rounds N`, `--dir DIR`, and `--time S`, which is that of `lab quick`.
struct Wish {
    rounds: usize,
    dir: Option<PathBuf>,
    time: Option<String>,
}

/// What one round said.
#[derive(Debug, Default, Clone)]
struct Round {
    /// By question: the setting and its value.
    advice: BTreeMap<String, (String, String)>,
    /// By variant: the median of the runs that count, and its unit.
    medians: BTreeMap<String, f64>,
}

/// Runs the rounds, prints what each said of each question, and what of it was said again; false when that is
/// less than nine of ten.
pub fn run(args: &[String]) -> Result<bool> {
    let wish = read(args)?;
    let workspace = Workspace::load()?;
    if !succeeds(cargo().args(["build", "--release", "--package", "pinstripe-cli"]))? {
        return Ok(false);
    }
    let stand = workspace.target.join("xtask").join("soak-quick");
    let _ = fs::remove_dir_all(&stand);
    fs::create_dir_all(&stand)
        .map_err(|error| format!("cannot make {}: {error}", stand.display()))?;
    let binary = workspace.target.join("release").join("pinstripe");
    let dir = wish.dir.clone().unwrap_or_else(|| stand.clone());
    let rounds: Result<Vec<Round>> = (1..=wish.rounds)
        .map(|number| {
            let round = measure(&binary, &stand, &dir, wish.time.as_deref())?;
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

/// One round, with results and history in a place of their own.
fn measure(binary: &Path, stand: &Path, dir: &Path, time: Option<&str>) -> Result<Round> {
    let mut command = Command::new(binary);
    command.args(["lab", "quick", "--json"]).arg(dir).env("XDG_STATE_HOME", stand.join("state"));
    command.args(time.map(|it| format!("--time={it}")));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run pinstripe: {error}"))?;
    if !output.status.success() {
        return Err(format!("lab quick ended with {}", output.status));
    }
    let events = String::from_utf8_lossy(&output.stdout);
    Ok(said(events.lines().filter_map(|it| serde_json::from_str(it).ok())))
}

/// What the events of a round say.
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
                    let said = (text(&it["setting"]), text(&it["value"]));
                    round.advice.insert(text(&it["question"]), said);
                }
            }
            _ => {}
        }
    }
    round
}

/// Prints, question by question, what was said how often; whether nine of ten rounds said all of it.
fn judge(rounds: &[Round]) -> bool {
    let mut questions: Vec<&String> = rounds.iter().flat_map(|it| it.advice.keys()).collect();
    questions.sort();
    questions.dedup();
    let mut agrees = vec![!questions.is_empty(); rounds.len()];
    for question in questions {
        let said = |round: &Round| round.advice.get(question).map(|it| it.1.clone());
        let all: Vec<String> = rounds.iter().filter_map(said).collect();
        let count = |value: &String| all.iter().filter(|it| *it == value).count();
        let Some(usual) = all.iter().max_by_key(|it| count(it)) else { continue };
        let alike: Vec<bool> = rounds.iter().map(|it| is_alike(it, question, usual)).collect();
        agrees.iter_mut().zip(&alike).for_each(|(all, one)| *all &= one);
        let good = alike.iter().filter(|it| **it).count();
        println!(
            "{question}: {usual} in {} of {} rounds, as good in {} more; each round: {}",
            count(usual),
            rounds.len(),
            good - count(usual),
            rounds
                .iter()
                .map(|it| said(it).unwrap_or("-".to_owned()))
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    let good = agrees.iter().filter(|it| **it).count();
    println!("the same advice in {good} of {} rounds", rounds.len());
    rounds.len() - good <= rounds.len() / OF
}

/// Whether a round says what is usual, or something whose figure of that round is as good as that of what is
/// usual, but for what is neglected. A question that it has no answer to is not alike.
fn is_alike(round: &Round, question: &str, usual: &str) -> bool {
    let Some((setting, value)) = round.advice.get(question) else { return false };
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
        let variant = |(depth, value): (&str, f64)| json!({"event": "lab_variant", "variant": format!("read: depth {depth}"), "value": value});
        let variants = ["1", "2", "4"].into_iter().zip(figures).map(variant);
        let advice = json!([{"question": "read", "setting": "depth", "value": advised}]);
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
